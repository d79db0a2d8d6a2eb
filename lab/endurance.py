#!/usr/bin/env python3
"""Runs of training that are long and interrupted, or crowded: does anything grow, and is every result right?

    endurance.py long FOLDER [--steps N] [--evaluate-every N] [--stops N] [--seconds S] [--seed N] [--compare]
    endurance.py crowd FOLDER [--steps N] [--rounds N]

long: one run of the tiny model, stopped by SIGTERM or SIGKILL at random steps and resumed, while the process's memory,
handles and threads and the files of its folder are counted. Fails if one of them grows. --compare: a run that nothing
stops must have left the same bits. --seconds ends it early.
crowd: two runs, three infers and a report at once in one folder tree. Each result must be the one made alone.

FOLDER must not exist. B (default: build) is the folder of the programs. Prints the figures as JSON; exit status
1: something grew, differs or failed, as the last lines say.
"""
import argparse
import contextlib
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

PROGRAMS = os.path.abspath(os.environ.get("B", "build"))
LOGS = ("log.jsonl", "report.html")  # which grow; the page has a bound: page/log_facts.h
# By which share the least of the last third of samples may exceed that of the first; bytes are those beside the logs.
ALLOWED = {"handles": 0, "threads": 0, "rss_kb": 0.1, "files": 0.1, "bytes": 0.1}
FILLED = 10000  # steps after which heap and folder have filled up, so that their growth counts
POLL = 0.01  # seconds


class Wrong(Exception):
    pass


def program(name, *options):
    return [os.path.join(PROGRAMS, name), *map(str, options)]


def made(line, said):
    """Runs a command to its end; its output goes to the file `said`."""
    with open(said, "w", encoding="utf-8") as f:
        if subprocess.run(line, stdout=f, stderr=f, check=False).returncode:
            raise Wrong(f"{' '.join(line)}: {last_lines(said)}")


def last_lines(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return " / ".join(f.read().splitlines()[-3:])


def training(folder, out, steps, every, seed=5):
    """Evaluation is on a training image, so that there are best states to keep."""
    return program("train", "--data", f"{folder}/set", "--out", out, "--resume", "--model", "tiny", "--size", 32,
                   "--max-size", 32, "--canvases", 1, "--batch", 1, "--optimizer", "adam", "--lr", 0.002, "--schedule",
                   "constant", "--warmup", 10, "--augment", "none", "--iters", steps, "--eval-every", every, "--val-split",
                   "train", "--val-limit", 1, "--checkpoint-every", max(1, every // 2), "--keep", 2, "--detections", 5,
                   "--threads", 1, "--device", "cpu", "--seed", seed)


def make_set(folder):
    made(program("shapes", "--out", f"{folder}/set", "--train", 2, "--val", 2, "--size", 32, "--seed", 3),
         f"{folder}/shapes.said")


# ---- long -----------------------------------------------------------------------------------------------------------
def logged_step(out):
    """The last step of the log."""
    with contextlib.suppress(OSError), open(f"{out}/log.jsonl", "rb") as f:
        f.seek(max(0, os.fstat(f.fileno()).st_size - 8192))
        steps = re.findall(rb'^\{"step":(\d+),', f.read(), re.M)
        return int(steps[-1]) if steps else 0
    return 0


def sample(pid, out):
    """What a process and its folder hold; None where it has just ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            status = dict(line.split(":", 1) for line in f)
        counts = {"step": logged_step(out), "rss_kb": int(status["VmRSS"].split()[0]),
                  "handles": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(status["Threads"]), "files": 0,
                  "bytes": 0, "log_bytes": 0}
    except (OSError, KeyError):
        return None
    for folder, _, names in os.walk(out):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # renamed or removed meanwhile
                size = os.stat(f"{folder}/{name}").st_size
                counts["files"] += 1
                counts["log_bytes" if name in LOGS else "bytes"] += size
    return counts


def session(line, evaluated, stop, out, said, pause):
    """One start of the run, stopped at `stop` (step, seconds later, signal, time at the latest): whether it came to its
    end, the seconds from the signal to its end, and its samples once it has logged the step `evaluated`."""
    step, later, which, until = stop
    samples, sampled, due, asked = [], 0, None, None
    with open(said, "w", encoding="utf-8") as f, subprocess.Popen(line, stdout=f, stderr=f) as run:
        while run.poll() is None:
            now, at = time.monotonic(), logged_step(out)
            if due is None and (at >= step or now > until):
                due = now + later
            if asked is None and due is not None and now >= due:
                asked = now
                run.send_signal(which)
            if asked is None and at >= evaluated and now - sampled >= pause:
                sampled, counts = now, sample(run.pid, out)
                samples += [counts] if counts else []
            time.sleep(POLL)
    if run.returncode and (asked is None or run.returncode not in (1, -which)):
        raise Wrong(f"the run ended with status {run.returncode}: {last_lines(said)}")
    return run.returncode == 0, time.monotonic() - asked if asked else 0, samples


def slope(sessions, name, each):
    """Growth per 10,000 steps by least squares; `each`: within a session, whatever the others begin with."""
    over = under = 0.0
    for group in sessions if each else [[s for samples in sessions for s in samples]]:
        if group:
            step, value = (sum(s[k] for s in group) / len(group) for k in ("step", name))
            over += sum((s["step"] - step) * (s[name] - value) for s in group)
            under += sum((s["step"] - step) ** 2 for s in group)
    return 1e4 * over / under if under else 0.0


def figures(sessions, name):
    values = [s[name] for samples in sessions for s in samples]
    third = max(1, len(values) // 3)
    return {"first": values[0], "last": values[-1], "max": max(values), "least_of_first_third": min(values[:third]),
            "least_of_last_third": min(values[-third:]), "growth_10000_steps": round(slope(sessions, name, False), 3),
            "growth_10000_steps_in_a_session": round(slope(sessions, name, True), 3)}


def files(folder):
    """Paths below a folder but for locks, and indexes, which are only made of annotations that have been left alone."""
    return sorted(os.path.relpath(f"{at}/{n}", folder) for at, _, names in os.walk(folder) for n in names
                  if n != "lock" and not n.startswith("index-"))


def timeless_log(out):
    """The log's lines without what a clock says."""
    with open(f"{out}/log.jsonl", encoding="utf-8") as f:
        return [re.split(',"(?:img_s|clock)"', line)[0] for line in f]


def compare(out, whole):
    """What differs between two folders of runs, by names of files and contents of states, logs and pictures; the number
    of files."""
    names = sorted({*files(out), *files(whole)})
    differ = [n for n in names if not os.path.isfile(f"{out}/{n}") or not os.path.isfile(f"{whole}/{n}")]
    differ += [] if timeless_log(out) == timeless_log(whole) else ["log.jsonl"]
    differ += [n for n in names if n not in differ and n.endswith((".safetensors", "best.json", ".png", ".jpg"))
               and not same(f"{out}/{n}", f"{whole}/{n}")]
    return differ, len(names)


def content(path, folders):
    """A file's bytes, a page's without its nonce, which is random, the minute when it was written, and the folders in its
    paths."""
    with open(path, "rb") as f:
        data = f.read()
    if path.endswith(".html"):
        for folder in folders:
            data = data.replace(folder.encode(), b"")
        data = re.sub(rb"nonce(=\"|-)[0-9a-f]+", b"nonce", data)
        data = re.sub(rb'"written":"[^"]*"', b"", data)
    return data


def same(a, b, folders=()):
    return os.path.isfile(a) and os.path.isfile(b) and content(a, folders) == content(b, folders)


def long(o):
    make_set(o.folder)
    out, said, draw = f"{o.folder}/run", f"{o.folder}/run.said", random.Random(o.seed)
    line = training(o.folder, out, o.steps, o.evaluate_every)
    begin, sessions, signals, slowest, ended = time.monotonic(), [], {"SIGTERM": 0, "SIGKILL": 0}, 0, False
    while not ended and time.monotonic() - begin < o.seconds:
        at = logged_step(out)
        which = draw.choice((signal.SIGTERM, signal.SIGKILL))
        # As many stops after few steps as after many; the last session is left alone.
        steps = math.exp(draw.uniform(0, math.log(4 * o.steps / o.stops))) if sum(signals.values()) < o.stops else 10**9
        stop = at + steps, draw.uniform(0, 0.1), which, begin + o.seconds
        ended, waited, samples = session(line, at + o.evaluate_every + 1, stop, out, said, o.pause)
        signals[which.name] += not ended
        slowest = max(slowest, waited if which == signal.SIGTERM and not ended else 0)
        sessions.append(samples)
        with open(f"{o.folder}/samples.jsonl", "a", encoding="utf-8") as f:
            f.writelines(json.dumps({"session": len(sessions), **s}) + "\n" for s in samples)
    done = logged_step(out)
    record = {"steps": done, "seconds": round(time.monotonic() - begin), "complete": ended, "sessions": len(sessions),
              "stopped_by": signals, "seconds_to_stop_max": round(slowest, 2), "samples": sum(map(len, sessions)),
              "log_bytes_a_step": round(os.path.getsize(f"{out}/log.jsonl") / max(1, done), 1)}
    if not record["samples"]:
        raise Wrong("no session got as far as an evaluation: give more --steps or fewer --stops")
    record |= {name: figures(sessions, name) for name in ALLOWED}
    wrong = []
    for name, allowed in ALLOWED.items():
        first, last = record[name]["least_of_first_third"], record[name]["least_of_last_third"]
        if last > (1 + allowed) * first and (done >= FILLED or not allowed):
            wrong.append(f"{name} grew: at least {first} at first, {last} at the end")
    if o.compare and ended:
        made(training(o.folder, f"{o.folder}/whole", o.steps, o.evaluate_every), f"{o.folder}/whole.said")
        differ, record["compared"] = compare(out, f"{o.folder}/whole")
        wrong += [f"{name} differs from that of a run left alone" for name in differ]
    return record, wrong


# ---- crowd ----------------------------------------------------------------------------------------------------------
def readers(folder, root, weights):
    """Command lines of three infers and a report; two of the infers write into folders of the runs."""
    def infer(*what):
        return program("infer", "--weights", weights, "--device", "cpu", "--size", 32, "--score", 0.01, *what)
    return [infer("--data", f"{folder}/set", "--split", "train", "--eval", "--out", f"{root}/a/found"),
            infer(f"{folder}/set/train", "--out", f"{root}/b/found"),
            infer(f"{folder}/set/val", "--format", "jsonl", "--out", f"{root}/found"),
            program("report", f"{root}/done")]


def crowd(o):
    """Each result alone, below alone/, then all of them at once, below tree/: the infers and the report again and again
    until both runs have ended."""
    make_set(o.folder)
    alone, tree, said, wrong = f"{o.folder}/alone", f"{o.folder}/tree", f"{o.folder}/said", []
    runs = {"a": 5, "b": 6}
    for name, seed in runs.items():
        made(training(o.folder, f"{alone}/{name}", o.steps, o.evaluate_every, seed), said)
    weights = f"{alone}/a/model.safetensors"
    shutil.copytree(f"{alone}/a", f"{tree}/done")
    shutil.copytree(f"{alone}/a", f"{alone}/done")
    for line in readers(o.folder, alone, weights):
        made(line, said)
    want = {name: files(f"{alone}/{name}") for name in ("a/found", "b/found", "found", "done")}
    begin, rounds, results = time.monotonic(), 0, 0

    def start(line, name):
        with open(f"{o.folder}/{name}.said", "w", encoding="utf-8") as f:
            return subprocess.Popen(line, stdout=f, stderr=f)

    def end(run, name):
        if run.wait():
            wrong.append(f"{name}: exit status {run.returncode}: {last_lines(f'{o.folder}/{name}.said')}")

    training_now = {name: start(training(o.folder, f"{tree}/{name}", o.steps, o.evaluate_every, seed), name)
                    for name, seed in runs.items()}
    while not rounds or any(run.poll() is None for run in training_now.values()):
        rounds += 1
        lines = readers(o.folder, tree, weights)
        if os.path.exists(f"{tree}/a/run.json"):
            # Of a run that goes on.
            lines += [program("report", f"{tree}/a"), program("report", f"{tree}/a", "--out", f"{tree}/a.html")]
        at_once = [(start(line, f"reader-{k}"), f"reader-{k}") for k, line in enumerate(lines)]
        for run, name in at_once:
            end(run, name)
        for name, names in want.items():
            results += len(names)
            for n in {*names, *files(f"{tree}/{name}")}:
                if not same(f"{alone}/{name}/{n}", f"{tree}/{name}/{n}", (alone, tree)):
                    wrong.append(f"round {rounds}: {name}/{n} differs from the one made alone")
            if name != "done":
                shutil.rmtree(f"{tree}/{name}", ignore_errors=True)
    for name in want.keys() - {"done"}:
        shutil.rmtree(f"{alone}/{name}")
    for name, run in training_now.items():
        end(run, name)
        differ, compared = compare(f"{tree}/{name}", f"{alone}/{name}")
        results += compared
        wrong += [f"run {name}: {n} differs from the one made alone" for n in differ]
    return {"steps": o.steps, "rounds": rounds, "compared": results, "seconds": round(time.monotonic() - begin)}, wrong


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("long", "crowd"))
    p.add_argument("folder")
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--evaluate-every", type=int, default=50)
    p.add_argument("--stops", type=int, default=40)
    p.add_argument("--seconds", type=float, default=math.inf)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--pause", type=float, default=1, help="seconds between two samples")
    p.add_argument("--compare", action="store_true")
    o = p.parse_args()
    os.makedirs(o.folder)
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        record, wrong = {"long": long, "crowd": crowd}[o.what](o)
        print(json.dumps(record))
    except Wrong as e:
        wrong = [str(e)]
    for line in wrong:
        print(f"endurance.py: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
