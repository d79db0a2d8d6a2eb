"""Writes test/goldens/ops.safetensors: what PyTorch 2.11 computes in double for the ops of classifiers, on small tensors.
The tests of those ops hold the reference against it (test/harness/op_golden.h). Only this script needs torch; it was
run as

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch==2.11.0 numpy safetensors
    /tmp/venv/bin/python test/peers/op_goldens.py

Inputs are not stored: both sides draw them by test_fill (test/harness/op.h). Results are stored as [n, h, w, c].
"""
import os

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

from torchvision_dump import rng_key, rng_uniform

PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "goldens", "ops.safetensors")
RNG_TEST = 9


def drawn(key, n, h, w, c, low=-1.0, high=1.0, pitch=None):
    """As test_fill draws [n, h, w, c], whose channels have a pitch."""
    ldc = pitch or (c + 7) // 8 * 8
    index = np.arange(n * h * w * ldc, dtype=np.uint64).reshape(n, h, w, ldc)[..., :c]
    return torch.from_numpy(low + (high - low) * rng_uniform(rng_key(key, RNG_TEST), index))


def pooled(tensors, name, x, pool):
    """y, and dx of a drawn dy."""
    x = x.permute(0, 3, 1, 2).clone().requires_grad_()
    y = pool(x)
    n, c, h, w = y.shape
    y.backward(drawn(2, n, h, w, c).permute(0, 3, 1, 2))
    for what, value in ("y", y.detach()), ("dx", x.grad):
        tensors[f"{name}.{what}"] = value.permute(0, 2, 3, 1).contiguous().numpy()


def pools(tensors):
    x = drawn(1, 1, 12, 13, 3)
    pooled(tensors, "max.ceil", x, lambda v: F.max_pool2d(v, 3, 2, 0, ceil_mode=True))
    pooled(tensors, "max.floor", x, lambda v: F.max_pool2d(v, 3, 2, 1))
    for ceil in False, True:
        for pad in False, True:
            pooled(tensors, f"avg.{'ceil' if ceil else 'floor'}.{'padded' if pad else 'inside'}", x,
                   lambda v: F.avg_pool2d(v, 3, 2, 1, ceil_mode=ceil, count_include_pad=pad))
    for bins in (1, 1), (6, 7), (12, 13), (14, 5):
        pooled(tensors, f"adaptive.{bins[0]}.{bins[1]}", x, lambda v: F.adaptive_avg_pool2d(v, bins))


def class_losses(tensors):
    logits, labels = 4 * drawn(3, 7, 1, 1, 11).reshape(7, 11), torch.tensor([0, 10, 3, -100, 7, 3, 5])
    counted = labels >= 0
    best = logits.topk(5, 1).indices[counted] == labels[counted, None]
    tensors["class.hits"] = np.array([best[:, :1].sum(), best.sum()], np.float64).reshape(1, 1, 1, 2)
    tensors["class.probs"] = logits.softmax(1).reshape(7, 1, 1, 11).numpy()
    for name, smoothing in ("plain", 0.0), ("smooth", 0.125):
        x = logits.clone().requires_grad_()
        loss = F.cross_entropy(x, labels, label_smoothing=smoothing)
        loss.backward()
        tensors[f"class.{name}.loss"] = loss.detach().reshape(1, 1, 1, 1).numpy()
        tensors[f"class.{name}.dx"] = x.grad.reshape(7, 1, 1, 11).numpy()


def optimisers(tensors):
    for name, optimiser_type, decay in ("plain", torch.optim.Adam, 0), ("adam", torch.optim.Adam, 0.125), (
            "adamw", torch.optim.AdamW, 0.125):
        w = drawn(1, 1, 1, 1, 70, pitch=70).reshape(-1).clone().requires_grad_()
        optimiser = optimiser_type([w], lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=decay)
        for update in range(5):
            w.grad = drawn(10 + update, 1, 1, 1, 70, pitch=70).reshape(-1).clone()
            optimiser.step()
        state = optimiser.state[w]
        for what, value in ("w", w.detach()), ("m", state["exp_avg"]), ("v", state["exp_avg_sq"]):
            tensors[f"adam.{name}.{what}"] = value.reshape(1, 1, 1, 70).numpy()


def main():
    tensors = {}
    pools(tensors)
    class_losses(tensors)
    optimisers(tensors)
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, PATH, {"torch": torch.__version__})


main()
