#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_train.sh - the training example: N ranks follow one rank over shared memory and TCP, to the printed digits of the
# losses, and learn to read. Then faults planted in copies of it show that the comparison can fail.
#
# How far may the losses be apart? Each element of a gradient is a sum of at most 64 terms, so adding them in another
# order moves it by some 64 * 2^-24, 4e-6 of their size, and by far less where roundings cancel; the network is smooth
# (tanh: with a rectifier one unit that crosses zero a step earlier moves a loss by 0.6 %), so that these errors add up
# without jumps. Measured over 460 steps with other seeds, rates and 2 to 7 ranks: at most 1.4e-6 of a loss, 5e-7 as the
# example is. The smallest fault that there can be, one digit of 1,438 left out in the first step alone, moves a loss by
# 7e-4. The limit lies between: 2e-5.
set -u
build=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}") here=$(realpath "$(dirname "$0")/..")
train=$build/examples/train_digits limit=2e-5 epochs=20 least=95
[ -x "$train" ] || { echo "ERROR: no $train; run make"; exit 1; }
case $(basename "$build") in asan|ubsan|tsan) sanitized=1 epochs=3 least=70 ;; *) sanitized= ;; esac # they are slow
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1

fail() { echo "ERROR: $1"; shift; failed=1; for f in "$@"; do echo "--- $f"; head -c 1500 "$f"; done; }
run() { # NAME RANKS PROGRAM [arguments]
    local name=$1 ranks=$2; shift 2
    timeout -k 1 60 "$build/rondo" run --no-prefix -n "$ranks" -- "$@" >"$name" 2>"$name.err" </dev/null
}
# The largest difference of two runs' losses, relative to the first's; 9 where they aren't as many.
apart() { # ONE OTHER [EPOCHS]
    paste <(sed -nE 's/.*loss ([0-9.]+) .*/\1/p' "$1") <(sed -nE 's/.*loss ([^ ]+) .*/\1/p' "$2") | awk -v epochs="${3:-$epochs}" '
        NF != 2 || !($1 > 0) || !($2 > 0) { bad = 1 }
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most) most = d }
        END { print bad || NR != epochs ? 9 : most }'
}
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }

learned() { # NAME: every line is there, and the digits that it never learned from are read, but not as well as those
    [ "$(wc -l <"$1")" = $((epochs + 2)) ] || fail "$1: $(wc -l <"$1") lines" "$1"
    grep -q " $((epochs * 23)) steps of 3 buckets" "$1" || fail "$1: no three buckets in each step" "$1"
    grep -q 'the parameters of all ranks have the same bits$' "$1" || fail "$1: the ranks' parameters differ" "$1"
    local right; right=$(sed -nE 's/.*of the 359 held-out .*\(([0-9.]+) %\).*/\1/p' "$1")
    below "$least" "${right:-0}" && below "${right:-100}" 99 ||
        fail "$1: ${right:-?} % of the held-out digits are right, expected $least to 99" "$1"
}
follows() { # NAME: as one rank did
    local d; d=$(apart one "$1")
    below "$d" $limit || fail "$1: losses are apart by $d, expected less than $limit" one "$1"
    echo "$1: losses apart by $d of themselves, $(sed -nE 's/.*\(([0-9.]+ %)\).*/\1/p' "$1") of the held-out digits right"
}

run one 1 "$train" -e $epochs || fail "one rank" one one.err
# The losses of the first two epochs and the last, as the README shows them.
below "$(apart <(sed -n 's/^\[0\] epoch/epoch/p' "$here/README.md") <(sed -n '2,3p; 21p' one) 3)" $limit ||
    [ $epochs != 20 ] || fail "the README shows other losses" one
learned one
for ranks in 2 3 4; do # 3: no batch divides evenly
    for transport in shm tcp; do
        [ -z "$sanitized" ] || [ $ranks != 3 ] || continue
        name=$transport-$ranks
        RONDO_TRANSPORT=$transport run $name $ranks "$train" -e $epochs || fail $name $name $name.err
        learned $name; follows $name
        # The order of additions depends on the ranks alone, so the bits do.
        diff <(grep epoch shm-$ranks) <(grep epoch $name) >diff || fail "$name differs from shm-$ranks" diff
    done
done
RONDO_ALGO=ring RONDO_TRANSPORT=shm RONDO_SLICE=4096 RONDO_CHANNELS=2 run ring 4 "$train" -e $epochs || fail ring ring.err
diff <(grep epoch shm-4) <(grep epoch ring) >diff || fail "the ring differs from flat" diff

# What is wrong with the data is said, with the place; there are fewer digits than ranks to share a batch.
head -12 "$here/examples/data/digits.csv" >few
run some 4 "$train" -e 2 -b 3 few || fail "12 digits" some.err
sed '7s/,[0-9]*$//' few >short; sed '5s/^0/17/' few >bright; sed '3s/$/,1/' few >long; sed '2s/[0-9]$/x/' few >letter
for case in short:7 bright:5 long:3 letter:2; do
    run bad 2 "$train" "${case%:*}" && fail "$case was accepted" bad
    grep -q "train_digits: $case: must be" bad.err || fail "$case: not said" bad.err
done
run bad 2 "$train" ./absent && fail "an absent file was accepted"
grep -q "train_digits: ./absent: No such file" bad.err || fail "absent: not said" bad.err
run bad 1 "$train" -e 0 && fail "-e 0 was accepted"
grep -q '^usage: train_digits.*1 to' bad.err || fail "-e 0: not said" bad.err

fault() { # NAME SED
    sed "$2" "$here/examples/train_digits.c" >fault.c
    cmp -s fault.c "$here/examples/train_digits.c" && { fail "$1: the place to plant it is gone"; return; }
    ${CC:-cc} -std=c11 -O2 -w -D_GNU_SOURCE -I"$here/include" fault.c -o fault -L"$build" -lrondo -lm \
        -Wl,-rpath,"$build" || { fail "$1: does not compile"; return; }
    run faulty 3 ./fault "$here/examples/data/digits.csv"
    local d; d=$(apart one faulty)
    if below "$d" $limit; then fail "$1: not found, losses are apart by $d" faulty
    else echo "found: $1 (losses apart by $d)"; fi
}
if [ -z "$sanitized" ]; then
    fault "one digit left out in the first step" \
        's/i < to - from; i++) backward/i < to - from - (j->rank == 1 \&\& j->under_way == 0); i++) backward/'
    fault "a layer that is ready before it is" \
        's/i < to - from; i++) backward/i < to - from - (j->rank == 1 \&\& l == 1); i++) backward/'
    fault "the averages of unequal shares averaged" \
        's|/ (float)size|/ (float)(to - from)|; s/= RONDO_DDP_SUM/= RONDO_DDP_AVERAGE/'
    fault "no wait" 's/(r = rondo_ddp_wait(j->ddp))/(r = 0)/'
    fault "ranks that do not start alike" \
        's/return rondo_ddp_create(\(.*\));/int r = rondo_ddp_create(\1); first_parameters(j, 3 + j->rank); return r;/'
    fault "ranks that shuffle apart" 's/chance = 2/chance = 2 + (uint64_t)j->rank/'
fi
[ $failed = 0 ] && echo "train: all well"
exit $failed
