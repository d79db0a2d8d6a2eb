#!/usr/bin/env python3
"""Reads event files back with the tensorboard package and compares them with the run's log.

  read_events.py LOG.jsonl DIR     DIR: of one run, as `report --tensorboard` writes it

Exits 1 where a number of the log is missing or another, to float's precision, or where time runs backwards."""
import json
import sys

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

LEFT_OUT = "step", "seconds", "scored_set", "max_dets"


def main():
    log, folder = sys.argv[1:]
    expected = {}
    with open(log) as f:
        for line in f:
            record = json.loads(line)
            for key, value in record.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool) and key not in LEFT_OUT:
                    expected.setdefault(f"{record['kind']}/{key}", []).append((record["step"], np.float32(value)))
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    found = {tag: [(e.step, np.float32(e.value)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    wrong = [tag for tag in expected | found if expected.get(tag) != found.get(tag)]
    for tag in found:
        times = [e.wall_time for e in events.Scalars(tag)]
        wrong += [f"{tag}, its times"] * (times != sorted(times))
    print(f"{len(found)} scalars, {sum(map(len, found.values()))} values; different: {wrong or 'none'}")
    return bool(wrong) or not found


if __name__ == "__main__":
    sys.exit(main())
