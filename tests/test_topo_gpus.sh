#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_topo_gpus.sh - GPUs as a driver reports them: tests/cudasim's, on a machine whose PCI tree comes from a file, with
# tests/topologies/nvml.c for their links.
set -u
here=$(realpath "${RONDO_TESTS:-$(dirname "$0")}")
build=$(realpath "${RONDO_BUILD:-$here/../build}")
rondo=$build/rondo
[ -x "$rondo" ] && [ -e "$build/cudasim/libcuda.so.1" ] || { echo "ERROR: no $rondo or no simulated driver; build them first"; exit 1; }
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export PYTHONDONTWRITEBYTECODE=1
fail() { echo "ERROR: $1"; shift; for f in "$@"; do echo "--- $f"; head -c 1500 "$f"; done; failed=1; }

python3 "$here/topologies/machines.py" . || fail "machines.py"
mkdir nvml && ${CC:-cc} -shared -fPIC -o nvml/libnvidia-ml.so.1 "$here/topologies/nvml.c" || fail "nvml.c does not compile"

# $1: XML for HWLOC_XMLFILE, or "-"; $2: CUDASIM; $3: links, or "-": no management library; $4: what holds of the JSON t.
holds() {
    local xml=$1 sim=$2 links=$3 expression=$4 path=$build/cudasim; shift 4
    [ "$links" = - ] || path=$path:$tmp/nvml
    local -a settings=(LD_LIBRARY_PATH="$path" CUDASIM="$sim" RONDO_TEST_NVML="$links")
    [ "$xml" = - ] || settings+=(HWLOC_XMLFILE="$xml")
    env "${settings[@]}" timeout 60 "$rondo" topo --json "$@" >out 2>err </dev/null || { fail "$sim on $xml, links $links" err; return; }
    python3 -c "
import json
t = json.load(open('out')); m, rings = t['machine'], t['rings']
kinds = [[l and l['kind'] for l in row] for row in m['gpu_links']]
assert $expression, (m['gpus'], kinds)" 2>python || fail "$sim on $xml, links $links: $expression" python
}

four="devices=4 pci=0000:02:00.0,0000:0b:00.0,0000:06:00.0,0000:07:00.0"
names="[g['name'] for g in m['gpus']]"
# Named by the driver, placed by hwloc. The other three are there, and not of this process.
holds pcie.xml "$four p2p=all" - "$names == ['cuda0', 'nvml3', 'cuda2', 'cuda3', 'nvml2', 'cuda1', 'nvml6'] and [g['package'] for g in m['gpus']] == [0, 0, 0, 0, 1, 1, 1] and kinds[0][1] == 'PCIe switch'"
# The driver forbids: through host memory, at half the bandwidth.
holds pcie.xml "$four p2p=none" - "kinds[0][2] == 'processors' and m['gpu_links'][0][2]['mbs'] == 4500 and m['gpu_links'][0][1]['mbs'] == 12500"
# It prefers some pairs: these have a link of their own.
holds pcie.xml "$four p2p=pairs" - "kinds[0][5] == kinds[2][3] == 'NVLink' and kinds[0][2] == 'host bridge'"
# Links by number and version; they count more than the driver's preference.
holds pcie.xml "$four p2p=pairs" "02>06:2:2 06>02:2:2 06>07:1:1 07>06:1:1" "kinds[0][2] == kinds[2][3] == 'NVLink' and kinds[0][5] == 'processors' and m['gpu_links'][0][2]['mbs'] == 50000 and m['gpu_links'][3][2]['mbs'] == 20000"
holds pcie.xml "$four p2p=switch" "02>switch:6:4 06>switch:6:4 0b>switch:4:4 07>06:1:2" "kinds[0][2] == kinds[0][5] == 'NVSwitch' and m['gpu_links'][0][2]['mbs'] == 150000 and m['gpu_links'][5][2]['mbs'] == 100000 and kinds[0][3] == 'host bridge'"
holds cube.xml "devices=1 pci=0000:02:00.0" "-" "kinds[0][3] == 'NVLink' and m['gpu_links'][0][3]['mbs'] == 50000"
# GPUs that hwloc does not know, as in a container without /sys; and one alone.
holds - "devices=3 p2p=pairs pci=0000:f2:00.0,0000:f3:00.0,0000:f4:00.0" - "$names == ['cuda0', 'cuda1', 'cuda2'] and all(g['numa'] is None for g in m['gpus']) and len(t['ranks']) == 3 and kinds[0][1] == 'NVLink' and kinds[1][2] == 'processors'"
holds - "devices=1" "" "$names == ['cuda0'] and t['ranks'][0]['gpu'] is None"
holds - "devices=0" "-" "m['gpus'] == []"
[ $failed = 0 ] && echo "GPUs: as they should be"
exit $failed
