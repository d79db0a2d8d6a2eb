"""Weights to and from torchvision, as files: what torch.save and safetensors write must give ./infer the same model,
and what ./train writes must load with load_state_dict(strict=True).

    make && python3 test/peers/compare_weights.py

Needs torch, torchvision 0.26, safetensors and pycocotools. In: a Mask R-CNN of torchvision's with random weights is
saved as a zip .pth, as a .pth of the format before PyTorch 1.6 under the names of 2019, as a training checkpoint of
DataParallel and as safetensors; ./infer must find the same in all of them, to the byte, and what torchvision finds. A
ResNet for classification must start ./train --weights. Out: a run with each norm, resumed on the way. Prints a line a
check; exits 1 if any failed.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision
from PIL import Image
from pycocotools import mask as rle
from safetensors.torch import load_file, save_file

from torchvision_model import SMALL, build, read_checkpoint, spread_outputs

OLDER = [(r"^backbone\.fpn\.(inner|layer)_blocks\.(\d)\.0\.", r"backbone.fpn.\1_blocks.\2."),
         (r"^rpn\.head\.conv\.0\.0\.", "rpn.head.conv."),
         (r"^roi_heads\.mask_head\.(\d)\.0\.", lambda m: f"roi_heads.mask_head.mask_fcn{int(m[1]) + 1}.")]
failures = 0


def check(what, ok, detail=""):
    global failures
    failures += not ok
    print(f"  {'ok ' if ok else 'BAD'} {what}{': ' if detail else ''}{detail}", flush=True)


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        print(f"  {' '.join(map(str, command))}\n{done.stderr}")
    return done


def older_names(state):
    """As torchvision had them before its modules' version 2; _metadata, which says the version, is left behind."""
    out = {}
    for name, t in state.items():
        for pattern, to in OLDER:
            name = re.sub(pattern, to, name)
        out[name] = t
    return out


# ---- in -----------------------------------------------------------------------------------------------------------

def infer(args, weights, image, out, size):
    done = run("./infer", "--weights", weights, image, "--out", out, "--size", size, "--overlays", 0, "--device", "cpu")
    check(f"./infer reads {os.path.basename(weights)}", done.returncode == 0, done.stderr.splitlines()[0])
    with open(os.path.join(out, "detections.json")) as f:
        return f.read()


def check_detections(text, model, image, size):
    """Against torchvision's on the CPU, both in float, whose rounding a network of 50 layers carries to about 1e-6 of a
    score and of the image's side; masks may differ where a probability is 0.5 within that."""
    pixels = torch.from_numpy(np.array(Image.open(image).convert("RGB"))).permute(2, 0, 1).float() / 255
    with torch.no_grad():
        want = model.eval()([pixels])[0]
    got = json.loads(text)
    check("as many detections as torchvision", len(got) == len(want["labels"]) > 0, f"{len(got)}")
    if len(got) != len(want["labels"]):
        return
    check("labels", [g["category_id"] for g in got] == want["labels"].tolist())
    scores = np.abs(np.array([g["score"] for g in got]) - want["scores"].numpy()).max()
    check("scores", scores < 1e-5, f"{scores:.1e}")
    boxes = np.array([g["bbox"] for g in got])
    boxes[:, 2:] += boxes[:, :2]
    distance = np.abs(boxes - want["boxes"].numpy()).max() / max(pixels.shape[1:])
    check("boxes", distance < 1e-5, f"{distance:.1e}")
    if "masks" not in want:
        check("no masks", not any("segmentation" in g for g in got))
        return
    masks = np.stack([rle.decode(g["segmentation"]) for g in got])
    theirs = (want["masks"][:, 0] > 0.5).numpy()
    differ = (masks != theirs).sum()
    check("masks", differ <= 1e-4 * theirs.sum(), f"{differ} of {theirs.sum()} pixels differ")


def weights_in(args, folder):
    print("torchvision's Mask R-CNN", flush=True)
    photo = os.path.join(args.data, "val2017", sorted(os.listdir(os.path.join(args.data, "val2017")))[0])
    image = os.path.join(folder, "photo.png")  # decoders of JPEG differ in the last bit
    Image.open(photo).convert("RGB").save(image)
    config = dict(SMALL, classes=91, norm_eps=0.0)  # eps of the published weights: overwrite_eps(model, 0.0)
    torch.manual_seed(1)
    model = build(config)
    spread_outputs(model, config)
    state = model.state_dict()

    def path(name):
        return os.path.join(folder, name)

    torch.save(state, path("zip.pth"))
    torch.save(older_names(state), path("legacy-older-names.pth"), _use_new_zipfile_serialization=False)
    nested = {"model": {"module." + k: v for k, v in older_names(state).items()}, "epoch": 3,
              "optimizer": torch.optim.SGD(model.parameters(), 0.1, 0.9).state_dict()}
    torch.save(nested, path("training.pth"))
    save_file({k: v.contiguous() for k, v in state.items()}, path("model.safetensors"))
    found = {name: infer(args, path(name), image, path("found"), config["size"])
             for name in ["model.safetensors", "zip.pth", "legacy-older-names.pth", "training.pth"]}
    for name, text in found.items():
        check(f"{name} finds the same as model.safetensors", text == found["model.safetensors"])
    check_detections(found["zip.pth"], model, image, config["size"])
    check_refusals(state, folder, image)
    print("torchvision's Faster R-CNN", flush=True)
    torch.manual_seed(3)
    boxes = build(dict(config, masks=False))
    spread_outputs(boxes, config)
    torch.save(boxes.state_dict(), path("boxes.pth"))
    check_detections(infer(args, path("boxes.pth"), image, path("found"), config["size"]), boxes, image, config["size"])


def check_refusals(state, folder, image):
    path = os.path.join(folder, "refused.pth")

    def refused(what, why):
        torch.save(what, path)
        done = subprocess.run(["./infer", "--weights", path, image, "--out", os.path.join(folder, "found"), "--size",
                               "64"], capture_output=True, text=True)
        return done.returncode == 2 and all(w in done.stderr for w in why), done.stderr.splitlines()[-1]

    check("a pickled module is refused", *refused(torchvision.models.resnet18(), ["which is not executed"]))
    other = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None)
    check("RetinaNet is refused", *refused(other.state_dict(), ["roi_heads.box_head.fc6.weight is missing"]))
    state = dict(state)
    del state["rpn.head.cls_logits.bias"]
    state["rpn.head.bbox_pred.bias"] = torch.zeros(7)
    state["odd.weight"] = torch.zeros(1)
    check("what does not fit is named", *refused(state, ["missing rpn.head.cls_logits.bias;", "unexpected odd.weight;",
                                                         "misshaped rpn.head.bbox_pred.bias (F32 [7] instead of [12])"]))


# ---- out ----------------------------------------------------------------------------------------------------------

def train(shapes, out, *options):
    return run("./train", "--data", shapes, "--out", out, "--size", 64, "--batch", 2, "--eval-every", -1, "--device",
               "cpu", *options).returncode == 0


def load_strictly(out):
    """The model of OUT/model.safetensors in torchvision; None where a name or a shape is not torchvision's."""
    path = os.path.join(out, "model.safetensors")
    model = build(read_checkpoint(path)[0])
    try:
        model.load_state_dict(load_file(path), strict=True)
    except RuntimeError as e:
        print(e)
        return None
    return model


def weights_out(args, shapes, folder):
    print("checkpoints of ours", flush=True)
    for model_name, norm in [("tiny", "frozen-bn"), ("tiny", "bn"), ("tiny", "gn"), ("fasterrcnn-tiny", "gn")]:
        out = os.path.join(folder, model_name + norm)
        options = ["--model", model_name, "--norm", norm, "--iters", 3]
        ran = train(shapes, out, *options, "--stop-after", 2) and train(shapes, out, *options, "--resume")
        model = load_strictly(out) if ran else None
        check(f"{model_name}, {norm}: load_state_dict(strict=True)", model is not None)
        counts = {m.num_batches_tracked.item() for m in (model.modules() if model else [])
                  if isinstance(m, torch.nn.BatchNorm2d)}
        check(f"{norm}: num_batches_tracked", counts == ({3} if norm == "bn" else set()), str(counts))


def backbone(args, shapes, folder):
    print("torchvision's ResNet as backbone", flush=True)
    torch.manual_seed(2)
    resnet = torchvision.models.resnet18().state_dict()
    path, out = os.path.join(folder, "resnet18.pth"), os.path.join(folder, "from-resnet18")
    torch.save(resnet, path, _use_new_zipfile_serialization=False)
    check("./train starts from it", train(shapes, out, "--weights", path, "--model", "maskrcnn-r18-fpn", "--iters", 1))
    model = load_strictly(out)
    check("load_state_dict(strict=True)", model is not None)
    if not model:
        return
    state, frozen, trained = model.state_dict(), [], []
    for name, t in resnet.items():
        if not name.startswith("fc.") and not name.endswith("num_batches_tracked"):
            same = torch.equal(state["backbone.body." + name], t)
            moving = re.match(r"layer[234].*(conv\d|downsample\.0)", name)
            (trained if moving else frozen).append(same if not moving else
                                                   torch.allclose(state["backbone.body." + name], t, atol=0.1))
    check("frozen tensors are the file's, trained ones near them", all(frozen) and all(trained),
          f"{len(frozen)} and {len(trained)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data/coco", help="for one image")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shapes = os.path.join(folder, "shapes")
        run("build/shapes", "--out", shapes, "--train", 8, "--val", 2, "--size", 64)
        weights_out(args, shapes, folder)
        backbone(args, shapes, folder)
        weights_in(args, folder)
    print(f"{failures or 'no'} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
