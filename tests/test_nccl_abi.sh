#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_nccl_abi.sh - the drop-in has every name that NVIDIA's libnccl.so.2 exports, but for the helpers of its device API, and
# our nccl.h says the same as NVIDIA's: values, sizes, fields, defaults, prototypes. Where theirs is not there, what does
# not need it. And every call that there is has a test that makes it.
set -u
tests=$(realpath "$(dirname "$0")") build=${RONDO_BUILD:?} bad=0
ok() { echo "ok      $1"; }
fail() { echo "FAILED  $1"; bad=1; }
san= # a sanitizer's library wants programs that have it, too
case $(basename "$build") in asan) san=-fsanitize=address ;; ubsan) san=-fsanitize=undefined ;; tsan) san=-fsanitize=thread ;; esac
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

ours=$build/compat/libnccl.so.2
names() { nm -D --defined-only "$1" | awk '{print $2, $3}' | sort; }
readelf -d "$ours" | grep -q 'SONAME.*\[libnccl\.so\.2\]' && ok soname || fail "soname is not libnccl.so.2"
names "$ours" >"$work/ours"
awk '$2 !~ /^p?nccl/' "$work/ours" | grep -q . && fail "exports more than nccl and pnccl names" || ok "exports nothing else"
while read -r kind name; do
    case $name in
    pnccl*) [ "$kind" = T ] && grep -q " ${name#p}$" "$work/ours" || fail "$name has no nccl name beside it" ;;
    *) [ "$kind" = W ] && grep -q " p$name$" "$work/ours" || fail "$name is not weak, or has no pnccl name beside it" ;;
    esac
done <"$work/ours"

for name in $(awk '$1 == "W" {print $2}' "$work/ours"); do
    cat "$tests"/test_nccl*.c "$tests"/nccl/*.c | grep -q "\<$name(" || fail "no test calls $name"
done

theirs= header=
for d in "${CUDA_HOME:-/usr/local/cuda}" /usr/local /usr; do
    for f in "$d"/lib/libnccl.so.2 "$d"/lib64/libnccl.so.2 "$d"/lib/x86_64-linux-gnu/libnccl.so.2; do
        [ -z "$theirs" ] && [ -r "$f" ] && theirs=$f
    done
    [ -z "$header" ] && [ -r "$d/include/nccl.h" ] && [ -r "$d/include/cuda_runtime.h" ] && header=$d/include
done

if [ -n "$theirs" ]; then
    device='p?nccl(Team.*|.*Barrier.*|LLA2A.*)|ncclResetDebugInitInternal'
    names "$theirs" | grep -vE " ($device)$" | grep -E ' p?nccl' >"$work/theirs"
    if diff "$work/theirs" "$work/ours" >"$work/log"; then ok "the names of $theirs"; else fail "names"; cat "$work/log"; fi
else
    echo "absent  NVIDIA's libnccl.so.2: its names are not compared"
fi

compile() { # SOURCE HEADERS OUTPUT - and runs it with our library
    ${CC:-cc} -std=gnu11 $san -Wall -Wextra -Werror -isystem "$2" "$tests/nccl/$1" -o "$3" "$ours" -Wl,-rpath,"$build/compat" >"$3.log" 2>&1 &&
        "$3" >"$3.txt"
}
compile abi.c "$tests/../include/compat" "$work/with_ours" && ok "our header" || { fail "our header"; cat "$work/with_ours.log"; }
if [ -n "$header" ]; then
    if compile abi.c "$header" "$work/with_theirs" && diff "$work/with_theirs.txt" "$work/with_ours.txt"; then ok "values and sizes"
    else fail "values and sizes"; cat "$work/with_theirs.log"; fi
    prototypes() { ${CC:-cc} -std=gnu11 -Wall -Wextra -Werror -fsyntax-only -isystem "$header" -I"$1" "$tests/nccl/prototypes.c" >"$work/log" 2>&1; }
    prototypes "$tests/../include" && ok prototypes || { fail prototypes; cat "$work/log"; }
    mkdir -p "$work/compat"
    sed 's/int peer, ncclComm_t comm/long peer, ncclComm_t comm/' "$tests/../include/compat/nccl.h" >"$work/compat/nccl.h"
    prototypes "$work" && fail "another prototype of ncclSend is not noticed" || ok "another prototype of ncclSend is noticed"
    sed 's/ncclRemoteError = 6/ncclRemoteError = 9/' "$tests/../include/compat/nccl.h" >"$work/nccl.h"
    compile abi.c "$work" "$work/wrong"; diff -q "$work/with_theirs.txt" "$work/wrong.txt" >/dev/null && fail "another value is not noticed" || ok "another value is noticed"
else
    echo "absent  NVIDIA's nccl.h: ours is not compared with it"
fi
exit $bad
