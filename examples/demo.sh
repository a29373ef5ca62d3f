#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh BUILD - what `make demo` shows: the machine, the ring its ranks form, all-reduces with every element checked.
set -u
build=${1:-build}
count=${RONDO_DEMO_COUNT:-10556587} # no multiple of any number of ranks here
failed=0 runs=0
log=$(mktemp); trap 'rm -f "$log"' EXIT

say() { printf '%s\n' "$@"; }

say "" "Rondo demo: processes on this machine find one another, form a ring, and add up their arrays over it." ""
say "Machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) processors for us, $(uname -sr)"

run() { # RANKS TRANSPORT
    local ranks=$1 transport=$2
    say "" "== $ranks rank$([ "$ranks" = 1 ] || echo s), RONDO_TRANSPORT=$transport"
    runs=$((runs + 1))
    if RONDO_TRANSPORT=$transport RONDO_DEBUG=INFO timeout -k 2 60 "$build/rondo" run -n "$ranks" -- \
        "$build/examples/verify" -c "$count" >"$log" 2>&1 </dev/null; then :
    else
        failed=$((failed + 1)); say "   FAILED with status $?:"; sed 's/^/   /' "$log"; return
    fi
    # The library's own words on who is whose neighbour and how links were chosen, then the program's.
    sed -nE 's/^\[0\] rondo\[[0-9]+\] INFO: (ring:.*)$/   \1/p' "$log"
    sed -nE 's/^\[[0-9]+\] rondo\[[0-9]+\] INFO: rank [0-9]+ -> rank [0-9]+: (.*)$/\1/p' "$log" | sort | uniq -c |
        sed -E 's/^ *([0-9]+) (.*)/   links: \1, \2/'
    grep -E '^\[[0-9]+\] rank' "$log" | sed -E 's/^\[[0-9]+\] /   /' | sort -s -k2,2n
    [ "$(grep -c ': OK' "$log")" = "$ranks" ] || { failed=$((failed + 1)); say "   FAILED: not every rank said OK"; }
}

run 2 auto # what Rondo chooses by itself, and why
for ranks in 1 2 4; do
    run $ranks shm
    run $ranks tcp
done

say ""
if [ $failed != 0 ]; then
    say "$failed of $runs runs FAILED."
    exit 1
fi
say "All $runs runs were right in every one of $count elements on every rank." \
    "" \
    "What happened: each rank filled an array with numbers that depend on its rank. Rondo cut it into as many" \
    "chunks as there are ranks, brought every chunk's terms together at one rank (reduce-scatter: by sockets step by" \
    "step round the ring, by shared memory directly) and gave the sums to all (all-gather). Each rank then compared" \
    "every element with the sum it must be." \
    "" \
    "Next:" \
    "  $build/rondo run -n 4 -- $build/examples/hello                    the smallest program (examples/hello.c)" \
    "  RONDO_ALGO=ring $build/rondo run -n 4 -- $build/examples/verify   the ring also where flat would be chosen" \
    "  $build/rondo run --help                                           more ranks, more nodes" \
    "  make check                                                        every test"
