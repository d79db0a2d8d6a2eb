#!/usr/bin/env python3
"""Makes a large data set from a small one by listing the same images repeatedly under new ids.

    plans/large_set.py --data DIR --out OUT [--train 24000] [--val 1000]

Loading, shapes, objects and canvases are those of DIR; files are read repeatedly, mostly from the page cache. OUT is in
COCO's layout, with links to DIR's folders of images. A split that is large enough is linked as it is; one of 0 is left
out. If OUT was already made from the same DIR with the same counts, nothing happens.
"""
import argparse
import json
import os
import sys


def find_split(data, split):
    """The annotations of a split and its folder: instances_train*.json, train*/."""
    for name in sorted(os.listdir(f"{data}/annotations")):
        if name.startswith(f"instances_{split}") and name.endswith(".json"):
            folder = name[len("instances_"):-len(".json")]
            if os.path.isdir(f"{data}/{folder}"):
                return f"{data}/annotations/{name}", f"{data}/{folder}"
    sys.exit(f"{data}: no annotations/instances_{split}*.json beside a folder {split}*")


def repeat(coco, count):
    """The first `count` images of the list repeated; ids count from 1 in the order of the list."""
    objects = {}
    for a in coco["annotations"]:
        objects.setdefault(a["image_id"], []).append(a)
    images, annotations = [], []
    for i in range(count):
        image = coco["images"][i % len(coco["images"])]
        images.append({**image, "id": i + 1})
        for a in objects.get(image["id"], []):
            annotations.append({**a, "id": len(annotations) + 1, "image_id": i + 1})
    return {**coco, "images": images, "annotations": annotations}


def make_room(path):
    """Removes a link, or a list that an earlier call wrote, but never a folder, which has somebody's images."""
    if os.path.isdir(path) and not os.path.islink(path):
        sys.exit(f"{path}: a folder is there already; give another --out")
    if os.path.lexists(path):
        os.remove(path)


def link(to, path):
    make_room(path)
    os.symlink(os.path.abspath(to), path)


def write(path, text):
    with open(path + ".tmp", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(path + ".tmp", path)


def make_split(data, out, split, count):
    annotations, folder = find_split(data, split)
    target = f"{out}/annotations/instances_{split}.json"
    with open(annotations, encoding="utf-8") as f:
        coco = json.load(f)
    if not coco["images"]:
        sys.exit(f"{annotations}: it lists no image")
    link(folder, f"{out}/{split}")
    if len(coco["images"]) >= count:
        link(annotations, target)
    else:
        make_room(target)
        write(target, json.dumps(repeat(coco, count)))
    return max(count, len(coco["images"])), len(coco["images"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--train", type=int, default=24000)
    parser.add_argument("--val", type=int, default=1000)
    a = parser.parse_args()
    if not os.path.isdir(f"{a.data}/annotations"):
        sys.exit(f"{a.data}: no folder annotations in it: give a data set in COCO's layout")
    made_of, note = json.dumps([os.path.abspath(a.data), a.train, a.val]), f"{a.out}/made-of.json"
    if os.path.exists(note):
        with open(note, encoding="utf-8") as f:
            if f.read() == made_of:
                return
        os.remove(note)
    os.makedirs(f"{a.out}/annotations", exist_ok=True)
    for split, count in (("train", a.train), ("val", a.val)):
        if count == 0:
            continue
        listed, distinct = make_split(a.data, a.out, split, count)
        print(f"{a.out}: {split} lists {listed} images, {distinct} of them distinct", file=sys.stderr)
    write(note, made_of)


main()
