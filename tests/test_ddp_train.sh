#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_ddp_train.sh - the training example by rondo_ddp.h follows train_digits on one rank, over shared memory and TCP, to the
# printed digits of the losses. Then faults planted in copies of it show that the comparison can fail. The limit and its
# reasons are those of test_train.sh.
set -u
build=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}") here=$(realpath "$(dirname "$0")/..")
serial=$build/examples/train_digits train=$build/examples/train_digits_ddp limit=2e-5 epochs=10
[ -x "$serial" ] && [ -x "$train" ] || { echo "ERROR: no $serial or $train; run make"; exit 1; }
case $(basename "$build") in asan|ubsan|tsan) sanitized=1 epochs=2 ;; *) sanitized= ;; esac # they are slow
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1

fail() { echo "ERROR: $1"; shift; failed=1; for f in "$@"; do echo "--- $f"; head -c 1500 "$f"; done; }
run() { # NAME RANKS PROGRAM [arguments]
    local name=$1 ranks=$2; shift 2
    timeout -k 1 60 "$build/rondo" run --no-prefix -n "$ranks" -- "$@" >"$name" 2>"$name.err" </dev/null
}
# The largest difference of two runs' losses, relative to the first's; 9 where they aren't as many.
apart() {
    paste <(sed -nE 's/.*loss ([0-9.]+) .*/\1/p' "$1") <(sed -nE 's/.*loss ([^ ]+) .*/\1/p' "$2") | awk -v epochs=$epochs '
        NF != 2 || !($1 > 0) || !($2 > 0) { bad = 1 }
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most) most = d }
        END { print bad || NR != epochs ? 9 : most }'
}
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }

run one 1 "$serial" -e $epochs || fail "one rank" one one.err
for case in 1:shm 2:shm 2:tcp 3:shm 4:tcp; do # 3: no batch divides evenly
    ranks=${case%:*}
    RONDO_TRANSPORT=${case#*:} run "$case" "$ranks" "$train" -e $epochs || fail "$case" "$case" "$case.err"
    d=$(apart one "$case")
    below "$d" $limit || fail "$case: losses are apart by $d, expected less than $limit" one "$case"
    grep -q "^$((epochs * 23)) steps of 3 buckets" "$case" || fail "$case: no three buckets in each step" "$case"
done
run wide 3 "$train" -e 1 -b 2 || fail "fewer digits than ranks" wide.err
run bad 1 "$train" ./absent && fail "an absent file was accepted"
grep -q 'train_digits_ddp: ./absent:1: No such file' bad.err || fail "absent: not said" bad.err

fault() { # NAME SED
    sed "$2" "$here/examples/train_digits_ddp.c" >fault.c
    cmp -s fault.c "$here/examples/train_digits_ddp.c" && { fail "$1: the place to plant it is gone"; return; }
    ${CC:-cc} -std=c11 -O2 -w -D_GNU_SOURCE -I"$here/include" fault.c -o fault -L"$build" -lrondo -lm \
        -Wl,-rpath,"$build" || { fail "$1: does not compile"; return; }
    run faulty 3 ./fault -e $epochs "$here/examples/data/digits.csv"
    local d; d=$(apart one faulty)
    if below "$d" $limit; then fail "$1: not found, losses are apart by $d" faulty
    else echo "found: $1 (losses apart by $d)"; fi
}
if [ -z "$sanitized" ]; then
    fault "an average instead of the sum" 's/= RONDO_DDP_SUM/= RONDO_DDP_AVERAGE/'
    fault "a layer that is ready before it is" 's/i < to - from; i++) backward/i < to - from - (j->rank == 1 \&\& l == 1); i++) backward/'
    fault "no wait" 's/(r = rondo_ddp_wait(j->ddp))/(r = 0)/'
fi
[ $failed = 0 ] && echo "ddp train: all well"
exit $failed
