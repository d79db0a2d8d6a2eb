"""vgg-28 in PyTorch, trained as ./train --model vgg-28 trains it on IDX files of 28 × 28 pixels: net, split,
augmentation, schedule, batches. One JSON line, with the members of our run.json.

    B=build python3 test/peers/vgg28_torch.py --data DIR --held-out out/model.safetensors
      --phases 10@1e-3,10@1e-4,25@1e-4+augment --seed 1

Images stay on the device; a step gathers its batch there, turns it in one bilinear sampling where the phase says
+augment (exact/affine.h), and is, on a GPU, a CUDA graph. --way eager: op by op; compile: the network by
torch.compile, within the graph. Times are of epochs, recording and compiling among them, evaluation and what is built
before not; images a second are those of the median epoch. channels_last; bf16 by autocast, tf32: products in TF32.
"""
import argparse
import contextlib
import gzip
import json
import os
import sys
import time

import numpy
import torch

from bench_nets import vgg_28
from origin import origin

SIDE, WARM_STEPS = 28, 3
ROTATE, SHIFT, SHEAR, ZOOM = 8.0, 0.08, 0.3, 0.08  # degrees, shares: ./train's of IDX files


# ---- data -----------------------------------------------------------------------------------------------------------

def read_idx(folder, name, dims):
    """The array of NAME or NAME.gz; the plain one where both are there, as ./train has it."""
    path = os.path.join(folder, name)
    path = path if os.path.exists(path) else path + ".gz"
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
            data = f.read()
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}; it is to hold an IDX file, as MNIST's are called")
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(dims)]
    if data[:4] != bytes([0, 0, 8, dims]) or len(data) != 4 + 4 * dims + numpy.prod(shape, dtype=int):
        sys.exit(f"{path}: no whole IDX file of bytes in {dims} dimensions")
    return numpy.frombuffer(bytearray(data), numpy.uint8, offset=4 + 4 * dims).reshape(shape)


def read_part(folder, name):
    images, labels = read_idx(folder, f"{name}-images-idx3-ubyte", 3), read_idx(folder, f"{name}-labels-idx1-ubyte", 1)
    if images.shape[1:] != (SIDE, SIDE) or len(images) != len(labels):
        sys.exit(f"{folder}: {name} is to have {SIDE} x {SIDE} pixels and a label for each image")
    return images, labels


def held_out(path, n):
    """Which of n training images ./train held out: by the weights' "held_out", in which image i ends in #i."""
    try:
        with open(path, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: {error}; --held-out needs weights of ./train")
    text = header.get("__metadata__", {}).get("held_out")
    if not text:
        sys.exit(f"{path}: these weights were trained without --val-fraction and --fold")
    out = numpy.zeros(n, bool)
    out[[int(name.rsplit("#", 1)[1]) for name in json.loads(text)["val"]]] = True
    return out


# ---- a step ---------------------------------------------------------------------------------------------------------

def turned(images, draw):
    """[n, 1, 28, 28] of bytes [n, 28, 28] by augment_classifier: rotated, sheared, zoomed, shifted, each drawn by itself.
    draw() is uniform in [0, 1), [n, 1, 1]; its type is that of the sampling."""
    uniform = lambda low, high: draw() * (high - low) + low
    angle, shear = torch.deg2rad(uniform(-ROTATE, ROTATE)), torch.tan(torch.deg2rad(uniform(-SHEAR, SHEAR)))
    across, down = 1 / uniform(1 - ZOOM, 1 + ZOOM), 1 / uniform(1 - ZOOM, 1 + ZOOM)
    cos, sin = torch.cos(angle), torch.sin(angle)
    centres = (torch.arange(SIDE, device=images.device) + 0.5) * (2 / SIDE) - 1
    x, y = centres.view(1, 1, -1), centres.view(1, -1, 1)
    grid = torch.stack([cos * across * x + (cos * shear - sin) * down * y + 2 * uniform(-SHIFT, SHIFT),
                        sin * across * x + (sin * shear + cos) * down * y + 2 * uniform(-SHIFT, SHIFT)], 3)
    return torch.nn.functional.grid_sample(images.unsqueeze(1).to(grid.dtype), grid, align_corners=False)


class Trainer:
    """The net, what it learns from and how; all on the device, so that a step can be recorded."""

    def __init__(self, images, labels, classes, options):
        self.o, self.device = options, torch.device(options.device)
        torch.manual_seed(options.seed)
        self.model = vgg_28(classes).to(self.device, memory_format=torch.channels_last)
        on_gpu = self.device.type == "cuda"
        rate = torch.tensor(1e-3, device=self.device) if on_gpu else 1e-3
        self.adam = torch.optim.Adam(self.model.parameters(), rate, fused=True, capturable=on_gpu)
        self.way = options.way or ("graph" if on_gpu else "eager")
        self.net = torch.compile(self.model) if self.way == "compile" else self.model
        self.images, self.labels = torch.from_numpy(images).to(self.device), torch.from_numpy(labels).to(self.device)
        self.n, self.per_epoch = len(images), -(-len(images) // options.batch)
        self.order = torch.zeros(self.per_epoch * options.batch, dtype=torch.long, device=self.device)
        self.step, self.loss = (torch.zeros((), dtype=dtype, device=self.device) for dtype in (torch.long, torch.float64))
        self.within = torch.arange(options.batch, device=self.device)
        self.recorded = {}

    def canvas(self, images):
        """Of bytes [n, 1, 28, 28], in ±1."""
        x = (images.float() / 255 - 0.5) / 0.5
        return x.contiguous(memory_format=torch.channels_last)

    def logits(self, x):
        # Casts of parameters that autocast keeps between steps would be lost to a recorded one.
        with torch.autocast(self.device.type, torch.bfloat16, self.o.dtype == "bf16", cache_enabled=False):
            return self.net(x)

    def take_step(self, augment):
        at = self.order[self.step * self.o.batch + self.within]
        draw = lambda: torch.rand(len(at), 1, 1, device=self.device)
        images = turned(self.images[at], draw) if augment else self.images[at].unsqueeze(1)
        self.adam.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.logits(self.canvas(images)).float(), self.labels[at].long())
        loss.backward()
        self.adam.step()
        self.loss += loss.detach()
        self.step += 1

    @contextlib.contextmanager
    def beside(self):
        """On a stream of its own, as steps before a recording have to be."""
        if self.device.type != "cuda":
            yield
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream().wait_stream(stream)

    def run_step(self, augment, before):
        """`before`: steps of this phase so far, of which the first are taken op by op."""
        if self.way != "eager" and before >= WARM_STEPS and augment not in self.recorded:
            torch.cuda.synchronize()
            self.recorded[augment] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.recorded[augment]):
                self.take_step(augment)
        if augment in self.recorded:
            self.recorded[augment].replay()
            return
        with self.beside():
            self.take_step(augment)

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def set_rate(self, rate):
        for group in self.adam.param_groups:
            if torch.is_tensor(group["lr"]):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def run_epoch(self, augment, taken):
        """Mean loss. Every image once; the last batch is filled up with the epoch's first images."""
        order = torch.randperm(self.n, device=self.device)
        self.order.copy_(order.repeat(-(-len(self.order) // self.n))[:len(self.order)])
        self.step.zero_()
        self.loss.zero_()
        for i in range(self.per_epoch):
            self.run_step(augment, taken + i)
        self.wait()
        return self.loss.item() / self.per_epoch

    def run_phase(self, phase):
        self.model.train()
        self.set_rate(phase["lr"])
        seconds = []
        for epoch in range(phase["epochs"]):
            self.wait()
            begun = time.perf_counter()
            phase["loss"] = self.run_epoch(phase["augment"], epoch * self.per_epoch)
            seconds.append(time.perf_counter() - begun)
        images = self.per_epoch * self.o.batch
        phase.update(steps=len(seconds) * self.per_epoch, seconds=sum(seconds),
                     img_s=images / float(numpy.median(seconds)))
        return seconds

    def score(self, images, labels):
        """Top-1 and top-5 as shares."""
        self.model.eval()
        hits = torch.zeros(2, dtype=torch.long)
        with torch.no_grad():
            for i in range(0, len(images), 1000):
                x = self.canvas(torch.from_numpy(images[i:i + 1000]).to(self.device).unsqueeze(1))
                with torch.autocast(self.device.type, torch.bfloat16, self.o.dtype == "bf16"):
                    best = self.model(x).float().topk(5).indices.cpu()
                right = best == torch.from_numpy(labels[i:i + 1000]).long()[:, None]
                hits += torch.stack([right[:, 0].sum(), right.any(1).sum()])
        return [int(h) / len(images) for h in hits]


# ---- a run ----------------------------------------------------------------------------------------------------------

def phases(text):
    """10@1e-3,25@1e-4+augment"""
    found = []
    for phase in text.split(","):
        epochs, rate = phase.removesuffix("+augment").split("@")
        found.append({"epochs": int(epochs), "lr": float(rate), "augment": phase.endswith("+augment")})
    return found


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--phases", type=phases, default="10@1e-3,10@1e-4")
    parser.add_argument("--held-out", metavar="FILE", help="weights of ./train, whose held-out images are left out")
    parser.add_argument("--val-split", choices=("val", "test"), default="test", help="val: what is held out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--limit", type=int, default=0, help="the first N images of training; 0: all")
    parser.add_argument("--val-limit", type=int, default=0)
    parser.add_argument("--dtype", choices=("bf16", "tf32", "fp32"), default="bf16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--way", choices=("graph", "compile", "eager"))
    options = parser.parse_args()
    if options.device == "cpu" and options.way not in (None, "eager"):
        parser.error(f"--way {options.way}: a CPU records no graph")
    if options.val_split == "val" and not options.held_out:
        parser.error("--val-split val needs --held-out FILE")
    return options


def main():
    o = read_options()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = o.dtype != "fp32"
    images, labels = read_part(o.data, "train")
    out = held_out(o.held_out, len(images)) if o.held_out else numpy.zeros(len(images), bool)
    val = read_part(o.data, "t10k") if o.val_split == "test" else (images[out], labels[out])
    classes = int(labels.max()) + 1
    images, labels = (part[~out][:o.limit or None] for part in (images, labels))
    val = [part[:o.val_limit or None] for part in val]
    begun = time.perf_counter()
    trainer = Trainer(images, labels, classes, o)
    trainer.wait()
    built, epochs = time.perf_counter() - begun, []
    for phase in o.phases:
        epochs += trainer.run_phase(phase)
    top1, top5 = trainer.score(*val)
    steps = sum(phase["steps"] for phase in o.phases)
    print(json.dumps({
        "peer": f"PyTorch {torch.__version__}", "model": "vgg-28", "data": o.data,
        "classes": classes, "images": len(images), "val_images": len(val[0]), "step": steps, "steps": steps,
        "complete": True, "batch": o.batch, "way": trainer.way,
        "parameters": sum(p.numel() for p in trainer.model.parameters()), "val_top1": top1, "val_top5": top5,
        "build_seconds": built, "seconds": sum(epochs),
        "img_s": trainer.per_epoch * o.batch / float(numpy.median(epochs)), "phase": o.phases,
        **origin("auto" if o.device == "cuda" else o.device)}))


if __name__ == "__main__":
    main()
