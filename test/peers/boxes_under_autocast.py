"""Measures the effect of bfloat16 on torchvision's boxes: why its box AP under autocast is lower than ours. Needs
torch, torchvision.

    make && python3 test/peers/boxes_under_autocast.py --data DIR [--split train] [--limit 8] [--size 800] [--max-size 1333]

Under autocast the type of torchvision's anchors is that of the feature maps, and its box coder converts proposals to the
type of the deltas, bfloat16, before it decodes: numbers of eight bits, 4 apart from 512 to 1024. Here its decoder is
given, for every object, a proposal nearby and exactly the delta that leads from there to the object, both in the type
that they would have; what it returns is scored as a detection. Whatever is missing to 1 is the type's doing, no network's.
"""
import argparse
import json
import os
import subprocess
import tempfile

import torch
from torchvision.models.detection._utils import BoxCoder

from train_vs_torchvision import load_split, read_annotations


def detections(split, labels, a, dtype):
    coder, found = BoxCoder((10.0, 10.0, 5.0, 5.0)), []
    torch.manual_seed(1)
    for image, (h, w), boxes, classes in split:
        scale = min(a.size / min(h, w), a.max_size / max(h, w))
        want = torch.tensor(boxes) * scale
        extent = (want[:, 2:] - want[:, :2]).repeat(1, 2)
        proposal = (want + 0.1 * torch.randn(want.shape) * extent).to(dtype)
        proposal[:, 2:] = torch.maximum(proposal[:, 2:], proposal[:, :2] + 1)
        delta = coder.encode_single(want, proposal.float()).to(dtype)
        got = (coder.decode_single(delta, proposal).float() / scale).tolist()
        found += [dict(image_id=image, category_id=labels[c], score=0.9, bbox=[b[0], b[1], b[2] - b[0], b[3] - b[1]])
                  for b, c in zip(got, classes.tolist())]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--size", type=int, default=800)
    parser.add_argument("--max-size", type=int, default=1333)
    parser.add_argument("--cocoeval", default="build/cocoeval")
    a = parser.parse_args()
    images, categories = load_split(a.data, a.split, a.limit, empty=False)
    split = [(i, masks.shape[1:], boxes, labels) for i, _, boxes, labels, masks in images]
    truth, ids = read_annotations(a.data, a.split), {i for i, *_ in split}
    truth["images"] = [i for i in truth["images"] if i["id"] in ids]
    truth["annotations"] = [t for t in truth["annotations"] if t["image_id"] in ids]
    labels = {i + 1: c["id"] for i, c in enumerate(categories)}
    with tempfile.TemporaryDirectory() as folder:
        gt, dt = os.path.join(folder, "gt.json"), os.path.join(folder, "dt.json")
        with open(gt, "w") as f:
            json.dump(truth, f)
        for dtype in (torch.float32, torch.bfloat16):
            with open(dt, "w") as f:
                json.dump(detections(split, labels, a, dtype), f)
            said = subprocess.run([a.cocoeval, "--gt", gt, "--dt", dt, "--iou", "bbox", "--json"], check=True,
                                  stdout=subprocess.PIPE, text=True).stdout
            print(f"{str(dtype)[6:]}: box AP {json.loads(said)['AP']:.4f}, {len(split)} images")


if __name__ == "__main__":
    main()
