#!/usr/bin/env python3
"""Times ours and onnxruntime on a CPU in turns: one image at a time, from bytes to detections and masks.

  bench_onnx.py --weights FILE --data DIR [--split val] [--rounds 3] [--images 2] [--set FIELD=VALUE] [--build build]

Ours is `build/infer --benchmark` (pasting included), onnxruntime's the model of `build/export --uint8` (without pasting
or decoding), with as many threads. Prints one JSON line: medians over the rounds, in seconds an image, and their
ratio."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime
from PIL import Image


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weights", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--split", default="val")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--images", type=int, default=2)
    p.add_argument("--set", default="min_score=0")
    p.add_argument("--build", default="build")
    o = p.parse_args()
    with open(os.path.join(o.data, "annotations", f"instances_{o.split}.json")) as f:
        names = [i["file_name"] for i in json.load(f)["images"]][:o.images]
    pictures = [np.asarray(Image.open(os.path.join(o.data, o.split, n)).convert("RGB"))[None] for n in names]
    times = {"ours": [], "onnxruntime": []}
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.onnx")
        subprocess.run([os.path.join(o.build, "export"), o.weights, "--set", o.set, "--onnx", model, "--uint8"], check=True,
                       stdout=subprocess.DEVNULL)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = os.cpu_count()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        session.run(None, {"images": pictures[0], "sizes": np.array([pictures[0].shape[1:3]])})
        for _ in range(o.rounds):
            for x in pictures:
                begun = time.perf_counter()
                session.run(None, {"images": x, "sizes": np.array([x.shape[1:3]])})
                times["onnxruntime"].append(time.perf_counter() - begun)
            said = subprocess.run([os.path.join(o.build, "infer"), "--weights", o.weights, "--set", o.set, "--data", o.data,
                                   "--split", o.split, "--limit", str(o.images), "--batch", "1", "--device", "cpu",
                                   f"--benchmark={o.images}"], check=True, capture_output=True, text=True)
            ours = json.loads(said.stdout.strip().splitlines()[-1])
            times["ours"].append(ours["step_ms"] / 1e3)
    median = {k: round(statistics.median(v), 3) for k, v in times.items()}
    print(json.dumps({"bench": "onnx", "model": os.path.basename(o.weights), "images": o.images, "rounds": o.rounds,
                      "seconds_image": median, "ratio": round(median["ours"] / median["onnxruntime"], 2),
                      "onnxruntime": onnxruntime.__version__, "device": ours["gpu"], "canvas_h": ours["canvas_h"],
                      "canvas_w": ours["canvas_w"], "date": ours["date"], "commit": ours["commit"],
                      "machine": ours["machine"]}))


if __name__ == "__main__":
    sys.exit(main())
