"""Compares ./train's steps of vgg-28 with PyTorch's: each is repeated in float64 from the checkpoint before it.

    B=build; $B/train --model vgg-28 --data DIR --val-fraction 0.2 --split-seed 1 --limit 300 --val-limit 300 \\
        --eval-epochs 0 --phases 3@1e-3,1@1e-4,1@1e-4 --augment standard --augment-after 4 \\
        --device cpu --checkpoint-every 1 --keep 99 --out RUN
    B=$B python3 test/peers/compare_vgg28.py --run RUN [--first 0] [--steps 99]

Net, Adam and augmentation are vgg28_torch.py's, the images and their order, what dropout leaves out and what is drawn
for each image are computed from the seed, as are the weights before the first step. A line for each step: its number;
the loss in RUN's log and PyTorch's; the rms of the difference between both updates of the parameters, relative to that
of the update; and the largest difference between running statistics, relative to the largest of the same name. The
first update is the rate times the sign of each gradient, so that rounding shows in it where gradients are next to nothing.
Last of all the evaluation after the last step: top-1 and top-5 in RUN's log, and PyTorch's of the same weights.
"""
import argparse
import json
import os
import struct

import numpy
import torch

import vgg28_torch as peer

RNG_ORDER, RNG_INIT, RNG_AUGMENT, RNG_DROPOUT = 1, 6, 10, 12  # of base/rng.h
IMAGES, BATCHES = 0, 1                                        # what data/batches/sampler.c shuffles
DRAWS = (0, 3, 4, 5, 1, 2)  # of data/batches/augment.c, as vgg28_torch.turned asks: angle, shear, zooms, shifts


def key(*words):
    """rng_key of the first and all that follow, one of which may be an array."""
    k = numpy.uint64(words[0])
    for word in words[1:]:
        k = peer.key(k, word if isinstance(word, numpy.ndarray) else numpy.uint64(word))
    return k


def key_of_name(first, name):
    return key(first, *name.encode())


def bits(k, n):
    """rng_u32 of elements 0 … n - 1."""
    return key(k, numpy.arange(n, dtype=numpy.uint64)) >> numpy.uint64(32)


def shuffled(k, n):
    return numpy.argsort(key(k, numpy.arange(n, dtype=numpy.uint64)), kind="stable")


class Dropout(torch.nn.Module):
    """exact/dropout.h's, of elements in the order of NHWC."""

    def __init__(self, p, name, seed):
        super().__init__()
        self.p, self.key, self.step = p, key(key(seed, RNG_DROPOUT), key_of_name(0, name)), 0

    def forward(self, x):
        if not self.training:
            return x
        last = x.movedim(1, -1)
        kept = bits(key(self.key, self.step), x.numel()) >= numpy.uint64(self.p * 2**32)
        return x * torch.from_numpy(kept).view(last.shape).movedim(-1, 1) / (1 - self.p)


def net_of(classes, seed):
    """vgg_28 in two parts that have our names, with our dropout and our first weights."""
    layers = list(peer.vgg_28(classes))
    flat = next(i for i, layer in enumerate(layers) if isinstance(layer, torch.nn.Flatten))
    parts = {"features": layers[:flat], "classifier": layers[flat + 1:]}
    for part, of in parts.items():
        for i, layer in enumerate(of):
            if isinstance(layer, torch.nn.Dropout):
                of[i] = Dropout(layer.p, f"{part}.{i}", seed)
    net = torch.nn.Sequential()
    for part, of in (("features", parts["features"]), ("flat", [layers[flat]]), ("classifier", parts["classifier"])):
        net.add_module(part, torch.nn.Sequential(*of))
    for name, layer in net.named_modules():
        for of, p in layer.named_parameters(recurse=False):
            if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)):
                bound = layer.weight[0].numel() ** -0.5
                drawn = (bits(key_of_name(key(seed, RNG_INIT, 0), f"{name}.{of}"), p.numel()) + 0.5) * 2.0**-31 - 1
                p.data = torch.from_numpy((bound * drawn).astype(numpy.float32)).view(p.shape)
    return net.double()


def held_out(run, n):
    """Which of the n training images the run holds out, by its weights."""
    with open(os.path.join(run, "model.safetensors"), "rb") as f:
        meta = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))["__metadata__"]
    out = numpy.zeros(n, bool)
    for name in json.loads(meta["held_out"])["val"] if "held_out" in meta else []:
        out[int(name.lstrip("#"))] = True
    return out


class Images:
    """What ./train learns from, and which of it a step sees."""

    def __init__(self, settings, run):
        self.seed, self.batch = int(settings["seed"]), int(settings["batch"])
        images, labels = peer.read_part(settings["data"], "train")
        self.id = numpy.flatnonzero(~held_out(run, len(images)))[:int(settings["limit"]) or None]
        self.images, self.labels, self.classes = images[self.id], labels[self.id], int(labels.max()) + 1
        self.n, self.per_epoch = len(self.id), -(-len(self.id) // self.batch)

    def of_step(self, step):
        k = key(self.seed, RNG_ORDER, step // self.per_epoch)
        place = shuffled(key(k, BATCHES), self.per_epoch)[step % self.per_epoch]
        return shuffled(key(k, IMAGES), self.n)[(place * self.batch + numpy.arange(self.batch)) % self.n]

    def canvas(self, step, augment):
        """Pixels in ±1 and labels."""
        at = self.of_step(step)
        images, labels = torch.from_numpy(self.images[at]), torch.from_numpy(self.labels[at]).long()
        k = key(self.seed, step // self.per_epoch, self.id[at].astype(numpy.uint64), RNG_AUGMENT)
        draws = iter(DRAWS)
        draw = lambda: torch.from_numpy((key(k, next(draws)) >> numpy.uint64(40)) * 2.0**-24).view(-1, 1, 1)
        pixels = peer.turned(images, draw) if augment else images.unsqueeze(1).double()
        return (pixels / 255 - 0.5) / 0.5, labels


def checkpoint(run, step):
    with open(os.path.join(run, f"checkpoint-{step:08d}.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {name: torch.from_numpy(numpy.frombuffer(data[slice(*of["data_offsets"])], numpy.float32)
                                   .reshape(of["shape"]).astype(numpy.float64))
            for name, of in header.items() if name != "__metadata__" and of["dtype"] == "F32"}


def load_weights(net, state):
    for name, t in [*net.named_parameters(), *net.named_buffers()]:
        if name in state:
            t.data.copy_(state[name])


def load(net, adam, state, step):
    load_weights(net, state)
    for name, p in net.named_parameters():
        adam.state[p] = {"step": torch.tensor(float(step)), "exp_avg": state["momentum." + name].clone(),
                         "exp_avg_sq": state["second_moment." + name].clone()}


def rms(parts):
    return torch.cat([part.flatten() for part in parts]).square().mean().sqrt().item()


def evaluated(settings, run):
    """Pixels in ±1 and labels of what ./train evaluates: the test images, or what is held out."""
    of_test = settings["val-split"] == "test"
    images, labels = peer.read_part(settings["data"], "t10k" if of_test else "train")
    if not of_test:
        out = held_out(run, len(images))
        images, labels = images[out], labels[out]
    images, labels = (torch.from_numpy(part[:int(settings["val-limit"]) or None]) for part in (images, labels))
    return (images.unsqueeze(1).double() / 255 - 0.5) / 0.5, labels.long()


def compare_evaluation(net, run, settings, log):
    """Of the log's last record, by the weights and running statistics that the step before it left."""
    load_weights(net, checkpoint(run, log["step"]))
    images, labels = evaluated(settings, run)
    hits = torch.zeros(2, dtype=torch.long)
    net.eval()
    with torch.no_grad():
        for x, truth in zip(images.split(100), labels.split(100)):
            right = net(x).topk(5).indices == truth[:, None]
            hits += torch.stack([right[:, 0].sum(), right.any(1).sum()])
    shares = " ".join(f"{ours:.5f} {theirs / len(labels):.5f}"
                      for ours, theirs in zip((log["val_top1"], log["val_top5"]), hits.tolist()))
    print(f"evaluation after step {log['step']}, {log['images']} images (PyTorch: {len(labels)}): {shares}")


def as_given(of):
    """A setting of run.json as --name takes it; runs before 1.2 have it so."""
    value = of["value"] if isinstance(of, dict) else of
    return "0" if value == "all" else str(value)


def compare(run, first, steps):
    with open(os.path.join(run, "run.json")) as f:
        settings = {name: as_given(of) for name, of in json.load(f)["settings"].items()}
    with open(os.path.join(run, "log.jsonl")) as f:
        records = [json.loads(line) for line in f]
    log = {r["step"]: r for r in records if r["kind"] == "train"}
    images = Images(settings, run)
    net = net_of(images.classes, images.seed).train()
    adam = torch.optim.Adam(net.parameters())
    epochs = [phase for phase in peer.phases(settings["phases"]) for _ in range(phase["epochs"])]
    for step in range(first, min(first + steps, len(epochs) * images.per_epoch)):
        if step:
            load(net, adam, checkpoint(run, step), step)
        before = {name: p.detach().clone() for name, p in net.named_parameters()}
        for layer in net.modules():
            layer.step = step
        phase = epochs[step // images.per_epoch]
        adam.param_groups[0]["lr"] = phase["lr"]
        pixels, labels = images.canvas(step, phase["augment"])
        adam.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(pixels), labels)
        loss.backward()
        adam.step()
        after = checkpoint(run, step + 1)
        moved = {name: p.detach() - before[name] for name, p in net.named_parameters()}
        update = rms(after[name] - before[name] - moved[name] for name in moved) / rms(moved.values())
        running = max(((after[name] - t).abs().max() / t.abs().max()).item() for name, t in net.named_buffers()
                      if name in after)
        print(f"{step + 1:5} {log[step + 1]['loss']:.7f} {loss.item():.7f} {update:.1e} {running:.1e}", flush=True)
    if records[-1]["kind"] == "eval":
        compare_evaluation(net, run, settings, records[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--run", required=True, help="of ./train, with a checkpoint of each step")
    parser.add_argument("--first", type=int, default=0, help="steps that are left out")
    parser.add_argument("--steps", type=int, default=1 << 30)
    options = parser.parse_args()
    numpy.seterr(over="ignore")
    compare(options.run, options.first, options.steps)


if __name__ == "__main__":
    main()
