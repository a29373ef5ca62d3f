#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite.sh BUILD - what `make check-verbs` runs in the guest, and `make check-verbs VERBS=native` on a machine with RDMA
# devices. RONDO_TEST_RDMA names the devices that the two sides of a link use (default: rxe0 and rxe1; one is enough).
set -u
build=$1 failed=0
export RONDO_TEST_RDMA=${RONDO_TEST_RDMA:-"=rxe0 =rxe1"}
log=$(mktemp); trap 'rm -f "$log"' EXIT

check() { # NAME SECONDS COMMAND...
    local name=$1 limit=$2 start=$SECONDS code; shift 2
    timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null; code=$?
    if [ $code = 0 ]; then echo "ok    $name ($((SECONDS - start)) s)"; return; fi
    echo "FAIL  $name (exit $code, $((SECONDS - start)) s)"; failed=1
    grep -avE '^\[( RUN|  *OK)' "$log" | tail -n 40 | sed 's/^/      /'
}

check "link conformance" 120 "$build/tests/test_link"
exit $failed
