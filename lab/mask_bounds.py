"""What mask targets and pasting leave of the IoU of true masks in true boxes: mask_bounds.py ANNOTATIONS SIDE...

Each object's mask becomes a target of 28 x 28 on an image whose shorter side is SIDE, as torchvision makes it (RoIAlign
not aligned) or aligned, and is pasted back over the box in whole pixels, as torchvision does, or over the box as it is,
as detectron2 does. Masks have to be RLE with lists of counts. Needs torchvision.
"""
import json
import sys

import torch
from torch.nn.functional import grid_sample, interpolate
from torchvision.models.detection.roi_heads import paste_masks_in_image
from torchvision.ops import roi_align

TARGET = 28


def decoded(rle):
    height, width = rle["size"]
    bits = torch.zeros(height * width)
    at, value = 0, 0
    for count in rle["counts"]:
        bits[at : at + count] = value
        at, value = at + count, 1 - value
    return bits.reshape(width, height).T.contiguous()


def pasted(target, box, shape, exact):
    if not exact:
        return paste_masks_in_image(target[None, None], box[None], shape)[0, 0]
    y, x = (
        (torch.arange(n) + 0.5 - low) / (high - low) * 2 - 1 for n, low, high in zip(shape, box[[1, 0]], box[[3, 2]])
    )
    grid = torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1], -1)
    return grid_sample(target[None, None], grid[None], align_corners=False)[0, 0]


def iou(mask, box, side, aligned, exact):
    scale = side / min(mask.shape)
    resized = interpolate(mask[None, None], scale_factor=scale, mode="nearest")
    roi = torch.cat([torch.zeros(1), box * scale])[None]
    target = roi_align(resized, roi, (TARGET, TARGET), 1.0, -1, aligned=aligned)[0, 0]
    got, want = pasted(target, box, mask.shape, exact) >= 0.5, mask > 0
    return ((got & want).sum() / (got | want).sum()).item()


def main():
    annotations, *sides = sys.argv[1:]
    with open(annotations, encoding="utf-8") as f:
        objects = json.load(f)["annotations"]
    masks = [decoded(o["segmentation"]) for o in objects]
    boxes = [torch.tensor([o["bbox"][0], o["bbox"][1], o["bbox"][0] + o["bbox"][2], o["bbox"][1] + o["bbox"][3]]).float()
             for o in objects]
    print("side  target       pasted   mean IoU  > 0.9  > 0.95")
    for side in map(int, sides):
        for aligned in (False, True):
            for exact in (False, True):
                ious = torch.tensor([iou(m, b, side, aligned, exact) for m, b in zip(masks, boxes)])
                print(f"{side:4}  {'aligned' if aligned else 'torchvision':11}  {'exact' if exact else 'rounded':7}  "
                      f"{ious.mean():8.3f}  {(ious > 0.9).float().mean():5.2f}  {(ious > 0.95).float().mean():6.2f}",
                      flush=True)


main()
