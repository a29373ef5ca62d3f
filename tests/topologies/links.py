#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `rondo topo` shows of a machine with GPUs, beside what a communicator of ranks on these GPUs does there.

    tests/topologies/links.py BUILD [NAME...]

The machine is one of machines.py as hwloc's XML; its GPUs are the simulated driver's (tests/cudasim), which has them at the
same bus addresses, joined likewise. Rank r uses the GPU that topo puts rank r on: then the ring, its hops and what they go
over must be topo's. With the GPUs dealt out in other ways the ring may be another one of equal cost. The job adds up in GPU
memory, so that links which are there but do not work show, too."""
import json, os, random, re, subprocess, sys, tempfile
import xml.etree.ElementTree as ElementTree
import machines

# Machine, how the driver says that GPUs are joined, hops of the ring by kind, and whether GPUs reach one another's memory.
CASES = [
    ("pairs", "pairs", {"NVLink": 2, "host bridge": 2}, True),
    ("switched", "switch", {"NVSwitch": 6}, True),
    ("cube", "all", {"NVLink": 8}, True),
    ("pcie", "pcie", {"PCIe switch": 2, "host bridge": 1, "processor": 2, "processors": 2}, True),
    ("pcie", "none", {"processors": 7}, False),
]


def gpu_addresses(text):
    """Of nvml0, nvml1, ...: the driver's GPU i is at the i-th."""
    found = {}
    for function in ElementTree.fromstring(text[text.index("<topology"):]).iter("object"):
        for device in function.findall("object"):
            if device.get("osdev_type") == "5": found[device.get("name")] = function.get("pci_busid")
    return [found[name] for name in sorted(found)]


def run(command, **variables):
    done = subprocess.run(command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(command)}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def job(build, devices, settings):
    """As the log has it: the first ring, how many there are, its hops by kind, and what is said first of each link's way.
    devices: of each rank."""
    log = run([f"{build}/rondo", "run", "-n", str(len(devices)), "--", "bash", "-c",
               'LOCAL_RANK=$(cut -d, -f$((LOCAL_RANK + 1)) <<<"$1") exec "$2"', "rank", ",".join(map(str, devices)),
               f"{build}/examples/all_reduce_cuda"], RONDO_DEBUG="INFO", **settings)
    assert log.count(" sums over the GPU, 0 wrong") == len(devices), log
    ring, rings = re.search(r"INFO: ring: ([0-9 >-]+), (\d+) channel", log).groups()
    kinds = {kind: int(n) for n, kind in re.findall(r"(\d+) by ([^,;]+)[,;]", re.search(r"hops of the ring: .*", log)[0])}
    ways = {}
    for a, b, way in re.findall(r"INFO: rank (\d+) -> rank (\d+): (.*)", log): ways.setdefault((int(a), int(b)), way)
    return [int(r) for r in ring.split(" -> ")][:-1], int(rings), kinds, ways


def successors(order): return {(a, b) for a, b in zip(order, order[1:] + order[:1])}


def check(build, name, joined, kinds, reach):
    text = machines.xml(machines.MACHINES[name])
    addresses = gpu_addresses(text)
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(text)
        file.flush()
        settings = dict(HWLOC_XMLFILE=file.name, LD_LIBRARY_PATH=f"{build}/cudasim",
                        CUDASIM=f"devices={len(addresses)} p2p={joined} pci={','.join(addresses)}")
        topo = json.loads(run([f"{build}/rondo", "topo", "--json"], **settings))
        gpus, rings = topo["machine"]["gpus"], topo["rings"]
        devices = [int(gpus[r["gpu"]]["name"].removeprefix("cuda")) for r in topo["ranks"]]
        shown = [h["shared"] for h in rings[0]["hops"]]
        assert {k: shown.count(k) for k in shown} == kinds, f"topo's hops: {shown}"

        order, channels, hops, ways = job(build, devices, settings)
        assert successors(order) == successors(rings[0]["order"]), f"topo's ring is {rings[0]['order']}, the ranks' {order}"
        assert channels == len(rings) and hops == kinds, f"{channels} channels, hops {hops}; topo has {len(rings)} rings"
        wanted = set().union(*(successors(r["order"]) for r in rings))
        assert set(ways) == wanted, f"links {sorted(ways)}, topo's hops {sorted(wanted)}"
        for (a, b), way in ways.items():
            wanted = "cuda_ipc, since both" if reach else f"through host memory, since GPU {devices[a]} has no peer-to-peer"
            assert way.startswith(wanted), f"rank {a} -> rank {b}: {way}"

        random.Random(1).shuffle(devices)
        order, channels, hops, ways = job(build, devices, settings)
        assert channels == len(rings) and hops == kinds, f"GPUs {devices}: ring {order}, hops {hops}"
        assert set(ways) >= successors(order), f"GPUs {devices}: ring {order}, links {sorted(ways)}"


if __name__ == "__main__":
    failed = 0
    for case in CASES:
        if sys.argv[2:] and case[0] not in sys.argv[2:]: continue
        try:
            check(os.path.realpath(sys.argv[1]), *case)
            print(f"ok      {case[0]}, p2p={case[1]}: {case[2]}")
        except (AssertionError, subprocess.TimeoutExpired) as error:
            print(f"FAILED  {case[0]}, p2p={case[1]}: {error}")
            failed = 1
    sys.exit(failed)
