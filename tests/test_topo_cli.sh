#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_topo_cli.sh - `rondo topo`: this machine and described ones, as text and as JSON. RONDO_BUILD names the build
# directory.
set -u
rondo=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}")/rondo
[ -x "$rondo" ] || { echo "ERROR: no $rondo; build it first"; exit 1; }
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1

fail() { echo "ERROR: $1"; shift; for f in "$@"; do echo "--- $f"; head -c 1500 "$f"; done; failed=1; }
go() { timeout -k 1 30 "$rondo" topo "$@" >out 2>err </dev/null; rc=$?; }

two_sockets() {
    go --synthetic "pack:2 numa:1 l3:2 core:2 pu:2" -n 10
    [ $rc = 0 ] || fail "a described machine: status $rc" err
    diff - out >diff <<'T' || fail "a described machine" diff
2 packages, 2 NUMA nodes, 4 L3 caches, 8 cores, 16 PUs

  package  NUMA node        L3 cache         cores      CPUs
  0        0 (1 GiB)        0 (16 MiB)       0-1        0-3
  0        0 (1 GiB)        1 (16 MiB)       2-3        4-7
  1        1 (1 GiB)        2 (16 MiB)       4-5        8-11
  1        1 (1 GiB)        3 (16 MiB)       6-7        12-15

The ring of 10 ranks, several of which share a core:

  rank   on       core   L3    NUMA   package   to the next
  0      CPU 0    0      0     0      0         25 ns, 40 GB/s, same core
  8      CPU 1    0      0     0      0         55 ns, 36 GB/s, same L3 cache
  1      CPU 2    1      0     0      0         25 ns, 40 GB/s, same core
  9      CPU 3    1      0     0      0         160 ns, 12.8 GB/s, same NUMA node
  2      CPU 4    2      1     0      0         55 ns, 36 GB/s, same L3 cache
  3      CPU 6    3      1     0      0         300 ns, 10 GB/s, same host  <- slowest
  4      CPU 8    4      2     1      1         55 ns, 36 GB/s, same L3 cache
  5      CPU 10   5      2     1      1         160 ns, 12.8 GB/s, same NUMA node
  6      CPU 12   6      3     1      1         55 ns, 36 GB/s, same L3 cache
  7      CPU 14   7      3     1      1         300 ns, 10 GB/s, same host  <- slowest

  1190 ns once round; 64 KiB take 35.1 us
T
}

# No packages, no shared caches; CPUs that the system numbers in another order.
other_machines() {
    go --synthetic "numa:2 core:2 pu:1"
    grep -qE '^  -        0 \(1 GiB\) +- +0-1 +0-1$' out || fail "a machine without packages" out
    go --synthetic "pack:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)" --json
    python3 - <<'P' || fail "interleaved CPUs" out
import json
t = json.load(open("out"))
assert [p["cpu"] for p in t["machine"]["pus"]] == [0, 4, 1, 5, 2, 6, 3, 7]
assert [r["cpu"] for r in t["ranks"]] == [0, 1, 2, 3], t["ranks"]
P
    go --synthetic "pack:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)"
    grep -qE ' 0-3 +0-7$' out || fail "interleaved CPUs are one range" out
    go --synthetic "pack:4 core:64 pu:4" -n 1024
    [ $rc = 0 ] && [ "$(grep -c 'same' out)" = 1024 ] || fail "1024 ranks" err
}

json() {
    go --synthetic "pack:2 numa:1 l3:2 core:2 pu:2" -n 10 --json
    python3 - <<'P' || fail "JSON of a described machine" out
import json
t = json.load(open("out"))
pus, ring = t["machine"]["pus"], t["rings"][0]
assert len(pus) == 16 and pus[9]["core"] == 4 and pus[9]["l3"] == 2 and pus[9]["package"] == 1 and pus[9]["allowed"]
assert pus[0]["l3_bytes"] == 16 << 20 and pus[0]["numa_bytes"] == 1 << 30
assert t["machine"]["synthetic"].startswith("pack:2") and t["machine"]["name"] is None
assert len(t["rings"]) == 1 and len(t["ranks"]) == 10 and t["hosts"] == 1 and not t["measured"]
assert t["ranks"][9] == {"rank": 9, "host": 0, "cpu": 3, "gpu": None}
assert sorted(ring["order"]) == list(range(10)) and ring["order"][:4] == [0, 8, 1, 9]
assert len(ring["hops"]) == 10 and ring["round_ns"] == sum(h["ns"] for h in ring["hops"]) == 1190
assert all(h["to"] == ring["order"][(i + 1) % 10] for i, h in enumerate(ring["hops"]))
assert ring["hops"][0] == {"from": 0, "to": 8, "ns": 25, "mbs": 40000, "cost_ns": 1663, "shared": "core",
                           "nic": None, "nic_there": None}
assert ring["cost_ns"] == sum(h["cost_ns"] for h in ring["hops"]) and ring["slowest"] == 5
P
}

here() {
    go; [ $rc = 0 ] || fail "this machine: status $rc" err
    grep -qE '^The ring of [0-9]+ ranks?, each (bound to a core|on a GPU):$' out || fail "this machine" out
    go --json
    python3 - <<'P' || fail "JSON of this machine" out
import json, os
t = json.load(open("out"))
assert {p["cpu"] for p in t["machine"]["pus"] if p["allowed"]} == os.sched_getaffinity(0)
assert t["machine"]["synthetic"] is None
P
    local cpu; cpu=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
    timeout 30 taskset -c "$cpu" "$rondo" topo --json -n 2 >out || fail "on one CPU"
    python3 -c "import json; assert [r['cpu'] for r in json.load(open('out'))['ranks']] == [$cpu, $cpu]" ||
        fail "only the CPUs that may be used" out
    go -n 1; [ $rc = 0 ] && grep -q 'The ring of 1 rank,' out || fail "one rank" out err
}

# What is measured takes the table's place; two ranks on one unit cannot be.
measure() {
    local words
    go --measure --json -n 2; [ $rc = 0 ] || fail "--measure: status $rc" err
    python3 - <<'P' || fail "measured links" out
import json
t = json.load(open("out"))
hop = t["rings"][0]["hops"][0]
assert t["measured"] and hop["mbs"] > 0 and hop["ns"] > 0
cpus = {r["cpu"] for r in t["ranks"]}
assert len(cpus) == 1 or (hop["ns"], hop["mbs"]) != (55, 36000), hop
P
    go --measure --ranks 65; [ $rc = 1 ] && grep -q "65 ranks are too many" err || fail "--measure of too many ranks" err
    for words in "--xml x" "--synthetic pu:2" "--hosts 2"; do
        go --measure $words; [ $rc = 2 ] && grep -q -- "leave out ${words%% *}" err || fail "--measure $words" err
    done
}

misuse() {
    local words
    for words in "-n 0" "-n 1025" "-n -1" "--synthetc x" "-n" "4" "--json=1" "--hosts 0" "--channels 9" "--xml a --synthetic b"; do
        go $words; [ $rc = 2 ] && [ -s err ] && [ ! -s out ] || fail "topo $words: status $rc, expected 2" out err
    done
    go --synthetc x; grep -q "did you mean '--synthetic'" err || fail "no near option is named" err
    go --synthetic "pack:zwei"; [ $rc = 1 ] && grep -q 'for example "pack:2' err || fail "a bad description" err
    go --help; [ $rc = 0 ] && grep -q "^usage: rondo topo" out || fail "topo --help"
}

two_sockets
other_machines
json
here
measure
misuse
[ $failed = 0 ] && echo "topo: as it should be"
exit $failed
