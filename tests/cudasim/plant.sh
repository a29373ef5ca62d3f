#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plant.sh NAME TO: a copy of kernels/ in the folder TO, with one of the bugs that tests must find (test_gpu_ring.c, test_gpu_peers.c). Each is a
# change of one line; where that line is not there any more this fails.
set -eu
name=$1 to=$2 here=$(realpath "$(dirname "$0")/../../kernels")
mkdir -p "$to"
cp "$here"/* "$to"

# line FILE LINE INSTEAD: the line, which is there once, without its indentation.
line() {
    python3 - "$to/$1" "$2" "$3" <<'PYTHON'
import sys
path, line, instead = sys.argv[1:]
lines = open(path).read().split("\n")
at = [i for i, text in enumerate(lines) if text.strip() == line]
if len(at) != 1: sys.exit(f"plant.sh: {path} has the line {line!r} {len(at)} times")
lines[at[0]] = instead
open(path, "w").write("\n".join(lines))
PYTHON
}

# What nvcc may do and x86 does not: the two words of a packet arrive one after the other.
apart() {
    line device.cuh '__atomic_store_n(&to->b, pair.b, __ATOMIC_RELAXED); /* the order in which nobody would expect them */' \
        '__atomic_store_n(&to->b, pair.b, __ATOMIC_RELAXED); for (int i = 0; i < 5; i++) rd_sim_spin();'
}

case $name in
apart) apart ;; # no bug: a packet says of each word whether it is there
half_flag)
    apart
    line packet.cuh 'all = all && words.a >> 32 == flag && words.b >> 32 == flag;' 'all = all && words.b >> 32 == flag;' ;;
no_barrier) # a head is stored before all threads have done their part
    line ring.cu 'if (!at.args.packed) {' 'if (!at.args.packed) { if (blockDim.x == 0)' ;;
no_packed_barrier) # a slot goes back before all threads have taken their packets
    line ring.cu '} else if (__syncthreads_or(at.end != RD_RING_UNDERWAY)) {' '} else if (at.end != RD_RING_UNDERWAY) {' ;;
relaxed_store)
    line slice.cuh 'rd_store_release(&head->filled, n + 1);' '__atomic_store_n(&head->filled, n + 1, __ATOMIC_RELAXED);' ;;
relaxed_load)
    line slice.cuh 'for (int turn = 1; rd_load_acquire(word) < number; turn++) {' \
        'for (int turn = 1; __atomic_load_n(word, __ATOMIC_RELAXED) < number; turn++) {' ;;
no_peers_barrier)
    line peers.cu '__syncthreads(); /* all have done their part of the slice */' '' ;;
lost_slice) line peers.cu 'at.slices++;' '' ;;
no_call_barrier) # the next call takes the place of one that threads are still in
    line ring.cu '__syncthreads(); /* all are through with this one */' '' ;;
lost_counter) line ring.cu 'at.sent += sends;' '' ;;
one_too_far) line pass.cuh 'if (i < bytes) to[i] = (unsigned char)(v.word[i / 4] >> i % 4 * 8);' \
    'if (i <= bytes) to[i] = (unsigned char)(v.word[i / 4] >> i % 4 * 8);' ;;
one_packet_too_few) line packet.cuh 'return bytes ? (int)((bytes + RD_PACKED - 1) / RD_PACKED) : 1;' \
    'return bytes >= RD_PACKED ? (int)(bytes / RD_PACKED) : 1;' ;;
misaligned) line pass.cuh 'if ((uintptr_t)from % 16 == 0) return rd_load_vector(from);' \
    'if ((uintptr_t)from % 4 == 0) return rd_load_vector(from);' ;;
*) echo "plant.sh: no bug is called $name" >&2; exit 2 ;;
esac
