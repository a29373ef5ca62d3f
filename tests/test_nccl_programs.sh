#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_nccl_programs.sh - programs for NCCL in their usual forms (tests/nccl), compiled with our nccl.h and run with the
# drop-in on host memory: all devices in one thread, a thread each, a process each with the id in a file or from MPI, and
# several communicators at a time; calls as benchmarks make them.
set -u
tests=$(realpath "$(dirname "$0")") build=${RONDO_BUILD:?} bad=0
san= # a sanitizer's library wants programs that have it, too
case $(basename "$build") in asan) san=-fsanitize=address ;; ubsan) san=-fsanitize=undefined ;; tsan) san=-fsanitize=thread ;; esac
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$build/compat

compile() { # NAME [COMPILER]
    ${2:-${CC:-cc}} -std=gnu11 $san -O1 -Wall -Wextra -Werror -pthread -isystem "$tests/../include/compat" "$tests/nccl/$1.c" -o "$work/$1${3-}" \
        -L"$build/compat" -lnccl -lm >"$work/log" 2>&1 || { echo "FAILED  $1 does not compile"; cat "$work/log"; bad=1; return 1; }
}
expect() { # WHAT LINE TIMES - in $work/out
    if [ "$(grep -c "$2" "$work/out")" = "$3" ]; then echo "ok      $1"; else echo "FAILED  $1"; cat "$work/out" "$work/err"; bad=1; fi
}
run() { timeout -k 1 60 "$@" >>"$work/out" 2>>"$work/err" </dev/null; }
fresh() { : >"$work/out"; : >"$work/err"; rm -f "$work/id" "$work/id.part"; }

compile one_process && { fresh; run "$work/one_process" 4; expect "one thread" '4 devices in one thread: ok' 1; }
compile threads && { fresh; run "$work/threads" 4; expect "a thread each" '4 threads with a device each: ok' 1; }
processes() { # NAME N LINE [TIMES]
    compile "$1" || return
    fresh
    [ "$1" = address ] || local id=$work/id
    for ((r = 1; r < $2; r++)); do run "$work/$1" $r "$2" ${id-} & done
    run "$work/$1" 0 "$2" ${id-}
    wait
    expect "$1" "$3" "${4-$2}"
}
compile perf && for how in '1 4' '4 1 parallel' '2 2 background memory split'; do
    fresh
    # shellcheck disable=SC2086
    run "$work/perf" $how
    expect "perf $how" 'devices each: ok' 1
done
processes processes 3 'of 3 processes: ok'
processes several 4 'of 4 in three communicators: ok'
processes dies 3 'goes on with 2: ok' 2
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
NCCL_COMM_ID=127.0.0.1:$port RONDO_DEBUG=NONE processes address 3 'of 3 met at an address: ok'

mpi() { # FLAVOUR OPTIONS...
    local flavour=$1; shift
    command -v "mpicc.$flavour" "mpirun.$flavour" >/dev/null || { echo "absent  $flavour"; return; }
    compile mpi "mpicc.$flavour" ".$flavour" || return
    fresh
    run "mpirun.$flavour" "$@" -n 3 "$work/mpi.$flavour"
    expect "$flavour" '3 ranks of MPI: ok' 1
}
[ -n "$san" ] || mpi openmpi --allow-run-as-root --oversubscribe # MPI itself has leaks
[ -n "$san" ] || mpi mpich
exit $bad
