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

  rank   CPU    core   L3    NUMA   package   to the next
  0      0      0      0     0      0         25 ns, same core
  8      1      0      0     0      0         55 ns, same L3 cache
  1      2      1      0     0      0         25 ns, same core
  9      3      1      0     0      0         160 ns, same NUMA node
  2      4      2      1     0      0         55 ns, same L3 cache
  3      6      3      1     0      0         300 ns, same host
  4      8      4      2     1      1         55 ns, same L3 cache
  5      10     5      2     1      1         160 ns, same NUMA node
  6      12     6      3     1      1         55 ns, same L3 cache
  7      14     7      3     1      1         300 ns, same host

  1190 ns once round
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
assert t["ring"]["cpus"] == [0, 1, 2, 3], t["ring"]
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
pus, ring = t["machine"]["pus"], t["ring"]
assert len(pus) == 16 and pus[9]["core"] == 4 and pus[9]["l3"] == 2 and pus[9]["package"] == 1 and pus[9]["allowed"]
assert pus[0]["l3_bytes"] == 16 << 20 and pus[0]["numa_bytes"] == 1 << 30
assert t["machine"]["synthetic"].startswith("pack:2") and t["machine"]["name"] is None
assert ring["ranks"] == 10 and sorted(ring["order"]) == list(range(10)) and ring["order"][:4] == [0, 8, 1, 9]
assert len(ring["hops"]) == 10 and ring["round_ns"] == sum(h["ns"] for h in ring["hops"]) == 1190
assert all(h["to"] == ring["order"][(i + 1) % 10] for i, h in enumerate(ring["hops"]))
assert ring["hops"][0] == {"from": 0, "to": 8, "ns": 25, "shared": "core"}
P
}

here() {
    go; [ $rc = 0 ] || fail "this machine: status $rc" err
    grep -qE '^The ring of [0-9]+ ranks?, each bound to a core:$' out || fail "this machine" out
    go --json
    python3 - <<'P' || fail "JSON of this machine" out
import json, os
t = json.load(open("out"))
assert {p["cpu"] for p in t["machine"]["pus"] if p["allowed"]} == os.sched_getaffinity(0)
assert t["machine"]["synthetic"] is None
P
    local cpu; cpu=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
    timeout 30 taskset -c "$cpu" "$rondo" topo --json -n 2 >out || fail "on one CPU"
    python3 -c "import json; assert json.load(open('out'))['ring']['cpus'] == [$cpu, $cpu]" ||
        fail "only the CPUs that may be used" out
    go -n 1; [ $rc = 0 ] && grep -q 'The ring of 1 rank,' out || fail "one rank" out err
}

misuse() {
    local words
    for words in "-n 0" "-n 1025" "-n two" "--synthetc x" "-n" "4" "--json=1"; do
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
misuse
[ $failed = 0 ] && echo "topo: as it should be"
exit $failed
