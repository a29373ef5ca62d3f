#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_topo_machines.sh - rings on machines with GPUs and network cards, beside those that brute force finds; files of real
# machines; files that are no machine.
set -u
here=$(realpath "${RONDO_TESTS:-$(dirname "$0")}")
rondo=$(realpath "${RONDO_BUILD:-$here/../build}")/rondo
[ -x "$rondo" ] || { echo "ERROR: no $rondo; build it first"; exit 1; }
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export PYTHONDONTWRITEBYTECODE=1

fail() { echo "ERROR: $1"; shift; for f in "$@"; do echo "--- $f"; head -c 1500 "$f"; done; failed=1; }
go() { timeout -k 1 30 "$rondo" topo "$@" >out 2>err </dev/null; rc=$?; }

golden() {
    python3 "$here/topologies/machines.py" . || fail "machines.py"
    python3 "$here/topologies/brute_force.py" >found.json || fail "brute_force.py"
    diff -q found.json "$here/topologies/expected.json" >/dev/null || fail "expected.json is not what brute_force.py finds"
    rondo=$rondo python3 - "$here/topologies/expected.json" >diff <<'P' || fail "rings and what brute force finds" diff
import json, os, subprocess, sys
bad = 0
for name, by_hosts in json.load(open(sys.argv[1])).items():
    for hosts, expected in by_hosts.items():
        command = [os.environ["rondo"], "topo", "--xml", name + ".xml", "--hosts", hosts, "--json"]
        told = json.loads(subprocess.check_output(command, timeout=30))
        rings = [dict(order=r["order"], cost_ns=r["cost_ns"], nics=[[h["nic"], h["nic_there"]] for h in r["hops"] if h["nic"]])
                 for r in told["rings"]]
        for r in rings + expected: r["nics"].sort()
        if rings == expected: continue
        bad = 1
        print(name, "on", hosts, "hosts:\n  got     ", rings, "\n  expected", expected)
sys.exit(bad)
P
}

# $1 machine, $2 an expression in Python over t, the JSON; others: options
holds() {
    local machine=$1 expression=$2; shift 2
    go --xml "$machine" --json "$@"
    [ $rc = 0 ] || { fail "$machine $*: status $rc" err; return; }
    python3 -c "
import json
t = json.load(open('out')); m, rings = t['machine'], t['rings']
kinds = lambda r: [h['shared'] for h in r['hops']]
for r in rings: assert sorted(r['order']) == list(range(len(t['ranks']))), 'no ring'
assert $expression" 2>python || fail "$machine $*: $expression" python
    go --xml "$machine" "$@"; [ $rc = 0 ] && [ -s out ] && [ ! -s err ] || fail "$machine as text" err
}

odd_machines() {
    local x=$here/topologies
    holds "$x/power.xml" "[g['name'] for g in m['gpus']] == ['cuda0', 'cuda1', 'cuda2'] and kinds(rings[0])[0] == 'NVLink' and m['gpu_links'][0][1]['mbs'] == 40000 and m['gpu_links'][0][2]['kind'] == 'processors'"
    holds "$x/memories.xml" "kinds(rings[0]) == ['NUMA node', 'host'] * 2"
    holds "$x/one-pu.xml" "t['ranks'] == [{'rank': 0, 'host': 0, 'cpu': 7, 'gpu': None}] and rings[0]['slowest'] is None"
    holds "$x/version1.xml" "len(m['gpus']) == 1 and m['nics'][0]['name'] == 'eth0' and len(t['ranks']) == 4"
    holds "$x/version1.xml" "kinds(rings[0]) == ['host bridge'] * 2" --ranks gpu:0,cpu:1
    sed 's/allowed_cpuset="0xf"/allowed_cpuset="0xb"/' "$x/memories.xml" >some.xml
    holds some.xml "[p['allowed'] for p in m['pus']] == [True, True, False, True] and m['summary'].endswith('(3 allowed)') and [r['cpu'] for r in t['ranks']] == [0, 1, 3]"
    holds lost.xml "all(g['bus'] is None and g['package'] is None for g in m['gpus']) and kinds(rings[0])[0] == 'NVLink'"
    holds crowd.xml "len(m['nics']) == 2 and not m['gpus'] and len(rings) == 2" --hosts 2
    holds cube.xml "len(t['ranks']) == 12 and rings[0]['order'][:4] != [0, 1, 2, 3] and t['hosts'] == 3" --ranks gpu:0-3/gpu:4-7/gpu:0,2,4,6
    holds cube.xml "[r['gpu'] for r in t['ranks']] == [7, 7, None, None] and [r['cpu'] for r in t['ranks']] == [None, None, 3, 0]" --ranks gpu:7,7,cpu:3,0
    holds cube.xml "len(t['ranks']) == 512 and len(rings) == 8" --hosts 64 --channels 8
}

# Real machines, where they are. Of three it is known what they have.
real_machines() {
    local x dir=${RONDO_TOPOLOGIES:-$here/../../shared/topologies} options
    [ -d "$dir" ] || { echo "no files of real machines in $dir"; return; }
    for x in "$dir"/*.xml; do
        for options in "" "--hosts 3" "--ranks core:all --hosts 2"; do holds "$x" "m['pus'] and rings" $options; done
        case ${x##*/} in
        nvidiaDGX2.xml) holds "$x" "len(m['gpus']) == 16 and len(t['ranks']) == 16 and set(kinds(rings[0])) == {'NVSwitch'} and all(l is None or l['mbs'] == 150000 for row in m['gpu_links'] for l in row)" ;;
        32em64t-2n8c2t-pci-normalio.xml) holds "$x" "[g['name'] for g in m['gpus']] == ['cuda0'] and [h['nic'] for h in rings[0]['hops']] == ['ib0', 'ib0']" --hosts 2 --ranks gpu:0 ;;
        24em64t-2n6c2t-pci.xml) holds "$x" "len(m['gpus']) == 3 and len(rings) == 1 and {h['nic'] for h in rings[0]['hops']} == {None, 'ib0'}" --hosts 2 ;;
        esac
    done
}

# $1: ranks, $2: hosts, $3: red ways (of a hop between hosts: rank to card to card to rank); others: the options. A picture is
# XML, all boxes lie in it, none of the same kind on another, and there is a way for each hop.
picture() {
    local ranks=$1 hosts=$2 red=$3; shift 3
    go "$@" --svg picture.svg
    [ $rc = 0 ] && [ -s out ] || { fail "$* --svg: status $rc" err; return; }
    python3 - "$ranks" "$hosts" "$red" picture.svg >python <<'P' || fail "$* --svg" python
import sys, xml.dom.minidom
ranks, hosts, red = map(int, sys.argv[1:4])
svg = xml.dom.minidom.parse(sys.argv[4]).documentElement
w, h = int(svg.getAttribute("width")), int(svg.getAttribute("height"))
boxes = [(r.getAttribute("class").split()[0], *[int(r.getAttribute(a)) for a in ("x", "y", "width", "height")])
         for r in svg.getElementsByTagName("rect") if r.getAttribute("class")]
of = lambda kind: [b[1:] for b in boxes if b[0] in kind and b[4] > 20]
panels = sum(t.firstChild.data.startswith("channel ") for t in svg.getElementsByTagName("text"))
assert panels >= 1
assert len(of(("cpu", "gpu"))) == ranks * panels, (len(of(("cpu", "gpu"))), ranks, panels)
assert len(of(("host",))) == (hosts * panels if hosts > 1 else 0)
for x, y, bw, bh in (b[1:] for b in boxes): assert 0 <= x and 0 <= y and x + bw <= w and y + bh <= h, (x, y, bw, bh)
for kinds in (("cpu", "gpu", "idle", "nic"), ("host",), ("package",)):
    b = sorted(of(kinds))
    for i, (x, y, bw, bh) in enumerate(b):
        for X, Y, W, H in b[i + 1:]: assert X >= x + bw or Y >= y + bh or Y + H <= y, (kinds, x, y, X, Y)
classes = [p.getAttribute("class") for p in svg.getElementsByTagName("path")]
assert classes.count("slow") == red, classes.count("slow")
assert classes.count("slow") + classes.count("hop") == (ranks + 2 * (hosts if hosts > 1 else 0)) * panels
for t in svg.getElementsByTagName("text"): assert int(t.getAttribute("x")) + 5 * len(t.firstChild.data) < w, t.firstChild.data
P
}

pictures() {
    picture 8 1 0 --xml cube.xml --channels 1
    picture 64 8 24 --xml cube.xml --channels 1 --hosts 8
    picture 12 2 12 --xml switched.xml --hosts 2
    picture 7 1 2 --xml pcie.xml
    picture 3 1 2 --xml pcie.xml --ranks gpu:0,1,4
    picture 16 1 2 --synthetic "pack:2 core:8 pu:2"
    picture 256 1 8 --synthetic "pack:8 core:32 pu:1" --ranks 256
    picture 4 4 0 --synthetic "pu:1" --hosts 4
    refused "cannot write no/where.svg: No such file" --xml cube.xml --svg no/where.svg
    [ ! -w /dev/full ] || refused "cannot write all of /dev/full: No space left" --xml cube.xml --svg /dev/full
}

# $1: what the error must say; others: the options. One line, status 1, nothing on standard output.
refused() {
    local words=$1; shift
    go "$@"
    [ $rc = 1 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -qF -- "$words" err ||
        fail "topo $*: status $rc, expected 1 and \"$words\"" out err
}

bad_files() {
    local x=cube.xml
    refused "cannot open nothing.xml: No such file" --xml nothing.xml
    refused "is a directory" --xml .
    : >empty.xml; refused "empty.xml is empty" --xml empty.xml
    head -c 4000 /dev/urandom >noise.xml; refused "noise.xml is not XML" --xml noise.xml
    echo "a letter" >letter.xml; refused "letter.xml is not XML" --xml letter.xml
    echo '<html><body/></html>' >page.xml; refused "has no <topology>" --xml page.xml
    head -c 5000 $x >half.xml; refused "half.xml is cut off" --xml half.xml
    sed 's/version="2.0"/version="3.0"/' $x >three.xml; refused "three.xml is of version 3.0" --xml three.xml
    grep -v '"PU"' "$here/topologies/one-pu.xml" >none.xml; refused "describes no processing unit" --xml none.xml
    sed 's/<object type="Core"/<object type="Wheel"/' $x >wheel.xml; refused "wheel.xml" --xml wheel.xml
    sed 's/<\/object>//' $x >open.xml; refused "open.xml" --xml open.xml
    if [ "$(id -u)" != 0 ]; then cp $x locked.xml; chmod 0 locked.xml; refused "Permission denied" --xml locked.xml; fi
    cat $x | timeout 30 "$rondo" topo --xml /dev/stdin --json >out 2>err || fail "from a pipe" err
}

# Cut off and garbled at many places: a machine or an error, nothing else.
garbled() {
    python3 - cube.xml <<'P'
import random, sys
text = open(sys.argv[1], "rb").read()
random.seed(4)
for i in range(60):
    t = bytearray(text)
    if i % 3 == 0: t = t[:random.randrange(len(t))] + b"</topology>"
    elif i % 3 == 1:
        for _ in range(3): t[random.randrange(200, len(t))] = random.choice(b'0123456789x"<> ')
    else:
        words = text.split(b" ")
        del words[random.randrange(20, len(words))]
        t = b" ".join(words)
    open(f"garbled{i}.xml", "wb").write(t)
P
    for x in garbled*.xml; do
        go --xml "$x" --hosts 2
        case $rc in 0) [ -s out ] ;; 1) [ "$(grep -c '^rondo topo: ' err)" = 1 ] ;; *) false ;; esac || fail "$x: status $rc" err
    done
}

bad_ranks() {
    refused "cpu 4 is not there: this machine's are numbered from 0 to 3" --xml cube.xml --ranks 0-4
    refused "core 99 is not there" --xml cube.xml --ranks core:99
    refused "gpu 8 is not there: this machine's are numbered from 0 to 7" --xml cube.xml --ranks gpu:0-8
    refused "gpu 0: this machine has no gpus" --xml crowd.xml --ranks gpu:0
    refused "gpu:all: this machine has no gpus" --xml crowd.xml --ranks gpu:all
    refused "cpu 2 is there, but this process may not run on it" --xml some.xml --ranks 0-2
    local words
    for words in "gpu:" "wheel:0" "0-" "3-1" "0,,1" "0/" "1x" "cpu:0;1" "gpu:0 1" "cpu:99999999999"; do
        refused "--ranks: cannot read" --xml cube.xml --ranks "$words"
    done
    refused "more than 1024 ranks" --xml cube.xml --ranks core:all,all,all,all,all --hosts 64
}

golden
odd_machines
real_machines
pictures
bad_files
garbled
bad_ranks
[ $failed = 0 ] && echo "machines: as they should be"
exit $failed
