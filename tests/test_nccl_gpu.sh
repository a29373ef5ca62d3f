#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_nccl_gpu.sh - programs for NCCL and the CUDA runtime, compiled with NVIDIA's headers where they are there, run with the
# drop-in on the simulated driver (tests/cudasim, tests/cudart): examples/nccl_train, whose losses must be those of host
# memory, in one process and in several, and the usual forms of such programs (tests/nccl). CUDASIM=off: on the GPUs that
# there are, by the real driver and runtime.
set -u
tests=$(realpath "$(dirname "$0")") build=${RONDO_BUILD:?} bad=0
san= # a sanitizer's library wants programs that have it, too
case $(basename "$build") in asan) san=-fsanitize=address ;; ubsan) san=-fsanitize=undefined ;; tsan) san=-fsanitize=thread ;; esac
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
header=$tests/cudart nccl=$tests/../include/compat
for d in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/local/include /usr/include; do
    [ -r "$d/cuda_runtime.h" ] && [ -r "$d/nccl.h" ] && { header=$d nccl=$d; break; }
done
echo "headers $header"
export LD_LIBRARY_PATH=$build/compat:$build/cudasim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ "${CUDASIM-}" = off ]; then export LD_LIBRARY_PATH=$build/compat; else export CUDASIM="devices=4 ${CUDASIM-}"; fi

compile() { # SOURCE PROGRAM OPTIONS...
    local source=$1 program=$2; shift 2
    ${CC:-cc} -std=gnu11 $san -O1 -Wall -Wextra -Werror -pthread -DWITH_CUDA "$@" -isystem "$nccl" -isystem "$header" "$source" \
        -o "$work/$program" -L"$build/compat" -lnccl "$build/cudasim/libcudart.so.13" -lm >"$work/log" 2>&1 ||
        { echo "FAILED  $program does not compile"; cat "$work/log"; bad=1; return 1; }
}
fresh() { : >"$work/out"; : >"$work/err"; rm -f "$work/id" "$work/id.part"; }
run() { timeout -k 1 100 "$@" >>"$work/out" 2>>"$work/err" </dev/null || echo "status $?" >>"$work/err"; }
expect() { # WHAT LINE TIMES - in $work/out
    if [ "$(grep -c "$2" "$work/out")" = "$3" ] && [ ! -s "$work/err" ]; then echo "ok      $1"
    else echo "FAILED  $1"; cat "$work/out" "$work/err"; bad=1; fi
}
same() { # WHAT - $work/out is what host memory gave
    if [ -s "$work/host" ] && diff "$work/host" "$work/out" >"$work/diff" && [ ! -s "$work/err" ]; then echo "ok      $1"
    else echo "FAILED  $1"; cat "$work/diff" "$work/err"; bad=1; fi
}

train=$work/nccl_train digits=$tests/../examples/data/digits.csv
if compile "$tests/../examples/nccl_train.c" nccl_train; then
    for n in 2 4; do
        fresh; run "$train" -m -e 2 -d $n "$digits"; cp "$work/out" "$work/host"
        fresh; run "$train" -e 2 -d $n "$digits"; same "$n devices of one process learn as host memory does"
        fresh
        for ((p = 1; p < n; p++)); do run "$train" -e 2 -p $p/$n -i "$work/id" "$digits" & done
        run "$train" -e 2 -p 0/$n -i "$work/id" "$digits"; wait
        same "$n processes with a device each learn as host memory does"
    done
fi

compile "$tests/nccl/one_process.c" one_process && { fresh; run "$work/one_process" 4; expect "one thread" '4 devices in one thread: ok' 1; }
compile "$tests/nccl/threads.c" threads && { fresh; run "$work/threads" 4; expect "a thread each" '4 threads with a device each: ok' 1; }
if [ "${CUDASIM-}" != off ]; then # how ranks reach one another is the real machine's affair
    NCCL_DEBUG=INFO run "$work/one_process" 2 && grep -q 'through host memory' "$work/err" && { echo "FAILED  peers reach one another"; bad=1; }
    NCCL_P2P_DISABLE=1 NCCL_DEBUG=INFO run "$work/one_process" 2
    grep -q 'through host memory, since RONDO_GPU_PEER is 0' "$work/err" && echo "ok      NCCL_P2P_DISABLE" || { echo "FAILED  NCCL_P2P_DISABLE"; cat "$work/err"; bad=1; }
fi
processes() { # NAME N LINE [TIMES]
    compile "$tests/nccl/$1.c" "$1" || return
    fresh
    [ "$1" = address ] || local id=$work/id
    for ((r = 1; r < $2; r++)); do run "$work/$1" $r "$2" ${id-} & done
    run "$work/$1" 0 "$2" ${id-}; wait
    expect "$1" "$3" "${4-$2}"
}
compile "$tests/nccl/device_calls.c" device_calls && { fresh; run "$work/device_calls"; expect "calls on devices" 'calls on devices: ok' 1; }
processes processes 3 'of 3 processes: ok'
processes several 4 'of 4 in three communicators: ok'
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
NCCL_COMM_ID=127.0.0.1:$port RONDO_DEBUG=NONE processes address 3 'of 3 met at an address: ok'
mpi() { # FLAVOUR OPTIONS...
    local flavour=$1; shift
    command -v "mpicc.$flavour" "mpirun.$flavour" >/dev/null || { echo "absent  $flavour"; return; }
    CC=mpicc.$flavour compile "$tests/nccl/mpi.c" "mpi.$flavour" || return
    fresh; run "mpirun.$flavour" "$@" -n 3 "$work/mpi.$flavour"
    expect "$flavour" '3 ranks of MPI: ok' 1
}
[ -n "$san" ] || mpi openmpi --allow-run-as-root --oversubscribe # MPI itself has leaks
[ -n "$san" ] || mpi mpich

# As benchmarks of collectives call: from threads with several devices each; on one device that all share; and with memory
# of the host, where calls that need more of it come while the others' kernels wait for them.
perf() { fresh; run "$work/perf" "$@"; expect "perf $*" "$1 threads with $2 devices each: ok" 1; }
if [ -z "$san" ] && compile "$tests/nccl/perf.c" perf; then
    perf 1 4
    perf 4 1 parallel memory
    perf 2 2 parallel background split
    CUDASIM=${CUDASIM/devices=4/devices=1} perf 2 1
    compile "$tests/nccl/perf.c" perf -UWITH_CUDA && perf 3 1
fi
[ "${CUDASIM-}" = off ] || CUDASIM=${CUDASIM/devices=4/devices=1} processes processes 3 'of 3 processes: ok'
exit $bad
