#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_hosts_nics.sh - which bytes go by which network card, counted by the kernel: channels use different cards, a host's
# ranks cross the network once in a ring; and hosts that differ in their cards, lose packets, or vanish. Every call on
# several hosts. RONDO_BUILD names the build directory.
set -u
. "$(dirname "$0")/hosts.sh"
hosts_begin
calls=$hosts_build/tests/test_hosts_calls
count=2000003

# What one all-reduce of $count float32 puts on a host's cards in each direction: 2(N-1)/N of the message, whatever the
# number of ranks on the host.
payload() { echo $((2 * ($1 - 1) * 4 * count / $1)); } # N
# HOST NICS N WHAT: since the last count each of the NICs has sent its share of the message, and headers
shares() {
    local bytes sum=0 want all=() nics=() ok=0
    read -ra nics <<<"$2"; mapfile -t all < <(counted "$1" "$2")
    want=$(($(payload "$3") / ${#nics[@]}))
    for bytes in "${all[@]}"; do
        sum=$((sum + bytes))
        [ "$bytes" -ge $((want - want / 50)) ] && [ "$bytes" -le $((want + want / 12 + 60000)) ] || ok=1
    done
    say $ok "$4: $1 sends $want bytes by each of $2: ${all[*]}"
}

# ---- one network: a ring crosses it once, in each direction, whatever the number of ranks
host a b c
network red 10.1.0.1/24 a:eth0 b:eth0 c:eth0
for ranks in 1 2 4; do
    for h in a b; do counted $h eth0 >/dev/null; done
    RONDO_ALGO=ring job a:$ranks b:$ranks -- "$verify" -c $count -r 1; say $? "2 hosts with $ranks ranks each"
    for h in a b; do shares $h eth0 $((2 * ranks)) "2 x $ranks"; done
done
for h in a b c; do counted $h eth0 >/dev/null; done
RONDO_ALGO=ring job a:3 b:1 c:2 -- "$verify" -c $count -r 1; say $? "3 hosts with 3, 1 and 2 ranks"
for h in a b c; do shares $h eth0 6 "3 + 1 + 2"; done

# ---- three networks: a channel on each, without being asked
network blue 10.2.0.1/24 a:eth1 b:eth1 c:eth1
network green 10.3.0.1/24 a:eth2 b:eth2 c:eth2
all="eth0 eth1 eth2"
for h in a b c; do counted $h "$all" >/dev/null; done
RONDO_ALGO=ring RONDO_DEBUG=INFO job a:2 b:2 -- "$verify" -c $count -r 1; say $? "3 networks"
grep -q ' 3 channels' "$tmp/rank.0"; say $? "3 networks: 3 channels"
for h in a b; do shares $h "$all" 4 "3 networks"; done
counted c "$all" >/dev/null
RONDO_ALGO=ring job a:1 b:2 c:1 -- "$verify" -c $count -r 1; say $? "3 networks, 3 hosts"
for h in a b c; do shares $h "$all" 4 "3 networks, 3 hosts"; done
RONDO_ALGO=ring RONDO_CHANNELS=2 job a:2 b:2 -- "$verify" -c $count -r 1; say $? "2 channels of 3 networks"
shares a "eth0 eth1" 4 "2 channels"
for h in a b c; do counted $h "$all" >/dev/null; done

# ---- every call, and on demand, between 3 hosts
job a:2 b:1 c:2 -- "$calls" 24 100; say $? "every call on 3 hosts"
RONDO_TRANSPORT=tcp job a:2 b:2 -- "$calls" 12 200; say $? "every call, tcp within hosts, too"

# ---- a card that is down, or has no cable
for h in a b c; do counted $h "$all" >/dev/null; done
nic b eth1 down
RONDO_ALGO=ring job a:2 b:2 -- "$verify" -c $count -r 1; say $? "one card down"
for h in a b; do shares $h "eth0 eth2" 4 "one card down"; done
nic b eth1 up; nic a eth2 unplugged; sleep 0.2
RONDO_ALGO=ring job a:2 b:2 -- "$verify" -c $count -r 1; say $? "another without a cable"
for h in a b; do shares $h "eth0 eth1" 4 "another without a cable"; done
hosts_clear

# ---- hosts with 3, 2 and 1 cards; and a network for each pair of hosts, none for all
host a b c
network red 10.1.0.1/24 a:eth0 b:eth0 c:eth0
network blue 10.2.0.1/24 a:eth1 b:eth1
network green 10.3.0.1/24 a:eth2
rm -f "$tmp"/sent.*; for h in a b c; do counted $h eth0 >/dev/null; done
RONDO_ALGO=ring job a:1 b:1 c:1 -- "$verify" -c $count -r 1; say $? "3, 2 and 1 cards"
for h in b c; do shares $h eth0 3 "3, 2 and 1 cards"; done
hosts_clear
host a b c
network ab 10.1.0.1/24 a:eth0 b:eth0
network bc 10.2.0.1/24 b:eth1 c:eth0
network ca 10.3.0.1/24 c:eth1 a:eth1
echo "10.1.0.1 h-a" >"$tmp/b.hosts"; echo "10.3.0.2 h-a" >"$tmp/c.hosts"; echo "127.0.1.1 h-a" >"$tmp/a.hosts"
rm -f "$tmp"/sent.*; counted a eth0 >/dev/null; counted b eth1 >/dev/null; counted c eth1 >/dev/null
HOSTS_MASTER=h-a RONDO_ALGO=ring job a:2 b:2 c:2 -- "$verify" -c $count -r 1; say $? "a network for each pair"
shares a eth0 6 "a network for each pair"; shares b eth1 6 "a network for each pair"; shares c eth1 6 "a network for each pair"
HOSTS_MASTER=h-a job a:1 b:2 c:1 -- "$calls" 12 300; say $? "a network for each pair: every call"
rm "$tmp"/*.hosts
hosts_clear

# ---- two cards on one network: Linux would send by the first anyway
host a b
network red 10.1.0.1/24 a:eth0 b:eth0 a:eth1 b:eth1
rm -f "$tmp"/sent.*; for h in a b; do counted $h "eth0 eth1" >/dev/null; done
RONDO_ALGO=ring job a:2 b:2 -- "$verify" -c $count -r 1; say $? "two cards on one network"
for h in a b; do shares $h eth0 4 "two cards on one network"; done
hosts_clear

# ---- IPv6 alone, twice; 8 hosts; loss
host a b
network red fd00:1::1/64 a:eth0 b:eth0
network blue fd00:2::1/64 a:eth1 b:eth1
rm -f "$tmp"/sent.*; for h in a b; do counted $h "eth0 eth1" >/dev/null; done
RONDO_ALGO=ring job a:2 b:2 -- "$verify" -c $count -r 1; say $? "IPv6"
for h in a b; do shares $h "eth0 eth1" 4 IPv6; done
nic a eth0 loss 20; nic b eth1 loss 20
job a:2 b:2 -- "$verify" -c 300007 -r 1; say $? "2 % of what comes in is lost"
hosts_clear
host h1 h2 h3 h4 h5 h6 h7 h8
network red 10.1.0.1/24 h1:eth0 h2:eth0 h3:eth0 h4:eth0 h5:eth0 h6:eth0 h7:eth0 h8:eth0
job h1:1 h2:1 h3:1 h4:1 h5:1 h6:1 h7:1 h8:1 -- "$calls" 6 400; say $? "every call on 8 hosts"

# ---- a host that vanishes is told by name
export RONDO_TIMEOUT=3
start=$SECONDS
job_start h1:1 h2:2 h3:1 -- "$verify" -c 300007 -r 1000000
sleep 1; nic h2 eth0 down
job_wait; [ $? != 0 ]; say $? "a host vanishes: an error"
[ $((SECONDS - start)) -le $((8 * hosts_slow)) ]; say $? "a host vanishes: at the timeout"
for r in 0 3; do
    grep -qE "rank [12] \(pid [0-9]+ on h-h2\) does not answer" "$tmp/rank.$r"; say $? "a host vanishes: rank $r names it"
done
exit $failed
