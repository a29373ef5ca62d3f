/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo_ddp.h - data-parallel training: which samples each rank takes, and gradients that are averaged while the
 * backward pass still goes on.
 *
 * Results, errors and their texts are rondo.h's; rondo_last_error(NULL) has the text. Handles are one thread's at a
 * time, those of different communicators are independent, and there is no global state.
 */
#ifndef RONDO_DDP_H
#define RONDO_DDP_H

#include "rondo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Samplers -----------------------------------------------------------------------------------------------
 *
 * Which samples of a data set each rank takes in an epoch. A sampler communicates nothing: all ranks work out the same
 * order, a permutation of the samples, and rank r takes the places r, r + N, r + 2N ... of it, as PyTorch's
 * DistributedSampler does. With 10 samples on 4 ranks, not shuffled:
 *
 *     place     0  1  2  3 | 4  5  6  7 | 8  9 10 11        tail     samples of each rank   rank 2 takes
 *     PAD       0  1  2  3   4  5  6  7   8  9  0  1        PAD      3                      2 6 0
 *     DROP      0  1  2  3   4  5  6  7                     DROP     2                      2 6
 *     UNEVEN    0  1  2  3   4  5  6  7   8  9              UNEVEN   3, 3, 2, 2             2 6
 *
 * The order is the same on every platform and in every version. The generator is SplitMix64 (Steele, Lea and Flood,
 * "Fast splittable pseudorandom number generators", 2014), started at mix(seed) + epoch, where mix is its output
 * function:
 *
 *     next:   state += 0x9e3779b97f4a7c15;  return mix(state)
 *     mix(z): z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;  z = (z ^ z >> 27) * 0x94d049bb133111eb;  return z ^ z >> 31
 *
 * and the permutation Fisher and Yates's: for i from the last place down to 1, swap place i with place
 * next mod (i + 1), where a draw below 2^64 mod (i + 1) is drawn again, so that all places are equally likely.
 */

/* What becomes of the places after the last full round of all ranks. */
typedef enum rondo_tail {
    RONDO_TAIL_PAD = 0,   /* filled by the first samples again, as often as it takes; PyTorch's default */
    RONDO_TAIL_DROP = 1,  /* left out: drop_last */
    RONDO_TAIL_UNEVEN = 2 /* as they are: the first ranks take one more (rondo_ddp_join) */
} rondo_tail;

typedef struct rondo_sampler_config {
    size_t size;      /* sizeof(rondo_sampler_config) */
    uint64_t samples; /* in the data set; 0 is fine */
    int world_size;   /* 1 or more */
    int rank;         /* 0 to world_size - 1 */
    int shuffle;      /* 0: in the data set's order, in every epoch */
    uint64_t seed;    /* the same on every rank */
    rondo_tail tail;
} rondo_sampler_config;

/* samples, world_size and rank are to be filled in. */
#define RONDO_SAMPLER_CONFIG_INIT                                                                   \
    { sizeof(rondo_sampler_config), 0, 0, 0, 1, 0, RONDO_TAIL_PAD }

typedef struct rondo_sampler rondo_sampler;

/* A sampler at epoch 0. It holds 8 bytes for each sample of the data set. RONDO_INVALID_ARGUMENT names the field. */
RONDO_API rondo_result rondo_sampler_create(rondo_sampler **sampler, const rondo_sampler_config *config);

/* Another order (if it shuffles): call it before each epoch with the same number on every rank. */
RONDO_API rondo_result rondo_sampler_set_epoch(rondo_sampler *sampler, uint64_t epoch);

/* How many samples this rank takes in an epoch, and all ranks together, padding included. 0 for NULL. */
RONDO_API uint64_t rondo_sampler_count(const rondo_sampler *sampler);
RONDO_API uint64_t rondo_sampler_total(const rondo_sampler *sampler);

/* *sample = the number in the data set of this rank's i-th sample, 0 <= i < count. */
RONDO_API rondo_result rondo_sampler_get(const rondo_sampler *sampler, uint64_t i, uint64_t *sample);

/* NULL is fine. */
RONDO_API void rondo_sampler_destroy(rondo_sampler *sampler);

/* ---- Distributed data parallel ------------------------------------------------------------------------------
 *
 * Every rank holds the whole model and works on its own samples. Gradients are put together in *buckets*, and a
 * bucket's all-reduce starts as soon as its last gradient is there, while the backward pass goes on with the layers
 * before:
 *
 *     backward      | layer 9 | layer 8 | layer 7 | layer 6 | ...
 *     stream                            [ all-reduce 9 8    ][ all-reduce 7 6 ...
 *
 *     rondo_ddp_create(&ddp, parameters, n, buffers, m, comm, NULL)   all ranks agree, and start from rank 0's values
 *     each step:
 *         rondo_ddp_forward(ddp, samples, NULL)      before the forward pass
 *         for i from n - 1 down to 0:                the backward pass, in whichever order it has
 *             add to *parameters[i].gradient
 *             rondo_ddp_ready(ddp, i)                that gradient is complete; it is the library's until wait
 *         rondo_ddp_wait(ddp)                        every rank has the same gradients
 *         the optimizer, one in each process; then the gradients are zeroed, as in any training
 *
 * A step is the calls up to wait. From forward to wait no other call may be made on comm; a program that needs one
 * splits itself a communicator.
 *
 * Buckets are filled from the last parameter to the first, for that is about the order in which gradients come, each
 * with parameters of one type until it has reached its size. They are all-reduced in the same order on every rank.
 * After the first synchronised step they are made anew, in the order in which gradients came on rank 0. All views move
 * then.
 *
 * Gradients. `gradient` points to the caller's pointer to the gradient. Where that is NULL at create, it becomes a
 * *view*: zeroed memory within the bucket, of the library's, from where the gradient is sent without a copy. Any other
 * pointer is the caller's memory; the gradient is copied from there and back. The pointer may be replaced at any time
 * outside of ready to wait: the library looks at it at each ready and at each wait, overwrites only NULL and pointers
 * to its own views, and rondo_ddp_view() says where the view is. So always use *gradient, not a copy of that pointer
 * from before a wait.
 *
 * Gradients that do not come. Without find_unused every parameter must be ready before wait; else wait fails on all
 * ranks with RONDO_INVALID_USAGE and names the parameter and the rank, and so does every later call (the next forward).
 * With find_unused a parameter counts as zero on a rank where it was not ready since the last synchronised step,
 * whatever its gradient holds. Where it was not ready on any rank, its gradient is left as it is, everywhere.
 *
 * GPU memory. Where comm uses a GPU, parameters, buffers and gradients may each lie in that GPU's memory, in managed or
 * pinned memory, or in plain memory of the host; some ranks may use GPUs and others not. Buckets, and with them views,
 * lie in GPU memory if the data of any parameter does. Calls count with what CUDA's legacy stream was given before
 * them: so ready may be called while kernels still work on that gradient, in the legacy stream or in streams that it
 * waits for (not those made by cudaStreamNonBlocking: let the legacy stream wait for an event of theirs first). ready
 * does not wait for them, unless views are on the host or the library works something out itself; wait does. Averages
 * and sums are added up by the GPU. What the library works out itself, compression, the shares of WEIGHTED, the
 * division of JOIN_ACTIVE where a rank has joined, clipping and BUFFERS_MEAN, it works out on the host, with the same
 * bits as there: these fetch from the GPU what they read, and bring back what they write; and compressed gradients
 * travel from host to host. All that costs about as long as it takes to copy the gradients so often; a hook with
 * kernels of its own need not pay it.
 *
 * A failure of the communicator stays: every later call returns it, with the same text. */

/* One parameter or buffer. All strings and arrays of these may be freed after create; the values and the pointers to
 * gradients must stay until destroy. */
typedef struct rondo_ddp_tensor {
    const char *name; /* unlike all others */
    void *data;       /* count elements */
    size_t count;
    rondo_dtype dtype; /* parameters: float16, bfloat16, float32 or float64; buffers: any */
    void **gradient;   /* parameters: see above; buffers: NULL */
} rondo_ddp_tensor;

/* What becomes of the ranks' gradients. */
typedef enum rondo_ddp_reduce {
    RONDO_DDP_AVERAGE = 0, /* sum by the number of ranks */
    RONDO_DDP_SUM = 1,
    RONDO_DDP_WEIGHTED = 2 /* each rank's by its share of all ranks' samples (see forward): the average over all samples
                              where each gradient is the average over the rank's own */
} rondo_ddp_reduce;

/* What becomes of the buffers at each forward: BatchNorm's running statistics, say. */
typedef enum rondo_ddp_buffers {
    RONDO_DDP_BUFFERS_FIRST = 0, /* those of rank 0 for all; if it has joined, of the first that has not */
    RONDO_DDP_BUFFERS_MEAN = 1,  /* floats: the mean, weighted by the samples since the last time; others: as FIRST */
    RONDO_DDP_BUFFERS_OWN = 2    /* each rank keeps its own */
} rondo_ddp_buffers;

/* What happens when some ranks have more batches than others; see rondo_ddp_join. */
typedef enum rondo_ddp_join_mode {
    RONDO_DDP_JOIN_NONE = 0,   /* all ranks have as many */
    RONDO_DDP_JOIN_ACTIVE = 1, /* AVERAGE divides by the ranks that still have one */
    RONDO_DDP_JOIN_WORLD = 2,  /* AVERAGE divides by all ranks: late samples weigh as much as early ones */
    RONDO_DDP_JOIN_STOP = 3    /* all stop when one has none left */
} rondo_ddp_join_mode;

/* In what type gradients wider than it travel: half the bytes, 11 or 8 significant bits. They are rounded once before
 * they are added, and once after (added in float32). What is beyond 65504 is infinite in float16. */
typedef enum rondo_ddp_compression {
    RONDO_DDP_AS_IS = 0,
    RONDO_DDP_AS_BFLOAT16 = 1,
    RONDO_DDP_AS_FLOAT16 = 2
} rondo_ddp_compression;

/* One bucket, as a hook sees it. */
typedef struct rondo_ddp_bucket {
    size_t size; /* sizeof(rondo_ddp_bucket) */
    int index, buckets;
    void *data; /* count elements: this rank's gradients, then the result; where views are, perhaps in GPU memory, and
                   there ordered by CUDA's legacy stream */
    size_t count;
    rondo_dtype dtype;
} rondo_ddp_bucket;

/* In place of a bucket's all-reduce. start is called when the bucket is full, by ready or wait, and gives its calls to
 * the stream (or makes them with NULL and holds up the backward pass); finish, unless it is NULL, is called by wait
 * when the stream is done with them. After that data must be the average over all ranks (AVERAGE) or the sum (SUM,
 * WEIGHTED), or what the hook takes for it, and the same bits on all ranks. Ranks must make the same calls. A failure
 * is wait's. */
typedef struct rondo_ddp_hook {
    size_t size; /* sizeof(rondo_ddp_hook) */
    rondo_result (*start)(void *context, const rondo_ddp_bucket *bucket, rondo_comm *comm, rondo_stream *stream);
    rondo_result (*finish)(void *context, const rondo_ddp_bucket *bucket);
    void *context;
} rondo_ddp_hook;

typedef struct rondo_ddp_config {
    size_t size;               /* sizeof(rondo_ddp_config) */
    size_t first_bucket_bytes; /* where the first bucket is full (1 MiB): small, so that it leaves early; 1 or more */
    size_t bucket_bytes;       /* and the others (25 MiB) */
    rondo_ddp_reduce reduce;
    rondo_ddp_buffers buffers;
    rondo_ddp_join_mode join;
    int find_unused; /* 1: parameters may get no gradient; costs one element of message for each */
    rondo_ddp_compression compression;
    const rondo_ddp_hook *hook; /* NULL: an all-reduce; not together with compression */
} rondo_ddp_config;

#define RONDO_DDP_CONFIG_INIT                                                                       \
    { sizeof(rondo_ddp_config), 1 << 20, 25 << 20, RONDO_DDP_AVERAGE, RONDO_DDP_BUFFERS_FIRST,      \
      RONDO_DDP_JOIN_NONE, 0, RONDO_DDP_AS_IS, NULL }

typedef struct rondo_ddp rondo_ddp;

/* All ranks of comm call it with the same tensors, in the same order, and the same settings: else it fails on all of
 * them with RONDO_INVALID_ARGUMENT and names the first that differs, and the rank. Then all have rank 0's values. comm
 * stays the caller's and must outlive *ddp. parameters: 1 or more; buffers may be NULL with 0. config: NULL means
 * RONDO_DDP_CONFIG_INIT. Keeps as much memory as the gradients take (half more with compression). */
RONDO_API rondo_result rondo_ddp_create(rondo_ddp **ddp, const rondo_ddp_tensor *parameters, int parameter_count,
                                        const rondo_ddp_tensor *buffers, int buffer_count, rondo_comm *comm,
                                        const rondo_ddp_config *config);

/* Before each forward pass on a batch of `samples` (1 or more; used by WEIGHTED and BUFFERS_MEAN). Takes care of the
 * buffers and of ranks that have joined; communicates nothing where there are neither buffers nor WEIGHTED nor join,
 * and within no_sync; where it communicates it waits for the other ranks. *active (may be NULL) is the number of ranks
 * that take part in this step: 0 with JOIN_STOP when one has joined, and then there is no step: call join. The call may
 * be left out where it communicates nothing. */
RONDO_API rondo_result rondo_ddp_forward(rondo_ddp *ddp, size_t samples, int *active);

/* The gradient of parameter `index` is complete. Starts the all-reduce of its bucket if that was the last one. Once in
 * each step for each parameter: RONDO_INVALID_USAGE when it comes twice. */
RONDO_API rondo_result rondo_ddp_ready(rondo_ddp *ddp, int index);

/* Ends the step: waits until all buckets are there. Within no_sync it does nothing. */
RONDO_API rondo_result rondo_ddp_wait(rondo_ddp *ddp);

/* Between the two, gradients are only accumulated on this rank: ready notes that they came, as often as it is called.
 * The first step after the end sends what has been accumulated. All ranks must have no_sync around the same steps. Both
 * are called between steps. */
RONDO_API rondo_result rondo_ddp_no_sync_begin(rondo_ddp *ddp);
RONDO_API rondo_result rondo_ddp_no_sync_end(rondo_ddp *ddp);

/* This rank has no more batches. Takes part in the other ranks' steps, with zeros, until all have called it; then all
 * take the values and buffers of a rank that made the last step, and may go on with the next epoch. Each process's
 * optimizer keeps its own state, which is behind where it made fewer steps. Overwrites views. Needs a join mode. */
RONDO_API rondo_result rondo_ddp_join(rondo_ddp *ddp);

/* Buffers as forward would make them: before an evaluation or a checkpoint. All ranks call it between steps. */
RONDO_API rondo_result rondo_ddp_sync_buffers(rondo_ddp *ddp);

/* After wait: where the Euclidean norm of all gradients together is more than max_norm (above 0), scales them to it.
 * *norm (may be NULL) is the norm before. Pointers that are NULL are left out. Communicates nothing: all ranks have the
 * same gradients, and get the same bits. Where the norm is infinite or NaN it changes nothing. */
RONDO_API rondo_result rondo_ddp_clip(rondo_ddp *ddp, double max_norm, double *norm);

/* *view = where the view of that parameter's gradient is, until the next wait. */
RONDO_API rondo_result rondo_ddp_view(rondo_ddp *ddp, int index, void **view);

/* For checkpoints. Tensors have the names that they were given, no prefix is added. Numbers go over the parameters,
 * then the buffers; *name stays until destroy. find takes the names of PyTorch's wrapper too: leading "module." is
 * skipped where the name is not found as it is. */
RONDO_API rondo_result rondo_ddp_name(const rondo_ddp *ddp, int number, const char **name);
RONDO_API rondo_result rondo_ddp_find(const rondo_ddp *ddp, const char *name, int *number);

/* The last synchronised step of this rank. */
typedef struct rondo_ddp_report {
    size_t size;   /* sizeof(rondo_ddp_report), to be set before the call */
    uint64_t step; /* synchronised steps so far */
    int buckets;
    uint64_t bytes;         /* of all buckets' messages as they travelled (with a hook: as it got them) */
    double communicating_s; /* while buckets were under way, from the first one's start */
    double hidden_s;        /* of that, what was over before wait was called */
    double waited_s;        /* in wait, copying included */
} rondo_ddp_report;

RONDO_API rondo_result rondo_ddp_get_report(const rondo_ddp *ddp, rondo_ddp_report *report);

/* Waits until what is under way is done or has failed. Pointers to views become NULL. NULL is fine. */
RONDO_API rondo_result rondo_ddp_destroy(rondo_ddp *ddp);

/* ---- Data parallel, as it was before ------------------------------------------------------------------------
 *
 * nn.DataParallel as PyTorch's users know it, to be measured beside the above: one process, a thread per device, and
 * device 0 in the middle of everything. A step, with the caller's thread as device 0's:
 *
 *     forward    scatter     device 0 gives each device its part of the batch
 *                replicate   and the parameters, each step anew
 *                apply       all run the model on their parts
 *                gather      device 0 collects their outputs
 *     loss       the caller, on device 0, from all outputs at once: averaged over the batch
 *     backward   scatter     device 0 gives each device the loss's slope by its outputs
 *                apply       all run the model backward
 *                reduce      device 0 adds up all gradients; one optimizer makes the step there
 *
 * Parts are as torch.chunk makes them: ceil(samples / devices) each, the last one smaller; there may be fewer parts
 * than devices. Devices are threads with memory of their own, on the host or on GPUs; everything is float32.
 *
 * A trap: a model that ends in its own loss has one output per device, not per sample (one_output), and gathering gives
 * as many numbers as there are parts. Their mean is the loss of the batch only where the parts are equally large: 5
 * samples with losses 1 1 1 6 6 on two devices are gathered as 1 and 6, which make 3.5, and the batch's loss is 3. */
typedef struct rondo_data_parallel_model {
    size_t size;            /* sizeof(rondo_data_parallel_model) */
    size_t parameters;      /* of the whole model */
    size_t inputs, outputs; /* of one sample; outputs with one_output: of one device */
    int one_output;
    /* On a device's thread: output = what the model makes of `samples` rows of input. A model that needs more for its
     * way back than the input works it out again. */
    void (*forward)(void *context, int device, const float *parameters, const float *input, size_t samples,
                    float *output);
    /* gradient += the slopes of the loss by the parameters, from those by the outputs. */
    void (*backward)(void *context, int device, const float *parameters, const float *input, size_t samples,
                     const float *output_gradient, float *gradient);
    void *context;
} rondo_data_parallel_model;

typedef struct rondo_data_parallel rondo_data_parallel;

/* devices: 1 to 64. parameters and gradient are device 0's, model->parameters elements each, and stay the caller's; the
 * caller zeroes the gradient. */
RONDO_API rondo_result rondo_data_parallel_create(rondo_data_parallel **dp, int devices,
                                                  const rondo_data_parallel_model *model, float *parameters,
                                                  float *gradient);

/* The same on GPUs, gpus[d] for device d (a number may come more often; NULL: on the host). All pointers that the model
 * is given are then memory of its device's GPU, which is current in its thread; kernels that it starts need not be done
 * when it returns. The caller's parameters, gradient, input and output are to be memory that GPU gpus[0] reaches.
 * Device 0 adds up gradients by way of the host. */
RONDO_API rondo_result rondo_data_parallel_create_on(rondo_data_parallel **dp, int devices, const int *gpus,
                                                     const rondo_data_parallel_model *model, float *parameters,
                                                     float *gradient);

/* input: samples (1 or more) rows; it must stay as it is until backward. output has room for a row per sample, or per
 * device with one_output. *rows (may be NULL) is the number of rows there. */
RONDO_API rondo_result rondo_data_parallel_forward(rondo_data_parallel *dp, const float *input, size_t samples,
                                                   float *output, size_t *rows);

/* After each forward, with as many rows: adds to the gradient. RONDO_INVALID_USAGE without a forward before. */
RONDO_API rondo_result rondo_data_parallel_backward(rondo_data_parallel *dp, const float *output_gradient);

/* One device in the last step, from the begin of forward to the end of backward. */
typedef struct rondo_data_parallel_report {
    size_t size;           /* sizeof(rondo_data_parallel_report), to be set before the call */
    size_t samples;        /* of its part */
    uint64_t held;         /* bytes of memory: device 0's are those of the caller's that it uses, too */
    uint64_t in, out;      /* bytes that it was given by another device, and that it gave */
    double step_s, idle_s; /* how long the step took; how long this device waited for others */
} rondo_data_parallel_report;

RONDO_API rondo_result rondo_data_parallel_get_report(const rondo_data_parallel *dp, int device,
                                                      rondo_data_parallel_report *report);

/* NULL is fine. */
RONDO_API void rondo_data_parallel_destroy(rondo_data_parallel *dp);

#ifdef __cplusplus
}
#endif

#endif
