"""Writes test/goldens/classifiers.safetensors: what torchvision 0.29 computes in double for its classification networks
(and for OverFeat and the VGG for 28 × 28 pixels, which it does not have), on small images: loss, gradients and running
statistics of a training step, then the probabilities of inference. test/classification/nets/test_classifier_goldens.c holds ours
against them. Only this script needs torch; it was run as

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch==2.15.0 torchvision==0.29.2 numpy safetensors
    /tmp/venv/bin/python test/peers/classifier_goldens.py

Weights, images and labels are not stored: both sides draw them from one hash (base/rng.h) by the rules below, `drawn`,
`image_bytes` and `label`. Where fully connected layers would hold most of a network's weights they have DENSE channels.
Dropout is off. A parameter's gradient, and a running statistic, is stored as [L2 norm, Σ ± element, noise in L2, entries
…], signs and positions drawn by the hash of its name.

Noise is what may separate two correct computations in float, besides rounding as such: how far the tensor moves, at most,
in PyTorch's float and in DRAWS computations in double whose weights are multiplied by 1 ± NOISE. ReLUs next to their
zero, whose gradients jump, then fall on the other side, and so do maxima next to another; behind batch norm over few
values that makes up to some hundredths of a gradient.
"""
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torchvision.models as tv
from safetensors.numpy import load_file, save_file

from torchvision_dump import rng_key, rng_u32, rng_uniform

PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "goldens", "classifiers.safetensors")
RNG_TEST, IMAGES, CLASSES, DENSE, ENTRIES, SMOOTHING, AUX = 9, 3, 10, 48, 4, np.float32(0.1), np.float32(0.3)
DRAWS, NOISE = 4, 2.0 ** -21
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


def named_key(key, name):
    for c in name.encode():
        key = rng_key(key, c)
    return key


# ---- networks -----------------------------------------------------------------------------------------------------


def alexnet():
    net = tv.alexnet(num_classes=CLASSES, dropout=0)
    net.classifier = nn.Sequential(nn.Identity(), nn.Linear(9216, DENSE), nn.ReLU(), nn.Identity(),
                                   nn.Linear(DENSE, DENSE), nn.ReLU(), nn.Linear(DENSE, CLASSES))
    return net


def vgg(make):
    net = make(num_classes=CLASSES, dropout=0, init_weights=False)
    net.classifier = nn.Sequential(nn.Linear(25088, DENSE), nn.ReLU(), nn.Identity(), nn.Linear(DENSE, DENSE),
                                   nn.ReLU(), nn.Identity(), nn.Linear(DENSE, CLASSES))
    return net


class Plain(nn.Module):
    def __init__(self, features, classifier):
        super().__init__()
        self.features, self.classifier = nn.Sequential(*features), nn.Sequential(*classifier)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def overfeat():
    def conv(i, o, k, stride=1, pad=0):
        return [nn.Conv2d(i, o, k, stride, pad), nn.ReLU()]
    return Plain([*conv(3, 96, 11, 4), nn.MaxPool2d(2), *conv(96, 256, 5), nn.MaxPool2d(2), *conv(256, 512, 3, 1, 1),
                  *conv(512, 1024, 3, 1, 1), *conv(1024, 1024, 3, 1, 1), nn.MaxPool2d(2)],
                 [nn.Linear(1024 * 4, DENSE * 3 // 4), nn.ReLU(), nn.Linear(DENSE * 3 // 4, DENSE), nn.ReLU(),
                  nn.Linear(DENSE, CLASSES)])


def vgg28():
    def conv(i, o):
        return [nn.Conv2d(i, o, 3, 1, 1), nn.ReLU(), nn.BatchNorm2d(o)]

    def dense(i):
        return [nn.Linear(i, DENSE), nn.ReLU(), nn.BatchNorm1d(DENSE), nn.Identity()]
    return Plain([*conv(1, 32), *conv(32, 32), *conv(32, 64), *conv(64, 64), nn.MaxPool2d(2), nn.Identity(),
                  *conv(64, 128), *conv(128, 128), *conv(128, 256), *conv(256, 256), *conv(256, 256), nn.MaxPool2d(2),
                  nn.Identity()], [*dense(256 * 49), *dense(DENSE), nn.Linear(DENSE, CLASSES)])


def googlenet():
    net = tv.googlenet(weights=None, num_classes=CLASSES, aux_logits=True, init_weights=False)
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0
    return net


NETS = {"alexnet": (alexnet, 96), "overfeat": (overfeat, 103), "vgg11": (lambda: vgg(tv.vgg11), 64),
        "vgg16": (lambda: vgg(tv.vgg16), 64), "vgg19": (lambda: vgg(tv.vgg19), 64), "googlenet": (googlenet, 72),
        "vgg-28": (vgg28, 28)}
NETS.update({f"resnet{d}": (lambda d=d: getattr(tv, f"resnet{d}")(num_classes=CLASSES), 72)
             for d in (18, 34, 50, 152)})


# ---- what both sides draw -----------------------------------------------------------------------------------------

def drawn(name, shape):
    n = int(np.prod(shape))
    u = rng_uniform(named_key(RNG_TEST, name), np.arange(n, dtype=np.uint64)).astype(np.float32)
    if len(shape) > 1:  # He's uniform: a variance of 2 / inputs
        w = np.float32(np.sqrt(6 / np.prod(shape[1:]))) * (2 * u - 1)
    elif name.endswith("running_var") or (name.endswith("weight")):
        w = np.float32(0.5) + u
    else:
        w = np.float32(0.2) * (2 * u - 1)
    return torch.from_numpy(w.reshape(shape))


def image_bytes(size):
    n = IMAGES * size * size * 3
    return (rng_u32(rng_key(RNG_TEST, 0), np.arange(n, dtype=np.uint64)) >> np.uint64(24)).reshape(
        IMAGES, size, size, 3)


def label():
    return (rng_u32(rng_key(RNG_TEST, 1), np.arange(IMAGES, dtype=np.uint64)) % CLASSES).astype(np.int64)


def image(name, size):
    v = image_bytes(size).astype(np.float64)
    if name == "vgg-28":  # brightness of three equal channels
        return torch.from_numpy((v[..., :1] / 255 - 0.5) / 0.5).permute(0, 3, 1, 2).contiguous()
    v = (v / 255 - MEAN.astype(np.float64)) / STD.astype(np.float64)
    return torch.from_numpy(v).permute(0, 3, 1, 2).contiguous()


# ---- running ------------------------------------------------------------------------------------------------------

def run(name, dtype, draw=None):
    make, size = NETS[name]
    net = make()
    state = {k: drawn(k, tuple(v.shape)) for k, v in net.state_dict().items()
             if not k.endswith("num_batches_tracked")}
    net.load_state_dict(state, strict=False)
    net = net.to(dtype).train()
    if draw is not None:
        generator = torch.Generator().manual_seed(draw)
        with torch.no_grad():
            for p in net.parameters():
                p *= 1 + NOISE * (2 * torch.randint(0, 2, p.shape, generator=generator) - 1)
    for module in net.modules():
        if hasattr(module, "eps"):
            module.eps = float(np.float32(module.eps))
            module.momentum = float(np.float32(module.momentum))
    x, y = image(name, size).to(dtype), torch.from_numpy(label())
    out = net(x)
    heads = [(out, 1.0)]
    if name == "googlenet":
        heads = [(out.logits, 1.0), (out.aux_logits1, float(AUX)), (out.aux_logits2, float(AUX))]
    losses = [weight * nn.functional.cross_entropy(logits, y, label_smoothing=float(SMOOTHING))
              for logits, weight in heads]
    sum(losses).backward()
    values = {"loss": torch.stack(losses).detach().double().numpy()}
    values.update({f"grad/{k}": p.grad.detach().double().numpy() for k, p in net.named_parameters()})
    values.update({f"after/{k}": v.double().numpy() for k, v in net.state_dict().items()
                   if k.endswith(("running_mean", "running_var"))})
    with torch.no_grad():
        values["probs"] = net.eval()(x).softmax(1).double().numpy()
    return values


def stored(name, v, noise):
    v = v.reshape(-1)
    key = named_key(0, name)
    signs = 1 - 2 * (rng_u32(rng_key(key, 1), np.arange(v.size, dtype=np.uint64)) % np.uint64(2)).astype(np.float64)
    at = (rng_u32(key, np.arange(ENTRIES, dtype=np.uint64)) % np.uint64(v.size)).astype(np.int64)
    return np.concatenate([[np.linalg.norm(v), (v * signs).sum(), noise], v[at]])


def main():
    """All networks, or those that are named: the others stay as they are in the file."""
    tensors = load_file(PATH) if len(sys.argv) > 1 and os.path.exists(PATH) else {}
    for name in sys.argv[1:] or NETS:
        exact = run(name, torch.float64)
        noise = {k: 0.0 for k in exact}
        for other in [run(name, torch.float32)] + [run(name, torch.float64, draw) for draw in range(DRAWS)]:
            noise = {k: max(noise[k], float(np.linalg.norm(other[k] - v))) for k, v in exact.items()}
        share = {k: noise[k] / np.linalg.norm(v) for k, v in exact.items()}
        worst = max(share, key=share.get)
        print(f"{name}: loss {exact['loss']}, noise {share[worst]:.2g} of {worst}", flush=True)
        for key, v in exact.items():
            tensors[f"{name}/{key}"] = v.reshape(-1) if key in ("loss", "probs") else stored(
                f"{name}/{key}", v, noise[key])
        save_file(tensors, PATH, metadata={"torch": torch.__version__})


if __name__ == "__main__":
    main()
