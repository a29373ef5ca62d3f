#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Machines to test topologies with: a description of each, and from it the XML that hwloc would have written there.

    tests/topologies/machines.py DIRECTORY    writes DIRECTORY/NAME.xml for each

They are made up, in the likeness of machines that are: figures of links are those of their makers. A machine is
  packages   of each: cores, and what hangs on its host bridges: a list of host bridges, each a list of devices, or of
             lists of devices (a PCIe switch) to any depth
  lost       devices that hang on the machine, on no bus
  links      {(gpu, gpu): MB/s} or {(gpu, switch): MB/s}, both ways
A device is ("gpu", name), ("nic", name, kind) or ("switch", name); kind is "eth" or "ib", and (..., GB/s) may follow, the
speed of its PCIe link."""
import sys

GPU_CLASS, ETH_CLASS, IB_CLASS, SWITCH_CLASS = "0302 [10de:1db8]", "0200 [8086:1572]", "0207 [15b3:1013]", "0680 [10de:1ac2]"
SPEED = 15.75  # GB/s of PCIe 3.0 x16, as hwloc writes it


def gpu(i, speed=SPEED): return ("gpu", f"nvml{i}", None, speed)
def eth(i, speed=SPEED): return ("nic", f"eth{i}", "eth", speed)
def ib(i, speed=SPEED): return ("nic", f"ib{i}", "ib", speed)


def cube():
    """Eight GPUs, as many direct links on each as six: two squares whose corners are joined, some links double."""
    links = {}
    for a, b in [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)]: links[a, b] = 50000
    for a, b in [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)]: links[a, b] = 25000
    half = lambda g, n: [[[gpu(g), gpu(g + 1), ib(n)], [gpu(g + 2), gpu(g + 3), ib(n + 1)]]]
    return dict(packages=[dict(cores=2, bridges=half(0, 0)), dict(cores=2, bridges=half(4, 2))],
                links={(f"nvml{a}", f"nvml{b}"): v for (a, b), v in links.items()})


def switched():
    """Six GPUs, each with one link to each of three ports of a switch."""
    ports = [("switch", f"port{i}", None, SPEED) for i in range(3)]
    return dict(packages=[dict(cores=2, bridges=[[[gpu(0), gpu(1)], [gpu(2), ib(0)]], [ports]]),
                          dict(cores=2, bridges=[[[gpu(3), ib(1)], [gpu(4), gpu(5)]]])],
                links={(f"nvml{g}", f"port{p}"): 25000 for g in range(6) for p in range(3)})


def pairs():
    """Two pairs of GPUs joined by a bridge, one of each pair on either package: the pairs lie across PCIe."""
    return dict(packages=[dict(cores=4, bridges=[[gpu(0), gpu(2)], [eth(0)]]), dict(cores=4, bridges=[[gpu(1), gpu(3)]])],
                links={("nvml0", "nvml1"): 50000, ("nvml2", "nvml3"): 50000})


def pcie():
    """GPUs by PCIe alone: two switches on one package, a third on the other; one GPU on a slower link."""
    return dict(packages=[dict(cores=4, bridges=[[[gpu(0), gpu(3), eth(0)], [gpu(1), gpu(4)]]]),
                          dict(cores=4, bridges=[[[gpu(2), gpu(5), eth(1)]], [gpu(6, 7.875)]])], links={})


def lost():
    """GPUs that only the vendor's library knows, on no bus; and a card below a switch of its own."""
    return dict(packages=[dict(cores=2, bridges=[[[[eth(0)]]]]), dict(cores=2, bridges=[])],
                lost=[gpu(i) for i in range(4)], links={("nvml1", "nvml3"): 25000, ("nvml0", "nvml2"): 25000})


def crowd():
    """Hundreds of functions of two network cards, all but one of each without an interface; no GPU."""
    functions = [("function", f"f{i}", None, SPEED) for i in range(250)]
    return dict(packages=[dict(cores=3, bridges=[[[eth(0)] + functions]]), dict(cores=3, bridges=[[[eth(1)] + functions]])],
                links={})


MACHINES = dict(cube=cube(), switched=switched(), pairs=pairs(), pcie=pcie(), lost=lost(), crowd=crowd())


# ---- XML -------------------------------------------------------------------------------------------------------

class Writer:
    def __init__(self):
        self.lines, self.depth, self.next, self.bus, self.index = [], 1, 1, 0, {}

    def put(self, text): self.lines.append("  " * self.depth + text)

    def open(self, kind, **attributes):
        self.put(f'<object type="{kind}" ' + " ".join(f'{k}="{v}"' for k, v in attributes.items()) + f' gp_index="{self.next}">')
        self.next += 1
        self.depth += 1
        return self.next - 1

    def close(self):
        self.depth -= 1
        self.put("</object>")


def sets(cpus, nodes):
    c, n = hex(cpus), hex(nodes)
    return dict(cpuset=c, complete_cpuset=c, nodeset=n, complete_nodeset=n)


def busses(tree): return sum(busses(t) for t in tree) + 1 if isinstance(tree, list) else 1


def os_device(w, device):
    kind, name, sort, _ = device
    number = w.open("OSDev", name=name, osdev_type=5 if kind == "gpu" else 2)
    if kind == "gpu": w.put('<info name="GPUModel" value="Test GPU"/>')
    if sort: w.put('<info name="Address" value="%s"/>' % ":".join(["02"] * (20 if sort == "ib" else 6)))
    w.close()
    w.index[name] = f"OSDev:{number}"
    if sort == "ib":
        w.open("OSDev", name=name.replace("ib", "mlx5_"), osdev_type=3)
        w.put('<info name="Port1State" value="4"/>')
        w.close()


def write_tree(w, tree, depth):
    """A device on a bus of its own behind a bridge, or a switch: a bridge above bridges."""
    first = w.bus + 1
    last = first + busses(tree) - 1
    w.bus = first
    w.open("Bridge", bridge_type="1-1", depth=depth, bridge_pci=f"0000:[{first:02x}-{last:02x}]",
           pci_busid=f"0000:{first - 1:02x}:00.0", pci_type="0604 [10b5:9797] [10b5:9797] aa", pci_link_speed=f"{SPEED:f}")
    if isinstance(tree, list):
        functions = [t for t in tree if not isinstance(t, list) and t[0] == "function"]
        for t in tree:
            if t not in functions: write_tree(w, t, depth + 1)
        for i, f in enumerate(functions):
            w.open("PCIDev", pci_busid=f"0000:{w.bus:02x}:{1 + i // 8:02x}.{i % 8}", pci_type="0200 [8086:154c] [0000:0000] 02",
                   pci_link_speed="0.000000")
            w.close()
    else:
        kind, name, sort, speed = tree
        code = {"gpu": GPU_CLASS, "switch": SWITCH_CLASS}.get(kind) or (IB_CLASS if sort == "ib" else ETH_CLASS)
        extra = dict(subtype="NVSwitch") if kind == "switch" else {}
        number = w.open("PCIDev", **extra, pci_busid=f"0000:{first:02x}:00.0", pci_type=f"{code} [0000:0000] a1",
                        pci_link_speed=f"{speed:f}")
        if kind == "switch": w.index[name] = f"PCIDev:{number}"
        else: os_device(w, tree)
        w.close()
    w.close()


def write_package(w, i, package, first):
    cpus, nodes = ((1 << package["cores"]) - 1) << first, 1 << i
    w.open("Package", os_index=i, **sets(cpus, nodes))
    w.open("NUMANode", os_index=i, **sets(cpus, nodes), local_memory=64 << 30)
    w.close()
    w.open("L3Cache", **sets(cpus, nodes), cache_size=32 << 20, depth=3, cache_linesize=64, cache_associativity=16, cache_type=0)
    for c in range(first, first + package["cores"]):
        w.open("Core", os_index=c, **sets(1 << c, nodes))
        w.open("PU", os_index=c, **sets(1 << c, nodes))
        w.close()
        w.close()
    w.close()
    for bridge in package["bridges"]:
        begin, end = w.bus, w.bus + sum(busses(t) for t in bridge)
        w.open("Bridge", bridge_type="0-1", depth=0, bridge_pci=f"0000:[{begin:02x}-{end:02x}]")
        for t in bridge: write_tree(w, t, 1)
        w.close()
        w.bus += 1
    w.close()


def xml(machine):
    w = Writer()
    cores, nodes = sum(p["cores"] for p in machine["packages"]), len(machine["packages"])
    whole = sets((1 << cores) - 1, (1 << nodes) - 1)
    w.open("Machine", os_index=0, **whole, allowed_cpuset=whole["cpuset"], allowed_nodeset=whole["nodeset"])
    first = 0
    for i, package in enumerate(machine["packages"]):
        write_package(w, i, package, first)
        first += package["cores"]
    for device in machine.get("lost", []): os_device(w, device)
    w.close()
    links = machine["links"]
    names = sorted({n for pair in links for n in pair}, key=list(w.index).index)
    if links:
        values = [str(links.get((a, b), links.get((b, a), 0))) for a in names for b in names]
        objects = " ".join(w.index[n] for n in names) + " "
        hetero = any(w.index[n].startswith("PCI") for n in names)
        tag = "distances2hetero" if hetero else "distances2"
        if not hetero: objects = objects.replace("OSDev:", "")
        kind = 'kind="25"' if hetero else 'type="OSDev" kind="9" indexing="gp"'
        w.put(f'<{tag} nbobjs="{len(names)}" {kind} name="NVLinkBandwidth">')
        w.put(f'  <indexes length="{len(objects)}">{objects}</indexes>')
        text = " ".join(values) + " "
        w.put(f'  <u64values length="{len(text)}">{text}</u64values>')
        w.put(f"</{tag}>")
    return ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n'
            + "\n".join(w.lines) + "\n</topology>\n")


if __name__ == "__main__":
    for name, machine in MACHINES.items():
        with open(f"{sys.argv[1]}/{name}.xml", "w") as f: f.write(xml(machine))
