# SPDX-License-Identifier: Apache-2.0
"""An SVG plot of how many times longer the others take than Rondo, by message size."""
import math

from report import PEERS, size_name

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 460, 70, 170, 50, 60
COLOURS = {"Open MPI": "#c4511f", "Open MPI, UCX": "#d99a2b", "MPICH": "#2f6fb3", "bound": "#6b7280", "ring": "#3a8f4d",
           "two-phase": "#7c4fb0"}
NAMES = {"bound": "zero-copy bound", "ring": "Rondo, ring forced", "two-phase": "two-phase alone"}


def usual_placement(rows):
    """The one that most sizes were measured in."""
    places = [where for row in rows for where in row.times]
    return max(sorted(set(places)), key=places.count) if places else None


def write(path, rows):
    where = usual_placement(rows)
    rows = [row for row in rows if where in row.times]
    if len(rows) < 2:
        return
    names = PEERS + ["ring", "two-phase", "bound"]
    ratios = {n: [row.times[where][n] / row.times[where]["Rondo"] for row in rows] for n in names}
    low = min(0.5, *(r for line in ratios.values() for r in line))
    high = max(2.0, *(r for line in ratios.values() for r in line))
    low, high = 2 ** math.floor(math.log2(low)), 2 ** math.ceil(math.log2(high))

    def x(index):
        return LEFT + index * (WIDTH - LEFT - RIGHT) / (len(rows) - 1)

    def y(ratio):
        return TOP + (math.log2(high) - math.log2(ratio)) / (math.log2(high) - math.log2(low)) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           'font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="26" font-size="16" fill="#111827">All-reduce, 2 ranks, shared memory: '
           f'time over Rondo\'s (placement {where}; higher is slower)</text>']
    ratio = low
    while ratio <= high:
        heavy = ratio == 1
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" '
                   f'stroke="{"#111827" if heavy else "#e5e7eb"}" stroke-width="{1.5 if heavy else 1}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end" fill="#374151">{ratio:g}×</text>')
        ratio *= 2
    for i, row in enumerate(rows):
        out.append(f'<text transform="translate({x(i):.1f} {HEIGHT - BOTTOM + 16}) rotate(40)" fill="#374151">'
                   f'{size_name(row.size)}</text>')
    out.append(f'<text x="{WIDTH - RIGHT + 10}" y="{y(1) + 4:.1f}" fill="#111827" font-weight="bold">Rondo = 1</text>')
    taken = [y(1)]
    for name, line in ratios.items():
        points = " ".join(f"{x(i):.1f},{y(r):.1f}" for i, r in enumerate(line))
        colour, dash = COLOURS[name], ' stroke-dasharray="5 4"' if name == "bound" else ""
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        at = y(line[-1])
        while any(abs(at - other) < 15 for other in taken):  # labels do not overlap
            at += 3
        taken.append(at)
        out.append(f'<text x="{WIDTH - RIGHT + 10}" y="{at + 4:.1f}" fill="{colour}">{NAMES.get(name, name)}</text>')
    with open(path, "w") as file:
        file.write("\n".join(out + ["</svg>", ""]))
