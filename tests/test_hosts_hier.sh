#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_hosts_hier.sh - hierarchical all-reduces on several hosts: right results, what crosses each network, the shares of
# several cards, and that they beat the ring where the model says so (networks are slowed down by tbf).
# RONDO_BUILD names the build directory.
set -u
. "$(dirname "$0")/hosts.sh"
hosts_begin
calls=$hosts_build/tests/test_hosts_calls
count=2000003
hier() { RONDO_ALGO=hier job "$@"; }

# HOST NICS H WHAT: of one message, 2(H-1)/H have left by these NICs together, by each as much as by the others
shares() {
    local want all nics bytes ok=0
    read -ra nics <<<"$2"; mapfile -t all < <(counted "$1" "$2")
    want=$((2 * ($3 - 1) * 4 * count / $3 / ${#nics[@]}))
    for bytes in "${all[@]}"; do
        [ "$bytes" -ge $((want - want / 50)) ] && [ "$bytes" -le $((want + want / 12 + 80000)) ] || ok=1
    done
    say $ok "$4: $1 sends $want bytes by each of $2: ${all[*]}"
}

host a b c
network red 10.1.0.1/24 a:eth0 b:eth0 c:eth0
for shape in "2 a:2 b:2" "2 a:4 b:4" "3 a:3 b:3 c:3"; do
    read -r hosts ranks <<<"$shape"
    for h in a b; do counted $h eth0 >/dev/null; done
    hier $ranks -- "$verify" -c $count -r 1; say $? "$ranks"
    for h in a b; do shares $h eth0 "$hosts" "$ranks"; done
done
RONDO_DEBUG=INFO job a:2 b:2 -- "$verify" -c $count -r 1; say $? "of its own accord"
grep -q 'hierarchical all-reduces: 2 hosts of 2 ranks' "$tmp/rank.0"; say $? "of its own accord: says so"
for h in a b; do counted $h eth0 >/dev/null; done
RONDO_ALGO=ring job a:2 b:2 -- "$verify" -c $count -r 1; say $? "RONDO_ALGO=ring"
[ "$(counted a eth0)" -gt $((11 * count / 2)) ]; say $? "RONDO_ALGO=ring: the flat ring, whose bytes are more"

# Unequal hosts, or one rank each: said, and the ring.
RONDO_DEBUG=INFO job a:2 b:1 -- "$verify" -c 1003; say $? "2 + 1"
grep -q 'INFO: all-reduces are not hierarchical: host h-a has 2 ranks, and h-b has 1' "$tmp/rank.0"; say $? "2 + 1: says why"
hier a:1 b:1 -- "$verify" -c 1003; say $? "1 + 1"
grep -q 'WARN: all-reduces are not hierarchical, though RONDO_ALGO=hier .* each host has one rank' "$tmp/rank.0"
say $? "1 + 1: warns, where it was asked for"
hier a:3 -- "$verify" -c 1003 && grep -q 'all ranks share one host' "$tmp/rank.0"; say $? "one host: warns"

# Every call, with children that have other shapes; ranks that are not in the order of hosts; tcp inside hosts.
hier a:2 b:2 c:2 -- "$calls" 24 500; say $? "every call, 3 x 2"
RONDO_CHANNELS=3 hier a:3 b:3 -- "$calls" 12 600; say $? "every call, 2 x 3, 3 channels"
RONDO_TRANSPORT=tcp hier a:2 b:2 -- "$calls" 12 700; say $? "every call, tcp inside hosts, too"
hier a:1 b:1 a:1 b:1 -- "$calls" 12 800; say $? "every call, ranks of hosts in turns"
RONDO_SLICE=4096 hier a:2 b:2 -- "$verify" -c $count -r 2; say $? "short slices"

# Rails spread over the cards, with as many as there are ranks, more, and fewer.
network blue 10.2.0.1/24 a:eth1 b:eth1 c:eth1
network green 10.3.0.1/24 a:eth2 b:eth2 c:eth2
all="eth0 eth1 eth2"
for ranks in 2 3 4; do
    for h in a b; do counted $h "$all" >/dev/null; done
    hier a:$ranks b:$ranks -- "$verify" -c $count -r 1; say $? "3 cards, $ranks ranks"
    for h in a b; do shares $h "$all" 2 "3 cards, $ranks ranks"; done
done
hosts_clear

# Slow networks: the ring carries 2(N-1)/N of the message by each host's network, the hierarchy 2(H-1)/H: of 2 x 4 ranks
# 1.75 and 1. Best of a few rounds each.
host a b
network red 10.1.0.1/24 a:eth0 b:eth0
nic a eth0 rate 400mbit; nic b eth0 rate 400mbit
best() { awk '/fastest/ {sub(".*rounds ", ""); print int($1 * 1000)}' "$tmp/rank.0"; } # microseconds
RONDO_ALGO=ring job a:4 b:4 -- "$verify" -c 1000003 -r 3; say $? "400 Mbit/s, ring"
ring=$(best)
job a:4 b:4 -- "$verify" -c 1000003 -r 3; say $? "400 Mbit/s, as it chooses"
chosen=$(best)
echo "4 MB on 2 hosts of 4 ranks, 400 Mbit/s: ring $ring us, as it chooses $chosen us"
# A sanitizer's time is the processor's, not the network's.
[ $hosts_slow != 1 ] || [ $((chosen * 115)) -lt $((ring * 100)) ]; say $? "400 Mbit/s: the hierarchy is faster than the ring by 15 % at least"

# Case 12 across hosts, whose ranks lie one after the other, and in turns
strict=$hosts_build/tests/test_case_12
for where in "a:2 b:2" "a:1 b:1 a:1 b:1"; do
    # shellcheck disable=SC2086 # words
    RONDO_NUMERICS=strict job $where -- "$strict"; say $? "strict sums, $where"
    [ "$(cat "$tmp"/rank.* | grep -c '^all right$')" = 4 ]; say $? "... on all ranks"
done

# A host that vanishes
export RONDO_TIMEOUT=3
RONDO_ALGO=hier job_start a:2 b:2 -- "$verify" -c 300007 -r 1000000
sleep 1; nic b eth0 down
job_wait; [ $? != 0 ]; say $? "a host vanishes: an error"
for r in 0 1; do
    grep -qE "rank [23] \(pid [0-9]+ on h-b\) does not answer" "$tmp/rank.$r"; say $? "a host vanishes: rank $r names it"
done
exit $failed
