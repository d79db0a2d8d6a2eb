"""Compares tools/cocoeval with pycocotools on random data sets. Not part of `make test`: it needs Python packages.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install pycocotools
    make && /tmp/venv/bin/python test/peers/compare_pycocotools.py [--tool build/cocoeval] [--cases 20] [--seed 0]

Each case is a small data set with what makes evaluators disagree: equal scores, crowds, categories and images without
objects or without detections, boxes on the borders of the area ranges and of the IoU thresholds, more than 100
detections of one category, ids out of order and from 0. Exits 1 when a figure differs by more than 1e-9.
"""
import argparse
import contextlib
import copy
import io
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
from pycocotools import mask as mask_utils
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

STATS = ["AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large",
         "AR_1", "AR_10", "AR_100", "AR_small", "AR_medium", "AR_large"]


def random_box(rng, width, height):
    """x y w h; half of them on whole pixels, with sides that make areas of exactly 32² and 96² likely."""
    sides = [8, 16, 32, 32, 64, 96, 96, 128, 144]
    w, h = (rng.choice(sides), rng.choice(sides)) if rng.random() < 0.5 else (rng.uniform(2, 150), rng.uniform(2, 150))
    return [min(rng.choice([0, 16, 40, rng.uniform(0, width)]), width - w),
            min(rng.choice([0, 16, 40, rng.uniform(0, height)]), height - h), w, h]


def jitter(rng, box):
    """A detection of `box`: exact, shrunk to a round IoU, or shifted."""
    x, y, w, h = box
    kind = rng.randrange(3)
    if kind == 0:
        return [x, y, w, h]
    if kind == 1:
        return [x, y, w, h * rng.choice([0.5, 0.55, 0.6, 0.75, 0.9, 0.95])]
    return [x + rng.uniform(-0.2, 0.2) * w, y + rng.uniform(-0.2, 0.2) * h, w, h]


def polygon(box, clipped):
    """A hexagon in the box."""
    x, y, w, h = box
    points = [(x + w * 0.3, y), (x + w, y), (x + w, y + h * 0.6), (x + w * 0.7, y + h), (x, y + h), (x, y + h * 0.4)]
    width, height = clipped
    return [v for px, py in points for v in (min(max(px, 0), width), min(max(py, 0), height))]


def to_rle(box, size):
    rle = mask_utils.merge(mask_utils.frPyObjects([polygon(box, size)], size[1], size[0]))
    return {"size": rle["size"], "counts": rle["counts"].decode()}


def random_case(rng):
    """(ground truth, detections with boxes, detections with masks, detections with both)"""
    size = (320, 240)
    images = [{"id": i, "width": size[0], "height": size[1]} for i in rng.sample(range(1, 1000), rng.randint(1, 12))]
    categories = [{"id": i, "name": f"category {i}"} for i in rng.sample(range(1, 100), rng.randint(1, 6))]
    filled = categories[:max(1, len(categories) - 1)]
    levels = rng.choice([1, 3, 10, 10**6])  # of score: from all equal to none
    annotations, detections = [], []
    for image in images:
        for _ in range(rng.choice([0, 1, 3, 10])):
            box = random_box(rng, *size)
            crowd = int(rng.random() < 0.15)
            segmentation = to_rle(box, size) if crowd or rng.random() < 0.2 else [polygon(box, size)]
            annotations.append({"image_id": image["id"], "category_id": rng.choice(filled)["id"], "iscrowd": crowd,
                                "bbox": box, "area": box[2] * box[3] * rng.choice([1, 0.8]),
                                "segmentation": segmentation})
        truth = [a for a in annotations if a["image_id"] == image["id"]]
        for _ in range(rng.choice([0, 2, 10, 10, 150])):
            near = truth and rng.random() < 0.7
            source = rng.choice(truth) if near else None
            box = jitter(rng, source["bbox"]) if near else random_box(rng, *size)
            category = source["category_id"] if near and rng.random() < 0.9 else rng.choice(categories)["id"]
            detections.append({"image_id": image["id"], "category_id": category, "bbox": box,
                               "score": rng.randint(1, levels) / levels})
    ids = rng.sample(range(rng.randint(0, 1), 2 * len(annotations) + 2), len(annotations))
    for annotation, number in zip(annotations, ids):
        annotation["id"] = number
    rng.shuffle(annotations)
    rng.shuffle(detections)
    if not detections:  # pycocotools' loadRes does not take an empty list
        detections = [{"image_id": images[0]["id"], "category_id": categories[0]["id"], "bbox": [0, 0, 9, 9],
                       "score": 0.5}]
    both = [dict(d, segmentation=to_rle(d["bbox"], size)) for d in detections]
    masks = [{k: v for k, v in d.items() if k != "bbox"} for d in both]
    return {"images": images, "categories": categories, "annotations": annotations}, detections, masks, both


def mean(values):
    values = values[values > -1]
    return float(np.mean(values)) if values.size else -1.0


def expected(gt, dt, kind):
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = copy.deepcopy(gt)
        coco.createIndex()
        run = COCOeval(coco, coco.loadRes(copy.deepcopy(dt)), kind)
        run.evaluate()
        run.accumulate()
        run.summarize()
    figures = dict(zip(STATS, map(float, run.stats)))
    precision, recall = run.eval["precision"], run.eval["recall"]
    for k, category in enumerate(run.params.catIds):
        figures[f"{category} AP"] = mean(precision[:, :, k, 0, 2])
        figures[f"{category} AP50"] = mean(precision[0, :, k, 0, 2])
        figures[f"{category} AR_100"] = mean(recall[:, k, 0, 2])
    return figures


def ours(tool, gt, dt, kind, folder):
    paths = [os.path.join(folder, name) for name in ("gt.json", "dt.json")]
    for path, value in zip(paths, (gt, dt)):
        with open(path, "w") as f:
            json.dump(value, f)
    command = [tool, "--gt", paths[0], "--dt", paths[1], "--iou", kind, "--json"]
    out = json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL))  # notes on ids from 0
    figures = {key: out[key] for key in STATS}
    for category, row in out["per_category"].items():
        figures.update({f"{category} {key}": value for key, value in row.items()})
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tool", default="build/cocoeval")
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    worst, compared = 0.0, 0
    for case in range(args.cases):
        gt, boxes, masks, both = random_case(random.Random(args.seed * 1000003 + case))
        for variant, dt, kind in [("boxes", boxes, "bbox"), ("masks", masks, "segm"), ("boxes", boxes, "segm"),
                                  ("masks", masks, "bbox"), ("both", both, "bbox"), ("both", both, "segm")]:
            with tempfile.TemporaryDirectory() as folder:
                want, got = expected(gt, dt, kind), ours(args.tool, gt, dt, kind, folder)
            if want.keys() != got.keys():
                sys.exit(f"case {case}, {variant}, {kind}: figures for {sorted(got)}, expected {sorted(want)}")
            difference = max(abs(want[key] - got[key]) for key in want)
            if difference > 1e-9:
                print(f"case {case}, {variant}, {kind}: off by {difference:g}")
            worst, compared = max(worst, difference), compared + len(want)
    print(f"{args.cases} data sets, {compared} figures, largest difference {worst:.3g}")
    sys.exit(worst > 1e-9)


if __name__ == "__main__":
    main()
