#!/usr/bin/env python3
"""TFLOP/s of the convolution ladder's rungs and of cuDNN, a layer of each sort, in bf16 at batch 4: an SVG on stdout.

    python3 lab/conv_plot.py [ROOT] >results/conv-h200.svg

ROOT is the folder that has results/; this tree's unless given.
"""
import os
import sys

import plot
from conv_figures import BATCH, LADDER, OPS, SHOWN, read_grids
from records import Refused, Results

TITLES = {"fwd": "forward", "dgrad": "gradient of the input", "wgrad": "gradient of the filter"}


def panel(grid, op):
    series = [plot.Series(rung, [(SHOWN.index(layer), r["tflops"], None) for layer, r in grid.rung[rung][op].items()
                                 if layer in SHOWN], colour) for colour, rung in enumerate(grid.rungs())]
    y = plot.values_axis([value for s in series for _, value, _ in s.points], from_zero=True)
    return plot.Panel(TITLES[op], "layer", "TFLOP/s", plot.names_axis(SHOWN), y, series, bars=True)


def svg(results):
    grid = read_grids(results, *LADDER).get(("bf16", "none", BATCH))
    if not grid:
        raise Refused(f"{' and '.join(LADDER)}: no record of bench conv in bf16 at batch {BATCH}")
    return plot.svg(f"Convolutions in bf16, batch {BATCH}, on {grid.gpu.split(',')[0]}", [panel(grid, op) for op in OPS])


def main():
    root = sys.argv[1] if len(sys.argv) == 2 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        sys.stdout.write(svg(Results(root)))
    except (Refused, OSError) as error:
        sys.exit(print(f"conv_plot: {error}", file=sys.stderr) or 2)


if __name__ == "__main__":
    main()
