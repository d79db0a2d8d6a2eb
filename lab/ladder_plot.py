#!/usr/bin/env python3
"""Plots the lessons' speed, as an SVG on stdout: TFLOP/s of each lesson, each rung and cuDNN, on a logarithmic axis,
a bar for each problem.

    python3 lab/ladder_plot.py results/ladder-h200.jsonl >results/ladder-h200.svg
"""
import json
import math
import sys

from ladder_figures import PROBLEMS, Ladder, figure
from records import Refused
from plot import STYLE, text

WIDTH, LEFT, RIGHT, TOP, BOTTOM, BAR, GAP = 860, 168, 60, 92, 34, 11, 9


def axis_of(ladder):
    """(position of a value, powers of ten) of an axis over all values."""
    values = [r["tflops"] for cells in ladder.cell.values() for r in cells.values()]
    low, high = 10.0 ** math.floor(math.log10(min(values))), max(values) * 1.1
    ticks = [10.0 ** e for e in range(-3, 5) if low <= 10.0 ** e <= high]
    return (lambda v: LEFT + (WIDTH - LEFT - RIGHT) * math.log(v / low) / math.log(high / low)), ticks


def draw_row(name, cells, problems, position, top):
    out = [text(LEFT - 8, top + len(problems) * BAR / 2 + 4, "legend end", name)]
    for i, problem in enumerate(problems):
        if problem in cells:
            y, tflops = top + i * BAR, cells[problem]["tflops"]
            out += [f'<rect x="{LEFT}" y="{y}" width="{position(tflops) - LEFT:.1f}" height="{BAR - 1}" '
                    f'class="f{i}"/>', text(position(tflops) + 4, y + BAR - 1, "tick", figure(tflops))]
    return out


def svg(ladder):
    problems, (position, ticks) = ladder.problems(), axis_of(ladder)
    height_of_row = len(problems) * BAR + GAP
    bottom = TOP + len(ladder.cell) * height_of_row
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + BOTTOM}" width="{WIDTH}" '
           f'height="{bottom + BOTTOM}" font-family="Helvetica, Arial, sans-serif">', f"<style>\n{STYLE}\n</style>",
           f'<rect class="page" width="{WIDTH}" height="{bottom + BOTTOM}"/>',
           text(20, 28, "title", "The climb: forward in bf16, TFLOP/s on a logarithmic axis"),
           text(20, 48, "legend", f"{ladder.gpu}, medians")]
    for i, problem in enumerate(problems):
        out += [f'<rect x="{LEFT + 130 * i}" y="62" width="20" height="{BAR - 1}" class="f{i}"/>',
                text(LEFT + 130 * i + 26, 70, "legend", PROBLEMS[problem])]
    for tick in ticks:
        out += [f'<path class="grid" d="M{position(tick):.1f} {TOP - 8}V{bottom}"/>',
                text(position(tick), bottom + 17, "tick middle", f"{tick:g}")]
    for i, (name, cells) in enumerate(ladder.cell.items()):
        out += draw_row(name, cells, problems, position, TOP + i * height_of_row)
    out.append(f'<path class="axis" d="M{LEFT} {TOP - 8}V{bottom}"/>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(print("usage: ladder_plot.py RECORDS >PLOT.svg", file=sys.stderr) or 2)
    try:
        with open(sys.argv[1], encoding="utf-8") as f:
            records = [json.loads(line) for line in f]
        print(svg(Ladder([r for r in sorted(records, key=lambda r: r["date"]) if r["bench"] == "ladder"])), end="")
    except (OSError, ValueError, KeyError, TypeError, Refused) as error:
        sys.exit(print(f"ladder_plot: {sys.argv[1]}: {error!r}", file=sys.stderr) or 2)


if __name__ == "__main__":
    main()
