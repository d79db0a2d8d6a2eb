#!/usr/bin/env python3
"""The plot of docs/nets.md, an SVG on stdout: milliseconds by the minibatch, a panel for each net, both axes
logarithmic. Ours are filled marks on a line, PyTorch's open marks on a dashed one.

    python3 tools/nets_plot.py results/nets-h200.jsonl >results/nets-h200.svg
"""
import json
import math
import sys

from nets_figures import TITLES, WALKS, Nets
from scaling_plot import COLORS, STYLE, text

DTYPE = "bf16"
WIDTH, LEFT, RIGHT, TOP, COLUMNS = 860, 52, 20, 112, 3
PANEL_W, PANEL_H, GAP_X, GAP_Y = 222, 190, 61, 66
MARK = 3.2


class Axis:
    """A logarithmic one over all values, with a margin: position(value) from 0 to 1."""

    def __init__(self, values, margin):
        low, high = math.log(min(values)), math.log(max(values))
        room = max(high - low, 1e-9) * margin
        self.low, self.high = low - room, high + room

    def position(self, value):
        return (math.log(value) - self.low) / (self.high - self.low)

    def ticks(self):
        """1, 2 and 5 times powers of ten, or the powers alone where those would be many."""
        def inside(steps):
            return [s * 10.0**e for e in range(-4, 7) for s in steps
                    if self.low <= math.log(s * 10.0**e) <= self.high]
        fine = inside((1, 2, 5))
        return fine if len(fine) <= 8 else inside((1,))


def lines_of(nets, net):
    """(name, dashed, colour, points) of what there is of a net: a point is (batch, ms)."""
    lines = []
    for color, walk in zip(COLORS, WALKS):
        for what, name in (("auto", "ours"), ("peer", "PyTorch")):
            points = [(b, nets.ms(what, net, DTYPE, b, walk)) for b in nets.batches(DTYPE)]
            points = [p for p in points if p[1]]
            if points:
                lines.append((f"{WALKS[walk]}, {name}", what == "peer", color, points))
    return lines


def draw_line(points, dashed, color):
    out = [f'<path class="line{" predicted" if dashed else ""}" stroke="{color}" d="M'
           + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + '"/>'] if len(points) > 1 else []
    fill = "#fff" if dashed else color
    return out + [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{MARK}" fill="{fill}" stroke="{color}" stroke-width="1.4"/>'
                  for x, y in points]


def draw_panel(title, lines, left, top):
    batches = sorted({batch for *_, points in lines for batch, _ in points})
    bottom, right = top + PANEL_H, left + PANEL_W
    across, up = Axis(batches, 0.06), Axis([ms for *_, points in lines for _, ms in points], 0.06)
    x_of = lambda batch: left + PANEL_W * across.position(batch)
    y_of = lambda ms: bottom - PANEL_H * up.position(ms)
    out = [text(left, top - 10, "panel", title)]
    for tick in up.ticks():
        out += [f'<path class="grid" d="M{left} {y_of(tick):.1f}H{right}"/>',
                text(left - 7, y_of(tick) + 4, "tick end", f"{tick:g}")]
    free = left
    for b in batches:  # as many as have room
        half = 3.7 * len(str(b))
        if x_of(b) - half >= free:
            out.append(text(x_of(b), bottom + 17, "tick middle", str(b)))
            free = x_of(b) + half + 2
    out.append(f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>')
    for _, dashed, color, points in lines:
        out += draw_line([(x_of(b), y_of(ms)) for b, ms in points], dashed, color)
    return out


def draw_legend():
    """A column for each walk: ours over PyTorch's."""
    out = []
    for i, title in enumerate(WALKS.values()):
        for j, name in enumerate(("ours", "PyTorch")):
            x, y = LEFT + 268 * i, 72 + 18 * j
            out += draw_line([(x, y - 4), (x + 26, y - 4)], j == 1, COLORS[i])
            out.append(text(x + 34, y, "legend", f"{title}, {name}"))
    return out


def svg(nets, where):
    shown = [n for n in nets.nets(DTYPE) if lines_of(nets, n)]
    height = TOP + -(-len(shown) // COLUMNS) * (PANEL_H + GAP_Y)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           'font-family="Helvetica, Arial, sans-serif">', f"<style>\n{STYLE}\n</style>",
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
           text(LEFT, 28, "title", "Milliseconds by the minibatch, both on logarithmic axes"),
           text(LEFT, 48, "legend", f"{where}, {DTYPE}, medians; PyTorch eager or as a CUDA graph, whichever is faster"),
           *draw_legend()]
    for i, net in enumerate(shown):
        left, top = LEFT + i % COLUMNS * (PANEL_W + GAP_X), TOP + 24 + i // COLUMNS * (PANEL_H + GAP_Y)
        out += draw_panel(TITLES[net], lines_of(nets, net), left, top)
    return "\n".join(out) + "\n</svg>\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(print("usage: nets_plot.py RECORDS >PLOT.svg", file=sys.stderr) or 2)
    try:
        with open(sys.argv[1], encoding="utf-8") as f:
            records = [json.loads(line) for line in f]
        nets = Nets(sorted(records, key=lambda r: r["date"]))
        if not nets.nets(DTYPE):
            raise ValueError(f"no record of ours in {DTYPE}")
        print(svg(nets, records[-1]["gpu"]), end="")
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(print(f"nets_plot: {sys.argv[1]}: {error!r}", file=sys.stderr) or 2)


if __name__ == "__main__":
    main()
