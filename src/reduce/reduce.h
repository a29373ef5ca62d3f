/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.h - adding and copying slices on the CPU. Knows element type, operator and memory; not ring, not peer.
 */
#ifndef RD_REDUCE_REDUCE_H
#define RD_REDUCE_REDUCE_H

#include "rondo.h"

#include <stdbool.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#define RD_MAX_SOURCES 64

/* One pass over one slice: reads every source once, writes every output once.
 *
 *   term 0 = source[0], and then for k = 1 ... sources-1:  sum = sum op source[k]      (from the left, always)
 *
 * Sums of a type narrower than float32 are taken in float32 (the wide type); every other type is its own wide type.
 * AVG: a term is scaled by 2^-k, k = ceil(log2 N), before it is added when type's range needs it; a partial sum has
 * been scaled already; `finish` divides by N * 2^-k (integers: by N, truncated toward zero) and rounds.
 *
 * The result's bits depend on the values and on their order only: not on the level, the alignment or the count. Every
 * NaN that is stored is its type's quiet one without sign (0x7fc00000 in float32, 0x7e in e5m2). A float8 result beyond
 * the largest finite value, infinite ones included, becomes that value, as CUDA's __NV_SATFINITE does (float8.h);
 * maxima and minima are one of the terms. */
typedef struct rd_pass {
    size_t count;       /* elements; 0 is fine */
    int sources;        /* 1 to RD_MAX_SOURCES */
    int outputs;        /* 1 to RD_MAX_SOURCES; may equal sources (exactly the same address), must not overlap otherwise */
    bool first_partial; /* source[0] is what an earlier pass left, not a rank's own term */
    bool first_wide;    /* ... and in the wide type */
    bool out_wide;      /* outputs are in the wide type; not together with finish */
    bool finish;        /* the sum is complete */
    bool touch;         /* store to each line of source[0] after reading it, leaving its bytes as they are */
    const void *source[RD_MAX_SOURCES];
    void *output[RD_MAX_SOURCES];
} rd_pass;

/* A pass without outputs, all flags off; leaves the long lists of addresses as they are, which costs more than many a
 * pass. */
static inline void rd_pass_begin(rd_pass *pass, size_t count, int sources)
{
    pass->count = count;
    pass->sources = sources;
    pass->outputs = 0;
    pass->first_partial = pass->first_wide = pass->out_wide = pass->finish = pass->touch = false;
}

/* An operator made ready for the calls of one communicator. Plain data. */
typedef struct rd_reduction {
    rondo_dtype type;
    rondo_op op;
    int ranks;          /* N, for AVG */
    size_t bytes, wide_bytes;
    void (*run)(const struct rd_reduction *reduction, const rd_pass *pass);
    void (*run_few)(const struct rd_reduction *reduction, const rd_pass *pass); /* of 1 to few_most elements */
    size_t few_most;                                                            /* perhaps 0 */
    double scale, divisor; /* AVG on floats: 2^-k and N * 2^-k, or 1 */
    const struct rd_tables8 *tables[2]; /* for sums of two float8, and for averages of them; NULL: without */
} rd_reduction;

/* level: RD_CPU_* of env.h (0: the best this machine has). RONDO_INVALID_ARGUMENT: unknown type or operator, or a level
 * that this machine lacks. */
rondo_result rd_reduction_init(rd_reduction *reduction, rondo_dtype type, rondo_op op, int ranks, int level);

/* The bits of a result of n terms tell in which order they were taken. */
static inline bool rd_order_shows(rondo_dtype type, rondo_op op, int n)
{
    return n > 2 && type > RONDO_UINT64 && op != RONDO_MAX && op != RONDO_MIN;
}

/* For partial sums that are rounded to the type after each pass: then averages of every float type are scaled before they
 * are added, since in the type they might overflow. */
void rd_reduction_in_type(rd_reduction *reduction);

static inline void rd_reduce(const rd_reduction *reduction, const rd_pass *pass)
{
    (pass->count - 1 < reduction->few_most ? reduction->run_few : reduction->run)(reduction, pass);
}

/* Copies `bytes` from `from` to `to` and, when it is not NULL, to `also`; touch as above (then `from` is writable). */
void rd_copy(void *to, void *also, const void *from, size_t bytes, bool touch);

/* The level in use for `level` (0: best), its name, and whether this machine has it. */
const char *rd_cpu_level_name(int level);
bool rd_cpu_level_has(int level);
int rd_cpu_level_best(void);

/* The floating-point state that every kernel assumes: round to nearest even, no flush to zero. enter returns what was
 * there, leave restores it. */
#ifdef __x86_64__
#define RD_MXCSR_DEFAULT 0x1f80u /* exceptions masked, round to nearest even, no flush to zero, denormals are kept */
static inline unsigned rd_fp_enter(void)
{
    unsigned saved = _mm_getcsr();
    if (saved != RD_MXCSR_DEFAULT) _mm_setcsr(RD_MXCSR_DEFAULT);
    return saved;
}
static inline void rd_fp_leave(unsigned saved) { _mm_setcsr(saved); }
#else
static inline unsigned rd_fp_enter(void) { return 0; }
static inline void rd_fp_leave(unsigned saved) { (void)saved; }
#endif

#endif
