/* SPDX-License-Identifier: Apache-2.0
 *
 * exec.h - carrying out a plan over links. Knows steps, counters, links and addresses; not which transport, not rank
 * order, not time. Nothing here blocks.
 *   exec.c      an operation as a whole: start, advance, arm, what it waits for
 *   ring.c      steps that go to one neighbour and come from the other; event.h: their order
 *   kernel.c    the ring as one kernel of an engine
 *   flat.c      steps that meet every rank of the host at once
 *   exchange.c  the same for short messages, in one hop
 *   peers.c     transfers between this rank and others, all at once
 *   peers_kernel.c  ... as one kernel of an engine
 *   hier.c      rings inside hosts and rings between hosts, one after the other
 *   trace.c     what they did, for those who want to see it
 */
#ifndef RD_RING_EXEC_H
#define RD_RING_EXEC_H

#include "reduce/engine.h"
#include "reduce/reduce.h"
#include "ring/trace.h"
#include "rondo_plan.h"
#include "rondo_transport.h"

#include <stdbool.h>

#define RD_MAX_CHANNELS 8
#define RD_MAX_FLAT 64
#define RD_BLOCK 3          /* slices that take a step one after the other, so that one travels while one is added */
#define RD_TURN 8           /* events or slices in one advance of a channel, at most */
#define RD_KERNEL_CALLS 16  /* operations of one launch, at most */
#define RD_FLAT_SLOTS 4     /* slices under way in a flat exchange, at most */
#define RD_DIRECT_LEAST 65536 /* bytes of a message from which on reaching the user's memory pays */
#define RD_PARTS 4          /* of a channel's scratch; more than RD_BLOCK */
#define RD_CHANNEL_GRAIN 64 /* elements: channels' parts start on cache lines */

/* One end of a link and how far this rank has used it, over all operations. */
typedef struct rd_wire {
    rondo_link *link;  /* of peers also NULL, until it is made */
    uint64_t used; /* slices sent, or consumed */
    /* of peers with an engine: slices that it was given, at most RD_BLOCK more than are used, and when they are done */
    uint64_t begun, tickets[RD_BLOCK];
    /* of peers: the transfers that are not done, oldest first; the next wire that has some; what poll said last */
    struct rd_transfer *first, *last;
    struct rd_wire *after;
    uint64_t counted;
} rd_wire;

/* A message to or from one other rank. Transfers over one wire go in the order of the list that they are in, those over
 * different wires as they come. At both ends `bytes` and `signature` must be the same, and the signature another when
 * the size is: the first slices of a long message look like those of a shorter one. */
typedef struct rd_transfer {
    rd_wire *wire;      /* to the peer, or from it; no wire of ring or flat */
    bool sends;
    unsigned char *at;  /* the caller's memory; of a send it is only read */
    size_t bytes;       /* 0: one empty slice */
    uint64_t signature;
    int32_t step;       /* of the plan, where there is one */
    int32_t peer;       /* for messages */
    /* of the executor */
    uint64_t slices, begun, done; /* done <= begun <= slices */
    struct rd_transfer *next;     /* over the same wire */
} rd_transfer;

/* What a rank is wired to. Ring: one wire each way per channel. Flat: one wire each way per rank of the host. */
typedef struct rd_wiring {
    int channels;
    rd_wire *ring_out[RD_MAX_CHANNELS], *ring_in[RD_MAX_CHANNELS]; /* may be wires of flat, too */
    unsigned char *scratch[RD_MAX_CHANNELS]; /* slice_bytes each; NULL where both links of the channel have slots */
    size_t slice_bytes;                      /* the same on every rank */
    bool staged;                             /* some link of the ring, on any rank, has no slots */
    uint32_t kernel, kernels;                /* what the ring's links can do, of this rank and of all, where this rank
                                                and all carry out rings as one kernel each; else 0 */
    rd_wire *flat_out, *flat_in;             /* by rank; NULL: no flat on this communicator */
    size_t flat_bytes;                       /* slot size of the flat wires, the same on every rank */
} rd_wiring;

typedef enum rd_progress { RD_DONE, RD_MOVED, RD_IDLE, RD_FAILED } rd_progress;

/* Where the message lies. A chunk's own place: whole buffers hold every chunk at its offset, others this rank's only. */
typedef struct rd_buffers {
    const unsigned char *input;
    unsigned char *output; /* NULL where the rank keeps nothing (reduce off the root) */
    bool input_whole, output_whole;
} rd_buffers;

/* Landing and staging places for wires without slots: a few parts of the channel's scratch, taken and freed in order.
 *   freed <= applied <= taken <= freed + count */
typedef struct rd_parts {
    uint32_t count;
    uint64_t taken, applied, freed;
    uint64_t sent_as[RD_PARTS]; /* free once the wire out has done this many slices; 0: not sent from */
} rd_parts;

/* A channel's way through an operation. Slices are taken in blocks of `block`; for each block the steps in order, for
 * each step the slices of the block:
 *   for (first = 0; first < slices; first += block) for (event = 0 ... steps) for (slice = first ... first + block - 1)
 * Event e receives what step e-1 brings and sends what step e sends: the same slice, read once. So a rank never sends
 * further ahead than one block of what it has received:   sent <= applied + block   (on plans that go all round)
 * and since a wire holds more than `block` slices, some rank can always go on (docs/design.md has the proof). */
typedef struct rd_flow {
    const rondo_plan *plan;  /* the operation's, or the channel's own */
    const rondo_step *steps;
    rd_wire *out, *in;
    unsigned char *scratch;
    int channel;
    uint64_t slices;
    uint64_t first, slice;   /* of the next event */
    int32_t event;
    uint64_t post_first, post_slice; /* of the next receive to post (wires in without slots) */
    int32_t post_step;
    uint64_t posted, applied, sent;
    uint64_t begun;                  /* events that an engine was given */
    uint64_t comes;                  /* how many slices this operation receives: applied <= comes */
    uint64_t out_done, in_count; /* what the links' poll said last */
    bool opens, opened, met;     /* the plan's opening: goes by this channel; was sent; the predecessor's was taken */
    rd_parts parts;
    size_t part_bytes;
    enum { RD_FREE, RD_NEEDS_IN, RD_NEEDS_OUT, RD_NEEDS_ENGINE } blocked;
    bool in_refused, out_refused; /* recv, send said AGAIN: watch the link even if nothing is under way on it */
    bool worked;                  /* what the event sends is ready ... */
    void *place;                  /* ... here, and the link has yet to take it */
    bool done;
} rd_flow;

/* With an engine the order is walked twice: by what it is given, as above, and by what it has done. applied and sent
 * belong to the second walk.   ended <= begun <= ended + RD_BLOCK */
typedef struct rd_behind {
    uint64_t first, slice; /* of the next event to end */
    int32_t event;
    uint64_t ended;             /* events */
    uint64_t reading;           /* slices that are read and not released */
    uint64_t tickets[RD_BLOCK]; /* when the events that are begun and not ended will be done */
} rd_behind;

/* Flat: for every slice publish to all, reduce one's own chunk from all, collect the sums from all.
 *   collected <= reduced' <= published <= collected + ahead      (reduced' : on the slowest peer) */
typedef struct rd_flat {
    uint64_t slices, published, reduced, collected;
    uint64_t ahead; /* as many slices as every link to a peer has slots */
    uint64_t apart; /* slices published before the oldest is reduced, and reduced before the oldest is collected */
    int32_t publish_at, reduce_at, collect_at; /* step within the slice */
    rd_wire *blocked;
    rondo_range chunk[RD_MAX_FLAT];
    uint64_t base[RD_MAX_FLAT]; /* of the wire out to a rank: slices sent when the operation began */
    void *arrived[RD_MAX_FLAT];
    bool direct_to[RD_MAX_FLAT];           /* [step]: the peer reaches this rank's memory, nothing is copied */
    unsigned char *peer_in[RD_MAX_FLAT];   /* [step]: the peer's memory, reached from here; NULL: its slices come in slots */
    unsigned char *peer_out[RD_MAX_FLAT];
    void *place[RD_MAX_FLAT][RD_FLAT_SLOTS]; /* [step][slice % RD_FLAT_SLOTS]: where a published slice lies */
} rd_flat;

/* Exchange: arrived <= steps, and nothing is added before all have arrived. */
typedef struct rd_exchange {
    int32_t published, arrived; /* steps */
    size_t bytes;               /* of the message */
    rd_wire *blocked;
    bool to_send;               /* what it waits for on that wire */
    void *place[RD_MAX_FLAT];   /* [step]: where the peer's message lies */
} rd_exchange;

/* Peers: every wire that has transfers gets its turn. */
typedef struct rd_peers {
    rd_wire *served;        /* last; the one after it is next */
    int busy;               /* wires with transfers that are not done */
    int unlinked;           /* transfers whose wire has no link yet */
    size_t home;            /* bytes of its own chunk that the rank has kept */
    bool opens;
    rd_transfer opening[2]; /* to the next rank, from the one before */
    unsigned char nothing[1];
    bool kernel;                /* they are one kernel of the engine ... */
    struct rd_peers_args *told; /* ... which was told this, once it has begun (kernels/peers.h) */
} rd_peers;

/* The schedule of one channel. */
typedef struct rd_course {
    rondo_plan plan;
    const rondo_step *steps;
} rd_course;

enum rd_executor { RD_BY_ITSELF, RD_BY_RING, RD_BY_KERNEL, RD_BY_FLAT, RD_BY_EXCHANGE, RD_BY_PEERS, RD_BY_HIER };

/* What an operation is about that is a stage of a hierarchical one. */
typedef struct rd_stage {
    int32_t first_step;  /* of the plan */
    uint64_t origin;     /* of the segment in the message */
    uint64_t longest;    /* elements of the largest chunk or piece that it moves */
    bool opens;          /* it is the plan's opening, and nothing else */
    /* The host's sum of this rank's piece: element held_first of the segment, and those after it, held_bytes each. */
    unsigned char *held;
    uint64_t held_first;
    size_t held_bytes;
    const rd_reduction *joins; /* adds what is partial on both sides, in the wide type */
} rd_stage;

typedef struct rd_op {
    rondo_plan plan;
    const rondo_step *steps; /* of the plan, all of them: they depend on neither count nor bounds, so callers keep them */
    const rd_course *courses; /* by channel, where their rings have different orders: all else is as in plan; else NULL */
    rd_buffers buffers;
    const rd_reduction *reduction; /* also tells the element size of pure moves */
    rd_wiring *wiring;
    uint64_t signature;
    rd_transfer *transfers; /* of peers: the caller's; see rd_peers_transfers and rd_op_transfers */
    int transfer_count;
    rd_trace *trace; /* NULL: none */
    struct rd_hier *hier;  /* of a hierarchical one: the caller's, for all such operations of his */
    const rd_stage *stage; /* of a stage of one; else NULL */
    rd_engine *engine; /* carries out the passes, on links that all have slots; NULL: the caller, at once */
    enum rd_executor by; /* who carries out the plan */
    bool in_rank_order;  /* flat, exchange: every element's terms are added by position on the ring, from 0 on; else in the
                            ring's order from after the owner of its chunk */
    size_t slice_elements;
    int block;
    rd_flow flow[RD_MAX_CHANNELS];
    rd_behind behind[RD_MAX_CHANNELS]; /* its flows, with an engine */
    rd_flat flat;
    rd_exchange exchange;
    rd_peers peers;
    uint64_t kernel_ticket; /* of a ring, or of transfers, that are one kernel, while it runs; else 0, on any operation */
    int kernel_channels;    /* ... over so many channels, */
    int kernel_threads;     /* by so many threads each */
    int kernel_waiting;     /* operations before this one that its launch does first */
    bool kernel_packed;     /* its slices go in packets */
    uint64_t own_ticket; /* of an engine: its own chunk has been copied; 0: it has not been asked to */
    /* of a failure, and for messages */
    rondo_link_result failure;
    const rd_wire *failed; /* NULL: what failed is no link: the engine, or a bug of the executor */
    bool engine_failed;    /* this thread's last error says how */
} rd_op;

/* Hierarchical: a segment after the other goes through three stages, which are operations of the ring, each over wires of
 * its own; and beside them the plan's opening. Stages work on different segments at the same time:
 *   gathered <= joined <= scattered <= joined + 2 */
enum { RD_SCATTER, RD_RAIL, RD_GATHER, RD_OPEN, RD_STAGES };

typedef struct rd_hier {
    int local;             /* ranks of each host */
    const int32_t *order;  /* host after host */
    rd_wiring wiring[RD_OPEN]; /* of the three stages; the opening goes by the ring's */
    rd_op op[RD_STAGES];
    rd_stage stage[RD_STAGES];
    bool runs[RD_STAGES];
    uint64_t done[RD_STAGES], segments;
    rd_reduction joins;
    unsigned char *shelf;  /* hosts' sums in the wide type, two segments */
    size_t shelf_bytes;
} rd_hier;

/* The transfers of a gather, scatter or all-to-all, whose plan, steps, buffers, reduction and signature are set: fills in
 * the list, which has room for 2(N-1), and returns how many. out, in: wires by rank. They become op->transfers. */
int rd_peers_transfers(const rd_op *op, rd_wire *out, rd_wire *in, rd_transfer *list);

/* Makes op an operation of these transfers alone: sends and receives, no collective. It has no steps, buffers,
 * reduction, wiring or signature, does not open, and leaves no slices in a trace. */
void rd_op_transfers(rd_op *op, rd_transfer *list, int count);

/* A wire of transfers that had no link has one now, and nothing was sent over it or received. */
void rd_op_linked(rd_op *op, rd_wire *wire);

/* Once the ring's links stand: whether the engine, perhaps NULL, carries out rings over them as one kernel each; if so,
 * for as long as they stand. Sets kernel; kernels is what remains of it when every rank's is known. */
void rd_kernel_wire(rd_wiring *wiring, rd_engine *engine, int ranks);

/* Starts an operation. plan, steps, buffers, reduction, wiring and signature are set, of peers the transfers and of
 * hierarchical ones hier, too; fills in the rest. A hierarchical one has plan for the message as a whole. */
void rd_op_start(rd_op *op);

/* Starts one that differs in buffers and signature only from the last that was started in op. */
void rd_op_start_again(rd_op *op);

/* Does what can be done now. RD_MOVED: something, call again; RD_IDLE: nothing, wait; RD_FAILED: op->failure, ->failed. */
rd_progress rd_op_advance(rd_op *op);

/* After RD_IDLE, before a sleep on the armed `bell`: RD_IDLE: sleep; RD_MOVED: something came meanwhile, call advance;
 * RD_FAILED: as in advance. */
rd_progress rd_op_arm(rd_op *op, rondo_bell *bell);

/* After RD_IDLE, now and then and at least before a sleep, when the bell is armed: is there a slice of another call
 * where this operation's is expected, on whatever wire? RD_FAILED: yes, a mismatch; RD_IDLE: no. */
rd_progress rd_op_look(rd_op *op);

/* Of transfers that are one kernel, and are under way: it goes on by itself, for there is a slice or a slot that it has not
 * taken, or nothing more to wait for. */
bool rd_peers_kernel_goes_on(const rd_op *op);

/* An operation that ends early: takes back memory of this rank that peers or devices reach directly, and waits for what the engine
 * has been given. false: one touches it just now, ask again. After true the caller's buffers are the caller's. */
bool rd_op_withdraw(rd_op *op);

/* After RD_IDLE: a rank that the operation waits for, and whether to receive from it (else for room to send): the one whose
 * slice is the next that is missing, and where none is, the one that leaves no room. -1: none. */
int rd_op_waits_for(const rd_op *op, bool *to_receive);

/* ---- of this layer ---- */
/* Slices over this wire will come from or go to this memory, perhaps NULL. */
void rd_wire_foresee(const rd_wire *wire, const void *at, size_t bytes);
const unsigned char *rd_op_input(const rd_op *op, int32_t chunk, rondo_range part);
unsigned char *rd_op_output(const rd_op *op, int32_t chunk, rondo_range part);
rd_progress rd_op_fail(rd_op *op, const rd_wire *wire, rondo_link_result why);

/* What the rank itself puts into a step: its input, or what its earlier steps left of it. */
static inline const unsigned char *rd_op_term(const rd_op *op, const rondo_step *step, int32_t chunk, rondo_range part)
{
    if (!step->held) return rd_op_input(op, chunk, part);
    return op->stage->held + (part.first - op->stage->held_first) * op->stage->held_bytes;
}

/* A pass, here or by the engine. BROKEN: by the engine, which failed. */
rondo_link_result rd_op_engine_failed(rd_op *op);
static inline rondo_link_result rd_op_reduce(rd_op *op, const rd_pass *pass)
{
    if (op->engine)
        return rd_engine_reduce(op->engine, op->reduction, pass) == RONDO_SUCCESS ? RONDO_LINK_OK
                                                                                  : rd_op_engine_failed(op);
    rd_reduce(op->reduction, pass);
    return RONDO_LINK_OK;
}
static inline rondo_link_result rd_op_copy(rd_op *op, void *to, void *also, const void *from, size_t bytes, bool touch)
{
    if (op->engine)
        return rd_engine_copy(op->engine, to, also, from, bytes) == RONDO_SUCCESS ? RONDO_LINK_OK
                                                                                  : rd_op_engine_failed(op);
    rd_copy(to, also, from, bytes, touch);
    return RONDO_LINK_OK;
}

/* The next slice on a wire that this operation is not through with is of another call; `also` is a second signature
 * that this one goes by. Never so on a wire without slots of its own: there a mismatch ends a receive that is posted.
 */
bool rd_op_foreign(const rd_op *op, const rd_wire *wire, uint64_t also);

void rd_hier_start(rd_op *op);
rd_progress rd_hier_advance(rd_op *op);
rd_progress rd_hier_arm(rd_op *op, rondo_bell *bell);
const rd_wire *rd_hier_look(const rd_op *op);
bool rd_hier_withdraw(rd_op *op);
int rd_hier_waits_for(const rd_op *op, bool *to_receive);
/* Makes what a hierarchical operation by this reduction needs ready; RONDO_SUCCESS, or no memory. */
rondo_result rd_hier_prepare(rd_hier *hier, const rd_reduction *reduction, uint64_t count, int cpu);
/* Whether the operation's engine carries out the ring as one kernel; never so before rd_kernel_wire. */
bool rd_kernel_covers(const rd_op *op);
/* The operation is left to the launch of the next one that is started in its place, of the same type and engine: at
 * most RD_KERNEL_CALLS together. Its buffers stay as they are until that is done. */
rondo_link_result rd_kernel_wait(rd_op *op);
rd_progress rd_kernel_advance(rd_op *op);
void rd_kernel_stop(rd_op *op);
int rd_kernel_waits_for(const rd_op *op, bool *to_receive);
void rd_ring_start(rd_op *op, rd_flow *flow, int channel);
rd_progress rd_ring_advance(rd_op *op, rd_flow *flow);
rondo_link_result rd_ring_arm(rd_flow *flow, rondo_bell *bell, const rd_wire **which); /* gave the answer */
const rd_wire *rd_ring_look(const rd_op *op, const rd_flow *flow); /* a wire with a foreign slice, or NULL */
void rd_flat_start(rd_op *op);
void rd_flat_start_again(rd_op *op);
rd_progress rd_flat_advance(rd_op *op);
rondo_link_result rd_flat_arm(rd_op *op, rondo_bell *bell);
const rd_wire *rd_flat_look(const rd_op *op);
int rd_flat_waits_for(const rd_op *op, bool *to_receive);
bool rd_flat_withdraw(rd_op *op);
void rd_exchange_start(rd_op *op);
rd_progress rd_exchange_advance(rd_op *op);
void rd_peers_start(rd_op *op);
rd_progress rd_peers_advance(rd_op *op);
rondo_link_result rd_peers_arm(rd_op *op, rondo_bell *bell, const rd_wire **which);
int rd_peers_waits_for(const rd_op *op, bool *to_receive);
/* Of a collective: what the rank has for itself, and has not kept yet: so many bytes. */
size_t rd_peers_own(const rd_op *op, const unsigned char **from, unsigned char **to);
/* The oldest transfer on the wire has one slice less to go. */
void rd_wire_slice_done(rd_wire *wire);
/* Whether its engine, which it has, carries out the operation's transfers, which are in their wires' queues, as one kernel. */
bool rd_peers_kernel_covers(const rd_op *op);
rd_progress rd_peers_kernel_advance(rd_op *op);
rondo_link_result rd_exchange_arm(rd_op *op, rondo_bell *bell);
const rd_wire *rd_exchange_look(const rd_op *op);

#endif
