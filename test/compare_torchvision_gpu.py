"""Holds the engine against torchvision 0.26's MaskRCNN at full size on a GPU: every tensor of a training step by itself,
forward and backward, on inputs that are torchvision's own; then detections end to end.

    make && python3 test/compare_torchvision_gpu.py [--seed N] [--size 800x1344] [--batch 2] [--images FILE …]
                                                    [--weights model.safetensors] [--out records.jsonl]

It needs torch, torchvision and safetensors, and build/dump. Exits 1 when anything fails.

Values. torchvision computes a whole step in float32 (for bf16: under autocast). Its activations, and the gradients that
reach them, are fed to each unit of torchvision's model (test/torchvision_units.py) and, through build/dump --feed, to
each node of ours, so that no error is handed on. The unit in float64 is the truth; a tensor passes when
    |ours - truth| <= 2 · max(|torchvision - truth|, |stored - truth|)         (L2 norms over the tensor)
where torchvision's is its error in the same precision and `stored` is the truth rounded to the type in which our engine
stores the tensor: float32, or bfloat16 for activations and their gradients under --amp. Nobody who stores that type can
be closer. (autocast keeps some of these in float32, the residual sums behind a frozen norm for instance.) In bf16 all
fed values are bfloat16 numbers, so that all three see the same. 4 · 2^-24 is allowed in any case: a product, a sum, what
is added to it and a store may be off by half an ulp each, in float32. Where several nodes add to a gradient, it is
compared after each of them.

Indices. From fed logits and deltas, the best anchors of each level, what suppression keeps, the merged proposals, the
anchors and RoIs that are matched and sampled must be the same ones. Scores that are equal bit by bit have no order, so
within a run of equal scores the set counts, and torchvision's topk is replaced by a stable sort. Suppression is
torchvision.ops.nms level by level, without batched_nms' coordinate offsets. torchvision's sampler draws by our keyed rule
(nn/rng.h), since randperm's numbers are nobody else's.

End to end. Both detect in float32, TF32 off, on the same decoded bytes and canvas with the same weights. A detection is
matched by one of the same label with its box within 0.05 pixels, its score within 1e-3 and mask IoU >= 0.99; 99.5 % must
be, counted over the larger side. Worth running with trained --weights: random ones score everything alike.
"""
import argparse
import collections
import copy
import glob
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
import torchvision
from PIL import Image
from safetensors.torch import save_file
from torchvision.models.detection import roi_heads
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import concat_box_prediction_layers

from torchvision_dump import RNG_ROI, RNG_RPN, Dump, KeyedSampler
from torchvision_model import R50, build, read_checkpoint, spread_outputs, write_checkpoint
from torchvision_units import Unit, backbone_units, box_units, mask_units, pyramid_units, rpn_units

LOSSES = ["loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg", "loss_mask"]
FACTOR, FLOOR = 2, 4 * 2.0 ** -24
BOX_OUTPUTS = ["roi_heads.box_predictor.cls_score", "roi_heads.box_predictor.bbox_pred"]
MASK_OUTPUT = "roi_heads.mask_predictor.mask_fcn_logits"


# ---- figures ------------------------------------------------------------------------------------------------------

class Report:
    """One record for each tensor; a line for the worst of each stage and for whatever fails."""

    def __init__(self, path):
        self.file, self.records = open(path, "w") if path else None, []

    def add(self, **record):
        self.records.append(record)
        if self.file:
            print(json.dumps(record), file=self.file, flush=True)
        if not record["ok"]:
            print("  FAILED", " ".join(f"{k} {v}" for k, v in record.items() if k != "ok"), flush=True)

    def value(self, precision, stage, tensor, ours, theirs, truth, storage):
        truth = truth.double()
        norm = truth.norm().item() or 1.0

        def error(t):
            return (t.double() - truth).norm().item() / norm
        if ours.shape != truth.shape:
            return self.add(precision=precision, stage=stage, tensor=tensor, ok=False, ours=list(ours.shape),
                            torchvision=list(truth.shape))
        mine, other, stored = error(ours), error(theirs), error(truth.to(storage))
        allowed = max(other, stored, FLOOR / FACTOR)
        self.add(precision=precision, stage=stage, tensor=tensor, ours=mine, torchvision=other, stored=stored,
                 ratio=mine / allowed, norm=norm, ok=mine <= FACTOR * allowed)

    def same(self, precision, stage, tensor, differ, of):
        self.add(precision=precision, stage=stage, tensor=tensor, differ=int(differ), of=int(of), ok=not differ)

    def table(self):
        groups = collections.defaultdict(list)
        for r in self.records:
            kind = "index" if "differ" in r else "value"
            groups[r["precision"], r["stage"], kind].append(r)
        print(f"{'':5s} {'stage':14s} {'tensors':>7s} {'ours':>9s} {'torchv.':>9s} {'ratio':>6s}  worst tensor")
        for (precision, stage, kind), rows in groups.items():
            head = f"{precision:5s} {stage:14s} {len(rows):7d}"
            if kind == "index":
                print(head, f"{sum(r['differ'] for r in rows):9d} of {sum(r['of'] for r in rows)} indices differ")
                continue
            worst = max(rows, key=lambda r: r.get("ratio", float("inf")))
            print(head, f"{worst['ours']:9.2e} {worst['torchvision']:9.2e} {worst['ratio']:6.2f}  {worst['tensor']}"
                  if "ratio" in worst else f"{worst['tensor']}: {worst['ours']} against {worst['torchvision']}",
                  "" if all(r["ok"] for r in rows) else "  FAILED")


# ---- what both sides see ------------------------------------------------------------------------------------------

def lies_as(width, height, canvas):
    return (width >= height) == (canvas[1] >= canvas[0])


def pick_images(args, classes, n):
    """Images with their objects, as COCO's file would list them: n of the data set, or the loose files. Objects are made
    up where there are none of the model's classes."""
    rng = random.Random(args.seed)
    if args.images:
        images, anns, categories = [], [], []
        for i, path in enumerate(args.images):
            width, height = Image.open(path).size
            if not lies_as(width, height, args.canvas):
                sys.exit(f"{path}: {width} x {height} does not fit into --size {args.size} (height x width)")
            images.append(dict(id=i + 1, width=width, height=height, file_name=os.path.realpath(path)))
    else:
        listing, = glob.glob(os.path.join(args.data, "annotations", f"instances_{args.split}*.json"))
        folder = os.path.join(args.data, os.path.basename(listing)[len("instances_"):-len(".json")])
        with open(listing) as f:
            coco = json.load(f)
        objects = collections.Counter(a["image_id"] for a in coco["annotations"] if not a["iscrowd"])
        images = [i for i in coco["images"] if objects[i["id"]] >= 3 and lies_as(i["width"], i["height"], args.canvas)]
        if len(images) < n:
            sys.exit(f"{listing}: {n} images are wanted, and {len(images)} lie as --size {args.size} (height x width)")
        images = [dict(i, file_name=os.path.realpath(os.path.join(folder, i["file_name"]))) for i in rng.sample(images, n)]
        chosen = {i["id"] for i in images}
        anns, categories = [a for a in coco["annotations"] if a["image_id"] in chosen], coco["categories"]
    if len(categories) != classes - 1:
        categories = [dict(id=i, name=str(i)) for i in range(1, classes)]
        anns = [made_up(rng, i, classes) for i in images for _ in range(rng.randint(3, 12))]
        for k, a in enumerate(anns):
            a["id"] = k + 1
    return images, anns, categories


def made_up(rng, image, classes):
    """A triangle of a random class."""
    width, height = image["width"], image["height"]
    w, h = rng.uniform(0.05, 0.6) * width, rng.uniform(0.05, 0.6) * height
    x, y = rng.uniform(0, width - w), rng.uniform(0, height - h)
    return dict(image_id=image["id"], category_id=rng.randint(1, classes - 1), iscrowd=0, area=w * h / 2,
                bbox=[x, y, w, h], segmentation=[[x, y + h, x + w / 2, y, x + w, y + h]])


def write_data(folder, images, anns, categories):
    os.makedirs(os.path.join(folder, "annotations"))
    os.makedirs(os.path.join(folder, "pick"))
    for i in images:
        name = f"{i['id']}{os.path.splitext(i['file_name'])[1]}"
        os.symlink(i["file_name"], os.path.join(folder, "pick", name))
        i["file_name"] = name
    with open(os.path.join(folder, "annotations", "instances_pick.json"), "w") as f:
        json.dump({"images": images, "annotations": anns, "categories": categories}, f)


def run_dump(args, folder, name, batch, *options):
    out = os.path.join(folder, name)
    command = [args.dump, "--weights", os.path.join(folder, "weights"), "--data", os.path.join(folder, "data"),
               "--split", "pick", "--out", out, "--batch", str(batch), "--seed", str(args.seed),
               "--height", str(args.canvas[0]), "--width", str(args.canvas[1]), *options]
    if subprocess.run(command).returncode:
        sys.exit(f"failed: {' '.join(command)}")
    return Dump(out)


def nhwc(t):
    """A dump's layout of an activation."""
    return t.permute(0, 2, 3, 1) if t.dim() == 4 else t[:, None, None]


def prepare_images(model, dump, device, dtype):
    """torchvision's resizing and normalising, padded to our canvas: [n, 3, h, w]."""
    out = torch.zeros(len(dump.info), 3, *dump.canvas, dtype=dtype, device=device)
    for i, canvas in enumerate(out):
        image, _ = model.transform.resize(model.transform.normalize(dump.image(i, dtype).to(device)), None)
        canvas[:, :image.shape[1], :image.shape[2]] = image
    return out


def targets_of(dump, device):
    capacity, targets = len(dump["truth.label"]) // len(dump.info), []
    for i, (s, n) in enumerate(zip(dump.info, dump["truth.count"].tolist())):
        rows = slice(i * capacity, i * capacity + n)
        masks = F.interpolate(dump.masks(i)[:, None].float(), size=(s["rh"], s["rw"]))[:, 0]
        targets.append({"boxes": dump.rows("truth.box")[rows].to(device), "masks": masks.to(torch.uint8).to(device),
                        "labels": dump["truth.label"][rows].long().to(device)})
    return targets


# ---- indices: torchvision's fp32 box arithmetic on fed logits and deltas ------------------------------------------

class Proposals:
    """What torchvision makes of logits and deltas, step by step: (box, score, index, and box and score in double) of the
    best anchors of each level, of those that suppression keeps, and of an image's proposals."""

    def __init__(self, model, values, canvas, sizes):
        rpn, device = model.rpn, values["logits0"].device
        logits = [values[f"logits{l}"].detach().float() for l in range(5)]
        deltas = [values[f"deltas{l}"].detach().float() for l in range(5)]
        images = ImageList(torch.empty(len(sizes), 3, *canvas, device=device), sizes)
        self.anchors = rpn.anchor_generator(images, [values[f"p{l}"].detach().float() for l in range(5)])
        counts = [l[0].numel() for l in logits]
        scores, flat = concat_box_prediction_layers(logits, deltas)
        boxes = rpn.box_coder.decode(flat, self.anchors).view(len(sizes), -1, 4)
        exact = rpn.box_coder.decode(flat.double(), [a.double() for a in self.anchors]).view(len(sizes), -1, 4)
        scores, firsts = scores.view(len(sizes), -1), [sum(counts[:l]) for l in range(5)]
        pre, post = rpn.pre_nms_top_n(), rpn.post_nms_top_n()
        self.steps = {"rpn_top": ([], pre), "rpn_kept": ([], min(pre, post)), "proposals": ([], post)}
        top, kept, merged = (groups for groups, _ in self.steps.values())
        self.topk_differs = 0
        for i, size in enumerate(sizes):
            for first, count in zip(firsts, counts):
                level = scores[i, first:first + count]
                order = level.sort(descending=True, stable=True).indices[:pre]
                self.topk_differs += (level[order] != level.topk(len(order)).values).sum().item()
                box, wide = (torchvision.ops.clip_boxes_to_image(b[i, first + order], size) for b in (boxes, exact))
                score = level[order].sigmoid()
                rows = box, score, first + order, wide, level[order].double().sigmoid()
                keep = torchvision.ops.remove_small_boxes(box, rpn.min_size)
                keep = keep[score[keep] >= rpn.score_thresh]
                top.append(tuple(t[keep] for t in rows))
                keep = torchvision.ops.nms(top[-1][0], top[-1][1], rpn.nms_thresh)[:min(pre, post)]
                kept.append(tuple(t[keep] for t in top[-1]))
            rows = tuple(torch.cat(t) for t in zip(*kept[-len(counts):]))
            rows = tuple(t[rows[2].argsort()] for t in rows)
            order = rows[1].sort(descending=True, stable=True).indices[:post]
            merged.append(tuple(t[order] for t in rows))

    def feed(self):
        """As dump's Boxes."""
        out = {}
        for name, (groups, capacity) in self.steps.items():
            box, score = torch.zeros(len(groups), capacity, 4), torch.zeros(len(groups), capacity)
            index = torch.zeros(len(groups), capacity, dtype=torch.int32)
            for g, rows in enumerate(groups):
                for t, r in zip((box, score, index), rows):
                    t[g, :len(r)] = r.cpu()
            out |= {name + ".box": box, name + ".score": score, name + ".index": index,
                    name + ".count": torch.tensor([len(g[1]) for g in groups], dtype=torch.int32)}
        return out

    def check(self, report, precision, dump):
        report.same(precision, "rpn top-k", "torchvision's topk and a stable sort", self.topk_differs, 1)
        for (name, (groups, _)), stage in zip(self.steps.items(), ("rpn top-k", "nms", "merge")):
            ours = [dump.group(name, g) for g in range(len(groups))]
            same = [o[2].equal(g[2].cpu().int()) for o, g in zip(ours, groups)]
            for g, rows in enumerate(groups):
                n = min(len(ours[g][2]), len(rows[2]))
                differ = (ours[g][2][:n] != rows[2][:n].cpu()).sum().item() + max(len(ours[g][2]), len(rows[2])) - n
                report.same(precision, stage, f"{name} {g}", differ, len(rows[2]))
            if name == "rpn_top" and all(same):
                for k, what in enumerate(("box", "score")):
                    report.value(precision, "rpn decoding", f"{name}.{what}", torch.cat([o[k] for o in ours]),
                                 *(torch.cat([g[j] for g in groups]).cpu() for j in (k, k + 3)), torch.float32)


# ---- a whole step of torchvision: the inputs of every stage ---------------------------------------------------------

class Step:
    """One training step, unit by unit, with every activation and the gradient that reaches it."""

    def __init__(self, model, c, dump, device, amp):
        self.c, self.dump = c, dump
        self.sizes = [(s["rh"], s["rw"]) for s in dump.info]
        self.targets = targets_of(dump, device)
        self.rpn_sampler = KeyedSampler(model.rpn.fg_bg_sampler, dump.keys(), RNG_RPN)
        model.rpn.fg_bg_sampler = self.rpn_sampler
        model.roi_heads.fg_bg_sampler = KeyedSampler(model.roi_heads.fg_bg_sampler, dump.keys(), RNG_ROI)
        values, losses = {"image": prepare_images(model, dump, device, torch.float32)}, []
        set_tf32(False)
        with torch.autocast(device, torch.bfloat16, enabled=amp):
            self.run(self.first_units(model), values, losses)
            with torch.autocast(device, enabled=False):
                self.proposals = Proposals(model, values, tuple(dump.canvas), self.sizes)
                self.match_anchors(model)
                self.sample_rois(model)
            self.run(self.second_units(model), values, losses)
        sum(losses).backward()
        model.zero_grad()
        relu = {u.name for u in self.units(model) if u.relu}
        self.types = {k: v.dtype for k, v in values.items()}
        self.grads = {k: v.grad * (v.detach() > 0) if k in relu else v.grad for k, v in values.items()
                      if v.grad is not None}
        self.values = {k: v.detach() for k, v in values.items()}
        if amp:  # numbers that both sides can hold
            self.values = {k: v.bfloat16().to(v.dtype) for k, v in self.values.items()}
            self.grads = {k: v.bfloat16().to(v.dtype) for k, v in self.grads.items()}

    def units(self, model):
        return self.first_units(model) + self.second_units(model)

    def first_units(self, model):
        return backbone_units(model, self.c) + pyramid_units(model) + rpn_units(model)

    def second_units(self, model):
        real = next(model.parameters()).dtype

        def rpn_loss(*x):
            return model.rpn.compute_loss(*concat_box_prediction_layers(list(x[:5]), list(x[5:])),
                                          [l.to(real) for l in self.anchor_labels],
                                          [d.to(real) for d in self.anchor_deltas])

        def box_loss(logits, deltas):
            return roi_heads.fastrcnn_loss(logits, deltas, self.roi_labels, [d.to(real) for d in self.roi_deltas])

        def mask_loss(logits):
            return (roi_heads.maskrcnn_loss(logits, [b.to(real) for b in self.objects],
                                            [t["masks"] for t in self.targets], [t["labels"] for t in self.targets],
                                            self.object_matched),)
        maps = [f"{kind}{l}" for kind in ("logits", "deltas") for l in range(5)]
        return ([Unit("rpn_loss", "rpn_loss", "rpn loss", maps, rpn_loss, [], losses=LOSSES[:2])] +
                box_units(model, self.rois) +
                [Unit("box_loss", "box_loss", "box loss", BOX_OUTPUTS, box_loss, [], losses=LOSSES[2:4])] +
                mask_units(model, self.objects) +
                [Unit("mask_loss", "mask_loss", "mask loss", [MASK_OUTPUT], mask_loss, [], losses=LOSSES[4:])])

    def run(self, units, values, losses):
        for u in units:
            y = u.run(*(values[i] for i in u.inputs))
            if u.losses:
                losses.extend(y)
                continue
            values[u.name] = F.relu(y) if u.relu else y
            if y.requires_grad:
                values[u.name].retain_grad()

    def match_anchors(self, model):
        anchors = self.proposals.anchors
        self.anchor_labels, self.anchor_boxes = model.rpn.assign_targets_to_anchors(anchors, self.targets)
        self.anchor_deltas = model.rpn.box_coder.encode(self.anchor_boxes, anchors)

    def sample_rois(self, model):
        """In our order: the objects of each image first."""
        proposals = [rows[0] for rows in self.proposals.steps["proposals"][0]]
        boxes, matched, labels, deltas = model.roi_heads.select_training_samples(proposals, self.targets)
        order = [torch.argsort((l == 0).int(), stable=True) for l in labels]
        self.rois, matched, self.roi_labels, self.roi_deltas = (
            [t[o] for t, o in zip(ts, order)] for ts in (boxes, matched, labels, deltas))
        self.objects = [b[l > 0] for b, l in zip(self.rois, self.roi_labels)]
        self.object_matched = [m[l > 0] for m, l in zip(matched, self.roi_labels)]

    def mask_targets(self, real):
        size = self.values[MASK_OUTPUT].shape[-1]
        return torch.cat([roi_heads.project_masks_on_boxes(t["masks"], b.to(real), m, size)
                          for t, b, m in zip(self.targets, self.objects, self.object_matched)])[:, None]

    def feed(self, storage):
        """What dump is fed; activations and their gradients in the type in which it stores them."""
        rows = {"rois.box": torch.cat(self.rois), "rois.delta": torch.cat(self.roi_deltas),
                "objects.box": torch.cat(self.objects), "mask_target": nhwc(self.mask_targets(torch.float32)),
                "rpn_targets.delta": self.sampled_deltas(self.anchor_deltas)}
        activations = self.values | {"grad." + k: v for k, v in self.grads.items()}
        out = {k: v.cpu().contiguous() for k, v in rows.items()} | self.proposals.feed()
        return out | {k: nhwc(v).to(storage).cpu().contiguous() for k, v in activations.items()}

    def sampled_deltas(self, deltas):
        """Of the sampled objects of each image, in rpn_batch rows an image."""
        out = torch.zeros(len(deltas), self.c["rpn_batch"], 4, dtype=deltas[0].dtype)
        for rows, d, (positive, _) in zip(out, deltas, self.rpn_sampler.chosen):
            rows[:len(positive)] = d[positive.sort().values].cpu()
        return out

    def check_indices(self, report, precision, dump):
        self.proposals.check(report, precision, dump)
        rows = self.c["rpn_batch"]
        for i, (positive, negative) in enumerate(self.rpn_sampler.chosen):
            n, positives = dump["rpn_targets.count"][i].item(), dump["rpn_targets.positives"][i].item()
            theirs = torch.cat([positive.sort().values, negative.sort().values]).cpu()
            ours = dump["rpn_targets.index"][i * rows:i * rows + n]
            same = n == len(theirs) and positives == len(positive)
            report.same(precision, "rpn matching", f"anchors of image {i}",
                        (ours != theirs).sum() if same else len(theirs), len(theirs))
        capacity = len(dump["truth.label"]) // len(dump.info)
        truth = torch.cat([m + i * capacity for i, m in enumerate(self.object_matched)])
        for name, theirs in (("rois.label", torch.cat(self.roi_labels)), ("objects.truth", truth),
                             ("rois.box", torch.cat(self.rois)), ("objects.box", torch.cat(self.objects))):
            ours, theirs = dump[name], theirs.cpu()
            same = ours.numel() == theirs.numel()
            report.same(precision, "roi matching", name,
                        (ours.reshape(theirs.shape) != theirs).sum() if same else len(theirs), len(theirs))

    def check_targets(self, report, precision, model, dump):
        """Regression and mask targets."""
        wide = [[t.double() for t in ts] for ts in (self.anchor_boxes, self.proposals.anchors)]
        exact = self.sampled_deltas(model.rpn.box_coder.encode(*wide)).flatten(0, 1)
        report.value(precision, "rpn matching", "rpn_targets.delta", dump.rows("rpn_targets.delta"),
                     self.sampled_deltas(self.anchor_deltas).flatten(0, 1), exact, torch.float32)
        matched = [t["boxes"][m].double() for t, m in zip(self.targets, self.object_matched)]
        exact = torch.cat(model.roi_heads.box_coder.encode(matched, [b.double() for b in self.objects])).cpu()
        objects = torch.cat(self.roi_labels).cpu() > 0
        report.value(precision, "roi matching", "rois.delta", dump.rows("rois.delta")[objects],
                     torch.cat(self.roi_deltas).cpu()[objects], exact, torch.float32)
        report.value(precision, "mask targets", "mask_target", dump["mask_target"],
                     *(nhwc(self.mask_targets(t)).cpu() for t in (torch.float32, torch.float64)), torch.float32)


# ---- stage by stage -----------------------------------------------------------------------------------------------

def set_tf32(on):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = on


class Side:
    """torchvision's units in one precision, fed; gradients add up in the order of our backward walk."""

    def __init__(self, model, step, tf32=False, amp=False):
        self.model, self.step, self.tf32, self.amp, self.units = model, step, tf32, amp, step.units(model)
        self.names = {id(p): n for n, p in model.named_parameters()}
        self.sums, self.params = {}, {}

    def leaf(self, name):
        wide = next(self.model.parameters()).dtype == torch.float64
        t = self.step.values[name].detach().to(torch.float64 if wide else self.step.types[name])
        return t.requires_grad_(name in self.step.grads)

    def run(self, k):
        """Unit k of the fed inputs; adds to the gradients of its inputs and parameters. Returns its results."""
        u = self.units[k]
        leaves = [self.leaf(i) for i in u.inputs]
        set_tf32(self.tf32)
        with torch.autocast(leaves[0].device.type, torch.bfloat16, enabled=self.amp):
            y = u.run(*leaves)
        outs = y if u.losses else (y,)
        if outs[0].requires_grad:
            dy = [torch.ones_like(o) if u.losses else self.step.grads[u.name].to(o.dtype) for o in outs]
            wanted, params = [l for l in leaves if l.requires_grad], u.parameters()
            grads = torch.autograd.grad(outs, wanted + params, dy)
            for name, g in zip([i for i, l in zip(u.inputs, leaves) if l.requires_grad], grads):
                self.sums[name] = self.sums[name] + g if name in self.sums else g
            for p, g in zip(params, grads[len(wanted):]):
                name = self.names[id(p)]
                self.params[name] = self.params[name] + g if name in self.params else g
        return [F.relu(o.detach()) if u.relu else o.detach() for o in outs]


class Comparison:
    """Ours against torchvision in some precisions, on the same fed values. sides: precision → (Side, Dump)."""

    def __init__(self, report, truth, sides, storage):
        self.report, self.truth, self.sides, self.storage = report, truth, sides, storage
        self.all = [truth] + [side for side, _ in sides.values()]
        self.relu = {u.name for u in truth.units if u.relu}
        self.consumers = collections.Counter(i for u in truth.units for i in u.inputs)

    def line(self, stage, name, results, storage, read=lambda dump, name: dump[name]):
        """results: the truth's, then every side's."""
        for (precision, (_, dump)), theirs in zip(self.sides.items(), results[1:]):
            self.report.value(precision, stage, name, read(dump, name).to(theirs.device), theirs, results[0], storage)

    def walk(self):
        """Node by node from the last to the first, as our backward walk."""
        units = self.truth.units
        for node, group in itertools.groupby(reversed(range(len(units))), lambda k: units[k].node):
            group = list(group)
            for k in group:
                self.forward(units[k], [side.run(k) for side in self.all])
            for k in group:
                for name in units[k].inputs:
                    self.gradient(units[k].stage + " bwd", name, node)
        for name in self.truth.params:
            self.line("weights", "grad." + name, [s.params[name] for s in self.all], torch.float32,
                      read=lambda dump, n: dump.param(n, self.truth.params[n[len("grad."):]]))

    def forward(self, u, results):
        if not u.losses:
            self.line(u.stage + " fwd", u.name, [nhwc(r[0]) for r in results], self.storage)
        for j, name in enumerate(u.losses):
            self.line(u.stage + " fwd", name, [r[j].reshape(1) for r in results], torch.float32,
                      lambda dump, n: dump["losses"].flatten()[LOSSES.index(n)].reshape(1))

    def gradient(self, stage, name, node):
        """Of a value, when a node has added to it; the last one applies the ReLU's mask."""
        self.consumers[name] -= 1
        if name not in self.truth.sums:
            return
        sums = [s.sums[name] for s in self.all]
        if name in self.relu and not self.consumers[name]:
            sums = [s * (self.truth.step.values[name] > 0) for s in sums]
        tensor = f"grad.{name}@{node}"
        if all(tensor in dump.names for _, dump in self.sides.values()):  # else an identity, handed on without a pass
            self.line(stage, tensor, [nhwc(s) for s in sums], self.storage)
        if not self.consumers[name]:
            for s in self.all:
                del s.sums[name]


def compare_stages(report, args, folder, model, exact, c, inputs, precisions):
    """precisions: name → options of dump; all of them see the same fed values."""
    amp = "bf16" in precisions
    storage = torch.bfloat16 if amp else torch.float32
    step = Step(model, c, inputs, args.device, amp)
    exact.rpn.fg_bg_sampler = step.rpn_sampler
    save_file(step.feed(storage), os.path.join(folder, "feed"))
    sides = {}
    for name, options in precisions.items():
        start = time.time()
        dump = run_dump(args, folder, name, args.batch, "--device", args.ours, "--train", "--all", "--feed",
                        os.path.join(folder, "feed"), *options)
        print(f"{name}: build/dump {time.time() - start:.1f} s", flush=True)
        sides[name] = Side(model, step, tf32=name == "tf32", amp=amp), dump
        step.check_indices(report, name, dump)
        step.check_targets(report, name, exact, dump)
        report.value(name, "preprocess", "image", dump["image"],
                     *(nhwc(prepare_images(m, inputs, args.device, t)).cpu() for m, t in
                       ((model, torch.float32), (exact, torch.float64))), storage)
    Comparison(report, Side(exact, step), sides, storage).walk()
    for name in list(precisions) + ["feed"]:
        os.remove(os.path.join(folder, name))


# ---- end to end ---------------------------------------------------------------------------------------------------

def detect(model, dump, device):
    def batch_images(images, size_divisible=32):
        out = images[0].new_zeros(len(images), 3, *dump.canvas)
        for canvas, image in zip(out, images):
            canvas[:, :image.shape[1], :image.shape[2]] = image
        return out
    model.transform.batch_images = batch_images
    set_tf32(False)
    model.eval()
    with torch.no_grad():
        return model([dump.image(i, torch.float32).to(device) for i in range(len(dump.info))])


def compare_detections(report, args, folder, model):
    n = len(args.images) or args.detect
    dump = run_dump(args, folder, "found", n, "--device", args.ours)
    rows, of, matched, worst = dump["found"], 0, 0, [0.0, 0.0, 1.0]
    for i, theirs in enumerate(detect(model, dump, args.device)):
        mine = torch.where(rows[:, 0] == i)[0].tolist()
        masks = {j: dump[f"mask.{j}"].bool() for j in mine}
        box, score, label = theirs["boxes"].double().cpu(), theirs["scores"].double().cpu(), theirs["labels"].tolist()
        of += max(len(mine), len(label))
        for k, mask in enumerate((theirs["masks"][:, 0] > 0.5).cpu()):
            best = None
            for j in mine:
                if rows[j, 1] != label[k]:
                    continue
                distance, gap = (rows[j, 3:] - box[k]).abs().max().item(), abs(rows[j, 2] - score[k]).item()
                if best is None or distance < best[1]:
                    best = j, distance, gap
            if best is None:
                print(f"  image {i}: torchvision alone found label {label[k]}, score {score[k]:.4f}")
                continue
            j, distance, gap = best
            both, either = (masks[j] & mask).sum().item(), (masks[j] | mask).sum().item()
            iou = both / either if either else 1.0
            ok = distance <= 0.05 and gap <= 1e-3 and iou >= 0.99
            matched += ok
            mine.remove(j)
            if ok:
                worst = [max(worst[0], distance), max(worst[1], gap), min(worst[2], iou)]
            else:
                print(f"  image {i}: label {label[k]}, score {score[k]:.4f}: box off by {distance:.4f}, score by "
                      f"{gap:.1e}, mask IoU {iou:.4f}")
        for j in mine:
            print(f"  image {i}: ours alone found label {int(rows[j, 1])}, score {rows[j, 2]:.4f}")
    share = matched / of if of else 0.0
    report.add(precision="fp32", stage="detections", tensor=f"{n} images", matched=matched, of=of, share=share,
               worst_box=worst[0], worst_score=worst[1], worst_iou=worst[2], ok=share >= 0.995)
    print(f"end to end: {matched} of {of} detections matched ({100 * share:.2f} %); the worst of them: box "
          f"{worst[0]:.4f} px, score {worst[1]:.1e}, mask IoU {worst[2]:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of weights, images, sampling")
    parser.add_argument("--size", default="800x1344", help="the canvas, height x width, multiples of 32")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--images", nargs="*", default=[], help="files instead of images of --data; sets --batch")
    parser.add_argument("--data", default="../shared/data/coco", help="a COCO data set to pick images from")
    parser.add_argument("--split", default="train")
    parser.add_argument("--weights", help="a checkpoint of ours; otherwise R50-FPN with random weights")
    parser.add_argument("--detect", type=int, default=8, help="images of --data for the detections end to end")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="of torchvision")
    parser.add_argument("--precision", nargs="*", default=["fp32", "tf32", "bf16"], help="fp32 alone on a CPU")
    parser.add_argument("--dump", default="build/dump")
    parser.add_argument("--out", help="a JSON line for every tensor")
    parser.add_argument("--tmp", default="/dev/shm" if os.path.isdir("/dev/shm") else None, help="some 12 GB at full size")
    args = parser.parse_args()
    args.canvas = [int(x) for x in args.size.split("x")]
    if len(args.canvas) != 2 or any(x % 32 for x in args.canvas):
        sys.exit(f"--size {args.size}: height x width, multiples of 32, are wanted")
    args.batch = len(args.images) or args.batch
    args.ours = "cuda:0" if args.device == "cuda" else "cpu"
    torch.backends.cudnn.deterministic = True
    report, start = Report(args.out), time.time()
    torch.manual_seed(args.seed)
    c, tensors = read_checkpoint(args.weights) if args.weights else (dict(R50), None)
    c |= dict(size=min(args.canvas), max_size=max(args.canvas))
    model = build(c).to(args.device)
    if tensors:
        model.load_state_dict(tensors)
    else:
        spread_outputs(model, c)
    with tempfile.TemporaryDirectory(dir=args.tmp) as folder:
        def prepare(n):
            images, anns, categories = pick_images(args, c["classes"], n)
            write_data(os.path.join(folder, "data"), images, anns, categories)
            write_checkpoint(model, c, categories, os.path.join(folder, "weights"))
        prepare(args.batch)
        inputs = run_dump(args, folder, "inputs", args.batch, "--train", "--inputs")
        model.train()
        exact = copy.deepcopy(model).double()
        single = {k: v for k, v in (("fp32", []), ("tf32", ["--tf32"])) if k in args.precision}
        for precisions in (single, {"bf16": ["--amp", "bf16"]} if "bf16" in args.precision else {}):
            if precisions:
                compare_stages(report, args, folder, model, exact, c, inputs, precisions)
                print(f"{', '.join(precisions)}: done after {time.time() - start:.0f} s", flush=True)
        if args.weights:
            shutil.rmtree(os.path.join(folder, "data"))
            prepare(args.detect)
            compare_detections(report, args, folder, model)
    report.table()
    failed = sum(not r["ok"] for r in report.records)
    print(f"{len(report.records)} comparisons, {failed} failed, {time.time() - start:.0f} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
