#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verbs.sh BUILD - Rondo over RDMA beside perftest on the same pair of devices. In the guest:
#   tests/vm/guest bench/verbs.sh build
# RONDO_TEST_RDMA names the devices, each with "=", as in tests/vm/suite.sh. Needs perftest.
set -eu
build=$1 first= second=
read -r first second <<<"${RONDO_TEST_RDMA:-=rxe0 =rxe1}"
address=${ADDRESS:-192.0.2.1} # of the first device

pair() { # PROGRAM OPTIONS...: its last line of figures
    "$1" -d "${first#=}" -F "${@:2}" >/dev/null 2>&1 &
    local server=$!
    sleep 2
    "$1" -d "${second#=}" -F "${@:2}" "$address" | grep -E '^ *[0-9]+ ' | tail -n 1
    wait $server
}
rank() { # 0 or 1, with a device each
    RANK=$1 RONDO_RDMA_DEVICE=$2 "${@:3}"
}
ours() { # OPTIONS...: the last line of figures
    export RONDO_TRANSPORT=verbs WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29411
    rank 1 "$second" "$build/rondo" bench "$@" >/dev/null &
    local other=$!
    rank 0 "$first" "$build/rondo" bench "$@" | grep -E '^ *[0-9]+ ' | tail -n 1
    wait $other
}
echo "ib_write_lat 8 B (us: min max typical average):  $(pair ib_write_lat -s 8 -n 2000 | awk '{print $3, $4, $5, $6}')"
echo "rondo all_reduce 8 B, a hop each way at once (us: min median): $(ours all_reduce -b 8 -e 8 | awk '{print $5, $6}')"
for size in 1048576 4194304; do
    echo "ib_write_bw -b 128 KiB (MB/s, both ways):  $(pair ib_write_bw -b -s 131072 -n 400 | awk '{print $4}')"
    echo "rondo all_gather $size B (algbw busbw GB/s): $(ours all_gather -b $size -e $size | awk '{print $8, $9}')"
    echo "rondo all_reduce $size B (algbw busbw GB/s): $(ours all_reduce -b $size -e $size | awk '{print $8, $9}')"
done
