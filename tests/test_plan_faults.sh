#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_plan_faults.sh - shows that the tests of the schedule can fail: plants one fault at a time in a copy of
# rondo_plan.h and expects the test named with it to find it (exit 1 to 9 and a FAILED line, not a crash or a hang).
set -u
case $(basename "${RONDO_BUILD:-build}") in # nothing of a sanitizer's build is in this
asan|ubsan|tsan|coverage) echo "not repeated for ${RONDO_BUILD##*/}: make check runs it"; exit 0 ;;
esac
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0

# check TEST: compiles TEST against $work/rondo_plan.h, for few ranks, and runs it; returns its exit status.
check() {
    ${CC:-cc} -std=c11 -O1 -w -D_GNU_SOURCE -DMOST_RANKS=64 -I"$work" -I"$here" "$here/$1.c" -o "$work/$1" -lcmocka \
        2>"$work/log" || { cat "$work/log"; return 99; }
    timeout 60 "$work/$1" >"$work/log" 2>&1
}

fault() { # TEST NAME SED
    local header; for header in rondo_plan.h rondo_plan_hier.h rondo_plan_split.h; do
        sed -e "$3" "$here/../include/$header" >"$work/$header"
    done
    if cat "$here"/../include/rondo_plan{,_hier,_split}.h | cmp -s - <(cat "$work"/rondo_plan{,_hier,_split}.h); then
        echo "FAILED  $2: the place to plant it is gone from rondo_plan.h"; bad=1; return
    fi
    check "$1"; local rc=$?
    if [ $rc -gt 0 ] && [ $rc -lt 10 ] && grep -q 'FAILED' "$work/log"; then echo "found   $2, by $1"
    else echo "FAILED  $2: $1 did not find it (exit $rc)"; tail -3 "$work/log"; bad=1; fi
}

cp "$here"/../include/rondo_plan{,_hier,_split}.h "$work/"
for test in test_plan test_plan_chunks test_plan_peers test_plan_hier; do
    check $test || { echo "FAILED  $test fails without a fault"; cat "$work/log"; exit 1; }
done

at='rondo_ring_rank(p, (int64_t)p->position'
rs='/rondo_step_ring_reduce_scatter(const/,/^}/ s' ag='/rondo_step_ring_all_gather(const/,/^}/ s'
chain='/rondo_step_ring_chain(const/,/^}/ s' flat='/rondo_step_flat(const/,/^}/ s'
fault test_plan 'wrong chunk sent' "$rs/position - 1 - s/position - 2 - s/"
fault test_plan 'wrong chunk received' "$ag/position - 1 - s/position - s/"
fault test_plan 'chunk c ends on the rank after c' \
    "$rs/position - 1 - s/position - s/; $rs/position - 2 - s/position - 1 - s/"
fault test_plan 'wrong peer to send to' "$ag/send_to = $at + 1/send_to = $at + 2/"
fault test_plan 'wrong peer in flat' "$flat/gather ? ahead : behind/ahead/"
fault test_plan 'flat adds against the ring' \
    "$flat/position + away/position - AWAY/; $flat/position - away/position + away/; $flat/AWAY/away/"
fault test_plan 'wrong action, a step too late' "$rs/p->size - 2 ?/p->size - 1 ?/"
fault test_plan 'adds where it should replace' "$ag/RONDO_REPLACE/RONDO_REDUCE/"
fault test_plan 'sends its own term twice' "$rs/send_own = t.recv_own = s == 0/send_own = t.recv_own = s <= 1/"
fault test_plan 'takes a partial sum for an own term' "$chain/along == 1;/along >= 1;/"
fault test_plan 'rounds the first partial sum' "$rs/wide \&\& s > 0/wide \&\& s > 1/"
fault test_plan 'chain sends before it received' "$chain/s == 1 \&\& along/s == 0 \&\& along/"
fault test_plan 'chain ends too early' "$chain/along < p->size - 1/along < p->size - 2/"
open='/rondo_plan_opening(const/,/^}/ s'
fault test_plan 'opens to the wrong rank' "$open/send_to = $at + 1/send_to = $at + 2/"
fault test_plan 'a broadcast does not open' "s/(rondo_is_chain(p->collective) || p->algo/(p->algo/"
fault test_plan 'takes positions for ranks' "s/return p->order ? p->order\[at\] : at/return at/"
peers='/rondo_step_peers(const/,/^}/ s'
fault test_plan_peers 'sends to a rank twice' "$peers/position + 1 + s/position + 1 + s % 2/"
fault test_plan_peers 'files a chunk under the wrong sender' "$peers/recv_chunk = !receives ? -1 : all ? behind/recv_chunk = !receives ? -1 : all ? p->rank/"
fault test_plan_peers 'the root takes part as one of the others' "$peers/at_root = !all/at_root = all/"
fault test_plan_peers 'an all-to-all of uneven chunks' "s/ || count % (uint64_t)size//"
fault test_plan_chunks 'loses the last, incomplete grain' "s/before > full ? count/before >= full ? count/"
fault test_plan_chunks 'overflows near 2^64' "s/before > full ? count : //"
fault test_plan_chunks 'takes bounds that end before count' "s/if (bounds \&\& bounds\[chunks\] != count) return -1;//"
hier='/rondo_step_hier(const/,/^}/ s'
fault test_plan_hier 'crosses the network by another rail' "$hier/t.send_to \* local + i/t.send_to * local + (i + 1) % local/"
fault test_plan_hier 'sends its own term instead of its host'"'"'s sum' "$hier/t.send_own = t.recv_own = 0/t.send_own = t.recv_own = 1/"
fault test_plan_hier 'complete before the other hosts have added' "$hier/RONDO_FINISH \&\& hosts > 1/RONDO_FINISH \&\& hosts > 2/"
fault test_plan_hier 'rounds the sums of hosts' "$hier/p->wide != 0/0/"
fault test_plan_hier 'pieces begin where others do' "$hier/i \* hosts : p->chunks/i * local : p->chunks/"
fault test_plan_hier 'adds its input again on the rail' "$hier/t.held = 1/t.held = 0/"
fault test_plan_hier 'a step of the rail too few' "s/2 \* (local - 1) + 2 \* (size \/ local - 1)/2 * (local - 1) + 2 * (size \/ local - 1) - 1/"
fault test_plan_hier 'does not open' "s/ || p->algo == RONDO_ALGO_HIER);/);/"
exit $bad
