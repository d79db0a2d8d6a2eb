#!/usr/bin/env python3
"""Puts other things where programs write: python3 lab/hostile_outputs.py BUILD >results/hostile-outputs-cpu.txt

BUILD is the folder of the programs. Each file that train and infer --eval leave, and each temporary name, is a pipe, a
socket, a device, a link to a file of the user's, a second name of it, or a folder, before they start. Exits with 1 if a
program hangs, dies of a signal, or changes the user's file."""
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time

KINDS = ("pipe", "socket", "device", "link", "second name", "folder")
TEXT, SECONDS = b"the user's own\n", 60


def put(kind, path, mine):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path)
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))  # /dev/full; root alone may make one
    elif kind == "link":
        os.symlink(mine, path)
    elif kind == "second name":
        os.link(mine, path)
    else:
        os.mkdir(path)


def attempt(name, command, out, file, kind, mine):
    """False if something went wrong."""
    shutil.rmtree(out, ignore_errors=True)
    path = os.path.join(out, file)
    os.makedirs(os.path.dirname(path))
    with open(mine, "wb") as f:
        f.write(TEXT)
    try:
        put(kind, path, mine)
    except PermissionError:
        return True
    before = os.lstat(path)
    try:
        r = subprocess.run(command + ["--out", out], capture_output=True, timeout=SECONDS, text=True)
        code, said = r.returncode, [s for s in r.stderr.splitlines() if file in s]
    except subprocess.TimeoutExpired:
        code, said = "hangs", []
    kept = os.path.lexists(path) and os.lstat(path).st_ino == before.st_ino
    with open(mine, "rb") as f:
        changed = f.read() != TEXT
    bad = changed or code not in (0, 1, 2)
    print(f"{name:5}  {file:30}  {kind:11}  {code!s:5}  {'kept' if kept else 'replaced':8}  {'FAILED ' * bad}"
          f"{(said or [''])[0].replace(out, 'OUT').replace(mine, 'MINE')[:100]}".rstrip(), flush=True)
    return not bad


def main():
    build = os.path.abspath(sys.argv[1])
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True,
                            cwd=pathlib.Path(__file__).parent, check=True).stdout.strip()
    print(f"Other things where programs write, {time.strftime('%Y-%m-%d')}, commit {commit}: python3\n"
          "lab/hostile_outputs.py BUILD. Links at indexes and temporary names are replaced, not followed.\n")
    print(f"{'':5}  {'file':30}  {'is a':11}  {'exit':5}  {'then':8}  what is said")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        data, run, out, mine = (os.path.join(folder, n) for n in ("set", "run", "out", "mine"))
        subprocess.run([f"{build}/shapes", "--out", data, "--train", "4", "--val", "2", "--size", "64"], check=True,
                       capture_output=True)
        train = [f"{build}/train", "--data", data, "--model", "tiny", "--size", "64", "--batch", "1", "--iters", "1"]
        subprocess.run(train + ["--out", run], check=True, capture_output=True)
        infer = [f"{build}/infer", "--weights", os.path.join(run, "model.safetensors"), "--data", data, "--eval"]
        subprocess.run(infer + ["--out", out], check=True, capture_output=True)
        for name, command, made in (("train", train, run), ("infer", infer, out)):
            files = sorted(str(p.relative_to(made)) for p in pathlib.Path(made).rglob("*"))
            pictures = [f for f in files if "/" in f]
            others = [f + ".tmp" for f in files if "/" not in f] + pictures[:1]
            others += ["overlay.tmp", "detections.json.partial"] if name == "infer" else []
            for file in [f for f in files if f not in pictures] + others:
                for kind in ("pipe", "link", "second name") if file in others else KINDS:
                    good &= attempt(name, command, os.path.join(folder, "attacked"), file, kind, mine)
    sys.exit(not good)


main()
