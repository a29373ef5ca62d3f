/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo.h - collective communication over a logical ring.
 *
 * A *communicator* joins `world size` ranks, numbered from 0. Every rank makes the same calls in the same
 * order; each call returns when this rank's part is done and every byte it sent has left the caller's memory.
 *
 * Errors. Every call returns a rondo_result. Handles and numbers are written only when it is RONDO_SUCCESS (the handle
 * of a start in the background with RONDO_IN_PROGRESS, see rondo_comm_error()); after an error
 * of the communicator the contents of recv, and of send where the call was in place, are undefined.
 * rondo_last_error() then says in words what failed, where, and what to do. There are two kinds:
 *   - errors of the call (RONDO_INVALID_ARGUMENT, RONDO_INVALID_USAGE; any of the memory functions): nothing was
 *     started, the communicator is as usable as before and the rank may call again;
 *   - errors of the communicator (all others): they stay; every later call on it fails with the same text
 *     until it is destroyed, but rondo_comm_shrink() can make another of those that are left.
 * The library never exits, never aborts the process, installs no signal handler and, unless RONDO_DEBUG asks for
 * more, prints warnings only.
 *
 * Threads. One thread at a time per communicator; a second one gets RONDO_INVALID_USAGE. Different communicators
 * are independent. rondo_comm_abort() may be called from any thread at any time.
 */
#ifndef RONDO_H
#define RONDO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RONDO_VERSION_MAJOR 0
#define RONDO_VERSION_MINOR 1
#define RONDO_VERSION_PATCH 0
/* major * 10000 + minor * 100 + patch */
#define RONDO_VERSION (RONDO_VERSION_MAJOR * 10000 + RONDO_VERSION_MINOR * 100 + RONDO_VERSION_PATCH)

#define RONDO_API __attribute__((visibility("default")))

/* Results: RONDO_<name>, value, text. The first eight have NCCL's values. What must be made again after each:
 * nothing (call), the communicator (comm). */
#define RONDO_RESULT_MAP(X)                                                                         \
    X(SUCCESS, 0, "success")                                                                        \
    X(UNHANDLED_CUDA_ERROR, 1, "a CUDA call failed")                          /* comm */            \
    X(SYSTEM_ERROR, 2, "a system call failed")                                /* comm */            \
    X(INTERNAL_ERROR, 3, "internal error: a bug in Rondo, please report it")  /* comm */            \
    X(INVALID_ARGUMENT, 4, "invalid argument")                                /* call */            \
    X(INVALID_USAGE, 5, "invalid usage")                                      /* call */            \
    X(REMOTE_ERROR, 6, "another rank failed or left")                         /* comm */            \
    X(IN_PROGRESS, 7, "still in progress")                                    /* call */            \
    X(TIMEOUT, 8, "timed out")                                                /* comm */            \
    X(ABORTED, 101, "the communicator was aborted")                           /* comm */            \
    X(MISMATCH, 102, "the ranks' calls do not match")                         /* comm */

typedef enum rondo_result {
#define RONDO_RESULT_ENUM(name, value, text) RONDO_##name = value,
    RONDO_RESULT_MAP(RONDO_RESULT_ENUM)
#undef RONDO_RESULT_ENUM
} rondo_result;

/* Element types, with NCCL's values. */
typedef enum rondo_dtype {
    RONDO_INT8 = 0,
    RONDO_UINT8 = 1,
    RONDO_INT32 = 2,
    RONDO_UINT32 = 3,
    RONDO_INT64 = 4,
    RONDO_UINT64 = 5,
    RONDO_FLOAT16 = 6,
    RONDO_FLOAT32 = 7,
    RONDO_FLOAT64 = 8,
    RONDO_BFLOAT16 = 9,
    RONDO_FLOAT8E4M3 = 10, /* 1 sign, 4 exponent, 3 fraction bits, bias 7; no infinity, NaN is S.1111.111; largest 448 */
    RONDO_FLOAT8E5M2 = 11, /* 1 sign, 5 exponent, 2 fraction bits, bias 15; infinities and NaN; largest 57344 */
    RONDO_DTYPES = 12      /* how many there are */
} rondo_dtype;

/* Operators, with NCCL's values; values from RONDO_OPS on name operators made at run time (rondo_op_create_scaled_sum).
 *   integers   SUM and PROD wrap; AVG is the wrapped sum divided by the world size, truncated toward zero
 *   floats     AVG does not overflow where the average does not; MAX and MIN propagate NaN and hold +0 > -0;
 *              subnormals are kept; types narrower than float32 are added up in float32 and rounded once */
typedef enum rondo_op {
    RONDO_SUM = 0,
    RONDO_PROD = 1,
    RONDO_MAX = 2,
    RONDO_MIN = 3,
    RONDO_AVG = 4,
    RONDO_OPS = 5, /* how many built-in ones there are */
    RONDO_OP_LIMIT = 0x7fffffff
} rondo_op;

/* What every rank of one communicator must hold to find the others: 128 bytes of plain data, to be carried to
 * them by any means. Contains a secret key: whoever has it can join. */
typedef struct rondo_unique_id {
    unsigned char bytes[128];
} rondo_unique_id;

typedef struct rondo_comm rondo_comm;
typedef struct rondo_stream rondo_stream;

#define RONDO_DEVICE_AUTO (-1)
#define RONDO_DEVICE_HOST (-2)

/* Settings of one communicator. Start from RONDO_CONFIG_INIT. A RONDO_<NAME> environment variable, where set,
 * wins over the field of the same name. */
typedef struct rondo_config {
    size_t size;           /* sizeof(rondo_config): lets later versions add fields */
    double timeout_s;      /* RONDO_TIMEOUT: seconds that start-up and each call may take (600); > 0 */
    double slow_warning_s; /* RONDO_SLOW_WARNING: a start or call longer than this warns once (10); > 0 */
    int device;            /* RONDO_DEVICE: the GPU that this rank uses, by its number in this process;
                              RONDO_DEVICE_AUTO: the one current in the calling thread, if any; RONDO_DEVICE_HOST: none */
    int channels;          /* RONDO_CHANNELS: parallel rings, 1 to 8; 0: as many as the networks are good for */
    size_t slice_bytes;    /* RONDO_SLICE: longest pipeline unit in bytes, 4096 to 262144;
                              0 lets the library choose */
    const char *transport; /* RONDO_TRANSPORT: "loop", "shm", "tcp", "verbs" or "cuda_ipc"; NULL: the best
                              that reaches, per peer */
    const char *algo;      /* RONDO_ALGO: "ring", "flat", "exchange" or "hier"; NULL lets the library choose */
    int background;        /* 1: init returns RONDO_IN_PROGRESS at once, see rondo_comm_error(); 0: when it is done */
    int allow_overlap;     /* 1: buffers may overlap in any way, also those of a group's calls; where they do other than
                              in place, what they hold afterwards is undefined. 0: that is RONDO_INVALID_ARGUMENT */
} rondo_config;

#define RONDO_CONFIG_INIT                                                                           \
    { sizeof(rondo_config), 600.0, 10.0, RONDO_DEVICE_AUTO, 0, 0, NULL, NULL, 0, 0 }

/* ---- Communicators ------------------------------------------------------------------------------------------ */

/* Makes a new id on one process, which then serves the rendezvous of all ranks for as long as it lives (it need
 * not be a rank itself). RONDO_SYSTEM_ERROR: no socket, or the port named by RONDO_PORT is taken. */
RONDO_API rondo_result rondo_get_unique_id(rondo_unique_id *id);

/* The id of those who meet at an address that all know, "10.0.0.1:5000" or "name:5000": every process makes the same one
 * for itself, so none has to be carried. Rank 0 must run on that host and listens on that port. Unlike other ids it holds
 * no key: RONDO_KEY_FILE or RONDO_KEY names one. */
RONDO_API rondo_result rondo_unique_id_at(rondo_unique_id *id, const char *address);

/* Joins the communicator of `id` as `rank` of `world_size` (0 <= rank < world_size). Returns on every rank when all
 * have joined, or RONDO_TIMEOUT with the list of those missing. config: NULL means RONDO_CONFIG_INIT.
 * On failure *comm is untouched and there is nothing to clean up. */
RONDO_API rondo_result rondo_init_rank(rondo_comm **comm, int world_size, rondo_unique_id id, int rank,
                                       const rondo_config *config);

/* The same with rank, world size and meeting point from the launcher's environment (`rondo run`, torchrun; on one host
 * also Slurm and Open MPI). */
RONDO_API rondo_result rondo_init_env(rondo_comm **comm, const rondo_config *config);

/* n communicators of one world in this process: comms[i] is rank i, to be driven by a thread of the caller's own.
 * devices: one RONDO_DEVICE_* or ordinal per rank, NULL for RONDO_DEVICE_AUTO. */
RONDO_API rondo_result rondo_init_all(rondo_comm **comms, int n, const int *devices);

/* This process's rank, or the number of ranks; -1 for a NULL communicator. */
RONDO_API int rondo_comm_rank(const rondo_comm *comm);
RONDO_API int rondo_comm_size(const rondo_comm *comm);

/* What the link from this rank to the next on the first ring is made of: "loop", "shm", "cuda_ipc", "tcp" or "verbs"; NULL:
 * there is none, since comm has one rank or is not made yet. Other ranks may have others. */
RONDO_API const char *rondo_comm_transport(const rondo_comm *comm);

/* Communicators of those ranks of comm that name the same color (0 or more), in the order of their keys and, among equal
 * ones, of their ranks in comm. All ranks of comm call it; one that names RONDO_NO_COLOR gets NULL. comm goes on, and
 * may be destroyed before its children. config: NULL means the settings of comm. */
#define RONDO_NO_COLOR (-1)
RONDO_API rondo_result rondo_comm_split(rondo_comm *comm, int color, int key, rondo_comm **out,
                                        const rondo_config *config);

/* A communicator of the ranks of comm without the n that exclude lists, in the same order; also when comm has ended.
 * All others call it with the same list. exclude NULL and n 0: without those that the survivors agree to be gone. A rank
 * that dies meanwhile may fail the call (RONDO_REMOTE_ERROR) on all; it can be called again. A launcher may end all ranks
 * when one dies; rondo run does not with --keep-going. */
RONDO_API rondo_result rondo_comm_shrink(rondo_comm *comm, const int *exclude, int n, rondo_comm **out,
                                         const rondo_config *config);

/* *state = RONDO_IN_PROGRESS while a communicator with background set is being made (no other call but abort and
 * destroy may be made until then), then RONDO_SUCCESS, or why the communicator has ended. Never waits. */
RONDO_API rondo_result rondo_comm_error(rondo_comm *comm, rondo_result *state);

/* Waits until all that streams were given for this communicator is done; after it only destroy may follow. Returns why
 * the communicator has ended, if it has. */
RONDO_API rondo_result rondo_comm_finalize(rondo_comm *comm);

/* Ends every call in progress on this rank with RONDO_ABORTED and tells the other ranks. Returns at once, may be
 * called from any thread and more than once. Frees nothing: rondo_comm_destroy() does. */
RONDO_API rondo_result rondo_comm_abort(rondo_comm *comm);

/* The same, and the errors of all ranks say why: "the loss is NaN". */
RONDO_API rondo_result rondo_comm_abort_because(rondo_comm *comm, const char *why);

/* Frees this rank's communicator after its last call has left; never waits for another rank. NULL is fine. */
RONDO_API rondo_result rondo_comm_destroy(rondo_comm *comm);

/* ---- Collectives --------------------------------------------------------------------------------------------
 *
 * Counts are in elements of `dtype`. Buffers need no alignment. Memory that a rank does not use may be NULL (recv
 * of reduce off the root, send of broadcast off the root, anything when the count is 0). Where the rank uses a GPU,
 * each buffer may lie in that GPU's memory, in managed or pinned memory, or in plain memory of the host; such a call
 * begins when what CUDA's legacy stream was given before it is done (but see rondo_stream_from_cuda). The in-place forms
 * are named with each call; any other overlap of the two ranges is RONDO_INVALID_ARGUMENT. stream: NULL runs the call to
 * its end in the calling thread; a stream takes it and runs it later, and until then the buffers are the library's.
 *
 * Errors common to all: RONDO_INVALID_ARGUMENT names the argument, its value and the valid range; RONDO_TIMEOUT,
 * RONDO_REMOTE_ERROR (a rank died or left), RONDO_ABORTED, RONDO_MISMATCH (the ranks' calls differ). */

/* recv[i] = op over all ranks of send[i], count elements on every rank. In place: recv == send.
 * Each rank sends 2(N-1)/N of the message (see rondo_plan.h; more with RONDO_NUMERICS=strict). */
RONDO_API rondo_result rondo_all_reduce(const void *send, void *recv, size_t count, rondo_dtype dtype, rondo_op op,
                                        rondo_comm *comm, rondo_stream *stream);

/* send holds world_size * recv_count elements; recv on rank r becomes the reduction of everyone's r-th part.
 * In place: recv == send + rank * recv_count; the other parts of send are left as they were. */
RONDO_API rondo_result rondo_reduce_scatter(const void *send, void *recv, size_t recv_count, rondo_dtype dtype,
                                            rondo_op op, rondo_comm *comm, rondo_stream *stream);

/* recv, world_size * send_count elements, becomes the ranks' send buffers in rank order.
 * In place: send == recv + rank * send_count. */
RONDO_API rondo_result rondo_all_gather(const void *send, void *recv, size_t send_count, rondo_dtype dtype,
                                        rondo_comm *comm, rondo_stream *stream);

/* recv on every rank becomes root's send. In place: recv == send (only root reads send). */
RONDO_API rondo_result rondo_broadcast(const void *send, void *recv, size_t count, rondo_dtype dtype, int root,
                                       rondo_comm *comm, rondo_stream *stream);

/* recv on root becomes the reduction of all ranks' send. In place: recv == send (only root writes recv). */
RONDO_API rondo_result rondo_reduce(const void *send, void *recv, size_t count, rondo_dtype dtype, rondo_op op,
                                    int root, rondo_comm *comm, rondo_stream *stream);

/* recv on root, world_size * count elements, becomes the ranks' send buffers in rank order; recv elsewhere is unused.
 * In place on root: send == recv + rank * count. */
RONDO_API rondo_result rondo_gather(const void *send, void *recv, size_t count, rondo_dtype dtype, int root,
                                    rondo_comm *comm, rondo_stream *stream);

/* recv on rank r becomes the r-th part of root's send, world_size * count elements; send elsewhere is unused.
 * In place on root: recv == send + rank * count. */
RONDO_API rondo_result rondo_scatter(const void *send, void *recv, size_t count, rondo_dtype dtype, int root,
                                     rondo_comm *comm, rondo_stream *stream);

/* Part r of recv becomes the part of rank r's send that is for this rank; both hold world_size * count_per_rank
 * elements and must be apart. Makes a link between every two ranks at its first use. */
RONDO_API rondo_result rondo_all_to_all(const void *send, void *recv, size_t count_per_rank, rondo_dtype dtype,
                                        rondo_comm *comm, rondo_stream *stream);

/* Returns when every rank has called it. */
RONDO_API rondo_result rondo_barrier(rondo_comm *comm, rondo_stream *stream);

/* ---- Operators made at run time ------------------------------------------------------------------------------ */

/* A sum of scaled terms: each rank multiplies its own terms by its own factor, an element of dtype, rounded (integers:
 * wrapped) to dtype as RONDO_PROD does, and the products are summed as by RONDO_SUM. For reducing calls of this rank on
 * comm with elements of dtype; ranks that make such a call may have made the operator at different times, and must all
 * make it with some scaled sum. when: RONDO_NOW reads *factor before this returns; RONDO_LATER lets each call read it when
 * it runs. */
typedef enum rondo_when { RONDO_NOW, RONDO_LATER } rondo_when;
RONDO_API rondo_result rondo_op_create_scaled_sum(rondo_op *op, const void *factor, rondo_dtype dtype, rondo_when when,
                                                  rondo_comm *comm);
/* Gives it back. Calls that were given it may still have to run. */
RONDO_API rondo_result rondo_op_destroy(rondo_op op, rondo_comm *comm);

/* ---- Streams ------------------------------------------------------------------------------------------------
 *
 * A stream runs the calls that it is given in order, on a thread of its own. It may serve any communicators of the
 * process; calls on one communicator run in the order in which they were made, whichever streams have them (NULL
 * too). A call's timeout starts when it starts to run. */

/* A new stream. comm may be NULL. */
RONDO_API rondo_result rondo_stream_create(rondo_stream **stream, rondo_comm *comm);

/* A new stream that stands in a CUDA stream (a cudaStream_t or CUstream; NULL is CUDA's legacy stream): a call begins
 * when what was on the CUDA stream before it is done, and what comes on the CUDA stream after it waits until it is. The
 * caller waits for neither. comm may be NULL, else the CUDA stream must be of the GPU that comm uses. The CUDA stream must
 * live as long as this one. Ranks that share a GPU need a CUDA stream each, or a group. If a call fails, what follows on
 * the CUDA stream goes on: ask rondo_stream_query. RONDO_INVALID_USAGE: no GPU, or one whose streams cannot wait for a
 * value in memory; here and for each call: the CUDA stream is being captured into a graph, which goes on without it. */
RONDO_API rondo_result rondo_stream_from_cuda(rondo_stream **stream, void *cuda_stream, rondo_comm *comm);

/* RONDO_IN_PROGRESS while something that it was given is not done; else RONDO_SUCCESS, or the first failure since it
 * was last told of one, here or in rondo_stream_synchronize. */
RONDO_API rondo_result rondo_stream_query(rondo_stream *stream);

/* Waits until everything that it was given is done. Result as of rondo_stream_query. */
RONDO_API rondo_result rondo_stream_synchronize(rondo_stream *stream);

/* Waits until everything that it was given is done, and frees it. NULL is fine. */
RONDO_API rondo_result rondo_stream_destroy(rondo_stream *stream);

/* A handle on what the stream was given last: a call, or the calls of a group. */
typedef struct rondo_work rondo_work;
typedef void (*rondo_work_fn)(void *context, rondo_result result);
RONDO_API rondo_result rondo_stream_work(rondo_stream *stream, rondo_work **work);

/* RONDO_IN_PROGRESS, or what it ended with (of several calls the first failure). */
RONDO_API rondo_result rondo_work_test(rondo_work *work);
/* The same after a wait of at most timeout_s seconds; below 0: as long as it takes. */
RONDO_API rondo_result rondo_work_wait(rondo_work *work, double timeout_s);
/* then(context, result) is called once, when the work is done: on the stream's thread, which goes on after it, or at
 * once if it is done already. It must not wait for what is queued on streams: RONDO_INVALID_USAGE for calls without a
 * stream, finalize, shrink and destroy on a communicator that has calls on streams, and for waiting for that stream.
 * One for each work, else RONDO_INVALID_USAGE. */
RONDO_API rondo_result rondo_work_then(rondo_work *work, rondo_work_fn then, void *context);
/* Gives the handle back; the work goes on. NULL is fine. */
RONDO_API void rondo_work_free(rondo_work *work);

/* ---- Groups -------------------------------------------------------------------------------------------------
 *
 * Calls that this thread makes between start and end return at once and run together at the end, which returns when
 * those without a stream are done: on several communicators at the same time; on one communicator its collectives one
 * after the other, small all-reduces of one type and operator that follow one another as one pass, on GPUs up to 16
 * collectives of one type that follow one another as one launch, and beside them all messages. No call of a group may
 * write what another one uses (RONDO_INVALID_ARGUMENT). All ranks must group alike. Communicators may be made inside
 * (with config->background at once, as outside); their handles are there after the end, also those of a split that
 * succeeded when something else in the group failed. Groups may be nested: the outermost counts. If a call inside is
 * refused, nothing runs and end returns its result. */
RONDO_API rondo_result rondo_group_start(void);
RONDO_API rondo_result rondo_group_end(void);

/* Ends the group as rondo_group_cancel does, and *seconds is how long its calls might have taken by a model: each step of a
 * call takes the latency of the ring's slowest hop, as `rondo topo` has it, and the time of the step's bytes at that hop's
 * bandwidth. So an all-reduce of B bytes takes 2(N-1) (latency + B / (N bandwidth)) (Patarasuk and Yuan, "Bandwidth optimal
 * all-reduce algorithms for clusters of workstations", 2009). What the calls really take depends on what the machine
 * does beside. RONDO_INVALID_USAGE outside a group; if a call inside was refused, its result. */
RONDO_API rondo_result rondo_group_estimate(double *seconds);

/* Ends the group, however deeply it is nested, and starts nothing of it: for whoever finds a mistake of his own on the
 * way. RONDO_INVALID_USAGE outside a group. */
RONDO_API rondo_result rondo_group_cancel(void);

/* ---- Messages -----------------------------------------------------------------------------------------------
 *
 * From one rank to another, in the order in which they are sent; collectives neither wait for them nor hold them up.
 * Both ends must name the same count and type, else RONDO_MISMATCH. A send is done when send may be changed; whether
 * the message was received by then depends on its size. Outside a group a send may thus wait for its receive; inside,
 * all sends and receives go on at once, also to and from the rank itself. The first message to a rank makes a link to
 * it. A rank that left is an error for those who wait for its message. */
RONDO_API rondo_result rondo_send(const void *send, size_t count, rondo_dtype dtype, int peer, rondo_comm *comm,
                                  rondo_stream *stream);
RONDO_API rondo_result rondo_recv(void *recv, size_t count, rondo_dtype dtype, int peer, rondo_comm *comm,
                                  rondo_stream *stream);

/* ---- Memory ------------------------------------------------------------------------------------------------- */

/* bytes of zeroed memory that neighbours can be given access to: of the GPU that comm uses, or, without one, of the host
 * (page-aligned, shared). comm may be NULL: the host's, for any communicator. bytes 0 gives a pointer that can only be
 * freed. */
RONDO_API rondo_result rondo_mem_alloc(void **ptr, size_t bytes, rondo_comm *comm);

/* Gives back what rondo_mem_alloc() returned; peers that mapped it unmap it. NULL is fine. */
RONDO_API rondo_result rondo_mem_free(void *ptr, rondo_comm *comm);

/* Tells the links of comm that [ptr, ptr + bytes) will be used often, so that those that can register memory do it
 * once. Changes no result. Ranges may be registered more than once and must be deregistered as often. */
RONDO_API rondo_result rondo_register(void *ptr, size_t bytes, rondo_comm *comm);
RONDO_API rondo_result rondo_deregister(void *ptr, rondo_comm *comm);

/* ---- Information -------------------------------------------------------------------------------------------- */

/* RONDO_VERSION of the library that is running. */
RONDO_API rondo_result rondo_version(int *version);

/* A short text for a result; never NULL. */
RONDO_API const char *rondo_result_string(rondo_result result);

/* What the last failure on comm was, in words; NULL asks for this thread's last failure on anything. Never NULL;
 * valid until the next failing call on comm (or on this thread). */
RONDO_API const char *rondo_last_error(const rondo_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
