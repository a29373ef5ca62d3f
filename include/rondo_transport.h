/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo_transport.h - the contract of a link, and of the transports that make links.
 *
 * A *link* carries slices (at most slot_bytes each) in order from one rank to another. It has a sending end and a
 * receiving end, each used by one thread at a time. It never blocks and never calls back. It knows its peer, its
 * memory and its descriptors; it does not know plan, operation, element type or communicator.
 *
 * Every slice bears a 64-bit signature and its size. The receiving end says which it expects; a slice that bears
 * another is never counted nor released (RONDO_LINK_MISMATCH). peek may then be tried with what the slice bears. After
 * recv the mismatch is final, and what lies in the memory that was posted and not counted is undefined.
 *
 * There are two ways to move a slice, and a link is native in one of them (caps):
 *   RONDO_LINK_SLOTS   reserve/commit write straight into a slot that the peer reads by peek/release. commit alone
 *                      brings the slice to where peek finds it, also if the sender never calls again, or dies;
 *   RONDO_LINK_MEMORY  send/recv hand over the caller's memory, which is the link's until poll says it is done. It
 *                      moves only within calls on it: an operation is not over before its slices are done.
 *
 * Ends count slices. For a sending end:   done <= committed <= reserved <= done + slots
 *                    for a receiving end: released <= arrived
 * where poll reports `done` or `arrived`.
 *
 * What each operation may answer. Another value is taken for BROKEN.
 *   reserve                OK AGAIN CLOSED BROKEN   CLOSED only when it would have to wait
 *   commit                 OK CLOSED BROKEN
 *   send, recv             OK AGAIN BROKEN          a link that has ended may still take some; poll tells
 *   peek, peek_ahead       OK AGAIN MISMATCH CLOSED BROKEN
 *   release, view, moved   OK BROKEN
 *   poll                   OK MISMATCH CLOSED BROKEN
 *   arm                    OK AGAIN BROKEN
 *   register_memory        OK AGAIN BROKEN
 *   import_memory          OK BROKEN
 *   withdraw               OK AGAIN
 *   enter                  OK CLOSED
 *   reach_gpu              OK AGAIN
 * AGAIN of reserve, send and recv: `slots` slices are under way, or posted. A link that has another reason answers OK
 * to the next arm. No link need notice that its peer has died; one that does says CLOSED or BROKEN once all that came
 * has been counted. After CLOSED or BROKEN, and after MISMATCH of a link that moves memory, the link has ended: poll,
 * seen, withdraw and close are what is left. Memory that was posted and not counted stays the link's until withdraw
 * says OK, or, where withdraw is NULL, until the next call on the link returns.
 *
 * Calls on one end never overlap, and its user orders them (each happens before the next), also across threads: an end
 * is made, used and closed by different ones. Calls on different ends may overlap, also on the two of one link. Nothing
 * waits for the peer but close, for at most 10 s, while what was committed or sent leaves; foresee may take
 * milliseconds. After fork the child uses nothing of a link.
 *
 * Transports are compiled into the library. What is frozen is the meaning: from RONDO_LINK_CONTRACT 1 on nothing below
 * changes it; operations and fields are added at the ends, and are NULL or 0 in those who do not know them; a new
 * capability only adds; what cannot be done so raises the number. What an offer holds is between the two ends of one
 * transport, and begins with a version of its own.
 */
#ifndef RONDO_TRANSPORT_H
#define RONDO_TRANSPORT_H

#include "rondo.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RONDO_LINK_CONTRACT 1

typedef struct rondo_link rondo_link;
typedef struct rondo_link_ops rondo_link_ops;
typedef struct rondo_transport rondo_transport;
typedef struct rondo_bell rondo_bell; /* the rank's one doorbell */

/* Answers of a link. "Try again" is a normal one. */
typedef enum rondo_link_result {
    RONDO_LINK_OK = 0,
    RONDO_LINK_AGAIN = 1,    /* not now: poll, do something else, or arm and sleep */
    RONDO_LINK_MISMATCH = 2, /* the slice bears another signature or size; nothing was consumed */
    RONDO_LINK_CLOSED = 3,   /* the peer closed its end; all it sent before has been counted and may still be read */
    RONDO_LINK_BROKEN = 4    /* the link failed; this thread's last error has the reason */
} rondo_link_result;

/* Exactly one of the first two. The others go with SLOTS only; DEVICE with none of TOUCH, DIRECT and STAGED; PACKETS
 * with DEVICE and VIEW; FAR with STAGED. The operations of a capability are not NULL. */
enum {
    RONDO_LINK_SLOTS = 1,    /* reserve/commit and peek/release are native */
    RONDO_LINK_MEMORY = 2,   /* send/recv are native */
    RONDO_LINK_RETURN = 4,   /* what the receiver leaves in slot k the sender may read, from done until it reserves k */
    RONDO_LINK_TOUCH = 8,    /* a hint: the reader should store to each line that it reads, for a line that two cores
                                only share is dear to write again, one that moves between them is not
                                (docs/design.md) */
    RONDO_LINK_VIEW = 16,    /* view and moved work */
    RONDO_LINK_DIRECT = 32,  /* register_memory and import_memory work, for memory that can be reached; so do withdraw,
                                enter and leave */
    RONDO_LINK_STAGED = 64,  /* slots are copies of what is sent and received by other means: as of a MEMORY link, all
                                of it moves only within calls, and a mismatch ends it; and nothing comes before
                                peek_ahead, which is not NULL, has said what is expected. What it first said counts */
    RONDO_LINK_DEVICE = 128, /* payloads lie in GPU memory, for kernels and copies of both ranks' GPUs; no CPU may touch
                                them. Heads, and the brief slices in them, are host memory that both GPUs reach. A peer
                                that moves slices by a kernel rings nobody: AGAIN of arm promises nothing, sleep
                                briefly */
    RONDO_LINK_PACKETS = 256, /* there is room for packets */
    RONDO_LINK_FAR = 512     /* long slots lie in memory of this rank's GPU, for its kernels and copies; no CPU may touch
                                what is not brief. The peer need not know */
};

/* One end of a link; the first member of each transport's own structure. Read-only for its user. */
struct rondo_link {
    const rondo_link_ops *ops;
    uint32_t caps;
    uint32_t slots;      /* slices that may be under way: reserved or handed to send, and not done. As many as were
                            asked for, or at least 4; the two ends may differ */
    size_t slot_bytes;   /* the largest slice; as asked for, and the same at both ends */
    int32_t peer;        /* the rank at the other end, for messages */
    uint64_t bytes_sent; /* payload committed or sent so far (sending end) */
};

/* The head of every slot, one cache line; slot_bytes of payload lie behind it or elsewhere (rondo_view). Slice n (from
 * 0) lies in slot n % slots. filled == n + 1: slice n is there (stored with release after payload, signature and bytes,
 * loaded with acquire before them). freed == n + 1: its receiver is done with it (stored with release after whatever it
 * left in the payload, loaded with acquire before slice n + slots is stored there). With DEVICE both at system scope.
 * Flag, signature and size share a line, and a brief slice, of at most RONDO_SLOT_BRIEF bytes, lies there too: so it
 * costs the one line that goes from one core to the other in any case. */
#define RONDO_SLOT_BRIEF 32
typedef struct rondo_slot {
    uint64_t filled;
    uint64_t signature;
    uint64_t bytes;
    uint64_t freed;
    unsigned char brief[RONDO_SLOT_BRIEF];
} rondo_slot;

/* The slots as memory, the same for every link that has slots and for kernels. In host memory a slot's payload lies
 * behind its head; in GPU memory it lies elsewhere. Addresses and strides are multiples of 64, and never change.
 *
 * Two kernels may move a slice in *packets* instead, of which each says for itself that it is there
 * (kernels/packet.cuh): then the receiver need not look at heads, which lie far from a GPU. Packets have memory of
 * their own, in the receiver's GPU, where nothing else ever lies; it is zero wherever no packet has come that is not
 * yet taken. Both ends must know by other means that a slice goes so; its head is stored as ever, also for those who
 * look for a foreign one. */
#define RONDO_PACKED_MOST 8192 /* bytes of a slice in packets; they take twice as much */
typedef struct rondo_view {
    unsigned char *heads, *payloads; /* of slot 0 */
    unsigned char *packets;          /* of slot 0; NULL without PACKETS */
    uint64_t head_stride, payload_stride;
    uint32_t count;
    uint64_t next; /* the slice that this end reserves, or peeks at, next */
} rondo_view;

#ifdef __CUDACC__
#define RONDO_LINK_FN static __host__ __device__ inline
#else
#define RONDO_LINK_FN static inline
#endif

/* The head of the slot of slice n. */
RONDO_LINK_FN rondo_slot *rondo_view_head(const rondo_view *view, uint64_t n)
{
    return (rondo_slot *)(void *)(view->heads + n % view->count * view->head_stride);
}

/* Where the payload of slice n lies, if it is of `bytes` bytes. */
RONDO_LINK_FN void *rondo_view_payload(const rondo_view *view, uint64_t n, uint64_t bytes)
{
    if (bytes <= RONDO_SLOT_BRIEF) return rondo_view_head(view, n)->brief;
    return view->payloads + n % view->count * view->payload_stride;
}

/* Where the packets of slice n lie. */
RONDO_LINK_FN void *rondo_view_packets(const rondo_view *view, uint64_t n)
{
    return view->packets + n % view->count * 2 * RONDO_PACKED_MOST;
}

struct rondo_link_ops {
    size_t size;      /* sizeof(rondo_link_ops) */
    const char *name; /* of the transport */

    /* Sending end, SLOTS. reserve: *place = room for the next slice: for up to RONDO_SLOT_BRIEF bytes 32-aligned, for
     * more 64-aligned and of slot_bytes; or AGAIN. Several may be reserved before the first is committed; they are
     * committed in order. commit: the oldest reserved slot holds `bytes` bytes, of the same of these two kinds as was
     * reserved, and belongs to the receiver. Never AGAIN: who grants a slot has room to commit it. */
    rondo_link_result (*reserve)(rondo_link *link, size_t bytes, void **place);
    rondo_link_result (*commit)(rondo_link *link, size_t bytes, uint64_t signature);

    /* Sending end, MEMORY. The next slice is `bytes` bytes at `from`, which must stay unchanged until poll counts
     * it. AGAIN: nothing was taken. */
    rondo_link_result (*send)(rondo_link *link, const void *from, size_t bytes, uint64_t signature);

    /* Receiving end, SLOTS. peek: *place = the oldest slice not yet released, in place; it must be `bytes` long and
     * bear `signature`. May be repeated. The reader may write into it. release: done with it; never AGAIN. */
    rondo_link_result (*peek)(rondo_link *link, size_t bytes, uint64_t signature, void **place);
    rondo_link_result (*release)(rondo_link *link);

    /* Receiving end, SLOTS, or NULL. As peek, for the slice that is `ahead` behind the oldest, with 0 <= ahead < slots;
     * all before it have been asked for. For one who reads several slices before the first is released. */
    rondo_link_result (*peek_ahead)(rondo_link *link, uint32_t ahead, size_t bytes, uint64_t signature, void **place);

    /* Receiving end, MEMORY. The next slice, `bytes` long and bearing `signature`, shall be stored at `to`; it is
     * there when poll counts it. AGAIN: too many are posted, nothing was taken. */
    rondo_link_result (*recv)(rondo_link *link, void *to, size_t bytes, uint64_t signature);

    /* Either end, MEMORY; NULL where it means nothing. Slices to come lie in [ptr, ptr + bytes): a link that must
     * register memory does so now, for all of it, and keeps it for the next time. A hint: send and recv need none. The
     * memory may be unmapped, and other memory mapped there, without a word: who keeps registrations must notice. */
    void (*foresee)(rondo_link *link, const void *ptr, size_t bytes);

    /* Either end: moves what can be moved, and *count = slices so far that have come all the way: for a sending end
     * those whose slot or memory is the sender's again, for a receiving end those that can be read. Never AGAIN.
     * CLOSED, BROKEN and MISMATCH are answered when nothing more can be counted; *count is set with them too. A
     * sending end that has everything back says OK even if its peer is gone; a MEMORY link looks only while something
     * is posted. */
    rondo_link_result (*poll)(rondo_link *link, uint64_t *count);

    /* Either end, before a sleep on `bell`, which the caller has armed: AGAIN: the bell will ring (or its epoll
     * set will wake) when poll's count passes `seen` or the link ends; OK: it has passed or ended already, do not
     * sleep; BROKEN: this cannot be arranged. It may also wake for less: poll decides. */
    rondo_link_result (*arm)(rondo_link *link, rondo_bell *bell, uint64_t seen);

    /* Either end, VIEW. view: the slots as memory; a look that changes nothing. One who moves slices himself (a
     * kernel), by storing the heads as commit and release would, goes on at view->next, when nothing is reserved or
     * peeked at; until moved no other operation is called but close and withdraw. moved: he has moved so many slices,
     * and a sending end `bytes` of payload, has himself seen what he waited for, and has rung nobody; from here on the
     * other operations go on. That the link ends does not show in a view: somebody else stops him. */
    rondo_link_result (*view)(rondo_link *link, rondo_view *view);
    rondo_link_result (*moved)(rondo_link *link, uint64_t slices, uint64_t bytes);

    /* DIRECT: access to memory that is not a slot. register_memory (sending end): a descriptor for [ptr, ptr + bytes),
     * which the peer's import_memory turns into an address or key of its own for the first `bytes` of it (BROKEN: it is
     * shorter, or was never handed over). The user carries the descriptor to the peer in a slice that is sent after it
     * was made. AGAIN: this memory cannot be reached by the peer, now or at all: use slots. The memory stays the peer's
     * to read and write until it releases that slice, or until it is withdrawn. */
    rondo_link_result (*register_memory)(rondo_link *link, void *ptr, size_t bytes, unsigned char descriptor[128]);
    rondo_link_result (*import_memory)(rondo_link *link, const unsigned char descriptor[128], size_t bytes,
                                       void **address);

    /* For one that must return early: withdraw takes back all memory that the peer was told of, and all that was handed
     * to send and recv and is not counted. OK: neither the peer nor a device touches it any more; AGAIN: it does just
     * now, ask again. The link is then of no use for direct access, and a MEMORY link for nothing. NULL: this one
     * touches memory only within calls. The receiving end encloses every access in enter (CLOSED: withdrawn, hands off)
     * and leave, which do not nest. */
    rondo_link_result (*withdraw)(rondo_link *link);
    rondo_link_result (*enter)(rondo_link *link);
    void (*leave)(rondo_link *link);

    /* What arrived instead of what was expected, after MISMATCH; without one, of native slots, the oldest slice not
     * released, if it has come. */
    void (*seen)(const rondo_link *link, uint64_t *signature, uint64_t *bytes);

    /* Frees this end. What was committed, or sent and counted as done, before reaches the peer; of a STAGED link, what
     * was counted. */
    void (*close)(rondo_link *link);

    /* Either end, MEMORY, before its first slice; NULL where it means nothing. Slices longer than *least may lie in
     * [ptr, ptr + bytes), which is memory of GPU `device` of this process that no CPU touches, and outlives the link.
     * What poll has counted there is seen by what the GPU is given from then on. AGAIN: they may not, and nothing has
     * changed. `how` gets a sentence either way. */
    rondo_link_result (*reach_gpu)(rondo_link *link, int device, void *ptr, size_t bytes, size_t *least, char *how,
                                   size_t how_bytes);
};

/* What one end tells the other while a link is made; carried by an authenticated connection. Whoever holds an offer
 * owns the descriptors in it: its maker gives copies away, a sender closes them once they are sent, and accept and
 * complete take them over, also when they fail. */
#define RONDO_OFFER_FDS 4
typedef struct rondo_offer {
    uint32_t bytes;
    unsigned char data[128];
    int fd_count;
    int fds[RONDO_OFFER_FDS];
} rondo_offer;

typedef struct rondo_link_spec {
    int32_t me, peer;
    uint32_t slots;     /* asked for, a power of two */
    size_t slot_bytes;  /* asked for, a multiple of 64 */
    rondo_bell *bell;   /* this rank's; outlives the link */
    int32_t device;     /* for transports whose payloads lie in GPU memory: this rank's GPU, as its process numbers it;
                           -1: none */
    int socket_count;   /* for transports that take sockets: connected, authenticated, non-blocking, in the same order
                           at both ends. Now the link's to close, also where offer or accept fail. Offer and answer still
                           go over the first: it is read and written from complete on, or the receiver's first call */
    int sockets[8];
    /* For transports whose payloads lie in GPU memory: memory of the receiver's GPU that both ranks reach already and
     * that outlives the link, so that to make it takes and maps none; NULL: there is none. At both ends or at none: where
     * it begins for this rank's GPU, and its size. The receiving end says how far in it the slots shall lie,
     * slots * slot_bytes, at a multiple of 64. */
    unsigned char *shared;
    size_t shared_bytes, shared_at;
    const char *port;   /* for transports over RDMA: the port of this rank's that the link shall take, "mlx5_0:1"; NULL:
                           none is named */
} rondo_link_spec;

/* How far a transport reaches. */
typedef enum rondo_reach {
    RONDO_REACH_PROCESS = 0, /* both ranks are in one process */
    RONDO_REACH_HOST = 1,    /* a page of one was mapped and read by the other */
    RONDO_REACH_NETWORK = 2  /* a connection could be made */
} rondo_reach;

/* Making a link: the sending end offers, the receiving end accepts and answers, the sending end completes.
 *   sender                                receiver
 *   offer(spec, &link, &offer)   ---->    accept(spec, &offer, &link, &answer)
 *   complete(link, &answer)      <----
 * On failure outputs are untouched, and nothing is left to clean up but, after a successful offer, the link (close).
 * Before complete a sending end can only be closed; a receiving end works from accept on. spec, offer and answer are
 * the caller's, and gone after the call. The three may overlap, run on any thread, and do not wait for the peer. */
struct rondo_transport {
    size_t size; /* sizeof(rondo_transport) */
    const char *name;
    rondo_reach reach;
    uint32_t cost;    /* nanoseconds for a small slice, one way, to rank transports by */
    uint32_t may_lack; /* 0: it is always there; else the bit by which ranks tell one another that they cannot use it */
    int sockets;      /* connected sockets that a link takes over: 0 or 1; with NETWORK, as many where the user sets no
                         other number. Links on demand have 1 */
    rondo_result (*offer)(const rondo_link_spec *spec, rondo_link **sender, rondo_offer *offer);
    rondo_result (*accept)(const rondo_link_spec *spec, const rondo_offer *offer, rondo_link **receiver,
                           rondo_offer *answer);
    rondo_result (*complete)(rondo_link *sender, const rondo_offer *answer);
    /* Where it may lack: whether this process could make links. A link is made and taken down again. */
    rondo_result (*try_out)(void);
};

#ifdef __cplusplus
}
#endif

#endif
