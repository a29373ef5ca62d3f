/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_link.h - one end of a link over RDMA, for the files that it is made of:
 *   verbs.c         moving slices: what crosses, in which order, and when it counts
 *   verbs_end.c     how a link ends, in words
 *   verbs_make.c    making the two ends
 *   verbs_rail.c    a queue pair
 *   verbs_device.c  a device
 *   verbs_reach.c   what memory it reads and writes, and GPU memory among it
 *   verbs_memory.c  user memory that is registered with it
 *   verbs_lib.c     libibverbs
 *
 * Each end has one block of memory, registered, of the same layout:
 *
 *   mails: MAILS x 64 | slots: CREDITS x stride | bounce: link.slots x slot_bytes
 *
 * The receiver's slots and the sender's mails are what the peer writes to. The sender's slots and the receiver's mails
 * are where that is written from. Bounce is for user memory that the device cannot reach.
 */
#ifndef RD_TRANSPORT_VERBS_LINK_H
#define RD_TRANSPORT_VERBS_LINK_H

#include "transport/transport.h"
#include "transport/verbs_memory.h"
#include "transport/verbs_rail.h"

enum {
    RD_VERBS_VERSION = 1,
    RD_VERBS_RAILS = 4,    /* queue pairs of a link */
    RD_VERBS_SLICES = 8,   /* handed to send or recv and not counted */
    RD_VERBS_CREDITS = 32, /* slices that the sender may be ahead of what it knows that the receiver has taken */
    RD_VERBS_MAILS = 8,    /* targets that may be under way; no fewer than RD_VERBS_SLICES */
    RD_VERBS_MAIL = 64,    /* bytes, of which a mail uses some */
    /* Immediates that may come before this end looks. From a sender: for each slice itself and a notice, and a greeting.
     * From a receiver: targets, and credits, each of which tells of half the slots. */
    RD_VERBS_RECEIVES = 2 * RD_VERBS_CREDITS + 2
};

/* In a slot, ahead of the payload; little-endian. */
typedef struct rd_verbs_header {
    uint64_t signature;
    uint32_t bytes, slice;
} rd_verbs_header;
_Static_assert(sizeof(rd_verbs_header) == 16, "the header has no padding");

/* Where slice n shall be written; little-endian, in mail n % MAILS. */
typedef struct rd_verbs_mail {
    uint64_t address, signature;
    uint32_t key, bytes;
} rd_verbs_mail;
_Static_assert(sizeof(rd_verbs_mail) <= RD_VERBS_MAIL, "a mail fits");

/* A slice that was handed to send or recv. */
typedef struct rd_verbs_frame {
    unsigned char *memory;
    size_t bytes;
    uint64_t signature;
    unsigned char *at;             /* what the device reads or writes: memory itself, or bounce; NULL: a slot */
    uint32_t local, remote;        /* the keys to it */
    const rd_verbs_region *region; /* to put back, or NULL */
    uint64_t written; /* sender: the number of its write on its rail; 0: it was copied, nothing to wait for */
} rd_verbs_frame;

/* GPU memory that slices may lie in, which no CPU touches; bytes 0: none. */
typedef struct rd_verbs_gpu {
    uintptr_t from;
    size_t bytes;
    int device;
    bool flush;                        /* before what has come there is counted ... */
    bool flushed;                      /* ... and that was done since the last slice came */
    struct ibv_mr *mr[RD_VERBS_RAILS]; /* by rail; rails on one device have one */
} rd_verbs_gpu;

typedef struct rd_verbs_end {
    rondo_link link;
    int side, socket; /* the connection that the link was made on: its end tells of the peer's. -1: none */
    rondo_bell *bell; /* that watches socket and channels; NULL before the first sleep */
    int rail_count;
    rd_verbs_rail rails[RD_VERBS_RAILS]; /* slice n takes rail n % rail_count */
    rd_verbs_gpu gpu;
    unsigned char *memory, *slots, *bounce;
    size_t memory_bytes, eager, stride;
    uint64_t peer; /* the peer's address of what this end writes to */

    /* posted: by send or recv. handed: sender: given to the device; receiver: its target, if it needs one, was told.
     * taken: sender: what the receiver is known to have counted; receiver: what it has said to have counted.
     *   sender:   counted <= handed <= posted <= counted + link.slots,   handed <= taken + CREDITS
     *   receiver: counted <= handed <= posted <= counted + link.slots,   taken <= counted < taken + CREDITS / 2 */
    uint64_t posted, handed, counted, taken;
    rd_verbs_frame frames[RD_VERBS_SLICES]; /* slice n in frames[n % SLICES] */
    uint64_t come[RD_VERBS_CREDITS];        /* receiver: n + 1 when slice n has come */
    bool direct[RD_VERBS_CREDITS];          /* ... and lies at its target */
    uint64_t mailed[RD_VERBS_MAILS];        /* sender: n + 1 when slice n's target has come */
    uint64_t noticed;                       /* n + 1: sender: gave notice of slice n; receiver: was given it */
    unsigned idle;                          /* looks in a row that found nothing */
    unsigned char words[8];                 /* the peer's last: a receiver says how many slices it has counted ... */
    size_t heard;                           /* ... so many bytes of it have come */
    uint64_t confirmed;                     /* sender: the receiver, before it closed, had counted so many */
    bool gone;                              /* the peer's end of the socket is closed ... */
    int64_t gone_at;                        /* ... as was seen then */
    rondo_link_result ended;
    uint64_t seen_signature, seen_bytes;
    char where[96];   /* the peer's address */
    char reason[512]; /* for BROKEN */
} rd_verbs_end;

extern const rondo_link_ops rd_verbs_ops;

static inline rd_verbs_rail *rd_verbs_rail_of(rd_verbs_end *end, uint64_t slice)
{
    return &end->rails[slice % (uint64_t)end->rail_count];
}

/* Where the device shall read or write a long slice: at its memory, where it reaches that, else in bounce. */
void rd_verbs_reach(rd_verbs_end *end, rd_verbs_frame *frame, uint64_t slice);
void rd_verbs_let_go(rd_verbs_frame *frame);
void rd_verbs_foresee(rondo_link *link, const void *ptr, size_t bytes);

static inline bool rd_verbs_is_gpu(const rd_verbs_end *end, const void *at)
{
    return (uintptr_t)at - end->gpu.from < end->gpu.bytes;
}
rondo_link_result rd_verbs_reach_gpu(rondo_link *link, int device, void *ptr, size_t bytes, size_t *least, char *how,
                                     size_t how_bytes);
/* What has completed is there for the GPU. False: it cannot be known, and the link has failed. */
bool rd_verbs_gpu_arrived(rd_verbs_end *end);
void rd_verbs_gpu_close(rd_verbs_end *end);

/* Sets `gone` when the peer has closed: nothing ever comes over the socket but last words and its end. */
void rd_verbs_look_at_socket(rd_verbs_end *end);
/* A receiver's, before it closes: the acknowledgement of a slice may be lost, and there is nobody then to ask again. */
void rd_verbs_last_words(const rd_verbs_end *end);
/* The link fails, unless it has ended already; of a peer that has closed, whatever fails is its end and no fault. */
void rd_verbs_broken(rd_verbs_end *end, const char *what, const char *cause);
void rd_verbs_completed_badly(rd_verbs_end *end, const rd_verbs_rail *rail, const struct ibv_wc *wc);

/* Tells the receiver, over every rail, that this end can take in what it sends. */
rondo_result rd_verbs_greet(rd_verbs_end *end);

#endif
