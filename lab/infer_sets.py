"""Makes the inputs of plans/inference.plan from a set in COCO's layout: infer_sets.py DATA OUT [PHOTOGRAPHS LARGE].

OUT/land: the images of DATA's training split that are wider than high.
OUT/photos: PHOTOGRAPHS (10,000) images in 300 sizes of up to a megapixel; OUT/large: LARGE (128) images of 24
megapixels; both resampled from land's with Pillow.
"""
import json
import multiprocessing
import os
import random
import shutil
import sys

SIZES, LARGE = 300, (6000, 4000)


def landscapes(data, out):
    with open(f"{data}/annotations/instances_train2017.json", encoding="utf-8") as f:
        coco = json.load(f)
    coco["images"] = [i for i in coco["images"] if i["width"] > i["height"]]
    ids = {i["id"] for i in coco["images"]}
    coco["annotations"] = [a for a in coco["annotations"] if a["image_id"] in ids]
    os.makedirs(f"{out}/land/train2017")
    os.makedirs(f"{out}/land/annotations")
    for image in coco["images"]:
        shutil.copy(f"{data}/train2017/{image['file_name']}", f"{out}/land/train2017")
    with open(f"{out}/land/annotations/instances_train2017.json", "w", encoding="utf-8") as f:
        json.dump(coco, f)
    return coco


def sizes():
    draw, found = random.Random(5), []
    while len(found) < SIZES:
        w, h = draw.randrange(320, 1281), draw.randrange(240, 1025)
        if w * h <= 10**6:
            found.append((w, h))
    return found


def resample(job):
    from PIL import Image
    source, size, to = job
    Image.open(source).convert("RGB").resize(size, Image.BILINEAR).save(to, quality=88)


def photographs(coco, out, name, many, of):
    os.makedirs(f"{out}/{name}")
    files = [f"{out}/land/train2017/{i['file_name']}" for i in coco["images"]]
    jobs = [(files[k % len(files)], of[random.Random(k).randrange(len(of))], f"{out}/{name}/{k:05d}.jpg")
            for k in range(many)]
    with multiprocessing.Pool() as pool:
        pool.map(resample, jobs, chunksize=8)


def main():
    data, out = sys.argv[1:3]
    many, large = (int(n) for n in sys.argv[3:5]) if len(sys.argv) > 4 else (10000, 128)
    coco = landscapes(data, out)
    photographs(coco, out, "photos", many, sizes())
    photographs(coco, out, "large", large, [LARGE])


if __name__ == "__main__":
    main()
