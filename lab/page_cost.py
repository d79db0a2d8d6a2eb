#!/usr/bin/env python3
"""Measures the cost of a run's page: python3 lab/page_cost.py BUILD >>results/page-cpu.jsonl

BUILD is the folder of the programs. For logs of 1,000 to 100,000 records: the page's bytes, the CPU seconds of
build/report, and the time from the request to the drawn page in a headless Chromium (null without one). Also the
step times of a run on the CPU with a page drawn after every fifth step and without, in turns: a folder named
report.html keeps the page from being drawn, and changes nothing else."""
import json
import math
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "test/page"))
import browser  # noqa: E402

TURNS = 5


def write_log(path, records):
    """A log as ./train writes one: an evaluation every 500 steps."""
    with open(path, "w") as f:
        for i in range(1, records + 1):
            wave = lambda k: math.sin(k * i) ** 2
            f.write(json.dumps({
                "step": i, "kind": "train", "lr": 0.02 * (1 - i / records), "loss": 2 / (1 + i / 3000) + 0.3 * wave(13),
                "loss_objectness": 0.1 * wave(1), "loss_rpn_box_reg": 0.05 * wave(3), "loss_classifier": 0.4 * wave(5),
                "loss_box_reg": 0.3 * wave(7), "loss_mask": 0.5 * wave(11), "grad_norm": 3 + wave(2), "rois": 2048,
                "positives": 512, "img_s": 300 + 10 * wave(1), "wait": 1.6e-5, "seconds": i * 0.0129}) + "\n")
            if i % 500 == 0:
                f.write(json.dumps({"step": i, "kind": "eval", "val_loss": 1.5 * wave(1), "bbox_AP": 0.4 * i / records,
                                    "bbox_AP50": 0.6 * i / records, "segm_AP": 0.36 * i / records,
                                    "segm_AP50": 0.55 * i / records, "images": 5000, "left_out": 0}) + "\n")


def cpu_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def open_seconds(page):
    if not browser.find_chromium():
        return None
    with browser.Browser() as b:
        times = []
        for _ in range(TURNS):
            tab = b.page()
            tab.open(page)
            times.append(tab.js("performance.timing.loadEventEnd - performance.timing.navigationStart") / 1e3)
        return statistics.median(times)


def pages(build, folder):
    for records in (1000, 20000, 100000):
        run = os.path.join(folder, f"log-{records}")
        os.mkdir(run)
        write_log(os.path.join(run, "log.jsonl"), records)
        page = os.path.join(run, "report.html")
        seconds = statistics.median(cpu_seconds([f"{build}/report", run]) for _ in range(TURNS))
        yield {"what": "page", "records": records, "log_bytes": os.path.getsize(os.path.join(run, "log.jsonl")),
               "bytes": os.path.getsize(page), "cpu_seconds": round(seconds, 4), "open_seconds": open_seconds(page)}


def step_seconds(build, data, out, drawn):
    """The time of a step: the median of the stretches between evaluations, whose records come two at a time."""
    if not drawn:
        os.makedirs(os.path.join(out, "report.html", "in-the-way"))
    subprocess.run([f"{build}/train", "--data", data, "--model", "tiny", "--size", "64", "--out", out, "--iters", "60",
                    "--batch", "2", "--eval-every", "5", "--device", "cpu", "--threads", "1", "--seed", "1"],
                   check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    seconds = {}
    with open(os.path.join(out, "log.jsonl")) as log:
        for line in map(json.loads, log):
            if line["kind"] == "train":
                seconds[line["step"]] = line["seconds"]
    return statistics.median((seconds[s + 4] - seconds[s]) / 4 for s in range(1, 60, 5))


def steps(build, folder):
    data, times = os.path.join(folder, "data"), {True: [], False: []}
    subprocess.run([f"{build}/shapes", "--out", data, "--train", "40", "--val", "8", "--size", "64", "--seed", "1"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for turn in range(TURNS):
        for drawn in (True, False):
            times[drawn].append(step_seconds(build, data, os.path.join(folder, f"{turn}-{drawn}"), drawn))
    with_pages, without = statistics.median(times[True]), statistics.median(times[False])
    ratios = sorted(a / b for a, b in zip(times[True], times[False]))
    return {"what": "steps", "steps": 60, "turns": TURNS, "step_seconds": round(with_pages, 6),
            "step_seconds_without_pages": round(without, 6), "ratio": round(statistics.median(ratios), 4),
            "ratio_least": round(ratios[0], 4), "ratio_most": round(ratios[-1], 4)}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: lab/page_cost.py BUILD: the folder of the programs")
    build = os.path.abspath(sys.argv[1])
    origin = json.loads(subprocess.run([f"{build}/machine"], check=True, capture_output=True, text=True).stdout)
    origin["command"] = f"python3 lab/page_cost.py {sys.argv[1]}"
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        for record in [*pages(build, folder), steps(build, folder)]:
            print(json.dumps({**record, "load_average": round(load, 1), **origin}), flush=True)


if __name__ == "__main__":
    main()
