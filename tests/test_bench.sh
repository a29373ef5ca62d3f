#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_bench.sh - rondo bench: rows and JSON over both transports, wrong results that show, launchers joined, bad options.
# RONDO_BUILD names the build directory.
set -u
rondo=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}/rondo")
[ -x "$rondo" ] || { echo "ERROR: no $rondo; build it first"; exit 1; }
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
unset RONDO_KEY RONDO_KEY_FILE RONDO_JOB MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE

fail() { echo "ERROR: $1"; shift; for f in "$@"; do echo "--- $f"; head -c 2000 "$f"; done; failed=1; }
go() { timeout -k 1 60 "$@" >out 2>err </dev/null; rc=$?; }
bench() { rm -f rows.json; go "$rondo" bench --json rows.json --iters 5 --warmup 2 "$@"; }
status() { [ "$rc" = "$1" ] || fail "$2: exit status $rc, expected $1" out err; }
says() { grep -qE -- "$1" err || fail "$2: standard error lacks '$1'" out err; }
prints() { grep -qE -- "$1" out || fail "$2: standard output lacks '$1'" out err; }

# check NAME EXPRESSION...: what must hold of the JSON `j` and its rows `r`.
cat >check.py <<'END'
import json, sys
j = json.load(open("rows.json"))
r = j["results"]
def number(x): return type(x) in (int, float)
assert {"ranks", "transport", "collective", "host", "results"} <= set(j), j.keys()
assert type(j["ranks"]) is int and all(type(j[k]) is str and j[k] for k in ("transport", "collective", "host"))
assert type(r) is list and r
for row in r:
    missing = set("bytes count dtype op in_place algorithm placement time_us algbw_GBps busbw_GBps wrong limit_us".split()) - set(row)
    assert not missing, missing
    t = row["time_us"]
    assert set(t) == {"min", "median", "max", "p99"} and all(number(x) and x > 0 for x in t.values()), t
    assert t["min"] <= t["median"] <= t["p99"] <= t["max"], t
    assert row["algorithm"] in ("ring", "flat", "exchange", "peers", "messages") and type(row["in_place"]) is bool, row
    assert row["placement"] in ("core", "L3", "host", "mixed", "busy", "turns", "one"), row
    if row["bytes"]:
        expected = row["bytes"] / t["median"] / 1e3
        assert abs(row["algbw_GBps"] - expected) <= 1e-3 * expected, (row["algbw_GBps"], expected)
for what in sys.argv[2:]:
    assert eval(what), f"{sys.argv[1]}: {what}: {json.dumps(j)[:1500]}"
END
check() { python3 check.py "$@" 2>trouble || fail "$1" trouble out err; }

# A place that is measured otherwise than hwloc has it is said below the table, and only then.
places() {
    local told measured note
    bench -n 2 -b 64 -e 1K; status 0 places
    "$rondo" bench --help | grep -q 'else algbw\.$' || fail "busbw in the help"
    "$rondo" bench --help | awk 'length > 120' >wide; [ ! -s wide ] || fail "lines of the help" wide
    prints ' limit  +reached ' places
    grep -q '^# ranks bound to processors' out || return
    told=$(timeout 20 "$rondo" topo -n 2 --json | python3 -c '
import json, sys
name = json.load(sys.stdin)["rings"][0]["hops"][0]["shared"]
print("L3" if "cache" in name else "core" if name == "core" else "host")')
    measured=$(awk '!/^#/ {print $14}' out | grep -xE 'core|L3|host' | grep -vx "$told" | sort -u)
    note=$(sed -nE "s/^# place ([a-zA-Z0-9]+): measured; topo says $told: .*/\1/p" out | sort -u)
    [ "$measured" = "$note" ] || fail "places: measured '$measured' where topo says '$told', and told '$note'" out
}

rows_and_columns() {
    bench -e 64K -f 32; status 0 plain
    check plain 'j["ranks"] == 2' 'j["transport"] == "shm"' 'j["collective"] == "all_reduce"' \
        '[x["bytes"] for x in r] == [8, 256, 8192]' '[x["count"] for x in r] == [2, 64, 2048]' \
        'all(x["dtype"] == "float32" and x["op"] == "sum" and x["in_place"] for x in r)' \
        '[x["algorithm"] for x in r] == ["exchange", "exchange", "flat"]' \
        'all(x["wrong"] == 0 and x["limit_us"] > 0 and abs(x["busbw_GBps"] - x["algbw_GBps"]) < 1e-9 for x in r)'
    prints '^ +8192 +2048 +float32 +sum ' plain
    prints 'size +count +type +op +min +median +max +algbw +busbw +wrong +limit' plain
    bench --transport tcp -b 4K -e 64K -f 4 --algo ring; status 0 tcp
    check tcp 'j["transport"] == "tcp"' 'len(r) == 3' 'all(x["algorithm"] == "ring" and x["wrong"] == 0 for x in r)' \
        'all(x["limit_us"] > 0 and x["limit"] == "sockets" for x in r)'
    bench -n 3 -b 1K -e 1000 -d bfloat16 -o max; status 2 "least over most"; says 'more than --max-bytes' "least over most"
    bench -n 3 -b 1000 -e 1K -f 1.01 -d bfloat16 -o max --out-of-place --check --alloc rondo --misalign 1; status 0 three
    check three 'j["ranks"] == 3' 'j["memory"] == "rondo_mem_alloc"' 'r[0]["bytes"] == 1000 and r[0]["count"] == 500' \
        'all(x["dtype"] == "bfloat16" and x["op"] == "max" and not x["in_place"] and x["wrong"] == 0 for x in r)' \
        'all(abs(x["busbw_GBps"] - 4 / 3 * x["algbw_GBps"]) < 1e-3 * x["busbw_GBps"] for x in r)'
    bench -e 64 --no-limits --no-check --no-pin; status 0 "without limits"
    check "without limits" 'all(x["limit_us"] is None and x["wrong"] is None for x in r)'
    local cpus; cpus=$(nproc)
    if [ "$cpus" -gt 1 ] && [ "$cpus" -le 8 ]; then
        bench -n $((2 * cpus)) -e 64 --no-limits; status 0 "two on each"; prints 'ranks bound to processors ([0-9]+), .*\b\1\b' "two on each"
        bench -n $((cpus + 1)) -e 64 --no-limits; status 0 "an uneven rest"; ! grep -q 'ranks bound' out || fail "an uneven rest is bound"
    fi
    bench -n 1 -e 64; status 0 "one rank"
    check "one rank" 'all(x["placement"] == "one" and x["busbw_GBps"] == 0 for x in r)'
    bench -e 64 -b 64 --algo flat; check "flat asked for" 'r[0]["algorithm"] == "flat"'
    bench -e 64K -b 64K --reuse; status 0 reuse; prints 'private caches' reuse
    check reuse 'j["rewritten"] is False' 'r[0]["wrong"] == 0'
}

collectives() {
    local c
    for c in reduce_scatter all_gather; do
        bench $c -n 2 -b 1 -e 8K -f 8192 --check; status 0 "$c"
        check "$c" "j['collective'] == '$c'" '[x["bytes"] for x in r] == [8, 8192]' '[x["count"] for x in r] == [1, 1024]' \
            'all(x["wrong"] == 0 and x["algorithm"] == "ring" for x in r)' \
            'all(abs(x["busbw_GBps"] - x["algbw_GBps"] / 2) < 1e-3 * x["algbw_GBps"] for x in r)'
        bench $c -n 2 -b 24K -e 24K -d float16 --out-of-place --transport tcp --check; status 0 "$c, tcp"
        check "$c, tcp" 'all(x["wrong"] == 0 and x["dtype"] == "float16" for x in r)'
    done
    for c in broadcast reduce; do
        bench $c -n 2 --root 1 -b 4 -e 8K -f 2048 --check; status 0 "$c"
        check "$c" 'all(x["wrong"] == 0 and x["busbw_GBps"] == x["algbw_GBps"] for x in r)'
    done
    for c in gather scatter all_to_all; do
        bench $c -n 3 --root 1 -b 1 -e 12000 -f 12000 --check; status 0 "$c"
        check "$c" "j['collective'] == '$c'" '[x["bytes"] for x in r] == [12, 12000]' '[x["count"] for x in r] == [1, 1000]' \
            'all(x["wrong"] == 0 and x["algorithm"] == "peers" and x["op"] is None for x in r)' \
            "all(x['in_place'] == ('$c' != 'all_to_all') for x in r)" 'all(x["limit_us"] is None for x in r)' \
            'all(abs(x["busbw_GBps"] - x["algbw_GBps"] * 2 / 3) < 1e-3 * x["algbw_GBps"] for x in r)'
        bench $c -n 2 -b 24K -e 24K -d float16 --out-of-place --transport tcp --check; status 0 "$c, tcp"
        check "$c, tcp" 'all(x["wrong"] == 0 and x["limit"] == "sockets" and not x["in_place"] for x in r)'
    done
    bench sendrecv -n 3 -b 4 -e 12000 -f 3000 --check; status 0 sendrecv
    check sendrecv '[x["count"] for x in r] == [1, 3000]' \
        'all(x["wrong"] == 0 and x["algorithm"] == "messages" and not x["in_place"] for x in r)' \
        'all(x["busbw_GBps"] == x["algbw_GBps"] for x in r)'
    bench sendrecv -n 2 -b 24K -e 24K -d int8 --transport tcp --check --alloc rondo --misalign 1; status 0 "sendrecv, tcp"
    check "sendrecv, tcp" 'r[0]["wrong"] == 0 and r[0]["limit"] == "sockets"'
    for c in gather scatter all_to_all sendrecv; do
        bench $c -n 1 -e 64 -f 8 --no-limits; status 0 "$c, one rank"; check "$c, one rank" 'all(x["wrong"] == 0 for x in r)'
    done
    bench barrier --transport tcp; status 0 barrier
    check barrier 'len(r) == 1 and r[0]["bytes"] == 0 and r[0]["op"] is None and r[0]["wrong"] is None'
    bench broadcast -e 8; check "broadcast without an operator" 'r[0]["op"] is None'
}

# Types and operators, whose results the bench must know by itself.
types() {
    local d o
    for d in int8 uint8 int64 float16 bfloat16 float8e4m3 float8e5m2; do
        for o in sum prod avg; do
            bench -n 2 -b 8160 -e 8160 -d $d -o $o --no-limits --iters 1 --algo ring; status 0 "$d $o"
            check "$d $o" "r[0]['wrong'] == 0 and r[0]['dtype'] == '$d' and r[0]['op'] == '$o'"
        done
    done
}

wrong_results() {
    local c rows
    for c in all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all sendrecv; do
        bench $c -b 4K -e 4K --plant-wrong 1; status 1 "planted, $c"
        check "planted, $c" 'r[0]["wrong"] == 1'
        prints 'WRONG: 1 elements in 1 of 1 rows' "planted, $c"
        rows=$(grep -cE "^ +4096 .* 1 +[0-9-]" out); [ "$rows" = 1 ] || fail "planted, $c: the row does not show it" out
    done
    bench -b 4K -e 8K --plant-wrong 3 --check; status 1 "planted, --check"
    check "planted, --check" '[x["wrong"] for x in r] == [15 * x["attempts"] for x in r]'
}

launchers() {
    go "$rondo" run -n 2 -- "$rondo" bench -e 64 -f 8 --iters 5 --json rows.json; status 0 "rondo run"
    check "rondo run" 'j["ranks"] == 2 and len(r) == 2'
    prints '^\[0\] +64 +16 ' "rondo run"
    if grep -q '^\[1\] ' out; then fail "rondo run: rank 1 prints too" out; fi
    export RONDO_JOB=bench.$$ # a name that both meet under
    (RANK=1 WORLD_SIZE=2 timeout 60 "$rondo" bench -e 8 --iters 5 >other 2>&1 </dev/null) &
    go env RANK=0 WORLD_SIZE=2 "$rondo" bench -e 8 --iters 5; status 0 "by hand"; wait
    unset RONDO_JOB
    prints '^ +8 +2 ' "by hand"
    [ ! -s other ] || fail "by hand: rank 1 prints" other
    go env PMI_RANK=0 PMI_SIZE=2 "$rondo" bench; status 1 "an unknown launcher"; says "no launcher's environment" "an unknown launcher"
    go "$rondo" run -n 2 -- "$rondo" bench -n 3; status 1 "another -n"; says '-n 3, but 2 ranks were started' "another -n"
    go "$rondo" run -n 2 -- "$rondo" bench reduce --root 2; status 1 "root"; says '--root 2.*0 to 1' "root"
}

refuses() { # PATTERN arguments...
    local pattern=$1; shift
    go "$rondo" bench "$@"; status 2 "bench $*"; says "$pattern" "bench $*"
    [ ! -s out ] || fail "bench $*: prints" out
}
bad_options() {
    go "$rondo" bench --help; status 0 help; prints '^usage: rondo bench' help
    refuses "unknown collective 'all_reduc'; did you mean 'all_reduce'" all_reduc
    refuses "unknown collective 'xyz'; there are: all_reduce, " xyz
    refuses "'barrier' after 'broadcast'" broadcast barrier
    refuses "unknown element type 'flot32'; did you mean 'float32'" -d flot32
    refuses "unknown operator 'summ'; did you mean 'sum'" -o summ
    refuses "unknown transport 'tpc'; did you mean 'tcp'" --transport tpc
    refuses "threads of one process" --transport loop
    refuses "unknown algorithm 'rign'; did you mean 'ring'" --algo rign
    refuses "unknown memory 'mallok'; did you mean 'malloc'" --alloc mallok
    refuses "unknown option '--itres'; did you mean '--iters'" --itres 5
    refuses "unknown option '-x'" -x
    refuses "-n '0'.*1 to 4096" -n 0
    refuses "--max-bytes '1X'.*64K" -e 1X
    refuses "--max-bytes '-5'" -e -5
    refuses "--min-bytes ''" -b ""
    refuses "--factor '1'" -f 1
    refuses "needs a value" --json
    refuses "takes no value" --reuse=1
    refuses "--root 2.*0 to 1" reduce -n 2 --root 2
    refuses "--reuse" --check --reuse
    go "$rondo" bench --json no/such/dir/x.json; status 1 "no directory"; says 'no/such/dir/x.json' "no directory"
    go "$rondo" bench -e 1000G -b 1000G; status 1 "too large"; says 'more than the memory' "too large"
}

for part in places rows_and_columns collectives types wrong_results launchers bad_options; do
    $part; echo "$part: until $SECONDS s"
done
[ $failed = 0 ] && echo "rondo bench: rows, JSON, wrong results, launchers and options as they should be"
exit $failed
