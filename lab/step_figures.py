"""The tables of results/notes-conv.md: the experiments that led to rung 05, from wgmma-steps-h200.jsonl."""
import re
import statistics

from conv_figures import table
from records import Refused

BOOK = "wgmma-steps-h200"
STAMP = re.compile(r"(\d)\[[^|\]]*\|(\d+) (\d+) (\d+)\]")  # number[ns | least median most, in cycles]


def step(results, run, batch, build):
    """A build's record in a run of several builds."""
    return results.newest(BOOK, bench="conv-steps", run=run, batch=batch, build=build)


def milliseconds(record, *ops):
    """Medians of a build's runs."""
    return " / ".join(f"{statistics.median(record['total'][op]['us']) / 1e3:.2f}" for op in ops)


def layer_us(record, *keys):
    """Medians of the layers; – where the lab book has none."""
    return [f"{statistics.median(record['layers_us'][k]):.1f}" if k in record["layers_us"] else "–" for k in keys]


def wgmma_pairs(results):
    """Forward / dgrad before and after, each pair in one job."""
    pairs = (("stores issued by store warps; tiles of 192 columns, 128 rows of few", "s5.2", "main", "hyb"),
             ("cache hint, lines in pairs", "s5.5", "hyb", "hyb2"),
             ("boxes of sixteen rows instead of 64", "s5.7", "hyb2", "send16"),
             ("interleaved phases", "s5.8", "base", "turns"))
    rows = [(what, *(milliseconds(step(results, run, batch, build), "fwd", "dgrad") for batch in (4, 16)
                     for build in (before, after)), run) for what, run, before, after in pairs]
    return table(("step", "batch 4: before", "after", "batch 16: before", "after", "run"), rows)


def wgmma_start(results):
    """Cycles from a block's beginning, medians of the blocks, one for each time that the layer ran."""
    columns = {"1": "pixels asked for", "4": "first stage seen", "6": "first tile's stores issued",
               "8": "the second's"}
    layer = "rpn.p5.logits dgrad, batch 16"
    rows = []
    for where, start in (("in turns with cuDNN", ", with cuDNN in turns"), ("by itself", ", alone")):
        for what, build in (("before", "d4952f9 with uniform registers"), ("after", "e877a36")):
            found = [r for r in results.all(BOOK, bench="time-stamps", run="s8.9", layer=layer)
                     if r["what"].startswith(build + start)]
            if not found:
                raise Refused(f"{BOOK}: no time stamps of {build}{start}")
            runs = [{n: median for n, _, median, _ in STAMP.findall(text)} for text in found[-1]["cold"]]
            rows.append((f"{what}, {where}", *(", ".join(run[n] for run in runs) for n in columns)))
    return table(("", *columns.values()), rows)


def wgrad_steps(results):
    layers = "wgrad res3.1x1.out", "wgrad res4.1x1.out", "wgrad res5.1x1.out", "wgrad box.logits"
    steps = (("before", "old"),
             ("shorter kernels; accumulators sent through distributed shared memory, not fetched; eight loads of the "
              "reduction at once, its blocks spread evenly", "F"),
             ("tiles of 64 × 2 where they are faster (costs refitted)", "G"))
    rows = []
    for what, build in steps:
        four = step(results, "bus/wg.3", 4, build)
        rows.append((what, *layer_us(four, *layers), milliseconds(four, "wgrad"),
                     *(milliseconds(step(results, "bus/wg.3", batch, build), "wgrad") for batch in (16, 2))))
    last = step(results, "bus/wg.3", 4, "G")["total"]["wgrad"]["cudnn_us"]
    rows.append(("cuDNN, with the last", "", "", "", "", f"{statistics.median(last) / 1e3:.2f}", "", ""))
    return table(("µs", *(k.split()[1] for k in layers), "all wgrads, ms", "batch 16", "batch 2"), rows)


def wgrad_squares(results):
    layers = "wgrad res4.1x1.in", "wgrad mask.deconv", "wgrad fpn.p4.lateral", "wgrad fpn.p5.lateral"
    rows = []
    for batch in (4, 16):
        before, after = (step(results, "s5.3", batch, build) for build in ("one", "four"))
        cells = zip(layer_us(before, *layers) + [milliseconds(before, "wgrad")],
                    layer_us(after, *layers) + [milliseconds(after, "wgrad")])
        rows.append((f"batch {batch}", *(a if a == b == "–" else f"{a} / {b}" for a, b in cells)))
    return table(("µs, rows / squares of tiles", *(k.split()[1] for k in layers), "all wgrads, ms"), rows)


def mma_order(results):
    """Rung 04: the products of a step in another order."""
    keys = "bf16_fwd", "bf16_dgrad", "bf16_wgrad", "tf32_fwd", "tf32_dgrad", "tf32_wgrad"
    rows = [(r["what"].split(": ", 1)[1], *(f"{statistics.median(r[k]):.0f}" for k in keys))
            for r in results.all(BOOK, bench="mma-steps", run="s8.5")]
    return table(("order (i: rows, j: columns)", *(k.replace("_", " ") for k in keys)), rows)


TABLES = {
    "wgmma-pairs": wgmma_pairs,
    "wgmma-start": wgmma_start,
    "wgrad-steps": wgrad_steps,
    "wgrad-squares": wgrad_squares,
    "mma-order": mma_order,
}
