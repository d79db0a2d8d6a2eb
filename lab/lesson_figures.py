"""Code generated for the lessons of cuda/conv/lessons/: a table, and figures by lesson."""
import json
import re

from ladder_figures import LESSONS
from records import Refused

RECORD = "lessons-sass.json"
# Multiply-adds of an instruction, per warp: a wgmma's are shared by four warps.
PRODUCTS = ((r"FFMA", lambda _: 32), (r"HMMA\.(16)(8)(\d+)\.", lambda m: int(m[1]) * int(m[2]) * int(m[3])),
            (r"HGMMA\.(\d+)x(\d+)x(\d+)\.", lambda m: int(m[1]) * int(m[2]) * int(m[3]) // 4))


def record(results):
    return json.loads(results.text(RECORD))


def lesson(results, name):
    lessons = record(results)["lessons"]
    if name not in lessons:
        raise Refused(f"results/{RECORD}: no lesson {name}; make ARCH=90a lessons-sass writes the record")
    return lessons[name]


def count(loop, pattern):
    return sum(n for opcode, n in loop.items() if re.match(pattern, opcode))


def products(loop):
    """Multiply-adds of a warp in one run through the loop."""
    found = 0
    for opcode, n in loop.items():
        for pattern, each in PRODUCTS:
            match = re.match(pattern, opcode)
            found += n * each(match) if match else 0
    return found


def figures(entry):
    loop = entry["loop"]
    return {"registers": entry["registers"], "shared": entry["shared"], "instructions": sum(loop.values()),
            "multiply": count(loop, "FFMA|HMMA|HGMMA"), "memory": count(loop, "LDG(?!DEPBAR)"), "lds": count(loop, "LDS"),
            "each": f"{products(loop) / sum(loop.values()):.1f}"}


def table(results):
    """The lessons of the record, whose innermost loops do not all hold the copies to shared memory."""
    of = record(results)
    lines = ["| lesson | registers of a thread | static shared memory of a block, bytes | instructions of the main "
             "loop | that multiply | that read memory | that read shared memory | multiply-adds of a warp an instruction |",
             "|---|---|---|---|---|---|---|---|"]
    for name, entry in sorted(of["lessons"].items()):
        f = figures(entry)
        cells = [f[key] for key in ("registers", "shared", "instructions", "multiply", "memory", "lds", "each")]
        lines.append(f"| {name.replace('_', ' ', 1)} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def value(name, key):
    return lambda results: str(figures(lesson(results, name))[key])


KEYS = ("registers", "shared", "instructions", "multiply", "memory", "lds", "each")
TABLES = {"lessons-sass": table}
VALUES = {**{f"sass.{name}.{key}": value(name, key) for name in LESSONS for key in KEYS},
          "sass.nvcc": lambda results: record(results)["nvcc"]}
