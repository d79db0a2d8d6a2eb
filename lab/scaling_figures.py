"""The tables of docs/scaling.md and results/scaling.md: weak scaling, losses, buckets, all-reduces, the prediction."""
import os

import scaling
import scaling_model
import scaling_records
from conv_figures import table
from records import Refused
from scaling_records import FILE, FILES, efficiency, finite, over_sockets, world

MASKS = {False: "", True: ", full masks"}


def of(results):
    """All records that have to do with scaling, oldest first; refused where there are none."""
    if FILE + ".jsonl" not in results.files:
        raise Refused(f"results/{FILE}.jsonl is missing: ./train --benchmark --gpus N and build/bench_reduce make it")
    return [r for name in FILES if name + ".jsonl" in results.files for r in results.all(name)]


def inputs_of(results):
    return scaling_records.read_inputs(os.path.join(results.folder, "scaling-model.json"))


def ranked(results):
    """Records of several GPUs, of which each has its one-GPU record."""
    found = [r for r in scaling_records.training(results.all(FILE)) if world(r) > 1]
    alone = [r for r in found if efficiency(of(results), r) is None]
    if not found:
        raise Refused(f"results/{FILE}.jsonl: no record of several GPUs")
    if alone:
        raise Refused(f"results/{FILE}.jsonl: the record of {world(alone[0])} GPUs of {alone[0].get('date')} has no "
                      "one-GPU record of its setting in its run")
    return found


def title(r):
    return f"batch {r['batch']}, {r['norm']}{MASKS[r['full_masks']]}"


def images(r):
    return "the same on all" if r["same_images"] else "each rank's own"


def links(r):
    return "sockets" if over_sockets(r) else "NVLink"


def percent(x):
    return f"{100 * x:.1f} %" if finite(x) else ""


def milliseconds(x):
    return f"{x:.2f}" if finite(x) else ""


# ---- weak scaling ---------------------------------------------------------------------------------------------------

def weak_key(r):
    return (r["full_masks"], r["norm"], r["batch"], world(r), over_sockets(r), not r["same_images"], r["reduce"])


def best_by(records, key):
    """The fastest of each key, in order."""
    chosen = {}
    for r in records:
        if key(r) not in chosen or r["img_s"] > chosen[key(r)]["img_s"]:
            chosen[key(r)] = r
    return [chosen[k] for k in sorted(chosen)]


def weak(results):
    rows = []
    for r in best_by([r for r in ranked(results) if r["reduce"] != "none"], weak_key):
        rows.append((title(r), world(r), images(r), r["reduce"], links(r), f"{r['bucket_mb']:g} / {r['ctas']}",
                     f"{r['img_s']:.0f}", f"{r['step_ms']:.2f}", percent(efficiency(of(results), r)), r["commit"]))
    return table(("", "GPUs", "images", "gradients", "links", "MB / CTAs", "img/s", "ms a step",
                  "efficiency", "commit"), rows)


# ---- what is lost ---------------------------------------------------------------------------------------------------

PARTS = ("waiting for each other", "multiprocessors", "reducing", "tail", "slowest rank", "all")


def lost(results):
    timeline, rows = inputs_of(results)[0]["timeline"], []
    own = [r for r in ranked(results) if r["reduce"] != "none" and not r["same_images"]]
    for r in best_by(own, weak_key):
        parts = scaling_records.losses(of(results), r, timeline)
        rows.append((title(r), world(r), r["reduce"], links(r), *(milliseconds(parts[p]) for p in PARTS)))
    return table(("ms a step", "GPUs", "gradients", "links", "waiting for each other",
                  "multiprocessors for NCCL", "reducing", "of that, the last bucket", "slowest rank", "all"),
                 rows)


# ---- buckets and CTAs -----------------------------------------------------------------------------------------------

def exposed(results, r):
    """ms a step that reducing costs, all else equal; None: not measured."""
    apart = scaling_records.with_ranks(of(results), r, reduce="none")
    return r["step_ms"] - apart["step_ms"] if apart else None


def buckets(results):
    """Of the most GPUs, batch 4 with the same images, and with those masks of which more was measured."""
    found = [r for r in ranked(results) if r["same_images"] and r["batch"] == 4 and r["reduce"] == "fp32"
             and r["norm"] == "frozen-bn" and not over_sockets(r)]
    found = max(([r for r in found if r["full_masks"] == full] for full in (False, True)), key=len)
    if not found:
        raise Refused(f"results/{FILE}.jsonl: no record at batch 4 with --same-images")
    most = max(map(world, found))
    cells = {}
    for r in found:
        if world(r) == most:
            cells[r["bucket_mb"], r["ctas"]] = r
    all_ctas, rows = sorted({ctas for _, ctas in cells}), []
    for mb in sorted({mb for mb, _ in cells}):
        row = [f"{mb:g} MB, {next(r['buckets'] for (m, _), r in cells.items() if m == mb)} buckets"]
        for ctas in all_ctas:
            r = cells.get((mb, ctas))
            cost = exposed(results, r) if r else None
            row.append(f"{milliseconds(cost)} ({r['img_s']:.0f})" if r else "")
        rows.append(row)
    return table((f"{most} GPUs", *(f"{c} CTAs" if c else "NCCL's choice" for c in all_ctas)), rows)


def size_text(size):
    if size % 1000 == 0:
        return f"{size / 1e6:g} MB"
    return f"{size // 1024} KiB" if size < 1 << 20 else f"{size >> 20} MiB"


def reductions(results):
    found = [r for r in scaling_records.reductions(results.all(FILE)) if r["dtype"] == "fp32"]
    if not found:
        raise Refused(f"results/{FILE}.jsonl: no record of bench_reduce")
    cells = {(r["world"], r["bytes"], r["ctas"]): r for r in found}
    all_ctas, rows = sorted({ctas for _, _, ctas in cells}), []
    for gpus, size in sorted({key[:2] for key in cells}):
        chosen = [cells.get((gpus, size, c)) for c in all_ctas]
        rows.append((gpus, size_text(size), *(f"{r['us']:.0f} µs, {r['gb_s']:.0f} GB/s" if r else "" for r in chosen)))
    return table(("GPUs", "fp32", *(f"{c} CTAs" if c else "NCCL's choice" for c in all_ctas)), rows)


# ---- the prediction -------------------------------------------------------------------------------------------------

def prediction(several=False, **given):
    """With these inputs, whatever records say; several: of more than one node."""
    def make(results):
        ranked(results)
        inputs, sources = inputs_of(results)
        inputs, _ = scaling_records.fit(inputs, sources, of(results), scaling_records.default_setting())
        shapes = [s for s in scaling.SHAPES if s[1] > 1 or not several]
        rows = scaling.prediction_rows({**inputs, **given}, shapes)
        return table(rows[0], rows[1:])
    return make


def gradients(results):
    return f"{sum(size for _, size in inputs_of(results)[0]['timeline']) / 1e6:.0f} MB"


def last_bucket(results):
    inputs = inputs_of(results)[0]
    return f"{scaling_model.buckets(inputs['timeline'], inputs['bucket_mb'])[-1].bytes / 1e6:.0f} MB"


def sources(results):
    ranked(results)
    values, origins = scaling_records.fit(*inputs_of(results), of(results), scaling_records.default_setting())
    return table(("input", "value", "from"), [(f"`{name}`", value if isinstance(value, int) else f"{value:.4g}",
                                               origins[name]) for name, value in values.items()
                                              if isinstance(value, (int, float))])


def best_share(**members):
    """The best weak scaling of the most GPUs at batch 4 with frozen batch norm."""
    def value(results):
        found = [r for r in ranked(results) if r["batch"] == 4 and r["norm"] == "frozen-bn" and r["reduce"] == "fp32"
                 and not over_sockets(r) and all(r[k] == v for k, v in members.items())]
        if not found:
            raise Refused(f"results/{FILE}.jsonl: no record at batch 4 has {members}")
        most = max(map(world, found))
        return percent(max(efficiency(of(results), r) for r in found if world(r) == most))
    return value


# ---- learning -------------------------------------------------------------------------------------------------------

LEARNING = "learning-ranks-h200"


CASES = {"one": "one GPU", "not reducing": "two, exchanging losses only", "reducing": "two, exchanging gradients"}


def clocks(results):
    """Clock and power of each GPU by what it does, means over runs."""
    rows = []
    records = results.all("clocks-h200")
    for case, words in CASES.items():
        for gpu in sorted({r["gpu"] for r in records if r["case"] == case}):
            of_gpu = [r for r in records if r["case"] == case and r["gpu"] == gpu]
            def mean(member):
                return sum(r[member] for r in of_gpu) / len(of_gpu)
            rows.append((words, gpu, f"{mean('mhz'):.0f}", f"{mean('mhz_sd'):.0f}", f"{mean('watts'):.0f}",
                         f"{mean('img_s'):.0f}"))
    return table(("", "GPU", "MHz", "std. dev.", "W", "img/s in all"), rows)


def learning(results):
    """The last evaluation of each run, by how it was shared out and by seed."""
    if LEARNING + ".jsonl" not in results.files:
        raise Refused(f"results/{LEARNING}.jsonl is missing")
    ways = {}
    for r in results.all(LEARNING):
        ways.setdefault((r["steps"], r["gpus"], r["batch"], r["reduce"], r["sockets"]), []).append(r)
    rows = []
    for (steps, gpus, batch, reduced, sockets), found in sorted(ways.items()):
        mean = [sum(r[key] for r in found) / len(found) for key in ("bbox_AP", "segm_AP")]
        rows.append((f"{gpus} × batch {batch}", "" if gpus == 1 else reduced, "sockets" if sockets else "", steps,
                     ", ".join(f"{100 * r['bbox_AP']:.1f} / {100 * r['segm_AP']:.1f}" for r in found),
                     f"{100 * mean[0]:.2f} / {100 * mean[1]:.2f}"))
    return table(("GPUs", "gradients", "links", "steps", "box / mask AP by seed", "mean"), rows)


TABLES = {"scaling-learning": learning, "scaling-clocks": clocks, "scaling-weak": weak, "scaling-lost": lost, "scaling-buckets": buckets, "scaling-reductions": reductions,
          "scaling-prediction": prediction(links_per_node=8),
          "scaling-prediction-shared": prediction(several=True, links_per_node=1),
          "scaling-prediction-bf16": prediction(several=True, links_per_node=1, bytes_per_gradient=2),
          "scaling-inputs": sources}
VALUES = {"scaling.full": best_share(full_masks=True, same_images=True),
          "scaling.own": best_share(full_masks=False, same_images=False),
          "scaling.gradients": gradients,
          "scaling.last": last_bucket}
