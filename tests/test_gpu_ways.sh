#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Which way two ranks with GPUs take, and what the log says of it: GPU memory where the one reaches the other's, also where
# CUDA_VISIBLE_DEVICES shows each only its own; host memory where it does not; an error where it was asked for.
set -u
build=$(realpath "${1:-${RONDO_BUILD:-build}}") failed=0
[ -s "$(dirname "$0")/../build/kernels/all.fatbin" ] || { echo "the library has no image of kernels"; exit 0; }
export LD_LIBRARY_PATH=$build/cudasim RONDO_DEBUG=INFO
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# SETTINGS (of the simulated driver) STATUS TEXT VARIABLES...: two ranks, a GPU each; the log has the text.
expect() {
    local settings=$1 wanted=$2 text=$3
    shift 3
    CUDASIM=$settings timeout 60 env "$@" "$build/rondo" run -n 2 bash -c \
        'if [ -n "${HIDE:-}" ]; then export CUDA_VISIBLE_DEVICES=$LOCAL_RANK; fi
         RONDO_DEVICE=${GPU:-$([ -n "${HIDE:-}" ] && echo 0 || echo $LOCAL_RANK)} exec "$0"' "$build/examples/hello" >"$log" 2>&1
    local status=$?
    [ $((status != 0)) = "$wanted" ] && grep -q "$text" "$log" && return
    echo "$settings $*: ended with $status, and should have said: $text"
    cat "$log"
    failed=1
}

expect "devices=2" 0 "rank 0 -> rank 1: cuda_ipc, since both ranks use GPUs of one host"
expect "devices=2 no_fds" 0 "rank 1 -> rank 0: cuda_ipc, since both ranks use GPUs of one host"
expect "devices=2" 0 "cuda_ipc, since both ranks use GPUs of one host" HIDE=1
expect "devices=2 no_fds" 0 "cuda_ipc, since both ranks use GPUs of one host" HIDE=1
expect "devices=2 p2p=none" 0 "cuda_ipc, since both ranks use GPUs of one host" GPU=1
expect "devices=2 p2p=none" 0 "rank 0 -> rank 1: through host memory, since GPU 0 has no peer-to-peer access to the memory of GPU 1"
expect "devices=2 no_fds no_ipc" 0 "through host memory, since GPU 0 can share memory with other processes neither by"
expect "devices=2" 0 "through host memory, since RONDO_GPU_PEER is 0" RONDO_GPU_PEER=0
expect "devices=2 p2p=none" 1 "cuda_ipc was asked for (RONDO_TRANSPORT), but GPU [01] has no peer-to-peer access" RONDO_TRANSPORT=cuda_ipc
expect "devices=2" 1 "cuda_ipc was asked for (RONDO_TRANSPORT), but rank [01] uses no GPU" RONDO_TRANSPORT=cuda_ipc GPU=host
expect "devices=2" 0 "shm was asked for" RONDO_TRANSPORT=shm
expect "devices=2 p2p=none" 1 "RONDO_TRANSPORT=shm goes through host memory" HIDE=1

# Links on demand: three ranks, and a place for one link into each.
CUDASIM=devices=2 RONDO_GPU_LINKS=1 timeout 100 "$build/rondo" bench all_to_all -n 3 --device cuda -b 1K -e 1K --iters 2 --warmup 1 --check >"$log" 2>&1 || failed=1
for text in "on demand: cuda_ipc, in GPU memory that it has ready for such links" \
    "on demand: through host memory, since all places for links in this GPU's memory are taken (RONDO_GPU_LINKS is 1)" \
    "on demand: shm, since"; do
    grep -q "$text" "$log" && continue
    echo "all-to-alls of 3 ranks should have said: $text"
    cat "$log"
    failed=1
done

# One of two goes step by step, since it has a trace; the other is a kernel, which rings nobody.
trace=$(mktemp)
trap 'rm -f "$log" "$trace"' EXIT
CUDASIM=devices=2 TRACE=$trace timeout 100 "$build/rondo" run -n 2 bash -c \
    'if [ $LOCAL_RANK = 1 ]; then export RONDO_TRACE=$TRACE; fi
     RONDO_DEVICE=$LOCAL_RANK exec "$0" bench all_reduce --device cuda -b 1M -e 1M --iters 10 --warmup 2 --check' "$build/rondo" >"$log" 2>&1
if [ $? != 0 ] || grep -q "slept .* beside something to do" "$log"; then
    echo "a rank beside a kernel slept"
    tail -40 "$log"
    failed=1
fi
exit $failed
