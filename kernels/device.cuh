/* SPDX-License-Identifier: Apache-2.0
 *
 * device.cuh - what the kernels need of their compiler, and the only file that knows which one it is. nvcc makes code
 * for GPUs. A C++ compiler makes functions for the CPU, which tests run; tests/cudasim/device.h has threadIdx and the
 * like for them.
 *
 * Rules for kernels: the argument is one plain struct of at most 4 KB; no CUDA header; right for any number of blocks,
 * and of threads that is a multiple of 32; nothing that depends on how the threads of a warp take turns. Products and
 * sums are never contracted (-fmad=false, -ffp-contract=off), for the bits are those of the reductions on the CPU.
 */
#ifndef RD_KERNELS_DEVICE_CUH
#define RD_KERNELS_DEVICE_CUH

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define RD_DEVICE static __device__ __forceinline__ /* functions, members too */
#define RD_CALLED static __device__ __noinline__    /* functions that are long, or used at many places */
#define RD_UNROLL _Pragma("unroll")                 /* loops over what is to stay in registers */
#define RD_KERNEL(name, args_type, max_threads)                                                                        \
    extern "C" __global__ void __launch_bounds__(max_threads) name(const __grid_constant__ args_type args)
#else
#define RD_DEVICE static inline
#define RD_CALLED static
#define RD_UNROLL
#define RD_KERNEL(name, args_type, max_threads) RD_SIM_KERNEL(name, args_type, max_threads)
#endif

/* The bits of a value as another type of its size. */
template <class To, class From> RD_DEVICE To rd_bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

#include "narrow.cuh"

/* float16: both round to nearest even and keep subnormals; which NaN comes out is not said. */
#ifdef __CUDACC__
RD_DEVICE float rd_float16_value(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
RD_DEVICE uint16_t rd_float16_bits(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#else
RD_DEVICE float rd_float16_value(uint16_t bits)
{
    return rd_narrow_value<5, 10>(bits);
}
RD_DEVICE uint16_t rd_float16_bits(float value)
{
    uint32_t magnitude = rd_narrow_magnitude<5, 10>(value);
    if (magnitude > 0x7c00) magnitude = 0x7c00;
    return (uint16_t)(magnitude | (rd_bits_as<uint32_t>(value) >> 16 & 0x8000));
}
#endif

/* 16 bytes, and memory that is aligned to them. */
struct alignas(16) rd_vector {
    uint32_t word[4];
};
#ifdef __CUDACC__
RD_DEVICE rd_vector rd_load_vector(const void *from)
{
    uint4 v = *(const uint4 *)from;
    return {{v.x, v.y, v.z, v.w}};
}
RD_DEVICE void rd_store_vector(void *to, rd_vector v)
{
    *(uint4 *)to = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
}
#else
RD_DEVICE rd_vector rd_load_vector(const void *from)
{
    return *(const rd_vector *)from;
}
RD_DEVICE void rd_store_vector(void *to, rd_vector v)
{
    *(rd_vector *)to = v;
}
#endif

/* Two words of 8 bytes, each of which is read and written as one, by whatever GPU or processor; in no order. */
struct alignas(16) rd_pair {
    uint64_t a, b;
};
#ifdef __CUDACC__
RD_DEVICE rd_pair rd_load_pair(const rd_pair *from)
{
    rd_pair pair;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(pair.a), "=l"(pair.b) : "l"(from) : "memory");
    return pair;
}
RD_DEVICE void rd_store_pair(rd_pair *to, rd_pair pair)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" : : "l"(to), "l"(pair.a), "l"(pair.b) : "memory");
}
#else
RD_DEVICE rd_pair rd_load_pair(const rd_pair *from)
{
    return {__atomic_load_n(&from->a, __ATOMIC_RELAXED), __atomic_load_n(&from->b, __ATOMIC_RELAXED)};
}
RD_DEVICE void rd_store_pair(rd_pair *to, rd_pair pair)
{
    __atomic_store_n(&to->b, pair.b, __ATOMIC_RELAXED); /* the order in which nobody would expect them */
    __atomic_store_n(&to->a, pair.a, __ATOMIC_RELAXED);
}
#endif

/* Words by which threads of different blocks, GPUs and processors tell one another: what was stored before a release is
 * seen after an acquire that reads it, also what other threads of the block stored before a barrier that both passed. */
#ifdef __CUDACC__
RD_DEVICE uint64_t rd_load_acquire(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
RD_DEVICE void rd_store_release(uint64_t *word, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}
RD_DEVICE uint32_t rd_load_relaxed(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}
RD_DEVICE void rd_store_relaxed(uint32_t *word, uint32_t value)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}
RD_DEVICE void rd_store_relaxed(uint64_t *word, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}
#else
RD_DEVICE uint64_t rd_load_acquire(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
RD_DEVICE void rd_store_release(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
RD_DEVICE uint32_t rd_load_relaxed(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}
RD_DEVICE void rd_store_relaxed(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}
RD_DEVICE void rd_store_relaxed(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}
#endif

/* In every turn of a loop that waits for such a word. */
RD_DEVICE void rd_spin()
{
#ifndef __CUDACC__
    rd_sim_spin();
#endif
}

#endif
