#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_teach.sh - `rondo teach`: what it shows for 2, 3, 4 and 8 ranks (tests/teach), that it fits, its keys, that it
# gives the terminal back, and that it shows a fault of the schedule. RONDO_BUILD names the build directory.
set -u
build=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}")
here=$(realpath "$(dirname "$0")") root=$(realpath "$(dirname "$0")/..")
rondo=$build/rondo
[ -x "$rondo" ] || { echo "ERROR: no $rondo; build it first"; exit 1; }
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
for name in $(compgen -e RONDO_ | grep -vE "^RONDO_(BUILD|TESTS|TEST_.*)$"); do unset "$name"; done
unset NO_COLOR
export LC_ALL=C.UTF-8 TERM=xterm-256color

fail() { echo "ERROR: $1"; shift; for f in "$@"; do echo "--- $f"; head -c 1500 "$f"; done; failed=1; }
go() { timeout -k 1 30 "$rondo" teach "$@" >out 2>err </dev/null; rc=$?; }

golden() { # FILE arguments...
    local file=$1; shift
    go "$@" --color never
    [ $rc = 0 ] || fail "teach $*: exit status $rc" err
    diff "$here/teach/$file.txt" out >diff || fail "teach $* is not $file.txt" diff
}

pages() {
    for n in 2 3 4 8; do golden ring-$n -n $n; done
    golden flat-4-of-10 -n 4 -c 10 --algo flat
    golden exchange-3 -n 3 --algo exchange
    RONDO_TRANSPORT=tcp golden ring-3 -n 3
    LC_ALL=C golden ascii-3-of-2 -n 3 -c 2
    LC_ALL=C tr -d '\t\n -~' <out | grep -q . && fail "not ASCII where the terminal has nothing else"
}

# Every number of ranks, large numbers too, on 80 columns and 25 rows.
width() {
    local n algo some="2 3 4 5 6 7 8"
    case $(basename "$build") in asan|tsan) some="5 8" ;; esac
    for n in $some; do for algo in ring flat exchange; do
        go -n $n -c 1000 --algo $algo --color never; [ $rc = 0 ] || fail "teach -n $n --algo $algo: $rc" err
        cat out
    done; done >all
    python3 - <<'P' || fail "it does not fit"
wide = [l for l in open("all", encoding="utf-8").read().split("\n") if len(l) > 80]
pages = open("all", encoding="utf-8").read().split("\nStep ")
tall = [p for p in pages if p.split("\n\n✓ Every rank")[0].count("\n") > 25]
for l in wide[:3] + tall[:1]: print(l)
raise SystemExit(bool(wide or tall))
P
}

colour() {
    go -n 5 --color never; mv out plain
    grep -q $'\033' plain && fail "--color never has colours"
    go -n 5; cmp -s out plain || fail "a file gets colours"
    go -n 5 --color always
    grep -q $'\033\[' out || fail "--color always has none"
    sed 's/\x1b\[[0-9;]*m//g' out | cmp -s - plain || fail "colours change the text"
}

misuse() {
    local words
    for words in "-n 1" "-n 9" "-n x" "-c 0" "-c 1001" "--algo tree" "--color blue" "--stepp" "-x" "4" "--step" "-n"; do
        go $words; [ $rc = 2 ] && [ -s err ] && [ ! -s out ] || fail "teach $words: status $rc, expected 2" out err
    done
    go --stepp; grep -q "did you mean '--step'" err || fail "no near option is named" err
    go --help; [ $rc = 0 ] && grep -q "^usage: rondo teach" out || fail "teach --help"
}

# What it shows is not worked out a second time.
computes='rondo_(plan_|step_|ring_|chunk|split)[a-z_]*\('
no_schedule() { grep -nE "$computes" "$root"/src/cli/teach*.c && fail "teach computes a schedule"; }

terminal() {
    timeout -k 1 60 python3 "$here/teach/terminal.py" "$rondo" >log 2>&1 || fail "on a terminal" log
}

# A copy of the library and the tool with a fault in the plan; only what computes with the plan is compiled again, and
# that is not the lesson.
plant() { # SED
    local source o tool=()
    mkdir -p include; rm -f ./*.o
    sed -e "$1" "$root/include/rondo_plan.h" >include/rondo_plan.h
    if cmp -s include/rondo_plan.h "$root/include/rondo_plan.h"; then
        fail "the place of the fault is gone from rondo_plan.h: $1"; return 1
    fi
    for source in $(grep -lE "$computes" "$root"/src/ring/*.c "$root"/src/core/*.c); do
        o=$(basename "$source" .c).o
        ${CC:-cc} -std=c11 -O0 -w -pthread -D_GNU_SOURCE -Iinclude -I"$root/include" -I"$root/src" \
            -c "$source" -o "$o" 2>log || { fail "the faulty copy does not compile" log; return 1; }
    done
    for source in "$root"/src/cli/*.c; do tool+=("$build/obj/src/cli/$(basename "$source" .c).o"); done
    ${CC:-cc} -pthread -o rondo "${tool[@]}" ./*.o "$build/librondo.a" -ljson-c -lhwloc -lsodium -lm \
        2>log || { fail "the faulty copy does not link" log; return 1; }
}
shows() { # NAME PATTERN-OF-THE-STEP PATTERN-OF-THE-END
    timeout -k 1 60 ./rondo teach -n 4 --color never >out 2>err </dev/null; rc=$?
    [ $rc = 1 ] || fail "$1: status $rc, expected 1" out err
    grep -qE -- "$2" out || fail "$1: the step does not show '$2'" out err
    tail -4 out | grep -qE -- "$3" || fail "$1: the end does not say '$3'" out err
}
faults() {
    case $(basename "$build") in asan|ubsan|tsan|coverage) echo "faults: not repeated here"; return ;; esac
    local rs='/rondo_step_ring_reduce_scatter(const/,/^}/ s' ag='/rondo_step_ring_all_gather(const/,/^}/ s'
    local chunk='_chunk = rondo_ring_rank(p, (int64_t)p->position'
    local sum='^✗ rank [0-9] holds [0-9]+ as number [0-9]+; the sum is [0-9]+'
    plant "$rs/send$chunk - 1 - s/send$chunk - 2 - s/" && {
        shows "a wrong chunk is sent" '^! rank 0 sent chunk 2, and rank 1 took it for chunk 3' "$sum"
        tail -4 out | grep -q '^✓ Every rank really holds what its trace says' ||
            fail "a wrong chunk: not explained by its trace" out
    }
    plant "$ag/RONDO_REPLACE/RONDO_REDUCE/" &&
        shows "all-gather adds" '^! chunk [0-9] at rank [0-9] now has the term of rank [0-9] twice' "$sum"
    plant "$rs/send_own = t.recv_own = s == 0/send_own = t.recv_own = s <= 1/" && shows "not what it received is sent" \
        '^! chunk [0-9] at rank [0-9] is called finished without rank' \
        '^✗ rank [0-9] holds [0-9]+ as number [0-9]+; by its trace it would be'
}

pages
width
colour
misuse
no_schedule
terminal
faults
[ $failed = 0 ] && echo "teach: as it should be"
exit $failed
