"""Classification nets in PyTorch on one GPU: forward in training mode, forward and backward, a whole step of SGD.

    B=build python3 test/peers/bench_nets.py [--nets alexnet,vgg16] [--batches 64] [--dtypes bf16,tf32] [--size 224]
                                             [--runs 100] [--eager-runs 20]

channels_last; bf16 by autocast, the rest in float32; tf32: products in TF32. Images and labels stay on the GPU, dropout
is on, batch norm uses the batch's statistics, GoogLeNet has no auxiliary heads. Every walk is timed eagerly and as a
CUDA graph, each run by itself, after half as many that are not. Each net and precision has a process of its own, forked
from one that has imported PyTorch and not touched the GPU; memory is the most that tensors took in an eager step, after
cuDNN had tried its algorithms and before any graph. JSON lines, as ./train --benchmark has them; memory out is a line
that says so.
"""
import argparse
import gc
import json
import multiprocessing
import statistics
import sys
import time

from origin import origin

NETS = ("alexnet", "overfeat", "vgg16", "googlenet", "resnet50", "resnet101", "resnet152", "vgg-28")
SIZES = {"overfeat": 231, "vgg-28": 28}  # of the others 224


def convolution(inputs, outputs, size, stride=1, pad=0):
    from torch import nn
    return [nn.Conv2d(inputs, outputs, size, stride, pad), nn.ReLU(True)]


def overfeat():
    """The fast model of Sermanet et al., "OverFeat: Integrated Recognition, Localization and Detection", 2013."""
    from torch import nn
    return nn.Sequential(
        *convolution(3, 96, 11, 4), nn.MaxPool2d(2), *convolution(96, 256, 5), nn.MaxPool2d(2),
        *convolution(256, 512, 3, pad=1), *convolution(512, 1024, 3, pad=1), *convolution(1024, 1024, 3, pad=1),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024 * 6 * 6, 3072), nn.ReLU(True), nn.Linear(3072, 4096),
        nn.ReLU(True), nn.Linear(4096, 1000))


def vgg_28(classes=10):
    """Batch norm behind every ReLU but the last layer's, dropout behind pools and dense layers."""
    from torch import nn
    layers, inputs = [], 1
    for stage in ((32, 32, 64, 64), (128, 128, 256, 256, 256)):
        for outputs in stage:
            layers += [*convolution(inputs, outputs, 3, pad=1), nn.BatchNorm2d(outputs)]
            inputs = outputs
        layers += [nn.MaxPool2d(2), nn.Dropout(0.25)]
    inputs *= 7 * 7
    layers.append(nn.Flatten())
    for _ in range(2):
        layers += [nn.Linear(inputs, 512), nn.ReLU(True), nn.BatchNorm1d(512), nn.Dropout(0.5)]
        inputs = 512
    return nn.Sequential(*layers, nn.Linear(512, classes))


def make(net):
    import torchvision
    if net == "overfeat":
        return overfeat()
    if net == "vgg-28":
        return vgg_28()
    extra = {"aux_logits": False, "init_weights": False} if net == "googlenet" else {}
    return getattr(torchvision.models, net)(weights=None, **extra)


class Walks:
    """What is timed of a net, by its key in a record."""

    def __init__(self, net, dtype, batch, size):
        import torch
        self.torch, self.amp = torch, dtype == "bf16"
        channels = 1 if net == "vgg-28" else 3
        with torch.device("cuda"):  # initial weights are drawn there
            self.model = make(net)
        self.model = self.model.to(memory_format=torch.channels_last).train()
        images = torch.randn(batch, channels, size, size, device="cuda")
        self.images = images.to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 10, (batch,), device="cuda")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)

    def logits(self):
        # Casts of parameters that autocast keeps between walks would be lost to a recorded one.
        with self.torch.autocast("cuda", dtype=self.torch.bfloat16, enabled=self.amp, cache_enabled=False):
            return self.model(self.images)

    def fwd(self):
        with self.torch.no_grad():
            self.logits()

    def fwdbwd(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.torch.nn.functional.cross_entropy(self.logits().float(), self.labels).backward()

    def step(self):
        self.fwdbwd()
        self.optimizer.step()


def recorded(torch, walk):
    """The walk as a CUDA graph, which wants to have run on a stream of its own before."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            walk()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        walk()
    return graph.replay


def timed(torch, walk, runs):
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    ms = []
    for i in range(-max(runs // 2, 3), runs):
        before.record()
        walk()
        after.record()
        after.synchronize()
        if i >= 0:
            ms.append(before.elapsed_time(after))
    error = statistics.stdev(ms) / len(ms)**0.5 if len(ms) > 1 else None
    return {"mean": statistics.fmean(ms), "median": statistics.median(ms), "stderr": error, "min": min(ms), "runs": runs}


def measure(torch, net, dtype, batch, size, runs, eager_runs):
    """The members of a record that a net, a precision and a batch size have."""
    out = {}
    gc.collect()
    torch.cuda.empty_cache()
    walks = Walks(net, dtype, batch, size)
    for key in ("fwd", "fwdbwd", "step"):
        out[key + "_eager"] = timed(torch, getattr(walks, key), eager_runs)
    torch.cuda.reset_peak_memory_stats()
    walks.step()
    out["peak_bytes"] = torch.cuda.max_memory_allocated()
    for key in ("fwd", "fwdbwd", "step"):
        walks.optimizer.zero_grad(set_to_none=True)
        out[key + "_graph"] = timed(torch, recorded(torch, getattr(walks, key)), runs)
    out["img_s"] = 1e3 * batch / min(out["step_eager"]["mean"], out["step_graph"]["mean"])
    return out


def run_one(net, dtype, batches, size, runs, eager_runs, from_where):
    import torch
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    size = size or SIZES.get(net, 224)
    for batch in batches:
        record = {"bench": "net-peer", "peer": f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}",
                  "net": net, "gpu": torch.cuda.get_device_name(), "batch": batch, "dtype": dtype, "canvas_h": size,
                  "canvas_w": size}
        try:
            found = {"out_of_memory": False, **measure(torch, net, dtype, batch, size, runs, eager_runs)}
        except torch.cuda.OutOfMemoryError as error:
            found = {"out_of_memory": True, "why": str(error).split("\n", 1)[0]}
        except ValueError as error:  # torch has no batch norm of one value
            found = {"out_of_memory": False, "why": str(error)}
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        print(json.dumps({**record, **found, **from_where, "date": date}), flush=True)


def main():
    words = lambda text: text.split(",")
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nets", type=words, default=list(NETS))
    parser.add_argument("--batches", type=numbers, default=[64])
    parser.add_argument("--dtypes", type=words, default=["bf16", "tf32"])
    parser.add_argument("--size", type=int, help="of the images' sides; each net's own unless given")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--eager-runs", type=int, help="of a walk op by op; as many as --runs unless given")
    args = parser.parse_args()
    unknown = [f"--nets {n}" for n in args.nets if n not in NETS] + \
              [f"--dtypes {d}" for d in args.dtypes if d not in ("bf16", "tf32")]
    fixed = [net for net in args.nets if net in SIZES and args.size not in (None, SIZES[net])]
    if fixed:
        parser.error(f"--size {args.size}: {fixed[0]} takes {SIZES[fixed[0]]} alone; name others by --nets")
    if unknown:
        parser.error(f"{unknown[0]} is unknown; nets: {', '.join(NETS)}; dtypes: bf16, tf32")
    import torch, torchvision  # for all processes
    how = args.batches, args.size, args.runs, args.eager_runs or args.runs, origin()
    failed = 0
    for net in args.nets:
        for dtype in args.dtypes:
            process = multiprocessing.get_context("fork").Process(target=run_one, args=(net, dtype, *how))
            process.start()
            process.join()
            failed |= process.exitcode != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
