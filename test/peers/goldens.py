"""Writes test/goldens/*.safetensors: what torchvision 0.26 computes in double for small models on small images.
test/engine/test_engine_goldens.c holds the engine against them. Only this script needs torch; it was run as

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch==2.11.0 torchvision==0.26.0 numpy pycocotools safetensors
    /tmp/venv/bin/python test/peers/goldens.py

and for r18-boxes alone, later, with that name as its argument.

Weights and images are not stored: both sides draw them from one hash (base/rng.h) by the rules below, `weight` and
`image_bytes`. Batches are those of ./train: order, flips, and which anchors and RoIs are sampled follow from the seed
(torchvision_run.py gives torchvision that rule). The metadata of a file hold the model's configuration as a checkpoint
does, the seed, the factors of the output layers, and the annotations as a COCO file.

Cases: ResNet-18 and ResNet-50, frozen batch norm, two images of different shape, with
  objects   three objects and two;
  empty     no object at all;
  crowd     two objects and a crowd over half of the image; no object;
and, for ResNet-18 as a Faster R-CNN, which has no masks,
  boxes     three objects and two.
Every object overlaps anchors, and no image holds crowds only: docs/design.md says what is deliberately different there.

Tensors: train/* of the first step's forward walk, grad/* of its gradients, steps/* and after/* of ten steps of SGD,
infer/* of inference; in torch's shapes and order. Whole numbers are stored as they are. A tensor of real numbers is
stored as [elements, L2 norm, Σ ± element, noise in L2, noise of an element, entries …], signs and, where not all
of them are stored, positions of the entries drawn by the hash of its name.

Noise is what may separate two correct computations in float: how far the tensor moves, at most over DRAWS draws, when
every weight is multiplied by 1 ± WEIGHT_NOISE and every pixel by 1 ± NOISE, and a rounding of the result by NOISE. A
dot product of n terms in float, summed in any order, is an exact one whose terms are off by about √n · 2^-24; n reaches
1000 here, which makes 2^-19: WEIGHT_NOISE. Positions on an axis of 96 pixels are off by 96 · 2^-24, and so are the
places between pixels where an image is interpolated, and boxes: NOISE. A ReLU next to its zero, whose gradient jumps,
falls on either side in half of the draws; eight draws miss few such jumps. No decision (proposals and their order, what
is sampled, matched and detected) changes in any step of any draw; a seed with which one does is passed over. So float
must decide alike, too.
"""
import contextlib
import itertools
import json
import math
import os
import sys

import numpy as np
import torch
import torchvision
from pycocotools.coco import COCO
from safetensors.numpy import save_file

from torchvision_dump import RNG_FLIP, RNG_ORDER, rng_key, rng_u32, rng_uniform
from torchvision_model import R50, build, f32, metadata, output_gains
from torchvision_run import LOSSES, Peer, targets_of

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "goldens")
# roi_high at 0.3: else hardly any proposal of an untrained network is an object.
CONFIG = dict(R50, size=64, max_size=96, width=8, fpn_channels=16, anchor_size=[8, 16, 32, 64, 128], rpn_batch=32,
              rpn_pre_nms_train=32, rpn_pre_nms_test=24, rpn_post_nms_train=32, rpn_post_nms_test=12, box_dim=24,
              roi_high=0.3, roi_low=0.3, roi_batch=24, roi_canonical_size=56, mask_dim=8, mask_layers=2,
              detections=16, classes=4)
CANVAS = 96, 96
SIZES = {1: (50, 70), 2: (80, 60)}  # height, width of the images by id: resized to 64 × 89 and 85 × 64
OBJECTS = {"objects": (3, 2), "empty": (0, 0), "crowd": (2, 0), "boxes": (3, 2)}
CATEGORIES = [{"id": 3, "name": "a"}, {"id": 7, "name": "b"}, {"id": 12, "name": "c"}]
STEPS, SGD, CLIP = 10, dict(lr=f32(0.02), momentum=f32(0.9), weight_decay=f32(1e-4)), 1.0
NOISE, WEIGHT_NOISE, DRAWS = 2.0 ** -17, 2.0 ** -19, 8
ENTRIES, PARAMETER_ENTRIES = 128, 12  # at most, of a tensor

# ---- weights and images --------------------------------------------------------------------------------------------

def named_key(key, name):
    for character in name.encode():
        key = rng_key(key, character)
    return key


def uniform(key, n):
    return rng_uniform(key, np.arange(n, dtype=np.uint64))


def weight(name, shape, key, gain):
    """Filters within ±gain · √(3 / fan in), norm scales and variances in 0.5 … 1, all else within ±0.2; float."""
    u = uniform(named_key(key, name), math.prod(shape))
    if len(shape) > 1:
        values = (2 * u - 1) * (gain * math.sqrt(3 / math.prod(shape[1:])))
    elif name.endswith(("weight", "running_var")):
        values = 0.5 + 0.5 * u
    else:
        values = 0.4 * u - 0.2
    return torch.from_numpy(values.astype(np.float32)).double().reshape(shape)


def image_bytes(i, key):
    """[h, w, 3]: tiles of 8 × 8 pixels, and grain."""
    h, w = SIZES[i]
    key = named_key(key, f"image {i}")
    y, x, c = (v.astype(np.uint64) for v in np.indices((h, w, 3)))
    width, three, tile = np.uint64(w), np.uint64(3), np.uint64(8)
    tiles = rng_u32(key, (y // tile * width + x // tile) * three + c) % np.uint64(192)
    return tiles + rng_u32(rng_key(key, 1), (y * width + x) * three + c) % np.uint64(64)


def annotate(objects, crowd, key):
    """A COCO file: objects are quadrangles; a crowd is the left half of image 1."""
    annotations = []

    def add(image, category, bbox, segmentation, iscrowd=0):
        annotations.append({"id": len(annotations) + 1, "image_id": image, "category_id": category, "bbox": bbox,
                            "segmentation": segmentation, "area": bbox[2] * bbox[3], "iscrowd": iscrowd})
    for i, n in zip(SIZES, objects):
        draws = map(int, rng_u32(named_key(key, f"objects {i}"), np.arange(100, dtype=np.uint64)))

        def pick(low, high):
            return low + next(draws) % (high - low + 1)
        for _ in range(n):
            h, w = (pick(14, side // 2) for side in SIZES[i])
            y, x = (pick(0, side - own) for side, own in zip(SIZES[i], (h, w)))
            top, right, bottom, left = pick(1, w - 1), pick(1, h - 1), pick(1, w - 1), pick(1, h - 1)
            corners = [x + top, y, x + w, y + right, x + bottom, y + h, x, y + left]
            add(i, CATEGORIES[pick(0, 2)]["id"], [x, y, w, h], [corners])
    if crowd:
        h, w = SIZES[1]
        add(1, 3, [0, 0, w // 2, h], {"size": [h, w], "counts": [0, h * (w // 2), h * (w - w // 2)]}, 1)
    return {"images": [{"id": i, "file_name": f"{i}.png", "height": h, "width": w} for i, (h, w) in SIZES.items()],
            "categories": CATEGORIES, "annotations": annotations}


class Inputs:
    """The batch of a step, as data/batches/sampler.c and data/batches/loader.c make it; step None: of inference."""
    canvas = CANVAS

    def __init__(self, seed, step=None, noise=None):
        order, self.info, self.seed, self.noise = [0, 1], [], seed, noise
        if step is not None:  # two images and batches of two: each step is an epoch
            key = rng_key(rng_key(rng_key(seed, RNG_ORDER), step), 0)
            order.sort(key=lambda item: int(rng_key(key, item)))
        for i in (list(SIZES)[item] for item in order):
            key = rng_key(rng_key(seed, step or 0), i)
            flip = step is not None and float(rng_uniform(rng_key(key, RNG_FLIP), 0)) < 0.5
            self.info.append(dict(id=i, h=SIZES[i][0], w=SIZES[i][1], flip=flip, key=key))

    def keys(self):
        return [i["key"] for i in self.info]

    def image(self, i, dtype):
        rgb = torch.from_numpy(image_bytes(self.info[i]["id"], self.seed).astype(np.int64)).permute(2, 0, 1).to(dtype)
        return (self.noise(rgb, NOISE) if self.noise else rgb) / 255


# ---- what is computed ----------------------------------------------------------------------------------------------

def detached(values):
    return {k: v.detach() for k, v in values.items()}


def features(seen):
    values = {"image": seen["transform"][0].tensors}
    values |= {f"c{i}": t for i, t in enumerate(seen["body"].values())}
    values |= {f"p{i}": t for i, t in enumerate(seen["fpn"].values())}
    for name, tensors in zip(["logits", "deltas"], seen["rpn_head"]):
        values |= {f"{name}{i}": t for i, t in enumerate(tensors)}
    return values | {f"proposals.{i}": boxes for i, boxes in enumerate(seen["rpn"][0])}


def rpn_sample(peer):
    """By image: the sampled anchors, objects first, the number of objects, and their regression targets."""
    values = {}
    for i, (positive, negative) in enumerate(peer.rpn_sampler.chosen):
        positive = positive.sort().values
        values[f"rpn.index.{i}"] = torch.cat([positive, negative.sort().values])
        values[f"rpn.positives.{i}"] = torch.tensor([len(positive)])
        values[f"rpn.delta.{i}"] = peer.seen["rpn_deltas"][i][positive]
    return values


def roi_values(peer):
    labels, boxes, deltas, order = peer.rois()
    logits, box_deltas = peer.seen["box"]
    image = torch.repeat_interleave(torch.arange(2), torch.tensor([len(b) for b in peer.seen["samples"][0]]))
    values = {"rois.image": image, "rois.label": labels, "rois.boxes": boxes, "rois.delta": deltas[labels > 0],
              "class_logits": logits[order], "box_deltas": box_deltas[order]}
    if "mask" in peer.seen:
        values |= {"mask_logits": peer.seen["mask"], "mask_target": torch.cat(peer.seen["mask_targets"])[:, None]}
    return values


def training(model, coco, seed, noise):
    """Ten steps. `decided` are the decisions of every step."""
    peer = Peer(model, torch.float64)
    trained = {k: p for k, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.SGD(trained.values(), **SGD)
    values, decided = {}, []
    for step in range(STEPS):
        inputs = Inputs(seed, step, noise)
        optimizer.zero_grad()
        losses = peer.run(inputs, targets_of(coco, inputs.info))
        sum(losses.values()).backward()
        decided.append(detached({**features(peer.seen), **rpn_sample(peer), **roi_values(peer)}))
        if step == 0:
            values |= {"train/" + k: v for k, v in decided[0].items()}
            values |= {"grad/" + k: p.grad.clone() for k, p in trained.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(trained.values()), CLIP)
        values |= {f"steps/loss.{step}": torch.stack([losses[name] for name in LOSSES if name in losses]),
                   f"steps/grad_norm.{step}": norm.reshape(1)}
        optimizer.step()
    return detached(values | {"after/" + k: p for k, p in trained.items()}), decided


def inference(model, seed, noise):
    peer, detections = Peer(model, torch.float64), []  # of each image, in resized pixels, before masks are pasted
    model.roi_heads.register_forward_hook(lambda module, inputs, output: detections.extend(map(dict, output[0])))
    with torch.no_grad():
        pasted = peer.run(Inputs(seed, noise=noise))
    values = {k: v for k, v in features(peer.seen).items() if k.startswith("proposals")}
    values |= dict(zip(["class_logits", "box_deltas"], peer.seen["box"]))
    for i, found in enumerate(detections):
        values |= {f"detections.{name}.{i}": found[name] for name in ["labels", "boxes", "scores"]}
    masks = {}
    if "mask" in peer.seen:
        values["mask_probs"] = torch.cat([found["masks"] for found in detections])
        masks = {f"infer/pasted.{i}": p["masks"][:, 0] > 0.5 for i, p in enumerate(pasted)}
    return {"infer/" + k: v for k, v in values.items()}, masks


def drawn_model(c, seed, gains, noise=None):
    model = build(c).double()
    state = {k: weight(k, tuple(t.shape), seed, gains.get(k, 1)) for k, t in model.state_dict().items()}
    model.load_state_dict({k: noise(t, WEIGHT_NOISE) for k, t in state.items()} if noise else state)
    return model


def compute(c, seed, gains, coco, noise=None):
    """All values of a case, the decisions behind them, and the pasted masks."""
    values, decided = training(drawn_model(c, seed, gains, noise), coco, seed, noise)
    found, masks = inference(drawn_model(c, seed, gains, noise), seed, noise)
    return values | found, decided + [found], masks


# ---- files ---------------------------------------------------------------------------------------------------------

def same_decisions(ours, theirs):
    """Whole numbers are equal, and no box is where another one was."""
    return all(b.shape == ours[k].shape and
               (b.equal(ours[k]) if not b.is_floating_point() else
                not ("boxes" in k or "proposals" in k) or b.numel() == 0 or (b - ours[k]).abs().max() < 0.1)
               for k, b in theirs.items())


def describe(name, t, noise):
    """What is stored of a tensor; noise: how far it moved in each draw."""
    if not t.is_floating_point():
        return t.numpy().astype(np.int32)
    t, n, key = t.numpy().flatten(), t.numel(), named_key(0, name)
    apart = [np.abs(d.numpy().flatten()) + NOISE * np.abs(t) for d in noise]
    most = PARAMETER_ENTRIES if name.startswith(("grad/", "after/")) else ENTRIES
    signs = 1 - 2 * (rng_u32(rng_key(key, 1), np.arange(n, dtype=np.uint64)) % np.uint64(2)).astype(np.float64)
    where = np.arange(n) if n <= most else rng_u32(key, np.arange(most, dtype=np.uint64)) % np.uint64(n)
    figures = [n, np.linalg.norm(t), math.fsum(signs * t), max(map(np.linalg.norm, apart)),
               max(a.max(initial=0) for a in apart)]
    return np.concatenate([figures, t[where]])


def golden(case, depth, seed):
    """The tensors and metadata of a file; None when the seed is of no use."""
    if sum(i["flip"] for i in Inputs(seed, 0).info) != 1:  # one image mirrored, one not
        return None
    c = dict(CONFIG, depth=depth, masks=case != "boxes")
    coco = COCO()
    coco.dataset = annotate(OBJECTS[case], case == "crowd", seed)
    coco.createIndex()
    gains = output_gains(drawn_model(c, seed, {}), [Inputs(seed).image(i, torch.float64) for i in range(2)])
    gains = {name + ".weight": float(f"{gain:.2g}") for name, gain in gains.items()}
    values, decided, masks = compute(c, seed, gains, coco)
    if case != "empty" and not values["train/rois.delta"].any():  # each object is learnt from its own box alone
        return None
    moved = []
    for draw in range(DRAWS):
        random = torch.Generator().manual_seed(draw)

        def noise(t, most):
            return t * (1 + most * (2 * torch.rand(t.shape, dtype=t.dtype, generator=random) - 1))
        noisy, noisy_decided, _ = compute(c, seed, gains, coco, noise)
        if not all(map(same_decisions, decided, noisy_decided)):
            return None
        moved.append({k: noisy[k] - v for k, v in values.items()})
    tensors = {k: describe(k, v, [m[k] for m in moved]) for k, v in values.items()}
    tensors |= {k: np.packbits(m.numpy().reshape(-1), bitorder="little") for k, m in masks.items()}
    meta = metadata(c, CATEGORIES) | {
        "seed": str(seed), "annotations": json.dumps(coco.dataset),
        "made by": f"test/peers/goldens.py, torch {torch.__version__}, torchvision {torchvision.__version__}"}
    return tensors, meta | {"gain." + name: str(gain) for name, gain in gains.items()}


def main():
    torch.set_num_threads(1)  # the tensors are small
    os.makedirs(FOLDER, exist_ok=True)
    seeds = itertools.count(1)
    for depth, case in [*itertools.product([18, 50], ["objects", "empty", "crowd"]), (18, "boxes")]:
        if sys.argv[1:] and f"r{depth}-{case}" not in sys.argv[1:]:
            continue
        with contextlib.redirect_stdout(None):  # COCO's
            seed, (tensors, meta) = next((s, g) for s in seeds if (g := golden(case, depth, s)))
        path = os.path.join(FOLDER, f"r{depth}-{case}.safetensors")
        save_file(tensors, path, meta)
        print(f"{path}: seed {seed}, {len(tensors)} tensors, {os.path.getsize(path)} bytes", flush=True)


if __name__ == "__main__":
    main()
