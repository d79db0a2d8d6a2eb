"""Figures of docs/training.md (results of default runs, cost of a checkpoint) and docs/results.md (sustained speed)."""
import re
import statistics

from conv_figures import table
from records import Refused

BATCHES = (1, 2, 4, 8, 16, 32)


def batch_of(record):
    return int(re.search(r"--batch (\d+)", record["command"]).group(1))


def runs(results, file, name):
    """By batch, the runs of that name in the order of their seeds."""
    found = {}
    for r in results.all(file, run=name):
        found.setdefault(batch_of(r), []).append(r)
    if not found:
        raise Refused(f"{file}: no record of {name}")
    return found


def cell(records):
    """The loss at the end of warmup and at the end, of each seed."""
    return "; ".join(f"{r['loss_warm']:.2f} → {r['loss_last']:.2f}" if r["finished"] else f"ended at {r['steps']}"
                     for r in records)


def defaults(results):
    names = (("nuclei", "nuclei, 512 px", "h200"), ("coco", "COCO's 92 images, 512 px", "h200"),
             ("coco, 800 px", "COCO's, 800 px", "h200"), ("shapes", "shapes, 256 px", "h200"),
             ("nuclei, fp16", "nuclei, fp16", "h200"), ("coco, fp16", "COCO's, fp16", "h200"),
             ("shapes, fp16", "shapes, fp16", "h200"), ("nuclei, from weights", "nuclei, from weights", "h200"),
             ("coco, from weights", "COCO's, from weights", "h200"),
             ("nuclei, tiny", "nuclei, tiny, CPU", "cpu"),
             ("coco, tiny", "COCO's, tiny, CPU", "cpu"), ("shapes, tiny", "shapes, tiny, CPU", "cpu"))
    rows = []
    for name, shown, machine in names:
        by_batch = runs(results, "defaults-" + machine, name)
        rows.append((shown, *(cell(by_batch.get(b, [])) for b in BATCHES)))
    return table(("", *(f"batch {b}" for b in BATCHES)), rows)


def defaults_scored(results):
    rows = []
    for name in ("nuclei, 20,000 images", "nuclei, 12 epochs"):
        for records in runs(results, "defaults-h200", name).values():
            rows += [(f"{name}, batch {batch_of(r)}, seed {re.search(r'--seed ([0-9]+)', r['command']).group(1)}",
                      f"{r['bbox_AP']:.3f} / {r['segm_AP']:.3f}", r["commit"]) for r in records]
    return table(("", "box / mask AP", "commit"), rows)


def over_runs(records, what, digits=0):
    """Mean and, of several, standard error."""
    found = [r[what] for r in records]
    error = f" ± {statistics.stdev(found) / len(found)**0.5:.{digits + 1}f}" if len(found) > 1 else ""
    return f"{statistics.fmean(found):.{digits}f}{error}"


def sustained(results):
    rows = []
    for settings, runs_of in sorted(results.study("sustained"), key=lambda s: (s[0]["command"], int(s[0]["batch"]))):
        records = [run["records"][-1] for run in runs_of]
        several, long = all(r["evaluations"] > 1 for r in records), all(r["steps"] > 900 for r in records)
        rows.append((f"{settings['command']}, batch {settings['batch']}, {records[0]['steps']:,} steps", len(records),
                     over_runs(records, "img_s"), over_runs(records, "img_s_early"),
                     over_runs(records, "img_s_late") if long else "–",
                     over_runs(records, "data_wait_percent", 1),
                     over_runs(records, "img_s_evaluated") if several else "–", over_runs(records, "img_s_epoch"),
                     ", ".join(sorted({run["commit"] for run in runs_of}))))
    return table(("", "runs", "img/s", "steps 101 to 500", "last 400 steps", "waiting for data, %",
                  "with an evaluation every 1,000 steps", "projected to 5,000 evaluated images per 118,287", "commit"), rows)


def held(results):
    return " and ".join(f"{r['held_ms_median']:.1f} ms" for r in results.all("checkpoints-h200"))


def counted(results):
    found = [r for machine in ("h200", "cpu") for r in results.all("defaults-" + machine)]
    return f"{sum(r['finished'] and r['loss_last'] < r['loss_warm'] for r in found)} of {len(found)}"


TABLES = {"defaults": defaults, "defaults-scored": defaults_scored, "sustained": sustained}
VALUES = {"checkpoint.held": held, "defaults.learnt": counted}
