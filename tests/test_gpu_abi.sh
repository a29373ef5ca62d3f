#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_gpu_abi.sh - our declarations of the CUDA driver's interface agree with the toolkit's cuda.h, where that is there; and
# this test notices when they do not.
set -u
tests=$(realpath "$(dirname "$0")") bad=0
cuda=
for d in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include; do [ -r "$d/cudaTypedefs.h" ] && { cuda=$d; break; }; done
[ -n "$cuda" ] || { echo "absent  cuda.h: our declarations are not compared with it"; exit 0; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

compare() { # FILE INCLUDE-DIRECTORY
    ${CC:-cc} -std=gnu11 -Wall -Wextra -Werror -fsyntax-only -I"$2" -I"$tests/../src" -I"$tests/../include" \
        -isystem "$cuda" "$tests/gpu_abi/$1" >"$work/log" 2>&1
}
for f in types.c prototypes.c; do
    if compare $f "$work"; then echo "ok      $f"; else echo "FAILED  $f"; cat "$work/log"; bad=1; fi
done

plant() { # FILE HEADER WRONG - compares FILE with a HEADER that sed -e WRONG has changed.
    mkdir -p "$work/wrong/base"
    sed -e "$3" "$tests/../src/base/$2" >"$work/wrong/base/$2"
    if cmp -s "$work/wrong/base/$2" "$tests/../src/base/$2"; then echo "FAILED  $3 changes nothing"; bad=1
    elif compare "$1" "$work/wrong"; then echo "FAILED  $1 does not notice $3"; bad=1
    else echo "ok      $1 notices $3"; fi
    rm -rf "$work/wrong"
}
plant types.c gpu_abi.h 's/ERROR_NOT_READY, 600/ERROR_NOT_READY, 601/'
plant types.c gpu_abi.h 's/char bytes\[64\]/char bytes[65]/'
plant types.c gpu_abi.h 's/unsigned char compression, rdma/unsigned char rdma, compression/'
plant prototypes.c gpu.h 's/cuMemAlloc, 3020/cuMemAlloc, 2000/'
plant prototypes.c gpu.h 's/(rd_cu_stream stream, rd_cu_event event, unsigned flags)/(rd_cu_stream stream, rd_cu_event event)/'
plant prototypes.c gpu.h 's/rd_cu_ipc_memory handle, unsigned flags/rd_cu_ipc_memory *handle, unsigned flags/'
exit $bad
