/* SPDX-License-Identifier: Apache-2.0
 *
 * packet.cuh - a slice in packets, each of which says for itself that it is there. The slot's head says so for a whole
 * slice, which takes its reader a way to the head, a barrier and then a way to the payload; a thread that waits for a
 * packet has its bytes when the wait is over. That is the field's LL protocol: for short messages, which wait and do
 * little else.
 *
 * A packet is 16 bytes, stored at once: two words of 8, each of them 4 bytes of the slice and, above, a flag of 4.
 * Why every 8 bytes have a flag of their own, and not 12 or 120 bytes (LL128) one in common: in PTX's memory model a
 * store of 16 bytes is several of its elements, in no order, and 8 bytes is the largest element that all GPUs since
 * sm_70 read and write as one. So it is right on every GPU and every way between two. The price is twice the bytes, which
 * short messages do not feel.
 *
 * A word's flag is 0 but from when it is stored until it is taken: who takes it puts zeros back, before he frees the
 * slot. Then no slice of the past can be taken for one that is awaited, however long ago it was. And the flag depends on
 * the call's signature: another call's packets are not taken.
 */
#ifndef RD_KERNELS_PACKET_CUH
#define RD_KERNELS_PACKET_CUH

#include "device.cuh"

enum { RD_PACKED = 8 }; /* bytes of the slice in a packet */

RD_DEVICE uint32_t rd_packet_flag(uint64_t signature, uint64_t slice)
{
    uint32_t flag = (uint32_t)((signature + slice) * 0x9e3779b97f4a7c15u >> 32);
    return flag ? flag : 1;
}

/* How many packets make `bytes`: at least one, which says that a slice of nothing is there. */
RD_DEVICE int rd_packets(uint64_t bytes)
{
    return bytes ? (int)((bytes + RD_PACKED - 1) / RD_PACKED) : 1;
}

RD_DEVICE void rd_packets_store(rd_pair *to, const uint64_t *from, int packets, uint32_t flag)
{
    uint64_t above = (uint64_t)flag << 32;
    for (int i = 0; i < packets; i++) rd_store_pair(&to[i], {above | (uint32_t)from[i], above | from[i] >> 32});
}

/* Takes them if all have come. MOST: that they can be. */
template <int MOST> RD_DEVICE bool rd_packets_take(rd_pair *from, uint64_t *to, int packets, uint32_t flag)
{
    bool all = true;
    RD_UNROLL
    for (int i = 0; i < MOST; i++) {
        if (i >= packets) continue;
        rd_pair words = rd_load_pair(&from[i]);
        all = all && words.a >> 32 == flag && words.b >> 32 == flag;
        to[i] = (uint32_t)words.a | words.b << 32;
    }
    for (int i = 0; all && i < packets; i++) rd_store_pair(&from[i], {0, 0});
    return all;
}

#endif
