#!/usr/bin/env python3
"""Is our peer the real one? Times PyTorch's convolutions (its own cuDNN, all engines tried, channels_last) on the layers of
bench conv's records, also with a cold L2 cache, and prints one JSON record each with what bench measured for cuDNN.

    build/bench conv --layer 3x3 --out conv.jsonl && test/peers/compare_cudnn.py conv.jsonl

Needs PyTorch and a GPU, for the comparison alone. Median of 33 runs each, with idle launches between as bench has them.
"""
import json
import random
import sys

import torch

from origin import origin

torch.backends.cudnn.benchmark = True
torch.backends.cudnn.benchmark_limit = 0  # all engines
torch.backends.cudnn.allow_tf32 = True
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
SWEEP = torch.zeros(64 << 20, dtype=torch.int32, device="cuda")  # 256 MB
IDLE = torch.zeros(1, device="cuda")
DRAWS = random.Random(1)


def median_us(run):
    for _ in range(3):
        run()
    times = []
    for _ in range(33):
        for _ in range(DRAWS.randrange(4)):  # one launch in four takes longer (cuda/sweep.cuh)
            IDLE.zero_()
        torch.cuda._sleep(200000)  # hides the launches
        SWEEP.max()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end))
    return sorted(times)[16]


def torch_us(r):
    """The op of record r; pads are not in the records: 7 x 7 and 3 x 3 have them, 2 x 2 and 1 x 1 do not."""
    pad = {7: 3, 3: 1}.get(r["k"], 0)
    normal = lambda *shape: torch.randn(*shape, device="cuda", dtype=DTYPES[r["dtype"]]).contiguous(
        memory_format=torch.channels_last)
    x, w = normal(r["n"], r["cin"], r["h"], r["w"]), normal(r["cout"], r["cin"], r["k"], r["k"])
    forward = lambda: torch.nn.functional.conv2d(x, w, None, r["stride"], pad)
    if r["op"] == "fwd":
        return median_us(forward)
    dy, wanted = torch.randn_like(forward()), [r["op"] == "dgrad", r["op"] == "wgrad", False]
    return median_us(lambda: torch.ops.aten.convolution_backward(
        dy, x, w, None, [r["stride"]] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, wanted))


def main():
    worst, here = 0, origin()
    for line in open(sys.argv[1]):
        r = json.loads(line)
        if r["rung"] != "cudnn" or r["dtype"] not in DTYPES or r.get("fused", "none") != "none":
            continue
        us = torch_us(r)
        worst = max(worst, r["us"] / us)
        keep = ("gpu", "op", "layer", "n", "h", "w", "cin", "cout", "k", "stride", "dtype")
        print(json.dumps({"bench": "cudnn-torch", **{k: r[k] for k in keep}, "torch": torch.__version__,
                          "cudnn": torch.backends.cudnn.version(), "torch_us": round(us, 2),
                          "cudnn_us": round(r["us"], 2), "ratio": round(r["us"] / us, 4),
                          "bench_commit": r["commit"], **here}), flush=True)
    print(f"slowest against PyTorch: {worst:.3f} of its time", file=sys.stderr)


main()
