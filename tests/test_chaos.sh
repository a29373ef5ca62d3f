#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fifty rounds of random calls with a random fault among them (chaos.h): of seeds that once found something, and a new one.
set -u
build=${RONDO_BUILD:-build} failed=0
run() { # SEED ROUNDS
    SEED=$1 ROUNDS=$2 "$build/chaos" && return
    echo "FAILED  chaos; again: SEED=$1 ROUNDS=$2 $build/chaos"; failed=1
}
run 2 14
run 4 14
run 5 12
run $((RANDOM * 32768 + RANDOM)) 10
exit $failed
