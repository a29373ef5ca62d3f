#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hosts.sh - jobs between hosts, some of which lack RDMA: the others use it among themselves, and where it is asked for every
# rank says what is missing. Hosts are network namespaces (tests/hosts.sh), whose RDMA devices are this machine's: so it is for
# the guest of tests/vm. RONDO_BUILD names the build directory.
set -u
. "$(dirname "$0")/../hosts.sh"
hosts_begin
export RONDO_RDMA_DEVICE="${RONDO_TEST_RDMA%% *}" RONDO_DEBUG=INFO
host a b c
network red 10.1.0.1/24 a:eth0 b:eth0 c:eth0

says() { grep -qE -e "$2" "$tmp/rank.$1"; say $? "rank $1 says $2"; } # RANK PATTERN
cat >"$tmp/last" <<'WRAP'
#!/bin/bash
# last HOW COMMAND... - the command, on the last rank without what RDMA needs
how=$1; shift
[ "$RANK" = $((WORLD_SIZE - 1)) ] || exec "$@"
case $how in
device) export RONDO_RDMA_DEVICE==none ;;
memory) ulimit -l 64; exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@" ;;
permission) exec setpriv --reuid 65533 --regid 65533 --clear-groups "$@" ;;
esac
exec "$@"
WRAP
chmod 755 "$tmp" "$tmp/last"

# ---- everybody has it
job a:1 b:1 -- "$verify" -c 100003 -r 2; say $? "2 hosts with RDMA"
for r in 0 1; do says $r "-> rank $((1 - r)): verbs, since"; done
job a:1 b:1 -- "$hosts_build/rondo" bench -b 64K -e 64K -n 2 --json "$tmp/bench.json"; say $? "bench between hosts"
says 0 '^# all_reduce, 2 ranks, verbs'
grep -q '"transport": *"verbs"' "$tmp/bench.json"; say $? "bench's JSON says verbs"

# ---- several devices: a channel on each, the same at both ends; the network that the connections take has none of them
first=${RONDO_TEST_RDMA%% *} second=${RONDO_TEST_RDMA##* }
by() { echo "RDMA by ${1#=} port [0-9]+, "; } # DEVICE: the beginning of what the log says of a link over it
if [ "$first" != "$second" ]; then
    RONDO_RDMA_DEVICE="$first,$second" job a:1 b:1 -- "$verify" -c 100003 -r 2; say $? "2 hosts with 2 devices"
    for r in 0 1; do
        for device in "$first" "$second"; do
            for way in '->' '<-'; do says $r "rank $r $way rank $((1 - r)): $(by "$device")the best by speed and distance"; done
        done
    done
    says 0 'ring: 0 -> 1 -> 0, 2 channels'
    RONDO_CHANNELS=1 RONDO_RDMA_DEVICE="$first,$second" job a:1 b:1 -- "$verify" -c 5 -r 1; say $? "1 channel"
    RONDO_RDMA_DEVICE="$first,$second" RONDO_DEBUG=WARN on a "$hosts_build/rondo" doctor >"$tmp/doctor"
    chosen=$(sed -n 's/.*links between hosts use RDMA where both ranks can: \(.* port [0-9]*\), the best.*/\1/p' "$tmp/doctor")
    for r in 0 1; do says $r "rank $r -> rank $((1 - r)): RDMA by ${chosen:-none}, the best by speed and distance"; done
fi

# ---- the last of three lacks something
lacks() { # WHAT WORDS: the other two use RDMA
    job a:1 b:1 c:1 -- "$tmp/last" "$1" "$verify" -c 100003 -r 2; say $? "$1 lacks on one of 3"
    says 0 '-> rank 1: verbs'
    says 1 '-> rank 2: tcp.*cannot use verbs'
    says 2 '-> rank 0: tcp.*cannot use verbs'
    says 2 "verbs is not used: .*$2"
}
refused() { # WHAT WORDS: verbs is asked for, and every rank says why it is not to be had
    RONDO_TRANSPORT=verbs job a:1 b:1 c:1 -- "$tmp/last" "$1" "$verify" -c 5 -r 1; [ $? != 0 ]; say $? "$1 lacks, and verbs is asked for"
    for r in 0 1; do says $r "rank 2 cannot use verbs, .*$2"; done
    says 2 "$2"
}
mode=$(stat -c %a /dev/infiniband/uverbs0)
chmod 666 /dev/infiniband/uverbs*
lacks device 'leaves it out'
lacks memory 'ulimit -l'
refused memory 'ulimit -l'
chmod 600 /dev/infiniband/uverbs*
refused permission 'may not be opened'
chmod "$mode" /dev/infiniband/uverbs*
job a:1 c:1 -- "$tmp/last" device "$hosts_build/rondo" bench -b 64K -e 64K -n 2; say $? "bench with a rank that lacks RDMA"
says 0 '^# all_reduce, 2 ranks, tcp'
exit $failed
