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

# A slice that is longer than sockets take: said once, and only to whom asked for it.
warned() { grep -c 'WARN: slices of [0-9]* bytes were asked for' err; }
hello() { ranks -n 3 -- "$build/examples/hello" || fail "hello" out err; }
RONDO_TRANSPORT=tcp RONDO_SLICE=262144 hello
[ "$(warned)" = 1 ] && grep -q 'slices of 262144 bytes .* 131072 is the most' err || fail "RONDO_SLICE over TCP" err
RONDO_TRANSPORT=tcp RONDO_SLICE=131072 hello; [ "$(warned)" = 0 ] || fail "RONDO_SLICE=131072 over TCP" err
RONDO_TRANSPORT=tcp hello; [ "$(warned)" = 0 ] || fail "no RONDO_SLICE over TCP" err
RONDO_TRANSPORT=shm RONDO_SLICE=262144 hello; [ "$(warned)" = 0 ] || fail "RONDO_SLICE over shared memory" err
[ $failed = 0 ] && echo "hints: all well"
exit $failed
