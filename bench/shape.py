#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shape.py BUILD [RUNS] - no step in the size of a message costs more than it should: `rondo bench` from 8 B to 256
MiB, each size twice the one before, RUNS (3) times; of all runs the least median of each size and placement.

A step may cost 2.6 times the one before, or 1.3 times what the zero-copy bound itself grows by there. Prints all steps,
and exits with 1 if one costs more.
"""
import json
import subprocess
import sys
import tempfile

STEP, OVER_BOUND, PLACES = 2.6, 1.3, ("core", "L3", "host")


def run(build):
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run([f"{build}/rondo", "bench", "-b", "8", "-e", "256M", "--json", file.name], check=True,
                       stdout=subprocess.DEVNULL)
        return json.load(open(file.name))["results"]


def least(build, runs):
    """By placement and size: microseconds, and of the zero-copy bound (0: it is none)."""
    best = {}
    for row in (row for _ in range(runs) for row in run(build) if row["placement"] in PLACES):
        sizes = best.setdefault(row["placement"], {})
        time, limit = row["time_us"]["median"], row["limit_us"] if row["limit"] == "zero-copy" else 0
        if row["bytes"] not in sizes or time < sizes[row["bytes"]][0]:
            sizes[row["bytes"]] = time, limit
    return best


def main():
    build, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    steps = []
    print("| bytes | placement | µs | over the size before | allowed |  |\n|---|---|---|---|---|---|")
    for place, sizes in least(build, runs).items():
        for size, (time, limit) in sorted(sizes.items()):
            if size // 2 not in sizes:
                continue
            before, limit_before = sizes[size // 2]
            allowed = max(STEP, OVER_BOUND * limit / limit_before if limit_before else 0)
            step = time / before
            steps.append((step / allowed, f"to {size} B, {place}, {step:.2f} of {allowed:.2f} allowed"))
            verdict = "TOO STEEP" if step > allowed else ""
            print(f"| {size} | {place} | {time:.2f} | {step:.2f} | {allowed:.2f} | {verdict} |")
    if not steps:
        raise SystemExit("shape: no two sizes were measured in one placement")
    steep = sum(part > 1 for part, _ in steps)
    print(f"\n{steep} of {len(steps)} steps too steep; the steepest: {max(steps)[1]}")
    return 1 if steep else 0


if __name__ == "__main__":
    sys.exit(main())
