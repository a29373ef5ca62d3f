#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_startup.sh - rondo bench --startup: times, what each rank holds, JSON, a job that cannot start, its options.
set -u
build=$(realpath "${RONDO_BUILD:-build}") rondo=$build/rondo
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
while read -r name; do
    unset "$name"
done < <(compgen -e | grep -E '^(RONDO_|RANK$|WORLD_SIZE$|MASTER_)' | grep -vE '^RONDO_(BUILD|TESTS)$')

fail() { echo "FAILED: $1"; cat out err; exit 1; }
startup() { # STATUS options...
    local expected=$1 rc; shift
    timeout 100 "$rondo" bench --startup "$@" >out 2>err </dev/null; rc=$?
    [ $rc = "$expected" ] || fail "--startup $*: exit $rc, not $expected"
}
refuses() { # PATTERN options...
    local pattern=$1; shift
    startup 2 "$@"
    grep -qE -- "$pattern" err || fail "--startup $*: does not say '$pattern'"
}

for transport in shm tcp; do
    startup 0 -n 1,2,12 --transport $transport --json rows.json
    rows=$(grep -cE '^ +(1|2|12) +[0-9]+\.[0-9]{3} +[0-9.]+( +[0-9.]+ / [0-9.]+){6}$' out)
    [ "$rows" = 3 ] || fail "$rows rows, not 3, $transport"
    python3 - $transport <<'PY' || fail "JSON, $transport"
import json, sys
rows = json.load(open("rows.json"))["startup"]
assert [r["ranks"] for r in rows] == [1, 2, 12]
for r in rows:
    assert 0 < r["startup_s"] < 60 and 0 <= r["first_all_reduce_ms"] < 60000
    assert all(r[k]["median"] <= r[k]["most"] for k in r if isinstance(r[k], dict))
    assert 2 <= r["threads"]["most"] <= 3 and r["resident_bytes"]["median"] > 1 << 20 # 3: a sanitizer has its own
    assert r["descriptors"]["median"] >= 3 + r["connections"]["median"]
alone, pair, dozen = rows
assert alone["connections"]["most"] <= 2 and alone["mapped_bytes"]["most"] < 1 << 20
assert 1 <= pair["connections"]["median"] <= dozen["connections"]["median"]
# One to its own table may be about to close. Flat has links to all, a ring two, over TCP of four each, and the control plane log2 N.
assert sys.argv[1] == "shm" or dozen["connections"]["median"] <= 2 * 4 + 2 * 4
assert (sys.argv[1] == "shm") == (dozen["mapped_bytes"]["most"] > 1 << 20)
PY
done
export RONDO_TRANSPORT=loop # of threads; ranks are processes
startup 1 -n 2
grep -q 'rondo bench --startup: .*loop' err || fail "a job that cannot start says why"
unset RONDO_TRANSPORT
startup 1 --json no/such/place.json; grep -q 'no/such/place.json' err || fail "no such directory"
startup 0 --help; grep -q '^usage: rondo bench --startup' out || fail help
refuses "-n '0'.*1 to 4096" -n 2,0
refuses "-n ''.*1 to 4096" -n 2,
refuses 'at most 16' -n 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1
refuses "--transport 'loop': must be one of auto|shm|tcp" --transport loop
refuses "unknown option '--jsn'; did you mean '--json'" --jsn x
refuses 'needs a value' --json
refuses "'all_reduce' is not an option" all_reduce
echo "rondo bench --startup: as it should be"
