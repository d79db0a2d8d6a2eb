"""Compares tools/cocoeval with pycocotools on one large case: time and every metric.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install pycocotools
    make && /tmp/venv/bin/python test/peers/bench_cocoeval.py [--tool build/cocoeval] [--seed 0] [--repeats 3]

5,000 images with 36,000 objects of 80 categories, polygons of 20 to 50 points and a few crowds, and 100 detections an
image: jittered copies of objects, their masks the outline moved, and as many that are wrong. Both sides read the two
files and end with the figures; pycocotools once, ours the median of the repeats, alternating with those of another
build where --before names one. Prints one record for bbox and one for segm, and with --iou boundary one for that,
which has no peer here (compare_pycocotools.py compares its figures): ours alone is timed, as for all with --alone. Exits
1 when a figure differs by more than 1e-9 or the ratio is below 20.
"""
import argparse
import contextlib
import io
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from pycocotools import mask as mask_utils
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from compare_pycocotools import STATS, mean
from origin import origin

IMAGES, OBJECTS, CATEGORIES, DETECTIONS = 5000, 36000, 80, 100
WIDTH, HEIGHT = 640, 480


def outline(rng, box, points):
    """A star-shaped polygon in the box x y w h, as flat list of coordinates with two decimals."""
    x, y, w, h = box
    flat = []
    for i in range(points):
        angle, radius = 2 * math.pi * i / points, rng.uniform(0.35, 0.5)
        flat += [round(x + w * (0.5 + radius * math.cos(angle)), 2), round(y + h * (0.5 + radius * math.sin(angle)), 2)]
    return flat


def random_box(rng):
    """Sides from 8 to about 300 pixels, small ones more often, as in COCO."""
    w, h = (min(8 * math.exp(rng.uniform(0, 3.6)), limit - 2) for limit in (WIDTH, HEIGHT))
    return [rng.uniform(0, WIDTH - w), rng.uniform(0, HEIGHT - h), w, h]


def to_rle(polygon):
    rle = mask_utils.frPyObjects([polygon], HEIGHT, WIDTH)[0]
    return {"size": rle["size"], "counts": rle["counts"].decode()}


def make_objects(rng):
    objects = []
    for i in range(OBJECTS):
        box = random_box(rng)
        polygon = outline(rng, box, rng.randint(20, 50))
        crowd = rng.random() < 0.01
        objects.append({"id": i + 1, "image_id": rng.randrange(IMAGES) + 1, "iscrowd": int(crowd),
                        "category_id": rng.randrange(CATEGORIES) + 1, "bbox": [round(v, 2) for v in box],
                        "area": float(mask_utils.area(mask_utils.frPyObjects([polygon], HEIGHT, WIDTH))[0]),
                        "segmentation": to_rle(polygon) if crowd else [polygon]})
    return objects


def moved(rng, box):
    x, y, w, h = box
    dx, dy = (rng.gauss(0, 0.08) for _ in range(2))
    sx, sy = (math.exp(rng.gauss(0, 0.08)) for _ in range(2))
    w, h = min(w * sx, WIDTH - 1.0), min(h * sy, HEIGHT - 1.0)
    return [min(max(x + dx * w, 0), WIDTH - w), min(max(y + dy * h, 0), HEIGHT - h), w, h]


def make_detections(rng, objects):
    """Half of them near an object of their image, with its category most of the time; the rest anywhere."""
    of_image = {}
    for o in objects:
        of_image.setdefault(o["image_id"], []).append(o)
    for image in range(1, IMAGES + 1):
        near = of_image.get(image, [])
        for _ in range(DETECTIONS):
            source = rng.choice(near) if near and rng.random() < 0.5 else None
            box = moved(rng, source["bbox"]) if source else random_box(rng)
            right = source and rng.random() < 0.8
            category = source["category_id"] if right else rng.randrange(CATEGORIES) + 1
            score = rng.betavariate(5, 2) if right else rng.betavariate(2, 5)
            yield {"image_id": image, "category_id": category, "bbox": box, "score": score,
                   "segmentation": to_rle(outline(rng, box, 24))}


def write_case(folder, seed):
    rng = random.Random(seed)
    objects = make_objects(rng)
    images = [{"id": i + 1, "file_name": f"{i + 1:012d}.jpg", "width": WIDTH, "height": HEIGHT} for i in range(IMAGES)]
    categories = [{"id": i + 1, "name": f"category {i + 1}"} for i in range(CATEGORIES)]
    gt, dt = (os.path.join(folder, name) for name in ("gt.json", "dt.json"))
    with open(gt, "w") as f:
        json.dump({"images": images, "annotations": objects, "categories": categories}, f)
    with open(dt, "w") as f:
        for i, detection in enumerate(make_detections(rng, objects)):
            f.write(("[" if i == 0 else ",") + json.dumps(detection))
        f.write("]")
    return gt, dt


def run_pycocotools(gt, dt, iou_type):
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(gt)
        run = COCOeval(coco, coco.loadRes(dt), iou_type)
        run.evaluate()
        run.accumulate()
        run.summarize()
    figures = dict(zip(STATS, map(float, run.stats)))
    for k, category in enumerate(run.params.catIds):
        figures[f"{category} AP"] = mean(run.eval["precision"][:, :, k, 0, 2])
    return figures


def run_ours(tool, gt, dt, iou_type):
    out = json.loads(subprocess.check_output([tool, "--gt", gt, "--dt", dt, "--iou", iou_type, "--json"]))
    figures = {key: out[key] for key in STATS}
    figures.update({f"{category} AP": row["AP"] for category, row in out["per_category"].items()})
    return figures


def children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(function, *args):
    """What it returns, seconds, and processor seconds of the programs that it ran, which other work disturbs less."""
    start, cpu = time.perf_counter(), children_cpu()
    value = function(*args)
    return value, time.perf_counter() - start, children_cpu() - cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tool", default="build/cocoeval")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--iou", nargs="+", default=["bbox", "segm"], choices=["bbox", "segm", "boundary"])
    parser.add_argument("--alone", action="store_true", help="time cocoeval only")
    parser.add_argument("--before", metavar="TOOL", help="another build of it, timed in turn")
    parser.add_argument("--keep", metavar="DIR", help="keep the files there, and take those of an earlier run")
    args = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or scratch
        os.makedirs(folder, exist_ok=True)
        gt, dt = (os.path.join(folder, name) for name in ("gt.json", "dt.json"))
        if not os.path.exists(dt):
            write_case(folder, args.seed)
        for iou_type in args.iou:
            got, seconds, cpu, before = [], [], [], []
            for _ in range(args.repeats):
                if args.before and iou_type != "boundary":
                    before.append(timed(run_ours, args.before, gt, dt, iou_type)[1:])
                for to, value in zip((got, seconds, cpu), timed(run_ours, args.tool, gt, dt, iou_type)):
                    to.append(value)
            ours = statistics.median(seconds)
            record = {"bench": "cocoeval", "iou": iou_type, "images": IMAGES, "objects": OBJECTS,
                      "detections": IMAGES * DETECTIONS, "dt_mb": round(os.path.getsize(dt) / 1e6, 1),
                      "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "ours_s": round(ours, 3),
                      "ours_range_s": [round(min(seconds), 3), round(max(seconds), 3)],
                      "ours_cpu_s": round(statistics.median(cpu), 3)}
            if before:
                for key, values in zip(("before_s", "before_cpu_s"), zip(*before)):
                    record[key] = round(statistics.median(values), 3)
            if not args.alone and iou_type != "boundary":
                want, peer, _ = timed(run_pycocotools, gt, dt, iou_type)
                worst = max(abs(want[key] - got[0][key]) for key in want)
                record.update({"pycocotools_s": round(peer, 2), "ratio": round(peer / ours, 1), "figures": len(want),
                               "largest_difference": worst})
                failed |= worst > 1e-9 or want.keys() != got[0].keys() or peer < 20 * ours
            print(json.dumps({**record, "AP": round(got[0]["AP"], 4), **origin("cpu")}), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
