"""Evaluates the records of ./train --benchmark --gpus N and of bench_reduce: groups them, computes what is lost between
one GPU and N, and fits inputs of lab/scaling_model.py to them."""
import calendar
import json
import math
import os
import time

import scaling_model
from records import Refused

FILE = "scaling-h200"
FILES = ("bench-h200", "cocoeval-cpu", FILE)  # files that the model may use
TOGETHER_S = 6 * 3600  # records without a `run` that are at most this far apart belong to one
PARTS = ("batch", "amp", "conv", "norm", "trainable_layers", "full_masks", "canvas_h", "canvas_w")


# ---- one record -----------------------------------------------------------------------------------------------------

def world(r):
    return r.get("world", 1)


def nodes(r):
    return r.get("nodes") or max(world(r) // r.get("local_world", world(r)), 1)


def reserve(r):
    """Multiprocessors that kernels of the backward walk leave out throughout; -1: while NCCL is expected beside them."""
    return r.get("reserve", -1)


def setting(r):
    """What is trained, whatever the number of GPUs."""
    return tuple(r.get(part) for part in PARTS)


def over_sockets(r):
    """Whether NCCL was kept from NVLink and shared memory, as between nodes."""
    off = r.get("variables") or {}
    return off.get("NCCL_P2P_DISABLE") == "1" and off.get("NCCL_SHM_DISABLE") == "1"


def seconds_of(r):
    return calendar.timegm(time.strptime(r["date"], "%Y-%m-%dT%H:%M:%SZ")) if r.get("date") else 0


def where_made(r):
    machine = r.get("machine") or {}
    return r.get("commit"), machine.get("cpu"), machine.get("gpus")


def same_run(a, b):
    """Whether two records may be divided by each other: one machine, one build, one run."""
    if a.get("run") or b.get("run"):
        return a.get("run") == b.get("run")
    return where_made(a) == where_made(b) and abs(seconds_of(a) - seconds_of(b)) <= TOGETHER_S


# ---- grouping ---- --------------------------------------------------------------------------------------------------

def training(records):
    return [r for r in records if r.get("bench") == "train" and "peer" not in r]


def best(records):
    return max(records, key=lambda r: r["img_s"], default=None)


def one_gpu(records, r):
    """The best one-GPU record of r's setting and run; None: there is none."""
    return best([a for a in training(records) if world(a) == 1 and setting(a) == setting(r) and reserve(a) <= 0
                 and same_run(a, r)])


def with_ranks(records, r, **members):
    """The best record of several ranks like r but for these members."""
    alike = ("world", "ctas", "bucket_mb", "reserve", "reduce", "same_images")
    wanted = {**{k: r.get(k) for k in alike}, **members}
    if wanted["reduce"] == "none":
        del wanted["bucket_mb"]
        if wanted["reserve"] == 0:
            del wanted["ctas"]
    return best([a for a in training(records) if world(a) > 1 and setting(a) == setting(r) and same_run(a, r)
                 and over_sockets(a) == over_sockets(r) and all(a.get(k) == v for k, v in wanted.items())])


def efficiency(records, r):
    """Weak scaling: images a second of N over N times those of one, at its best; None: one was not measured."""
    alone = one_gpu(records, r)
    return r["img_s"] / (world(r) * alone["img_s"]) if alone else None


def reductions(records, **members):
    """The newest all-reduce of each size, CTAs, type and world with these members, in order of size."""
    newest = {}
    for r in sorted((r for r in records if r.get("bench") == "reduce"), key=lambda r: r.get("date") or ""):
        usable = r.get("transport") != "tcp" and not over_sockets(r) and nodes(r) == 1
        if usable and all(r.get(k) == v for k, v in members.items()):
            newest[r["world"], r["dtype"], r["ctas"], r["bytes"]] = r
    return [newest[key] for key in sorted(newest)]


def fitted_reduce(records, ranks, ctas):
    """(latency in us, GB/s of bytes moved) of fp32 all-reduces; None: not enough of them."""
    points = [(scaling_model.moved(ranks, r["bytes"]), r["us"]) for r in
              reductions(records, world=ranks, ctas=ctas, dtype="fp32")]
    return scaling_model.fit_line(points) if len({x for x, _ in points}) > 1 else None


# ---- losses ---- ----------------------------------------------------------------------------------------------------

def losses(records, r, timeline):
    """In ms a step, between one GPU at its best and r, which reduces and has its own images; None: not measured.
    `tail` is a part of `reducing`, computed from the last bucket's bytes."""
    alone = one_gpu(records, r)
    beside = with_ranks(records, r, reduce="none", same_images=True, reserve=0)
    apart = with_ranks(records, r, reduce="none", same_images=True)
    same = with_ranks(records, r, same_images=True)
    line = fitted_reduce(records, world(r), r.get("ctas"))
    last = scaling_model.buckets(timeline, r["bucket_mb"], 2 if r["reduce"] == "bf16" else 4)[-1]
    less = lambda a, b: a["step_ms"] - b["step_ms"] if a and b else None
    return {
        "waiting for each other": less(beside, alone),
        "multiprocessors": less(apart, beside),
        "reducing": less(same, apart),
        "tail": 1e-3 * (line[0] + 1e-3 * scaling_model.moved(world(r), last.bytes) / line[1]) if line else None,
        "slowest rank": less(r, same),
        "all": less(r, alone),
    }


# ---- the model's inputs ---------------------------------------------------------------------------------------------

def read_inputs(path):
    """results/scaling-model.json: values by name, and where each is from."""
    try:
        with open(path, encoding="utf-8") as f:
            document = json.load(f)
        values = {name: entry["value"] for name, entry in document["inputs"].items()}
        sources = {name: entry["from"] for name, entry in document["inputs"].items()}
        values["timeline"], sources["timeline"] = document["timeline"]["value"], document["timeline"]["from"]
        return values, sources
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"{path}: not the model's inputs ({error!r})") from None


def read_records(path):
    """The records of a file that need not be among results/."""
    records = []
    try:
        with open(path, encoding="utf-8") as f:
            lines = f.readlines()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise Refused(f"{path}:{number}: no JSON object ({error})") from None
        if not isinstance(record, dict):
            raise Refused(f"{path}:{number}: no JSON object")
        records.append(record)
    return records


def fit(inputs, sources, records, like):
    """The inputs for the setting of the record `like`, with everything that the records tell in the place of what was
    assumed. Returns both dictionaries anew."""
    inputs, sources = dict(inputs), dict(sources)

    def measured(name, value, what):
        inputs[name] = value
        sources[name] = "measured: " + what

    inputs["batch"] = like["batch"]
    found = [r for r in training(records) if world(r) == 1 and setting(r) == setting(like)]
    run = [r for r in found if reserve(r) <= 0]
    last = newest(run)
    alone = best([r for r in run if same_run(r, last)]) if last else None
    if not alone:
        raise Refused("no one-GPU record of ./train --benchmark has "
                      + ", ".join(f"{part} {like.get(part)}" for part in PARTS))
    walk = sum(v for k, v in alone.items() if k.startswith("forward_") and k.endswith("_ms"))
    walk += alone["backward_ms"] + alone["update_ms"]
    measured("step_ms", alone["step_ms"], f"one GPU, {alone['commit']}")
    measured("backward_ms", alone["step_ms"] * alone["backward_ms"] / walk, "its share of the step node by node")
    measured("spread_ms", max(alone["latency_ms_p99"] - alone["latency_ms_p50"], 0) / 2.326,
             "one GPU, 99th percentile less median of its steps, as of a normal distribution")
    ranks = [r for r in training(records) if world(r) > 1 and nodes(r) == 1 and setting(r) == setting(like)
             and not over_sockets(r) and r.get("transport") != "tcp"]
    fit_ranks(inputs, measured, records, ranks)
    fit_evaluation(inputs, measured, records)
    return inputs, sources


def newest(records, **members):
    return max((r for r in records if all(r.get(k) == v for k, v in members.items())),
               key=lambda r: r.get("date") or "", default=None)


def fit_evaluation(inputs, measured, records):
    """What comes between epochs: inference of a batch of eight, and the scores, measured on few cores."""
    infer = newest(records, bench="infer", model="maskrcnn", batch=8, amp="bf16", canvas_h=800, canvas_w=1344)
    if infer:
        measured("infer_img_s", infer["img_s"], f"batch 8, {infer['commit']}")
    scores = [newest(records, bench="cocoeval", iou=iou, images=5000, detections=500000) for iou in ("bbox", "segm")]
    if all(scores):
        seconds, cores = sum(r["ours_s"] for r in scores), scores[0]["cores"]
        measured("scoring_s", seconds * cores / inputs["cores_per_gpu"],
                 f"{seconds:.1f} s for boxes and masks on {cores} cores, {scores[0]['commit']}; assumed: shared by the "
                 f"{inputs['cores_per_gpu']:g} of a GPU")


def fit_ranks(inputs, measured, records, ranks):
    """From the records of several ranks: what reducing takes, and how far images differ. The fewest ranks serve, so
    that more of them are left to be predicted."""
    several = [r for r in ranks if r.get("reduce") == "fp32"]
    if several:
        fewest = min(map(world, several))
        chosen = best([r for r in several if world(r) == fewest and not r.get("same_images")]) or best(
            [r for r in several if world(r) == fewest])
        for name in ("bucket_mb", "ctas"):
            measured(name, chosen[name], f"of the fastest record of {fewest} GPUs, {chosen['commit']}")
    worlds = [r["world"] for r in reductions(records, ctas=inputs["ctas"], dtype="fp32")]
    line = fitted_reduce(records, min(worlds), inputs["ctas"]) if worlds else None
    if line:
        what = f"bench_reduce on {min(worlds)} GPUs, {inputs['ctas']} CTAs"
        measured("nvlink_gb_s", line[1], what)
        ring = next(a for a in inputs["algorithms"] if a["kind"] == "ring")
        measured("base_us", max(line[0] - scaling_model.hops_us(ring, min(worlds), 1), 0.0), what)
    if not several:
        return
    made = scaling_model.buckets(inputs["timeline"], inputs["bucket_mb"])
    lost = losses(records, chosen, inputs["timeline"])
    what = f"{fewest} GPUs, {chosen['commit']}"
    if lost["multiprocessors"] is not None:
        measured("multiprocessors_share", max(lost["multiprocessors"], 0.0) / inputs["backward_ms"],
                 what + ", leaving them out without reducing")
    if lost["reducing"] is not None:
        tail = scaling_model.tail_ms(made, inputs["backward_ms"],
                                     lambda size: scaling_model.all_reduce_ms(inputs, fewest, 1, size))
        gigabytes = 1e-9 * scaling_model.moved(fewest, sum(b.bytes for b in made))
        measured("bandwidth_ms_per_gb", max(lost["reducing"] - tail, 0.0) / gigabytes, what + ", beyond the tail")
    if None not in (lost["slowest rank"], lost["waiting for each other"]) and not chosen.get("same_images"):
        waited = max(lost["slowest rank"] + lost["waiting for each other"], 0.0)
        measured("spread_ms", waited / scaling_model.largest_of(fewest), what + ", own images against one GPU's")


def default_setting(full_masks=False, batch=4):
    """R50-FPN with frozen batch norm, as the model's timeline has it, at COCO's size."""
    return dict(zip(PARTS, (batch, "bf16", "auto", "frozen-bn", 3, full_masks, 832, 1344)))


def folder_records(root):
    """Everything of results/ that the model may use, oldest first."""
    found = []
    for name in FILES:
        path = os.path.join(root, "results", name + ".jsonl")
        if os.path.exists(path):
            found += read_records(path)
    return sorted(found, key=lambda r: r.get("date") or "")


def finite(x):
    return x is not None and math.isfinite(x)
