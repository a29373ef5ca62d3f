#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verbs.sh BUILD - Rondo over RDMA beside perftest on the same pair of devices. In the guest, on a quiet machine:
#   tests/vm/guest bench/verbs.sh build
# RONDO_TEST_RDMA names the devices, each with "=", as in tests/vm/suite.sh; ADDRESS: that of the first. Needs perftest.
set -eu
build=$1 first= second=
read -r first second <<<"${RONDO_TEST_RDMA:-=rxe0 =rxe1}"
second=${second:-$first} address=${ADDRESS:-192.0.2.1}

theirs() { # PROGRAM OPTIONS...: its last line of figures
    "$1" -d "${first#=}" -F "${@:2}" >/dev/null 2>&1 &
    local server=$!
    sleep 2
    "$1" -d "${second#=}" -F "${@:2}" "$address" 2>/dev/null | grep -E '^ *[0-9]+ ' | tail -n 1
    wait $server
}
export RONDO_TRANSPORT=verbs WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29411
RONDO_KEY=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'); export RONDO_KEY
ours() { # COMMAND...: its last line of figures, with two ranks, each on its device
    RANK=1 RONDO_RDMA_DEVICE=$second "$@" >/dev/null &
    local other=$!
    RANK=0 RONDO_RDMA_DEVICE=$first "$@" | grep -E '^ *[0-9]+ ' | tail -n 1
    wait $other
}
echo "latency of a hop, 8 bytes (us): ib_write_lat least, typical; rondo send/recv least, median"
for again in 1 2 3; do
    echo "  $(theirs ib_write_lat -s 8 -n 2000 | awk '{print $3, $5}'); $(ours "$build/bench/ping" 8 2000 | awk '{print $2, $3}')"
done
echo "both ways at once (MB/s), 4 MiB: ib_write_bw -b in pieces of 128 KiB; rondo all_gather; all_reduce (twice busbw, median)"
for again in 1 2 3; do
    echo "  $(theirs ib_write_bw -b -s 131072 -n 400 | awk '{print $4}');" \
        "$(ours "$build/rondo" bench all_gather -b 4M -e 4M | awk '{print $1 / $6}');" \
        "$(ours "$build/rondo" bench all_reduce -b 4M -e 4M | awk '{print 2 * $1 / $6}')"
done
