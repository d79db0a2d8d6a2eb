"""Parses the output of a study's commands, judges each run, and writes the file of results, results.jsonl."""
import contextlib
import datetime
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys

from records import MACHINE
from study_figures import FAILED, NO_VALUE, OK, OUT_OF_MEMORY, Run, find

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


# ---- what a command printed -----------------------------------------------------------------------------------------

def read_text(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


def printed_records(path):
    """(the text of each JSON object that begins a line, on one line; why the last that is none cannot be read)."""
    text, at, records, unread = read_text(path), 0, [], None
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    while at < len(text):
        if text[at] == "{":
            try:
                _, end = decoder.raw_decode(text, at)
                records.append(re.sub(r"[\r\n]", " ", text[at:end]))
                at = end
            except (ValueError, RecursionError) as error:
                unread = str(error)
        at = text.find("\n", at) + 1 or len(text)
    return records, unread


def last_lines(path):
    """Of what was printed, newest first; short enough for a table."""
    lines = (re.sub(r"[\0-\x1f\x7f]", "?", line.strip())[:400] for line in re.split(r"[\r\n]", read_text(path)))
    return [line for line in lines if line][:-13:-1]


def last_line(files):
    return (last_lines(files + ".stderr") + last_lines(files + ".stdout") + ["it printed nothing"])[0]


def why_failed(outcome, files):
    line = last_line(files)
    if outcome["late"]:
        return f"ended after {outcome['seconds']:.3g} s, as timeout says: {line}"
    if outcome["signal"]:
        why = ", by which the system ends what takes too much memory" if outcome["signal"] == 9 else ""
        return f"signal {outcome['signal']}{why}: {line}"
    return f"exit status {outcome['exit']}: {line}"


class Verdict:
    """What a command's run of one cell came to: state, why, and the records (as texts) that are kept: those that
    measures are read from, or else the last, and one that names the machine."""

    def __init__(self, plan, cell, repeat, outcome, sweep_failed, files):
        texts, unread = printed_records(files + ".stdout")
        run = Run(plan, cell, repeat, [json.loads(t) for t in texts], None if sweep_failed else outcome["seconds"])
        kept = {run.source(m) for m in plan.measures.values() if not m.value} - {None}
        last = [i for i, record in enumerate(run.records) if run.owns(record)] or [len(texts) - 1]
        kept |= set() if kept or not texts else {last[-1]}
        machines = [i for i, record in enumerate(run.records) if find(record, "machine")[0]]
        kept |= {machines[-1]} if machines and not kept & set(machines) else set()
        self.texts, run.records = [texts[i] for i in sorted(kept)], [run.records[i] for i in sorted(kept)]
        self.records, self.run = run.records, run
        missing = next((why for why in (run.value(m)[1] for m in run.own_measures()) if why), None)
        ended_well = not (outcome["exit"] or outcome["signal"] or outcome["late"])
        self.state, self.why = OK, None
        if missing or not (ended_well or sweep_failed):
            memory = self.memory(files, not (ended_well or outcome["late"] or sweep_failed))
            self.state = OUT_OF_MEMORY if memory else NO_VALUE if ended_well else FAILED
            missing = f"no JSON is printed: {unread}" if unread and not texts else missing
            self.why = memory or (missing if ended_well else why_failed(outcome, files))

    def memory(self, files, words):
        """How the run says that memory was out: by a record, or, of a command that failed, in words."""
        for record in self.records[::-1]:
            if self.run.owns(record) and record.get("out_of_memory") is True:
                return str(record.get("why") or "the record says so")
        return next((line for line in last_lines(files + ".stderr") if words and re.search(
            "out of memory|too little memory", line, re.I)), None)


class Unprepared:
    """The verdict on what never ran."""

    def __init__(self, why):
        self.state, self.why, self.records, self.texts = FAILED, why, [], []


# ---- origin ---- ----------------------------------------------------------------------------------------------------

def commit():
    """Of this tree; not of a repository around it."""
    if not os.path.exists(os.path.join(ROOT, ".git")) or not shutil.which("git"):
        return "unknown"
    said = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"],
                          capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def machine():
    """As build/machine says it, which asks the GPU; where there is none, what the system says."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        program = os.path.join(os.environ.get("B", "build"), "machine")
        return json.loads(subprocess.run([program], capture_output=True, text=True, check=False).stdout)["machine"]
    values = dict.fromkeys(sorted(MACHINE))
    for name, path, pattern in (("cpu", "/proc/cpuinfo", r"model name\s*: (.*)"),
                                ("os", "/etc/os-release", r'PRETTY_NAME="?([^"\n]*)')):
        with contextlib.suppress(OSError, TypeError):
            values[name] = re.search(pattern, read_text(path))[1]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {**values, "cores": len(os.sched_getaffinity(0)), "ram_gib": round(memory / 2 ** 30, 1),
            "kernel": " ".join((platform.system(), platform.release(), platform.machine()))}


def date():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Results:
    """results.jsonl, to which lines are added whole: a kill leaves at most a piece of one, which is cut off."""

    def __init__(self, path, plan):
        self.path, self.plan = path, plan
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self.machine, self.commit = None, commit()
        with open(path, "rb") as f:
            text = f.read()
        os.ftruncate(self.file, text.rfind(b"\n") + 1)
        plans = [line for line in text.split(b"\n")[:-1] if line.startswith(b'{"kind":"plan"')]
        if not plans or json.loads(plans[-1])["text"] != plan.text:
            self.add({"kind": "plan", "file": plan.path, "text": plan.text, "date": date(), "commit": self.commit,
                      "clean": not re.search("-dirty$|^unknown$", self.commit), "command": shlex.join(sys.argv),
                      "machine": self.ask_machine()})

    def ask_machine(self):
        self.machine = self.machine or machine()
        return self.machine

    def add(self, record, texts=None):
        """texts: of the records that the command printed, as they are."""
        line = compact(record)
        if texts is not None:
            line = f'{line[:-1]},"records":[{",".join(texts)}]}}'
        data, begin = (line + "\n").encode("utf-8", "replace"), os.lseek(self.file, 0, os.SEEK_END)
        try:
            while data:
                data = data[os.write(self.file, data):]
            os.fsync(self.file)
        except OSError:
            os.ftruncate(self.file, begin)
            raise

    def begin(self, sort, cell, repeat):
        """What all lines of a cell begin with."""
        return {"kind": sort, "command": cell["command"],
                "settings": {s: v for s, v in cell.items() if s != "command"}, "repeat": repeat}

    def add_run(self, cell, repeat, order, files, outcome, verdict):
        sweep = self.plan.commands[cell["command"]].sweep
        swept = {"swept": self.plan.settings[sweep].values[cell[sweep]]} if sweep else {}
        has = {name for name in ("commit", "machine") if any(find(r, name)[0] for r in verdict.records)}
        origin = {"date": date(), **({} if "commit" in has else {"commit": self.commit}),
                  **({} if "machine" in has else {"machine": self.ask_machine()})}
        self.add({**self.begin("run", cell, repeat), "state": verdict.state, "why": verdict.why,
                  "exit": outcome["exit"], "signal": outcome["signal"], "seconds": outcome["seconds"],
                  "seed": self.plan.seed, "order": order,
                  "ran": self.plan.kept_command(cell, repeat), **swept, "files": files, **origin}, verdict.texts)

    def add_left(self, cell, repeat, files, why):
        self.add({**self.begin("left", cell, repeat), "why": why, "files": files})
