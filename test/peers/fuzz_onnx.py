#!/usr/bin/env python3
"""Exports random configurations as ONNX and compares what onnxruntime finds with what we find.

  fuzz_onnx.py --data DIR [--cases 10] [--seed 1] [--build build]

DIR: a COCO data set such as build/shapes makes. Each case trains one step of a small network with random fields, and is
checked, shape-inferred and compared by compare_onnx.py. Prints the fields of a case that fails, and exits 1."""
import argparse
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def case(r):
    conventions = r.choice(["own", "torchvision", "detectron2", "mlperf"])
    masks = r.random() < 0.7
    args = ["--model", "tiny" if masks else "fasterrcnn-r18-fpn", "--conventions", conventions]
    args += ["--norm", r.choice(["gn", "bn", "syncbn"])]
    fields = {"width": 8 * r.randint(1, 3), "norm_groups": r.choice([1, 2, 4, 8]), "fpn_channels": r.randint(5, 40),
              "box_dim": r.randint(8, 64), "box_pool": r.randint(3, 9), "roi_sampling": r.randint(0, 3),
              "roi_aligned": r.choice(["true", "false"]), "anchor_size": "8,16,32,64,128",
              "anchor_ratio": r.choice(["0.5,1,2", "0.3,1,3"]), "anchor_grid_stride": r.choice(["true", "false"]),
              "rpn_nms": r.choice([0.5, 0.7, 0.9]), "nms": r.choice([0.3, 0.5, 0.7]), "min_score": r.choice([0, 0.05, 0.1]),
              "detections": r.choice([1, 7, 100, 300]), "rpn_post_nms_test": r.choice([20, 300, 1000]),
              "rpn_pre_nms_test": r.choice([50, 1000])}
    if conventions == "mlperf":
        fields["anchor_grid_stride"] = "false"  # its anchors are made for nominal strides
    if masks:
        fields.update(mask_dim=r.randint(8, 40), mask_layers=r.randint(1, 4), mask_pool=r.randint(4, 16))
    args += [x for k, v in fields.items() for x in ("--set", f"{k}={v}")]
    return args, r.choice([32, 75, 96, 128, 203]), r.choice([1, 3])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--cases", type=int, default=10)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--build", default="build")
    o = p.parse_args()
    bad = 0
    for i in range(o.cases):
        args, size, batch = case(random.Random(1000 * o.seed + i))
        with tempfile.TemporaryDirectory() as out:
            said = subprocess.run([os.path.join(o.build, "train"), "--data", o.data, "--out", out, "--iters", "1",
                                   "--size", "128", "--eval-every", "never", *args], capture_output=True, text=True)
            if said.returncode:
                print(f"case {i}: not trained: {said.stderr.strip().splitlines()[-1]}  {' '.join(args)}")
                bad += 1
                continue
            said = subprocess.run([sys.executable, os.path.join(HERE, "compare_onnx.py"), "--weights",
                                   os.path.join(out, "model.safetensors"), "--data", o.data, "--images", "3", "--batches",
                                   str(batch), "--sizes", str(size), "--build", o.build], capture_output=True, text=True)
        print(f"case {i}: {said.stdout.strip()}", flush=True)
        if said.returncode:
            print(f"  {' '.join(args)}\n  {said.stderr.strip()[-2000:]}")
            bad += 1
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
