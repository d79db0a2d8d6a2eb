#!/usr/bin/env python3
"""Compares onnxruntime's detections with ours, from the network's input on and from bytes on.

  compare_onnx.py --weights FILE --data DIR [--split val] [--images 40] [--batches 1,4] [--sizes 128,192,256]

For every size and batch: `build/dump` computes our detections of the images, `build/export` writes the model, and
onnxruntime is given the tensor that our network read, or with --uint8 the decoded pictures. Prints a line for each and
exits 1 where detections differ by more than 1e-4 in score, 0.05 pixels in a corner, or 0.99 in the IoU of the pasted
masks, or in number. Needs onnx, onnxruntime, numpy and safetensors."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from safetensors import safe_open
from safetensors.numpy import load_file

SCORE, CORNER, IOU = 1e-4, 0.05, 0.99


def config_of(weights):
    with safe_open(weights, "np") as f:
        masks = any("mask_predictor" in k for k in f.keys())
        return dict({k[7:]: v for k, v in f.metadata().items() if k.startswith("config.")}, masks=masks)


def session(path, outputs=()):
    """A session on the CPU with two threads; the model is checked first, and these values become outputs, too."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    assert {n.domain for n in model.graph.node} == {""}, "only standard operators"
    for name in outputs:
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def network_input(path):
    """The value that the first convolution reads."""
    nodes = onnx.load(path).graph.node
    return next(n.input[0] for n in nodes if n.op_type == "Conv" and n.input[1] != "luminance")


def subsets(data, split, folder, count, batch):
    """A data set of `batch` images each; yields their names."""
    with open(os.path.join(data, "annotations", f"instances_{split}.json")) as f:
        full = json.load(f)
    pictures = os.path.abspath(os.path.join(data, split))
    os.makedirs(os.path.join(folder, "annotations"), exist_ok=True)
    for first in range(0, min(count, len(full["images"])), batch):
        name = f"b{batch}_{first}"
        some = full["images"][first:first + batch]
        if len(some) < batch:
            break
        ids = {i["id"] for i in some}
        part = dict(full, images=some, annotations=[a for a in full["annotations"] if a["image_id"] in ids])
        with open(os.path.join(folder, "annotations", f"instances_{name}.json"), "w") as f:
            json.dump(part, f)
        link = os.path.join(folder, name)
        if not os.path.islink(link):
            os.symlink(pictures, link)
        yield name


def ours(dump, image, row):
    """Our detections of an image of the batch: box, score, label, mask probabilities."""
    count = dump["detections.count"]
    capacity = len(dump["detections.score"]) // len(count)
    first, n = image * capacity, count[image]
    return (dump["detections.box"].reshape(-1, 4)[first:first + n], dump["detections.score"].reshape(-1)[first:first + n],
            dump["label"][first:first + n], np.arange(row, row + n))


def differences(a, b):
    """The largest differences of score and corner between detections, each with the nearest of the same label."""
    score = corner = 0.0
    pairs, taken = [], np.zeros(len(b[0]), bool)
    for i in range(len(a[0])):
        far = np.abs(a[0][i] - b[0]).max(1) + np.where((b[2] == a[2][i]) & ~taken, 0, 1e9) + np.abs(a[1][i] - b[1]) * 1e3
        j = int(far.argmin()) if len(far) else -1
        if j < 0 or far[j] > 1e8:
            return np.inf, np.inf, pairs
        taken[j] = True
        pairs.append((i, j))
        score = max(score, float(abs(a[1][i] - b[1][j])))
        corner = max(corner, float(np.abs(a[0][i] - b[0][j]).max()))
    return score, corner, pairs


# Ours, and the list of nodes that makes it. (RoIs of nearly equal scores may change places, so that their rows differ.)
STAGES = {f"p{i}": f"backbone.fpn.layer_blocks.{i}.0" for i in range(4)}


def stage_values(path):
    """The value of the model in which each stage ends."""
    last = {n.output[0].rsplit("/", 1)[0]: n.output[0] for n in onnx.load(path).graph.node}
    return {stage: last[scope] for stage, scope in STAGES.items() if scope in last}


def stage_differences(dump, found, values, worst):
    """The largest difference of each stage, as a share of its largest value."""
    for stage, value in values.items():
        a, b = dump[stage], found[value]
        b = b.transpose(0, 2, 3, 1) if b.ndim == 4 else b
        a = a.reshape(a.shape[0], -1) if b.ndim == 2 else a
        if a.shape == b.shape and a.size:
            worst[stage] = max(worst.get(stage, 0), float(np.abs(a - b).max() / np.abs(a).max()))


class Totals:
    def __init__(self):
        self.images = self.found = self.other_count = 0
        self.score = self.corner = 0.0
        self.iou = 1.0
        self.pixels = self.pixels_off = 0
        self.largest_pixel = 0.0

    def line(self):
        text = (f"{self.images} images, {self.found} detections; other count: {self.other_count}; largest difference: "
                f"score {self.score:.2g}, corner {self.corner:.2g} px; least mask IoU {self.iou:.4f}")
        if self.pixels:
            text += (f"; input values that differ by more than 1e-4: {self.pixels_off / self.pixels:.2%}, "
                     f"at most {self.largest_pixel:.2g}")
        return text

    def agrees(self):
        return not self.other_count and self.score <= SCORE and self.corner <= CORNER and self.iou >= IOU


def refuses_wrong_sizes(session, images):
    """Whether the model ends, and says why, where `sizes` names rows that a picture of 64 x 96 has not, or none."""
    for sizes in (65, 96), (64, 97), (0, 96):
        try:
            session.run(None, {"images": images, "sizes": np.array([sizes], np.int64)})
            return False
        except Exception as e:
            if "sizes_are_at_most_those_of_images" not in str(e):
                raise
    return True


def compare_batch(dump, run, paste, feed, bytes_in, totals, classes):
    dump["label"] = dump["detections.index"] % classes
    boxes, labels, scores, masks, count = run(feed)
    row = 0
    for i, (_, _, h, w, rh, rw, _, _) in enumerate(dump["info"]):
        a = ours(dump, i, row)
        n = int(count[i])
        ratio = np.array([w / rw, h / rh, w / rw, h / rh])
        b = (boxes[i, :n] / ratio if bytes_in else boxes[i, :n], scores[i, :n], labels[i, :n])
        totals.images += 1
        totals.found += len(a[0])
        totals.other_count += n != len(a[0])
        assert not boxes[i, n:].any() and not scores[i, n:].any() and not labels[i, n:].any()
        score, corner, pairs = differences(a, b)
        totals.score, totals.corner = max(totals.score, score), max(totals.corner, corner)
        if paste and n:
            pasted = paste.run(None, {"boxes": (b[0] * ratio).astype(np.float32), "masks": masks[i, :n],
                                      "size": np.array([h, w], np.int64)})[0]
            for j, k in pairs:
                mine = dump[f"mask.{row + j}"]
                both, either = (mine & pasted[k]).sum(), ((mine != 0) | pasted[k]).sum()
                totals.iou = min(totals.iou, both / either if either else 1.0)
        row += len(a[0])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weights", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--split", default="val")
    p.add_argument("--images", type=int, default=40)
    p.add_argument("--batches", default="1,4")
    p.add_argument("--sizes", default="128,192,256")
    p.add_argument("--set", default="", help="fields of the configuration: FIELD=VALUE …")
    p.add_argument("--stages", action="store_true", help="also tell how far the values in between differ")
    p.add_argument("--build", default="build")
    o = p.parse_args()
    config = config_of(o.weights)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for size in map(int, o.sizes.split(",")):
            fields = ["--size", str(size)] + (["--set", o.set] if o.set else [])
            model = {kind: os.path.join(folder, f"{kind}{size}.onnx") for kind in ("float", "uint8", "paste")}
            export = [os.path.join(o.build, "export"), o.weights, *fields, "--onnx"]
            masks = config["masks"]
            subprocess.run([*export, model["float"], *(["--paste", model["paste"]] if masks else [])], check=True,
                           stdout=subprocess.DEVNULL)
            subprocess.run([*export, model["uint8"], "--uint8"], check=True, stdout=subprocess.DEVNULL)
            seen = network_input(model["uint8"])
            values, worst = stage_values(model["float"]) if o.stages else {}, {}
            run = {"float": session(model["float"], values.values()), "uint8": session(model["uint8"], [seen])}
            paste = session(model["paste"]) if masks else None
            for kind, empty in ("float", np.zeros((1, 3, 64, 96), np.float32)), ("uint8", np.zeros((1, 64, 96, 3), np.uint8)):
                if not refuses_wrong_sizes(run[kind], empty):
                    bad += 1
                    print(f"size {size}, {kind}: wrong sizes are not refused  DIFFERS")
            for batch in map(int, o.batches.split(",")):
                totals = {"float": Totals(), "uint8": Totals()}
                for name in subsets(o.data, o.split, folder, o.images, batch):
                    out = os.path.join(folder, "dump.safetensors")
                    subprocess.run([os.path.join(o.build, "dump"), "--weights", o.weights, *fields, "--data", folder, "--split", name,
                                    "--batch", str(batch), "--device", "cpu", "--out", out], check=True,
                                   stderr=subprocess.DEVNULL)
                    dump = load_file(out)
                    images = np.ascontiguousarray(dump["image"].transpose(0, 3, 1, 2))
                    sizes = dump["info"][:, 4:6]
                    rgb = images[:, ::-1] if config.get("bgr") in ("true", "1") else images

                    def given(r, inputs):
                        found = dict(zip([x.name for x in r.get_outputs()], r.run(None, inputs)))
                        if seen in found:
                            t = totals["uint8"]
                            h, w = images.shape[2:]
                            off = np.abs(found[seen][:, :, :h, :w] - images[:, :, :found[seen].shape[2], :found[seen].shape[3]])
                            t.pixels += off.size
                            t.pixels_off += int((off > 1e-4).sum())
                            t.largest_pixel = max(t.largest_pixel, float(off.max()))
                        if values and r is run["float"]:
                            stage_differences(dump, found, values, worst)
                        return [found.get(k) for k in ("boxes", "labels", "scores", "masks", "count")]

                    compare_batch(dump, lambda f: given(run["float"], f), paste,
                                  {"images": np.ascontiguousarray(rgb), "sizes": sizes}, False, totals["float"],
                                  int(config.get("classes", 91)))
                    h, w = dump["info"][:, 2].max(), dump["info"][:, 3].max()
                    pictures = np.full((batch, h, w, 3), 77, np.uint8)
                    for i, (_, at, ih, iw, *_) in enumerate(dump["info"]):
                        pictures[i, :ih, :iw] = dump["bytes"][at:at + ih * iw * 3].reshape(ih, iw, 3)
                    compare_batch(dump, lambda f: given(run["uint8"], f), paste,
                                  {"images": pictures, "sizes": dump["info"][:, 2:4]}, True, totals["uint8"],
                                  int(config.get("classes", 91)))
                for stage, share in worst.items():
                    print(f"size {size}, batch {batch}, {stage}: {share:.2g} of the largest value")
                for kind, t in totals.items():
                    agrees = t.agrees()
                    bad += kind == "float" and not agrees
                    print(f"size {size}, batch {batch}, {kind}: {t.line()}{'' if agrees else '  DIFFERS'}", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
