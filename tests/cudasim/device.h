/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h - what a CUDA kernel's source needs to be compiled for the CPU by g++: put before it by -include. A thread
 * of a block is a fiber (fiber.c), a block runs on one thread of the operating system, and blocks run beside one
 * another.
 *
 * A kernel's source may use: threadIdx, blockIdx, blockDim, gridDim, warpSize; __syncthreads, __syncthreads_or,
 * __syncwarp, __shfl_*_sync, __ballot_sync, __any_sync, __all_sync; __shared__; rd_sim_dynamic_shared(); and, in every loop that waits for memory
 * to change, rd_sim_spin(). What it must not do: RULES at the end.
 */
#ifndef RONDO_CUDASIM_DEVICE_H
#define RONDO_CUDASIM_DEVICE_H

#include "kernel.h"

#include <stdint.h>
#include <string.h>

/* ---- What the simulated driver does for a kernel ------------------------------------------------------------- */

/* One per kernel library; the driver fills it after it has loaded that. */
extern "C" {
__attribute__((visibility("default"), weak)) const struct rd_sim_services *rd_sim_driver;
}

/* Defines a kernel: RD_SIM_KERNEL(name, struct of its arguments, most threads of a block) { ... args.member ... } */
#define RD_SIM_KERNEL(name, args_type, max_threads)                                                                    \
    extern "C" void name(const args_type args);                                                                        \
    static void name##_run(const void *args)                                                                           \
    {                                                                                                                  \
        name(*static_cast<const args_type *>(args));                                                                   \
    }                                                                                                                  \
    static void name##_share(void) /* the loader makes the memory of a thread when it is first used */                 \
    {                                                                                                                  \
        static thread_local volatile char first;                                                                       \
        first = 0;                                                                                                     \
        (void)first;                                                                                                   \
    }                                                                                                                  \
    extern "C" __attribute__((visibility("default")))                                                                  \
    const struct rd_sim_kernel name##_sim = {sizeof(args_type), max_threads, name##_run, name##_share};             \
    extern "C" void name(const args_type args)

/* To be called in every turn of a loop that waits for another thread, block, device or process: lets them go on. */
static inline void rd_sim_spin(void)
{
    rd_sim_driver->spin();
}

/* The block's dynamic shared memory, as many bytes as the launch asked for. */
static inline void *rd_sim_dynamic_shared(void)
{
    return rd_sim_driver->self()->shared;
}

#ifdef RD_SIM_CHECK
/* What the compiler calls before each access; linked -Bsymbolic-functions, so that the address sanitizer's own of the
 * same names stay out of it. */
#define RD_SIM_HOOK extern "C" __attribute__((no_sanitize("kernel-address")))
#define RD_SIM_TOUCH(bytes)                                                                                            \
    RD_SIM_HOOK void __asan_load##bytes##_noabort(void *at)                                                            \
    {                                                                                                                  \
        rd_sim_driver->touch(at, bytes);                                                                               \
    }                                                                                                                  \
    RD_SIM_HOOK void __asan_store##bytes##_noabort(void *at)                                                           \
    {                                                                                                                  \
        rd_sim_driver->touch(at, bytes);                                                                               \
    }
RD_SIM_TOUCH(1)
RD_SIM_TOUCH(2)
RD_SIM_TOUCH(4)
RD_SIM_TOUCH(8)
RD_SIM_TOUCH(16)
RD_SIM_HOOK void __asan_loadN_noabort(void *at, long bytes)
{
    rd_sim_driver->touch(at, (size_t)bytes);
}
RD_SIM_HOOK void __asan_storeN_noabort(void *at, long bytes)
{
    rd_sim_driver->touch(at, (size_t)bytes);
}
#endif

/* ---- CUDA's words ------------------------------------------------------------------------------------------- */

#ifndef __CUDACC__
#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __launch_bounds__
#undef __shared__
#undef __grid_constant__
#undef __align__
#undef __noinline__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __noinline__     __attribute__((noinline))
#define __shared__       static thread_local /* of the block: that is one thread of the operating system */
#endif

/* Objects and not macros: the toolkit's own headers have members of these names. */
#define RD_SIM_AXES(name, member)                                                                                      \
    static const struct {                                                                                              \
        struct {                                                                                                       \
            operator unsigned() const { return rd_sim_driver->self()->member.x; }                                      \
        } x;                                                                                                           \
        struct {                                                                                                       \
            operator unsigned() const { return rd_sim_driver->self()->member.y; }                                      \
        } y;                                                                                                           \
        struct {                                                                                                       \
            operator unsigned() const { return rd_sim_driver->self()->member.z; }                                      \
        } z;                                                                                                           \
    } name __attribute__((unused)) = {}
RD_SIM_AXES(threadIdx, thread);
RD_SIM_AXES(blockIdx, block);
RD_SIM_AXES(blockDim, block_size);
RD_SIM_AXES(gridDim, grid_size);
#undef RD_SIM_AXES

static const int warpSize __attribute__((unused)) = RD_SIM_WARP;

/* Waits for all threads of the block that have not returned. */
static inline void __syncthreads(void)
{
    rd_sim_driver->barrier();
}

/* The same; whether any of them gave other than 0. */
static inline int __syncthreads_or(int predicate)
{
    static thread_local int any;
    __atomic_store_n(&any, 0, __ATOMIC_RELAXED);
    __syncthreads();
    if (predicate != 0) __atomic_store_n(&any, 1, __ATOMIC_RELAXED);
    __syncthreads();
    int result = __atomic_load_n(&any, __ATOMIC_RELAXED);
    __syncthreads();
    return result;
}

/* Waits for the lanes of `mask`, which must all come here with the same mask. */
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    uint64_t lanes[RD_SIM_WARP];
    rd_sim_driver->warp(mask, 0, lanes);
}

/* Every lane of mask gives a value and sees those of all. */
template <typename T> static inline T rd_sim_shuffle(unsigned mask, T value, unsigned from)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle carries at most eight bytes");
    uint64_t mine = 0, lanes[RD_SIM_WARP];
    memcpy(&mine, &value, sizeof value);
    rd_sim_driver->warp(mask, mine, lanes);
    memcpy(&value, &lanes[from % RD_SIM_WARP], sizeof value);
    return value;
}

static inline unsigned rd_sim_lane(void)
{
    return rd_sim_driver->self()->lane;
}

template <typename T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = RD_SIM_WARP)
{
    unsigned lane = rd_sim_lane(), group = lane & ~(unsigned)(width - 1);
    return rd_sim_shuffle(mask, value, group + ((unsigned)from & (unsigned)(width - 1)));
}

template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = RD_SIM_WARP)
{
    unsigned lane = rd_sim_lane(), place = lane & (unsigned)(width - 1);
    return rd_sim_shuffle(mask, value, place >= by ? lane - by : lane);
}

template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = RD_SIM_WARP)
{
    unsigned lane = rd_sim_lane(), place = lane & (unsigned)(width - 1);
    return rd_sim_shuffle(mask, value, place + by < (unsigned)width ? lane + by : lane);
}

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = RD_SIM_WARP)
{
    unsigned lane = rd_sim_lane(), other = lane ^ (unsigned)with;
    return rd_sim_shuffle(mask, value,
                          (other & ~(unsigned)(width - 1)) == (lane & ~(unsigned)(width - 1)) ? other : lane);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    uint64_t lanes[RD_SIM_WARP];
    unsigned votes = 0;
    rd_sim_driver->warp(mask, predicate != 0, lanes);
    for (unsigned i = 0; i < RD_SIM_WARP; i++)
        if ((mask >> i & 1) != 0 && lanes[i] != 0) votes |= 1u << i;
    return votes;
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}

/* ---- RULES ---------------------------------------------------------------------------------------------------
 * - One plain struct of at most 4 KB by value; no <cuda_runtime.h>, textures, or global variables on the device.
 * - A block may be of any multiple of 32 threads up to what the function's attribute says: under the thread sanitizer
 * that is 32.
 * - Other threads' data is seen after __syncthreads, __syncwarp, or an acquire that reads a release; nothing else
 * orders. Threads of a warp run in any order.
 * - A block that another waits for must be resident with it: a device runs as many blocks at once as its
 * multiprocessors hold.
 * - Loops that wait call rd_sim_spin(): a fiber that does not is never interrupted. */

#endif
