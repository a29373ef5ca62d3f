#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_topo_links.sh - machines with GPUs, as hwloc and the simulated driver have them alike: the ring that `rondo topo` shows,
# and the ring and the links of ranks that run there (tests/topologies/links.py).
set -u
here=$(realpath "$(dirname "$0")") build=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}")
[ -s "$here/../build/kernels/all.fatbin" ] || { echo "no image of kernels"; exit 0; }
# A million sums of each rank take long with sanitizers.
only=(); case $build in *san) only=(pairs) ;; esac
PYTHONDONTWRITEBYTECODE=1 "$here/topologies/links.py" "$build" "${only[@]}"
