#!/usr/bin/env python3
"""Predicts how training scales over GPUs and nodes, from results/scaling-model.json and the records of results/.

    python3 lab/scaling.py [--batch N] [--full-masks] [--set NAME=VALUE]   the prediction and its inputs
    python3 lab/scaling.py --check RECORDS [--within PERCENT]              compares it with records of several GPUs
    python3 lab/scaling.py --plot FILE                                     weak scaling: measured, predicted, others'
    python3 lab/scaling.py --timeline PROFILE                              when gradients are complete

The model is lab/scaling_model.py. RECORDS are the output of ./train --benchmark, one a line; predictions for a
machine start from its one-GPU records. Exit status: 0; 1 with --check if a record is further off than --within; 2 if
the input cannot be used.
"""
import argparse
import json
import os
import sys

import plot
import scaling_model
import scaling_records
from records import Refused

SHAPES = [(1, 1), (2, 1), (4, 1), (8, 1)] + [(8 * n, n) for n in (2, 4, 8, 16, 32)]
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def pad(rows):
    """Columns of equal width, one space apart and more."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(r, widths)).rstrip() for r in rows)


TERMS = ("multiprocessors", "bandwidth", "tail", "slowest rank", "loader")


def prediction_rows(inputs, shapes=SHAPES, own_images=True):
    rows = [("GPUs", "nodes", "ms a step", *TERMS, "img/s", "efficiency", "epoch not training")]
    for gpus, nodes in shapes:
        p = scaling_model.predict(inputs, gpus, nodes, own_images)
        rows.append((str(gpus), str(nodes), f"{p.step_ms:.2f}", *(f"{p.terms[t]:.2f}" for t in TERMS), f"{p.img_s:.0f}",
                     f"{100 * p.efficiency:.1f} %", f"{100 * p.beside:.0f} %"))
    return rows


def load(args):
    inputs, sources = scaling_records.read_inputs(args.inputs or os.path.join(ROOT, "results", "scaling-model.json"))
    return inputs, sources, scaling_records.folder_records(ROOT)


def apply_settings(inputs, sources, settings):
    for setting in settings:
        name, _, value = setting.partition("=")
        if not isinstance(inputs.get(name), (int, float)):
            names = ", ".join(sorted(k for k, v in inputs.items() if isinstance(v, (int, float))))
            raise Refused(f"--set {setting}: no number is called {name}; there are {names}")
        try:
            inputs[name] = float(value)
        except ValueError:
            raise Refused(f"--set {setting}: {value} is no number") from None
        sources[name] = "given"


def show_prediction(args):
    inputs, sources, records = load(args)
    like = scaling_records.default_setting(args.full_masks, args.batch)
    inputs, sources = scaling_records.fit(inputs, sources, records, like)
    apply_settings(inputs, sources, args.set)
    print("\n".join(f"{name} {value:g}  ({sources[name]})" for name, value in inputs.items()
                    if isinstance(value, (int, float))))
    print(f"\na link of {inputs['link_gbit_s']:g} Gbit/s for each of {inputs['links_per_node']:g} GPUs of a node")
    print(pad(prediction_rows(inputs)))
    print("\none such link for a node")
    print(pad(prediction_rows({**inputs, "links_per_node": 1}, [s for s in SHAPES if s[1] > 1])))


def check(args):
    inputs, sources, records = load(args)
    new = scaling_records.read_records(args.check)
    several = [r for r in scaling_records.training(new) if scaling_records.world(r) > 1 and r.get("reduce") != "none"]
    if not several:
        raise Refused(f"{args.check}: no record of ./train --benchmark with several GPUs that reduce")
    rows, off = [("GPUs", "nodes", "batch", "measured img/s", "predicted", "off by")], 0
    for r in several:
        # Records of several ranks are used only from results/; otherwise the model would be compared with itself.
        known = records + [a for a in new if scaling_records.world(a) == 1]
        fitted, _ = scaling_records.fit(inputs, sources, known, r)
        fitted["bucket_mb"], fitted["bytes_per_gradient"] = r["bucket_mb"], 2 if r["reduce"] == "bf16" else 4
        nodes = scaling_records.nodes(r)
        p = scaling_model.predict(fitted, r["world"], nodes, not r.get("same_images"))
        percent = 100 * (p.img_s / r["img_s"] - 1)
        off += abs(percent) > args.within
        rows.append((str(r["world"]), str(nodes), str(r["batch"]), f"{r['img_s']:.1f}", f"{p.img_s:.1f}",
                     f"{percent:+.1f} %"))
    print(pad(rows))
    return int(off > 0)


def measured_points(records, like):
    """Of the setting with own images and fp32, the best of each world: (GPUs, efficiency, img/s)."""
    chosen = {}
    for r in scaling_records.training(records):
        if scaling_records.setting(r) != scaling_records.setting(like) or scaling_records.world(r) == 1:
            continue
        if r.get("same_images") or r.get("reduce") != "fp32" or scaling_records.over_sockets(r):
            continue
        e = scaling_records.efficiency(records, r)
        if e and r.get("transport") != "tcp" and r["img_s"] > chosen.get(r["world"], (0, 0))[1]:
            chosen[r["world"]] = e, r["img_s"]
    return [(gpus, *chosen[gpus]) for gpus in sorted(chosen)]


def our_series(inputs, sources, records, like, thing):
    """(name, efficiency, img/s, whether it is predicted), the last three by the number of GPUs."""
    fitted, _ = scaling_records.fit(inputs, sources, records, like)
    measured = measured_points(records, like)
    predictions = [scaling_model.predict(fitted, *shape) for shape in SHAPES]
    series = [(f"{thing}, predicted", [(p.gpus, p.efficiency) for p in predictions],
               [(p.gpus, p.img_s) for p in predictions], True)]
    if measured:
        series.append((f"{thing}, measured", [(g, e) for g, e, _ in measured], [(g, s) for g, _, s in measured], False))
    return series


def shares_of(peer):
    """Weak scaling: as published, or against its own one GPU."""
    if peer["gpus"][0] != 1:
        return peer.get("efficiency", [])
    return [img_s / (gpus * peer["img_s"][0]) for gpus, img_s in zip(peer["gpus"], peer["img_s"])]


def peer_series(peers):
    return [(p["name"], list(zip(p["gpus"], shares_of(p))), list(zip(p["gpus"], p["img_s"])), False) for p in peers]


def draw(inputs, sources, records, peers):
    efficiency, speed, colours = [], [], {}
    series = [s for full_masks, thing in ((False, "batch 4, bf16"), (True, "batch 4, bf16, full masks"))
              for s in our_series(inputs, sources, records, scaling_records.default_setting(full_masks), thing)]
    for name, shares, img_s, predicted in series + peer_series(peers):
        thing = name.removesuffix(", predicted").removesuffix(", measured")  # both have the same colour
        colour = colours.setdefault(thing, len(colours))
        efficiency.append(plot.Series(name, [(g, 100 * s, None) for g, s in shares], colour, predicted))
        speed.append(plot.Series(name, [(g, s, None) for g, s in img_s], colour, predicted))
    most = max(gpus for s in speed for gpus, _, _ in s.points)
    x = plot.points_axis([(2 ** n, str(2 ** n)) for n in range(most.bit_length())], log=True)
    y = plot.values_axis([v for s in speed for _, v, _ in s.points], log=True)
    return plot.svg(
        "Mask R-CNN R50-FPN over GPUs",
        [plot.Panel("Weak scaling", "GPUs", "% of N times one GPU", x,
                    plot.Axis(40, 105, [(v, str(v)) for v in range(40, 101, 10)]), efficiency),
         plot.Panel("Speed", "GPUs", "images a second", x, y, speed)],
        "open, dashed: predicted by lab/scaling.py, nodes of 8 GPUs, a link of 400 Gbit/s for each; other GPUs where named")


def write_plot(args):
    inputs, sources, records = load(args)
    with open(args.inputs or os.path.join(ROOT, "results", "scaling-model.json"), encoding="utf-8") as f:
        peers = json.load(f).get("peers", [])
    with open(args.plot, "w", encoding="utf-8") as f:
        f.write(draw(inputs, sources, records, peers))


def show_timeline(args):
    with open(args.timeline, encoding="utf-8") as f:
        print(json.dumps(scaling_model.timeline_of_profile(f.read())))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--inputs", metavar="FILE", help="instead of results/scaling-model.json")
    parser.add_argument("--batch", type=int, default=4, help="images of a step and GPU")
    parser.add_argument("--full-masks", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another input")
    parser.add_argument("--check", metavar="RECORDS")
    parser.add_argument("--within", type=float, default=3, metavar="PERCENT")
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--timeline", metavar="PROFILE")
    args = parser.parse_args()
    todo = check if args.check else write_plot if args.plot else show_timeline if args.timeline else show_prediction
    try:
        sys.exit(todo(args) or 0)
    except (Refused, OSError, ValueError) as error:
        sys.exit(print(f"scaling: {error}", file=sys.stderr) or 2)
    except (KeyError, TypeError) as error:
        sys.exit(print(f"scaling: a record or input lacks or misstates {error}", file=sys.stderr) or 2)


if __name__ == "__main__":
    main()
