#!/usr/bin/env python3
"""How long a checkpoint holds up the steps of a run.

    checkpoint_stall.py LOG EVERY

LOG is the log.jsonl of a run with --checkpoint-every EVERY, whose records say when each step's results were read.
Windows of 40 steps that begin 5 before a checkpoint are compared with windows half way between two checkpoints: the
difference of the medians is the cost of one checkpoint, including everything that its writing slows down. The first 50
steps do not count.
"""
import json
import statistics
import sys

BEFORE, WINDOW, FIRST = 5, 40, 50


def window(at, begin):
    return at.get(begin + WINDOW, float("nan")) - at.get(begin, float("nan"))


def main():
    log, every = sys.argv[1], int(sys.argv[2])
    with open(log, encoding="utf-8") as f:
        at = {r["step"]: r["seconds"] for r in map(json.loads, f) if r["kind"] == "train"}
    saves = [s for s in at if s % every == 0 and s > FIRST and s + WINDOW in at]
    with_one = [window(at, s - BEFORE) for s in saves]
    without = [window(at, s - every // 2 - BEFORE) for s in saves]
    step = statistics.median(without) / WINDOW
    held = [w - statistics.median(without) for w in with_one]
    longest = [max(at[i + 1] - at[i] for i in range(s - BEFORE, s + WINDOW - BEFORE)) for s in saves]
    print(json.dumps({"checkpoints": len(saves), "step_ms": 1e3 * step,
                      "held_ms_median": 1e3 * statistics.median(held), "held_ms_max": 1e3 * max(held),
                      "spread_without_ms": 1e3 * (max(without) - min(without)),
                      "longest_step_ms": 1e3 * max(longest)}))


if __name__ == "__main__":
    main()
