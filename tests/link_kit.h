/* SPDX-License-Identifier: Apache-2.0
 *
 * link_kit.h - pairs of link ends of every kind, and traffic over them.
 *
 *   link_pair.c  makes both ends in this process, or one end in each of two processes
 *   link_flow.c  sends and receives slices whose sizes and bytes depend on their number, over either face of a link
 *   link_cases.c what rondo_transport.h says of a link, as tests: of traffic
 *   link_sleep.c ... of sleeping, waking, and what a sender may do meanwhile
 *   link_words.c ... and of each operation by itself
 */
#ifndef RONDO_LINK_KIT_H
#define RONDO_LINK_KIT_H

#include "base/clock.h"
#include "transport/transport.h"

/* A transport, and how its ends are dressed. */
struct link_kind {
    char name[64];
    const rondo_transport *transport;
    int sockets;
    int devices[2]; /* GPUs, by side */
    bool in_gpu; /* slots around a link that moves memory, the long ones in GPU memory */
    bool fault, adapted;
    void (*before)(int side); /* NULL, or called before that side's end is made */
    size_t asks;              /* longer slices than this go only when their receiver has asked for them; 0: none does */
};

struct link_pair {
    const struct link_kind *kind;
    rondo_bell bells[2]; /* by side: RD_SENDER, RD_RECEIVER */
    rondo_link *ends[2]; /* NULL when closed, or in the other process */
};

#define LINK_DEADLINE_NS 20000000000

/* Fail the test when anything goes wrong. */
void link_pair_open(struct link_pair *pair, const struct link_kind *kind, uint32_t slots, size_t slot_bytes);
void link_pair_close_end(struct link_pair *pair, int side);
void link_pair_close(struct link_pair *pair);
/* Connected, non-blocking TCP sockets over the loopback interface. */
void link_sockets(int from[], int to[], int count);
/* Makes one side's end, in a process of its own: `control` is a unix socket to the process of the other side, `spec`
 * has everything but the bell. False, with the reason printed, on failure. */
bool link_pair_join(struct link_pair *pair, const struct link_kind *kind, int side, rondo_link_spec *spec, int control);

/* Runs the conformance suite for these kinds, in all their dresses, with flows of so many slices (0: as many as will do).
 * For main to return. */
int link_conformance(const struct link_kind *bases, int base_count, int flow);

/* Cases of link_sleep.c. */
void link_test_receiver_wakes(void **state);
void link_test_sender_wakes(void **state);
void link_test_credits(void **state);
/* ... and of link_words.c. */
void link_test_capabilities(void **state);
void link_test_no_more(void **state);
void link_test_peek_ahead(void **state);
void link_test_withdraw(void **state);
void link_test_direct(void **state);

/* Copies between memory and a payload that no CPU may touch. Set before the suite runs where there are such links. */
extern void (*link_copy_device)(void *to, const void *from, size_t bytes);

/* Slice n of a flow. */
size_t link_size(uint64_t n, size_t most);
uint64_t link_signature(uint64_t n);
void link_fill(unsigned char *to, uint64_t n, size_t bytes);
bool link_filled(const unsigned char *at, uint64_t n, size_t bytes);
/* The same in a place of a link's. */
void link_fill_at(const rondo_link *link, void *place, uint64_t n, size_t bytes);
bool link_filled_at(const rondo_link *link, const void *place, uint64_t n, size_t bytes);
void link_copy(const rondo_link *link, void *to, const void *from, size_t bytes);

/* What poll counts. */
uint64_t link_count(rondo_link *link);

/* One side's traffic: `total` slices. */
struct link_flow {
    rondo_link *link;
    rondo_bell *bell;
    int side;
    uint64_t total;
    uint64_t begun;          /* reserved, sent or posted */
    uint64_t moved;          /* committed or sent; released or counted */
    uint64_t counted;        /* by poll */
    uint64_t bytes;          /* of what has moved */
    uint64_t sleeps;
    uint64_t random;
    unsigned char *places[64]; /* where slice n lies: n % 64 */
    unsigned char *pool;     /* the caller's memory, for a MEMORY link */
    char trouble[256];       /* "" while all is well */
};

void link_flow_open(struct link_flow *flow, struct link_pair *pair, int side, uint64_t total);
void link_flow_close(struct link_flow *flow);
bool link_flow_over(const struct link_flow *flow);
/* Moves what can be moved; false when nothing could be. */
bool link_flow_step(struct link_flow *flow);
/* To the end, asleep whenever nothing can be moved after a few attempts. For pthread_create. */
void *link_flow_run(void *flow);
/* Arms and sleeps unless there is something to do. Returns how long it slept, in ns; 0: it did not. */
int64_t link_nap(rondo_link *link, rondo_bell *bell, uint64_t seen, int64_t timeout_ns);

/* One slice over either face, with a deadline: sends it, or receives it and checks it. The answer of the link. */
rondo_link_result link_put(rondo_link *link, uint64_t n, const unsigned char *from, size_t bytes);
rondo_link_result link_get(rondo_link *link, uint64_t n, unsigned char *to, size_t bytes, uint64_t signature);

#endif
