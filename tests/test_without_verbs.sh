#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_without_verbs.sh - what asks whether there is RDMA in the build also compiles where there is none (rdma-core's headers
# are missing).
set -u
cd "$(dirname "$0")/.." || exit 1
failed=0
for f in $(grep -rl 'def RD_VERBS$' src tests --include=*.c); do
    if ${CC:-cc} -D_GNU_SOURCE -Iinclude -Isrc -I. -std=c11 -Wall -Wextra -Werror -Wshadow -c "$f" -o /dev/null; then
        echo "ok      $f"
    else
        echo "FAILED  $f"; failed=1
    fi
done
exit $failed
