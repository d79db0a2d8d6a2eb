#!/usr/bin/env python3
"""Converts Nsight Compute's profiles of the lessons of cuda/conv/lessons/ to records on stdout, one a lesson.

    python3 lab/lesson_profile.py --flags              # of ncu, on a line
    python3 lab/lesson_profile.py MACHINE PROFILES >>results/ladder-profile-h200.jsonl

MACHINE holds the output of build/machine from the measuring machine. PROFILES holds, for each lesson, a line
`# NN_name` and the output of `ncu FLAGS build/bench ladder --rungs NN_name --layer p2.3x3`, of which the last
three quoted lines are read: names, units and values. plans/ladder.plan makes both. Exit status: 0; 2 if either is
incomplete.
"""
import csv
import json
import re
import sys

LAYER = "p2.3x3"
# A record's member: the metric, and its unit.
METRICS = {
    "us": ("gpu__time_duration.sum", "time"),
    "registers": ("launch__registers_per_thread", "count"),
    "warps": ("sm__warps_active.avg.pct_of_peak_sustained_active", "percent"),
    "issue": ("smsp__issue_active.avg.pct_of_peak_sustained_active", "percent"),
    "fma": ("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", "percent"),
    "tensor": ("sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", "percent"),
    "tensor_cycles": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "percent"),
    "conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "count"),
    "wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed", "percent"),
    "l2_gb_s": ("lts__t_bytes.sum.per_second", "rate"),
    "dram_gb_s": ("dram__bytes.sum.per_second", "rate"),
    "long_scoreboard": ("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", "count"),
    "barrier": ("smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", "count"),
    "mio_throttle": ("smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio", "count"),
    "short_scoreboard": ("smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio", "count"),
}
# The factor from ncu's unit, which ncu scales as it likes, to the record's.
SCALES = {"time": {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6},
          "rate": {"byte/s": 1e-9, "Kbyte/s": 1e-6, "Mbyte/s": 1e-3, "Gbyte/s": 1, "Tbyte/s": 1e3},
          "percent": {"%": 1},
          "count": {"": 1, "inst": 1, "register/thread": 1}}
FLAGS = "--clock-control none -k regex:forward_kernel -s 1 -c 1 --csv --page raw --metrics "  # -s: skip the first


class Refused(Exception):
    pass


def measured(lesson, names, units, values, metric, unit_type):
    """The value of a metric in the record's unit."""
    if metric not in names:
        raise Refused(f"{lesson}: no {metric}; was ncu called with the flags that --flags says?")
    at = names.index(metric)
    if units[at] not in SCALES[unit_type]:
        raise Refused(f"{lesson}: {metric} is in {units[at]}, which SCALES does not know")
    try:
        value = round(float(values[at].replace(",", "")) * SCALES[unit_type][units[at]], 3)
    except ValueError:
        raise Refused(f"{lesson}: {metric} is {values[at]!r}, no number; did the GPU let ncu count?") from None
    return int(value) if value.is_integer() else value


def profiles(text):
    """(lesson, what ncu said) for each `# NN_name`."""
    parts = re.split(r"^# (\d\d_\w+)$", text, flags=re.M)
    if len(parts) < 3:
        raise Refused("no line `# NN_name` says which lesson is profiled")
    return zip(parts[1::2], parts[2::2])


def record(origin, lesson, said):
    rows = list(csv.reader(line for line in said.split("\n") if line.startswith('"')))[-3:]
    if len(rows) < 3 or len({len(row) for row in rows}) != 1:
        raise Refused(f"{lesson}: ncu's names, units and values are wanted, three lines of CSV; what did it say?")
    figures = {key: measured(lesson, *rows, metric, unit_type) for key, (metric, unit_type) in METRICS.items()}
    command = f"ncu {FLAGS}… build/bench ladder --rungs {lesson} --layer {LAYER}"
    return {"bench": "ladder-profile", "rung": lesson, "op": "fwd", "layer": LAYER, "dtype": "bf16", **figures,
            **origin, "command": command}


def main():
    if sys.argv[1:] == ["--flags"]:
        print(FLAGS + ",".join(metric for metric, _ in METRICS.values()))
        return
    if len(sys.argv) != 3:
        sys.exit(print("usage: lesson_profile.py --flags | MACHINE PROFILES", file=sys.stderr) or 2)
    try:
        with open(sys.argv[1], encoding="utf-8") as machine, open(sys.argv[2], encoding="utf-8") as said:
            origin, text = json.load(machine), said.read()
        records = [record(origin, *profile) for profile in profiles(text)]
    except (OSError, ValueError, Refused) as error:
        sys.exit(print(f"lesson_profile: {error}", file=sys.stderr) or 2)
    for r in records:
        print(json.dumps(r, ensure_ascii=False))


if __name__ == "__main__":
    main()
