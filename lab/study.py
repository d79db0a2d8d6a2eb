#!/usr/bin/env python3
"""Runs the commands of a plan, and writes its tables and plots: docs/studies.md.

    python3 lab/study.py PLAN [options] [--merge RESULTS.jsonl …]

Exit status: 0; 1 if runs failed or remain, 2 for a mistake in the plan or the options.
"""
import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import sys
import time

import study_run
from records import Refused
from study_figures import FAILED, NO_VALUE, OK, OUT_OF_MEMORY, Data, Rows
from study_plan import Plan, holds
from study_results import Results, Unprepared, Verdict, last_line, printed_records, why_failed
from study_tables import Tables

LONGEST_NAME = 180


def say(*lines):
    for line in lines:
        print(re.sub(r"[\0-\x1f\x7f]", "?", line), file=sys.stderr, flush=True)


# ---- the runs -------------------------------------------------------------------------------------------------------

class Study:
    """A plan, its folder, and the runs that are there. A turn is one process, of one cell or of those of a sweep."""

    def __init__(self, plan, folder, only, limit):
        self.plan, self.folder, self.only, self.limit = plan, folder, only, limit
        self.prepared = {}  # command: why it failed, or None
        self.rows = Rows(plan)
        self.results_path = os.path.join(folder, "results.jsonl")

    def read(self, *others):
        self.rows = Rows(self.plan)
        for path in ([self.results_path] if os.path.isfile(self.results_path) else []) + list(others):
            self.rows.read(path)

    def wanted(self):
        return [c for c in self.plan.cells() if not self.plan.is_skipped(c) and (not self.only or holds(self.only, c))]

    def order(self):
        """(cell, repeat) of all runs: by repeats, and in each in a random order that follows from the seed; what a
        command sweeps stays together."""
        def key(run):
            cell, repeat = run
            label = self.plan.label({s: v for s, v in cell.items() if s != self.plan.commands[cell["command"]].sweep})
            return repeat, hashlib.sha256(f"{self.plan.seed} {repeat} {label}".encode()).digest()
        return sorted(((cell, repeat) for repeat in range(1, self.plan.repeats + 1) for cell in self.wanted()), key=key)

    def turns(self):
        """(cells, repeat) of each process that is left to run: of a sweep all values that are, unless one that failed
        has left them to run by themselves."""
        done, turns = self.rows.runs_done(), []
        for cell, repeat in self.order():
            key, sweep = self.rows.run_key(cell, repeat), self.plan.commands[cell["command"]].sweep
            together = {s: v for s, v in cell.items() if s != sweep}, repeat
            if key in done:
                continue
            if sweep and key not in self.rows.left and turns and turns[-1][2] == together:
                turns[-1][0].append(cell)
            else:
                turns.append(([cell], repeat, together if sweep and key not in self.rows.left else None))
        return [turn[:2] for turn in turns]

    def expand(self, text, cells, repeat, files):
        sweep = self.plan.commands[cells[0]["command"]].sweep
        swept = ",".join(self.plan.settings[sweep].values[c[sweep]] for c in cells) if sweep else None
        return self.plan.expand(text, cells[0], repeat, files, self.folder, swept)

    def files(self, cells, repeat):
        """What the files of a turn begin with; a hash keeps names apart in which letters were replaced."""
        label = self.plan.label(*cells)
        name = re.sub(r"[^A-Za-z0-9._+=-]", "_", label.replace(" ", "-").replace(",", "+"))[:LONGEST_NAME]
        if name.replace("-", " ").replace("+", ",") != label.replace("-", " "):
            name += "-" + hashlib.sha256(label.encode()).hexdigest()[:8]
        return os.path.join(self.folder, "runs", f"{name}-{repeat}")

    def show(self):
        turns = self.turns()
        for cells, repeat in turns:
            command = self.plan.commands[cells[0]["command"]].run
            text = self.expand(command, cells, repeat, self.files(cells, repeat))
            print(f"{self.plan.label(*cells)}, repeat {repeat}: {text}")
        print(f"{sum(len(cells) for cells, _ in turns)} of {len(self.order())} runs are left")

    def run_all(self):
        """How many runs are left at the end."""
        results, turns = Results(self.results_path, self.plan), self.turns()
        total, left = len(self.order()), sum(len(cells) for cells, _ in turns)
        study_run.adopt_orphans()
        study_run.Interrupt.catch()
        begin = time.monotonic()
        while turns and not self.interrupted() and time.monotonic() - begin < self.limit:
            cells, repeat = turns.pop(0)
            if sys.stderr.isatty():
                print(f"[{total - left + 1} of {total}] {self.plan.label(*cells)}, repeat {repeat} …", end="",
                      file=sys.stderr, flush=True)
            again = self.take_turn(results, cells, repeat, total, left)
            left -= len(cells) - len(again)
            turns = [([cell], repeat) for cell in again] + turns
        if left:
            say(f"{'interrupted' if self.interrupted() else '--limit'}: {left} of {total} runs are left; the same call "
                "continues with them")
        return left

    def interrupted(self):
        return study_run.Interrupt.asked_at is not None

    def take_turn(self, results, cells, repeat, total, left):
        """Runs one process and keeps what it came to; the cells that have to run by themselves, or again."""
        command, files = self.plan.commands[cells[0]["command"]], self.files(cells, repeat)
        os.makedirs(os.path.dirname(files), exist_ok=True)
        if os.path.exists(files):
            shutil.rmtree(files)  # files of an interrupted run
        if "{out}" in command.run:
            os.mkdir(files)
        unprepared = self.prepare(command, cells, repeat, files)
        outcome = {"exit": 0, "signal": 0, "seconds": 0.0, "late": False, "interrupted": False}
        if self.interrupted():
            return cells
        if not unprepared:
            text = self.expand(command.run, cells, repeat, files)
            outcome = study_run.run(text, files + ".stdout", files + ".stderr", command.timeout)
        if outcome["interrupted"] and len(cells) == 1:
            return cells
        bad = unprepared or outcome["exit"] or outcome["signal"] or outcome["late"] or outcome["interrupted"]
        failure = None if len(cells) == 1 or not bad else unprepared or why_failed(outcome, files)
        again, share = [], {**outcome, "seconds": None if failure else outcome["seconds"] / len(cells)}
        for cell in cells:
            verdict = Unprepared(unprepared) if unprepared else Verdict(
                self.plan, cell, repeat, {**outcome, "seconds": outcome["seconds"] / len(cells)}, bool(failure), files)
            name = os.path.basename(files)
            if failure and verdict.state not in (OK, OUT_OF_MEMORY):  # it is not known for which of them it failed
                again.append(cell)
                if not outcome["interrupted"]:
                    results.add_left(cell, repeat, name, failure)
                continue
            order = total - left + 1 + len(cells[:cells.index(cell)]) - len(again)
            results.add_run(cell, repeat, order, name, share, verdict)
            self.tell(cell, repeat, share, verdict, f"[{order} of {total}] ")
        if failure and not outcome["interrupted"]:
            say(f"{self.plan.label(*cells)}, repeat {repeat}: {failure}" + (
                f"; {len(again)} of its {len(cells)} values run by themselves" if again else ""))
        return again

    def prepare(self, command, cells, repeat, files):
        """Runs once what the command needs; why it failed, or None."""
        text = self.expand(command.prepare, cells, repeat, files)
        if text and text not in self.prepared:
            say(f"prepare: {text}")
            files = os.path.join(self.folder, "runs", f"prepare-{len(self.prepared) + 1}")
            outcome = study_run.run(text, files + ".stdout", files + ".stderr", command.timeout)
            bad = outcome["exit"] or outcome["signal"] or outcome["late"]
            self.prepared[text] = f"prepare failed: {last_line(files)}" if bad else None
        return self.prepared.get(text)

    def tell(self, cell, repeat, outcome, verdict, before):
        line = f"{before}{self.plan.label(cell)}, repeat {repeat}" + (
            "" if outcome["seconds"] is None else f": {outcome['seconds']:.1f} s")
        if verdict.state != OK:
            line += f", {verdict.state}: {verdict.why}"
        else:
            for m in verdict.run.own_measures()[:2]:
                line += f", {m.label} {verdict.run.value(m)[0]:.6g}" + (f" {m.unit}" if m.unit else "")
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        say(line)

    # ---- results ---- --------

    def refuse_changed(self):
        for row in self.rows:
            if row.is_changed():
                now, what = self.plan.kept_command(row.cell, row.repeat), "the command"
                was = row.ran
                if now == was:
                    what, was, now = f"the text of {row.cell[row.sweep]}", row.swept, \
                        self.plan.settings[row.sweep].values[row.cell[row.sweep]]
                raise Refused(f'{self.plan.path}: {what} has changed since it ran: {row.where} has "{was}", here it is '
                              f'"{now}"; --rerun changed runs it again, another --out keeps both')

    def write(self):
        data = Data(self.plan, self.rows, self.only)
        tables = Tables(data, self.rows.others, sum(row.is_changed()
                        for row in self.rows if row.where.startswith(self.results_path)))
        self.replace("tables.md", tables.text())
        self.replace("cells.jsonl", "".join(line + "\n" for line in tables.records()))
        for one in self.plan.plots:
            self.replace(one.name + ".svg", tables.plot(one))
        print(os.path.join(self.folder, "tables.md"))

    def write_records(self, path):
        """All that runs printed which gave their figures, a record a line, for a file of results/."""
        files = dict.fromkeys(row.json["files"] for row in self.rows
                              if row.state == OK and holds(self.only or {}, row.cell))
        with open(path, "x", encoding="utf-8") as f:  # measurements are never overwritten
            for name in files:
                texts, _ = printed_records(os.path.join(self.folder, "runs", f"{name}.stdout"))
                f.write("".join(text + "\n" for text in texts))

    def replace(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(path + ".new", path)

    def tell_failures(self):
        """A line for each command that lacks figures; how many runs do, out of memory apart."""
        lacking = 0
        for name in self.plan.commands:
            rows = [row for row in self.rows if row.cell["command"] == name]
            bad = [row for row in rows if row.state in (FAILED, NO_VALUE)]
            lacking += len(bad)
            if bad:
                say(f"{self.plan.path}: the command {name} gave no figures in {len(bad)} of its {len(rows)} runs; "
                    f"--rerun failed runs them again; the last one: {bad[-1].state}: {bad[-1].why or ''}")
        return lacking


def lock(folder):
    """The folder, for this process and those that watch its commands alone."""
    os.makedirs(folder, exist_ok=True)
    file = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o666)
    for wait in [0.1] * 20 + [0]:  # how long the commands of a killed study may take to end
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {platform.node()}".encode(), 0)
            return
        except BlockingIOError:
            time.sleep(wait)
    holder = os.pread(file, 300, 0).decode() or "another process"
    raise Refused(f"{folder} is in use by {holder}; wait until it ends, or give another --out")


def options():
    parser = argparse.ArgumentParser(description="Runs what a plan asks for, and writes its tables and plots; "
                                     "docs/studies.md describes plans.")
    parser.add_argument("plan", metavar="PLAN")
    parser.add_argument("--out", metavar="DIR", help="folder of results, tables and plots (default: out/NAME)")
    parser.add_argument("--set", metavar="'NAME=VALUE …'", help="replace values of the plan's [given]")
    parser.add_argument("--only", metavar="'SETTING=VALUE …'", help="run and show only these, such as batch=2,4")
    parser.add_argument("--list", action="store_true", help="list what would run, in order, and run nothing")
    parser.add_argument(
    "--table",
    action="store_true",
     help="write tables and plots of the results there are; run nothing")
    parser.add_argument("--merge", nargs="+", metavar="RESULTS", help="the same, with results.jsonl of other machines")
    parser.add_argument("--rerun", choices=("none", "failed", "changed"), default="none",
                        help="run again what failed, or what has changed in the plan since (default: none)")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS",
                        help="start no run after this time (default: no limit)")
    parser.add_argument("--records", metavar="FILE", help="write all records of successful runs into a new file")
    return parser.parse_args()


def main():
    args = options()
    plan = Plan(args.plan, args.set)
    try:
        only = plan.conditions(args.only) if args.only else None
    except Refused as error:
        raise Refused(f"--only {args.only}: {error}") from None
    name = os.path.splitext(os.path.basename(args.plan))[0]
    study = Study(plan, args.out or os.path.join("out", name), only, args.limit)
    if args.records and (os.path.exists(args.records) or args.list or args.merge):
        raise Refused(f"--records {args.records}: give a file that is not there yet, and neither --list nor --merge")
    if args.table and not os.path.isfile(study.results_path):
        raise Refused(f"{study.results_path} is not there; the plan without --table makes it")
    runs, left = not (args.list or args.table or args.merge), 0
    if (runs or args.list) and not study.wanted():
        raise Refused(
            f"{plan.path}: nothing to run: {'--only and ' if only else ''}[skip] exclude all combinations of settings")
    if not args.list:
        lock(study.folder)
    study.read()
    if args.rerun == "failed":
        study.rows.drop(lambda row: row.state in (FAILED, NO_VALUE))
    elif args.rerun == "changed":
        study.rows.drop(lambda row: row.is_changed())
    if runs or args.list:
        study.refuse_changed()
    if args.list:
        return study.show()
    if runs:
        left = study.run_all()
    study.read(*args.merge or ())
    if args.merge and not list(study.rows):
        raise Refused(f"--merge {args.merge[0]}: no run of {plan.path}; give the results.jsonl of studies of that plan")
    lacking = study.tell_failures()
    study.write()
    if args.records:
        study.write_records(args.records)
    return 1 if lacking or left else 0


if __name__ == "__main__":
    try:
        sys.exit(main() or 0)
    except KeyboardInterrupt:
        sys.exit(130)
    except (Refused, OSError) as problem:
        what = f"{problem.filename}: {problem.strerror}" if getattr(problem, "filename", None) else problem
        sys.exit(print(f"study: {what}", file=sys.stderr) or 2)
