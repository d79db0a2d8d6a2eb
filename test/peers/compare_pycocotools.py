"""Compares cocoeval with pycocotools on random data sets.

    python3 -m venv build/venv && build/venv/bin/pip install pycocotools
    make && build/venv/bin/python3 test/peers/compare_pycocotools.py [--tool build/cocoeval] [--cases 20] [--seed 0]
        [--boundary-api DIR]   a checkout of bowenc0221/boundary-iou-api, besides; pip install opencv-python-headless
        [--write DIR]          only write the sets and pycocotools' figures, for test_cocoeval_pycocotools.c

Each case is a small data set with what makes evaluators disagree: equal scores, crowds, objects that coincide,
categories and images without objects or without detections, none at all, boxes on the borders of the area ranges and of
the IoU thresholds, areas beside those borders, more than 100 detections of one category, ids out of order, from 0, below
0, repeated, and too large for a double. Compared are the 12 figures at the limits on detections that COCO has and at
others, those of each category, the curves behind them, and the diagonal and the columns of the confusion matrix, which
are true positives and detections. Boundary IoU is compared with the paper's definition in numpy (Boundary, below), and
with its authors' code where that is given. Exits 1 when a figure differs by more than 1e-9.
"""
import argparse
import contextlib
import io
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import types

import numpy as np
from pycocotools import mask as mask_utils
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

STATS = ["AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large",
         "AR_1", "AR_10", "AR_100", "AR_small", "AR_medium", "AR_large"]
CURVES = ["precision_50", "precision_75", "precision"]
LIMITS = [(1, 10, 100), (1, 10, 300), (2, 5, 9), (10, 100, 120)]


def stats_of(limits):
    """Names of the 12 figures, where recalls have their limit."""
    return STATS[:6] + [f"AR_{n}" for n in limits] + STATS[9:]


def boundary(mask):
    """Pixels of a mask [h, w] that are at most 2 % of the diagonal from its outside, which the image's outside is, too.

    By running minima along either axis: a pixel is inside where no neighbour that far is not.
    """
    h, w = mask.shape
    distance = max(1, round(0.02 * float(np.hypot(h, w))))
    inside = np.pad(mask.astype(bool), distance)
    for axis, size in ((0, h), (1, w)):
        inside = np.min([np.take(inside, np.arange(i, i + size), axis) for i in range(2 * distance + 1)], axis=0)
    return np.asfortranarray(mask & ~inside.astype(bool)).astype(np.uint8)


class Boundary(COCOeval):
    """pycocotools' evaluation of masks, where the smaller of mask and boundary IoU counts."""

    def computeIoU(self, image, category):
        ious = super().computeIoU(image, category)
        truth, found = self._gts[image, category], self._dts[image, category]
        if not truth or not found:
            return ious
        order = np.argsort([-d["score"] for d in found], kind="mergesort")[:self.params.maxDets[-1]]
        rims = [[mask_utils.encode(np.asfortranarray(boundary(mask_utils.decode(a["segmentation"])))) for a in side]
                for side in ([found[i] for i in order], truth)]
        crowd = [int(a["iscrowd"]) for a in truth]
        return np.where(np.array(crowd) > 0, ious, np.minimum(ious, mask_utils.iou(*rims, crowd)))


def load_boundary_api(folder):
    """COCO and COCOeval of the authors' code, which wants an older numpy and a matplotlib that is not used here."""
    np.float = float
    for name, member in (("matplotlib", None), ("matplotlib.pyplot", None), ("matplotlib.collections", "PatchCollection"),
                         ("matplotlib.patches", "Polygon")):
        module = types.ModuleType(name)
        if member:
            setattr(module, member, None)
        sys.modules.setdefault(name, module)
    sys.path.insert(0, folder)
    from boundary_iou.coco_instance_api.coco import COCO as BoundaryCOCO
    from boundary_iou.coco_instance_api.cocoeval import COCOeval as BoundaryCOCOeval
    return (lambda: BoundaryCOCO(get_boundary=True)), (lambda gt, dt, _: BoundaryCOCOeval(gt, dt, "boundary"))


def random_box(rng, width, height):
    """x y w h; half of them on whole pixels, with sides that make areas of exactly 32² and 96² likely."""
    sides = [8, 16, 32, 32, 64, 96, 96, 128, 144]
    w, h = (rng.choice(sides), rng.choice(sides)) if rng.random() < 0.5 else (rng.uniform(2, 150), rng.uniform(2, 150))
    return [min(rng.choice([0, 16, 40, rng.uniform(0, width)]), width - w),
            min(rng.choice([0, 16, 40, rng.uniform(0, height)]), height - h), w, h]


def jitter(rng, box):
    """A detection of `box`: exact, shrunk to a round IoU, or shifted."""
    x, y, w, h = box
    form = rng.randrange(3)
    if form == 0:
        return [x, y, w, h]
    if form == 1:
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


def random_ids(rng, n):
    """n different numbers for images or categories: small, or such that doubles do not tell them apart."""
    first = rng.choice([-5, 0, 1, 1, 1, 2**31 - 9, 2**53 - 9, 2**63 - 1000])
    return [first + i for i in rng.sample(range(rng.choice([2 * n, 900])), n)]


def annotation_ids(rng, n):
    """As random_ids; in a quarter of the sets several annotations have the same one."""
    if rng.random() < 0.25:
        first = rng.choice([0, 1, 2**53 - 1])
        return [first + rng.randrange(n) for _ in range(n)]
    return random_ids(rng, n)


def random_area(rng, box):
    """The box's, that of a mask in it, or one on or beside a border between small, medium and large."""
    if rng.random() < 0.6:
        return box[2] * box[3] * rng.choice([1, 0.8])
    area = rng.choice([32.0**2, 96.0**2])
    return rng.choice([area, area, int(area), math.nextafter(area, 0), math.nextafter(area, 1e6), 0, 1e10, 1.1e10])


def random_segmentation(rng, box, size, crowd):
    """A polygon, two of them, or run lengths, compressed or not."""
    rle = to_rle(box, size)
    if not crowd and rng.random() < 0.8:
        return [polygon(box, size)] if rng.random() < 0.8 else [polygon(box, size), polygon([4, 4, 30, 20], size)]
    if rng.random() < 0.5:
        return rle
    pixels = mask_utils.decode(rle).flatten(order="F")
    ends = np.flatnonzero(np.diff(pixels)) + 1
    counts = np.diff([0, *ends, pixels.size]).tolist()
    return {"size": rle["size"], "counts": [0] * int(pixels[0]) + counts}


def random_case(rng):
    """(ground truth, detections with boxes, detections with masks, detections with both)"""
    size = (320, 240)
    images = [{"id": i, "width": size[0], "height": size[1]} for i in random_ids(rng, rng.randint(1, 8))]
    categories = [{"id": i, "name": f"category {i}"} for i in random_ids(rng, rng.randint(1, 6))]
    filled = categories[:max(1, len(categories) - 1)]
    scores = rng.choice([[0.5], [0, 1, 2], [-1.5, 0.0, 1e-300, 1e300], [i / 10 for i in range(11)], None])
    annotations, detections, crowded = [], [], rng.random() < 0.3
    for image in images:
        truth = []
        for _ in range(rng.choice([0, 1, 3, 10])):
            box = random_box(rng, *size) if not truth or rng.random() < 0.8 else rng.choice(truth)["bbox"]
            crowd = int(rng.random() < 0.15)
            truth.append({"image_id": image["id"], "category_id": rng.choice(filled)["id"], "iscrowd": crowd,
                          "bbox": box, "area": random_area(rng, box),
                          "segmentation": random_segmentation(rng, box, size, crowd)})
        most = 130 if crowded else rng.choice([0, 2, 10, 10])
        crowded = False
        for _ in range(most):
            near = truth and rng.random() < 0.7
            source = rng.choice(truth) if near else None
            box = jitter(rng, source["bbox"]) if near else random_box(rng, *size)
            category = source["category_id"] if near and rng.random() < 0.9 else rng.choice(categories)["id"]
            detections.append({"image_id": image["id"], "category_id": category, "bbox": box,
                               "score": rng.choice(scores) if scores else rng.random()})
        annotations += truth
    for annotation, number in zip(annotations, annotation_ids(rng, len(annotations))):
        annotation["id"] = number
    rng.shuffle(annotations)
    rng.shuffle(detections)
    if detections and rng.random() < 0.1:  # of a category that is not there
        detections[0]["category_id"] = max(c["id"] for c in categories) + 1
    if rng.random() < 0.05:
        detections = []
    both = [dict(d, segmentation=to_rle(d["bbox"], size)) for d in detections]
    masks = [{k: v for k, v in d.items() if k != "bbox"} for d in both]
    return {"images": images, "categories": categories, "annotations": annotations}, detections, masks, both


def mean(values):
    values = values[values > -1]
    return float(np.mean(values)) if values.size else -1.0


def confusion_figures(run, gt):
    """By category what is right and what was detected, at a score of 0.5 and IoU 0.50; not where an id of 0 is odd."""
    right, detected = ({c: 0 for c in run.params.catIds} for _ in range(2))
    for e in run.evalImgs:
        if e and tuple(e["aRng"]) == (0, 1e10):
            counted = (np.array(e["dtScores"]) >= 0.5) & ~e["dtIgnore"][0].astype(bool)
            right[e["category_id"]] += int(np.sum(counted & (e["dtMatches"][0] > 0)))
            detected[e["category_id"]] += int(np.sum(counted))
    if any(a["id"] == 0 for a in gt["annotations"]):
        return {}
    return {f"{c} {what}": of[c] for c in right for what, of in (("right", right), ("detected", detected))}


def copy_of(value):
    return json.loads(json.dumps(value))  # every number as it was; copy.deepcopy takes ten times as long


def coco_of(dataset, new_coco=COCO):
    coco = new_coco()
    coco.dataset = copy_of(dataset)
    coco.createIndex()
    return coco


def run_of(gt, dt, iou_type, limits=LIMITS[0], api=None):
    """pycocotools' evaluation, done."""
    new_coco, new_run = api or (COCO, Boundary if iou_type == "boundary" else COCOeval)
    with contextlib.redirect_stdout(io.StringIO()):
        coco = coco_of(gt, new_coco)
        found = coco.loadRes(copy_of(dt)) if dt else coco_of(dict(gt, annotations=[]), new_coco)
        run = new_run(coco, found, "segm" if iou_type == "boundary" else iou_type)
        run.params.maxDets = list(limits)
        run.evaluate()
        run.accumulate()
        run.summarize()
    return run


def curves_of(run):
    """By category, and of "all", precision [threshold, recall, categories] for objects of every size."""
    precision = run.eval["precision"][:, :, :, 0, 2]
    return {"all": precision, **{category: precision[:, :, k:k + 1] for k, category in enumerate(run.params.catIds)}}


def curve_of(points):
    """At each recall the mean over thresholds and categories of the points [threshold, recall, categories] above -1."""
    there = points > -1
    n = there.sum(axis=(0, 2))
    return np.where(n > 0, np.where(there, points, 0).sum(axis=(0, 2)) / np.maximum(n, 1), -1).tolist()


def categories_of(run, limits=LIMITS[0]):
    precision, recall = run.eval["precision"], run.eval["recall"]
    return {int(category): {"AP": mean(precision[:, :, k, 0, 2]), "AP50": mean(precision[0, :, k, 0, 2]),
                            f"AR_{limits[2]}": mean(recall[:, k, 0, 2])}
            for k, category in enumerate(run.params.catIds)}


def expected(gt, dt, iou_type, limits=LIMITS[0], api=None):
    run = run_of(gt, dt, iou_type, limits, api)
    figures = dict(zip(stats_of(limits), map(float, run.stats)))
    for category, row in categories_of(run, limits).items():
        figures.update({f"{category} {key}": value for key, value in row.items()})
    for owner, points in curves_of(run).items():
        for name, part in zip(CURVES, (points[:1], points[5:6], points)):
            for r in range(0, 101, 10):
                figures[f"{owner} {name} {r}"] = mean(part[:, r])
    if limits == LIMITS[0]:
        figures.update(confusion_figures(run, gt))
    return figures


def write_cases(folder, cases, seed):
    """NUMBER-gt.json, NUMBER-dt.json, and pycocotools' figures of boxes and of masks in NUMBER-expected.json."""
    for case in range(cases):
        gt, *variants = random_case(random.Random(seed * 1000003 + case))
        dt = variants[case % 3]
        figures = {}
        for iou_type in ("bbox", "segm"):
            run = run_of(gt, dt, iou_type)
            figures[iou_type] = {"stats": dict(zip(STATS, map(float, run.stats))), "per_category": categories_of(run),
                             "curves": {str(owner): curve_of(points) for owner, points in curves_of(run).items()}}
        for name, value in (("gt", gt), ("dt", dt), ("expected", figures)):
            with open(os.path.join(folder, f"{case}-{name}.json"), "w") as f:
                f.write(json.dumps(value))  # json.dump(value, f) is three times as slow


def ours(tool, gt, dt, iou_type, folder, limits=LIMITS[0]):
    paths = [os.path.join(folder, name) for name in ("gt.json", "dt.json", "curves.json", "confusion.json")]
    for path, value in zip(paths, (gt, dt)):
        with open(path, "w") as f:
            json.dump(value, f)
    command = [tool, "--gt", paths[0], "--dt", paths[1], "--iou", iou_type, "--json", "--max-dets", ",".join(map(str, limits)),
               "--curves", paths[2], "--confusion", paths[3]]
    out = json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL))  # notes on ids from 0
    figures = {key: out[key] for key in stats_of(limits)}
    for category, row in out["per_category"].items():
        figures.update({f"{category} {key}": value for key, value in row.items()})
    curves, confusion = (json.load(open(path)) for path in paths[2:])
    for owner, rows in [("all", curves["all"])] + [(c["id"], c) for c in curves["category"]]:
        figures.update({f"{owner} {name} {r}": rows[name][r] if rows[name] else -1.0
                        for name in CURVES for r in range(0, 101, 10)})
    if limits == LIMITS[0] and all(a["id"] for a in gt["annotations"]):
        for category, row in zip(sorted(map(int, out["per_category"])), confusion["class"]):
            figures.update({f"{category} right": row["right"], f"{category} detected": row["detections"]})
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tool", default="build/cocoeval")
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--boundary-api", metavar="DIR")
    parser.add_argument("--write", metavar="DIR")
    args = parser.parse_args()
    if args.write:
        return write_cases(args.write, args.cases, args.seed)
    api = load_boundary_api(args.boundary_api) if args.boundary_api else None
    worst, compared = {}, {}
    for case in range(args.cases):
        rng = random.Random(args.seed * 1000003 + case)
        gt, boxes, masks, both = random_case(rng)
        runs = [("boxes", boxes, "bbox"), ("masks", masks, "segm"), ("boxes", boxes, "segm"), ("masks", masks, "bbox"),
                ("both", both, "bbox"), ("both", both, "segm"), ("masks", masks, "boundary"), ("both", both, "boundary")]
        for variant, dt, iou_type in runs:
            limits = LIMITS[case % len(LIMITS)]
            with tempfile.TemporaryDirectory() as folder:
                got = ours(args.tool, gt, dt, iou_type, folder, limits)
            for peer in [None] + ([api] if api and iou_type == "boundary" else []):
                want, name = expected(gt, dt, iou_type, limits, peer), f"{iou_type}, authors' code" if peer else iou_type
                if want.keys() != got.keys():
                    sys.exit(f"case {case}, {variant}, {name}: only one has {sorted(want.keys() ^ got.keys())}")
                difference = max(abs(want[key] - got[key]) for key in want)
                if difference > 1e-9:
                    print(f"case {case}, {variant}, {name}: off by {difference:g}",
                          [k for k in want if abs(want[k] - got[k]) > 1e-9][:5])
                worst[name] = max(worst.get(name, 0.0), difference)
                compared[name] = compared.get(name, 0) + len(want)
    for name in worst:
        print(f"{name}: {args.cases} data sets, {compared[name]} figures, largest difference {worst[name]:.3g}")
    sys.exit(max(worst.values()) > 1e-9)


if __name__ == "__main__":
    main()
