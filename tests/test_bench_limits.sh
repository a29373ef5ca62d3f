#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_bench_limits.sh - rondo bench limits: a figure in every column, larger ones for more bytes, JSON, its options.
set -u
build=$(realpath "${RONDO_BUILD:-build}") rondo=$build/rondo
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset RONDO_DEBUG

fail() { echo "FAILED: $1"; cat out err; exit 1; }
limits() { # STATUS options...
    local expected=$1 rc; shift
    timeout 120 "$rondo" bench limits "$@" >out 2>err </dev/null; rc=$?
    [ $rc = "$expected" ] || fail "limits $*: exit $rc, not $expected"
}
refuses() { # PATTERN options...
    local pattern=$1; shift
    limits 2 "$@"
    grep -qE -- "$pattern" err || fail "limits $*: does not say '$pattern'"
}

for ranks in 2 3; do
    limits 0 -n $ranks -b 64 -e 1048576 -f 128 --json rows.json
    python3 - $ranks <<'PY' || fail "JSON, $ranks ranks"
import json, os, sys
found = json.load(open("rows.json"))
rows = found["limits"]
assert found["ranks"] == int(sys.argv[1]) and [r["bytes"] for r in rows] == [64, 8192, 1048576]
for key in ["copy_us", "triad_us", "zero_copy_us", "unix_us", "tcp_us"] + (["vm_readv_us"] if "vm_readv_us" in rows[0] else []):
    # Ranks that take turns meet when the scheduler lets them, which may cost more than a megabyte's work.
    turns = key == "zero_copy_us" and found["ranks"] > len(os.sched_getaffinity(0))
    assert rows[2][key] > (0 if turns else rows[0][key]) >= 0, key
    assert rows[2][key] > 1048576 / 1e6, f"{key}: a megabyte in {rows[2][key]} us"  # a TB/s
assert all(r["one_way_ns"] > 0 and r["placement"] in ("core", "L3", "host", "busy", "mixed") for r in rows)
PY
    [ "$(grep -cE '^ +(64|8192|1048576) ' out)" = 3 ] || fail "not 3 rows, $ranks ranks"
done
limits 1 --json no/such/place.json; grep -q 'no/such/place.json' err || fail "no such directory"
limits 0 --help; grep -q '^usage: rondo bench limits' out || fail help
refuses "-n '1'.*2 to 8" -n 1
refuses "-b '1'.*64 to 268435456" -b 1
refuses '-e 64 is less than -b 4096' -b 4096 -e 64
refuses "-f '1'.*2 to 1024" -f 1
refuses "unknown option '--jsn'; did you mean '--json'" --jsn x
refuses "'all_reduce' is not an option" all_reduce
echo "rondo bench limits: as it should be"
