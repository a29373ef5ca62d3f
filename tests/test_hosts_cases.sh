#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_hosts_cases.sh - how hosts find each other: cases 22 (a host's name leads to itself), 23 (several interfaces, one
# network in common), 24 (nothing but loopback), 25 (interfaces by name) and 29 (one host is proved), and others of their
# kinds. RONDO_BUILD names the build directory.
set -u
. "$(dirname "$0")/hosts.sh"
hosts_begin

log() { cat "$tmp"/rank.*; }
job_logged() { RONDO_DEBUG=INFO job "$@"; }
no_tcp() { ! log | grep -q ' tcp, since'; }
moved() { # HOST NIC BEFORE: more than a 4 MB message's share went that way
    [ $(($(sent "$1" "$2") - $3)) -gt 1000000 ]
}

# ---- case 22: each host's own name is 127.0.1.1 to itself, as Debian's installer writes it
host a b
network red 10.1.0.1/24 a:eth0 b:eth0
printf '127.0.0.1 localhost\n127.0.1.1 h-a\n10.1.0.2 h-b\n' >"$tmp/a.hosts"
printf '127.0.0.1 localhost\n127.0.1.1 h-b\n10.1.0.1 h-a\n' >"$tmp/b.hosts"
HOSTS_MASTER=h-a job_logged a:2 b:2 -- "$verify" -c 100003; say $? "case_22: MASTER_ADDR is the host's name"
! log | grep -q 'at 127\.'; say $? "case_22: nobody is sent to 127.0.1.1"
job a:2 b:2 -- "$verify" -c 100003; say $? "case_22: MASTER_ADDR is an address"
for node in 0 1; do
    on $([ $node = 0 ] && echo a || echo b) timeout 30 "$hosts_build/rondo" run -n 4 --nnodes 2 --node-rank $node \
        --master-addr h-a --master-port 29571 -- "$verify" -c 100003 >"$tmp/rank.$node" 2>&1 &
    pids[node]=$!
done
wait "${pids[0]}" && wait "${pids[1]}"; say $? "case_22: rondo run on both"
printf '127.0.0.1 localhost h-a h-b\n' >"$tmp/a.hosts"; cp "$tmp/a.hosts" "$tmp/b.hosts"
job a:1 b:1 -- "$verify" -c 1003; say $? "case_22: all names are localhost, in vain"
rm "$tmp"/*.hosts
hosts_clear

# IPv6 alone, and IPv6 beside an IPv4 network that only one of them has
host a b
network red fd00:1::1/64 a:eth0 b:eth0
job_logged a:2 b:2 -- "$verify" -c 100003; say $? "case_22: IPv6 alone"
log | grep -q 'at \[fd00:1::2\]:[0-9]* from eth0 by network fd00:1::/64'; say $? "case_22: ... and says so"
nic a eth0 address 10.7.0.1/24
HOSTS_MASTER=fd00:1::1 job a:1 b:1 -- "$verify" -c 1003; say $? "case_22: IPv4 on one of them only"
hosts_clear

# Containers: the only way out is called as those that lead nowhere are elsewhere.
host a b
network red 10.1.0.1/24 a:veth0 b:br-lan
job a:2 b:2 -- "$verify" -c 100003; say $? "case_22: hosts that have a veth and a bridge, and no more"
hosts_clear

# ---- case 23: three interfaces, one network in common, and the same bridges on all
host a b c
network common 10.9.0.1/24 a:eth2 b:eth1 c:eth0
for h in a b c; do
    network "x$h" "10.2$((0x$h)).0.1/24" "$h:eth5" # a network of its own
    network "y$h" 192.168.0.1/24 "$h:eth6" # as if each were behind a router of its own
    nic $h docker0 bridge 172.17.0.1/16
    nic $h cbr0 bridge 172.18.0.1/16 # whose name says nothing
done
before=$(sent b eth1)
HOSTS_MASTER=10.9.0.1 job_logged a:2 b:2 c:1 -- "$verify" -c 1000003; say $? "case_23: the common network"
log | grep -q 'rank 0 reaches rank 2 at 10.9.0.2:[0-9]* from eth2 by network 10.9.0.0/24, the one that both are on'
say $? "case_23: the log says which and why"
log | grep -q 'not 192.168.0.1:[0-9]*: this machine has that, too'; say $? "case_23: ... and why not the others"
moved b eth1 "$before"; say $? "case_23: the bytes went there"
for h in a b c; do ip -n "$hosts_run-$h" route add default dev eth5; done
HOSTS_MASTER=10.9.0.1 job a:1 b:1 c:1 -- "$verify" -c 1003; say $? "case_23: with default routes that lead nowhere"
hosts_clear

# Bridges that look like one network and are two: other addresses, the same subnet
host a b
network red 10.1.0.1/24 a:eth0 b:eth0
nic a cbr0 bridge 172.18.0.1/16; nic b cbr0 bridge 172.18.0.2/16
ip -n "$hosts_run-a" link add p0 type veth peer name p1; ip -n "$hosts_run-a" link set p0 master cbr0 up; ip -n "$hosts_run-a" link set p1 up
ip -n "$hosts_run-b" link add p0 type veth peer name p1; ip -n "$hosts_run-b" link set p0 master cbr0 up; ip -n "$hosts_run-b" link set p1 up
start=$SECONDS
HOSTS_MASTER=10.1.0.1 job a:2 b:2 -- "$verify" -c 100003; say $? "case_23: two networks that look like one"
[ $((SECONDS - start)) -lt $((15 * hosts_slow)) ]; say $? "case_23: ... found out in time"
hosts_clear

# ---- case 25: interfaces by name
host a b
network red 10.1.0.1/24 a:eth0 b:eth0
network blue 10.2.0.1/24 a:eth1 b:eth1
network green 10.3.0.1/24 a:ib0 b:ib0
network virtual 172.17.0.1/16 a:docker0 b:docker0
network machines 192.168.122.1/24 a:virbr0 b:virbr0
network pairs 10.4.0.1/24 a:veth77 b:veth77
goes_by() { # INTERFACES NICS: with this RONDO_INTERFACE, the message goes by some of these NICs and by no others
    local nic before=() all="eth0 eth1 ib0 docker0 virbr0 veth77" i=0 wrong=0 any=0
    for nic in $all; do before+=("$(sent a "$nic")"); done
    RONDO_INTERFACE=$1 job a:1 b:1 -- "$verify" -c 1000003 || wrong=1
    for nic in $all; do
        if moved a "$nic" "${before[i]}"; then
            case " $2 " in *" $nic "*) any=1 ;; *) echo "$nic carried the message"; wrong=1 ;; esac
        fi
        i=$((i + 1))
    done
    [ $wrong = 0 ] && [ $any = 1 ]; say $? "case_25: RONDO_INTERFACE=$1 goes by $2"
}
goes_by "" "eth0 eth1 ib0"
goes_by "eth1" "eth1"
goes_by "=eth0" "eth0"
goes_by "ib" "ib0"
goes_by "^eth" "ib0"
goes_by "^=eth0,ib0" "eth1"
goes_by "ib,eth1" "ib0 eth1"
goes_by "docker0" "docker0"
goes_by "=veth77" "veth77"
# The rendezvous is where MASTER_ADDR says; the rest keeps to the interface, also where one side alone asks for it.
before=$(sent a eth1)
job a:1 b:1 -- bash -c '[ "$(hostname)" != h-a ] || export RONDO_INTERFACE=eth1; exec "$0" -c 1000003' "$verify" && moved a eth1 "$before"
say $? "case_25: one side alone asks for eth1"
RONDO_INTERFACE=wlan0 job a:1 b:1 -- "$verify" -c 1003
[ $? != 0 ] && grep -q 'RONDO_INTERFACE=wlan0 matches no interface .* there are: lo, .*eth0, .*ib0' "$tmp/rank.1"
say $? "case_25: a name that is not there lists those that are"
nic a eth1 down
RONDO_INTERFACE=eth1 job a:1 -- "$verify" -c 1003
[ $? != 0 ] && grep -q 'eth1 (down)' "$tmp/rank.0"; say $? "case_25: one that is down is called so"
goes_by "eth" "eth0"
nic a eth1 up; nic a eth1 unplugged; sleep 0.2
RONDO_INTERFACE=eth1 job a:1 -- "$verify" -c 1003
[ $? != 0 ] && grep -q 'eth1 (no carrier)' "$tmp/rank.0"; say $? "case_25: one without a cable is called so"
goes_by "eth" "eth0"
hosts_clear

# ---- case 24: nothing but loopback, here in a host of its own
host a
HOSTS_MASTER=127.0.0.1 job a:3 -- "$verify" -c 100003; say $? "case_24: loopback alone"
RONDO_TRANSPORT=tcp HOSTS_MASTER=127.0.0.1 job a:3 -- "$verify" -c 100003; say $? "case_24: loopback alone, over tcp"

# ---- case 29: one host is proved, not guessed
host b
network red 10.1.0.1/24 a:eth0 b:eth0
HOSTS_NAME=same job_logged a:1 b:1 -- "$verify" -c 100003; say $? "case_29: two hosts of one name"
log | grep -q "rank 0 -> rank 1: tcp, since the ranks do not share a host's memory"; say $? "case_29: ... use tcp, and say why"
proved() { log | grep -q 'one host for certain: a page that rank 0 made is mapped here, and holds the random token'; }
for apart in --uts --mount --ipc "--pid --fork --kill-child" "--mount --uts --ipc --pid --fork --kill-child"; do
    # The leak checker looks for a process's threads in /proc, which here shows another namespace's numbers: it would call
    # what only they refer to leaked.
    case $apart in *--pid*) export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 ;; esac
    job_logged a:2 -- unshare $apart "$verify" -c 100003; say $? "case_29: one host, unshare $apart"
    proved && no_tcp; say $? "case_29: ... by shared memory, and the log names the proof"
done
exit $failed
