"""Trains torchvision 0.26's Mask R-CNN and ours side by side: the same initial weights, the same images in the same order
with the same flips, the same learning rates, the same canvas, one GPU, one after the other. Needs torch; without a GPU
both train on the CPU, in float32 (--model tiny is small enough for that).

    make && python test/peers/train_vs_torchvision.py --data DIR --out OUT [--seed N] [-- flags of ./train]

OUT/ours is our run; OUT/torchvision.jsonl has torchvision's losses in the format of our log, OUT/torchvision.json its
detections; OUT/result.json the scores of both (by build/cocoeval) and the seconds that training took. torchvision holds
the decoded images on the GPU beforehand and is given channels_last and autocast; our seconds include decoding. Where
OUT/ours is there from another time it is kept, and torchvision alone is trained.

Under autocast torchvision's anchors and boxes become bfloat16, whose neighbours lie 1 pixel apart from 128 on and 2 from
256 on: a fault rather than a property of the network, which shows in the first step's losses and costs it box AP. Unless
--boxes autocast asks for torchvision as it is, its boxes are computed in float32 here, as ours are; its detections are
then scored both ways.

With --augment, ours draws that preset and torchvision its own transforms of the same strengths (augmentation); the images
are then no longer the same.

The first --keyed steps of torchvision sample anchors and RoIs by our keyed rule, so that its losses must be ours up to
the arithmetic: they are printed next to each other. After that it samples as it always does.

For the picture of several seeds:
python3 lab/loss_plot.py TITLE "ours 1"=OUT/ours/log.jsonl "torchvision 1"=OUT/torchvision.jsonl >x.svg
"""
import argparse
import json
import os
import subprocess
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torchvision import tv_tensors
from torchvision.ops import masks_to_boxes
from torchvision.ops.poolers import initLevelMapper
from torchvision.transforms import v2

from origin import origin
from torchvision_dump import RNG_ROI, RNG_RPN, KeyedSampler, rng_key
from torchvision_model import R50, TINY, build, write_checkpoint
from torchvision_run import LOSSES

RNG_ORDER, RNG_FLIP = 1, 2
KEY_IMAGES, KEY_BATCHES = 0, 1
MODELS = dict(r50=R50, tiny=TINY)
WARMUP = 10  # steps that are not timed


# ---- data -----------------------------------------------------------------------------------------------------------

def rle_mask(counts, h, w):
    """Uncompressed, or COCO's compressed string, as in pycocotools' rleFrString."""
    if isinstance(counts, str):
        text, counts, at = counts, [], 0
        while at < len(text):
            value, shift, more = 0, 0, True
            while more:
                c = ord(text[at]) - 48
                value |= (c & 31) << shift
                more, at, shift = c & 32, at + 1, shift + 5
                if not more and c & 16:
                    value |= -1 << shift
            counts.append(value + counts[-2] if len(counts) > 2 else value)
    runs = np.repeat(np.arange(len(counts)) % 2, counts).astype(np.uint8)
    return runs.reshape(w, h).T


def polygon_mask(polygons, h, w):
    picture = Image.new("L", (w, h), 0)
    for polygon in polygons:
        if len(polygon) >= 6:
            ImageDraw.Draw(picture).polygon(polygon, fill=1)
    return np.array(picture)


def read_annotations(root, split):
    name = [f for f in os.listdir(f"{root}/annotations") if f.startswith(f"instances_{split}")][0]
    with open(f"{root}/annotations/{name}") as f:
        return json.load(f)


def load_split(root, split, limit, empty):
    """[(image id, file, boxes, labels, masks)] of the first images by id that ours uses, and the categories."""
    coco = read_annotations(root, split)
    folder = [d for d in os.listdir(root) if d.startswith(split)][0]
    label = {c["id"]: i + 1 for i, c in enumerate(sorted(coco["categories"], key=lambda c: c["id"]))}
    of_image = {}
    for a in coco["annotations"]:
        of_image.setdefault(a["image_id"], []).append(a)
    out = []
    for image in sorted(coco["images"], key=lambda i: i["id"]):
        h, w, boxes, labels, masks = image["height"], image["width"], [], [], []
        for a in of_image.get(image["id"], []):
            x, y, bw, bh = a["bbox"]
            box = [max(x, 0), max(y, 0), min(x + bw, w), min(y + bh, h)]
            if a.get("iscrowd", 0) or box[2] <= box[0] or box[3] <= box[1]:
                continue
            s = a["segmentation"]
            boxes.append(box)
            labels.append(label[a["category_id"]])
            masks.append(rle_mask(s["counts"], h, w) if isinstance(s, dict) else polygon_mask(s, h, w))
        if boxes or empty:
            out.append((image["id"], f"{root}/{folder}/{image['file_name']}", np.array(boxes, np.float32),
                        np.array(labels), np.array(masks)))
        if limit and len(out) == limit:
            break
    return out, sorted(coco["categories"], key=lambda c: c["id"])


class Order:
    """data/batches/sampler.c and data/batches/loader.c for one canvas: the images of each step, mirrored or not, and their keys."""

    def __init__(self, ids, batch, seed, flip):
        self.ids, self.batch, self.seed, self.flip = ids, batch, seed, flip
        self.steps = -(-len(ids) // batch)
        self.epoch = -1

    def shuffled(self, n, key):
        return np.lexsort((np.arange(n), rng_key(key, np.arange(n, dtype=np.uint64))))

    def step(self, step):
        epoch = step // self.steps
        if epoch != self.epoch:
            key = rng_key(rng_key(np.uint64(self.seed), np.uint64(RNG_ORDER)), np.uint64(epoch))
            self.images = self.shuffled(len(self.ids), rng_key(key, np.uint64(KEY_IMAGES)))
            self.batches = self.shuffled(self.steps, rng_key(key, np.uint64(KEY_BATCHES)))
            self.epoch = epoch
        first, chosen = self.batches[step % self.steps] * self.batch, []
        for i in range(self.batch):
            image = self.images[(first + i) % len(self.ids)]
            key = rng_key(rng_key(np.uint64(self.seed), np.uint64(epoch)), np.uint64(self.ids[image]))
            draw = rng_key(rng_key(key, np.uint64(RNG_FLIP)), np.uint64(0)) >> np.uint64(40)
            chosen.append((image, float(draw) / (1 << 24) < self.flip, key))
        return chosen


# ---- torchvision ----------------------------------------------------------------------------------------------------

def on_device(split, device):
    out = []
    for _, path, boxes, labels, masks in split:
        pixels = torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1).float().div(255)
        out.append(tuple(t.to(device) for t in (pixels, *map(torch.from_numpy, (boxes, labels, masks)))))
    return out


def mirrored(image, boxes, masks):
    w = image.shape[-1]
    return image.flip(-1), torch.stack([w - boxes[:, 2], boxes[:, 1], w - boxes[:, 0], boxes[:, 3]], 1), masks.flip(-1)


def pad_to(model, canvas):
    """torchvision pads to the largest image of a batch; here to our canvas, because group norm sees the padding. It infers
    the scales of the pyramid from the images' sizes without padding, which a larger canvas would mislead."""
    for pool in (model.roi_heads.box_roi_pool, model.roi_heads.mask_roi_pool):
        pool.scales = [1 / 4, 1 / 8, 1 / 16, 1 / 32]
        pool.map_levels = initLevelMapper(2, 5, canonical_scale=pool.canonical_scale,
                                          canonical_level=pool.canonical_level)

    def batch_images(images, size_divisible=32):
        out = images[0].new_zeros((len(images), 3, *canvas))
        for place, image in zip(out, images):
            place[:, :image.shape[1], :image.shape[2]].copy_(image)
        return out
    model.transform.batch_images = batch_images


def boxes_in_float32(model, on):
    """Anchors, the decoding of boxes, and what is derived from both, while the network stays under autocast."""
    anchors, coders = model.rpn.anchor_generator, (model.rpn.box_coder, model.roi_heads.box_coder)
    if not on:
        for changed, name in ((anchors, "forward"), *((c, "decode_single") for c in coders)):
            vars(changed).pop(name, None)
        return
    like = lambda f: torch.empty(1, device=f.device).expand(f.shape)  # the maps give their shapes and their type
    anchors.forward = lambda images, maps: type(anchors).forward(anchors, images, [like(f) for f in maps])
    for coder in coders:
        coder.decode_single = lambda codes, boxes, c=coder: type(c).decode_single(c, codes.float(), boxes)


def augmentation(preset, size):
    """torchvision's transforms (v2) with the strengths of data/batches/augment.c: a function of an image and its masks."""
    jitter = v2.Compose([
        v2.RandomHorizontalFlip(),
        v2.ScaleJitter((size, size), scale_range=(0.7, 1.5)),
        v2.RandomCrop(size, pad_if_needed=True, fill={tv_tensors.Image: 0.45, tv_tensors.Mask: 0}),
        v2.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2)])

    def augmented(image, boxes, labels, masks):
        quarters = np.random.randint(4) if preset == "any-orientation" else 0
        image, masks = jitter(*(kind(torch.rot90(t, quarters, (-2, -1)))
                                for kind, t in ((tv_tensors.Image, image), (tv_tensors.Mask, masks))))
        masks = masks.as_subclass(torch.Tensor)
        kept = (masks.flatten(1) > 0).any(1)
        boxes = masks_to_boxes(masks[kept]) if kept.any() else boxes[:0]
        return image.as_subclass(torch.Tensor), boxes + boxes.new_tensor([0, 0, 1, 1]), labels[kept], masks[kept]
    return augmented


class OnHost(KeyedSampler):
    """The keyed sampler computes on the host."""

    def __call__(self, labels):
        return tuple([m.to(labels[0].device) for m in side]
                     for side in super().__call__([label.cpu() for label in labels]))


def now(device):
    """Seconds, when the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.time()


def train_torchvision(model, a, data, ids, rates, log):
    order = Order(ids, a.batch, a.seed, a.flip)
    model.to(a.device).to(memory_format=torch.channels_last).train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)
    augmented = augmentation(a.augment, a.size) if a.augment else None
    own = model.rpn.fg_bg_sampler, model.roi_heads.fg_bg_sampler
    keyed = OnHost(own[0], RNG_RPN), OnHost(own[1], RNG_ROI)
    losses, seconds, begin = [], [], now(a.device)
    for step, rate in enumerate(rates):
        if step == min(WARMUP, len(rates) - 1):  # what came before has paid for loading kernels as well
            start, timed = now(a.device), len(rates) - step
        chosen = order.step(step)
        keyed[0].keys = keyed[1].keys = [key for *_, key in chosen]
        model.rpn.fg_bg_sampler, model.roi_heads.fg_bg_sampler = keyed if step < a.keyed else own
        for group in optimiser.param_groups:
            group["lr"] = rate
        images, targets = [], []
        for i, flip, _ in chosen:
            image, boxes, labels, masks = data[i]
            if augmented:
                image, boxes, labels, masks = augmented(image, boxes, labels, masks)
            elif flip:
                image, boxes, masks = mirrored(image, boxes, masks)
            images.append(image)
            targets.append(dict(boxes=boxes, labels=labels, masks=masks))
        with torch.autocast(a.device, dtype=torch.bfloat16, enabled=a.amp):
            out = model(images, targets)
        optimiser.zero_grad(set_to_none=True)
        sum(out.values()).backward()
        if a.clip:
            torch.nn.utils.clip_grad_norm_(parameters, a.clip)
        optimiser.step()
        losses.append(torch.stack([out[name].detach() for name in LOSSES]))
        seconds.append(time.time() - begin)  # unsynchronised: a step waits for its samples anyway
    took = now(a.device) - start
    with open(log, "w") as f:
        for step, row in enumerate(torch.stack(losses).float().cpu().tolist()):
            record = dict(step=step + 1, kind="train", lr=rates[step], loss=sum(row), **dict(zip(LOSSES, row)),
                          seconds=seconds[step])
            f.write(json.dumps(record) + "\n")
    return timed * a.batch / took, took * len(rates) / timed


def rle_of(mask):
    flat = mask.T.reshape(-1)
    changes = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff(np.concatenate([[0], changes, [flat.size]])).tolist()
    return ([0] if flat[0] else []) + runs


def detect_torchvision(model, a, split, categories, path):
    model.eval()
    found = []
    for image_id, file, *_ in split:
        pixels = torch.from_numpy(np.array(Image.open(file).convert("RGB"))).permute(2, 0, 1).float().div(255).to(a.device)
        with torch.inference_mode(), torch.autocast(a.device, dtype=torch.bfloat16, enabled=a.amp):
            o = model([pixels])[0]
        masks = (o["masks"][:, 0] > 0.5).cpu().numpy().astype(np.uint8)
        for box, score, label, mask in zip(o["boxes"].float().tolist(), o["scores"].float().tolist(),
                                           o["labels"].tolist(), masks):
            found.append(dict(image_id=image_id, category_id=categories[label - 1]["id"], score=score,
                              bbox=[box[0], box[1], box[2] - box[0], box[3] - box[1]],
                              segmentation=dict(size=list(mask.shape), counts=rle_of(mask))))
    with open(path, "w") as f:
        json.dump(found, f)


# ---- ours -----------------------------------------------------------------------------------------------------------

def train_ours(a, weights):
    """Canvas, the log's steps, the last evaluation."""
    run = [a.train, "--data", a.data, "--weights", weights, "--out", f"{a.out}/ours", "--seed", str(a.seed),
           "--batch", str(a.batch), "--iters", str(a.iters), *(["--augment", a.augment] if a.augment else ["--augment", "none", "--flip", str(a.flip)]), "--clip-grad", str(a.clip),
           "--canvases", "1", "--size", str(a.size), "--max-size", str(a.max_size), "--val-split", a.val_split,
           "--limit", str(a.limit), "--val-limit", str(a.limit if a.val_split == a.train_split else 0),
           "--train-split", a.train_split, "--device", a.device] + (["--amp"] if a.amp and a.device == "cuda" else []) + a.flags
    said, command = f"{a.out}/ours.txt", " ".join(run)
    if not os.path.exists(said):
        print(command, flush=True)
        done = subprocess.run(run, stderr=subprocess.PIPE, text=True)
        print(done.stderr[-1500:], flush=True)
        if done.returncode:
            raise SystemExit(f"./train ended with {done.returncode}")
        with open(said, "w") as f:
            f.write(f"{command}\n{done.stderr}")
    with open(said) as f:
        if f.readline().strip() != command:
            raise SystemExit(f"{said} is of a run with other arguments: give another --out")
        canvas = [line.split() for line in f if line.startswith("canvas ")][0]
    with open(f"{a.out}/ours/log.jsonl") as f:
        log = [json.loads(line) for line in f]
    steps = [r for r in log if r["kind"] == "train"]
    return (int(canvas[1]), int(canvas[3])), steps, [r for r in log if r["kind"] == "eval"][-1]


def score(a, annotations, detections):
    """AP of boxes and masks by our evaluator, which equals pycocotools'."""
    out = {}
    for iou_type in ("bbox", "segm"):
        text = subprocess.run([a.cocoeval, "--gt", annotations, "--dt", detections, "--iou", iou_type, "--json"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        out[iou_type + "_AP"] = json.loads(text)["AP"]
    return out


def main():
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--data", required=True)
    add("--out", required=True)
    add("--train-split", default="train")
    add("--val-split", default="val")
    add("--limit", type=int, default=0)
    add("--seed", type=int, default=1)
    add("--iters", type=int, default=2500, help="3 at least")
    add("--batch", type=int, default=8)
    add("--size", type=int, default=512)
    add("--max-size", type=int, default=1024)
    add("--model", default="r50", choices=MODELS)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    add("--norm", default="gn", choices=["gn", "bn", "frozen-bn"])
    add("--clip", type=float, default=10)
    add("--flip", type=float, default=0.5)
    add("--augment", choices=["standard", "any-orientation"], help="instead of --flip")
    add("--keyed", type=int, default=10, help="steps of torchvision that sample by our rule")
    add("--boxes", default="float32", choices=["float32", "autocast"], help="torchvision's, where it computes in bf16")
    add("--run", help="what the record calls it; by this name lab/figures.py finds it")
    add("--no-amp", dest="amp", action="store_false")
    add("--autocast", action="store_true", help="torchvision in bf16 on a CPU, too, where ours is in float32")
    add("--train", default="./train")
    add("--cocoeval", default="build/cocoeval")
    add("flags", nargs="*", help="further flags of ./train, after --")
    a = parser.parse_args()
    if a.augment:
        a.keyed = 0
        np.random.seed(a.seed)
    a.amp &= a.device == "cuda" or a.autocast
    os.makedirs(a.out, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    train, categories = load_split(a.data, a.train_split, a.limit, empty=False)
    val, _ = load_split(a.data, a.val_split, a.limit if a.val_split == a.train_split else 0, empty=True)
    torch.manual_seed(a.seed)
    config = dict(MODELS[a.model], size=a.size, max_size=a.max_size, norm=a.norm, trainable_layers=5,
                  classes=len(categories) + 1)
    model = build(config)
    weights = f"{a.out}/init.safetensors"
    write_checkpoint(model, config, categories, weights)

    canvas, steps, ours = train_ours(a, weights)
    pad_to(model, canvas)
    boxes_in_float32(model, a.boxes == "float32")
    rate, seconds = train_torchvision(model, a, on_device(train, a.device), [i for i, *_ in train], [s["lr"] for s in steps],
                                      f"{a.out}/torchvision.jsonl")
    detect_torchvision(model, a, val, categories, f"{a.out}/torchvision.json")
    boxes_in_float32(model, False)
    detect_torchvision(model, a, val, categories, f"{a.out}/autocast_boxes.json")

    with open(f"{a.out}/torchvision.jsonl") as f:
        theirs = [json.loads(line) for line in f]
    for mine, other in list(zip(steps, theirs))[:min(a.keyed, 10)]:
        print(f"step {mine['step']:3d}  ours / torchvision: " +
              "  ".join(f"{k} {mine[k]:.4f} / {other[k]:.4f}" for k in ["loss", *LOSSES]))
    truth = read_annotations(a.data, a.val_split)
    ids = {i for i, *_ in val}
    truth["images"] = [i for i in truth["images"] if i["id"] in ids]
    truth["annotations"] = [t for t in truth["annotations"] if t["image_id"] in ids]
    with open(f"{a.out}/truth.json", "w") as f:
        json.dump(truth, f)
    peer = score(a, f"{a.out}/truth.json", f"{a.out}/torchvision.json")
    cast = score(a, f"{a.out}/truth.json", f"{a.out}/autocast_boxes.json")
    first = min(WARMUP, len(steps) - 2)  # as torchvision is timed
    img_s = (len(steps) - 1 - first) * a.batch / (steps[-1]["seconds"] - steps[first]["seconds"])
    name = os.path.basename(a.data.rstrip("/")) + (", tiny" if a.model == "tiny" else "")
    result = dict(run=a.run or f"{name}, beside torchvision, seed {a.seed}", data=os.path.basename(a.data.rstrip("/")), seed=a.seed, iters=a.iters, batch=a.batch, size=a.size,
                  norm=a.norm, model=a.model, amp=a.amp, keyed=a.keyed, augment=a.augment,
                  device=torch.cuda.get_device_name() if a.device == "cuda" else "CPU", torch=torch.__version__,
                  **origin(a.device),
                  ours=dict(bbox_AP=ours["bbox_AP"], segm_AP=ours["segm_AP"], img_s=img_s,
                            seconds=a.iters * a.batch / img_s),
                  torchvision=dict(peer, img_s=rate, seconds=seconds, boxes=a.boxes),
                  torchvision_detecting_with_autocast_boxes=cast)
    with open(f"{a.out}/result.json", "w") as f:
        json.dump(result, f)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
