#!/usr/bin/env python3
"""Plots the losses of several runs, as an SVG on stdout, from their log.jsonl or the logs of
test/peers/train_vs_torchvision.py: total and mask loss by step, and total loss by seconds of training if the logs have
them.

    python3 lab/loss_plot.py TITLE NAME=LOG … >results/beside-torchvision-h200.svg
"""
import json
import math
import sys

import plot

POINTS = 300  # points of a curve; each is the mean of equally many steps
PANELS = (("Total loss", "loss", "step"), ("Mask loss", "loss_mask", "step"), ("Total loss", "loss", "seconds"))


def read(path):
    with open(path, encoding="utf-8") as f:
        steps = [json.loads(line) for line in f if line.endswith("\n")]  # the last line may be incomplete
    return [r for r in steps if r.get("kind", "train") == "train" and "step" in r]


def points(steps, loss, by):
    """Finite losses alone: what a run that diverges writes has no place on an axis."""
    found = [(r[by], r[loss]) for r in steps if all(isinstance(r.get(k), (int, float)) for k in (by, loss))]
    found = [(x, value) for x, value in found if math.isfinite(value)]
    size = max(1, math.ceil(len(found) / POINTS))
    parts = [found[i:i + size] for i in range(0, len(found), size)]
    return [(part[-1][0], sum(value for _, value in part) / len(part), None) for part in parts]


def svg(title, runs):
    """runs: (name, records)."""
    panels = []
    for name, loss, by in PANELS:
        series = [plot.Series(run, points(steps, loss, by), i, mark=None) for i, (run, steps) in enumerate(runs)]
        x, y = ([p[k] for s in series for p in s.points] for k in (0, 1))
        if x:
            label = "seconds of training" if by == "seconds" else by
            panels.append(plot.Panel(name, label, "loss", plot.values_axis(x), plot.values_axis(y, log=True), series))
    return plot.svg(title, panels)


def main():
    runs = [argument.rpartition("=") for argument in sys.argv[2:]]
    if not runs or not all(name for name, _, _ in runs):
        sys.exit(print("usage: loss_plot.py TITLE NAME=LOG … >PLOT.svg", file=sys.stderr) or 2)
    try:
        sys.stdout.write(svg(sys.argv[1], [(name, read(path)) for name, _, path in runs]))
    except (OSError, ValueError) as error:
        sys.exit(print(f"loss_plot: {error}", file=sys.stderr) or 2)


if __name__ == "__main__":
    main()
