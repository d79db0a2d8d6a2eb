"""Nsight Compute's profiles of the lessons of cuda/conv/lessons/: a table, and figures by lesson."""
from conv_figures import table
from ladder_figures import LESSONS

FILE = "ladder-profile-h200"


def plain(digits, scale=1):
    return lambda value: f"{value * scale:.{digits}f}"


def share(percent):
    return f"{percent:.1f} %" if percent < 10 else f"{percent:.0f} %"


# A member of the record or of derived(): its column's heading, and its format.
COLUMNS = {
    "us": ("time, µs", plain(0)),
    "warps": ("achieved occupancy", share),
    "issue": ("issue slots busy", share),
    "fma": ("FMA pipe", share),
    "tensor_cycles": ("tensor pipe active", share),
    "conflicts": ("bank conflicts, millions", plain(1, 1e-6)),
    "wavefronts": ("wavefronts of shared memory", share),
    "l2_gb": ("through L2, GB", plain(1)),
    "l2_gb_s": ("L2, GB/s", plain(0)),
    "dram_gb_s": ("DRAM, GB/s", plain(0)),
    "long_scoreboard": ("stall long scoreboard", plain(2)),
    "mio_throttle": ("MIO throttle", plain(2)),
    "short_scoreboard": ("short scoreboard", plain(2)),
    "barrier": ("barrier", plain(2)),
}


def derived(record):
    return {**record, "l2_gb": record["l2_gb_s"] * record["us"] * 1e-6}


def lessons_profile(results):
    rows = []
    for name in LESSONS:
        record = derived(results.newest(FILE, rung=name))
        rows.append((name.replace("_", " ", 1), *(write(record[key]) for key, (_, write) in COLUMNS.items())))
    return table(["lesson", *(head for head, _ in COLUMNS.values())], rows)


def value(name, key):
    return lambda results: COLUMNS[key][1](derived(results.newest(FILE, rung=name))[key])


TABLES = {"lessons-profile": lessons_profile}
# profile.07.issue: the share of cycles in which lesson 07 issues an instruction.
VALUES = {f"profile.{name[:2]}.{key}": value(name, key) for name in LESSONS for key in COLUMNS}
