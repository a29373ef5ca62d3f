#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite.sh BUILD - what `make check-verbs` runs in the guest, and `make check-verbs VERBS=native` on a machine with RDMA
# devices. RONDO_TEST_RDMA names the devices that the two sides of a link use (default: rxe0 and rxe1; one is enough).
# BUILD/asan, where it is there, has the same programs with the address sanitizer.
set -u
build=$1 failed=0
export RONDO_TEST_RDMA=${RONDO_TEST_RDMA:-"=rxe0 =rxe1"}
for name in $RONDO_TEST_RDMA; do
    device=${name#=}; device=${device%%:*}
    [ -e "/sys/class/infiniband/$device" ] && continue
    here=$(ls /sys/class/infiniband 2>/dev/null | tr '\n' ' ')
    echo "suite.sh: there is no RDMA device $device; this machine has ${here:-none}: name one or two by RONDO_TEST_RDMA=\"=mlx5_0 =mlx5_1\", or run make check-verbs, which brings its own"
    exit 1
done
export ASAN_OPTIONS=exitcode=99:detect_leaks=1
log=$(mktemp); trap 'rm -f "$log"' EXIT

check() { # NAME SECONDS COMMAND...
    local name=$1 limit=$2 start=$SECONDS code; shift 2
    timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null; code=$?
    if [ $code = 0 ]; then echo "ok    $name ($((SECONDS - start)) s)"; return; fi
    echo "FAIL  $name (exit $code, $((SECONDS - start)) s)"; failed=1
    grep -avE '^\[( RUN|  *OK)' "$log" | tail -n 40 | sed 's/^/      /'
}

check "link conformance" 180 "$build/tests/test_link"
check "user memory, keys, limits" 60 "$build/rdma/memory"
check "every collective at 2 ranks: bytes as over tcp and shm" 120 "$build/rdma/calls" test_two
check "the same at 4 ranks" 120 "$build/rdma/calls" test_four
check "link conformance, slots in GPU memory" 120 "$build/rdma/slots"
check "calls with slots in GPU memory" 150 "$build/rdma/gpu"
check "a waiting rank sleeps" 60 "$build/rdma/calls" test_sleeps
check "a killed peer" 60 "$build/rdma/calls" test_killed_peer

# The cable and the loopback interface are the guest's own, to be made worse.
if [ -n "${RONDO_TEST_GUEST-}" ]; then
    RONDO_BUILD=$build check "jobs between hosts, and such as lack RDMA" 120 "$(dirname "$0")/../rdma/hosts.sh"
    check "the port goes down in mid-call" 90 "$build/rdma/calls" test_link_down
    noise() { # TRANSPORT DEVICES... -- NETEM...
        local over=$1 devices=() device; shift
        while [ "$1" != -- ]; do devices+=("$1"); shift; done; shift
        for device in "${devices[@]}"; do tc qdisc replace dev "$device" root netem "$@" || failed=1; done
        RONDO_TEST_OVER=$over RONDO_RDMA_TIMEOUT=16 check "$over, netem $*" 90 "$build/rdma/calls" test_noise
        for device in "${devices[@]}"; do tc qdisc delete dev "$device" root; done
    }
    for how in "loss 1%" "loss 5%" "delay 1ms" "delay 1ms reorder 1%" "duplicate 5%"; do
        # shellcheck disable=SC2086
        { noise verbs rdma0 rdma1 -- $how; noise tcp lo -- $how; }
    done
fi

if [ -x "$build/asan/rdma/memory" ]; then
    check "address sanitizer: user memory, keys, limits" 90 "$build/asan/rdma/memory"
    check "address sanitizer: every collective at 2 ranks" 150 "$build/asan/rdma/calls" test_two
fi
exit $failed
