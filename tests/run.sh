#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD - runs every test binary BUILD/tests/test_* and every script tests/test_*.sh, two at a time, each with a
# deadline, and ends with "N passed, M failed". ONLY=pattern runs those whose name matches.
set -u
[ -d "${1-}" ] || { echo "usage: ${0} BUILD, a folder that make has built, for example build" >&2; exit 2; }
build=$(realpath "$1") here=$(realpath "$(dirname "$0")")
jobs=${JOBS:-2} deadline=${DEADLINE:-300}
logs=$build/logs; rm -rf "$logs"; mkdir -p "$logs"
export RONDO_BUILD=$build RONDO_TESTS=$here
# A sanitizer's finding is a failure wherever it happens, in children too. On the simulated driver kernels' shared memory is
# thread-local; the leak check takes some of it for larger than it is, and crashes, unless it doesn't look there.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=99:intercept_tls_get_addr=0 TSAN_OPTIONS=exitcode=99:halt_on_error=1 UBSAN_OPTIONS=print_stacktrace=1

one() { # NAME COMMAND...
    local name=$1 start=$SECONDS rc; shift
    timeout -k 5 "$deadline" "$@" >"$logs/$name.log" 2>&1 </dev/null; rc=$?
    if [ $rc = 0 ]; then echo "ok    $name ($((SECONDS - start)) s)"; echo p >>"$logs/.passed"
    else
        echo "FAIL  $name (exit $rc$([ $rc = 124 ] && echo ", over its deadline of $deadline s"), $((SECONDS - start)) s)"
        grep -aE 'FAILED|ERROR|error:|WARNING: ThreadSanitizer|SUMMARY|rondo\[' "$logs/$name.log" | head -25 | sed 's/^/      /'
        echo "      whole log: $logs/$name.log"; echo f >>"$logs/.failed"
    fi
}
export -f one; export logs deadline
list=$(for t in "$build"/tests/test_* "$here"/test_*.sh; do [ -x "$t" ] && [ ! -d "$t" ] && echo "$t"; done)
[ -z "${ONLY-}" ] || list=$(grep -E "$ONLY" <<<"$list")
# Those that measure time, or look for what is left behind, run alone, last.
alone=$(grep -E 'test_(speed|timing|places)' <<<"$list"); list=$(grep -vE 'test_(speed|timing|places)' <<<"$list")
xargs -r -P "$jobs" -I{} bash -c 'one "$(basename {})" {}' <<<"$list"
[ -z "$alone" ] || xargs -r -P 1 -I{} bash -c 'one "$(basename {})" {}' <<<"$alone"
passed=$(cat "$logs/.passed" 2>/dev/null | wc -l) failed=$(cat "$logs/.failed" 2>/dev/null | wc -l)
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
