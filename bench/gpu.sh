#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu.sh [BUILD] - what this machine's GPU does with the library: reduction kernels beside the driver's copies, launches,
# all-reduces among ranks that share the GPU, and, where there are two or more, among GPUs, with NCCL beside them. Takes
# less than 8 minutes and ends with one table, and with what it could not measure. The status is 0 if no part failed.
#
#   bench/gpu.sh build              on the GPUs of this machine
#   LD_LIBRARY_PATH=build/cudasim CUDASIM=devices=2 bench/gpu.sh build     over the simulated driver: whether it runs
#
# NCCL=LIBRARY names NCCL's library; else it is the libnccl.so.2 that the dynamic linker finds.
set -u
build=${1:-build} limit=470
gpu=$build/bench/gpu
[ -x "$gpu" ] || { echo "usage: $0 [BUILD]; there is no $gpu: make builds it" >&2; exit 2; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

"$gpu" about >"$work/about" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
gpus=$(sed -n '1s/.*; \([0-9]*\) GPU.*/\1/p' "$work/about")
several=$((gpus < 2 ? 2 : gpus > 8 ? 8 : gpus))
effort=(-b $((256 << 20)) -r 21 -c 100)
simulated=; grep -q '^simulated' "$work/about" && simulated=yes effort=(-b $((256 << 10)) -r 3 -c 5)

failed=0
part() { # SECONDS, and what the program is told
    local seconds=$1 left=$((limit - SECONDS)) status
    shift
    echo "... $*" >&2
    [ $left -gt 0 ] || { echo "$*: no time was left" >>"$work/cannot"; failed=1; return; }
    timeout -k 2 $((seconds < left ? seconds : left)) "$gpu" "${effort[@]}" "$@" >"$work/out" 2>"$work/err"
    status=$?
    grep '^| ' "$work/out" >>"$work/rows"
    sed -n 's/^not measured: //p' "$work/out" >>"$work/cannot"
    [ $status = 0 ] && return
    [ $status -ge 124 ] && echo "over its $seconds s, or killed" >>"$work/err"
    echo "$*: $(tail -n 1 "$work/err") (status $status)" >>"$work/cannot"
    failed=1
}
: >"$work/rows"; : >"$work/cannot"
part 20 copies
part 150 kernels
part 20 launches
for ranks in 2 4 8; do part 55 ranks $ranks 1; done
part 30 ranks 2 1 shm
part 45 ranks $several $several
part 45 nccl $several ${NCCL:+"$NCCL"}

echo
echo "$(date -u +%F), \`bench/gpu.sh\`, $(sed -n 1p "$work/about"):"
sed -n '2,$s/^/- /p' "$work/about"
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
[ -z "$driver" ] || [ -n "$simulated" ] || echo "- driver $driver"
[ -z "$simulated" ] || echo "- the figures are of a simulated driver: they say that it runs, and nothing of a GPU"
printf '\n| what | median | beside |\n|---|---|---|\n'
cat "$work/rows"
if [ -z "$simulated" ]; then
    echo
    sed -n 's/.*| \([0-9]*\) % of the driver.s copy |$/\1/p' "$work/rows" |
        awk '{n++; good += $1 >= 90; if (n == 1 || $1 < least) least = $1}
             END {if (n) printf "Reduction kernels: %d of %d reach 90 %% of the bandwidth of the driver'"'"'s copy; the least has %d %%.\n", good, n, least}'
fi
printf '\nNot measured:'
if [ -s "$work/cannot" ]; then printf '\n'; sed 's/^/- /' "$work/cannot"; else printf ' nothing is missing.\n'; fi
echo "It took $SECONDS s."
exit $failed
