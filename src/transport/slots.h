/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.h - a slot ring in memory that both ends reach: what loop and shm have in common.
 *
 *   control line | unused | slot 0: head, payload | slot 1: head, payload | ...        slot i at base + i * stride
 *
 * The sending end stores `filled`, the receiving end `freed`; both are slice numbers and only grow, so there is no
 * wrap to handle and no lock to take. Each end watches the other's word of one slot: the one it expects next.
 */
#ifndef RD_TRANSPORT_SLOTS_H
#define RD_TRANSPORT_SLOTS_H

#include "transport/transport.h"

/* The first line of the memory. */
typedef struct rd_slots_control {
    uint64_t token[2];          /* random: who reads it here has mapped this memory */
    uint64_t slot_bytes;
    uint32_t slots;
    _Atomic uint32_t closed[2]; /* by RD_SENDER, RD_RECEIVER; stored after the last slot head */
    _Atomic uint32_t withdrawn; /* the sender's memory is no longer to be touched */
    _Atomic uint32_t inside;    /* the receiver is touching it */
    unsigned char unused[20];
} rd_slots_control;

/* From one head to its payload: two lines, since processors fetch a line's neighbour, too. Who polls a head would else take
 * the payload's first line from him who writes it, or a payload's reader the next slot's head: where the cores share no
 * cache that is 7 to 13 % of 64 B, 256 B and 8 KiB, where they do 2 to 3 % of 256 B and 16 KiB. */
#define RD_SLOTS_HEAD 128

/* Where slot 0 begins, so that its payload does in the middle of a page, and the others' close by. Users' buffers and
 * their parts mostly begin within the first lines of one. A loop over both that met each at the same distance from a
 * page's begin would, on many processors, take loads of the one to need what was just stored into the other (they
 * compare 12 bits of addresses), and find the two in each other's way in the first cache (Zen guesses the way in it by
 * a hash of addresses): 5 to 15 % of an all-reduce of 16 KiB to 4 MiB, and where the hashes meet several times as long.
 */
#define RD_SLOTS_FIRST (2048 - RD_SLOTS_HEAD)
/* A rank reads the slots of all that send to it side by side, and writes to them. At one distance from a page's begin,
 * the lines of 16 of them would share 8 ways of the first cache: so each link's slots lie further on by some of these. */
#define RD_SLOTS_PLACES 16

/* One end. */
typedef struct rd_slots {
    rondo_link link;
    unsigned char *base;
    size_t stride;
    uint64_t mask;      /* slots - 1 */
    size_t watched;     /* offset in a slot's head of the peer's word: freed for the sender, filled for the receiver */
    uint64_t counted;   /* slices that have come all the way, as poll has seen: done or arrived */
    uint64_t reserved;  /* sender */
    bool by_halves;     /* sender: slots came back several at a time when it looked last */
    uint64_t finished;  /* sender: committed; receiver: released */
    uint32_t foreign;   /* receiver: how far behind the oldest lies the slice that was last found to be another */
    rd_slots_control *control;
    int side;           /* RD_SENDER or RD_RECEIVER */
    rd_ringer ringer;   /* of the peer; nobody's before complete */
} rd_slots;

/* Compares what the peer offers with what this rank was asked for. */
rondo_result rd_slots_agree(const rondo_link_spec *spec, const char *transport, uint32_t our_version,
                            uint32_t version, uint32_t slots, uint64_t slot_bytes);
/* Bytes of memory for it, control line included. */
size_t rd_slots_memory(const rondo_link_spec *spec);
/* Fills in control and heads of memory that is zero or new; done once, by the sender. */
void rd_slots_prepare(void *memory, const rondo_link_spec *spec, const uint64_t token[2]);
/* Fills in an end. The ringer is nobody's yet. */
void rd_slots_init(rd_slots *end, void *memory, const rondo_link_spec *spec, int side, const rondo_link_ops *ops);
/* Tells the peer that this end is closed. */
void rd_slots_leave(rd_slots *end);

/* 128 random bits. */
rondo_result rd_slots_token(uint64_t token[2]);

/* 128 bits by which a process knows itself again; a forked child has others. */
rondo_result rd_slots_process(uint64_t process[2]);

/* rondo_link_ops. */
rondo_link_result rd_slots_reserve(rondo_link *link, size_t bytes, void **place);
rondo_link_result rd_slots_commit(rondo_link *link, size_t bytes, uint64_t signature);
rondo_link_result rd_slots_peek(rondo_link *link, size_t bytes, uint64_t signature, void **place);
rondo_link_result rd_slots_peek_ahead(rondo_link *link, uint32_t ahead, size_t bytes, uint64_t signature, void **place);
rondo_link_result rd_slots_release(rondo_link *link);
rondo_link_result rd_slots_poll(rondo_link *link, uint64_t *count);
rondo_link_result rd_slots_arm(rondo_link *link, rondo_bell *bell, uint64_t seen);
rondo_link_result rd_slots_view(rondo_link *link, rondo_view *view);
rondo_link_result rd_slots_moved(rondo_link *link, uint64_t slices, uint64_t bytes);
rondo_link_result rd_slots_withdraw(rondo_link *link);
rondo_link_result rd_slots_enter(rondo_link *link);
void rd_slots_exit(rondo_link *link);
void rd_slots_seen(const rondo_link *link, uint64_t *signature, uint64_t *bytes);

#define RD_SLOTS_CAPS \
    (RONDO_LINK_SLOTS | RONDO_LINK_RETURN | RONDO_LINK_TOUCH | RONDO_LINK_VIEW | RONDO_LINK_DIRECT)

/* All operations of a slot link but for its name, how memory is reached directly, and how it is closed. */
#define RD_SLOTS_OPS(transport, register_it, import_it, arm_it, close_end)                                             \
    {                                                                                                                  \
        .size = sizeof(rondo_link_ops), .name = transport, .reserve = rd_slots_reserve, .commit = rd_slots_commit,     \
        .peek = rd_slots_peek, .release = rd_slots_release, .peek_ahead = rd_slots_peek_ahead, .poll = rd_slots_poll,  \
        .arm = arm_it, .view = rd_slots_view, .moved = rd_slots_moved, .register_memory = register_it,                 \
        .import_memory = import_it, .withdraw = rd_slots_withdraw, .enter = rd_slots_enter, .leave = rd_slots_exit,    \
        .seen = rd_slots_seen, .close = close_end                                                                      \
    }

#endif
