#!/usr/bin/env python3
"""Inspects the code generated for the lessons of cuda/conv/lessons/, without a GPU: registers, shared memory, and the
instructions of the main loop.

    make ARCH=90a lessons-sass, which calls python3 lab/lesson_sass.py OUT OBJECT…

Reads nvcc's sm_90a code in the objects with the CUDA toolkit's cuobjdump (CUOBJDUMP overrides its path), and writes
OUT. The main loop is the innermost loop of forward_kernel with the most multiplications. Exit status: 0; 2 if a tool or
a loop is missing.
"""
import collections
import json
import os
import re
import subprocess
import sys

SYSTEM_SHARED = 1024  # bytes of every block's shared memory that the system uses, and cuobjdump counts
MULTIPLIES = re.compile(r"FFMA|HMMA|HGMMA")
INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_.x]+)(?: +([^;]*))?;")


class Refused(Exception):
    pass


def run(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Refused(f"{command[0]} did not run ({error}); it comes with the CUDA toolkit, CUOBJDUMP says where") from error


def kernel_of(lines, name):
    """The instructions (address, opcode, operands) of the kernel of that name."""
    found, inside = [], False
    for line in lines:
        if "Function :" in line:
            inside = name in line
        match = INSTRUCTION.match(line)
        if inside and match and "@!PT" not in line:  # never executed
            found.append((int(match.group(1), 16), match.group(2), match.group(3) or ""))
    return found


def main_loop(code):
    """The opcodes of the innermost loop that multiplies most, and how often each is there."""
    loops = []
    for address, opcode, operands in code:
        target = re.search(r"0x([0-9a-f]+)$", operands.strip())
        if opcode.startswith("BRA") and target and int(target.group(1), 16) < address:
            body = [op for at, op, _ in code if int(target.group(1), 16) <= at <= address]
            loops.append((int(target.group(1), 16), address, sum(bool(MULTIPLIES.match(op)) for op in body), body))
    loops = [loop for loop in loops if loop[2]]
    inner = [a for a in loops if not any(b is not a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    if not inner:
        raise Refused("forward_kernel has no loop that multiplies; was it unrolled, or compiled for another machine?")
    return dict(sorted(collections.Counter(max(inner, key=lambda loop: loop[2])[3]).items()))


def lesson(cuobjdump, path):
    usage = run(cuobjdump, "-arch", "sm_90a", "-res-usage", path)
    match = re.search(r"Function \S*forward_kernel\S*:\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", usage)
    if not match:
        raise Refused(f"{path}: cuobjdump finds no forward_kernel")
    code = kernel_of(run(cuobjdump, "-arch", "sm_90a", "-sass", path).split("\n"), "forward_kernel")
    registers, stack, shared = map(int, match.groups())
    return {"registers": registers, "stack": stack, "shared": max(shared - SYSTEM_SHARED, 0), "loop": main_loop(code)}


def record(objects):
    cuobjdump = os.environ.get("CUOBJDUMP", "cuobjdump")
    return {"command": "make ARCH=90a lessons-sass",
            "commit": run("git", "describe", "--always", "--dirty", "--exclude=*").strip(),
            "nvcc": re.search(r"release (\S+),", run(os.environ.get("NVCC", "nvcc"), "--version")).group(1),
            "lessons": {os.path.basename(path).split(".")[0]: lesson(cuobjdump, path) for path in sorted(objects)}}


def main():
    try:
        text = json.dumps(record(sys.argv[2:]), indent=1) + "\n"
    except Refused as error:
        sys.exit(print(f"lesson_sass: {error}", file=sys.stderr) or 2)
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
