#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""guard.py BUILD - instructions per call, counted by valgrind's callgrind and compared with bench/guard.txt.

Time says little on a shared machine; instructions say the same on every run. They are those of guard_calls.c: all
ranks driven by one thread over loop links, so nobody ever waits. A call's figure is the difference between two numbers
of calls in one run, divided: what a run costs once drops out. What the allocator does depends on what lies free, which
any change elsewhere moves; so it is left out, and how often it is asked is a figure of its own.
`make bench-guard` builds what this needs and calls it.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOLERANCE = 0.03
ONE_OF = "one of"  # in the names of calls beside which another thread runs
CALL, BLOCK = "measured_call", "counted_block"
ALLOCATOR = ("malloc", "calloc", "realloc", "aligned_alloc", "strdup", "free")
RUN_S = 120
HEAD = """\
# Instructions and allocations per call, of all ranks together, by `make bench-guard`. It fails where instructions are
# more than 3 % off, or allocations differ. Who means to change them runs `make bench-guard ACCEPT=1` and commits this
# file with the change.
"""


def give_up(text):
    raise SystemExit(f"guard: {text}")


class Case:
    def __init__(self, few, many, name):
        self.few, self.many, self.name = few, many, name

    def per_call(self, few, many):
        return (many - few) / (self.many - self.few)


def cases_of(program):
    """What compiled the program, and its cases in the order in which it runs them."""
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    compiler, *lines = listed.stdout.splitlines()
    words = [line.split(" ", 2) for line in lines]
    return compiler, [Case(int(few), int(many), name) for few, many, name in words]


# ---- Counting ----

def lines_of_signature():
    """{file: line numbers}: of the functions that compute the signature which every slice bears, and of where it is
    stored and compared. Those lines do other things as well, so the share is rather too high than too low."""
    found = {}
    for path in ("src/core/prepare.c", "src/transport/slots.c"):
        inside = False
        for number, line in enumerate(open(os.path.join(HERE, "..", path)), 1):
            inside = inside or bool(re.match(r"static uint64_t (mix|signature_of|message_signature)\(", line))
            if inside or re.search(r"signature = |signature != ", line):
                found.setdefault(path, set()).add(number)
            inside = inside and not line.startswith("}")
    return found


class Counts:
    """What one of callgrind's files says: instructions, allocations, and the instructions of those source lines."""

    def __init__(self, text, lines):
        self.instructions = int(re.search(r"^totals: (\d+)", text, re.M).group(1))
        self.allocations = self.of_lines = 0
        here, in_libc, callee, calls = (), False, "", 0
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if key in ("fl", "fi", "fe"):
                here = next((numbers for name, numbers in lines.items() if value.endswith("/" + name)), ())
            elif key == "ob":
                in_libc = "/libc.so" in value
            elif key == "cfn":
                callee = value.split("@")[0]
            elif key == "calls":  # the next line has the cost of what was called
                calls = int(value.split()[0])
            elif line[:1].isdigit():
                number, cost = map(int, line.split()[:2])
                if calls and callee in ALLOCATOR and not in_libc:
                    self.instructions -= cost
                    self.allocations += calls if callee != "free" else 0
                elif not calls and number in here:
                    self.of_lines += cost
                calls = 0


def count(program, parts):
    """Runs it under callgrind, which writes a file at the end of each BLOCK."""
    settings = {k: v for k, v in os.environ.items() if not k.startswith("RONDO_")}
    settings["RONDO_CPU"] = "avx2"  # valgrind knows no AVX-512
    lines = lines_of_signature()
    with tempfile.TemporaryDirectory(prefix="rondo-guard-") as folder:
        out = os.path.join(folder, "calls")
        run = subprocess.run(["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={CALL}",
                              f"--dump-after={BLOCK}", "--compress-pos=no", "--compress-strings=no",
                              f"--callgrind-out-file={out}", program],
                             env=settings, capture_output=True, text=True, timeout=RUN_S)
        if run.returncode:
            give_up(f"guard_calls under valgrind ended with {run.returncode}:\n{run.stderr}")
        if not os.path.exists(f"{out}.{parts}"):
            give_up(f"callgrind wrote fewer than {parts} counts; is {BLOCK}() still a function of {program}?")
        return [Counts(open(f"{out}.{i + 1}").read(), lines) for i in range(parts)]


# ---- Figures: {name: (instructions, allocations)} ----

def read_figures(path):
    compiler, figures = None, {}
    for line in open(path) if os.path.exists(path) else []:
        if line.startswith("compiler "):
            compiler = line.strip()
        elif line.strip() and not line.startswith("#"):
            instructions, allocations, name = line.split(None, 2)
            figures[name.strip()] = int(instructions), float(allocations)
    return compiler, figures


def write_figures(path, compiler, counted):
    with open(path, "w") as file:
        file.write(f"{HEAD}{compiler}\n")
        file.writelines(f"{instructions:>10.0f} {allocations:>5.1f}  {name}\n"
                        for name, (instructions, allocations) in counted.items())


def compare(counted, figures):
    """The table; whether all is as it was."""
    good = True
    print(f"{'instructions':>12} {'accepted':>10} {'change':>7}  {'allocations':>11} {'accepted':>8}  "
          "call of all ranks")
    for name, (now, allocations) in counted.items():
        before, allocated = figures.get(name, (0, 0.0))
        close = abs(now / before - 1) <= TOLERANCE if before else False
        # Where a second thread takes part it must have come so far that the first never waits; on a busy machine it has
        # not, and the waiting is counted, too.
        early = ONE_OF in name and before and now > before
        fits = (close or early) and abs(allocations - allocated) < 0.1
        good = good and fits
        change = f"{now / before - 1:+7.1%}" if before else "    new"
        print(f"{now:>12,.0f} {before:>10,} {change}  {allocations:>11.1f} {allocated:>8.1f}  "
              f"{name}{'' if fits else '  <-- off'}")
    gone = [name for name in figures if name not in counted]
    for name in gone:
        print(f"{'gone':>12} {figures[name][0]:>10,} {'':>7}  {'':>11} {figures[name][1]:>8.1f}  {name}  <-- off")
    return good and not gone


def print_signature(cases, few, many, counted):
    print("\nof which the signature of the call, at 8 bytes:")
    for c, f, m in zip(cases, few, many):
        if ", 8 B" in c.name:
            print(f"{c.per_call(f.of_lines, m.of_lines) / counted[c.name][0]:>12.1%}  {c.name}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build")
    options.add_argument("--accept", action="store_true", help="rewrites the figures")
    options.add_argument("--figures", default=os.path.join(HERE, "guard.txt"))
    arguments = options.parse_args()
    program = os.path.join(arguments.build, "bench", "guard_calls")
    compiler, cases = cases_of(program)
    counts = count(program, 3 * len(cases))  # each case: to warm up, few, many
    few, many = counts[1::3], counts[2::3]
    counted = {c.name: (c.per_call(f.instructions, m.instructions), c.per_call(f.allocations, m.allocations))
               for c, f, m in zip(cases, few, many)}
    accepted_by, figures = read_figures(arguments.figures)
    good = compare(counted, figures)
    print_signature(cases, few, many, counted)
    if arguments.accept:
        write_figures(arguments.figures, compiler, counted)
        print(f"\nwritten: {arguments.figures}")
        return 0
    if compiler != accepted_by:
        print(f"\nnot compared: the figures are those of {accepted_by}, this is {compiler}")
        return 0
    print("\nas accepted, to 3 %" if good else "\nguard: more than 3 % off, or another number of allocations; if that "
          "is meant: make bench-guard ACCEPT=1, and commit bench/guard.txt with the change")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
