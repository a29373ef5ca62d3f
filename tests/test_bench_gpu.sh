#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_bench_gpu.sh - bench/gpu.sh over the simulated driver, from end to end: each row is there with a figure, what cannot
# be measured is said, and a part that fails takes no other with it.
set -u
here=$(realpath "$(dirname "$0")") build=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}") failed=0
case $build in *san) echo "not with sanitizers, which take minutes for what test_device_tools.sh does with them, too"; exit 0 ;; esac
[ -s "$here/../build/kernels/all.fatbin" ] || { echo "no image of kernels"; exit 0; }
out=$(mktemp)
trap 'rm -f "$out" "$out.err"' EXIT
fail() { echo "FAILED  $1"; cat "$out" "$out.err"; failed=1; }
bench() { # STATUS SETTINGS VARIABLES...
    local wanted=$1 settings=$2 status
    shift 2
    timeout 200 env LD_LIBRARY_PATH="$build/cudasim" CUDASIM="$settings" "$@" "$here/../bench/gpu.sh" "$build" >"$out" 2>"$out.err"
    status=$?
    [ $status = "$wanted" ] || fail "$settings $*: status $status"
}
says() { grep -qE -- "$1" "$out" || fail "does not say: $1"; }
row() { says "^\| $1 \| [0-9.]*[1-9][0-9.]* $2 \| $3 ?\|\$"; }

# Two GPUs, and something that speaks NCCL's language: nothing is missing.
bench 0 devices=2 NCCL="$build/compat/libnccl.so.2"
says '^Not measured: nothing is missing\.$'
says 'the figures are of a simulated driver'
row "the driver's copy of 256 KiB, device to device" GB/s ''
for type in int8 uint8 int32 uint32 int64 uint64 float16 float32 float64 bfloat16 float8e4m3 float8e5m2; do
    row "$type sum, 2 to 1" GB/s "[0-9]+ % of the driver's copy"
done
row '.*: the last addition of a ring' GB/s "[0-9]+ % of the driver's copy"
row "a kernel's launch: .*" us ''
row 'kernels one after the other' 'us each' ''
row 'from the call until the CPU sees the ticket' us ''
for ranks in 2 4 8; do
    row "all-reduce of 8 B, $ranks ranks on 1 GPU" us ''
    row "all-reduce of 8 B, $ranks ranks on 1 GPU: call and wait.*" us ''
    row "all-reduce of 64 KiB, $ranks ranks on 1 GPU" us "[0-9]+ % of the speed of $((3 * ranks - 2)) copies"
done
row 'all-reduce of 64 KiB, 2 ranks on 1 GPU, shm' us ''
row 'all-reduce of 64 KiB, 2 ranks on 2 GPUs' us ''
row 'all-reduce of 64 KiB, 2 ranks on 2 GPUs, by NCCL 2.* of .*' us ''
grep '^| [^w-]' "$out" | grep -vqE '^\| [^|]+ \| [0-9.]+ [^|]+ \|[^|]*\|$' && fail "a row without a figure"

# One GPU, and a call that fails in one of the parts: the others are measured.
bench 1 "devices=1 fail=cuMemGetInfo:1:719"
says '^- kernels: cuMemGetInfo on GPU 0 failed: CUDA_ERROR_LAUNCH_FAILED .*\(status 1\)$'
says '^- all-reduce among several GPUs: fewer are here$'
says '^- NCCL beside it: it wants a GPU for each rank, and fewer are here$'
row 'all-reduce of 64 KiB, 8 ranks on 1 GPU' us '[0-9]+ % of .*'
grep -q 'sum, 2 to 1' "$out" && fail "rows of the part that failed"

bench 1 devices=0
grep -q '^no GPU: cuInit says CUDA_ERROR_NO_DEVICE' "$out.err" || fail "no GPU: why"
[ $failed = 0 ] && echo "bench/gpu.sh: as it should be"
exit $failed
