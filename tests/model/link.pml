/* SPDX-License-Identifier: Apache-2.0
 *
 * link.pml - one directed link, its two ends and their doorbells, on a machine whose stores are seen late. A model for
 * Spin; tests/test_model.sh runs it.
 *
 * The sender carries SLICES slices through SLOTS slots to the receiver. Each end sleeps when it can do nothing, and may
 * close when its part is done; a third thread may stop both at any moment, and if it does, either end's caller may also
 * stay away for ever. All orders of all memory accesses are searched. What is checked:
 *   - slices arrive once each, in order and whole; none is overwritten before it is released; what the receiver leaves
 *     in a slot is there when the sender counts the slice as done; what was committed before a close arrives;
 *   - done <= committed <= reserved <= done + slots, and released <= arrived;
 *   - no wake-up is lost: nobody sleeps for ever. A sleep has no timeout here, so such a sleep is a deadlock;
 *   - everyone ends, and after abort even if the peer does nothing more. With -DNP and pan -l: no run is infinite, so
 *     nobody is kept busy for ever either.
 *
 * Where each name is in the C source:
 *   FILLED, FREED, PAYLOAD     rondo_slot and the payload behind it       include/rondo_transport.h
 *   CLOSED                     rd_slots_control.closed, rd_slots_leave    src/transport/slots.h, slots.c
 *   poll                       rd_slots_poll: has_come, not_come          src/transport/slots.c
 *   reserve, commit            rd_slots_reserve, rd_slots_commit          src/transport/slots.c
 *   peek, release              rd_slots_peek, rd_slots_release            src/transport/slots.c
 *   second look                rd_slots_arm; sleep_on_bell                src/transport/slots.c, src/core/wait.c
 *   WORD, arm, disarm, snooze  rd_bell_arm, rd_bell_disarm, rd_bell_sleep src/base/bell.c
 *   ring, wake                 rd_ringer_ring, rd_bell_wake               src/base/bell.h, bell.c
 *   STOP, aborter              rd_stop.word, rd_comm_stop                 src/core/comm.h, wait.c
 *
 * Stores are those of x86 (total store order): each thread has a buffer of its last ROOM stores, which reach memory in
 * their order but at any time; its own loads see them, other threads' do not. A fence, an atomic exchange and a system
 * call wait until it is empty. On weaker machines the acquires and releases of the source keep the same orders.
 *
 * Each of these switches takes one line out, and Spin then finds what the line is for:
 *   NO_WAKER_FENCE, NO_SLEEPER_FENCE, NO_SECOND_LOOK, NO_STOP_LOOK    somebody sleeps for ever
 *   NO_CREDIT, EARLY_FILLED, EARLY_FREED                              a slice is lost or damaged
 *   NO_LOOK_AFTER_CLOSED                                              the last slice is lost
 * EPOLL sleeps in epoll on an edge-triggered eventfd instead of in a futex. SHOW_SLEEP and SHOW_DELIVERED make an error
 * of what ought to happen, both ends slept and woke, all slices came: they show that the search gets there.
 */
#ifndef SLICES
#define SLICES 3
#endif
#ifndef ROOM
#define ROOM 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif

#define SENDER 0
#define RECEIVER 1
#define ABORTER 2

/* Memory, by address. The word of slice n is in slot n % SLOTS. */
#define FILLED(n) ((n) % SLOTS)
#define FREED(n) (SLOTS + (n) % SLOTS)
#define PAYLOAD(n) (2 * SLOTS + (n) % SLOTS)
#define WORD(rank) (3 * SLOTS + (rank))
#define CLOSED(rank) (3 * SLOTS + 2 + (rank))
#define STOP (3 * SLOTS + 4)
byte mem[3 * SLOTS + 5];

#ifdef NO_CREDIT
#define CREDIT true
#define CREDIT_HOLDS true /* so that the damage is found, not the cause */
#else
#define CREDIT (reserved < done + SLOTS)
#define CREDIT_HOLDS (reserved <= done + SLOTS)
#endif

#define SENT(n) (10 + (n)) /* what the sender writes into slice n, and what the receiver leaves there */
#define LEFT(n) (20 + (n))

/* The store buffers, oldest store first. */
byte pending[3], address[3 * ROOM], what[3 * ROOM];

bool aborts;    /* there will be an abort: then a rank's caller may also stay away for ever */
bool asleep[2]; /* in a futex */
bool rung[2];   /* EPOLL: the eventfd was written and nobody has been woken for it */
byte given;     /* slices committed, for the checks */
#ifdef SHOW_SLEEP
bool slept[2];
#endif

inline store(a, v) {
    atomic {
        pending[me] < ROOM;
        address[me * ROOM + pending[me]] = a;
        what[me * ROOM + pending[me]] = v;
        pending[me]++
    }
}

/* x = what this thread sees at address a. */
inline load(a, x) {
    d_step {
        x = mem[a];
        i = 0;
        do
        :: i < pending[me] ->
            if
            :: address[me * ROOM + i] == a -> x = what[me * ROOM + i]
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0
    }
}

#define FENCE pending[me] == 0

/* The hardware: moves the oldest store of a thread to memory. */
inline drain(thread) {
    d_step {
        pending[thread] > 0;
        mem[address[thread * ROOM]] = what[thread * ROOM];
        pending[thread]--;
        i = thread * ROOM;
        do
        :: i < thread * ROOM + ROOM - 1 ->
            address[i] = address[i + 1];
            what[i] = what[i + 1];
            i++
        :: else -> break
        od;
        address[i] = 0;
        what[i] = 0;
        i = 0
    }
}

active proctype hardware() {
    byte i;
end:
    do
    :: drain(SENDER)
    :: drain(RECEIVER)
    :: drain(ABORTER)
    od
}

/* rd_ringer_ring: fence, look whether the rank sleeps, and if so take its word back and wake it. */
inline ring(rank) {
#ifndef NO_WAKER_FENCE
    FENCE;
#endif
    load(WORD(rank), x);
    if
    :: x != 0 ->
        atomic {
            FENCE; /* an exchange is one */
            x = mem[WORD(rank)];
            mem[WORD(rank)] = 0
        }
        if
        :: x != 0 -> wake(rank)
        :: else
        fi
    :: else
    fi;
    x = 0
}

/* rd_bell_arm and rd_bell_disarm. */
inline arm() {
    store(WORD(me), 1);
#ifndef NO_SLEEPER_FENCE
    FENCE
#else
    skip
#endif
}
inline disarm() { store(WORD(me), 0) }

/* rd_bell_sleep without its timeout, which would hide a lost wake-up: unless somebody rang since arm, a system call
 * that returns when somebody does. A futex compares the word once more, in memory. */
inline snooze() {
    load(WORD(me), x);
    if
    :: x != 0 ->
#ifdef EPOLL
        FENCE;
        atomic {
            rung[me];
            rung[me] = false
        }
#else
        atomic {
            FENCE;
            asleep[me] = mem[WORD(me)] != 0
        }
        !asleep[me]
#endif
#ifdef SHOW_SLEEP
        ;
        slept[me] = true;
        assert(!slept[SENDER] || !slept[RECEIVER])
#endif
    :: else
    fi;
    disarm()
}

inline wake(rank) {
#ifdef EPOLL
    rung[rank] = true
#else
    asleep[rank] = false
#endif
}

/* The last line of a second look, of either end: has the communicator been stopped? */
inline look_at_stop() {
#ifndef NO_STOP_LOOK
    load(STOP, x);
    if
    :: x != 0 -> disarm(); goto again
    :: else
    fi
#else
    skip
#endif
}

active proctype sender() {
    byte me = SENDER, x, i, reserved, committed, done;
again:
    if
    :: skip
    :: aborts -> goto end_elsewhere
    fi;
    load(STOP, x);
    if
    :: x != 0 -> goto leave
    :: else
    fi;

    /* poll */
    load(FREED(done), x);
    if
    :: x == done + 1 ->
        load(PAYLOAD(done), x);
        assert(x == LEFT(done));
        done++;
        goto again
    :: else
    fi;
    load(CLOSED(RECEIVER), x);
    if
    :: x != 0 -> goto leave
    :: else
    fi;

    assert(done <= committed && committed <= reserved && CREDIT_HOLDS);
    if
    :: reserved < SLICES && CREDIT ->
        reserved++;
        goto again
    :: committed < reserved ->
#ifdef EARLY_FILLED
        store(FILLED(committed), committed + 1);
        store(PAYLOAD(committed), SENT(committed));
#else
        store(PAYLOAD(committed), SENT(committed));
        store(FILLED(committed), committed + 1);
#endif
        committed++;
        given = committed;
        ring(RECEIVER);
        goto again
    :: committed == SLICES -> goto leave /* it need not wait for the last slices to be done */
    :: committed == reserved && !(reserved < SLICES && CREDIT) && done < SLICES
    fi;

    arm();
#ifndef NO_SECOND_LOOK
    load(FREED(done), x);
    if
    :: x == done + 1 -> disarm(); goto again
    :: else
    fi;
    load(CLOSED(RECEIVER), x);
    if
    :: x != 0 -> disarm(); goto again
    :: else
    fi;
#endif
    look_at_stop();
    snooze();
    goto again;

leave:
    store(CLOSED(me), 1);
    ring(RECEIVER);
    goto end;

end_elsewhere: /* the caller computes, and never comes back */
    false;
end:
    skip
}

active proctype receiver() {
    byte me = RECEIVER, x, i, arrived, released;
again:
    if
    :: skip
    :: aborts -> goto end_elsewhere
    fi;
    load(STOP, x);
    if
    :: x != 0 -> goto leave
    :: else
    fi;

    /* poll */
    assert(released <= arrived);
    load(FILLED(arrived), x);
    if
    :: x == arrived + 1 ->
        arrived++;
        if
        :: goto again
        :: skip
        fi
    :: else ->
        load(CLOSED(SENDER), x);
        if
        :: x != 0 && released == arrived ->
#ifndef NO_LOOK_AFTER_CLOSED
            load(FILLED(arrived), x);
            if
            :: x == arrived + 1 -> goto again
            :: else
            fi;
#endif
            assert(released == given && (given == SLICES || mem[STOP] != 0));
#ifdef SHOW_DELIVERED
            assert(given < SLICES);
#endif
            goto leave
        :: else
        fi
    fi;

    if
    :: released < arrived -> /* peek, release */
        load(PAYLOAD(released), x);
        assert(x == SENT(released));
#ifdef EARLY_FREED
        store(FREED(released), released + 1);
        store(PAYLOAD(released), LEFT(released));
#else
        store(PAYLOAD(released), LEFT(released));
        store(FREED(released), released + 1);
#endif
        released++;
        ring(SENDER);
        goto again
    :: else
    fi;

    arm();
#ifndef NO_SECOND_LOOK
    load(FILLED(arrived), x);
    if
    :: x == arrived + 1 -> disarm(); goto again
    :: else
    fi;
    load(CLOSED(SENDER), x);
    if
    :: x != 0 -> disarm(); goto again
    :: else
    fi;
#endif
    look_at_stop();
    snooze();
    goto again;

leave:
    store(CLOSED(me), 1);
    ring(SENDER);
    goto end;

end_elsewhere:
    false;
end:
    skip
}

active proctype aborter() {
    byte me = ABORTER, x, i;
    if
    :: skip
    :: aborts = true;
        store(STOP, 1);
        ring(SENDER);
        ring(RECEIVER)
    fi
}
