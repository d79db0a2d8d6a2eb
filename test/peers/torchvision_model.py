"""torchvision's MaskRCNN, or FasterRCNN where `masks` is false, from a configuration of ours (models/config.c), and its weights to and from our checkpoints.
Used by compare_torchvision.py.
"""
import json
import math

import numpy as np
import torch
import torchvision
from safetensors import safe_open
from safetensors.torch import save_file
from torchvision.models.detection import FasterRCNN, MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.ops import FrozenBatchNorm2d, MultiScaleRoIAlign

# ---- configuration: models/config.c's fields, torchvision's values ------------------------------------------------

R50 = dict(size=800, max_size=1333, mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225], depth=50, width=64,
           norm="frozen-bn", norm_groups=32, norm_eps=1e-5, trainable_layers=3, fpn_channels=256,
           anchor_size=[32, 64, 128, 256, 512], rpn_batch=256, rpn_positive=0.5, rpn_pre_nms_train=2000,
           rpn_pre_nms_test=1000, rpn_post_nms_train=2000, rpn_post_nms_test=1000, box_dim=1024, roi_high=0.5,
           roi_low=0.5, roi_batch=512, roi_positive=0.25, roi_canonical_size=224, mask_dim=256, mask_layers=4,
           min_score=0.05, nms=0.5, detections=100, classes=81)
SMALL = dict(R50, size=256, max_size=426)
TINY = dict(R50, size=128, max_size=256, depth=10, width=24, norm="gn", norm_groups=8, trainable_layers=5,
            fpn_channels=48, anchor_size=[12, 24, 48, 96, 192], rpn_batch=128, rpn_pre_nms_train=200,
            rpn_pre_nms_test=200, rpn_post_nms_train=200, rpn_post_nms_test=100, box_dim=192, roi_batch=48,
            roi_canonical_size=56, mask_dim=48, mask_layers=2)
BLOCKS = {10: [1, 1, 1, 1], 18: [2, 2, 2, 2], 34: [3, 4, 6, 3], 50: [3, 4, 6, 3], 101: [3, 4, 23, 3]}


def f32(x):
    """The value that a float constant of ours has."""
    return float(np.float32(x))


def norm_layer(c):
    if c["norm"] == "gn":
        return lambda n: torch.nn.GroupNorm(c["norm_groups"], n, eps=f32(c["norm_eps"]))
    if c["norm"] == "bn":
        return lambda n: torch.nn.BatchNorm2d(n, eps=f32(c["norm_eps"]), momentum=f32(0.1))
    return lambda n: FrozenBatchNorm2d(n, eps=f32(c["norm_eps"]))


def resnet(c):
    """torchvision's ResNet with our width and depth, which its constructor does not offer."""
    block, norm, width = Bottleneck if c["depth"] >= 50 else BasicBlock, norm_layer(c), c["width"]
    r = ResNet(block, BLOCKS[c["depth"]], norm_layer=norm)
    r.inplanes = width
    r.conv1, r.bn1 = torch.nn.Conv2d(3, width, 7, 2, 3, bias=False), norm(width)
    for i, n in enumerate(BLOCKS[c["depth"]]):
        setattr(r, f"layer{i + 1}", r._make_layer(block, width << i, n, stride=2 if i else 1))
    return r


def has_masks(c):
    return c.get("masks", True)


def build(c):
    body = resnet(c)
    expansion = 4 if c["depth"] >= 50 else 1
    body.inplanes = 8 * c["width"] * expansion  # what the extractor derives the channels of the stages from
    backbone = _resnet_fpn_extractor(body, c["trainable_layers"])
    channels = c["fpn_channels"]
    if channels != 256:  # the extractor's fixed width
        backbone.fpn = torchvision.ops.FeaturePyramidNetwork(
            [c["width"] * expansion << i for i in range(4)], channels, backbone.fpn.extra_blocks)
        backbone.out_channels = channels
    levels, scale = ["0", "1", "2", "3"], int(c["roi_canonical_size"])
    masks = dict(mask_roi_pool=MultiScaleRoIAlign(levels, 14, 2, canonical_scale=scale),
                 mask_head=MaskRCNNHeads(channels, [c["mask_dim"]] * c["mask_layers"], 1),
                 mask_predictor=MaskRCNNPredictor(c["mask_dim"], c["mask_dim"], c["classes"])) if has_masks(c) else {}
    model = (MaskRCNN if masks else FasterRCNN)(
        backbone, min_size=c["size"], max_size=c["max_size"], image_mean=[f32(x) for x in c["mean"]],
        image_std=[f32(x) for x in c["std"]],
        rpn_anchor_generator=AnchorGenerator(tuple((int(s),) for s in c["anchor_size"]), ((0.5, 1.0, 2.0),) * 5),
        rpn_pre_nms_top_n_train=c["rpn_pre_nms_train"], rpn_pre_nms_top_n_test=c["rpn_pre_nms_test"],
        rpn_post_nms_top_n_train=c["rpn_post_nms_train"], rpn_post_nms_top_n_test=c["rpn_post_nms_test"],
        rpn_nms_thresh=f32(0.7), rpn_fg_iou_thresh=f32(0.7), rpn_bg_iou_thresh=f32(0.3),
        rpn_batch_size_per_image=c["rpn_batch"], rpn_positive_fraction=c["rpn_positive"],
        box_roi_pool=MultiScaleRoIAlign(levels, 7, 2, canonical_scale=scale),
        box_head=TwoMLPHead(channels * 49, c["box_dim"]), box_predictor=FastRCNNPredictor(c["box_dim"], c["classes"]),
        box_score_thresh=f32(c["min_score"]), box_nms_thresh=f32(c["nms"]), box_detections_per_img=c["detections"],
        box_fg_iou_thresh=f32(c["roi_high"]), box_bg_iou_thresh=f32(c["roi_low"]),
        box_batch_size_per_image=c["roi_batch"], box_positive_fraction=c["roi_positive"], **masks)
    for coder in (model.rpn.box_coder, model.roi_heads.box_coder):
        coder.bbox_xform_clip = f32(math.log(1000 / 16))
    return model


OUTPUTS = {"rpn.head.cls_logits": 1.5, "rpn.head.bbox_pred": 0.3, "roi_heads.box_predictor.cls_score": 2.0,
           "roi_heads.box_predictor.bbox_pred": 1.0, "roi_heads.mask_predictor.mask_fcn_logits": 1.0}


def output_gains(model, images):
    """By what the weights of each output layer have to be multiplied so that logits and deltas have the standard
    deviation above, a spread that decides something."""
    names = [name for name in OUTPUTS if model.roi_heads.has_mask() or "mask" not in name]
    seen, hooks = {name: [] for name in names}, []
    for name in names:
        hooks.append(model.get_submodule(name).register_forward_hook(
            lambda module, _, y, outputs=seen[name]: outputs.append(y.flatten())))
    model.eval()
    threshold, model.roi_heads.score_thresh = model.roi_heads.score_thresh, -1.0  # the masks must run, too
    with torch.no_grad():
        model(images)
    model.roi_heads.score_thresh = threshold
    for hook in hooks:
        hook.remove()
    return {name: OUTPUTS[name] / torch.cat(seen[name]).std() for name in names}


def spread_outputs(model, c):
    """Random norms; output layers scaled on noise."""
    with torch.no_grad():
        for name, t in list(model.named_parameters()) + list(model.named_buffers()):
            if ".bn" in name or ".downsample.1." in name:
                if name.endswith(("weight", "running_var")):
                    t.uniform_(0.5, 1.0)
                elif name.endswith(("bias", "running_mean")):
                    t.uniform_(-0.2, 0.2)
        noise = torch.rand(1, 3, 24, 32).to(next(model.parameters()).device)
        noise = torch.nn.functional.interpolate(noise, size=(c["size"], c["size"] * 4 // 3))
        for name, gain in output_gains(model, [noise[0]]).items():
            model.get_submodule(name).weight *= gain


def metadata(c, categories):
    """Of a checkpoint of ours: engine/state.h."""
    meta = {"format": "maskrcnn.c 1", "categories": json.dumps(categories)}
    if not has_masks(c):
        meta["model"] = "fasterrcnn"
    for key, value in c.items():
        if key == "masks":
            continue
        meta["config." + key] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return meta


def write_checkpoint(model, c, categories, path):
    tensors = {k: v.float().cpu().contiguous() for k, v in model.state_dict().items() if not k.endswith("batches_tracked")}
    save_file(tensors, path, metadata(c, categories))


def read_checkpoint(path):
    """Configuration and tensors of a checkpoint of ours."""
    with safe_open(path, "pt") as f:
        text = {k[7:]: v for k, v in f.metadata().items() if k.startswith("config.")}
        tensors = {k: f.get_tensor(k) for k in f.keys() if not k.startswith("momentum.")}
        masks = f.metadata().get("model") != "fasterrcnn"
    parsers = {str: str, int: int, float: float, list: lambda t: [float(x) for x in t.split(",")]}
    return {k: parsers[type(v)](text[k]) for k, v in R50.items()} | {"masks": masks}, tensors
