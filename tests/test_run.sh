#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_run.sh - the launcher: what its ranks are given, what becomes of their output, and how all of it ends (case 38).
# RONDO_BUILD names the build directory.
set -u
rondo=${RONDO_BUILD:-$(dirname "$0")/../build}/rondo
rondo=$(realpath "$rondo")
[ -x "$rondo" ] || { echo "ERROR: no $rondo; build it first"; exit 1; }
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
unset RONDO_KEY RONDO_KEY_FILE RONDO_JOB MASTER_ADDR MASTER_PORT
nap="sleep 3600.$$" # recognised in the process listing; a decimal nobody else uses

fail() { echo "ERROR: $1"; shift; for f in "$@"; do echo "--- $f"; head -c 800 "$f"; done; failed=1; }
go() { timeout -k 1 15 "$rondo" run "$@" >out 2>err </dev/null; rc=$?; }
status() { [ "$rc" = "$1" ] || fail "$2: exit status $rc, expected $1" out err; }
says() { grep -qE -- "$1" err || fail "$2: standard error lacks '$1'" err; }
prints() { grep -qE -- "$1" out || fail "$2: standard output lacks '$1'" out; }
within() { # DECISECONDS command...: until the command succeeds
    local left=$1; shift
    until "$@"; do left=$((left - 1)); [ $left -gt 0 ] || return 1; sleep 0.1; done
}
orphans() { pgrep -f "^sleep 3600\\.$$\$" >listing; }
none_left() { ! orphans; }
no_orphans() { # NAME [DECISECONDS]
    within "${2:-1}" none_left && return
    fail "$1: processes were left behind" listing
    pkill -KILL -f "^sleep 3600\\.$$\$"
}
worker() { cat >"$1"; chmod +x "$1"; }
ms() { local t=$EPOCHREALTIME; echo $((${t/[.,]/} / 1000)); }

help_and_names() {
    local command
    for command in --help "run --help" "help run" help version --version "run -h"; do
        timeout 5 "$rondo" $command >out 2>err || fail "rondo $command: not 0" err
        [ -s out ] && [ ! -s err ] || fail "rondo $command: belongs on standard output" err
    done
    timeout 5 "$rondo" >out 2>err; rc=$?; status 2 "no command"
    timeout 5 "$rondo" rum >out 2>err; rc=$?; status 2 "rondo rum"; says "'rum'.*'run'" "rondo rum"
    timeout 5 "$rondo" --hlep >out 2>err; rc=$?; status 2 "--hlep"; says "'--hlep'.*'--help'" "--hlep"
    go --nproc_per_nod 2 -- true; status 0 "an abbreviation"
    go --nproc-per-nodes 2 -- true; status 2 "misspelt"; says "'--nproc-per-nodes'.*'--nproc-per-node'" "misspelt"
    go --master_adr=x -n 1 true; status 2 "misspelt 2"; says "'--master-adr'.*'--master-addr'" "misspelt 2"
    go --nprocs 2 true; says "'--nproc-per-node'" "begun alike"
    go -z; status 2 "-z"; says "'-z'" "-z"
}

bad_input() {
    local n
    for n in 0 -1 3x "" 99999999999999999999 1000000 1.5; do
        go -n "$n" -- true; status 2 "-n $n"; says "1 to 4096" "-n $n"
    done
    go -- true; status 2 "no -n"; says "-n N" "no -n"
    go -n 2; status 2 "no program"; says "which program" "no program"
    go -n; status 2 "-n without value"; says "needs a value" "-n without value"
    go -n 2 --nnodes 2 --node_rank 2 --master_addr a -- true; status 2 "node rank"; says "0 to 1" "node rank"
    go -n 2 --nnodes 2 --master_addr a -- true; status 2 "no node rank"; says "--node-rank" "no node rank"
    go -n 2 --nnodes 2 --node_rank 0 -- true; status 2 "no address"; says "--master-addr" "no address"
    go -n 2 --nnodes 2 --node_rank 0 --master_addr a -- true; rc1=$rc; says "openssl rand" "no key"
    [ "$rc1" != 0 ] || fail "two nodes without a key were started"
    RONDO_KEY=abc go -n 1 -- true; says "64 hexadecimal" "short key"
    echo x >key; chmod 644 key; RONDO_KEY_FILE=key go -n 1 -- true; says "chmod 600" "open key file"
    go -n 1 --rdzv_backend=c10d -- true; status 2 "rdzv"; says "--master-addr" "rdzv"
    go -n 1 --grace -1 -- true; status 2 "grace"; says "seconds from 0" "grace"
    go -n 2 -- ./absent; status 127 "absent"; [ "$(grep -c absent err)" = 1 ] || fail "absent: said once" err
    echo 'print(1)' >program.py; go -n 3 -- ./program.py; status 126 ".py"; says "python3 program.py" ".py"
    [ "$(wc -l <err)" = 1 ] || fail "not executable: said once" err
}

environment() {
    local names='^\[?[0-9]*\]? ?(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK)='
    SLURM_PROCID=5 OMPI_COMM_WORLD_RANK=4 TORCHELASTIC_RUN_ID=x RONDO_JOB=outer RANK=9 go -n 3 -- env
    status 0 environment
    for r in 0 1 2; do
        printf "[$r] %s\n" GROUP_RANK=0 LOCAL_RANK=$r LOCAL_WORLD_SIZE=3 NODE_RANK=0 RANK=$r WORLD_SIZE=3 >want
        grep -E "$names" out | grep "^\[$r\]" | sort | diff - want >diff || fail "environment of rank $r" diff
    done
    grep -qE 'SLURM|OMPI|TORCHELASTIC|outer' out && fail "another launcher's variables came through" out
    [ "$(grep -cE '^\[[0-2]\] RONDO_KEY=[0-9a-f]{64}$' out)" = 3 ] || fail "RONDO_KEY" out
    [ "$(sed -n 's/^\[.\] RONDO_KEY=//p' out | sort -u | wc -l)" = 1 ] || fail "one key for all" out
    [ "$(grep -cE '^\[[0-2]\] MASTER_(ADDR=127.0.0.1|PORT=[1-9][0-9]*)$' out)" = 6 ] || fail "MASTER_*" out
    local job; job=$(sed -n 's/^\[0\] RONDO_JOB=//p' out)
    go -n 1 -- env; grep -q "RONDO_JOB=[0-9a-f]\{32\}" out || fail "RONDO_JOB" out
    grep -q "$job" out && fail "two runs have the same RONDO_JOB"

    export RONDO_KEY=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
    go --nproc_per_node=2 --nnodes=3 --node_rank=2 --master_addr=10.0.0.1 --master_port=1234 env; status 0 torchrun
    printf '%s\n' "[4] GROUP_RANK=2" "[4] LOCAL_RANK=0" "[4] LOCAL_WORLD_SIZE=2" "[4] MASTER_ADDR=10.0.0.1" \
        "[4] MASTER_PORT=1234" "[4] NODE_RANK=2" "[4] RANK=4" "[4] RONDO_KEY=$RONDO_KEY" "[4] WORLD_SIZE=6" >want
    grep -E '^\[4\] ([A-Z_]*RANK|[A-Z_]*SIZE|MASTER_.*|RONDO_(JOB|KEY))=' out | sort | diff - want >diff ||
        fail torchrun diff
    go --nproc-per-node 2 --nnodes 3 --node-rank 1 --master-addr a -- sh -c 'echo $RANK $MASTER_PORT'
    printf '[%s] %s 29500\n' 2 2 3 3 >want; sort out | diff - want >diff || fail "hyphens" diff
    unset RONDO_KEY
    go -n auto --standalone -- true; status 0 auto
}

output() {
    worker talk <<'W'
#!/bin/sh
i=0; while [ $i -lt 300 ]; do printf 'rank %s ' $RANK; printf 'line %s\n' $i; i=$((i+1)); done
echo "to stderr" >&2
printf 'no newline'
W
    go -n 4 ./talk; status 0 output
    for r in 0 1 2 3; do
        for ((i = 0; i < 300; i++)); do echo "[$r] rank $r line $i"; done >want; echo "[$r] no newline" >>want
        grep "^\[$r\]" out | diff - want >diff || fail "lines of rank $r" diff
        grep -qx "\[$r\] to stderr" err || fail "stderr of rank $r" err
    done
    [ "$(wc -l <out)" = 1204 ] || fail "lines were mixed"

    for ((i = 0; i < 256; i++)); do printf "\\x$(printf %x $i)"; done >bytes
    for i in 1 2 3 4 5 6 7 8 9; do cat bytes bytes >more; mv more bytes; done
    go -n 1 --no-prefix cat bytes; cmp -s out bytes || fail "bytes were changed"
    head -c 3000000 /dev/zero | tr '\0' x >long
    go -n 2 -- cat long; status 0 "long line"
    [ "$(tr -cd x <out | wc -c)" = 6000000 ] || fail "a long line: $(tr -cd x <out | wc -c) of 6000000 bytes"
    grep -vqE '^\[[01]\] x+$' out && fail "a long line's pieces begin with the rank"
    go -n 2 --output-dir dir ./talk; status 0 output-dir
    [ ! -s out ] && [ "$(wc -l <dir/rank-1.out)" = 300 ] && [ "$(cat dir/rank-0.err)" = "to stderr" ] ||
        fail output-dir out
    (echo first; sleep 0.3; echo second) | timeout 5 "$rondo" run -n 2 -- cat >out 2>err
    printf '[0] %s\n' first second | diff - out >diff || fail "standard input goes to the first rank" diff
}

no_reader() {
    worker chatter <<'W'
#!/bin/sh
while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done
W
    { timeout 10 "$rondo" run -n 2 ./chatter 2>err; echo $? >rc; } | head -1 >out
    [ "$(cat rc)" = 141 ] || fail "the reader left: status $(cat rc), expected 141" err

    mkfifo pipe; sleep 5 <pipe & local reader=$!
    timeout 10 "$rondo" run -n 2 --grace 1 ./chatter >pipe 2>err & local pid=$!
    sleep 0.7; pkill -INT -P $pid; sleep 0.3; pkill -INT -P $pid # the launcher below timeout
    wait $pid; rc=$?; status 130 "Ctrl-C while nobody reads"
    kill $reader; wait $reader 2>/dev/null
}

# Rank 1 fails in its way while the others would go on for an hour, with children and one that left the group.
case_38_fails() { # NAME STATUS TEXT COMMAND
    worker "$1" <<W
#!/bin/sh
if [ \$RANK = 1 ]; then sleep 0.2; echo before the end; echo to the end >&2; $4; fi
$nap & setsid $nap & wait
W
    go -n 4 -- "./$1"; status "$2" "$1"
    says "rank 1 \(pid [0-9]+\) was the first to fail: it $3" "$1"; says "after (0\.[2-9]|[1-9])" "$1"
    says "\| before the end" "$1"; says "\| to the end" "$1"
    no_orphans "$1"
}

# The launcher sleeps while rank 2 fails and then all the others: it must still tell who was first.
first_of_many() {
    worker race <<'W'
#!/bin/sh
: >started.$RANK; while [ ! -e go ]; do sleep 0.02; done
[ $RANK = 2 ] && exit 7
sleep 0.5; exit 1
W
    rm -f go; start -n 4 ./race; kill -STOP $pid; : >go; sleep 1; kill -CONT $pid; wait $pid; rc=$?
    status 7 "first of many"; says "rank 2 .* status 7" "first of many"
}

# Rank 1 fails; rank 0 says what it knows of it 0.1 s later, by itself; rank 2 would stay and is told to end after that.
last_words() {
    worker talks <<'W'
#!/bin/sh
trap 'echo told; exit 0' TERM
case $RANK in
1) sleep 0.1; : >failed; exit 6 ;;
0) until [ -e failed ]; do sleep 0.01; done; sleep 0.1; echo "rank 1 is gone"; exit 1 ;;
2) while :; do sleep 0.01; done ;;
esac
W
    rm -f failed; go -n 3 ./talks; status 6 "last words"
    prints '^\[0\] rank 1 is gone$' "last words"; prints '^\[2\] told$' "last words"
    grep -q '^\[0\] told$' out && fail "last words: rank 0 was told to end at once" out
    says 'ending the other rank: SIGTERM' "last words"
}

# What goes to one place is not said twice.
last_lines_once() {
    worker speaks <<'W'
#!/bin/sh
echo a last word; exit 3
W
    timeout 15 "$rondo" run -n 1 ./speaks >both 2>&1 </dev/null
    [ "$(grep -c 'a last word' both)" = 1 ] && grep -q 'its last lines are above' both || fail "one place" both
    timeout 15 "$rondo" run -n 1 --output-dir dir ./speaks >both 2>&1 </dev/null
    grep -q '| a last word' both || fail "one place, but the output is in files" both
    go -n 1 ./speaks; says '\| a last word' "two places"
}

keep_going() {
    worker survives <<'W'
#!/bin/sh
[ $RANK = 1 ] && { : >died; kill -KILL $$; }
until [ -e died ]; do sleep 0.01; done; sleep 0.4; echo there; exit $(cut -d" " -f$((RANK + 1)) statuses)
W
    echo 0 - 0 >statuses; rm -f died; go -n 3 --keep-going ./survives; status 0 "keep going"
    for r in 0 2; do prints "^\[$r\] there$" "keep going"; done
    says 'rank 1 \(pid [0-9]+\) was killed by SIGKILL .*; the others go on' "keep going"
    says '1 of 3 ranks failed:$' "keep going"; says '^rondo run:   rank 1 .* was killed by SIGKILL' "keep going"
    grep -qE 'first to fail|ending' err && fail "keep going: nobody is ended" err
    echo 3 - 5 >statuses; rm -f died; go -n 3 --keep-going ./survives; status 5 "the worst survivor"
    says '3 of 3 ranks failed:$' "the worst survivor"
    go -n 2 --keep-going sh -c 'kill -SEGV $$'; status 139 "no survivor"
    go -n 2 --keep-going true; status 0 "nobody failed"; [ ! -s err ] || fail "nobody failed" err
    go -n 2 --keep-going --timeout 0.3 -- $nap; status 124 "keep going, timeout"; no_orphans "keep going, timeout"
}

start() { # options...: the launcher in the background, its ranks under way
    rm -f started.*
    "$rondo" run "$@" >out 2>err </dev/null & pid=$!
    within 100 test -e started.0 -a -e started.1 || fail "not started" err
}

case_38_ignores_sigterm() {
    worker stubborn <<W
#!/bin/sh
trap '' TERM
[ \$RANK = 1 ] && { sleep 0.1; exit 5; }
$nap; $nap
W
    local from; from=$(ms)
    go -n 3 --grace 0.5 ./stubborn; status 5 stubborn
    says "rank 0 .*SIGKILL" stubborn; says "rank 2 .*SIGKILL" stubborn
    [ $(($(ms) - from)) -lt 5000 ] || fail "stubborn: took $(($(ms) - from)) ms"
    no_orphans stubborn
}

case_38_signals() {
    worker patient <<W
#!/bin/sh
trap 'echo rank \$RANK interrupted; exit 0' INT
trap 'exit 0' TERM
$nap & : >started.\$RANK; wait
W
    worker deaf <<W
#!/bin/sh
trap '' INT TERM
: >started.\$RANK; $nap; $nap
W
    start -n 2 ./patient; kill -INT $pid; wait $pid; rc=$?; status 130 Ctrl-C
    prints "\[0\] rank 0 interrupted" Ctrl-C; prints "\[1\] rank 1 interrupted" Ctrl-C; says SIGINT Ctrl-C
    grep -q 'first to fail' err && fail "Ctrl-C is nobody's failure" err
    no_orphans Ctrl-C
    start -n 2 --grace 60 ./deaf; kill -INT $pid; sleep 0.3; kill -INT $pid
    local from; from=$(ms); wait $pid; rc=$?; status 130 "second Ctrl-C"
    [ $(($(ms) - from)) -lt 3000 ] || fail "the second Ctrl-C kills at once: took $(($(ms) - from)) ms"
    no_orphans "second Ctrl-C"
    start -n 2 ./patient; kill -TERM $pid; wait $pid; rc=$?; status 143 SIGTERM; no_orphans SIGTERM
    start -n 2 ./patient; kill -KILL $pid; wait $pid 2>/dev/null; no_orphans "the launcher was killed" 30
    worker single <<W
#!/bin/sh
: >started.\$RANK; exec $nap
W
    start -n 2 ./single; pkill -KILL -P $pid rondo-guard; kill -KILL $pid; wait $pid 2>/dev/null
    no_orphans "launcher and guard were killed" 30
}

case_38_terminal() { # Ctrl-C typed on a terminal, where the ranks must not read
    cat >type.py <<'P'
import os, pty, sys, time
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[1], [sys.argv[1], "run", "-n", "2", "--grace", "1", "./patient"])
seen, deadline = b"", time.time() + 8
while not (os.path.exists("started.0") and os.path.exists("started.1")) and time.time() < deadline: time.sleep(0.05)
os.write(fd, b"\x03")
try:
    while True:
        part = os.read(fd, 4096)
        if not part: break
        seen += part
except OSError: pass
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
P
    rm -f started.*; timeout -k 1 10 python3 type.py "$rondo" >out 2>err; rc=$?
    status 130 terminal; prints "rank 0 interrupted" terminal; no_orphans terminal
}

leftovers() {
    go -n 2 --grace 0.5 -- sh -c "$nap & exit 0"; status 0 leftovers; no_orphans leftovers
    go -n 2 --grace 0.5 -- sh -c "setsid $nap & exit 0"; status 0 "left the group"; no_orphans "left the group"
    go -n 2 --timeout 0.3 -- $nap; status 124 timeout; says "time limit" timeout; no_orphans timeout
    go -n 64 -- true; status 0 "64 ranks"
    (ulimit -n 64; timeout 5 "$rondo" run -n 64 -- true >out 2>err); rc=$?; status 1 "few files"
    says "open files.*ulimit" "few files"
    (ulimit -Sn 64; timeout 5 "$rondo" run -n 30 -- sh -c 'ulimit -n' >out 2>err)
    [ "$(grep -c ' 64$' out)" = 30 ] || fail "the ranks' own limit of open files" out err
}

# Ranks that take turns on processors have short time slices, where there are such and the kernel tells.
short_slices() {
    local cpus own; cpus=$(nproc) own=$(sed -n 's/^se\.slice *: *//p' /proc/self/sched 2>/dev/null)
    [ -n "$own" ] && [ "$(printf '6.12\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 6.12 ] || return
    go -n "$cpus" --no-prefix -- sed -n 's/^se\.slice *: *//p' /proc/self/sched
    [ "$(sort -u out)" = "$own" ] || fail "a processor each, and other slices than $own ns" out
    go -n $((cpus + 1)) --no-prefix -- sed -n 's/^se\.slice *: *//p' /proc/self/sched
    [ "$(sort -u out)" = 100000 ] || fail "more ranks than processors, and no short slices" out
}

help_and_names
bad_input
short_slices
environment
output
no_reader
case_38_fails exits 3 "exited with status 3" "exit 3"
case_38_fails crashes 139 "was killed by SIGSEGV" "kill -SEGV \$\$"
first_of_many
last_words
last_lines_once
keep_going
case_38_ignores_sigterm
case_38_signals
case_38_terminal
leftovers
[ $failed = 0 ] && echo "run: all well"
exit $failed
