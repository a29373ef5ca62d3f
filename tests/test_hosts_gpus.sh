#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_hosts_gpus.sh - hosts whose ranks have their buffers in GPU memory: every collective, all bytes checked, by slots in GPU
# memory inside a host and over TCP by staging between hosts; what crosses the network; hosts that differ. The hosts' GPUs have
# the same names and addresses, and must not be taken for one another. Over the simulated driver (tests/cudasim).
# RONDO_BUILD names the build directory.
set -u
. "$(dirname "$0")/hosts.sh"
[ -s "$(dirname "$0")/../build/kernels/all.fatbin" ] || { echo "no image of kernels"; exit 0; }
hosts_begin
calls=$hosts_build/tests/test_device
export RONDO_DEBUG=INFO RONDO_TIMEOUT=$((30 * hosts_slow))

log() { cat "$tmp"/rank.*; }
all_right() { [ "$(log | grep -c '^all right$')" = "$1" ]; } # RANKS
# WAY of each link from rank to rank: "0>1:cuda_ipc 1>2:tcp"
links() {
    local want link
    for link in $1; do
        want="rank ${link%%>*} -> rank $(cut -d'>' -f2 <<<"${link%:*}"): ${link#*:}[, ]"
        log | grep -q "INFO: $want" || { echo "the log does not say: $want"; return 1; }
    done
}

host a b
network red 10.1.0.1/24 a:eth0 b:eth0

# One rank on each: nothing but staging.
job a:1 b:1 -- "$calls"; say $? "a GPU on each of two hosts" && all_right 2 && links "0>1:tcp 1>0:tcp"; say $? "... which TCP joins"

# GPU memory inside each host, TCP between them: the ring crosses the network once each way.
job a:2 b:2 -- "$calls"; say $? "two GPUs on each host"
all_right 4 && links "0>1:cuda_ipc 1>2:tcp 2>3:cuda_ipc 3>0:tcp"; say $? "... cuda_ipc inside, TCP between"
RONDO_GPU_PEER=0 job a:2 b:2 -- "$calls"; say $? "through host memory inside, too"
all_right 4 && links "0>1:shm 1>2:tcp"; say $? "... shm inside, TCP between"
RONDO_TRANSPORT=tcp job a:2 b:2 -- "$calls"; say $? "TCP inside, too"
all_right 4 && links "0>1:tcp 1>2:tcp"; say $? "... TCP everywhere"

# Ranks that are not in the order of hosts; and the hosts' parts of the ring stay together.
job a:1 b:1 a:1 b:1 -- "$calls"; say $? "ranks of hosts in turns"
all_right 4 && [ "$(log | grep -c 'INFO: rank . -> rank .: cuda_ipc, since')" = 2 ]; say $? "... a pair of each host is joined by GPU memory"

# On a: two ranks of one GPU. On b: one with a GPU whose streams cannot store, one on the host.
# shellcheck disable=SC2016 # expanded there
job a:2 b:2 -- bash -c 'case $(hostname):$LOCAL_RANK in h-a:*) export CUDASIM=devices=1 ;;
    h-b:0) export CUDASIM="devices=2 no_memory_operations" ;; *) export RONDO_DEVICE=host ;; esac; exec "$0"' "$calls"
say $? "hosts that differ" && all_right 4 && log | grep -q 'rank 1: uses GPU 0' && links "0>1:cuda_ipc 1>2:tcp"
say $? "... two ranks on one GPU, one that waits for events, one on the host"

# Three all-reduces of 4 MB among four ranks: each network hop carries 2 * 3/4 of each, and a little more.
counted a eth0 >/dev/null
LD_LIBRARY_PATH=$hosts_build/cudasim CUDASIM=devices=2 job a:2 b:2 -- "$hosts_build/examples/all_reduce_cuda"
say $? "the example on two hosts" && [ "$(log | grep -c '1000000 sums over the GPU, 0 wrong')" = 4 ]; say $? "... and its sums"
bytes=$(counted a eth0) want=18000000
[ "$bytes" -ge $want ] && [ "$bytes" -le $((want + want / 10)) ]
say $? "... of whose bytes $bytes leave host a, of $want that must"
exit $failed
