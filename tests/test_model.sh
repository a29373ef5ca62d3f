#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_model.sh - has Spin search tests/model/link.pml: the model as it is must hold, and with any one line of the
# protocol taken out it must not. Prints a line for each.
set -u
case $(basename "${RONDO_BUILD:-build}") in # nothing of a sanitizer's build is in this
asan|ubsan|tsan|coverage) echo "not repeated for ${RONDO_BUILD##*/}: make check runs it"; exit 0 ;;
esac
model=$(realpath "$(dirname "$0")")/model/link.pml
command -v spin >/dev/null || { echo "FAILED  no spin here: apt-get install spin"; exit 1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
bad=0

# search PAN_FLAGS RUN_FLAGS SWITCHES...: exhaustive (no bitstate, no hash compaction); pan's words are in ./log.
search() {
    local pan=$1 run=$2; shift 2
    spin -a "$@" "$model" >log 2>&1 || return 1
    ${CC:-cc} -w $pan -DCOLLAPSE -DMEMLIM=1024 -o pan pan.c >>log 2>&1 || return 1
    timeout 120 ./pan -m5000 -w21 $run >log 2>&1
    grep -q 'errors: [0-9]' log && ! grep -qE 'search depth too small|out of memory|reached -DMEMLIM|truncated' log
}
states() { sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1 states/p' log; }
failed() { echo "FAILED  $1"; tail -40 log; bad=1; }

holds() { # WHAT PAN_FLAGS RUN_FLAGS SWITCHES...
    local what=$1; shift
    search "$@" && grep -q 'errors: 0' log || { failed "$what"; return; }
    # Every statement of the three threads was reached, or the search proved less than it seems.
    [ "$(grep -A1 -E 'unreached in proctype (sender|receiver|aborter)' log | grep -c '(0 of ')" = 3 ] ||
        { failed "$what: not every line of the model was reached"; return; }
    echo "holds   $what ($(states))"
}
breaks() { # WHAT SWITCHES...: the search must end in an error of the model, not in a failure of its own
    local what=$1; shift
    search "-O0 -DSAFETY" "" "$@" && grep -q 'errors: 1' log &&
        grep -qE 'pan:1: (invalid end state|assertion violated)' log || { failed "$what: no error found"; return; }
    echo "breaks  $what: $(sed -n 's/^pan:1: \(invalid end state\|assertion violated\).*/\1/p' log)"
}

holds 'the link, sleeping in a futex' "-O2 -DSAFETY" ""
holds 'the link, sleeping in epoll' "-O2 -DSAFETY" "" -DEPOLL -DSLOTS=1
holds 'the link has no infinite run' "-O2 -DNP" "-l" -DSLOTS=1 -DSLICES=2
breaks "without the waker's fence" -DNO_WAKER_FENCE
breaks "without the waker's fence, in epoll" -DNO_WAKER_FENCE -DEPOLL
breaks "without the sleeper's fence" -DNO_SLEEPER_FENCE
breaks "without the sleeper's fence, in epoll" -DNO_SLEEPER_FENCE -DEPOLL
breaks 'without the second look after arm' -DNO_SECOND_LOOK
breaks 'without a look at the stop word after arm' -DNO_STOP_LOOK
breaks 'without the credit test' -DNO_CREDIT
breaks 'without another look after closed was seen' -DNO_LOOK_AFTER_CLOSED
breaks 'with filled stored before the payload' -DEARLY_FILLED
breaks 'with freed stored before what the receiver leaves' -DEARLY_FREED
breaks 'if both ends were never to sleep and wake' -DSHOW_SLEEP
breaks 'if all slices were never to arrive' -DSHOW_DELIVERED
exit $bad
