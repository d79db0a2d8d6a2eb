"""The tables of docs/nets.md: speed of classification nets: ours, ours with cuDNN's convolutions, and PyTorch's."""
import math
import statistics

from conv_figures import table

FILE, NEWER = "nets-h200", "nets-h100"
SEVEN = ("alexnet", "overfeat", "vgg16", "googlenet", "resnet50", "resnet101", "resnet152")
TITLES = {"alexnet": "AlexNet", "overfeat": "OverFeat (fast)", "vgg16": "VGG-16", "googlenet": "GoogLeNet",
          "resnet50": "ResNet-50", "resnet101": "ResNet-101", "resnet152": "ResNet-152", "vgg-28": "VGG-28"}
WALKS = {"fwd": "forward", "fwdbwd": "forward and backward", "step": "step"}
SMALL = (1, 2, 4, 8)


def milliseconds(record, walk):
    """The median run: PyTorch's eager or recorded, whichever is faster. None: memory is out, or there is no record."""
    if record is None or record["out_of_memory"]:
        return None
    ways = (walk,) if record["bench"] == "net" else (walk + "_eager", walk + "_graph")
    found = [record[way]["median"] for way in ways if record.get(way)]
    return min(found) if found else None


class Nets:
    """The records of each setting: what = "auto" and "cudnn", ours by convolutions, and "peer"; net, type and batch."""

    def __init__(self, records):
        self.found = {}
        for r in records:
            what = {"net": r.get("conv"), "net-peer": "peer"}.get(r.get("bench"))
            if what is None:
                continue  # a record that only describes the machine
            self.found.setdefault((what, r["net"], r["dtype"], r["batch"]), []).append(r)

    def newest(self):
        self.found = {key: records[-1:] for key, records in self.found.items()}
        return self

    def get(self, what, net, dtype, batch):
        return self.found.get((what, net, dtype, batch), [None])[-1]

    def ms(self, what, net, dtype, batch, walk):
        """The mean over the setting's records of their medians."""
        found = [milliseconds(r, walk) for r in self.found.get((what, net, dtype, batch), [])]
        return statistics.fmean(found) if found and None not in found else None

    def ratio(self, net, dtype, batch, walk, what="auto"):
        """Of our time and PyTorch's; None where one is missing."""
        ours, peer = (self.ms(w, net, dtype, batch, walk) for w in (what, "peer"))
        return ours / peer if ours and peer else None

    def nets(self, dtype):
        return [n for n in TITLES if any(key[:3] == ("auto", n, dtype) for key in self.found)]

    def batches(self, dtype):
        return sorted({key[3] for key in self.found if key[0] == "auto" and key[2] == dtype})


def geometric_mean(values):
    """Of those that are there; None: none is."""
    values = [v for v in values if v]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def mean_cell(ratios):
    """And of how many, where some of the seven have no record beside them."""
    ratios = list(ratios)
    there = sum(1 for r in ratios if r)
    return number(geometric_mean(ratios)) + (f" (of {there})" if 0 < there < len(ratios) else "")


def number(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def read(results, file=FILE):
    """None: nothing has been recorded."""
    return Nets(results.all(file)).newest() if file + ".jsonl" in results.files else None


# ---- one batch size -------------------------------------------------------------------------------------------------

def gib(record):
    held = record.get("peak_bytes") if record and not record["out_of_memory"] else None
    return number(held and held / 2**30, 1)


def net_row(nets, net, dtype, batch):
    cells = [TITLES[net]]
    for walk in WALKS:
        times = [nets.ms(what, net, dtype, batch, walk) for what in ("auto", "cudnn", "peer")]
        cells += [" / ".join(map(number, times)), number(nets.ratio(net, dtype, batch, walk))]
    return [*cells, " / ".join(gib(nets.get(what, net, dtype, batch)) for what in ("auto", "cudnn", "peer"))]


def mean_row(nets, dtype, batch):
    cells = ["geometric mean of the first seven"]
    for walk in WALKS:
        cells += ["", mean_cell(nets.ratio(n, dtype, batch, walk) for n in SEVEN)]
    return [*cells, ""]


def side_by_side(dtype, batch=64):
    def made(results):
        nets = read(results)
        if nets is None:
            return ""
        head = ["batch " + str(batch)]
        for title in WALKS.values():
            head += [f"{title}, ms: ours / on cuDNN / PyTorch", "ours of PyTorch's"]
        rows = [net_row(nets, net, dtype, batch) for net in nets.nets(dtype)]
        return table([*head, "GiB: ours / on cuDNN / PyTorch"], [*rows, mean_row(nets, dtype, batch)])
    return made


def newer(results, batch=64):
    """Ours and PyTorch's alone, of both types in one table."""
    nets = read(results, NEWER)
    if nets is None:
        return ""
    kinds = [(dtype, walk) for dtype in ("bf16", "tf32") for walk in ("fwdbwd", "step")]
    head = ["batch " + str(batch)]
    for dtype, walk in kinds:
        head += [f"{dtype.replace('tf', 'TF')}, {WALKS[walk]}, ms: ours / PyTorch", "ours of PyTorch's"]
    rows = []
    for net in SEVEN:
        rows.append([TITLES[net]])
        for dtype, walk in kinds:
            times = [nets.ms(what, net, dtype, batch, walk) for what in ("auto", "peer")]
            rows[-1] += [" / ".join(map(number, times)), number(nets.ratio(net, dtype, batch, walk))]
    mean = ["geometric mean"]
    for dtype, walk in kinds:
        mean += ["", mean_cell(nets.ratio(n, dtype, batch, walk) for n in SEVEN)]
    return table(head, [*rows, mean])


# ---- many -----------------------------------------------------------------------------------------------------------

def sweep(walk, dtype="bf16"):
    """Our time in PyTorch's, by the runs of plans/minibatch.plan."""
    def made(results):
        nets = Nets(record for _, runs in results.study("minibatch") for run in runs for record in run["records"])
        batches = nets.batches(dtype)
        ratios = lambda net, of: [nets.ratio(net, dtype, batch, walk) for batch in of]
        rows = [[TITLES[n], *map(number, ratios(n, batches)), mean_cell(ratios(n, SMALL)),
                 mean_cell(ratios(n, batches))] for n in nets.nets(dtype)]
        every = lambda of: mean_cell(r for n in SEVEN for r in ratios(n, of))
        rows.append(["geometric mean", *(every([b]) for b in batches), every(SMALL), every(batches)])
        return table([WALKS[walk] + ", batch", *batches, "1 to 8", "all"], rows)
    return made


TABLES = {
    **{f"nets-{dtype}": side_by_side(dtype) for dtype in ("bf16", "tf32")},
    "nets-h100": newer,
    **{f"nets-sweep-{walk}": sweep(walk) for walk in WALKS},
}
