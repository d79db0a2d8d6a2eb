"""Reads the records of results/, refuses those without an origin, and chooses the newest.

A record is one JSON object on one line of a results/*.jsonl. It must have base/machine.h's fields: date, commit, clean,
command, machine. results/legacy.json lists the exceptions, measured before this rule: how many records of each file and
commit ("" for none) are excused, and why. The numbers are exact, so that neither a new record without an origin nor an
unneeded exception passes.

Order: records without a date come first, in the order of files and lines, then the others by date. The newest record of
a setting counts: append a new measurement, or replace the old one.
"""
import collections
import json
import os
import re

DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
MACHINE = {"cpu", "cores", "ram_gib", "os", "kernel", "compiler", "gpu", "gpus", "gpu_memory_gib", "sm_mhz",
           "sm_mhz_max", "memory_mhz", "memory_mhz_max", "power_limit_w", "driver", "cuda_runtime", "cuda_toolkit"}


class Refused(Exception):
    """One line: where, what is wrong, what to do."""


def complaint(record):
    """What keeps a record from being trusted; None: nothing."""
    commit = record.get("commit")
    if not commit or commit == "unknown":
        return "names no commit"
    if commit.endswith("-dirty") or record.get("clean") is False:
        return f"was made from a tree with changes ({commit})"
    if not isinstance(record.get("machine"), dict):
        return "does not say on which machine"
    missing = MACHINE - record["machine"].keys()
    if missing:
        return "says nothing of its machine's " + ", ".join(sorted(missing))
    if not DATE.fullmatch(str(record.get("date"))):
        return "has no date in UTC"
    return None


def place(record):
    """On what a record of a GPU was measured, as short as it can be said."""
    machine = record.get("machine")
    if not isinstance(machine, dict):
        return record["gpu"]
    clock = f"{machine['sm_mhz_max']} MHz, {machine['power_limit_w']} W" if machine["sm_mhz_max"] else "clocks not known"
    return f"{record['gpu']}, {clock}, driver {machine['driver'] or 'not known'}, CUDA {machine['cuda_toolkit']}"


class Results:
    """All records under root/results."""

    def __init__(self, root):
        self.folder = os.path.join(root, "results")
        self.legacy = self.read_legacy()
        self.excused = collections.Counter()  # by file and commit
        self.files = {name: self.read(name) for name in sorted(os.listdir(self.folder)) if name.endswith(".jsonl")}
        for key, count in sorted(self.legacy.items()):
            if self.excused[key] != count:
                raise Refused(f"results/legacy.json: {key[0]}, commit \"{key[1]}\": excuses {count} records, "
                              f"{self.excused[key]} need it; set the number, or measure again")

    def read_legacy(self):
        path = os.path.join(self.folder, "legacy.json")
        with open(path, encoding="utf-8") as f:
            entries = json.load(f)
        for e in entries:
            if e.keys() != {"file", "records", "reason"} or not e["reason"]:
                raise Refused(f"results/legacy.json: {json.dumps(e)[:60]}…: file, records and reason are wanted")
        return {(e["file"], commit): count for e in entries for commit, count in e["records"].items()}

    def read(self, name):
        records = []
        with open(os.path.join(self.folder, name), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                where = f"results/{name}:{number}"
                try:
                    record = json.loads(line)
                except ValueError as error:
                    raise Refused(f"{where}: no JSON object ({error})") from None
                fault, key = complaint(record), (name, record.get("commit") or "")
                self.excused[key] += fault is not None
                if self.excused[key] > self.legacy.get(key, 0):
                    raise Refused(f"{where}: the record {fault}; measure again from a clean commit with this build")
                records.append(record)
        return records

    def study(self, name):
        """The runs of results/studies/NAME that gave their figures: by settings, command among them, in the order in
        which these first come. The origin of a run stands beside its records, or in them."""
        where, chosen = os.path.join("studies", name, "results.jsonl"), collections.OrderedDict()
        for line in self.text(where).splitlines():
            run = json.loads(line)
            if run["kind"] == "run" and run["state"] == "ok":
                fault = complaint({**run["records"][-1], **run})
                if fault:
                    raise Refused(f"results/{where}: {run['files']}: the run {fault}; measure again from a clean commit")
                settings = {"command": run["command"], **run["settings"]}
                chosen.setdefault(tuple(sorted(settings.items())), []).append(run)
        if not chosen:
            raise Refused(f"results/{where}: no run gave its figures")
        return [(dict(key), runs) for key, runs in chosen.items()]

    def text(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as f:
            return f.read()

    def all(self, *names, **setting):
        """The records with these members, oldest first. A name is a file of results/ without .jsonl."""
        found = [r for name in names for r in self.files[name + ".jsonl"]
                 if all(r.get(key) == value for key, value in setting.items())]
        return sorted(found, key=lambda r: r.get("date") or "")

    def newest(self, *names, **setting):
        found = self.all(*names, **setting)
        if not found:
            raise Refused(f"no record of {', '.join(names)} has " + ", ".join(f"{k}={v}" for k, v in setting.items()))
        return found[-1]

    def newest_by(self, key, *names, **setting):
        """The newest record for each value of key(record), in the order in which the values first come."""
        chosen = collections.OrderedDict()
        for r in self.all(*names, **setting):
            chosen[key(r)] = r
        return chosen
