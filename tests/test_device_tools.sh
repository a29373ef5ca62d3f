#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tools and the example over the simulated driver: rondo bench --device cuda, rondo doctor, examples/all_reduce_cuda.
set -eu
here=$(realpath "$(dirname "$0")") build=${RONDO_BUILD:-$here/../build}
[ "$(head -c 1 "$here/../build/kernels/all.fatbin")" != / ] || { echo "built without nvcc: no kernels"; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
rondo=$build/rondo
on_gpus() { LD_LIBRARY_PATH=$build/cudasim CUDASIM=devices=2 timeout 100 "$@" >"$dir/out" 2>"$dir/err"; }
fail() { echo "FAILED  $1"; cat "$dir/out" "$dir/err"; exit 1; }
says() { grep -qE "$1" "$dir/out" || fail "does not say: $1"; }

on_gpus "$rondo" run --no-prefix -n 3 -- "$build/examples/all_reduce_cuda" && fail "a third GPU"
grep -q "device is 2; this process sees 2 GPUs" "$dir/err" || fail "a third GPU: why"
on_gpus "$rondo" run --no-prefix -n 2 -- "$build/examples/all_reduce_cuda" || fail "the example"
[ "$(grep -c '1000000 sums over the GPU, 0 wrong' "$dir/out")" = 2 ] || fail "the example's sums"
"$rondo" run --no-prefix -n 1 -- "$build/examples/all_reduce_cuda" >"$dir/out" 2>"$dir/err" && fail "the example without a GPU"
grep -q "there is no GPU: the CUDA driver" "$dir/err" || [ -e /dev/nvidiactl ] || fail "the example without a GPU: why"

on_gpus "$rondo" bench -n 3 --device cuda -b 1K -e 64K -f 64 --check --iters 5 || fail "bench"
says '^# all_reduce, 3 ranks, cuda_ipc, in place, GPU memory$'
says ' 65536 +16384 +float32 +sum .* ring$'
says 'every element of every timed call was right'
on_gpus "$rondo" bench all_gather -n 2 --device cuda -b 64K -e 64K --misalign 1 --out-of-place --iters 5 || fail "bench all_gather"
on_gpus "$rondo" bench -n 2 --device cuda -b 64K -e 64K --plant-wrong 3 --iters 3 && fail "bench: what is wrong is not seen"
says 'WRONG: 3 elements'
"$rondo" bench -n 2 --device cuda -b 8 -e 8 >"$dir/out" 2>"$dir/err" && [ ! -e /dev/nvidiactl ] && fail "bench without a GPU"

on_gpus "$rondo" doctor || fail "doctor"
says 'the driver is for CUDA 13.0 and earlier; it sees 2 GPUs'
says 'ok +GPU 1 +Simulated GPU at .*sm_90.* a rank can use it'
LD_LIBRARY_PATH=$build/cudasim CUDASIM="devices=1 fail=cuModuleLoadData:1:209" "$rondo" doctor >"$dir/out" 2>"$dir/err" || fail "doctor: no kernels"
says 'warning +GPU 0 +.*cuModuleLoadData on GPU 0 failed: CUDA_ERROR_NO_BINARY_FOR_GPU'
