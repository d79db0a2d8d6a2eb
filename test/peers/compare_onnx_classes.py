#!/usr/bin/env python3
"""Compares onnxruntime's probabilities of a classifier with ours.

  compare_onnx_classes.py --weights FILE PICTURE… [--build build]

`build/infer` prints our probabilities; onnxruntime is given the pictures'
bytes, and then, without preprocessing in the model, the tensor that these became: the same logits have to come out.
Exits 1 where a logit differs by more than the bound that float arithmetic gives: 1e-4 of the largest logit's size."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from compare_onnx import network_input, session
from PIL import Image

TOLERANCE = 1e-4


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weights", required=True)
    p.add_argument("pictures", nargs="+")
    p.add_argument("--build", default="build")
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = {kind: os.path.join(folder, kind + ".onnx") for kind in ("float", "uint8")}
        export = [os.path.join(o.build, "export"), o.weights, "--onnx"]
        subprocess.run([*export, model["float"]], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*export, model["uint8"], "--uint8"], check=True, stdout=subprocess.DEVNULL)
        seen = network_input(model["uint8"])
        plain, whole = session(model["float"]), session(model["uint8"], [seen])
        subprocess.run([os.path.join(o.build, "infer"), "--weights", o.weights, "--out",
                        os.path.join(folder, "out"), "--top", "100000", "--device", "cpu", *o.pictures], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(os.path.join(folder, "out", "classes.jsonl")) as f:
            lines = [json.loads(line) for line in f]
        worst = same = 0.0
        pictures = [np.asarray(Image.open(line["file"]).convert("RGB")) for line in lines]
        sizes = np.array([x.shape[:2] for x in pictures], np.int64)
        batch = np.zeros((len(pictures), *sizes.max(0), 3), np.uint8)
        for i, x in enumerate(pictures):
            batch[i, :x.shape[0], :x.shape[1]] = x
        found = dict(zip([x.name for x in whole.get_outputs()], whole.run(None, {"images": batch, "sizes": sizes})))
        again = dict(zip([x.name for x in plain.get_outputs()], plain.run(None, {"images": found[seen]})))
        size = np.abs(found["logits"]).max()
        for i, line in enumerate(lines):
            ids = [c["class"] for c in line["classes"]]
            ours = np.log([c["score"] for c in line["classes"]])
            first = min(c["class"] for x in lines for c in x["classes"])
            theirs = np.log(found["probabilities"][i][np.array(ids) - first])
            worst = max(worst, float(np.abs(ours - theirs).max()))
        same = float(np.abs(found["logits"] - again["logits"]).max())
    ok = worst <= TOLERANCE * max(size, 1) and same <= TOLERANCE * max(size, 1)
    print(f"{os.path.basename(os.path.dirname(o.weights))}: {len(lines)} images; largest logit {size:.3g}; largest "
          f"difference of a log probability {worst:.2g}, of a logit with and without preprocessing {same:.2g}"
          f"{'' if ok else '  DIFFERS'}")
    return not ok


if __name__ == "__main__":
    sys.exit(main())
