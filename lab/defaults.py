#!/usr/bin/env python3
"""Runs ./train with default options except data, size, batch, precision and seed, and records the outcome of each run.

    defaults.py --build build --run 'nuclei --data DIR --size 512 --amp' --run … --batches 1,2,4 --seeds 1,2 --out FILE

Every --run is a name and options, run for every batch and seed; its options override --batches, --seeds and --iters. A
record has the mean losses around the end of warm-up and at the end of the run (20 steps each), whether the run
finished, the largest loss, AP if the run evaluates, and its origin. Exits 1 if a run did not finish or did not learn.
"""
import argparse
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys
import tempfile

AROUND = 10  # steps on either side


def mean_loss(steps, center):
    near = [s["loss"] for s in steps if center - AROUND <= s["step"] < center + AROUND]
    return sum(near) / len(near) if near else None


def options_of(run, batch, seed, iters):
    name, *options = shlex.split(run)
    given = {o.split("=")[0] for o in options}
    defaults = {"--batch": str(batch), "--seed": str(seed)}
    if "--epochs" not in given:
        defaults["--iters"] = str(iters)
    return name, options + [w for key, value in defaults.items() if key not in given for w in (key, value)]


def train(build, name, options, origin):
    with tempfile.TemporaryDirectory() as out:
        command = [os.path.join(build, "train"), *options, "--out", out]
        said = subprocess.run(command, capture_output=True, text=True, errors="replace")
        lines = []
        if os.path.exists(out + "/log.jsonl"):
            with open(out + "/log.jsonl", encoding="utf-8") as log:
                lines = [json.loads(line) for line in log]
    steps = [r for r in lines if r["kind"] == "train"]
    evals = [r for r in lines if r["kind"] == "eval"]
    record = dict(origin, run=name, command="./train " + shlex.join(options), steps=len(steps),
                  finished=said.returncode == 0)
    if steps:
        top = max(s["lr"] for s in steps)
        warm = next(s["step"] for s in steps if s["lr"] == top)
        record.update(warmup=warm - 1, loss_first=steps[0]["loss"], loss_warm=mean_loss(steps, warm),
                      loss_last=mean_loss(steps, steps[-1]["step"] - AROUND + 1),
                      loss_max=max(s["loss"] for s in steps), skipped=steps[-1].get("skipped", 0),
                      seconds=steps[-1]["seconds"])
    if evals:
        record.update(bbox_AP=evals[-1]["bbox_AP"], segm_AP=evals[-1]["segm_AP"])
    if said.returncode:
        record["said"] = said.stderr.strip().splitlines()[-1][:300]
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--run", action="append", required=True)
    parser.add_argument("--batches", default="8")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--iters", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    origin = json.loads(subprocess.run([os.path.join(args.build, "machine")], capture_output=True, check=True).stdout)
    runs = [options_of(run, batch, seed, args.iters) for batch in reversed(args.batches.split(","))
            for run in args.run for seed in args.seeds.split(",")]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool, open(args.out, "a", encoding="utf-8") as out:
        for record in pool.map(lambda run: train(args.build, *run, origin), runs):
            out.write(json.dumps(record) + "\n")
            out.flush()
            learnt = record["finished"] and record["loss_last"] < record["loss_warm"]
            bad += not learnt
            print("ok " if learnt else "BAD", record["run"], record["command"].split("--batch")[-1],
                  *(f"{k} {record[k]:.4g}" for k in ("loss_first", "loss_warm", "loss_last", "loss_max", "bbox_AP",
                                                    "segm_AP", "skipped", "seconds") if record.get(k) is not None),
                  record.get("said", ""), flush=True)
    print(f"{len(runs)} runs, {bad} of them did not end or learn")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
