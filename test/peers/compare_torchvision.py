"""Compares the engine with torchvision 0.26's MaskRCNN and FasterRCNN on real images, stage by stage. Not part of `make test`: it
needs torch and torchvision.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch==2.11.0 torchvision==0.26.0 numpy pillow pycocotools safetensors
    make && /tmp/venv/bin/python test/peers/compare_torchvision.py [--dump build/dump] [--data DIR] [--case NAME]

For each case torchvision builds a model with random weights (norms and running statistics included, output layers
scaled so that scores and boxes spread), its state_dict becomes a checkpoint of ours, and lab/dump runs it on a few
images. torchvision then runs on the same decoded bytes and canvas (torchvision_run.py says what is changed). Both sides
compute in double, so that only a difference in meaning shows: indices and pasted masks must be equal, numbers agree to
1e-9 (scores and boxes, which leave the engine as float, to 1e-6).

The cases named f32 compare float with float. There torchvision's second stage continues from our proposals, since a
rounding that swaps two of them changes what is sampled; limits are 1e-4, and 1e-3 for gradients, because a rounding
also decides whether a ReLU passes one. Exits 1 when anything differs.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from pycocotools.coco import COCO

from torchvision_dump import Dump
from torchvision_model import SMALL, TINY, build, f32, read_checkpoint, spread_outputs, write_checkpoint
from torchvision_run import LOSSES, Peer, targets_of

# ---- figures ------------------------------------------------------------------------------------------------------

class Report:
    def __init__(self, exact):
        self.exact, self.failed = exact, 0

    def line(self, stage, text, ok):
        self.failed += not ok
        print(f"  {stage:34s} {text}{'' if ok else '   <-- differs'}", flush=True)

    def close(self, stage, ours, theirs, exact=1e-9, rounded=1e-4):
        """Relative L2 and largest difference; limits for double and for float."""
        if ours.shape != theirs.shape:
            return self.line(stage, f"shape {tuple(ours.shape)} against {tuple(theirs.shape)}", False)
        a, b = ours.double(), theirs.detach().double()
        scale = b.norm().item()
        relative = (a - b).norm().item() / scale if scale else a.norm().item()
        most = (a - b).abs().max().item() if a.numel() else 0
        self.line(stage, f"{tuple(a.shape)!s:24s} relative L2 {relative:.2e}   max {most:.2e}   of {scale:.3g}",
                  relative <= (exact if self.exact else rounded))

    def same(self, stage, ours, theirs):
        """Lists of integers."""
        ours, theirs = ours.flatten().tolist(), theirs.flatten().tolist()
        wrong = sum(a != b for a, b in zip(ours, theirs)) + abs(len(ours) - len(theirs))
        self.line(stage, f"{len(ours)} against {len(theirs)}: {wrong} differ", wrong == 0)


# ---- running torchvision ------------------------------------------------------------------------------------------

def prepare(model, dump, dtype, exact):
    peer = Peer(model, dtype)
    if not exact:  # a rounding that swaps two proposals must not decide which RoIs are sampled
        model.rpn.register_forward_hook(
            lambda module, inputs, output: ([dump.group("proposals", i)[0] for i in range(len(output[0]))], output[1]))
    return peer


def check_truth(report, dump, targets):
    """Boxes, labels and masks as the loader makes them."""
    capacity = len(dump["truth.label"]) // len(dump.info)
    boxes = labels = pixels = 0
    for i, (s, t) in enumerate(zip(dump.info, targets)):
        n = len(t["labels"])
        rows = slice(i * capacity, i * capacity + dump["truth.count"][i].item())
        ratio = [torch.tensor(s[a], dtype=torch.float32) / torch.tensor(s[b], dtype=torch.float32)
                 for a, b in (("rw", "w"), ("rh", "h"))]
        want = t["boxes"] * torch.stack(ratio * 2)
        if s["flip"]:
            want[:, [0, 2]] = s["rw"] - want[:, [2, 0]]
        if dump["truth.count"][i] != n:
            return report.line("ground truth", f"{dump['truth.count'][i]} objects against {n}", False)
        boxes += (dump.rows("truth.box")[rows].float() != want).any(1).sum().item()
        labels += (dump["truth.label"][rows] != t["labels"]).sum().item()
        pixels += (dump.masks(i) != t["masks"]).sum().item()
    report.line("ground truth", f"{boxes} boxes, {labels} labels, {pixels} mask pixels differ",
                boxes == labels == pixels == 0)


def check_decoding(report, dump, coco, folder):
    for i, s in enumerate(dump.info):
        image = Image.open(os.path.join(folder, coco.imgs[s["id"]]["file_name"])).convert("RGB")
        difference = np.abs(np.asarray(image, np.int32) - (dump.image(i, torch.float64) * 255).round().numpy()
                            .astype(np.int32).transpose(1, 2, 0))
        report.line(f"decoded image {s['id']}", f"max {difference.max()}, mean {difference.mean():.4f} levels",
                    difference.max() <= 16)


def check_features(report, dump, seen, levels=5):
    report.close("image", dump.nchw("image"), seen["transform"][0].tensors)
    sizes = [(s["rh"], s["rw"]) for s in dump.info]
    report.line("resized sizes", str(sizes), sizes == list(map(tuple, seen["transform"][0].image_sizes)))
    for i, t in enumerate(seen["body"].values()):
        report.close(f"c{i + 2}", dump.nchw(f"c{i}"), t)
    for i, t in enumerate(seen["fpn"].values()):
        report.close(f"p{i + 2}", dump.nchw(f"p{i}"), t)
    for name, tensors in zip(["logits", "deltas"], seen["rpn_head"]):
        for i in range(levels):
            report.close(f"rpn {name} p{i + 2}", dump.nchw(f"{name}{i}"), tensors[i])


def check_proposals(report, dump, proposals):
    for i, theirs in enumerate(proposals):
        ours = dump.group("proposals", i)[0]
        if report.exact:
            report.close(f"proposals, image {i}", ours, theirs)
        else:
            alone = (torch.cdist(theirs, ours, p=float("inf")).min(1).values > 1e-2).sum().item()
            report.line(f"proposals, image {i}", f"{len(ours)} against {len(theirs)}, {alone} without a partner",
                        alone <= 0.01 * len(theirs))


# ---- training -----------------------------------------------------------------------------------------------------

def run_training(report, model, dump, c, coco, folder, dtype):
    peer = prepare(model, dump, dtype, report.exact)
    check_decoding(report, dump, coco, folder)
    targets = targets_of(coco, dump.info)
    check_truth(report, dump, targets)
    losses, seen = peer.run(dump, targets), peer.seen
    sum(losses.values()).backward()

    check_features(report, dump, seen)
    check_proposals(report, dump, seen["rpn"][0])
    for i, (positive, negative) in enumerate(peer.rpn_sampler.chosen):
        n, first = dump["rpn_targets.count"][i].item(), i * c["rpn_batch"]
        ours, positives = dump["rpn_targets.index"][first:first + n], dump["rpn_targets.positives"][i].item()
        report.same(f"rpn objects, image {i}", ours[:positives], positive.sort().values)
        report.same(f"rpn background, image {i}", ours[positives:], negative.sort().values)
        if positives == len(positive):
            report.close(f"rpn targets, image {i}", dump.rows("rpn_targets.delta")[first:first + positives],
                         seen["rpn_deltas"][i][positive.sort().values])

    labels, boxes, deltas, order = peer.rois()
    report.same("roi labels", dump["rois.label"], labels)
    if dump["rois.label"].equal(labels.int()):
        objects = labels > 0
        report.close("roi boxes", dump.rows("rois.box"), boxes)
        report.close("roi targets", dump.rows("rois.delta")[objects], deltas[objects])
        report.close("box roi align", dump.nchw("box_roi_align"), seen["box_align"][order])
        for name, t in zip(["class_logits", "box_deltas"], seen["box"]):
            report.close(name.replace("_", " "), dump.rows(ours_name(dump, name)), t[order])
        report.close("object boxes", dump.rows("objects.box"), boxes[objects])
        report.same("object labels", dump["objects.label"], labels[objects])
        if "mask" in seen:
            report.close("mask roi align", dump.nchw("mask_roi_align"), seen["mask_align"])
            report.close("mask logits", dump.nchw(ours_name(dump, "mask_logits")), seen["mask"])
            report.close("mask targets", dump.nchw("mask_target")[:, 0], torch.cat(seen["mask_targets"]))
    report.line("losses", f"{dump['losses'].numel()} against {len(losses)}", dump["losses"].numel() == len(losses))
    for i, name in enumerate(name for name in LOSSES if name in losses):
        report.close(name, dump["losses"].flatten()[i:i + 1], losses[name].reshape(1))
    check_gradients(report, model, dump)


def ours_name(dump, name):
    return {"class_logits": "roi_heads.box_predictor.cls_score", "box_deltas": "roi_heads.box_predictor.bbox_pred",
            "mask_logits": "roi_heads.mask_predictor.mask_fcn_logits"}[name]


def check_gradients(report, model, dump):
    trained = {k: p for k, p in model.named_parameters() if p.requires_grad}
    ours = {k[5:] for k in dump.names if k.startswith("grad.")}
    report.line("trained parameters", f"{len(ours)}, {len(ours ^ set(trained))} on one side only", ours == set(trained))
    model.double()  # PyTorch's norm of ten million floats is off in the fourth place when it sums them in float
    worst = []
    for name, p in trained.items():
        a, b = dump.param("grad." + name, p).double(), p.grad.double()
        worst.append((((a - b).norm() / b.norm().clamp(min=1e-300)).item(), b.norm().item(), name))
    worst.sort(reverse=True)
    for relative, norm, name in worst[:3]:
        report.line("worst gradients", f"relative L2 {relative:.2e} of {norm:.3g}: {name}",
                    relative <= (1e-9 if report.exact else 1e-3))
    norm = torch.nn.utils.clip_grad_norm_(list(trained.values()), 1.0)
    report.close("gradient norm", dump["grad_norm"], norm.reshape(1))
    # lab/dump's two steps with one gradient: the first has no learning rate, so that it only fills the momentum.
    before = {k: p.detach().clone() for k, p in trained.items()}
    sgd = torch.optim.SGD(trained.values(), lr=0, momentum=f32(0.9), weight_decay=f32(1e-4))
    sgd.step()
    sgd.param_groups[0]["lr"] = f32(0.02)
    sgd.step()
    moved = torch.cat([(dump.param("updated." + k, p) - before[k]).flatten() for k, p in trained.items()])
    report.close("update of the weights", moved,
                 torch.cat([(p.detach() - before[k]).flatten() for k, p in trained.items()]), rounded=1e-3)
    still = [k for k, p in model.named_parameters() if not p.requires_grad]
    moved = sum((dump.param("updated." + k, p) != p).any().item() for k, p in model.named_parameters() if k in still)
    report.line("frozen parameters", f"{len(still)}, {moved} moved", moved == 0)
    statistics = {k: b for k, b in model.named_buffers() if "running_" in k and model_trains_norm(model)}
    if statistics:  # ours has seen the batch three times: in both steps and when it was dumped
        start, keep = model.initial_statistics, 1 - f32(0.1)
        theirs = [keep ** 3 * start[k] + (1 - keep ** 3) * (b - keep * start[k]) / (1 - keep)
                  for k, b in statistics.items()]
        report.close("running statistics", torch.cat([dump.param("updated." + k, b) for k, b in statistics.items()]),
                     torch.cat(theirs))


def model_trains_norm(model):
    return any(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules())


# ---- inference ----------------------------------------------------------------------------------------------------

def run_inference(report, model, dump, dtype):
    peer = prepare(model, dump, dtype, report.exact)
    with torch.no_grad():
        found, seen = peer.run(dump), peer.seen
    check_features(report, dump, seen)
    check_proposals(report, dump, seen["rpn"][0])
    report.close("box roi align", dump.nchw("box_roi_align"), seen["box_align"])
    for name, t in zip(["class_logits", "box_deltas"], seen["box"]):
        report.close(name.replace("_", " "), dump.rows(ours_name(dump, name)), t)
    ours = dump["found"]
    for i, theirs in enumerate(found):
        rows = ours[ours[:, 0] == i]
        report.same(f"detected labels, image {i}", rows[:, 1].long(), theirs["labels"])
        if len(rows) != len(theirs["labels"]) or (rows[:, 1].long() != theirs["labels"]).any():
            continue
        report.close(f"scores, image {i}", rows[:, 2], theirs["scores"], 1e-6)
        report.close(f"boxes, image {i}", rows[:, 3:], theirs["boxes"], 1e-6)
        if "mask" not in seen:
            continue
        first = torch.where(ours[:, 0] == i)[0]
        masks = torch.stack([dump[f"mask.{j}"] for j in first.tolist()]) if len(first) else torch.zeros(0)
        want = theirs["masks"][:, 0] > 0.5
        differ = (masks.bool() != want).sum().item() if len(first) else 0
        report.line(f"masks, image {i}", f"{differ} of {want.sum()} foreground pixels differ",
                    differ <= (0 if report.exact else 1e-3 * want.sum()))
    if "mask" in seen and len(dump["mask_probs"]) == len(seen["mask"]):
        labels = torch.cat([t["labels"] for t in found])
        report.close("mask probabilities", dump.nchw("mask_probs")[:, 0],
                     seen["mask"].sigmoid()[torch.arange(len(labels)), labels])


# ---- cases --------------------------------------------------------------------------------------------------------

CASES = {
    "r50-train": dict(config=SMALL, train=True),
    "r50-infer": dict(config=SMALL),
    "r50-train-f32": dict(config=SMALL, train=True, device="cpu"),
    "r50-infer-f32": dict(config=SMALL, device="cpu"),
    "r50-boxes-train": dict(config=dict(SMALL, masks=False), train=True),
    "r50-boxes-infer": dict(config=dict(SMALL, masks=False)),
    "r50-all-layers": dict(config=dict(SMALL, size=128, max_size=213, trainable_layers=5), train=True),
    "r18-bn": dict(config=dict(SMALL, depth=18, norm="bn", trainable_layers=4), train=True),
    "r18-bn-infer": dict(config=dict(SMALL, depth=18, norm="bn", trainable_layers=5)),
    "r50-gn": dict(config=dict(SMALL, size=128, max_size=213, norm="gn", trainable_layers=5), train=True),
    "tiny-train": dict(config=TINY, train=True, images=4),
    "tiny-infer": dict(config=dict(TINY, min_score=0.4), images=4),
    "tiny-flip": dict(config=TINY, train=True, flip=1),
    "tiny-empty": dict(config=TINY, train=True, empty=True),
    "tiny-train-f32": dict(config=TINY, train=True, device="cpu", images=4),
    "tiny-infer-f32": dict(config=TINY, device="cpu", images=4),
}


def choose_images(coco, n, empty):
    """n images with objects, wide and tall, and one without any where asked for."""
    def objects(i):
        return [a for a in coco.imgToAnns[i] if not a["iscrowd"]]
    ids = [i for i in sorted(coco.imgs) if len(objects(i)) >= 3]
    wide = [i for i in ids if coco.imgs[i]["width"] > coco.imgs[i]["height"]]
    tall = [i for i in ids if coco.imgs[i]["width"] < coco.imgs[i]["height"]]
    chosen = [i for pair in zip(wide, tall) for i in pair][:n]
    if empty:
        chosen[-1] = next(i for i in sorted(coco.imgs) if not objects(i))
    return chosen


def subset(coco, chosen, data, split, folder):
    """A data set of the chosen images alone, so that the batch is known."""
    os.makedirs(os.path.join(folder, "annotations"))
    os.symlink(os.path.realpath(os.path.join(data, split + "2017")), os.path.join(folder, "pick"))
    with open(os.path.join(folder, "annotations", "instances_pick.json"), "w") as f:
        json.dump({"images": [coco.imgs[i] for i in chosen], "categories": coco.dataset["categories"],
                   "annotations": [a for i in chosen for a in coco.imgToAnns[i]]}, f)


def run_case(name, case, args):
    print(f"{name}", flush=True)
    c, device, train = case["config"], case.get("device", args.device), case.get("train", False)
    exact = device != "cpu" and "cuda" not in device
    dtype = torch.float64 if device == "cpu64" else torch.float32
    split = "train"
    with contextlib.redirect_stdout(None):
        coco = COCO(os.path.join(args.data, "annotations", f"instances_{split}2017.json"))
    report = Report(exact)
    with tempfile.TemporaryDirectory() as tmp:
        chosen = choose_images(coco, case.get("images", 2), case.get("empty", False))
        subset(coco, chosen, args.data, split, os.path.join(tmp, "data"))
        torch.manual_seed(args.seed)
        if args.weights:
            c, tensors = read_checkpoint(args.weights)
            model = build(c)
            model.load_state_dict(tensors, strict=True)
        else:
            model = build(c)
            spread_outputs(model, c)
        model.initial_statistics = {k: b.double() for k, b in model.named_buffers() if "running_" in k}
        weights, out = os.path.join(tmp, "weights.safetensors"), os.path.join(tmp, "dump.safetensors")
        categories = [{"id": k["id"], "name": k["name"]} for k in sorted(coco.dataset["categories"],
                                                                        key=lambda k: k["id"])]
        write_checkpoint(model, c, categories, weights)
        subprocess.run([args.dump, "--weights", weights, "--data", os.path.join(tmp, "data"), "--split", "pick",
                        "--out", out, "--device", device, "--batch", str(len(chosen)), "--seed", str(args.seed),
                        "--flip", str(case.get("flip", 0))] + ["--train"] * train, check=True)
        dump = Dump(out)
        if train:
            run_training(report, model, dump, c, coco, os.path.join(args.data, split + "2017"), dtype)
        else:
            run_inference(report, model, dump, dtype)
    return report.failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", default="build/dump")
    parser.add_argument("--data", default="../shared/data/coco")
    parser.add_argument("--device", default="cpu64", help="of the cases that name none")
    parser.add_argument("--weights", help="a checkpoint of ours, with its configuration, instead of the case's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", action="append", choices=CASES)
    args = parser.parse_args()
    failed = {}
    for name in args.case or CASES:
        failed[name] = run_case(name, CASES[name], args)
    print("; ".join(f"{name}: {n or 'no'} difference{'s' * (n != 1)}" for name, n in failed.items()))
    sys.exit(any(failed.values()))


if __name__ == "__main__":
    main()
