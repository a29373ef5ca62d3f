#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peers.py BUILD - Rondo beside Open MPI, MPICH and Gloo in one run; `make bench-peers` builds what it needs and calls
it.

All programs are started at once and sleep; this one wakes one at a time for a block of a few milliseconds, round
after round, so that all meet the same machine. A block finds out where the two cores sit before and after; it counts only
when both agree, and figures are medians over each one's blocks of one such placement.
"""
import argparse
import os
import re
import select
import subprocess
import sys
import tempfile
import time

import plot
import report

KIB, MIB = 1 << 10, 1 << 20
SIZES = [4, 16, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
TCP_SIZES = [4, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
CROWD_SIZES = [64 * KIB, MIB, 16 * MIB]
MANY_SIZES = [8, KIB, 64 * KIB, MIB, 16 * MIB]
BUFFER_SIZES = [4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
TYPE_SIZES = [64 * KIB, MIB]
ALIGN_SIZES = [4 * KIB, 64 * KIB, MIB, 64 * MIB]
GOOD_BLOCKS, MOST_ROUNDS = 7, 30
BLOCK_S, LEAST_CALLS, MOST_CALLS = 0.02, 5, 300
ANSWER_S = 120
SIZE_S = 7  # after so long fewer blocks must do, and after twice as long what there is


class Program:
    """The ranks of one library, asleep until asked."""

    def __init__(self, name, command, environment=None):
        self.name = name
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        handle, self.page = tempfile.mkstemp(prefix="rondo-peers-", dir=memory)
        os.close(handle)
        self.command = [self.page if word == "PAGE" else word for word in command]
        # mpirun refuses root unless told twice; two that start at once take each other's folder for an error.
        self.folder = tempfile.TemporaryDirectory(prefix="rondo-peers-")
        settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "OMPI_MCA_orte_tmpdir_base": self.folder.name, **(environment or {})}
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        bufsize=1, env={**os.environ, **settings})
        self.shown = " ".join([f"{k}={v}" for k, v in (environment or {}).items()] + command)

    def ask(self, kind, size, calls):
        """One block: least, median, most, place before and after, a flag's round trip, wrong elements."""
        self.process.stdin.write(f"{kind} {size} {calls}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
        line = self.process.stdout.readline() if ready else ""
        if len(line.split()) != 7:
            raise SystemExit(f"peers: {self.name} gave no answer to '{kind} {size} {calls}': {line!r}\n  {self.shown}")
        return Block(*line.split())

    def end(self):
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.process.kill()
            self.process.wait()
        os.unlink(self.page)
        self.folder.cleanup()


class Block:
    def __init__(self, _least, median, _most, before, after, round_trip_ns, wrong):
        self.median = float(median)
        self.wrong = int(wrong)
        self.round_trip_ns = float(round_trip_ns)  # 0: not measured, since ranks take turns
        self.place = before if before == after else "mixed"


class Contestant:
    """A program and one kind of call of it."""

    def __init__(self, name, program, kind="call"):
        self.name, self.program, self.kind = name, program, kind


def calls_for(contestant, size):
    """As many calls as fill a block; the first block of a size also warms up."""
    block = contestant.program.ask(contestant.kind, size, LEAST_CALLS)
    return max(LEAST_CALLS, min(MOST_CALLS, int(BLOCK_S / (block.median * 1e-6 + 1e-9))))


def by_placement(found, names):
    """The placements that all have blocks of. Ranks that take turns have none of their own: theirs count everywhere."""
    turns = found.get("turns", {})
    rows = {where: {**turns, **one} for where, one in found.items()}
    return {where: one for where, one in rows.items() if all(name in one for name in names)}


def measure(contestants, size):
    """By placement and contestant the median of each block, and what was wrong with blocks that do not count."""
    calls = {c.name: calls_for(c, size) for c in contestants}
    found, lost, wrong, trips, begin = {}, {}, 0, {}, time.time()
    for number in range(MOST_ROUNDS):
        shift = number % len(contestants)  # so that nobody always follows the same one
        for c in contestants[shift:] + contestants[:shift]:
            block = c.program.ask(c.kind, size, calls[c.name])
            wrong += block.wrong
            if block.place in ("mixed", "busy"):
                lost[block.place] = lost.get(block.place, 0) + 1
                continue
            found.setdefault(block.place, {}).setdefault(c.name, []).append(block.median)
            trips.setdefault(block.place, []).append(block.round_trip_ns)
        late = time.time() - begin > SIZE_S
        enough = report.LEAST_BLOCKS if late else GOOD_BLOCKS
        rows = by_placement(found, calls)
        if any(min(map(len, one.values())) >= enough for one in rows.values()) or time.time() - begin > 2 * SIZE_S:
            break
    return report.Measured(size, by_placement(found, calls), lost, wrong, trips)


def section(title, contestants, sizes):
    print(f"\n{title}")
    rows = []
    for size in sizes:
        rows.append(measure(contestants, size))
        print(rows[-1].line([c.name for c in contestants]), flush=True)
    return rows


def processors():
    """Two allowed processors, of different cores where there are."""
    chosen, cores = [], set()
    for cpu in sorted(os.sched_getaffinity(0)):
        path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        core = open(path).read() if os.path.exists(path) else str(cpu)
        if core not in cores:
            chosen.append(str(cpu))
        cores.add(core)
    if len(chosen) < 2:
        raise SystemExit("peers: two processors are needed, one for each rank")
    return ",".join(chosen[:2])


def version_of(command, pattern):
    text = subprocess.run(command, capture_output=True, text=True).stdout
    found = re.search(pattern, text)
    return found.group(1) if found else "of unknown version"


class Team:
    """The programs of this run, by name, all ended at the end."""

    def __init__(self, build, cpus, quick):
        self.build, self.cpus, self.quick, self.programs = build, cpus, quick, []

    def add(self, name, launcher, program, environment=None, cpus=None):
        command = launcher + [f"{self.build}/peers/{program}", "PAGE", cpus or self.cpus]
        self.programs.append(Program(name, command, environment))
        return self.programs[-1]

    def openmpi(self, name, *settings, ranks=2, environment=None):
        launcher = ["mpirun.openmpi", "-n", str(ranks)]
        launcher += ["--bind-to", "core"] if ranks == 2 else ["--oversubscribe", "--bind-to", "none"]
        for key, value in (s.split("=", 1) for s in settings):
            launcher += ["--mca", key, value]
        return self.add(name, launcher, "openmpi", environment, self.cpus if ranks == 2 else "-")

    def mpich(self, name, ranks=2):
        launcher = ["mpiexec.mpich", "-n", str(ranks)] + (["-bind-to", "core"] if ranks == 2 else [])
        return self.add(name, launcher, "mpich", cpus=self.cpus if ranks == 2 else "-")

    def run(self, ranks):
        return [f"{self.build}/rondo", "run", "-n", str(ranks), "--no-prefix", "--"]

    def rondo(self, name, ranks=2, environment=None, bound=False):
        """If bound, as two ranks always are, as many on each of the two processors; else where the scheduler says."""
        cpus = ",".join((self.cpus.split(",") * ranks)[:ranks]) if bound or ranks == 2 else "-"
        return self.add(name, self.run(ranks), "rondo", environment, cpus)

    def two_phase(self):
        return self.add("two-phase", [], "two_phase")

    def gloo(self, name, ranks=2):
        """Bound to no processor: each rank's own thread needs one, too (bound, 64 KiB take 4 ms instead of 0.3)."""
        return self.add(name, self.run(ranks), "gloo", cpus="-")

    def end(self):
        for program in self.programs:
            program.end()
        self.programs = []


VADER = ["pml=ob1", "btl=self,vader", "btl_vader_single_copy_mechanism=cma"]


def on_one_host(team):
    """Everybody's best way between two ranks of a host."""
    ucx = team.openmpi("Open MPI, UCX", "pml=ucx", "pml_ucx_tls=any", "pml_ucx_devices=any",
                       environment={"UCX_TLS": "self,posix,sysv,cma"})
    return [team.rondo("Rondo"), team.openmpi("Open MPI", *VADER), ucx, team.mpich("MPICH")]


def shared_memory(team):
    programs = on_one_host(team)
    rondo, ring = programs[0], team.rondo("ring", environment={"RONDO_ALGO": "ring"})
    gloo = [] if team.quick else [team.gloo("Gloo")]
    everybody = programs + gloo + [ring, team.two_phase()]
    return [Contestant(p.name, p) for p in everybody] + [Contestant(k, rondo, k) for k in ("shared", "bound")]


def buffers(kind):
    """The same calls, on buffers of another kind."""
    return lambda team: [Contestant(p.name, p, kind)
                         for p in on_one_host(team) + [team.gloo("Gloo"), team.two_phase()]]


def alignments(team):
    """Buffers that begin 0, 16 and 4 bytes behind a multiple of 64; the second is every other table's."""
    return [Contestant(f"{p.name} {behind}", p, kind) for p in (team.rondo("Rondo"), team.two_phase())
            for behind, kind in ((0, "aligned"), (16, "call"), (4, "odd"))]


def tcp(team):
    openmpi = team.openmpi("Open MPI, TCP", "pml=ob1", "btl=self,tcp", "btl_tcp_if_include=lo")
    rondo = team.rondo("Rondo, TCP", environment={"RONDO_TRANSPORT": "tcp"})
    kinds = [f"sockets:{s}:{p}" for s in (1, 2, 4) for p in (64 * KIB, 256 * KIB, 1 << 40)] + ["ping", "pass"]
    limits = [Contestant(kind, rondo, kind) for kind in kinds]
    gloo = [] if team.quick else [Contestant("Gloo", team.gloo("Gloo"))]
    return [Contestant("Rondo, TCP", rondo), Contestant("Open MPI, TCP", openmpi)] + gloo + limits


def crowd(team):
    contests = [(name, ranks) for ranks in (2, 4, 8) for name in ("flat", "ring")] + [("flat", 16)]
    return [Contestant(f"{name} {ranks}", team.rondo(name, ranks, {"RONDO_ALGO": name}, bound=True))
            for name, ranks in contests]


def types(team):
    """Narrow floats, on the best level there is and on the next; float32 sums beside each."""
    programs = {"auto": team.rondo("Rondo")}
    if "avx2" in open("/proc/cpuinfo").read().split():
        programs["avx2"] = team.rondo("Rondo, avx2", environment={"RONDO_CPU": "avx2"})
    kinds = ["float32/sum"] + [f"{t}/{o}" for t in report.NARROW for o in report.OPERATORS]
    return [Contestant(f"{level} {kind}", program, kind) for level, program in programs.items() for kind in kinds]


def many(team):
    programs = []
    for n in (4, 8):
        programs += [team.rondo(f"Rondo {n}", n), team.openmpi(f"Open MPI {n}", *VADER, ranks=n),
                     team.mpich(f"MPICH {n}", n), team.gloo(f"Gloo {n}", n)]
    return [Contestant(p.name, p) for p in programs]


def huge_pages():
    """Whether the kernel has any for those who ask by madvise."""
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    return os.path.exists(path) and "[never]" not in open(path).read()


PARTS = {"shm": ("Shared memory, 2 ranks, private memory, in place, float32 sum (us)", shared_memory, SIZES),
         "out": ("The same, out of place (us)", buffers("out"), BUFFER_SIZES),
         "huge": ("The same, in place, in 2 MiB pages (us)", buffers("huge"), BUFFER_SIZES),
         "align": ("The same, in place, where buffers begin, modulo 64 (us)", alignments, ALIGN_SIZES),
         "tcp": ("TCP, 2 ranks (us)", tcp, TCP_SIZES),
         "types": ("Element types and operators, 2 ranks, shared memory, in place (us)", types, TYPE_SIZES),
         "crowd": ("Ring and flat at 2, 4 and 8 ranks, flat at 16, on two processors (us)", crowd, CROWD_SIZES),
         "many": ("4 and 8 ranks, in turns on the processors (us)", many, MANY_SIZES)}
QUICK = ["shm", "tcp", "crowd"]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build")
    options.add_argument("--only", choices=list(PARTS), help="this part alone; writes no files")
    options.add_argument("--quick", action="store_true", help="without Gloo, other buffers and MPI at 4 and 8 ranks; "
                         "writes no files")
    options.add_argument("--most", type=int, default=64 * MIB, help="largest size in bytes")
    arguments = options.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    team, measured, begin = Team(arguments.build, processors(), arguments.quick), {}, time.time()
    commands = []
    for name in [arguments.only] if arguments.only else QUICK if arguments.quick else PARTS:
        title, make, sizes = PARTS[name]
        if name == "huge" and not huge_pages():
            print("\nno huge pages: /sys/kernel/mm/transparent_hugepage/enabled says never")
            measured[name] = []
            continue
        try:
            contestants = make(team)
            commands += [(p.name, p.shown) for p in team.programs]
            measured[name] = section(title, contestants, [s for s in sizes if s <= arguments.most])
        finally:
            team.end()
    versions = {"Open MPI": version_of(["mpirun.openmpi", "--version"], r"\) (\S+)"),
                "MPICH": version_of(["mpiexec.mpich", "--version"], r"Version:\s+(\S+)"),
                "Gloo": version_of(["dpkg-query", "-W", "-f", "${Version}", "libgloo-dev"], r"(\S+)")}
    goals = report.goals_of(measured)
    print("\n" + "\n".join(report.shown(goals)))
    if set(measured) == set(PARTS) and arguments.most == 64 * MIB:
        plots = plot.write(os.path.join(here, ".."), measured)
        text = report.results(measured, goals, plots, versions, commands, time.time() - begin)
        report.write(os.path.join(here, "..", "RESULTS.md"), text)
        report.write(os.path.join(here, "..", "..", "README.md"), report.readme(measured))
        print("\nwritten: bench/RESULTS.md, README.md, " + ", ".join(f"bench/{name}" for name in plots.values()))
    return 1 if any(row.wrong for rows in measured.values() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
