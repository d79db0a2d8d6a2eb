"""Compares the engine with torchvision 0.26's MaskRCNN at full size on a GPU: every tensor of a training step by
itself, forward and backward, on inputs that are torchvision's own; then detections end to end.

    make && python3 test/peers/compare_torchvision_gpu.py [--seed N] [--size 800x1344] [--batch 2] [--images FILE …]
                                                    [--weights model.safetensors] [--out records.jsonl]

It needs torch, torchvision and safetensors, and build/dump. Exits 1 when anything fails.

Values. torchvision computes a whole step in float32 (for bf16: under autocast). Its activations, and the gradients that
reach them, are fed to each unit of torchvision's model (test/peers/torchvision_units.py) and, through build/dump --feed, to
each node of ours, so that no error is handed on. The unit in float64 is the truth; a tensor passes when
    |ours - truth| <= 2 · max(|torchvision - truth|, |stored - truth|)         (L2 norms over the tensor)
where torchvision's is its error in the same precision and `stored` is the truth rounded to the type in which our engine
stores the tensor: float32, or bfloat16 for activations and their gradients under --amp. Nobody who stores that type can
be closer; autocast keeps some of these in float32, the sums behind a frozen norm for instance. In bf16 all fed values
are bfloat16 numbers, so that all three see the same. 4 · 2^-24 is allowed in any case: a product, a sum, what is added
to it and a store may be off by half an ulp each, in float32. In TF32 the unit in float64 with operands rounded to TF32
counts as torchvision's too, where that is the larger error: PyTorch, allowed to use TF32, takes float32 kernels for
some shapes all the same. Where several nodes add to a gradient, it is compared after each of them.

Indices. From fed logits and deltas, the best anchors of each level, what suppression keeps, the merged proposals, the
anchors and RoIs that are matched and sampled must be the same; at inference the detections, too. Equal scores have no
order of torchvision's, so its topk becomes a stable sort, which takes the same scores (that is checked) and of equal
ones the first, as ours does. Suppression is torchvision.ops.nms level by level, class by class, without batched_nms'
coordinate offsets, and its sampler draws by our keyed rule (base/rng.h).

End to end, with --weights (random ones score everything alike). Both detect in float32, TF32 off, on the same decoded
bytes and canvas. A detection is matched by one of the same label with its box within 0.05 pixels, its score within 1e-3
and mask IoU >= 0.99; 99.5 % must be, counted over the larger side.
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
from PIL import Image
from safetensors.torch import save_file

from origin import origin
from torchvision_dump import Dump
from torchvision_model import R50, build, read_checkpoint, spread_outputs, write_checkpoint
from torchvision_step import LOSSES, Inference, Step, nhwc, prepare_images, set_tf32

FACTOR, FLOOR = 2, 4 * 2.0 ** -24


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

    def value(self, precision, stage, tensor, ours, theirs, truth, storage, rounded=None):
        truth = truth.double()
        norm = truth.norm().item() or 1.0

        def error(t):
            return (t.double() - truth).norm().item() / norm
        if ours.shape != truth.shape:
            return self.add(precision=precision, stage=stage, tensor=tensor, ok=False, ours=list(ours.shape),
                            torchvision=list(truth.shape))
        mine, other, stored = error(ours), error(theirs), error(truth.to(storage))
        definition = 0.0 if rounded is None else error(rounded)
        allowed = max(other, stored, definition, FLOOR / FACTOR)
        self.add(precision=precision, stage=stage, tensor=tensor, ours=mine, torchvision=other, stored=stored,
                 rounded=definition, ratio=mine / allowed, norm=norm, ok=mine <= FACTOR * allowed)

    def same(self, precision, stage, tensor, differ, of):
        self.add(precision=precision, stage=stage, tensor=tensor, differ=int(differ), of=int(of), ok=not differ)

    def table(self):
        groups = collections.defaultdict(list)
        for r in self.records:
            if r["stage"] != "detections":
                groups[r["precision"], r["stage"], "differ" in r].append(r)
        print(f"{'':5s} {'stage':16s} {'tensors':>7s} {'ours':>9s} {'torchv.':>9s} {'ratio':>6s}  worst tensor")
        for (precision, stage, indices), rows in groups.items():
            head = f"{precision:5s} {stage:16s} {len(rows):7d}"
            if indices:
                print(head, f"{sum(r['differ'] for r in rows):9d} of {sum(r['of'] for r in rows)} indices differ")
                continue
            r = max(rows, key=lambda r: r.get("ratio", float("inf")))
            figures = f"{r['ours']:9.2e} {r['torchvision']:9.2e} {r['ratio']:6.2f}" if "ratio" in r else "shape"
            print(head, figures, "", r["tensor"], "" if all(r["ok"] for r in rows) else "  FAILED")
        exempt = sum(r["precision"] == "tf32" and 2 * r["torchvision"] < r["rounded"] for r in self.records
                     if "rounded" in r)
        if exempt:
            print(f"tf32: for {exempt} tensors PyTorch took float32 kernels; there the limit is twice what rounding "
                  f"the operands makes")


# ---- what both sides see ------------------------------------------------------------------------------------------

def lies_as(width, height, canvas):
    return (width >= height) == (canvas[1] >= canvas[0])


def pick_images(args, classes, n):
    """Images with their objects, as COCO's file would list them: n of the data set, or the loose files. Objects are
    made up where there are none of the model's classes."""
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
        images = [dict(i, file_name=os.path.realpath(os.path.join(folder, i["file_name"])))
                  for i in rng.sample(images, n)]
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


# ---- stage by stage -----------------------------------------------------------------------------------------------

def round_to_tf32(t):
    """To ten bits behind the leading one, as cvt.rna.tf32 does."""
    bits = t.float().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).to(t.dtype)


PRODUCTS = torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear


def rounded_model(model):
    model = copy.deepcopy(model)
    with torch.no_grad():
        for m in model.modules():
            if isinstance(m, PRODUCTS):
                m.weight.copy_(round_to_tf32(m.weight))
    return model


class Side:
    """torchvision's units in one precision, fed; gradients add up in the order of our backward walk. rounded: operands
    of products (the first input, the gradient; the model's weights are already) are rounded to TF32 first."""

    def __init__(self, model, step, tf32=False, amp=False, rounded=False):
        self.model, self.step, self.tf32, self.amp, self.units = model, step, tf32, amp, step.units(model)
        self.rounded = rounded
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
        rounds = self.rounded and u.modules and isinstance(u.modules[0], PRODUCTS)
        set_tf32(self.tf32)
        with torch.autocast(leaves[0].device.type, torch.bfloat16, enabled=self.amp):
            if rounds:
                leaves[0].data = round_to_tf32(leaves[0].data)
            y = u.run(*leaves)
        outs = y if u.losses else (y,)
        if outs[0].requires_grad:
            dy = [torch.ones_like(o) if u.losses else self.step.grads[u.name].to(o.dtype) for o in outs]
            dy = [round_to_tf32(g) for g in dy] if rounds else dy
            wanted, params = [l for l in leaves if l.requires_grad], u.parameters()
            grads = torch.autograd.grad(outs, wanted + params, dy)
            for name, g in zip([i for i, l in zip(u.inputs, leaves) if l.requires_grad], grads):
                self.sums[name] = self.sums[name] + g if name in self.sums else g
            for p, g in zip(params, grads[len(wanted):]):
                name = self.names[id(p)]
                self.params[name] = self.params[name] + g if name in self.params else g
        return [F.relu(o.detach()) if u.relu else o.detach() for o in outs]


class Comparison:
    """Ours against torchvision in some precisions, on the same fed values. sides: precision → (Side, Dump); rounded:
    what TF32 is by definition, or None."""

    def __init__(self, report, truth, sides, rounded, storage):
        self.report, self.truth, self.sides, self.storage = report, truth, sides, storage
        self.all = [truth] + [side for side, _ in sides.values()] + [rounded] * (rounded is not None)
        self.relu = {u.name for u in truth.units if u.relu}
        self.consumers = collections.Counter(i for u in truth.units for i in u.inputs)
        self.compared = set()

    def line(self, stage, name, results, storage, read=lambda dump, name: dump[name]):
        """results: of self.all."""
        self.compared.add(name)
        for (precision, (_, dump)), theirs in zip(self.sides.items(), results[1:]):
            self.report.value(precision, stage, name, read(dump, name).to(theirs.device), theirs, results[0], storage,
                              results[-1] if precision == "tf32" else None)

    def backward_order(self):
        """A loss at once, and then, the last first, each node whose outputs' gradients are complete."""
        units = self.truth.units
        nodes = [(node, list(group)) for node, group in
                 itertools.groupby(range(len(units)), lambda k: units[k].node)]
        left, order = collections.Counter(self.consumers), []
        for last in range(len(nodes)):
            for node, group in reversed(nodes[:last + 1] if units[nodes[last][1][0]].losses else []):
                done = any(node == n for n, _ in order)
                if not done and not any(left[units[k].name] for k in group if not units[k].losses):
                    order.append((node, group[::-1]))
                    left.subtract(i for k in group for i in units[k].inputs)
        return order

    def walk(self):
        """Node by node in the order of our backward walk."""
        units = self.truth.units
        for node, group in self.backward_order():
            for k in group:
                self.forward(units[k], [side.run(k) for side in self.all])
            for name, uses in collections.Counter(i for k in group for i in units[k].inputs).items():
                self.gradient(units[group[0]].stage + " bwd", name, node, uses)
        for name in self.truth.params:
            self.line("weights", "grad." + name, [s.params[name] for s in self.all], torch.float32,
                      read=lambda dump, n: dump.param(n, self.truth.params[n[len("grad."):]]))
        for precision, (_, dump) in self.sides.items():
            gradients = {n for n in dump.names if n.startswith("grad.")}
            left = gradients ^ {n for n in self.compared if n.startswith("grad.")}
            self.report.same(precision, "coverage", f"gradients of one side only: {sorted(left)[:3]}", len(left),
                             len(gradients))

    def forward(self, u, results):
        if not u.losses:
            self.line(u.stage + " fwd", u.name, [nhwc(r[0]) for r in results], self.storage)
        for j, name in enumerate(u.losses):
            self.line(u.stage + " fwd", name, [r[j].reshape(1) for r in results], torch.float32,
                      lambda dump, n: dump["losses"].flatten()[LOSSES.index(n)].reshape(1))

    def gradient(self, stage, name, node, uses):
        """Of a value, when a node that uses it so often has added to it; the last one applies the ReLU's mask."""
        self.consumers[name] -= uses
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
    save_file(step.feed(storage), os.path.join(folder, "feed"))
    for name, differ in step.differ.items():
        report.same(next(iter(precisions)), "units", name, differ, 1)
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
    rounded = Side(rounded_model(exact), step, rounded=True) if "tf32" in precisions else None
    Comparison(report, Side(exact, step), sides, rounded, storage).walk()
    for name in list(precisions) + ["feed"]:
        os.remove(os.path.join(folder, name))


def compare_inference(report, args, folder, model, c):
    model.eval()
    step = Inference(model, c, run_dump(args, folder, "inputs", args.batch, "--inputs"), args.device)
    save_file(step.feed(), os.path.join(folder, "feed"))
    step.check(report, run_dump(args, folder, "inference", args.batch, "--device", args.ours, "--all", "--feed",
                                os.path.join(folder, "feed")))
    for name in ("feed", "inference"):
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
    parser.add_argument("--tmp", default="/dev/shm" if os.path.isdir("/dev/shm") else None, help="needs 20 GB")
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
        model.load_state_dict(tensors, strict=c["norm"] != "bn")  # ours count no batches
    else:
        spread_outputs(model, c)
    with tempfile.TemporaryDirectory(dir=args.tmp) as folder:
        def prepare(n):
            images, anns, categories = pick_images(args, c["classes"], n)
            write_data(os.path.join(folder, "data"), images, anns, categories)
            write_checkpoint(model, c, categories, os.path.join(folder, "weights"))
        prepare(args.batch)
        inputs = run_dump(args, folder, "inputs", args.batch, "--train", "--inputs")
        training = copy.deepcopy(model).train()  # whose running statistics may move
        exact = copy.deepcopy(training).double()
        single = {k: v for k, v in (("fp32", []), ("tf32", ["--tf32"])) if k in args.precision}
        for precisions in (single, {"bf16": ["--amp=bf16"]} if "bf16" in args.precision else {}):
            if precisions:
                compare_stages(report, args, folder, training, exact, c, inputs, precisions)
                print(f"{', '.join(precisions)}: done after {time.time() - start:.0f} s", flush=True)
        if single:
            compare_inference(report, args, folder, model, c)
        if args.weights:
            shutil.rmtree(os.path.join(folder, "data"))
            prepare(args.detect)
            compare_detections(report, args, folder, model)
    report.table()
    failed = sum(not r["ok"] for r in report.records)
    print(f"{len(report.records)} comparisons, {failed} failed, {time.time() - start:.0f} s")
    print(json.dumps(dict(compared="torchvision, stage by stage", comparisons=len(report.records), failed=failed,
                          seed=args.seed, batch=args.batch, size=args.size, precision=args.precision,
                          torch=torch.__version__, **origin(args.device))))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
