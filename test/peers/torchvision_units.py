"""torchvision's MaskRCNN as the list of its units, in the order and under the names of our graph's nodes, so that each
can be run alone on given inputs, forward and backward. Used by compare_torchvision_gpu.py.

A unit is what one node of ours computes: a convolution with the frozen norm, the addend and the ReLU that belong to it.
Its ReLU is stated apart from it, because the gradient that reaches a node of ours has passed the ReLU already: then a
rounding of a pre-activation cannot decide what flows back, and both sides differentiate the same function.
"""
from dataclasses import dataclass
from typing import Callable

import torch
import torch.nn.functional as F
from torchvision.ops.poolers import LevelMapper


@dataclass
class Unit:
    name: str  # of the value that it makes
    node: str  # of the node; several levels share one
    stage: str
    inputs: list
    run: Callable  # before the ReLU
    modules: list  # whose parameters it trains
    relu: bool = False
    losses: tuple = ()  # names of the numbers that run returns, for a loss

    def parameters(self):
        return [p for m in self.modules for p in m.parameters() if p.requires_grad]


def backbone_units(model, c):
    """Names of values: c0 … c3 for what the pyramid reads."""
    body, units = model.backbone.body, []
    folded = c["norm"] == "frozen-bn" or (c["norm"] == "bn" and not model.training)

    def conv_norm(name, norm_name, conv, norm, x, addend=None, relu=True, value=None):
        stage = "stem" if "layer" not in name else name.split(".")[2]
        inputs = [x] + [addend] * (addend is not None)
        if folded:
            units.append(Unit(value or name, name, stage, inputs,
                              lambda x, *a: norm(conv(x)) + a[0] if a else norm(conv(x)), [conv, norm], relu))
            return value or name
        units.append(Unit(name, name, stage, [x], lambda x: conv(x), [conv]))
        units.append(Unit(value or norm_name, norm_name, stage, [name] + inputs[1:],
                          lambda x, *a: norm(x) + a[0] if a else norm(x), [norm], relu))
        return value or norm_name

    p = "backbone.body."
    x = conv_norm(p + "conv1", p + "bn1", body.conv1, body.bn1, "image")
    units.append(Unit(p + "maxpool", p + "maxpool", "stem", [x], lambda x: F.max_pool2d(x, 3, 2, 1), []))
    x = p + "maxpool"
    for stage in range(4):
        blocks = body[f"layer{stage + 1}"]
        for i, block in enumerate(blocks):
            q = f"{p}layer{stage + 1}.{i}."
            shortcut = x
            if block.downsample is not None:
                shortcut = conv_norm(q + "downsample.0", q + "downsample.1", block.downsample[0], block.downsample[1],
                                     x, relu=False)
            convs = 3 if hasattr(block, "conv3") else 2
            for k in range(1, convs + 1):
                last = k == convs
                x = conv_norm(f"{q}conv{k}", f"{q}bn{k}", getattr(block, f"conv{k}"), getattr(block, f"bn{k}"), x,
                              shortcut if last else None,
                              value=f"c{stage}" if last and i == len(blocks) - 1 else None)
    return units


def pyramid_units(model):
    fpn, units = model.backbone.fpn, []
    for i in reversed(range(4)):
        inner, layer = fpn.inner_blocks[i][0], fpn.layer_blocks[i][0]
        name = f"backbone.fpn.inner_blocks.{i}.0"
        above = [f"backbone.fpn.inner_blocks.{i + 1}.0"] if i < 3 else []
        units.append(Unit(name, name, "fpn", [f"c{i}"] + above,
                          lambda x, *a, f=inner: f(x) + F.interpolate(a[0], size=x.shape[-2:], mode="nearest") if a
                          else f(x), [inner]))
        units.append(Unit(f"p{i}", f"backbone.fpn.layer_blocks.{i}.0", "fpn", [name], layer, [layer]))
    units.append(Unit("p4", "backbone.fpn.pool", "fpn", ["p3"], lambda x: F.max_pool2d(x, 1, 2, 0), []))
    return units


def rpn_units(model):
    head, levels = model.rpn.head, range(5)
    hidden = [f"rpn.head.conv.0.0.{l}" for l in levels]
    conv = head.conv[0][0]
    outputs = "rpn.head.bbox_pred"  # one node makes both
    return ([Unit(hidden[l], "rpn.head.conv.0.0", "rpn head", [f"p{l}"], conv, [conv], True) for l in levels] +
            [Unit(f"logits{l}", outputs, "rpn head", [hidden[l]], head.cls_logits, [head.cls_logits]) for l in levels] +
            [Unit(f"deltas{l}", outputs, "rpn head", [hidden[l]], head.bbox_pred, [head.bbox_pred]) for l in levels])


def pooled(name, pool, boxes):
    """RoIAlign of boxes (one tensor an image) over p0 … p3. The level of a RoI is decided in float whatever the
    precision, as it is an index; torchvision would guess the scales from the images, which a loose canvas misleads.
    """
    mapper = LevelMapper(2, 5, pool.canonical_scale, pool.canonical_level)

    def run(*features):
        pool.scales = [1 / 4, 1 / 8, 1 / 16, 1 / 32]
        pool.map_levels = lambda b: mapper([t.float() for t in b])
        return pool({str(l): f for l, f in enumerate(features)}, [b.to(wide(features[0])) for b in boxes], [])
    return Unit(name, name, "roi align", ["p0", "p1", "p2", "p3"], run, [])


def wide(t):
    """In which torchvision keeps boxes beside activations like t."""
    return torch.float64 if t.dtype == torch.float64 else torch.float32


def box_units(model, boxes):
    heads, p = model.roi_heads, "roi_heads.box_"
    head, out = heads.box_head, heads.box_predictor
    fc6, fc7, scores, deltas = p + "head.fc6", p + "head.fc7", p + "predictor.cls_score", p + "predictor.bbox_pred"
    return [pooled("box_roi_align", heads.box_roi_pool, boxes),
            Unit(fc6, fc6, "box head", ["box_roi_align"], lambda x: head.fc6(x.flatten(1)), [head.fc6], True),
            Unit(fc7, fc7, "box head", [fc6], head.fc7, [head.fc7], True),
            Unit(scores, scores, "box head", [fc7], out.cls_score, [out.cls_score]),
            Unit(deltas, deltas, "box head", [fc7], out.bbox_pred, [out.bbox_pred])]


def mask_units(model, boxes):
    heads = model.roi_heads
    units = [pooled("mask_roi_align", heads.mask_roi_pool, boxes)]
    x = "mask_roi_align"
    for i, block in enumerate(heads.mask_head):
        name = f"roi_heads.mask_head.{i}.0"
        units.append(Unit(name, name, "mask head", [x], block[0], [block[0]], True))
        x = name
    for name, relu in (("conv5_mask", True), ("mask_fcn_logits", False)):
        module = getattr(heads.mask_predictor, name)
        name = "roi_heads.mask_predictor." + name
        units.append(Unit(name, name, "mask head", [x], module, [module], relu))
        x = name
    return units
