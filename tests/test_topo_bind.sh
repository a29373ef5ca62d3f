#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_topo_bind.sh - `rondo run --bind`: what ranks are bound to, here and on machines that hwloc is told of, and what is
# said about it.
set -u
rondo=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}")/rondo
[ -x "$rondo" ] || { echo "ERROR: no $rondo; build it first"; exit 1; }
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
unset RONDO_DEBUG HWLOC_SYNTHETIC HWLOC_XMLFILE

fail() { echo "ERROR: $1"; shift; for f in "$@"; do echo "--- $f"; head -c 1500 "$f"; done; failed=1; }
go() { timeout -k 1 30 "$rondo" run "$@" >out 2>err </dev/null; rc=$?; }

# What the kernel says of each rank, by this process's own CPUs.
here() {
    local own='s/^Cpus_allowed_list:[[:space:]]*//p' all first last both
    all=$(sed -n "$own" /proc/self/status) first=${all%%[-,]*} last=${all##*[-,]}
    both=$(timeout 30 taskset -c "$first,$last" sed -n "$own" /proc/self/status)
    go -n 2 --bind none -- sed -n "$own" /proc/self/status
    [ $rc = 0 ] && [ "$(sort out)" = "[0] $all
[1] $all" ] || fail "--bind none" out err
    go -n 2 --bind "$first/$first,$last" -- sed -n "$own" /proc/self/status
    [ $rc = 0 ] && [ "$(sort out)" = "[0] $first
[1] $both" ] || fail "--bind with lists" out err
    go -n 1 --bind package -- sed -n "$own" /proc/self/status; [ $rc = 0 ] && [ -s out ] || fail "--bind package" out err
    local cores; cores=$(timeout 30 "$rondo" topo --json --ranks core:all | grep -c '"rank"')
    go -n 16 --bind core -- sed -n "$own" /proc/self/status
    [ $rc = 0 ] && [ "$(cut -d' ' -f2 out | sort -u | wc -l)" = $((cores < 16 ? cores : 16)) ] || fail "16 ranks on cores" out err
    timeout 30 taskset -c "$last" "$rondo" run -n 2 --bind core -- sed -n "$own" /proc/self/status >out 2>err </dev/null
    [ "$(sort out)" = "[0] $last
[1] $last" ] || fail "only what this process may use" out err
    RONDO_DEBUG=INFO go -n 1 -- true; grep -qE 'not bound to processors; --bind (numa|l3|core) gives' err || fail "what is suggested" err
    RONDO_DEBUG=INFO go -n $((2 * cores)) -- true
    [ "$cores" = 1 ] || grep -q 'not bound to processors; --bind core has as many take turns on each' err ||
        fail "what is suggested to two on each core" err
    RONDO_DEBUG=INFO go -n $((2 * cores + 1)) -- true
    [ "$cores" = 1 ] || ! grep -q 'not bound' err || fail "what is suggested where some core would have more" err
    RONDO_DEBUG=INFO go -n 1 --bind none -- true; [ ! -s err ] || fail "none on purpose" err
    go -n 1 -- true; [ ! -s err ] || fail "not asked for" err
    RONDO_DEBUG=INFO go -n 2 -- "${rondo%/*}/examples/verify" -c 10
    grep -q 'hops of the ring: 2 by .*; the slowest, rank 0 -> rank 1, by ' err || fail "the ring is not explained" err
}

# $1: machine, $2: ranks, $3: --bind, others: the CPUs of each rank. What is beyond this machine's CPUs cannot be started.
plans() {
    local machine=$1 ranks=$2 how=$3 r=0 set; shift 3
    HWLOC_SYNTHETIC=$machine RONDO_DEBUG=INFO go -n "$ranks" --bind "$how" -- true
    [ $rc = 0 ] || grep -q "cannot bind rank [0-9]* to its processors: Invalid argument" err || fail "$how on $machine: status $rc" err
    for set; do
        grep -qxF "rondo run: local rank $r on CPUs $set (--bind $how)" err || fail "$how on $machine: rank $r is not on $set" err
        r=$((r + 1))
    done
}

elsewhere() {
    local m="pack:2 numa:1 l3:2 core:2 pu:2" linux="pack:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)"
    plans "$m" 10 core 0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15 0-1 2-3
    plans "$m" 2 l3 0-3 8-11
    plans "$m" 4 l3 0-3 4-7 8-11 12-15
    plans "$m" 8 l3 0-3 0-3 4-7 4-7 8-11 8-11 12-15 12-15
    plans "$m" 3 numa 0-7 0-7 8-15
    plans "$m" 2 package 0-7 8-15
    plans "$linux" 4 core 0,4 1,5 2,6 3,7
    plans "$linux" 2 4,0/3-3 0,4 3
    go -n 3 --bind numa -- true; [ $rc = 0 ] || fail "ordinary" err
    HWLOC_SYNTHETIC="pack:2 core:2 pu:1" go -n 2 --bind l3 -- true
    [ $rc = 2 ] && grep -q "hwloc knows no L3 caches of this machine" err || fail "no L3 caches" err
}

# $1: words of the error; others: options
refused() {
    local words=$1; shift
    HWLOC_SYNTHETIC="pack:1 core:4 pu:1" go "$@" -- true
    [ $rc = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -qF -- "$words" err || fail "run $*: status $rc, expected 2 and \"$words\"" err
}

misuse() {
    local words
    refused "CPU 4 is not there: this machine's are numbered from 0 to 3" -n 2 --bind 0/4
    refused "1 list of CPUs for 2 ranks" -n 2 --bind 0-1
    refused "3 lists of CPUs for 2 ranks" -n 2 --bind 0/1/2
    for words in cores "0;1" "0-/1" "/" "1-0/2" "0,/1" "0/99999999999"; do refused "must be core, l3, numa" -n 2 --bind "$words"; done
    refused "2 ranks and 0 GPUs" -n 2 --bind gpu
}

here
elsewhere
misuse
[ $failed = 0 ] && echo "bindings: as they should be"
exit $failed
