"""The tables and figures of README.md and docs/: speed, learning, comparisons, soak, CPU. Each uses the newest record
of its setting; a commit in a table is that of our own record in the row."""
import re
import statistics

from conv_figures import LADDER, Total, production, read_grids, table
from records import Refused


def pair(record):
    return f"{record['bbox_AP']:.3f} / {record['segm_AP']:.3f}"


# ---- a GPU's speed --------------------------------------------------------------------------------------------------

def train_record(results, batch, full_masks=False, **setting):
    """R50-FPN with frozen batch norm, three stages trained, on the canvas that eight COCO images get."""
    found = [r for r in results.all("bench-h200", bench="train", batch=batch, amp="bf16", **setting)
             if (r["canvas_h"], r["canvas_w"], r.get("full_masks", False)) == (800, 1216, full_masks)
             and (r.get("norm", "frozen-bn"), r.get("trainable_layers", 3)) == ("frozen-bn", 3)]
    if not found:
        raise Refused(f"bench-h200: no record of training at batch {batch} has {setting}")
    return found[-1]


def peer_record(results, batch):
    found = [r for r in results.all("bench-h200", bench="train", batch=batch) if "peer" in r]
    if not found:
        raise Refused(f"bench-h200: no record of torchvision's training at batch {batch}")
    return found[-1]


def train_speed(results):
    rows = []
    for batch in (4, 16):
        ours, cudnn = (train_record(results, batch, conv=conv) for conv in ("auto", "cudnn"))
        peer = peer_record(results, batch)
        rows.append((f"training, batch {batch}", f"{ours['img_s']:.0f} img/s", f"{cudnn['img_s']:.0f}",
                     f"{peer['img_s']:.0f}", ours["commit"]))
    for batch in (4, 16):
        full = train_record(results, batch, full_masks=True, conv="auto")
        rows.append((f"training, batch {batch}, every row of the mask head full", f"{full['img_s']:.0f} img/s", "", "",
                     full["commit"]))
    return table(("", "ours", "ours on cuDNN's convolutions", "torchvision 0.26, eager", "commit"), rows)


def infer_speed(results):
    """Inference beside torchvision's of the same run, with its masks pasted and without."""
    rows = []
    for batch in (1, 8, 24):
        ours = results.newest("bench-h200", bench="infer", batch=batch, amp="bf16")
        peers = [r for r in results.all("bench-h200", bench="infer", batch=batch)
                 if "peer" in r and r.get("run") == ours.get("run")]
        pasted, bare = (next((r for r in peers if r["pasted"] == is_pasted), None) for is_pasted in (True, False))
        if not pasted or not bare:
            raise Refused(f"bench-h200: torchvision's inference at batch {batch} is not in the run of ours")
        rows.append((batch, f"{ours['img_s']:.0f}", f"{ours['nodes_ms']:.2f}",
                     f"{ours['latency_ms_p50']:.2f} / {ours['latency_ms_p99']:.2f}", f"{ours['peak_bytes'] / 1e9:.2f}",
                     f"{pasted['img_s']:.0f} / {bare['img_s']:.0f}", f"{pasted['peak_bytes'] / 1e9:.2f}", ours["commit"]))
    return table(("batch", "img/s", "ms in the network's nodes", "latency, ms: median / 99 %", "GPU memory, GB",
                  "torchvision 0.26, eager: img/s, masks pasted / not", "torchvision, GB", "commit"), rows)


def train_objects(results):
    return f"{train_record(results, 4, conv='auto')['positives']:.0f}"


# ---- learning -------------------------------------------------------------------------------------------------------

def alone(record):
    """Whether its seconds may be quoted: nothing else ran."""
    return record.get("note", "").startswith("alone")


def learning_row(results, name, file, *runs):
    """Ours and torchvision's newest of the runs that begin so, which need not be of one day."""
    found = [r for r in results.all(file) if r.get("run", "").startswith(runs)]
    ours = [r for r in found if "ours" in r or "bbox_AP" in r]
    peers = [r for r in found if "torchvision" in r]
    if not ours or not peers:
        raise Refused(f"{file}: no record of {' or '.join(runs)} has ours and torchvision's")
    mine, theirs, same = ours[-1].get("ours", ours[-1]), peers[-1]["torchvision"], ours[-1] is peers[-1]
    seconds = f"{mine['seconds']:.0f} s / {theirs['seconds']:.0f} s" if same and alone(ours[-1]) else ""
    commit = ours[-1]["commit"] if same else f"{ours[-1]['commit']}; torchvision with {peers[-1]['commit']}"
    return name, pair(mine), pair(theirs), seconds, commit


def learning_table(rows):
    return table(("", "ours: box / mask AP", "torchvision's", "training, ours / torchvision", "commit"), rows)


def learning_h200(results):
    rows = [learning_row(results, f"nuclei, seed {seed}", "learning-h200", f"nuclei, seed {seed}",
                         f"nuclei, beside torchvision, seed {seed}") for seed in (1, 2, 3)]
    return learning_table(rows + [learning_row(results, "eight COCO images by heart", "learning-h200",
                                               "eight COCO images, beside torchvision")])


def learning_cpu(results):
    rows = [learning_row(results, f"nuclei, seed {seed}", "learning-cpu",
                         f"nuclei, tiny, beside torchvision, seed {seed}") for seed in (1, 2, 3)]
    return learning_table(rows + [learning_row(results, "eight COCO images by heart", "learning-cpu",
                                               "eight COCO images, tiny, beside torchvision")])


def decoder(dtype):
    return lambda results: "{:.3f}".format(results.newest(
        "learning-cpu", run="torchvision's box decoder alone, eight COCO images")["box_AP"][dtype])


def first_step_losses(results):
    columns = {"ours": "ours, bf16", "float32": "torchvision, float32", "autocast": "autocast",
               "autocast_float32_boxes": "autocast, boxes in float32"}
    rows = []
    for seed in (2, 3):
        r = results.newest("learning-h200", run=f"nuclei, losses of the first step, seed {seed}")["losses"]
        for loss in ("objectness", "rpn_box_reg"):
            rows.append((f"seed {seed}, {loss}", *(f"{r[k][loss]:.4f}" for k in columns)))
    return table(("loss of the first step", *columns.values()), rows)


def demo(results):
    return [r for r in results.all("learning-cpu") if r["run"].startswith("make demo")][-1]


def demo_time(results):
    return "{} min {} s".format(*divmod(round(demo(results)["seconds"]), 60))


# ---- comparisons ----------------------------------------------------------------------------------------------------

def torchvision_stages(results):
    rows = []
    for r in results.all("torchvision-h200"):
        if "tensors" not in r:
            continue
        weights = "trained" if "trained" in r["compared"] else "random"
        canvas = re.search(r"(\d+) ?x ?(\d+)", r["how"])
        failed = r.get("failed_tensor")
        rows.append((r["precision"], r.get("rung", ""), weights, " × ".join(canvas.groups()), r["tensors"],
                     f"{r['worst_ratio']:.2f}", f"{failed['name']}, {failed['ratio']:.2f}" if failed else r["failed"],
                     f"{r['indices_differ']} of {r['indices']}", r["commit"]))
    return table(("", "rung", "weights", "canvas", "tensors", "error / torchvision's, at most", "failed",
                  "indices that differ", "commit"), rows)


def detections_matched(results):
    r = [r for r in results.all("torchvision-h200") if "detections" in r][-1]
    return f"{r['matched']} of {r['detections']}"


def soak(results):
    """Records of whole runs: those written by hand from a last line of progress say so in `how`."""
    newest = {(r["rung"], r["dtype"]): r for r in results.all("soak-h200") if "how" not in r}
    return table(("rung", "type", "batch", "seconds", "ops", "with other bits", "commit"),
                 [(r["rung"], r["dtype"], r["batch"], r["seconds"], f"{r['runs']:,}", r["mistakes"], r["commit"])
                  for r in newest.values()])


def checks(pattern, shape="{}"):
    """What results/checks-h200.txt says where the pattern first matches."""
    def value(results):
        match = re.search(pattern, results.text("checks-h200.txt"))
        if not match:
            raise Refused(f"results/checks-h200.txt: nothing there looks like {pattern}")
        return shape.format(*match.groups())
    return value


RANDOM = (r"cuda_conv_is_right_on_random_problems (\d+) problems;.*?forward \d+, ([\d.]+); "
          r"dgrad \d+, ([\d.]+); wgrad \d+, ([\d.]+)")


# ---- a CPU's speed --------------------------------------------------------------------------------------------------

def gemm(results):
    rows = []
    newest = results.newest_by(lambda r: (r["threads"], r["layer"], r["op"]), "gemm-cpu", bench="gemm")
    for threads in sorted({key[0] for key in newest}, reverse=True):
        chosen = [r for r in newest.values() if r["threads"] == threads]
        slow = sorted((r["ratio"], r["layer"], r["op"]) for r in chosen if r["ratio"] < 0.5)
        rows.append((threads, len(chosen), f"{statistics.median(r['ratio'] for r in chosen):.2f}",
                     "; ".join(f"{layer} {op} {ratio:.2f}" for ratio, layer, op in slow)))
    return table(("threads", "cases", "median speed / OpenBLAS'", "below half"), rows)


def latency(results):
    """A row for each machine and number of threads; peers' seconds, and what ours takes of them."""
    rows = []
    newest = results.newest_by(lambda r: (r["machine"]["cpu"], r["threads"]), "latency-cpu", bench="latency")
    for (cpu, threads), r in sorted(newest.items()):
        ours, *others = r["rows"]
        cells = [f"{o['seconds']:.2f} s ({o['ours_of_it']:.2f})" for o in others]
        rows.append((f"{cpu}, {threads}", f"{ours['seconds']:.2f} s", *cells, r["commit"]))
    return table(("CPU, threads", "ours", "`--conv reference`", "torchvision", "onnxruntime", "commit"), rows)


def cocoeval(results):
    rows = []
    for iou in ("bbox", "segm", "boundary"):
        r = results.newest("cocoeval-cpu", bench="cocoeval", iou=iou)
        beside = ("", "", "")  # pycocotools does not compute boundary AP
        if "pycocotools_s" in r:
            beside = f"{r['pycocotools_s']:.0f} s", f"{r['ratio']:.0f}", f"{r['largest_difference']:.1g}"
        rows.append((iou, f"{r['ours_s']:.1f} s", *beside, r["commit"]))
    return table(("", "cocoeval", "pycocotools 2.0.11", "ratio", "largest difference", "commit"), rows)


def loading(results):
    rows = []
    for annotations in (860001, 10000000):
        for name, start in (("parsed and kept as an index", "parsed"), ("from the index, at the next start", "from")):
            r = [r for r in results.all("index-cpu", bench="index", annotations=annotations)
                 if r["origin"].startswith(start)][-1]
            size = "of COCO's size" if annotations == 860001 else "with polygons of eight points"
            rows.append((f"annotations {size} ({annotations:,}, {r['file_mb']:.0f} MB), {name}",
                         f"{r['seconds']:.2f} s ({r['cpu_seconds']:.2f} s of CPU time), {r['peak_mb']} MB at most", r["commit"]))
    for threads, r in results.newest_by(lambda r: r["threads"], "loader-cpu", bench="loader").items():
        rows.append((f"COCO images of 640 px, decoded, with masks, {threads} thread{'s' if threads > 1 else ''}; "
                     f"{r['decode_percent']:.0f} % of it decoding", f"{r['img_s']:.0f} img/s", r["commit"]))
    return table(("what", "figure", "commit"), rows)


def loader_decode(results):
    return f"{results.newest('loader-cpu', bench='loader', threads=2)['decode_percent']:.0f} %"


# ---- single figures -------------------------------------------------------------------------------------------------

def tflops(rung, op="fwd"):
    return lambda results: f"{read_grids(results, *LADDER)['bf16', 'none', 4].rung[rung][op]['p2.3x3']['tflops']:.0f}"


def ahead(batch):
    """By how much all convolutions but the stem are faster than cuDNN's."""
    def value(results):
        total = Total(production(read_grids(results, *LADDER)["bf16", "none", batch], stem=False))
        return f"{100 * (total.cudnn / total.us - 1):.0f} %"
    return value


# ---- the front page -------------------------------------------------------------------------------------------------

def front(results):
    """A line a claim: ours, the peer's, where the record is, how to repeat it."""
    train, infer = train_record(results, 4, conv="auto"), results.newest("bench-h200", bench="infer", batch=8, amp="bf16")
    bare = [r for r in results.all("bench-h200", bench="infer", batch=8) if "peer" in r and not r["pasted"]][-1]
    _, mine, theirs, _, commit = learning_row(results, "", "learning-h200", "nuclei, beside torchvision, seed 2")
    grids = read_grids(results, *LADDER)["bf16", "none", 4]
    total, score = Total(production(grids)), results.newest("cocoeval-cpu", bench="cocoeval", iou="segm")
    learning = demo(results)
    rows = [
        ("training, R50-FPN at 800 x 1216, bf16, batch 4, H200", f"{train['img_s']:.0f} img/s",
         f"torchvision {peer_record(results, 4)['img_s']:.0f}", "bench-h200.jsonl", train["commit"],
         "`./train --data DIR --norm frozen-bn --trainable-layers 3 --batch 4 --amp --benchmark`"),
        ("inference at 800 x 1344, bf16, batch 8, with masks, H200", f"{infer['img_s']:.0f} img/s",
         f"torchvision {bare['img_s']:.0f}", "bench-h200.jsonl", infer["commit"],
         "`./infer --weights FILE --data DIR --score 0 --batch 8 --amp --benchmark`"),
        ("all convolutions of that training step", f"{total.us / 1e3:.1f} ms", f"cuDNN {total.cudnn / 1e3:.1f}",
         "conv-h200.jsonl", grids.commits[-1], "`build/bench`"),
        ("box / mask AP on unseen nuclei, from scratch, mirrored alone", mine, f"torchvision {theirs}", "learning-h200.jsonl",
         commit, "`./train --data nuclei --size 512 --batch 8 --amp --epochs 167 --augment mirror`"),
        ("the demo, on two cores without a GPU", f"box AP {learning['bbox_AP']:.2f} in {demo_time(results)}", "",
         "learning-cpu.jsonl", learning["commit"], "`make demo`"),
        ("scoring masks of 500,000 detections, two cores", f"{score['ours_s']:.1f} s",
         f"pycocotools {score['pycocotools_s']:.0f} s", "cocoeval-cpu.jsonl", score["commit"], "`build/cocoeval`"),
    ]
    return table(("what", "ours", "compared with", "record in `results/`", "commit", "command"), rows)


TABLES = {
    "front": front,
    "train-speed": train_speed,
    "infer-speed": infer_speed,
    "learning-h200": learning_h200,
    "learning-cpu": learning_cpu,
    "first-step-losses": first_step_losses,
    "torchvision-stages": torchvision_stages,
    "soak": soak,
    "gemm": gemm,
    "latency": latency,
    "cocoeval": cocoeval,
    "loading": loading,
}
VALUES = {
    "train.objects": train_objects,
    "decoder.float32": decoder("float32"),
    "decoder.bfloat16": decoder("bfloat16"),
    "demo.time": demo_time,
    "demo.box": lambda results: f"{demo(results)['bbox_AP']:.3f}",
    "demo.mask": lambda results: f"{demo(results)['segm_AP']:.3f}",
    "detections.matched": detections_matched,
    "p2.ours": tflops("wgmma"),
    "p2.cudnn": tflops("cudnn"),
    "p2.wgrad": tflops("wgmma", "wgrad"),
    "loader.decode": loader_decode,
    "ahead.4": ahead(4),
    "ahead.16": ahead(16),
    "checks.commit": checks(r"commit ([0-9a-f]+)"),
    "checks.passed": checks(r"(\d+) passed, 0 failed"),
    "random.problems": checks(RANDOM, "{0}"),
    "random.worst": checks(RANDOM, "{1}"),
    "random.dgrad": checks(RANDOM, "{2}"),
    "random.wgrad": checks(RANDOM, "{3}"),
}
