/* SPDX-License-Identifier: Apache-2.0
 *
 * trial_ring.cu - an all-reduce by kernels that wait for one another, to try the simulated driver by itself; for the CPU only.
 * With -DPLANT_... it has one of the bugs that the simulated driver and the sanitizers must find (test_cudasim_ring.c).
 */
#include "trial_ring.h"

#if defined(PLANT_RELAXED_STORE)
enum { RELEASE = __ATOMIC_RELAXED, ACQUIRE = __ATOMIC_ACQUIRE };
#elif defined(PLANT_RELAXED_LOAD)
enum { RELEASE = __ATOMIC_RELEASE, ACQUIRE = __ATOMIC_RELAXED };
#else
enum { RELEASE = __ATOMIC_RELEASE, ACQUIRE = __ATOMIC_ACQUIRE };
#endif

struct alignas(16) four {
    float f[4];
};

/* Until *counter has reached `number`; false: aborted. */
static bool wait_for(const uint64_t *counter, uint64_t number, const uint32_t *abort)
{
    while (__atomic_load_n(counter, ACQUIRE) < number) {
        if (__atomic_load_n(abort, __ATOMIC_RELAXED) != 0) return false;
        rd_sim_spin();
    }
    return true;
}

/* to[i] = (or +=) from[i], by all threads of the block; four at a time where both are aligned. */
static void move(float *to, const float *from, uint64_t count, bool add)
{
    uint64_t fours = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0 ? count / 4 : 0;
#ifdef PLANT_MISALIGNED
    fours = count / 4;
#endif
#ifdef PLANT_ONE_TOO_FAR
    count += add ? 0 : 1;
#endif
    for (uint64_t i = threadIdx.x; i < fours; i += blockDim.x) {
        four a = reinterpret_cast<const four *>(from)[i], b = add ? reinterpret_cast<four *>(to)[i] : four{};
        for (int k = 0; k < 4; k++) a.f[k] += b.f[k];
        reinterpret_cast<four *>(to)[i] = a;
    }
    for (uint64_t i = 4 * fours + threadIdx.x; i < count; i += blockDim.x) to[i] = add ? to[i] + from[i] : from[i];
}

static uint64_t chunk_start(const ring_args &args, int chunk) { return args.count * (uint64_t)chunk / (uint64_t)args.n; }

/* Step s of 2(n-1): chunk rank-s goes to the successor; chunk rank-s-1 comes and is added to, or, in the second half, replaces
 * what is there. */
static bool step(const ring_args &args, int s, uint64_t number)
{
    __shared__ bool ok;
    int n = args.n, sent = (args.rank - s + 2 * n) % n, got = (sent + n - 1) % n;
    float *in = args.in->slot + number % 2 * args.room, *out = args.out->slot + number % 2 * args.room;
    if (threadIdx.x == 0) ok = wait_for(&args.out->freed, number - (number < 2 ? number : 2), args.abort);
    __syncthreads();
    if (!ok) return false;
    move(out, args.data + chunk_start(args, sent), chunk_start(args, sent + 1) - chunk_start(args, sent), false);
#ifndef PLANT_NO_BARRIER
    __syncthreads();
#endif
    if (threadIdx.x == 0) {
        __atomic_store_n(&args.out->filled, number, RELEASE);
        ok = wait_for(&args.in->filled, number, args.abort);
    }
    __syncthreads();
    if (!ok) return false;
    move(args.data + chunk_start(args, got), in, chunk_start(args, got + 1) - chunk_start(args, got), s < n - 1);
    __syncthreads();
    if (threadIdx.x == 0) __atomic_store_n(&args.in->freed, number, RELEASE);
    return true;
}

RD_SIM_KERNEL(trial_ring, ring_args, 128)
{
    uint64_t before = *args.launches;
    __syncthreads();
    for (int s = 0; s < 2 * (args.n - 1); s++) {
        if (step(args, s, before + (uint64_t)s + 1)) continue;
        if (threadIdx.x == 0) *args.gave_up = 1;
        return;
    }
#ifndef PLANT_LOST_COUNTER
    if (threadIdx.x == 0) *args.launches = before + 2 * (uint64_t)(args.n - 1);
#endif
}

/* ---- Barriers and warps ------------------------------------------------------------------------------------------- */

struct warp_args {
    uint32_t *out; /* six words for each thread */
};

RD_SIM_KERNEL(trial_warp, warp_args, 256)
{
    uint32_t t = blockIdx.x * blockDim.x + threadIdx.x, lane = t % 32, *mine = args.out + 6 * t;
    mine[0] = __shfl_sync(0xffffffffu, t, 5);
    mine[1] = __shfl_xor_sync(0xffffffffu, t, 3);
    mine[2] = __shfl_up_sync(0xffffffffu, t, 1);
    mine[3] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    /* Halves of a warp go ways of their own. */
    mine[4] = lane < 16 ? __shfl_down_sync(0x0000ffffu, t, 2, 16) : __shfl_sync(0xffff0000u, t, 31);
    uint32_t sum = lane;
    for (int k = 16; k > 0; k /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, k);
    mine[5] = sum;
}

struct reverse_args {
    uint32_t *data; /* of each block, blockDim.x words, to be reversed */
    int32_t divergent;
};

RD_SIM_KERNEL(trial_reverse, reverse_args, 1024)
{
    uint32_t *kept = static_cast<uint32_t *>(rd_sim_dynamic_shared()), *mine = args.data + (size_t)blockIdx.x * blockDim.x;
    kept[threadIdx.x] = mine[threadIdx.x];
    if (args.divergent != 0 && threadIdx.x < 3) __syncwarp(0x0000000fu); /* lane 3 never comes */
    __syncthreads();
    mine[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

/* Blocks in a chain: each waits for the one after it, so all must be resident. */
struct chain_args {
    uint32_t *flag; /* gridDim.x */
};

RD_SIM_KERNEL(trial_chain, chain_args, 128)
{
    uint32_t b = blockIdx.x;
    while (b + 1 < gridDim.x && __atomic_load_n(&args.flag[b + 1], __ATOMIC_ACQUIRE) == 0) rd_sim_spin();
    __syncthreads();
    if (threadIdx.x == 0) __atomic_store_n(&args.flag[b], 1, __ATOMIC_RELEASE);
}
