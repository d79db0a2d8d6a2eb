"""Tables of bench conv's results: the ladder and cuDNN, other sizes, cuDNN as called by us and by PyTorch."""
import collections

from records import Refused, place

LADDER = ("conv-wmma-h200", "conv-h200")  # oldest first
OTHER = ("conv-other-h200",)
DTYPES, FUSED, OPS = ("bf16", "fp16", "tf32", "fp32"), ("none", "relu", "add-relu"), ("fwd", "dgrad", "wgrad")
FUSED_TITLES = {"none": "", "relu": ", bias, ReLU", "add-relu": ", bias, residual, ReLU"}
# In tables of layers: one of each type.
SHOWN = ("res3.3x3", "res4.3x3", "res5.3x3", "res4.1x1.in", "res4.1x1.out", "p2.3x3", "fpn.p2.lateral", "mask.3x3",
         "mask.deconv", "box.fc6")
SLOW = 0.8  # times cuDNN's speed: slower layers are named
# Not every record has its batch size: these are bench's defaults.
BATCH = 4


def row(cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def table(head, rows):
    return "\n".join([row(head), "|" + "---|" * len(head), *map(row, rows)])


class Grid:
    """The newest records of one dtype, fusion and batch: grid[rung][op][layer]."""

    def __init__(self, dtype, fused, batch):
        self.dtype, self.fused, self.batch = dtype, fused, batch
        self.rung = collections.OrderedDict()
        self.commits, self.places, self.gpu = [], [], None

    def add(self, record):
        if self.gpu not in (None, record["gpu"]):
            raise Refused(f"{self.title()}: records of {self.gpu} and {record['gpu']} cannot stand in one table")
        self.gpu = record["gpu"]
        ops = self.rung.setdefault(record["rung"], {op: collections.OrderedDict() for op in OPS})
        ops[record["op"]][record["layer"]] = record
        for names, name in ((self.commits, record["commit"]), (self.places, place(record))):
            if name not in names:
                names.append(name)

    def title(self):
        return f"{self.dtype}, batch {self.batch}{FUSED_TITLES[self.fused]}"

    def rungs(self):
        """cuDNN last, whatever came first."""
        return [r for r in self.rung if r != "cudnn"] + [r for r in self.rung if r == "cudnn"]

    def entries(self, rung, ops=OPS, stem=True):
        """Records with what cuDNN took beside each (None: it has no engine)."""
        for op in ops:
            for layer, r in self.rung[rung][op].items():
                peer = r.get("cudnn_us") or self.rung.get("cudnn", {}).get(op, {}).get(layer, {}).get("us")
                if stem or layer != "stem":
                    yield r, peer


def read_grids(results, *names):
    """As dtype, fusion and batch have them in order. What is said of a gemm is not of the network."""
    grids = {}
    for r in results.all(*names, bench="conv"):
        key = r["dtype"], r.get("fused", "none"), r.get("batch", BATCH)
        grids.setdefault(key, Grid(*key)).add(r)
    order = sorted(grids, key=lambda k: (DTYPES.index(k[0]), FUSED.index(k[1]), k[2]))
    return collections.OrderedDict((k, grids[k]) for k in order)


class Total:
    """Over layers, each as often as it occurs; milliseconds."""

    def __init__(self, entries):
        self.layers = self.us = self.shared = self.cudnn = 0
        self.worst = None  # (ratio, layer), of the medians of the rounds' ratios
        self.slow = []
        for r, peer in entries:
            self.layers += 1
            self.us += r["count"] * r["us"]
            if peer:
                self.shared += r["count"] * r["us"]
                self.cudnn += r["count"] * peer
            ratio = r.get("ratio")
            if ratio is not None and (not self.worst or ratio < self.worst[0]):
                self.worst = ratio, r["layer"]
            if ratio is not None and ratio < SLOW:
                self.slow.append((ratio, r["layer"], r["op"]))

    def pair(self):
        return f"{self.us / 1e3:.2f} / {self.cudnn / 1e3:.2f}"


def total_row(grid, op, rung, total):
    peer = (f"{total.cudnn / 1e3:.2f}", f"{total.cudnn / total.shared:.2f}") if total.shared else ("–", "–")
    worst = f"{total.worst[1]}, {total.worst[0]:.2f}" if total.worst else "–"
    return f"{grid.dtype}, batch {grid.batch}", op, rung, total.layers, f"{total.us / 1e3:.2f}", *peer, worst


def rung_rows(grid, rung):
    """A rung's ops by themselves and, where it has measured all of them, together; with and without the stem."""
    def both(name, ops):
        whole, rest = Total(grid.entries(rung, ops)), Total(grid.entries(rung, ops, stem=False))
        yield total_row(grid, name, rung, whole)
        if 0 < rest.layers < whole.layers:
            yield total_row(grid, name + " without the stem", rung, rest)

    measured = [op for op in OPS if grid.rung[rung][op]]
    for op in measured:
        yield from both(op + FUSED_TITLES[grid.fused], (op,))
    if len(measured) == len(OPS):
        yield from both("all", OPS)


def conv_totals(results):
    head = "what", "op", "rung", "layers", "ms", "cuDNN's ms", "of its speed", "slowest"
    return table(head, [r for grid in read_grids(results, *LADDER).values() for rung in grid.rungs() if rung != "cudnn"
                        for r in rung_rows(grid, rung)])


# The gain of each rung over the one before.
RUNGS = {"naive": "the definition", "im2col": "explicit GEMM: shared-memory and register tiles, split-K",
         "wmma": "tensor cores, implicit GEMM, asynchronous copies", "mma": "the instructions themselves: swizzle, a "
         "fragment ahead", "wgmma": "Hopper: TMA, warp specialisation, persistent blocks", "cudnn": "the peer"}


def conv_ladder(results):
    """cuda/conv/README.md: a line a rung, in bf16 at batch 4; – where no record has it."""
    grid, rows = read_grids(results, *LADDER)["bf16", "none", BATCH], []
    for i, (rung, adds) in enumerate(RUNGS.items(), 1):
        found = grid.rung.get(rung)
        name = f"{i:02} {rung}" if rung != "cudnn" else rung
        if not found:
            rows.append((name, adds, "–", "–", "–"))
            continue
        total = Total(grid.entries(rung))
        peer = f"{total.cudnn / total.shared:.2f}" if rung != "cudnn" else ""
        rows.append((name, adds, " / ".join(f"{found[op]['p2.3x3']['tflops']:.0f}" for op in OPS),
                     f"{total.us / 1e3:.2f}", peer))
    return table(("rung", "what it adds", "TFLOP/s of p2.3x3: forward / dgrad / wgrad",
                  "all convolutions of a step, ms", "of cuDNN's speed"), rows)


def conv_fusions(results):
    """What the peer is, where more than a convolution was asked for."""
    rows = []
    for grid in read_grids(results, *LADDER).values():
        if grid.fused != "none" and "cudnn" in grid.rung:
            peers = grid.rung["cudnn"]["fwd"].values()
            fused = {layer for layer, r in grid.rung["cudnn"]["fwd"].items() if r.get("cudnn_fused")}
            ours = Total((r, p) for r, p in grid.entries("wgmma") if r["layer"] in fused)
            rows.append((grid.title(), len(peers), len(fused), ours.pair()))
    return table(("what", "layers", "cuDNN's fastest is one fused graph in", "of these, rung 05 / cuDNN, ms"), rows)


def conv_layers(results):
    parts = []
    for grid in read_grids(results, *LADDER).values():
        if grid.fused != "none":
            continue
        rungs = grid.rungs()
        rows = []
        for layer in SHOWN:
            cells = [[grid.rung[rung][op].get(layer) for op in OPS] for rung in rungs]
            if any(r for cell in cells for r in cell):
                rows.append((layer, *(" / ".join(f"{r['tflops']:.0f}" if r else "–" for r in cell) for cell in cells)))
        parts.append(f"TFLOP/s in {grid.dtype}, batch {grid.batch}, forward / dgrad / wgrad:\n\n" +
                     table(("layer", *rungs), rows))
    return "\n\n".join(parts)


def conv_provenance(results):
    by = collections.OrderedDict()
    for grid in read_grids(results, *LADDER).values():
        by.setdefault(("; ".join(grid.places), ", ".join(grid.commits)), []).append(grid.title())
    return table(("what", "on", "commit"), [("; ".join(titles), *where) for where, titles in by.items()])


# ---- ours: the rung that programs use for each op ---- --------------------------------------------------------------

def production(grid, ops=OPS, stem=True):
    """The newest Hopper rung where it computes a layer, or else the one before Hopper."""
    best = {}
    for rung in ("mma", "wgmma"):
        if rung in grid.rung:
            best.update({(r["op"], r["layer"]): (r, peer) for r, peer in grid.entries(rung, ops, stem)})
    return best.values()


def slow_text(grid):
    """The layers below SLOW: in how many ops, and the slowest of each op."""
    total = Total(production(grid))
    parts = []
    for op in OPS:
        slow = sorted(s for s in total.slow if s[2] == op)
        if slow:
            parts.append(f"{op}: {len(slow)} ({slow[0][1]}, {slow[0][0]:.2f})")
    return f"{len(total.slow)} of {total.layers}" + (": " + "; ".join(parts) if parts else "")


def step_row(name, grid, with_slow=True):
    pairs = [Total(production(grid, (op,))) for op in OPS]
    whole = Total(production(grid))
    cells = [p.pair() if p.layers else "–" for p in pairs] + [whole.pair()]
    return (name, *cells, slow_text(grid)) if with_slow else (name, *cells)


def canvas_of(grid):
    stem = next(r for r, _ in grid.entries("wgmma") if r["layer"] == "stem")
    return f"{stem['h']} × {stem['w']}"


def conv_step(results):
    """docs/results.md: ours / cuDNN's milliseconds of all convolutions of a step."""
    grids = read_grids(results, *LADDER)
    rows = []
    for rung in ("wmma", "mma"):
        grid = grids["bf16", "none", BATCH]
        pairs = [Total(grid.entries(rung, (op,))).pair() for op in OPS]
        rows.append((f"bf16, batch {BATCH}, rung {rung} in another job", *pairs, Total(grid.entries(rung)).pair(), ""))
    for dtype in ("bf16", "tf32"):
        for batch in (4, 16):
            rows.append(step_row(f"{dtype}, batch {batch}", grids[dtype, "none", batch]))
    for fused in ("relu", "add-relu"):
        for batch in (4, 16):
            grid = grids["bf16", fused, batch]
            forward = Total(grid.entries("wgmma"))
            layers = "" if forward.layers > 10 else f", the {forward.layers} layers that have one"
            rows.append((grid.title() + layers, forward.pair(), "", "", "", slow_text(grid)))
    return table(("", "forward", "dgrad", "wgrad", "all", f"below {SLOW} of cuDNN's speed"), rows)


def conv_sizes(results):
    grids = [g for k, g in read_grids(results, *OTHER).items() if k[:2] == ("bf16", "none") and k[2] != BATCH]
    rows = []
    for grid in grids:
        rest = Total(production(grid, ("fwd",), stem=False))
        cells = step_row(f"batch {grid.batch}, {canvas_of(grid)}", grid)
        rows.append((*cells[:2], f"{rest.us / rest.cudnn:.2f}", *cells[2:]))
    return table(("", "forward", "ours / cuDNN's without the stem", "dgrad", "wgrad", "all",
                  f"below {SLOW} of cuDNN's speed"), rows)


# ---- compared with PyTorch ---- -------------------------------------------------------------------------------------

def images_of(r):
    """The batch of a record that says how many maps, boxes (512 an image) or masks (128 an image) there are."""
    return r["n"] // {"box": 512, "mask": 128}.get(r["layer"].split(".")[0], 1)


def conv_torch(results):
    """PyTorch's cuDNN beside the cuDNN rung, by batch; ours alone pads channels that are no multiple of eight."""
    newest = results.newest_by(lambda r: (r["op"], r["layer"], r["n"]), "cudnn-torch-h200", dtype="bf16").values()
    rows = []
    for batch in sorted({images_of(r) for r in newest}):
        for name, padded in (("multiples of eight", False), ("others, without the stem", True)):
            chosen = [r for r in newest if images_of(r) == batch and r["layer"] != "stem"
                      and (r["cin"] % 8 > 0 or r["cout"] % 8 > 0) == padded]
            ours, theirs = sum(r["cudnn_us"] for r in chosen), sum(r["torch_us"] for r in chosen)
            worst = max(chosen, key=lambda r: r["ratio"])
            rows.append((batch, name, len(chosen), f"{ours / theirs:.3f}", sum(r["ratio"] > 1.03 for r in chosen),
                         f"{worst['layer']} {worst['op']}, {worst['ratio']:.2f}"))
    return table(("batch", "channels", "layers and ops", "total / PyTorch's", "over 1.03", "largest"), rows)


TABLES = {
    "conv-ladder": conv_ladder,
    "conv-totals": conv_totals,
    "conv-fusions": conv_fusions,
    "conv-layers": conv_layers,
    "conv-provenance": conv_provenance,
    "conv-step": conv_step,
    "conv-sizes": conv_sizes,
    "conv-torch": conv_torch,
}
