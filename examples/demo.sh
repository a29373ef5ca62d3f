#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh BUILD - what `make demo` shows: this machine and its ring, all-reduces with every element checked, how long they
# take beside what the machine allows, and a network trained over the ring. Takes some 15 seconds.
set -u
case ${1-} in -*)
    sed -n '3,4s/^# //p' "$0"
    [ "$1" = -h ] || [ "$1" = --help ]; exit $(($? * 2)) ;;
esac
build=${1:-build}
count=${RONDO_DEMO_COUNT:-10556587} # no multiple of any number of ranks here
failed=0 runs=0
logs=$(mktemp -d); trap 'rm -rf "$logs"' EXIT
log=$logs/log

say() { printf '%s\n' "$@"; }
part() { say "" "== $1" ""; [ $# = 1 ] || say "\$ $2" ""; }
broken() { # WHAT STATUS
    failed=$((failed + 1)); say "   FAILED: $1 (status $2):"; sed '/./s/^/   /' "$log"
}

machine() {
    part "This machine, and the ring that ranks on its cores form" "$build/rondo topo"
    timeout -k 2 20 "$build/rondo" topo >"$log" 2>&1 </dev/null || { broken "rondo topo" $?; return; }
    sed '/./s/^/   /' "$log"
}

# One line for each run, from what the ranks print and, for the first, the library's own words on what it chose.
verify() { # RANKS TRANSPORT
    local ranks=$1 transport=$2 right fastest algo
    runs=$((runs + 1))
    RONDO_TRANSPORT=$transport RONDO_DEBUG=INFO timeout -k 2 60 "$build/rondo" run -n "$ranks" -- \
        "$build/examples/verify" -c "$count" >"$log" 2>&1 </dev/null || { broken "$ranks ranks, $transport" $?; return; }
    right=$(grep -cE '^\[[0-9]+\] rank [0-9]+ of [0-9]+: OK, largest error 0$' "$log")
    fastest=$(sed -nE 's/^\[0\] rank 0: fastest of [0-9]+ rounds ([0-9.]+ ms), (busbw .*)$/\1, \2/p' "$log")
    algo=$(sed -nE 's/^\[0\] rondo.* INFO: ring:.*all-reduce ([a-z]+)$/\1/p' "$log")
    if [ "$transport" = auto ]; then
        sed -nE 's/^\[0\] rondo\[[0-9]+\] INFO: (ring:.*)$/   \1/p' "$log"
        sed -nE 's/^\[[0-9]+\] rondo\[[0-9]+\] INFO: rank [0-9]+ -> rank [0-9]+: (.*)$/\1/p' "$log" | sort | uniq -c |
            sed -E 's/^ *([0-9]+) (.*)/   links: \1, \2/'
        say "" "$(printf '   %5s  %-9s %-9s %-15s %s' ranks transport algorithm checked 'fastest of 3')"
    fi
    printf '   %5d  %-9s %-9s %-15s %s\n' "$ranks" "$transport" "${algo:-?}" "$right of $ranks right" "${fastest:--}"
    [ "$right" = "$ranks" ] || broken "$((ranks - right)) of $ranks ranks found wrong elements" 0
}

reduce() {
    part "All-reduces: each rank adds up everybody's $count float32, and checks every element" \
        "RONDO_TRANSPORT=... $build/rondo run -n RANKS -- $build/examples/verify -c $count"
    local ranks
    verify 2 auto # what Rondo chooses by itself, and why
    for ranks in 1 2 4; do
        verify $ranks shm
        verify $ranks tcp
    done
    say "" "   Each rank filled an array with numbers that depend on its rank. Rondo cut it into as many chunks as there" \
        "   are ranks, brought every chunk's terms together at one rank (reduce-scatter: by sockets step by step round" \
        "   the ring, by shared memory directly) and gave the sums to all (all-gather). Each rank then compared every" \
        "   element with the sum that it must be."
}

bench() {
    part "How long it takes, beside what this machine allows" "$build/rondo bench -n 2 -b 8 -e 16M -f 8"
    timeout -k 2 60 "$build/rondo" bench -n 2 -b 8 -e 16M -f 8 >"$log" 2>&1 </dev/null || { broken "rondo bench" $?; return; }
    cat "$log"
}

train() {
    part "A network that learns to read digits, its gradients all-reduced over the ring in each step" \
        "$build/rondo run -n RANKS -- $build/examples/train_digits"
    local ranks
    for ranks in 1 2 4; do
        runs=$((runs + 1))
        timeout -k 2 60 "$build/rondo" run --no-prefix -n $ranks -- "$build/examples/train_digits" >"$log" 2>&1 \
            </dev/null || { broken "training on $ranks ranks" $?; return; }
        cp "$log" "$logs/train.$ranks"
    done
    sed -n '1s/^\(.*\); batches of \([0-9]*\) .*/   \1; batches of \2, each shared by all ranks/p' "$logs/train.1"
    say "" "$(printf '   %5s   %-11s  %-11s  %-11s  %s' epoch 'loss 1 rank' '2 ranks' '4 ranks' 'held out, read rightly')"
    for ranks in 1 2 4; do
        sed -nE 's/^epoch +([0-9]+) +loss ([0-9.]+) .*held out +([0-9.]+) %$/\1 \2 \3/p' "$logs/train.$ranks" >"$logs/$ranks"
    done
    paste -d' ' "$logs"/{1,2,4} | awk '$1 <= 3 || $1 % 5 == 0 {
        printf "   %5d   %-11s  %-11s  %-11s  %6.2f %%  %6.2f %%  %6.2f %%\n", $1, $2, $5, $8, $3, $6, $9 }'
    say ""
    for ranks in 1 2 4; do
        sed -nE "s/^.* after ([0-9.]+ s); (gradients .*); the parameters.*/   $ranks rank(s): \\1; \\2/p" "$logs/train.$ranks"
    done | sed 's/1 rank(s)/1 rank /; s/rank(s)/ranks/'
    say "" "   The same batches, shared by 1, 2 or 4 ranks, train the same network: the losses differ in their last digits" \
        "   only, by the order in which a gradient's terms are added."
}

say "" "Rondo demo: processes on this machine find one another, form a ring, and add up their arrays over it."
machine
reduce
bench
train

say ""
if [ $failed != 0 ]; then
    say "$failed of the steps above FAILED."
    exit 1
fi
say "All $runs runs were right on every rank." "" "Next:"
try() { printf '  %-68s %s\n' "$1" "$2"; }
try "$build/rondo teach -n 3 --step" "step through an all-reduce: what moves, what is added"
try "$build/rondo run -n 4 -- $build/examples/hello" "the smallest program (examples/hello.c)"
try "$build/rondo run -n 3 -- $build/examples/train_digits -e 5" "training (examples/train_digits.c)"
try "$build/rondo run -n 3 --keep-going -- $build/examples/train_text --survive 300" "a rank is killed, the others go on"
try "RONDO_ALGO=ring $build/rondo run -n 4 -- $build/examples/verify" "the ring also where flat would be chosen"
try "$build/rondo bench -n 2 --transport tcp" "the same measured over TCP"
try "$build/rondo doctor" "links, limits, versions and settings here"
try "$build/rondo run --help" "more ranks, more nodes"
try "make check" "every test"
try "make install PREFIX=..." "library, headers, tool, manual page"
