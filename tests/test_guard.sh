#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_guard.sh - calls take the instructions that bench/guard.txt says; and other figures than those are found out.
set -u
case $(basename "${RONDO_BUILD:-build}") in # these are other code
asan|ubsan|tsan|coverage|build-asan) echo "not counted for ${RONDO_BUILD##*/}: make check does it"; exit 0 ;;
esac
here=$(realpath "$(dirname "$0")") build=$(realpath "${RONDO_BUILD:-build}")
if ! command -v valgrind >/dev/null; then
    echo "SKIPPED: no valgrind; make check installs it where it can (apt-get install valgrind)"; exit 0
fi
if ! grep -qw avx2 /proc/cpuinfo; then
    echo "SKIPPED: the figures are those of AVX2 kernels, which this processor lacks"; exit 0
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

timeout 60 "$here/../bench/guard.py" "$build" >"$work/as-is" 2>&1; rc=$?
cat "$work/as-is"
[ $rc = 0 ] || exit 1
if grep -q '^not compared' "$work/as-is"; then exit 0; fi # made by another compiler

# A figure 4 % up, one 2 % up, one allocation more, one without a figure, one without a call.
awk '$1 == "#" || $1 == "compiler" { print; next }
     /all_reduce, 8 B, 2 ranks, ring/ { $1 = int($1 * 1.04) } /all_reduce, 8 B, 2 ranks, flat/ { $1 = int($1 * 1.02) }
     /broadcast, 8 B, 2 ranks/ { $2 += 1 } !/send.recv, 8 B/ { print } END { print "100 1.0 gather, 8 B, 2 ranks" }' \
    "$here/../bench/guard.txt" >"$work/wrong.txt"
timeout 60 "$here/../bench/guard.py" "$build" --figures "$work/wrong.txt" >"$work/out" 2>&1; rc=$?
found=$(sed -n 's/  <-- off$//p' "$work/out" | sed 's/.*  //' | sort | tr '\n' ';')
expected='all_reduce, 8 B, 2 ranks, ring;broadcast, 8 B, 2 ranks;gather, 8 B, 2 ranks;send/recv, 8 B, 2 ranks;'
if [ $rc != 1 ] || [ "$found" != "$expected" ] || ! grep -q 'make bench-guard ACCEPT=1' "$work/out"; then
    echo "FAILED: with wrong figures exit $rc, not 1; found: $found"; cat "$work/out"; exit 1
fi
echo "four wrong figures are found, and no others"
