# SPDX-License-Identifier: Apache-2.0
"""Tables, goals, and the part of bench/RESULTS.md that `make bench-peers` writes."""
import os
import platform
import statistics

KIB, MIB = 1 << 10, 1 << 20
PEERS = ["Open MPI", "Open MPI, UCX", "MPICH"]
BEGIN, END = "<!-- make bench-peers: begin -->", "<!-- make bench-peers: end -->"
SHARED = {"core": "Ranks on one core", "L3": "Ranks share an L3 cache", "host": "Ranks share no cache"}
LEAST_BLOCKS = 3  # of one placement, for a figure


def size_name(size):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def number(x):
    return f"{x:.2f}" if x < 100 else f"{x:.1f}" if x < 1000 else f"{x:,.0f}"


class Measured:
    """One size: medians by placement and contestant."""

    def __init__(self, size, found, lost, wrong, trips):
        self.size, self.lost, self.wrong = size, lost, wrong
        self.blocks = {where: min(map(len, one.values())) for where, one in found.items()}
        self.times = {where: {name: statistics.median(medians) for name, medians in one.items()}
                      for where, one in found.items() if self.blocks[where] >= LEAST_BLOCKS}
        self.trips = {where: statistics.median(all_trips) for where, all_trips in trips.items() if all_trips}

    def line(self, names):
        out = [f"{size_name(self.size):>8}"]
        for where, times in self.times.items():
            fastest = min((times[n] for n in names if n.startswith("sockets:")), default=None)
            shown = [f"{n} {number(times[n])}" for n in names if not n.startswith("sockets:")]
            out.append(f"{where} ({self.blocks[where]} blocks or more): " + ", ".join(shown) +
                       (f", sockets {number(fastest)}" if fastest else ""))
        if not self.times:
            out.append("no placement lasted long enough")
        if self.lost:
            out.append("lost: " + ", ".join(f"{n} blocks {where}" for where, n in self.lost.items()))
        if self.wrong:
            out.append(f"WRONG: {self.wrong} elements")
        return "  ".join(out)


def best_peer(times):
    return min(times[p] for p in PEERS)


def gloo_over(times, rondo="Rondo"):
    """How many times longer Gloo takes."""
    return times["Gloo"] / times[rondo]


def fair_limit(times):
    return min(t for name, t in times.items() if name.startswith("sockets:"))


# ---- Goals ----

def verdict(value, most):
    return "met" if value <= most else "NOT met"


def goal(lines, text, row, where, value, most):
    """One figure that must be at most so much."""
    lines.append((text, size_name(row.size), where, value, most, verdict(value, most)))


def most_of_mpi(size, where):
    """What part of the faster MPI's time Rondo may take."""
    if size == 64 * MIB:
        return 0.3 if where == "host" else 0.25
    if size == 16 * MIB:
        return 0.4
    return 0.5 if 4 * KIB <= size <= 4 * MIB else 1.0


# Where the two share an L3 cache, and one of a trial in which each size was tuned by itself came about as far: the time
# over the zero-copy bound's, and over the faster MPI's.
NEAR_BOUND = {4 * KIB: 1.3, 16 * KIB: 1.6, 64 * KIB: 2.2, 256 * KIB: 2.6, MIB: 3.0, 4 * MIB: 3.2, 16 * MIB: 2.2,
              64 * MIB: 1.4}
NEAR_MPI = {4 * KIB: 1 / 3.5, 16 * KIB: 1 / 5, 64 * KIB: 1 / 5, 256 * KIB: 1 / 4, MIB: 1 / 2.5, 4 * MIB: 1 / 2.3,
            16 * MIB: 1 / 3, 64 * MIB: 1 / 5}
# Where they share none: 1.1 times what the trial took of the faster MPI's time.
FAR_MPI = {4: 0.75, KIB: 0.47, 4 * KIB: 0.35, 16 * KIB: 0.22, 64 * KIB: 0.22, 256 * KIB: 0.23, MIB: 0.20, 4 * MIB: 0.19,
           16 * MIB: 0.38, 64 * MIB: 0.31}


def near_goals(lines, row, where, t):
    if row.size in NEAR_BOUND:
        goal(lines, "near: Rondo / zero-copy bound", row, where, t["Rondo"] / t["bound"], NEAR_BOUND[row.size])
        goal(lines, "near: Rondo / faster MPI", row, where, t["Rondo"] / best_peer(t), NEAR_MPI[row.size])
    else:
        goal(lines, "near: Rondo / a flag's round trip", row, where, t["Rondo"] * 1e3 / row.trips[where], 2)
    if row.size >= 256 * KIB:
        goal(lines, "near: rondo_mem_alloc memory / zero-copy bound", row, where, t["shared"] / t["bound"], 1.2)


def shm_goals(lines, rows):
    for row in rows:
        for where, t in row.times.items():
            ratio, size = t["Rondo"] / best_peer(t), row.size
            goal(lines, "Rondo / faster MPI", row, where, ratio, most_of_mpi(size, where))
            if "Gloo" in t:
                goal(lines, "Rondo / Gloo", row, where, 1 / gloo_over(t), 1 / 10 if size <= 16 * MIB else 1 / 7)
            if size >= MIB:
                goal(lines, "rondo_mem_alloc memory / zero-copy bound", row, where, t["shared"] / t["bound"], 1.5)
            if where == "L3":
                near_goals(lines, row, where, t)
            if where == "host" and size in FAR_MPI:
                goal(lines, "far: Rondo / faster MPI", row, where, ratio, FAR_MPI[size])


def hop(times):
    """What a message takes one way: an all-reduce of two ranks is one."""
    return times["ping"] / 2


def tcp_goals(lines, rows):
    for row in rows:
        for where, t in row.times.items():
            goal(lines, "TCP: Rondo / Open MPI", row, where, t["Rondo, TCP"] / t["Open MPI, TCP"], 1.0)
            if "Gloo" in t:
                goal(lines, "TCP: Rondo / Gloo", row, where, 1 / gloo_over(t, "Rondo, TCP"), 1.0)
            if row.size <= 4 * KIB:
                goal(lines, "TCP: Rondo / a hop of a raw ping-pong", row, where, t["Rondo, TCP"] / hop(t), 1.3)
            if row.size >= 16 * MIB:
                goal(lines, "TCP: Rondo / fair limit", row, where, t["Rondo, TCP"] / fair_limit(t), 1.35)
                goal(lines, "TCP: Rondo / (fair limit + a reduction pass)", row, where,
                     t["Rondo, TCP"] / (fair_limit(t) + t["pass"]), 1 / 0.9)


NARROW, OPERATORS = ("float16", "bfloat16", "float8e4m3", "float8e5m2"), ("sum", "prod", "max", "min", "avg")
HALVES = NARROW[:2]


def levels_of(times):
    return sorted({name.split()[0] for name in times})


def over_float32(times, level, kind):
    """The same bytes' time over that of a float32 sum."""
    return times[f"{level} {kind}"] / times[f"{level} float32/sum"]


def type_goals(lines, rows):
    for row in rows:
        for where, t in row.times.items():
            for level, name in ((level, name) for level in levels_of(t) for name in NARROW):
                worst = max(OPERATORS, key=lambda o: over_float32(t, level, f"{name}/{o}"))
                goal(lines, f"types: {name} (slowest: {worst}) / float32 sum, {level}", row, where,
                     over_float32(t, level, f"{name}/{worst}"), 1.5 if name in HALVES else 4)


def crowd_goals(lines, rows):
    for row in rows:
        for where, t in row.times.items():
            for ranks in (2, 4, 8):
                goal(lines, f"ring / flat, {ranks} ranks", row, where, t[f"ring {ranks}"] / t[f"flat {ranks}"],
                     1.6 if row.size >= MIB else 2.0)
            if row.size == MIB:
                goal(lines, "8 ranks / 2 ranks", row, where, t["flat 8"] / t["flat 2"], 16)
            # Ranks times busbw, 2(N-1) messages in that time, at least half of what two ranks on two cores have.
            for ranks in (4, 8, 16):
                goal(lines, f"{ranks} ranks on 2 cores: time / that of 2 ranks", row, where,
                     t[f"flat {ranks}"] / t["flat 2"], 2 * (ranks - 1))


# Where ranks take turns: 1.1 times what the trial, every rank's sums written back to all, took of Open MPI's time.
TURNS_MPI = {4: {64 * KIB: 0.15, MIB: 0.15, 16 * MIB: 0.45}, 8: {64 * KIB: 0.13, MIB: 0.14, 16 * MIB: 0.47}}


def many_goals(lines, rows):
    for row in rows:
        for where, t in row.times.items():
            for n in (4, 8):
                ratio = t[f"Rondo {n}"] / min(t[f"Open MPI {n}"], t[f"MPICH {n}"])
                goal(lines, f"Rondo / faster MPI, {n} ranks", row, where, ratio, 1.0)
                if row.size in TURNS_MPI[n]:
                    goal(lines, f"turns: Rondo / faster MPI, {n} ranks", row, where, ratio, TURNS_MPI[n][row.size])


def trial_goals(lines, rows, what, pairs=(("Rondo", "two-phase"),)):
    """How near to a program that does nothing else."""
    for row in rows:
        for where, t in row.times.items():
            for ours, trial in pairs:
                goal(lines, f"{what}{ours} / {trial}", row, where, t[ours] / t[trial], 1.1)


BEHIND = (0, 16, 4)  # bytes behind a multiple of 64


def align_goals(lines, rows):
    trial_goals(lines, rows, "alignment: ", [(f"Rondo {b}", f"two-phase {b}") for b in BEHIND])
    for row in rows:
        for where, t in row.times.items():
            for b in BEHIND[1:]:
                goal(lines, f"alignment: Rondo {b} / Rondo 0", row, where, t[f"Rondo {b}"] / t["Rondo 0"], 1 / 0.8)


def goals_of(measured):
    lines = []
    shm_goals(lines, measured.get("shm", []))
    trial_goals(lines, measured.get("shm", []), "")
    trial_goals(lines, measured.get("out", []), "out of place: ")
    trial_goals(lines, measured.get("huge", []), "huge pages: ")
    align_goals(lines, measured.get("align", []))
    tcp_goals(lines, measured.get("tcp", []))
    type_goals(lines, measured.get("types", []))
    crowd_goals(lines, measured.get("crowd", []))
    many_goals(lines, measured.get("many", []))
    return lines


def shown(goals):
    """The goals for the screen."""
    return [f"{v:>7}  {text}, {size} ({where}): {value:.2f}, at most {most:g}"
            for text, size, where, value, most, v in goals]


# ---- Tables ----

def table(head, body):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(row) + " |" for row in body]


def shm_tables(rows):
    out = []
    for where in sorted({w for row in rows for w in row.times}):
        chosen = [row for row in rows if where in row.times]
        trip = statistics.median(row.trips[where] for row in chosen)
        out += ["", f"{SHARED[where]} (a flag's round trip {trip:.0f} ns), µs:", ""]
        head = ["size", "Gloo", *PEERS, "Rondo", "Rondo / faster MPI", "Gloo / Rondo", "two-phase",
                "Rondo / two-phase", "Rondo, ring", "Rondo, rondo_mem_alloc", "zero-copy bound", "bound / Rondo"]
        body = []
        for row in chosen:
            t = row.times[where]
            body.append([size_name(row.size), number(t["Gloo"]), *(number(t[p]) for p in PEERS), number(t["Rondo"]),
                         f"{t['Rondo'] / best_peer(t):.2f}", f"{gloo_over(t):.1f}", number(t["two-phase"]),
                         f"{t['Rondo'] / t['two-phase']:.2f}", *(number(t[n]) for n in ("ring", "shared", "bound")),
                         f"{t['bound'] / t['Rondo']:.0%}"])
        out += table(head, body)
    return out


def buffer_table(rows):
    columns = ("Gloo", *PEERS, "Rondo")
    body = [[size_name(row.size), where, *(number(t[name]) for name in columns),
             f"{t['Rondo'] / best_peer(t):.2f}", f"{gloo_over(t):.1f}", number(t["two-phase"]),
             f"{t['Rondo'] / t['two-phase']:.2f}"] for row in rows for where, t in row.times.items()]
    head = ["size", "placement", *columns, "Rondo / faster MPI", "Gloo / Rondo", "two-phase", "Rondo / two-phase"]
    return [""] + table(head, body)


def align_table(rows):
    names = [f"{name} {b}" for name in ("Rondo", "two-phase") for b in BEHIND]
    body = [[size_name(row.size), where, *(number(t[n]) for n in names),
             *(f"{t['Rondo 0'] / t[f'Rondo {b}']:.2f}" for b in BEHIND[1:])]
            for row in rows for where, t in row.times.items()]
    head = ["size", "placement"] + [f"{n} mod 64" for n in names] + [f"{b}: part of the speed at 0" for b in BEHIND[1:]]
    return [""] + table(head, body)


def many_table(rows):
    columns, body = ("Gloo", "Open MPI", "MPICH", "Rondo"), []
    for row in rows:
        for n, t in ((n, t) for n in (4, 8) for t in row.times.values()):
            gloo, *mpi, rondo = (t[f"{name} {n}"] for name in columns)
            body.append([size_name(row.size), str(n), *(number(x) for x in (gloo, *mpi, rondo)),
                         f"{rondo / min(mpi):.2f}", f"{gloo / rondo:.1f}"])
    return [""] + table(["size", "ranks", *columns, "Rondo / faster MPI", "Gloo / Rondo"], body)


def tcp_tables(rows):
    out = []
    for where in sorted({w for row in rows for w in row.times}):
        out += ["", f"{SHARED[where]}, µs:", ""]
        body = []
        for row in (r for r in rows if where in r.times):
            t = row.times[where]
            best = min((n for n in t if n.startswith("sockets:")), key=t.get)
            _, sockets, piece = best.split(":")
            how = f"{sockets} × " + (size_name(int(piece)) if int(piece) < 1 << 40 else "unlimited")
            body.append([size_name(row.size), number(t["Gloo"]), number(t["Open MPI, TCP"]), number(t["Rondo, TCP"]),
                         f"{t['Rondo, TCP'] / t['Open MPI, TCP']:.2f}", f"{gloo_over(t, 'Rondo, TCP'):.1f}",
                         number(t[best]), how, f"{t['Rondo, TCP'] / t[best]:.2f}", number(hop(t)), number(t["pass"])])
        head = ["size", "Gloo", "Open MPI", "Rondo", "Rondo / Open MPI", "Gloo / Rondo", "fair limit",
                "sockets × pieces", "Rondo / limit", "a hop of a ping-pong", "a reduction pass"]
        out += table(head, body)
    return out


def type_table(rows):
    body = []
    for row in rows:
        for where, t in row.times.items():
            for level in levels_of(t):
                body.append([size_name(row.size), where, level, "float32", number(t[f"{level} float32/sum"])] +
                            ["" for _ in OPERATORS])
                body += [[size_name(row.size), where, level, name, ""] +
                         [f"{over_float32(t, level, f'{name}/{o}'):.2f}" for o in OPERATORS] for name in NARROW]
    return [""] + table(["size", "placement", "RONDO_CPU", "type", "sum, µs", *OPERATORS], body)


def crowd_table(rows):
    columns = [(name, n) for n in (2, 4, 8) for name in ("flat", "ring")] + [("flat", 16)]
    body = [[size_name(row.size), where, *(number(t[f"{name} {n}"]) for name, n in columns)]
            for row in rows for where, t in row.times.items()]
    return [""] + table(["size", "placement", *(f"{name}, {n} ranks" for name, n in columns)], body)


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                 platform.machine())
    release = next((line.split("=", 1)[1].strip().strip('"') for line in open("/etc/os-release")
                    if line.startswith("PRETTY_NAME")), "")
    return f"{model}, {os.cpu_count()} processors, Linux {platform.release()}, {release}"


def picture(plots, part):
    return ["", f"![times of the others over Rondo's]({plots[part]})"] if part in plots else []


def results(measured, goals, plots, versions, commands, seconds):
    """The text for RESULTS.md."""
    missed = sum(v != "met" for *_, v in goals)
    lost = {}
    for rows in measured.values():
        for row in rows:
            for where, n in row.lost.items():
                lost[where] = lost.get(where, 0) + n
    peers = ", ".join(f"{name} {version}" for name, version in versions.items())
    out = [f"Machine: {machine()}. {peers}: Debian's packages. That Gloo has TCP only, here over loopback; its ranks are "
           "bound to no processor, and sleep where the others' meet at a flag, so that its own threads can run.",
           f"Command: `make bench-peers` ({seconds:.0f} s). Load average at the end: {os.getloadavg()[0]:.1f}.",
           "Blocks that were not counted: " + (", ".join(f"{n} {w}" for w, n in lost.items()) or "none") + ".", "",
           "### Shared memory: 2 ranks, float32 sum, in place, private memory (malloc, 4 KiB pages), buffers rewritten"]
    out += shm_tables(measured["shm"]) + picture(plots, "shm")
    out += ["", "### The same, out of place"] + buffer_table(measured["out"]) + picture(plots, "out")
    out += ["", "### The same, in place, in 2 MiB pages (madvise)"] + buffer_table(measured["huge"])
    out += picture(plots, "huge")
    out += ["", "### The same, in place: where buffers begin, modulo 64 (µs)"] + align_table(measured["align"])
    out += ["", "### TCP: the same over loopback"] + tcp_tables(measured["tcp"])
    out += picture(plots, "tcp")
    out += ["", "### Narrow floats, 2 ranks, shared memory, in place: the same bytes' time over a float32 sum's"]
    out += type_table(measured["types"])
    out += ["", "### Ring and flat, and more ranks than cores (µs)"] + crowd_table(measured["crowd"])
    out += ["", "### 4 and 8 ranks, which take turns on the processors (µs)"] + many_table(measured["many"])
    out += picture(plots, "many")
    out += ["", f"### Goals: {len(goals) - missed} of {len(goals)} met", ""]
    out += table(["goal", "size", "placement", "measured", "at most", ""],
                 [[text, size, where, f"{value:.2f}", f"{most:g}", v] for text, size, where, value, most, v in goals])
    out += ["", "### Commands", "", "Each was started once; PAGE is a file in memory that its ranks share.", ""]
    out += [f"- {name}: `{command}`" for name, command in dict(commands).items()]
    return "\n".join(out)


README_SIZES = (4, 1 << 10, 4 << 10, 64 << 10, MIB, 16 * MIB, 64 * MIB)
README_TCP_SIZES = (4, 16 << 10, MIB, 16 * MIB)


def readme(measured):
    """The short table: for each size the first placement that was measured."""
    body = []
    for key, ours, sizes in (("shm", "Rondo", README_SIZES), ("tcp", "Rondo, TCP", README_TCP_SIZES)):
        for row in measured[key]:
            if row.size not in sizes or not row.times:
                continue
            where, t = sorted(row.times.items())[0]
            mpi = best_peer(t) if key == "shm" else t["Open MPI, TCP"]
            body.append([size_name(row.size) + ("" if key == "shm" else ", TCP over loopback"), where, number(t["Gloo"]),
                         number(mpi), number(t[ours]), f"{t[ours] / mpi:.2f}"])
    head = ["size", "the cores share", "Gloo", "faster of Open MPI and MPICH", "Rondo", "Rondo / MPI"]
    return "\n".join(table(head, body))


def write(path, text):
    """Replaces what stands between the two marks."""
    whole = open(path).read()
    before, rest = whole.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    with open(path, "w") as file:
        file.write(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
