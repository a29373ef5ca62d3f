#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_plan_compile.sh - rondo_plan.h compiles without a warning as C11, as C++17 and, where nvcc is there, as CUDA with
# a kernel that calls its functions. A compiler that is missing is named and passed over, but for the C compiler.
set -u
case $(basename "${RONDO_BUILD:-build}") in # nothing of a sanitizer's build is in this
asan|ubsan|tsan|coverage) echo "not repeated for ${RONDO_BUILD##*/}: make check runs it"; exit 0 ;;
esac
include=$(realpath "$(dirname "$0")")/../include
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0

cat >"$work/host.c" <<'END'
#include "rondo_plan.h"
uint64_t use(rondo_plan *p);
uint64_t use(rondo_plan *p)
{
    rondo_range whole = {0, 100};
    if (rondo_plan_init(p, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, 4, 1, 0, 100, NULL, NULL, 1) != 0) return 0;
    rondo_step step = rondo_plan_step(p, 0);
    return rondo_chunk(p, step.send_chunk).count + rondo_chunk_max(p) + rondo_split(whole, 4, 1, 16).first;
}
END
cp "$work/host.c" "$work/host.cc"
cat >"$work/device.cu" <<'END'
#include "rondo_plan.h"
__global__ void use(rondo_plan plan, rondo_step *steps, rondo_range *ranges)
{
    rondo_range whole = {0, 100};
    int s = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (s == 0) rondo_plan_init(&plan, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, 4, 1, 0, 100, NULL, NULL, 1);
    if (s < plan.steps) steps[s] = rondo_plan_step(&plan, s);
    if (s < plan.chunks) ranges[s] = rondo_chunk(&plan, s);
    if (s == 0) ranges[plan.chunks] = rondo_split(whole, 4, 1, rondo_chunk_max(&plan));
}
END

try() { # COMPILER ARGS...
    command -v "$1" >/dev/null || { echo "absent  $1: not tried"; return; }
    if "$@" -I"$include" -c -o "$work/out.o" 2>"$work/log"; then echo "ok      $*" | sed "s,$work/,,g"
    else echo "FAILED  $*"; cat "$work/log"; bad=1; fi
}

warnings="-Wall -Wextra -Wshadow -Wpointer-arith -pedantic -Werror"
command -v "${CC:-cc}" >/dev/null || { echo "FAILED  no C compiler ${CC:-cc}"; exit 1; }
for cc in "${CC:-cc}" clang; do try "$cc" -std=c11 -O2 $warnings -Wstrict-prototypes "$work/host.c"; done
for cxx in "${CXX:-g++}" clang++; do try "$cxx" -std=c++17 -O2 $warnings "$work/host.cc"; done
try nvcc -arch=sm_90 -Xcompiler=-Wall,-Wextra,-Werror -Werror=all-warnings "$work/device.cu"
exit $bad
