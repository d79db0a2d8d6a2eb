"""torchvision's MaskRCNN or FasterRCNN run on our canvas and by our sampling rule. Used by compare_torchvision.py and goldens.py.

It runs as it is, with two changes: its sampler draws by our keyed rule (base/rng.h) instead of torch.randperm, and its
constants have the float values of ours (1/9, 0.7, log(1000/16), eps).
"""
from unittest import mock

import numpy as np
import torch
from torchvision.models.detection import roi_heads

from torchvision_dump import RNG_ROI, RNG_RPN, KeyedSampler
from torchvision_model import f32

LOSSES = ["loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg", "loss_mask"]  # the last by a mask head


def targets_of(coco, info):
    """What torchvision's reference training makes of the annotations (ConvertCocoPolysToMask)."""
    label = {c: i + 1 for i, c in enumerate(sorted(coco.getCatIds()))}
    targets = []
    for s in info:
        anns = [a for a in coco.imgToAnns[s["id"]] if not a["iscrowd"]]
        boxes = torch.as_tensor([a["bbox"] for a in anns], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        boxes[:, 0::2].clamp_(min=0, max=s["w"])
        boxes[:, 1::2].clamp_(min=0, max=s["h"])
        keep = (boxes[:, 3] > boxes[:, 1]) & (boxes[:, 2] > boxes[:, 0])
        masks = [torch.from_numpy(coco.annToMask(a)) for a in anns]
        masks = torch.stack(masks) if masks else torch.zeros(0, s["h"], s["w"], dtype=torch.uint8)
        labels = torch.tensor([label[a["category_id"]] for a in anns], dtype=torch.int64)
        targets.append({"boxes": boxes[keep], "labels": labels[keep], "masks": masks[keep]})
    return targets


class Peer:
    """A model, and in `seen` what flowed between its parts in the last run.

    Inputs have info[i] (a dict with flip), canvas (h, w), keys() of the images' random numbers, and image(i, dtype).
    """

    def __init__(self, model, dtype):
        self.model, self.dtype, self.seen = model.to(dtype), dtype, {}
        rpn, heads, transform = model.rpn, model.roi_heads, model.transform
        for name, module in {"transform": transform, "body": model.backbone.body, "fpn": model.backbone,
                             "rpn_head": rpn.head, "rpn": rpn, "box_align": heads.box_roi_pool,
                             "box": heads.box_predictor, "mask_align": heads.mask_roi_pool,
                             "mask": heads.mask_predictor}.items():
            if module is not None:
                module.register_forward_hook(self.hook(name))
        heads.select_training_samples = self.remember("samples", heads.select_training_samples)
        rpn.box_coder.encode = self.remember("rpn_deltas", rpn.box_coder.encode)
        rpn.fg_bg_sampler = self.rpn_sampler = KeyedSampler(rpn.fg_bg_sampler, RNG_RPN)
        heads.fg_bg_sampler = self.roi_sampler = KeyedSampler(heads.fg_bg_sampler, RNG_ROI)
        self.assign, rpn.assign_targets_to_anchors = rpn.assign_targets_to_anchors, self.assign_in_dtype
        self.resize, transform.resize = transform.resize, self.resize_and_mirror
        transform.batch_images = self.batch_images

    def hook(self, name):
        return lambda module, inputs, output: self.seen.__setitem__(name, output)

    def remember(self, name, function):
        def call(*args):
            self.seen[name] = function(*args)
            return self.seen[name]
        return call

    def assign_in_dtype(self, *args):
        """Labels are float there, which would round the loss of double logits."""
        labels, boxes = self.assign(*args)
        return [l.to(self.dtype) for l in labels], [b.to(self.dtype) for b in boxes]

    def resize_and_mirror(self, image, target):
        flip = self.inputs.info[self.resized]["flip"]
        self.resized += 1
        if target is not None and flip:
            target["masks"] = target["masks"].flip(-1)
        image, target = self.resize(image, target)
        if target is not None:
            if flip:
                target["boxes"][:, [0, 2]] = image.shape[-1] - target["boxes"][:, [2, 0]]
            target["boxes"] = target["boxes"].to(self.dtype)
        return image, target

    def batch_images(self, images, size_divisible=32):
        out = images[0].new_zeros(len(images), 3, *self.inputs.canvas)
        for canvas, image, info in zip(out, images, self.inputs.info):
            # Mirrored after resizing, as ours; the reference training script mirrors before, which is the same image.
            canvas[:, :image.shape[1], :image.shape[2]] = image.flip(-1) if info["flip"] else image
        return out

    def run(self, inputs, targets=None):
        """Losses by name with targets, detections without."""
        self.inputs, self.resized = inputs, 0
        self.seen.clear()
        self.rpn_sampler.keys = self.roi_sampler.keys = inputs.keys()
        self.model.train(targets is not None)
        for pool in filter(None, [self.model.roi_heads.box_roi_pool, self.model.roi_heads.mask_roi_pool]):
            pool.scales = None
        smooth_l1, project = torch.nn.functional.smooth_l1_loss, roi_heads.project_masks_on_boxes
        masks = self.seen["mask_targets"] = []  # of each image

        def smooth_l1_f32(*args, beta, **more):
            return smooth_l1(*args, beta=f32(beta), **more)

        def project_and_keep(*args):
            masks.append(project(*args))
            return masks[-1]
        with mock.patch.object(torch.nn.functional, "smooth_l1_loss", smooth_l1_f32), \
             mock.patch.object(roi_heads, "project_masks_on_boxes", project_and_keep):
            return self.model([inputs.image(i, self.dtype) for i in range(len(inputs.info))], targets)

    def rois(self):
        """Labels, boxes, regression targets of the sampled RoIs, and their order: ours has the objects of each image
        first; torchvision has the order of the candidates."""
        boxes, _, labels, deltas = self.seen["samples"]
        offsets = np.cumsum([0] + [len(b) for b in boxes])
        order = torch.cat([torch.argsort((l == 0).int(), stable=True) + int(o) for l, o in zip(labels, offsets)])
        return torch.cat(labels)[order], torch.cat(boxes)[order], torch.cat(deltas)[order], order
