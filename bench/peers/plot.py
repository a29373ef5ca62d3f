# SPDX-License-Identifier: Apache-2.0
"""SVG plots of how many times longer others take than Rondo, by message size: one for each question."""
import math
import os

from report import PEERS, fair_limit, hop, size_name

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 460, 70, 190, 50, 60
BLUE, RED, YELLOW, GREEN, VIOLET, GREY, PINK = "#2f6fb3", "#c4511f", "#d99a2b", "#3a8f4d", "#7c4fb0", "#6b7280", "#b8437a"


class Line:
    """A name, what it takes over what Rondo takes in a row's times, and a look; limits are dashed."""

    def __init__(self, name, ratio, colour, dashed=False):
        self.name, self.ratio, self.colour, self.dashed = name, ratio, colour, dashed


def over(name, rondo="Rondo"):
    return lambda times: times[name] / times[rondo]


HOST = [Line(name, over(name), colour) for name, colour in zip(PEERS, (RED, YELLOW, BLUE))]
SHM = HOST + [Line("Rondo, ring forced", over("ring"), GREEN), Line("two-phase alone", over("two-phase"), VIOLET, True),
              Line("zero-copy bound", over("bound"), GREY, True)]
BUFFERS = HOST + [Line("two-phase alone", over("two-phase"), VIOLET, True)]
TCP = [Line("Open MPI", over("Open MPI, TCP", "Rondo, TCP"), RED), Line("Gloo", over("Gloo", "Rondo, TCP"), PINK),
       Line("fair limit", lambda t: fair_limit(t) / t["Rondo, TCP"], GREY, True),
       Line("a ping-pong's hop", lambda t: hop(t) / t["Rondo, TCP"], GREEN, True)]
MANY = [Line(f"{name}, {n} ranks", over(f"{name} {n}", f"Rondo {n}"), colour)
        for n, names in ((4, (("Open MPI", RED), ("Gloo", PINK))), (8, (("Open MPI", YELLOW), ("Gloo", VIOLET))))
        for name, colour in names]

# The file, the part that was measured, what is asked, and the lines.
PLOTS = [("peers.svg", "shm", "2 ranks, shared memory", SHM),
         ("peers-out.svg", "out", "2 ranks, shared memory, out of place", BUFFERS),
         ("peers-huge.svg", "huge", "2 ranks, shared memory, huge pages", BUFFERS),
         ("peers-tcp.svg", "tcp", "2 ranks, TCP over loopback", TCP),
         ("peers-many.svg", "many", "4 and 8 ranks on 2 processors", MANY)]


def usual_placement(rows):
    """The one that most sizes were measured in."""
    places = [where for row in rows for where in row.times]
    return max(sorted(set(places)), key=places.count) if places else None


class Frame:
    """Where ratios and sizes lie."""

    def __init__(self, lines, sizes):
        self.low = 2 ** math.floor(math.log2(min(0.5, *(r for line in lines for r in line))))
        self.high = 2 ** math.ceil(math.log2(max(2.0, *(r for line in lines for r in line))))
        self.sizes = sizes

    def x(self, index):
        return LEFT + index * (WIDTH - LEFT - RIGHT) / (self.sizes - 1)

    def y(self, ratio):
        return TOP + math.log2(self.high / ratio) / math.log2(self.high / self.low) * (HEIGHT - TOP - BOTTOM)

    def grid(self):
        ratio, step = self.low, 2 if self.high / self.low <= 1 << 8 else 4
        while ratio <= self.high:
            stroke = 'stroke="#111827" stroke-width="1.5"' if ratio == 1 else 'stroke="#e5e7eb" stroke-width="1"'
            yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(ratio):.1f}" y2="{self.y(ratio):.1f}" {stroke}/>'
            yield (f'<text x="{LEFT - 8}" y="{self.y(ratio) + 4:.1f}" text-anchor="end" fill="#374151">{ratio:g}×'
                   '</text>')
            ratio *= step if ratio >= 1 else 2


def drawn(what, lines, rows, where):
    """The whole picture."""
    ratios = [[line.ratio(row.times[where]) for row in rows] for line in lines]
    frame = Frame(ratios, len(rows))
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           'font-size="13">')
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield (f'<text x="{LEFT}" y="26" font-size="16" fill="#111827">All-reduce, {what}: time over Rondo\'s '
           f'(placement {where}; higher is slower)</text>')
    yield from frame.grid()
    for i, row in enumerate(rows):
        yield (f'<text transform="translate({frame.x(i):.1f} {HEIGHT - BOTTOM + 16}) rotate(40)" fill="#374151">'
               f'{size_name(row.size)}</text>')
    yield (f'<text x="{WIDTH - RIGHT + 10}" y="{frame.y(1) + 4:.1f}" fill="#111827" font-weight="bold">Rondo = 1'
           '</text>')
    taken = [frame.y(1)]
    for line, values in zip(lines, ratios):
        points = " ".join(f"{frame.x(i):.1f},{frame.y(r):.1f}" for i, r in enumerate(values))
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        yield f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2"{dash}/>'
        at = frame.y(values[-1])
        while any(abs(at - other) < 15 for other in taken):  # labels do not overlap
            at += 3
        taken.append(at)
        yield f'<text x="{WIDTH - RIGHT + 10}" y="{at + 4:.1f}" fill="{line.colour}">{line.name}</text>'
    yield "</svg>"


def write(folder, measured):
    """A file for each question that at least two sizes of one placement answer; returns their names by part."""
    written = {}
    for file, part, what, lines in PLOTS:
        where = usual_placement(measured[part])
        rows = [row for row in measured[part] if where in row.times]
        if len(rows) < 2:
            continue
        with open(os.path.join(folder, file), "w") as out:
            out.write("\n".join(drawn(what, lines, rows, where)) + "\n")
        written[part] = file
    return written
