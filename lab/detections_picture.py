"""Images above, what was found in them below: detections_picture.py DETECTIONS FOLDER OUT.png NAME...

DETECTIONS is infer's detections.json, FOLDER has the images; NAME is the beginning of a file name. Needs Pillow and
pycocotools. docs/detections.png: three nuclei images of the validation split, by the doctor's command of
results/augment-h100.txt.
"""
import colorsys
import json
import os
import sys

import numpy as np
from PIL import Image, ImageFilter
from pycocotools import mask

SIDE, GAP, LEAST_SCORE = 386, 6, 0.5


def colour(i):
    return tuple(int(255 * c) for c in colorsys.hsv_to_rgb(i * 0.618034 % 1, 0.75, 1))


def drawn(picture, found):
    """Masks as translucent areas with outlines, enlarged smoothly."""
    out = picture.copy()
    for i, d in enumerate(found):
        bits = Image.fromarray(255 * mask.decode(d["segmentation"]))
        area = bits.resize(picture.size, Image.BICUBIC).point(lambda v: 255 * (v >= 128))
        edge = np.array(area, int) - np.array(area.filter(ImageFilter.MinFilter(5)), int)
        out.paste(colour(i), mask=area.point(lambda v: v * 2 // 5))
        out.paste(colour(i), mask=Image.fromarray(edge.astype(np.uint8)))
    return out


def main():
    detections, folder, out, *names = sys.argv[1:]
    with open(detections, encoding="utf-8") as f:
        found = json.load(f)
    sheet = Image.new("RGB", (len(names) * (SIDE + GAP) - GAP, 2 * SIDE + GAP), "white")
    for k, name in enumerate(names):
        file = next(f for f in sorted(os.listdir(folder)) if f.startswith(name))
        picture = Image.open(os.path.join(folder, file)).convert("RGB").resize((SIDE, SIDE), Image.BICUBIC)
        top = np.percentile(np.array(picture), 99.8)
        picture = picture.point(lambda v, top=top: min(int(v * 255 / top), 255))  # dark images are shown brighter
        here = [d for d in found if d["file_name"].endswith(file) and d["score"] >= LEAST_SCORE]
        sheet.paste(picture, (k * (SIDE + GAP), 0))
        sheet.paste(drawn(picture, here), (k * (SIDE + GAP), SIDE + GAP))
        print(file, len(here))
    sheet.quantize(200).save(out, optimize=True)


main()
