#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [PART...] - from a bundle that `make gpu-bundle` made, on a machine with a GPU: the tests of `make check-gpu`, then
# bench/gpu.sh. What they say is shown, and kept in the folder results, or OUT. Status 0: all went well.
#
#   machine    what the tools see of this machine, and two ranks on its first GPU, or first two
#   tests      less than LIMIT (300) seconds; ONLY=pattern: those whose names match
#   bench      less than 8 minutes
#   simulated  before the others: they run over the simulated driver, and need no GPU
set -u
here=$(realpath "$(dirname "$0")") out=${OUT:-$here/results} failed=0
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} RONDO_BUILD=$here/build
mkdir -p "$out" || exit 2

cuda=$LD_LIBRARY_PATH
on_gpu() { LD_LIBRARY_PATH=$cuda "$@"; }
result() { # NAME STATUS, in the place of an earlier one
    [ ! -e "$out/summary.txt" ] || sed -i "/^$1: /d" "$out/summary.txt"
    echo "$1: $([ "$2" = 0 ] && echo passed || echo "FAILED (status $2)")" | tee -a "$out/summary.txt"
    [ "$2" = 0 ] || failed=1
}
machine() {
    local gpus
    on_gpu "$here/build/bench/gpu" about || return 1
    gpus=$(on_gpu "$here/build/bench/gpu" about | sed -n '1s/.*; \([0-9]*\) GPU.*/\1/p')
    nvidia-smi topo -m 2>/dev/null
    on_gpu "$here/build/rondo" doctor | grep -E 'GPU|CUDA|driver'
    on_gpu "$here/build/rondo" topo
    for device in $([ "$gpus" -gt 1 ] && echo 0,1 || echo 0,0); do
        on_gpu timeout 100 "$here/build/rondo" run -n 2 -- bash -c 'd=$1; shift; LOCAL_RANK=${d:LOCAL_RANK*2:1} exec "$@"' \
            rank $device "$here/build/examples/all_reduce_cuda" || return 1
    done
}
# Tests find the simulated driver by themselves. Without a GPU they would have nothing to do, and pass.
tests() {
    [ -n "$simulated" ] || on_gpu "$here/build/bench/gpu" about || return 1
    DEADLINE=${DEADLINE:-120} ONLY=${ONLY:-'test_(gpu|device|kernels|ddp)'} CUDASIM=$([ -n "$simulated" ] || echo off) \
        timeout -k 5 "${LIMIT:-300}" "$here/tests/run.sh" "$here/build"
}
bench() { on_gpu "$here/bench/gpu.sh" "$here/build"; }

simulated=
[ $# -gt 0 ] || set -- machine tests bench
for part; do
    case $part in
    simulated)
        simulated=yes
        export CUDASIM=devices=2
        cuda=$here/build/cudasim:$LD_LIBRARY_PATH
        ;;
    machine | tests | bench)
        $part 2>&1 | tee "$out/$part.txt"
        result "$part" "${PIPESTATUS[0]}"
        ;;
    *)
        sed -n '/^# run.sh/,/^set/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
done
echo "what they said: $out"
exit $failed
