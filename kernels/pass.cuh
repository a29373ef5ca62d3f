/* SPDX-License-Identifier: Apache-2.0
 *
 * pass.cuh - one pass over one slice: reads every source once, writes every output once. Args: rd_reduce_args
 * (reduce.h), or a structure with the same members and fewer terms.
 *
 * A thread takes 16 bytes of elements at a time, and neighbouring threads neighbouring ones. Addresses need no
 * alignment: the elements ahead of where output[0] is aligned, and those behind the last 16 bytes, one thread takes as
 * two pieces that are not whole; and what is then still not aligned is read and written in smaller accesses. No thread
 * reads what another one writes, so outputs may equal sources.
 */
#ifndef RD_KERNELS_PASS_CUH
#define RD_KERNELS_PASS_CUH

#include "ops.cuh"

template <class Type> struct rd_shape {
    static constexpr int bytes = sizeof(typename Type::bits), wide_bytes = sizeof(typename Type::lane);
    static constexpr int elements = 16 / bytes; /* of a piece */
    static constexpr bool narrow = bytes < wide_bytes;
};

/* ---- 16 bytes of memory ----------------------------------------------------------------------------------------- */

template <class Word> RD_DEVICE rd_vector rd_gather(const unsigned char *from)
{
    rd_vector v = {{0, 0, 0, 0}};
    RD_UNROLL
    for (int i = 0; i < 16; i += sizeof(Word)) v.word[i / 4] |= (uint32_t) * (const Word *)(from + i) << i % 4 * 8;
    return v;
}
template <class Word> RD_DEVICE void rd_scatter(unsigned char *to, rd_vector v)
{
    RD_UNROLL
    for (int i = 0; i < 16; i += sizeof(Word)) *(Word *)(to + i) = (Word)(v.word[i / 4] >> i % 4 * 8);
}

/* The first `bytes` of them, and zeros; as the others do not exist, byte by byte. */
RD_DEVICE rd_vector rd_load_some(const unsigned char *from, int bytes)
{
    rd_vector v = {{0, 0, 0, 0}};
    RD_UNROLL
    for (int i = 0; i < 16; i++)
        if (i < bytes) v.word[i / 4] |= (uint32_t)from[i] << i % 4 * 8;
    return v;
}
RD_DEVICE void rd_store_some(unsigned char *to, rd_vector v, int bytes)
{
    RD_UNROLL
    for (int i = 0; i < 16; i++)
        if (i < bytes) to[i] = (unsigned char)(v.word[i / 4] >> i % 4 * 8);
}

template <bool WHOLE> RD_DEVICE rd_vector rd_load(const unsigned char *from, int bytes)
{
    if (!WHOLE) return rd_load_some(from, bytes);
    if ((uintptr_t)from % 16 == 0) return rd_load_vector(from);
    if ((uintptr_t)from % 4 == 0) return rd_gather<uint32_t>(from);
    return (uintptr_t)from % 2 == 0 ? rd_gather<uint16_t>(from) : rd_gather<uint8_t>(from);
}
template <bool WHOLE> RD_DEVICE void rd_store(unsigned char *to, rd_vector v, int bytes)
{
    if (!WHOLE)
        rd_store_some(to, v, bytes);
    else if ((uintptr_t)to % 16 == 0)
        rd_store_vector(to, v);
    else if ((uintptr_t)to % 4 == 0)
        rd_scatter<uint32_t>(to, v);
    else if ((uintptr_t)to % 2 == 0)
        rd_scatter<uint16_t>(to, v);
    else
        rd_scatter<uint8_t>(to, v);
}

/* Element i of a vector. */
template <class Bits> RD_DEVICE Bits rd_element(const rd_vector &v, int i)
{
    if (sizeof(Bits) == 8) return (Bits)(v.word[2 * i % 4] | (uint64_t)v.word[(2 * i + 1) % 4] << 32);
    return (Bits)(v.word[i * sizeof(Bits) / 4] >> i * sizeof(Bits) % 4 * 8);
}
template <class Bits> RD_DEVICE void rd_set_element(rd_vector &v, int i, Bits bits)
{
    v.word[i * sizeof(Bits) / 4] |= (uint32_t)bits << i * sizeof(Bits) % 4 * 8;
    if (sizeof(Bits) == 8) v.word[(2 * i + 1) % 4] = (uint32_t)((uint64_t)bits >> 32);
}

/* ---- One piece: `n` elements from element `at` on, WHOLE: as many as there can be -----------------------------------
 */

/* Elements of Stored, as lanes or from lanes of Type. A piece in the wide type is several vectors. */
template <class Stored, int ELEMENTS, bool WHOLE, class Lane>
RD_DEVICE void rd_load_piece(const void *base, uint64_t at, int n, Lane to[ELEMENTS])
{
    const int bytes = sizeof(typename Stored::bits), each = 16 / bytes;
    RD_UNROLL
    for (int first = 0; first < ELEMENTS; first += each) {
        rd_vector v = rd_load<WHOLE>((const unsigned char *)base + (at + first) * bytes, (n - first) * bytes);
        RD_UNROLL
        for (int i = 0; i < each; i++) to[first + i] = Stored::value(rd_element<typename Stored::bits>(v, i));
    }
}
template <class Stored, int ELEMENTS, bool WHOLE, class Lane, class Args>
RD_DEVICE void rd_store_piece(const Args &args, uint64_t at, int n, const Lane from[ELEMENTS], bool exact)
{
    const int bytes = sizeof(typename Stored::bits), each = 16 / bytes;
    RD_UNROLL
    for (int first = 0; first < ELEMENTS; first += each) {
        rd_vector v = {{0, 0, 0, 0}};
        RD_UNROLL
        for (int i = 0; i < each; i++)
            rd_set_element<typename Stored::bits>(v, i, Stored::store(from[first + i], exact));
        for (int o = 0; o < args.outputs; o++)
            rd_store<WHOLE>((unsigned char *)args.output[o] + (at + first) * bytes, v, (n - first) * bytes);
    }
}

/* Term k. rd_float32 stands for the wide type, which only narrow types have. */
template <class Type, bool WHOLE, class Args>
RD_DEVICE void rd_term(const Args &args, int k, uint64_t at, int n, typename Type::lane to[rd_shape<Type>::elements])
{
    const int elements = rd_shape<Type>::elements;
    if (rd_shape<Type>::narrow && k == 0 && args.first_wide)
        rd_load_piece<rd_float32, elements, WHOLE>(args.source[k], at, n, to);
    else
        rd_load_piece<Type, elements, WHOLE>(args.source[k], at, n, to);
    if (args.op != RONDO_AVG || (k == 0 && args.first_partial)) return;
    RD_UNROLL
    for (int i = 0; i < elements; i++) to[i] = Type::scale(to[i], args.scale);
}

template <class Type, bool WHOLE, class Args> RD_DEVICE void rd_piece(const Args &args, uint64_t at, int n)
{
    const int elements = rd_shape<Type>::elements;
    const bool exact = args.op == RONDO_MAX || args.op == RONDO_MIN;
    typename Type::lane sum[elements], term[elements];
    rd_term<Type, WHOLE>(args, 0, at, n, sum);
    for (int k = 1; k < args.sources; k++) {
        rd_term<Type, WHOLE>(args, k, at, n, term);
        rd_combine<Type, elements>(args.op, sum, term);
    }
    if (args.op == RONDO_AVG && args.finish) {
        RD_UNROLL
        for (int i = 0; i < elements; i++) sum[i] = Type::divide(sum[i], args.divisor, args.ranks);
    }
    if (rd_shape<Type>::narrow && args.out_wide)
        rd_store_piece<rd_float32, elements, WHOLE>(args, at, n, sum, exact);
    else
        rd_store_piece<Type, elements, WHOLE>(args, at, n, sum, exact);
}

/* ---- All of them ------------------------------------------------------------------------------------------------ */

/* Elements ahead of where output[0] is aligned; 0 where it never is. */
template <class Type, class Args> RD_DEVICE uint64_t rd_head(const Args &args)
{
    int bytes = args.out_wide ? rd_shape<Type>::wide_bytes : rd_shape<Type>::bytes;
    int to_line = -(uintptr_t)args.output[0] & 15;
    uint64_t head = to_line % bytes == 0 ? to_line / bytes : 0;
    return head < args.count ? head : args.count;
}

/* What thread `thread` of `threads` does of it. */
template <class Type, class Args> RD_DEVICE void rd_pass_part(const Args &args, uint64_t thread, uint64_t threads)
{
    const uint64_t elements = rd_shape<Type>::elements;
    uint64_t head = rd_head<Type>(args), whole = (args.count - head) / elements, tail = head + whole * elements;
    for (uint64_t piece = thread; piece < whole; piece += threads)
        rd_piece<Type, true>(args, head + piece * elements, (int)elements);
    if (thread != threads - 1) return;
    if (head) rd_piece<Type, false>(args, 0, (int)head);
    if (tail < args.count) rd_piece<Type, false>(args, tail, (int)(args.count - tail));
}

#endif
