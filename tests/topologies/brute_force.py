#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the rings of machines.py must be, by trying all orders.

    tests/topologies/brute_force.py >tests/topologies/expected.json

Shares nothing with the library: it reads the descriptions and not the XML, has its own copy of the table of links, and looks
at every order. The rules (docs/design.md, "Topology"):
  one host     the cheapest round trip from rank 0
  several      hosts in their order; each ring enters and leaves by the least loaded pair of cards (rings over speed), of
               equals the one with the card it came in by, then at the same place, then the first. Inside a host the way
               whose ends are nearest to the cards, then the cheapest
  of equals    the one that goes to the nearest first, and to the lowest rank of equally near ones
  a link between two GPUs costs as much more as rings use it already, in its direction
  how many     as carry most together over direct links; between hosts as many as there are cards of the best kind"""
import itertools
import json
import sys

from machines import MACHINES, SPEED

TABLE = dict(core=(25, 40000), l3=(55, 36000), host=(300, 10000), nvlink=(700, 25000), nvswitch=(900, 150000),
             switch=(1200, 12500), bridge=(1500, 12000), processor=(1800, 11000), processors=(2500, 9000),
             network=(5000, 1250))
MOST_RINGS = 8


def cost(link, users=1): return link[0] + 65536 * 1000 * users // link[1]


def walk(tree, path):
    """(device, path of what it hangs on) of a tree of buses."""
    if isinstance(tree, list):
        for i, t in enumerate(tree): yield from walk(t, path + (i,)) if isinstance(t, list) else walk(t, path)
    else: yield tree, path


class Host:
    def __init__(self, machine):
        self.links = machine["links"]
        self.gpus, self.nics, self.cores = [], [], []
        for p, package in enumerate(machine["packages"]):
            self.cores += [p] * package["cores"]
            for b, bridge in enumerate(package["bridges"]):
                # What hangs on a host bridge directly shares it and no switch.
                for i, t in enumerate(bridge):
                    for device, path in walk(t, (p, b, i)): self.add(device, path if isinstance(t, list) else (p, b, ("own", i)))
        for device in machine.get("lost", []): self.add(device, None)

    def add(self, device, path):
        if device[0] == "gpu": self.gpus.append((device, path))
        if device[0] == "nic": self.nics.append((device, path))

    def pci(self, x, y):
        (dx, a), (dy, b) = x, y
        if a is None or b is None: return TABLE["processors"]
        kind = "switch" if a[:3] == b[:3] else "bridge" if a[:2] == b[:2] else "processor" if a[0] == b[0] else "processors"
        ns, mbs = TABLE[kind]
        return ns, int(mbs * min(dx[3], dy[3]) / SPEED)

    def between_gpus(self, a, b):
        """(link, whether it is theirs alone)"""
        x, y = self.gpus[a][0][1], self.gpus[b][0][1]
        direct = self.links.get((x, y), self.links.get((y, x)))
        if direct: return (TABLE["nvlink"][0], direct), True
        up = [sum(v for pair, v in self.links.items() if g in pair and any(n.startswith("port") for n in pair)) for g in (x, y)]
        if min(up): return (TABLE["nvswitch"][0], min(up)), False
        return self.pci(self.gpus[a], self.gpus[b]), False

    def between(self, a, b):
        if self.gpus: return self.between_gpus(a, b)
        return (TABLE["l3"] if self.cores[a] == self.cores[b] else TABLE["host"]), False

    def to_nic(self, r, n):
        if self.gpus: return self.pci(self.gpus[r], self.nics[n])
        ns, mbs = TABLE["bridge" if self.cores[r] == self.nics[n][1][0] else "processors"]
        return ns, mbs

    def ranks(self): return len(self.gpus) or len(self.cores)

    def speed(self, n): return (40000 if self.nics[n][0][2] == "ib" else 10000) // 8


class Job:
    def __init__(self, host, hosts):
        self.host, self.hosts, self.n = host, hosts, host.ranks()
        self.users = [{} for _ in range(hosts)]
        self.out = [[0] * len(host.nics) for _ in range(hosts)]
        self.into = [[0] * len(host.nics) for _ in range(hosts)]

    def step(self, h, a, b):
        link, _ = self.host.between(a, b)
        return cost(link, self.users[h].get((a, b), 0) + 1)

    def choose(self, here, there, entered):
        best = None
        for i in range(len(self.host.nics)):
            for j in range(len(self.host.nics)):
                load = max((self.out[here][i] + 1) * 10**9 // self.host.speed(i),
                           (self.into[there][j] + 1) * 10**9 // self.host.speed(j))
                key = (load, -(2 * (i == entered) + (i == j)), i, j)
                if best is None or key < best: best = key
        if best is None: return None, None
        self.out[here][best[2]] += 1
        self.into[there][best[3]] += 1
        return best[2:]

    def way(self, h, enter, leave):
        """The order of a host's ranks: every one is tried."""
        n, best = self.n, None
        to = lambda r, card: 0 if card is None else cost(self.host.to_nic(r, card))
        steps = [[self.step(h, a, b) if a != b else 0 for b in range(n)] for a in range(n)]
        begin, end = [to(r, enter) for r in range(n)], [to(r, leave) for r in range(n)]
        for order in itertools.permutations(range(n)):
            if self.hosts == 1 and order[0]: break
            total = sum(steps[a][b] for a, b in zip(order, order[1:]))
            ends = begin[order[0]] + end[order[-1]]
            if self.hosts == 1: total += steps[order[-1]][order[0]] if n > 1 else 0
            if best and (ends, total) > best[:2]: continue
            costs = [begin[order[0]]] + [steps[a][b] for a, b in zip(order, order[1:])]
            key = (ends, total, list(zip(costs, order)))
            if best is None or key < best: best = key
        order = [r for _, r in best[2]]
        for a, b in zip(order, order[1:] + (order[:1] if self.hosts == 1 else [])):
            if a != b and self.host.between(a, b)[1]: self.users[h][a, b] = self.users[h].get((a, b), 0) + 1
        return order

    def ring(self):
        n, hosts, cards = self.n, self.hosts, []
        entered = [None] * hosts
        if hosts > 1 and self.host.nics:
            for h in range(hosts):
                i, j = self.choose(h, (h + 1) % hosts, entered[h])
                cards.append((i, j))
                entered[(h + 1) % hosts] = j
        order, total = [], 0
        for h in range(hosts):
            order += [h * n + r for r in self.way(h, entered[h], cards[h][0] if cards else None)]
        for k, a in enumerate(order):
            b = order[(k + 1) % len(order)]
            if len(order) == 1: break
            if a // n == b // n: total += cost(self.host.between(a % n, b % n)[0])
            elif not cards: total += cost(TABLE["network"])
            else:
                i, j = cards[a // n]
                parts = [self.host.to_nic(a % n, i), (TABLE["network"][0], min(self.host.speed(i), self.host.speed(j))),
                         self.host.to_nic(b % n, j)]
                total += cost((sum(p[0] for p in parts), min(p[1] for p in parts)))
        zero = order.index(0)
        nics = [[self.host.nics[i][0][1], self.host.nics[j][0][1]] for i, j in cards]
        return dict(order=order[zero:] + order[:zero], cost_ns=total, nics=nics)

    def carried(self, rings):
        if any(not self.host.between(a, b)[1] for r in rings for a, b in zip(r["order"], r["order"][1:] + r["order"][:1])):
            return 0
        return min(self.host.between(a, b)[0][1] // u for (a, b), u in self.users[0].items()) * len(rings)

    def rings(self):
        if self.hosts > 1:
            speeds = [self.host.speed(i) for i in range(len(self.host.nics))] or [1]
            return [self.ring() for _ in range(speeds.count(max(speeds)))]
        made, best, good = [self.ring()], 0, 1
        while self.host.gpus and self.n > 1:
            now = self.carried(made)
            if now > best: best, good = now, len(made)
            if now == 0 or len(made) == MOST_RINGS: break
            made.append(self.ring())
        return made[:good]


expected = {name: {str(hosts): Job(Host(machine), hosts).rings() for hosts in (1, 2, 3)} for name, machine in MACHINES.items()}
json.dump(expected, sys.stdout, indent=1)
print()
