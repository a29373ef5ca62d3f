# SPDX-License-Identifier: Apache-2.0
# hosts.sh - several hosts on one machine, for scripts to source: network namespaces joined by bridges, each with a host
# name and a file system view of its own. What test scripts say:
#
#   hosts_begin                        first; ends the script, as passed, where neither root nor a user namespace is to be had
#   host a b c                         three hosts, with loopback alone
#   network red 10.1.0.1/24 a:eth0 b:eth1   a switch: the NICs get the addresses from this one on, in this order
#   on a COMMAND...                    runs it there
#   job a:2 b:2 -- PROGRAM...          ranks on hosts, numbered as listed; rank r's output in $tmp/rank.r; 0: all ended well
#   nic a eth0 down | up | unplugged | rate 100mbit | loss 10 | address fd00::1/64; nic a cbr0 bridge 172.18.0.1/16
#   sent a eth0, received a eth0       bytes so far
#   counted a "eth0 eth1"              bytes sent by each since the last time, a line each
#
# RONDO_* variables of the script reach the ranks. Everything is taken down when the script ends, however it does.
# This kernel has veth, bridges, tbf and nftables, but no netem: loss is nftables', latency there is none.

hosts_build=$(realpath "${RONDO_BUILD:-build}")
hosts_run=rd$$ # in the names of all namespaces, so that scripts may run side by side
hosts_ports=$((20000 + $$ % 20000))
failed=0
hosts_slow=1; case $hosts_build in *san) hosts_slow=5 ;; esac

hosts_begin() {
    if [ "$(id -u)" != 0 ]; then
        unshare -rmn true 2>/dev/null && exec unshare -rmn env HOSTS_OWN_RUN=1 "$0"
        echo "not run: hosts are network namespaces, which need root or a user namespace"; exit 0
    fi
    [ -z "${HOSTS_OWN_RUN-}" ] || mount -t tmpfs none /run # where `ip netns` keeps its names
    tmp=$(mktemp -d)
    trap hosts_end EXIT
    trap 'exit 130' INT TERM
    ip netns add "$hosts_run-switch" || { echo "FAILED  a network namespace"; exit 1; }
}

hosts_remove() {
    local ns
    for ns in $(ip netns list | awk -v run="$hosts_run-" 'index($1, run) == 1 {print $1}'); do
        ip netns pids "$ns" | xargs -r kill -KILL 2>/dev/null
        ip netns del "$ns"
    done
}

hosts_end() {
    local rc=$?
    trap - EXIT
    hosts_remove
    rm -rf "$tmp"
    exit $rc
}

# Takes the hosts and networks down, for another set of them in the same script.
hosts_clear() {
    hosts_remove
    ip netns add "$hosts_run-switch"
}

host() {
    local h
    for h; do
        ip netns add "$hosts_run-$h" && ip -n "$hosts_run-$h" link set lo up
    done
}

# The i-th address after 10.1.0.1 or fd00::1: the last part counts.
hosts_address() { # ADDRESS i
    case $1 in
    *:*) printf '%s:%x\n' "${1%:*}" $((0x${1##*:} + $2)) ;;
    *) echo "${1%.*}.$((${1##*.} + $2))" ;;
    esac
}

network() { # NAME ADDRESS/BITS HOST:NIC...
    local name=$1 address=${2%/*} bits=${2#*/} i=0 switch="$hosts_run-switch" pair h nic
    shift 2
    ip -n "$switch" link add "$name" type bridge && ip -n "$switch" link set "$name" up
    for pair; do
        h=${pair%:*} nic=${pair#*:}
        ip -n "$hosts_run-$h" link show "$nic" >/dev/null 2>&1 || {
            ip link add "$nic" netns "$hosts_run-$h" type veth peer name "$h.$nic" netns "$switch"
            ip -n "$switch" link set "$h.$nic" master "$name" up
            ip -n "$hosts_run-$h" link set "$nic" up
        }
        nic "$h" "$nic" address "$(hosts_address "$address" $i)/$bits"
        i=$((i + 1))
    done
}

nic() { # HOST NIC WHAT...
    local ns="$hosts_run-$1" nic=$2 what=$3 nodad=
    shift 3
    case $what in
    up | down) ip -n "$ns" link set "$nic" "$what" ;;
    unplugged) ip -n "$hosts_run-switch" link set "${ns#*-}.$nic" down ;;
    address) case $1 in *:*) nodad=nodad ;; esac; ip -n "$ns" addr add "$1" dev "$nic" $nodad ;;
    bridge) ip -n "$ns" link add "$nic" type bridge && ip -n "$ns" link set "$nic" up && nic "${ns#*-}" "$nic" address "$1" ;;
    rate) tc -n "$ns" qdisc replace dev "$nic" root tbf rate "$1" burst 256k latency 200ms ;;
    loss) # per thousand of what comes in
        ip netns exec "$ns" nft "add table inet t; add chain inet t c { type filter hook input priority 0; }
            add rule inet t c iifname $nic numgen random mod 1000 < $1 drop" ;;
    esac
}

sent() { ip netns exec "$hosts_run-$1" cat "/sys/class/net/$2/statistics/tx_bytes"; }
received() { ip netns exec "$hosts_run-$1" cat "/sys/class/net/$2/statistics/rx_bytes"; }

# The host's name is h-HOST, and what $tmp/HOST.hosts says of names, where there is such a file, is what it knows.
on() { # HOST COMMAND...
    local h=$1
    shift
    ip netns exec "$hosts_run-$h" unshare -u bash -c 'hostname "$1"; [ ! -e "$2" ] || mount --bind "$2" /etc/hosts; shift 2; exec "$@"' \
        bash "${HOSTS_NAME:-h-$h}" "$tmp/$h.hosts" "$@"
}

# The address at which others reach the first rank's host: its first one that is not of loopback or of a bridge.
hosts_master() { # HOST
    ip -n "$hosts_run-$1" -o addr show scope global | awk '$2 !~ /^(docker|br|cni)/ {sub("/.*", "", $4); print $4; exit}'
}

hosts_ranks() { # what one host runs: FIRST RANKS PROGRAM...
    local first=$1 ranks=$2 i pids=() rc=0
    shift 2
    for ((i = 0; i < ranks; i++)); do
        RANK=$((first + i)) LOCAL_RANK=$i LOCAL_WORLD_SIZE=$ranks "$@" >"$tmp/rank.$((first + i))" 2>&1 </dev/null &
        pids+=($!)
        echo $! >"$tmp/pid.$((first + i))"
    done
    for i in "${pids[@]}"; do wait "$i" || rc=1; done
    return $rc
}
export -f hosts_ranks

job_start() { # HOST:RANKS... -- PROGRAM...
    local places=() world=0 first=0 place
    while [ "$1" != -- ]; do places+=("$1"); world=$((world + ${1#*:})); shift; done
    shift
    hosts_ports=$((hosts_ports + 20)) hosts_pids=()
    rm -f "$tmp"/rank.* "$tmp"/pid.*
    export tmp WORLD_SIZE=$world MASTER_ADDR=${HOSTS_MASTER:-$(hosts_master "${places[0]%:*}")} MASTER_PORT=$hosts_ports
    export RONDO_TIMEOUT=${RONDO_TIMEOUT:-30} RONDO_KEY=${RONDO_KEY:-$(printf '%064x' $$)}
    for place in "${places[@]}"; do
        on "${place%:*}" timeout -k 1 $((60 * hosts_slow)) bash -c 'hosts_ranks "$@"' ranks $first "${place#*:}" "$@" &
        hosts_pids+=($!)
        first=$((first + ${place#*:}))
    done
}

job_wait() {
    local pid rc=0
    for pid in "${hosts_pids[@]}"; do wait "$pid" || rc=1; done
    return $rc
}

job() { job_start "$@" && job_wait; }

# What a test says at each of its points. What the ranks wrote comes with a failure.
say() { # STATUS TEXT
    if [ "$1" = 0 ]; then echo "OK      $2"; return; fi
    echo "FAILED  $2"; failed=1
    local f
    for f in "$tmp"/rank.*; do [ ! -e "$f" ] || { echo "--- ${f##*/}"; tail -n 12 "$f" | cut -c1-400; }; done
}
verify=$hosts_build/examples/verify

counted() { # HOST NICS: bytes sent by each since the last call
    local nic now
    for nic in $2; do
        now=$(sent "$1" "$nic")
        echo $((now - $(cat "$tmp/sent.$1.$nic" 2>/dev/null || echo 0)))
        echo "$now" >"$tmp/sent.$1.$nic"
    done
}
