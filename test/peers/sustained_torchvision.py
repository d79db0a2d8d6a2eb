"""Trains torchvision 0.26's Mask R-CNN R50-FPN on a long list of images, as plans/sustained.plan trains ours: the same
list, the same weights, bf16 autocast, channels_last, SGD with the same rate. Images are decoded by the processes of a
DataLoader, as many as there are cores, and grouped by aspect ratio, as its references do. Evaluations take one image at
a time, masks pasted and coded, as those do, too.

    python3 test/peers/sustained_torchvision.py --data DIR --weights FILE --batch N --out OUT [--steps 2000]

OUT/log.jsonl has records as our log: plans/steady.py makes the speeds of it. Needs torch and torchvision, and a GPU
unless --device cpu.
"""
import argparse
import bisect
import json
import os
import sys
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from torchvision_model import R50, build, read_checkpoint
from train_vs_torchvision import detect_torchvision, mirrored, polygon_mask, read_annotations, rle_mask, score

BINS = [2 ** ((i - 3) / 3) for i in range(7)]  # of aspect ratios, which share batches


class Listed:
    """An image of the list; its masks are drawn when it is its turn, as torchvision's references draw them."""

    def __init__(self, path, image, objects):
        self.path, self.width, self.height, self.objects = path, image["width"], image["height"], objects

    def load(self):
        masks = [rle_mask(s["counts"], self.height, self.width) if isinstance(s, dict) else
                 polygon_mask(s, self.height, self.width) for _, _, s in self.objects]
        return (self.path, np.array([box for box, _, _ in self.objects], np.float32),
                np.array([label for _, label, _ in self.objects]), np.array(masks))


def read_list(root, split):
    """The images that have an object, and their ids; the categories."""
    coco = read_annotations(root, split)
    categories = sorted(coco["categories"], key=lambda c: c["id"])
    label = {c["id"]: i + 1 for i, c in enumerate(categories)}
    images, objects = {image["id"]: image for image in coco["images"]}, {}
    for a in coco["annotations"]:
        image, (x, y, w, h) = images[a["image_id"]], a["bbox"]
        box = [max(x, 0), max(y, 0), min(x + w, image["width"]), min(y + h, image["height"])]
        if not a.get("iscrowd", 0) and box[2] > box[0] and box[3] > box[1]:
            objects.setdefault(image["id"], []).append((box, label[a["category_id"]], a["segmentation"]))
    path = lambda image: f"{root}/{split}/{image['file_name']}"
    return ([Listed(path(image), image, objects[i]) for i, image in images.items() if i in objects],
            [(i, path(image)) for i, image in images.items()], categories)


class Images(torch.utils.data.Dataset):
    """Decoded when they are asked for: bytes, boxes, labels, masks."""

    def __init__(self, listed, flip):
        self.listed, self.flip = listed, flip

    def __len__(self):
        return len(self.listed)

    def __getitem__(self, i):
        path, boxes, labels, masks = self.listed[i].load()
        pixels = torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1).contiguous()
        boxes, labels, masks = map(torch.from_numpy, (boxes, labels, masks))
        if self.flip and torch.rand(()) < 0.5:
            pixels, boxes, masks = mirrored(pixels, boxes, masks)
        return pixels, boxes, labels, masks


def batches(listed, batch, steps, seed):
    """Places of images, `batch` of one aspect ratio at a time, in epochs of another order each."""
    order, waiting, made = np.random.default_rng(seed), {}, 0
    while made < steps:
        for i in order.permutation(len(listed)):
            group = waiting.setdefault(bisect.bisect(BINS, listed[i].width / listed[i].height), [])
            group.append(int(i))
            if len(group) < batch:
                continue
            yield group[:]
            group.clear()
            made += 1
            if made == steps:
                return


def model_of(path, device):
    """Ours, or torchvision's own R50-FPN of 91 classes; frozen batch norm, three stages of the backbone trained."""
    try:
        config, tensors = read_checkpoint(path)
    except Exception:  # no safetensors
        config, tensors = dict(R50, classes=91), torch.load(path, map_location="cpu", weights_only=True)
    config = dict(config, norm="frozen-bn", trainable_layers=3)
    model = build(config)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    missing = [name for name in missing if not name.endswith("batches_tracked")]
    if missing or unexpected:
        sys.exit(f"{path}: no weights of R50-FPN: {', '.join((missing + unexpected)[:3])}")
    return model.to(device).to(memory_format=torch.channels_last)


def to_device(batch, device):
    images, targets = [], []
    for pixels, boxes, labels, masks in batch:
        images.append(pixels.to(device, non_blocking=True).float().div_(255))
        targets.append({key: value.to(device, non_blocking=True)
                        for key, value in (("boxes", boxes), ("labels", labels), ("masks", masks))})
    return images, targets


class Run:
    def __init__(self, a):
        self.a, self.begin = a, time.time()
        self.log = open(f"{a.out}/log.jsonl", "w", encoding="utf-8")

    def at(self):
        return time.time() - self.begin

    def write(self, **record):
        self.log.write(json.dumps(record) + "\n")
        self.log.flush()

    def evaluate(self, model, step, val, categories):
        a, start = self.a, time.time()
        found = f"{a.out}/detections.json"
        detect_torchvision(model, a, val, categories, found)
        ap = score(a, f"{a.data}/annotations/instances_val.json", found)
        ap = ap if a.whole_val else {}  # of images that were not looked at, nothing was found
        self.write(step=step, kind="eval", **ap, images=len(val), clock=dict(at=self.at(), took=time.time() - start))
        model.train()

    def train(self, model, listed, val, categories):
        a = self.a
        loader = DataLoader(Images(listed, flip=True), batch_sampler=list(batches(listed, a.batch, a.steps, a.seed)),
                            num_workers=a.workers, collate_fn=list, pin_memory=a.device == "cuda")
        optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=a.lr, momentum=0.9,
                                    weight_decay=1e-4)
        model.train()
        source = iter(loader)
        for step in range(1, a.steps + 1):
            asked = time.time()
            batch = next(source)
            wait = time.time() - asked
            images, targets = to_device(batch, a.device)
            with torch.autocast(a.device, dtype=torch.bfloat16):
                losses = model(images, targets)
            loss = sum(losses.values())
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10)
            optimiser.step()
            if step == a.steps and a.device == "cuda":
                torch.cuda.synchronize()
            told = dict(loss=float(loss.detach())) if step % 100 == 0 else {}  # reading it waits for the step
            self.write(step=step, kind="train", **told, wait=wait, seconds=self.at())
            if step % a.eval_every == 0:
                self.evaluate(model, step, val, categories)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", required=True)
    add("--weights", required=True)
    add("--out", required=True)
    add("--batch", type=int, required=True)
    add("--steps", type=int, default=2000)
    add("--eval-every", type=int, default=1000)
    add("--val-limit", type=int, default=0,
        help="images of an evaluation; of fewer than there are, it tells its speed alone, no AP")
    add("--seed", type=int, default=1)
    add("--lr", type=float, default=1e-5)
    add("--workers", type=int, default=len(os.sched_getaffinity(0)))
    add("--device", default="cuda", choices=["cuda", "cpu"])
    add("--cocoeval", default=os.path.join(os.environ.get("B", "build"), "cocoeval"))
    a = parser.parse_args()
    a.amp = True
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(a.seed)
    torch.backends.cudnn.benchmark = False  # shapes change from step to step
    listed, _, categories = read_list(a.data, "train")
    _, val, _ = read_list(a.data, "val")
    looked_at = val[:a.val_limit or None]
    a.whole_val = len(looked_at) == len(val)
    Run(a).train(model_of(a.weights, a.device), listed, looked_at, categories)


if __name__ == "__main__":
    main()
