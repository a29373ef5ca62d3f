#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_dp_vs_ddp.sh - rondo bench dp-vs-ddp: both ways come to the same parameters, the bytes are those that they must be,
# its options. RONDO_BUILD names the build directory.
set -u
rondo=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}/rondo")
[ -x "$rondo" ] || { echo "ERROR: no $rondo; build it first"; exit 1; }
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
fail() { echo "ERROR: $1"; shift; failed=1; for f in "$@"; do echo "--- $f"; head -c 1500 "$f"; done; }
versus() { # STATUS options...
    local expected=$1 rc; shift
    timeout -k 1 100 "$rondo" bench dp-vs-ddp "$@" >out 2>err </dev/null; rc=$?
    [ $rc = "$expected" ] || fail "dp-vs-ddp $*: exit $rc, not $expected" out err
}

# 2 layers of 256: P = 131,584 parameters, 0.502 MiB. Through device 0: with N devices 2 (N-1) P and three rows of 1 KiB for
# each sample of the others; by DDP 4 (N-1)/N of P and of a mark. Device 0 holds 2 P, its units (3 rows) and slopes for each
# of its samples, and 4 rows for each sample of the batch, the caller's.
versus 0 -n 2,3 --layers 2 --width 256 --batch 8 --steps 2
grep -v '^#' out | awk '
    function near(a, b) { return a - b < 0.011 && b - a < 0.011 }
    $1 == 2 && $2 == "dp" { dp2 = near($8, 1.02) && near($6, 1.05) }
    $1 == 2 && $2 == "ddp" { ddp2 = near($8, 1.00) && near($6, 1.03) && near($7, $6) }
    $1 == 3 && $2 == "dp" { dp3 = near($8, 2.02) }
    $1 == 3 && $2 == "ddp" { ddp3 = near($8, 1.34) }
    $2 ~ /dp$/ { rows++; if (!($3 > 0) || $4 < 0 || $4 > $3 + 0.01 || $5 < 0) bad = 1 }
    END { exit !(dp2 && ddp2 && dp3 && ddp3 && rows == 4 && !bad) }' || fail "rows" out
grep -q 'the parameters of both differ by [0-9.]*e-0[5-9] of the largest one at most' out ||
    grep -q 'the parameters of both differ by 0.0e+00' out || fail "the parameters" out
RONDO_TRANSPORT=tcp versus 0 -n 4 --layers 3 --width 64 --batch 9 --steps 3 # parts of 3, and of 2 and 3

versus 2 -n 9; grep -q '2 to 8' err || fail "-n 9" err
versus 2 -n x; versus 2 --batch 7; versus 2 --wide 3; versus 2 word
grep -q 'dp-vs-ddp' err || fail "says who" err
versus 0 --help; grep -q '^usage: rondo bench dp-vs-ddp' out || fail "help" out
RONDO_TRANSPORT=loop versus 1 -n 2 --steps 1; grep -q 'loop' err || fail "ranks that cannot start" err
[ $failed = 0 ] && echo "dp-vs-ddp: all well"
exit $failed
