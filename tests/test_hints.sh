#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_hints.sh - what a newcomer asks for or gets wrong: every example has a help, and a setting that cannot be had says
# what to do instead. RONDO_BUILD names the build directory.
set -u
build=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}") here=$(realpath "$(dirname "$0")/..")
[ -x "$build/rondo" ] || { echo "ERROR: no $build/rondo; build it first"; exit 1; }
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
fail() { echo "ERROR: $1"; shift; for f in "$@"; do echo "--- $f"; head -c 800 "$f"; done; failed=1; }
ranks() { timeout -k 1 60 "$build/rondo" run "$@" >out 2>err </dev/null; } # options... -- program...

for example in "$build"/examples/{hello,verify,train_digits,train_text} "$here/examples/demo.sh"; do
    for option in -h --help; do
        timeout -k 1 10 "$example" $option >out 2>err </dev/null || fail "$example $option: not 0" out err
        [ -s out ] && [ ! -s err ] || fail "$example $option: belongs on standard output" out err
    done
done
for example in "$build"/examples/{verify,train_digits,train_text} "$here/examples/demo.sh"; do
    timeout -k 1 10 "$example" --wrong >out 2>err </dev/null; rc=$?
    [ $rc = 2 ] || fail "$example --wrong: status $rc, expected 2" out err
done

# A transport that does not reach.
RONDO_TRANSPORT=loop ranks -n 2 -- "$build/examples/hello" && fail "loop between processes" out err
grep -q 'loop was asked for, .* in two processes; unset RONDO_TRANSPORT, or set it to shm or tcp' err ||
    fail "loop between processes: no word on what to do" err

# Records that could not be written: said before there is one.
: >file
RONDO_RECORD=file ranks -n 2 -- "$build/examples/hello" || fail "RONDO_RECORD is a file" out err
grep -q 'WARN: RONDO_RECORD=file: no records can be written there: Not a directory' err || fail "RONDO_RECORD is a file" err
RONDO_RECORD=new ranks -n 2 -- "$build/examples/hello" && [ -d new ] && [ ! -s err ] || fail "RONDO_RECORD is made" out err

# A setting that is none, or has no such value: one rank says it, and what is nearest.
RONDO_CHANELS=2 RONDO_ALGO=rong RONDO_NOTHING_LIKE_IT=1 ranks -n 4 -- "$build/examples/hello" || fail "bad settings" out err
[ "$(grep -c WARN err)" = 3 ] && grep -q 'RONDO_CHANELS is not a setting, .* RONDO_CHANNELS?; rondo doctor lists all' err &&
    grep -q 'did you mean ring?' err && grep -q 'RONDO_NOTHING_LIKE_IT is not a setting, ignored; rondo doctor' err ||
    fail "bad settings: once for all ranks" err
RONDO_DEBUG=INFO RONDO_CHANELS=2 ranks -n 4 -- "$build/examples/hello"
[ "$(grep -c 'INFO: RONDO_CHANELS' err)" = 3 ] || fail "bad settings: the others say it when asked" err

# Flat where it cannot be: why.
RONDO_ALGO=flat RONDO_FLAT_RANKS=2 ranks -n 3 -- "$build/examples/hello" && fail "flat, too many ranks" out err
grep -q 'RONDO_ALGO=flat is for at most 2 ranks (RONDO_FLAT_RANKS), and there are 3' err || fail "flat, too many ranks" err
RONDO_ALGO=exchange RONDO_TRANSPORT=tcp ranks -n 3 -- "$build/examples/hello" && fail "exchange over TCP" out err
grep -q 'RONDO_ALGO=exchange needs .* over tcp (RONDO_TRANSPORT asks for it)' err || fail "exchange over TCP" err
[ $failed = 0 ] && echo "hints: all well"
exit $failed
