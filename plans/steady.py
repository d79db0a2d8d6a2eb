#!/usr/bin/env python3
"""Prints a record of how fast a training run was in its early and late steps, from its log.

    plans/steady.py OUT/log.jsonl --batch N [--ranks 1] [--warmup 100] [--window 400] [--epoch 118287 --val 5000]

Intervals between steps count, except around an evaluation and at the end. Results are logged up to two steps late, but
all of them before an evaluation: the two intervals before it are too short by as much as the one after it is too long.
These three are left out together.

img_s                    images per second of all steps after the warm-up, evaluations left out
img_s_early, img_s_late  of the first and the last `window` steps of these
img_s_evaluated          of all steps after the warm-up, with the evaluations between them and the one at the end
img_s_epoch              projected to evaluating `val` images after every `epoch`, at the speed of these evaluations
data_wait_percent        share of the steps' time spent waiting for the loader
evaluation_img_s         images per second of an evaluation, with its scores
positives                mean per step; positives_late: of the last `window` steps
"""
import argparse
import json
import sys


def read_log(path):
    records = []
    try:
        f = open(path, encoding="utf-8")
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    with f:
        for number, line in enumerate(f, 1):
            try:
                records.append(json.loads(line))
            except ValueError:
                sys.exit(f"{path}:{number}: not a record of a run")
    return [r for r in records if r["kind"] == "train"], [r for r in records if r["kind"] == "eval"]


def mean_of(key, steps, chosen):
    values = [r[key] for r in steps if r["step"] in chosen and key in r]
    return sum(values) / len(values) if values else None


def intervals(steps, evals):
    """[(step, seconds since the one before, whether that is left out)]."""
    touched = {r["step"] + i for r in evals + steps[-1:] for i in (-1, 0, 1)}
    return [(b["step"], b["seconds"] - a["seconds"], b["step"] in touched) for a, b in zip(steps, steps[1:])]


def rate(chosen, images):
    seconds = sum(s for _, s, _ in chosen)
    return images * len(chosen) / seconds if seconds > 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--window", type=int, default=400)
    parser.add_argument("--epoch", type=int, default=118287, help="images of COCO's train2017")
    parser.add_argument("--val", type=int, default=5000)
    a = parser.parse_args()
    steps, evals = read_log(a.log)
    images = a.batch * a.ranks
    after = [i for i in intervals(steps, evals) if i[0] > a.warmup]
    plain = [i for i in after if not i[2]]
    if len(plain) < 2:
        sys.exit(f"{a.log}: {len(steps)} steps, of which {a.warmup} warm up: too few to tell a speed")
    if any(s < 0 for _, s, _ in plain):
        sys.exit(f"{a.log}: of a run that was resumed, whose clock begins anew")
    counted = {i[0] for i in plain}
    waits = [r["wait"] for r in steps if r["step"] in counted]
    late = {i[0] for i in plain[-a.window:]}
    out = dict(bench="sustained", steps=len(steps), batch=a.batch, world=a.ranks, warmup=a.warmup,
               img_s=rate(plain, images), img_s_early=rate(plain[:a.window], images),
               img_s_late=rate(plain[-a.window:], images),
               data_wait_percent=100 * sum(waits) / sum(s for _, s, _ in plain),
               positives=mean_of("positives", steps, counted), positives_late=mean_of("positives", steps, late),
               loss_late=mean_of("loss", steps, late))
    if evals:
        took = sum(r["clock"]["took"] for r in evals)
        scored = sum(r["images"] for r in evals)
        end = max([steps[-1]["seconds"]] + [r["clock"]["at"] for r in evals])
        begin = next(r["seconds"] for r in steps if r["step"] == a.warmup) if a.warmup else 0
        out.update(evaluations=len(evals), evaluated_images=scored, evaluation_img_s=scored / took,
                   img_s_evaluated=images * (steps[-1]["step"] - a.warmup) / (end - begin),
                   img_s_epoch=a.epoch / (a.epoch / out["img_s"] + a.val * took / scored),
                   bbox_AP=evals[-1].get("bbox_AP"), segm_AP=evals[-1].get("segm_AP"))
    print(json.dumps(out))


main()
