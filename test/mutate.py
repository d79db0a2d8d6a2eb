#!/usr/bin/env python3
"""Takes guards out of the sources one at a time and expects the tests to notice. Run by hand, from the root of a tree
that is built; every mutant takes the seconds that its files take to compile:

    B=build/cpu CUDA=0 python3 test/mutate.py [--check] [PART…]

test/mutants.txt lists them, three lines each: "FILE: part of a test's name…", the text, and what stands in its place
("-": nothing). Any white space of the text matches any white space of the file. PART chooses mutants by what their
three lines contain. --check only makes sure that every text stands exactly once in its file; lint does so.

Works on a copy of the tree in a temporary folder. Exits 1 when a mutant survives, is not found or does not compile."""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LIST = "test/mutants.txt"
SECONDS = 120  # for the tests of one mutant; a loader that hangs says so before


class Mutant:
    def __init__(self, line, lines):
        self.line = line
        self.lines = lines
        if len(lines) != 3 or ":" not in lines[0]:
            sys.exit("%s:%d: expected FILE: tests, a text and its replacement" % (LIST, line))
        self.file, tests = lines[0].split(":", 1)
        self.tests = tests.split()
        self.before = lines[1].strip()
        self.after = "" if lines[2].strip() == "-" else lines[2].strip()

    def places(self, text):
        return list(re.finditer(r"\s+".join(re.escape(word) for word in self.before.split()), text))

    def fault(self):
        """Why the mutant cannot be made here, or None."""
        if not os.path.exists(self.file):
            return "no file " + self.file
        places = len(self.places(open(self.file).read()))
        if places != 1:
            return "%s has this %s: %s" % (self.file, "%d times" % places if places else "nowhere", self.before)
        return None if self.tests else "no test is named"


def mutants():
    with open(LIST) as f:
        lines = f.read().split("\n")
    at, found = 0, []
    while at < len(lines):
        if not lines[at] or lines[at].startswith("#"):
            at += 1
            continue
        end = at
        while end < len(lines) and lines[end]:
            end += 1
        found.append(Mutant(at + 1, lines[at:end]))
        at = end
    return found


def copy_tree(to, build):
    """Tracked and new files, and the build, with their times, so that make has nothing to do."""
    listed = subprocess.check_output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], text=True)
    for path in filter(os.path.exists, listed.split("\0")):
        os.makedirs(os.path.join(to, os.path.dirname(path)), exist_ok=True)
        shutil.copy2(path, os.path.join(to, path))
    shutil.copytree(build, os.path.join(to, build), copy_function=shutil.copy2)


def run_programs(tests):
    """Whether one of the tests, of which parts of names are given, runs programs."""
    names = []
    for path in glob.glob("test/programs/test_*.c") + glob.glob("test/lab/**/test_*.c", recursive=True):
        names += re.findall(r"^TEST\w*\((\w+)", open(path).read(), re.MULTILINE)
    return any(t in name for t in tests for name in names)


class Tree:
    def __init__(self, root, build):
        self.root, self.build = root, build
        shared = os.environ.get("MASKRCNN_SHARED", os.path.abspath("../shared"))
        self.environment = dict(os.environ, B=build, MASKRCNN_SHARED=shared)

    def make(self, tests):
        """True when it compiles; the programs are linked only for tests that run them."""
        targets = ["all"] if run_programs(tests) else []
        given = ["%s=%s" % (name, os.environ[name]) for name in ("CUDA", "CC", "CFLAGS", "ARCH") if name in os.environ]
        command = ["make", "-s", "B=" + self.build, *given, self.build + "/test_all", *targets]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True)
        return done.returncode == 0, done.stderr

    def test(self, tests):
        """"passes", or how the tests failed, and what they said."""
        process = subprocess.Popen([self.build + "/test_all", "--tier", "1", *tests], cwd=self.root,
                                   env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", start_new_session=True)
        try:
            said = process.communicate(timeout=SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "hangs", process.communicate()[0]
        if process.returncode == 0:
            return "passes", said
        return ("fails" if process.returncode == 1 else "ends"), said

    def try_mutant(self, m):
        path = os.path.join(self.root, m.file)
        text = open(path).read()
        place = m.places(text)[0]
        with open(path, "w") as f:
            f.write(text[: place.start()] + m.after + text[place.end() :])
        compiles, said = self.make(m.tests)
        result = self.test(m.tests)[0] if compiles else "does not compile: " + said.strip().split("\n")[0]
        with open(path, "w") as f:
            f.write(text)
        return result


def run(chosen, build):
    with tempfile.TemporaryDirectory(prefix="maskrcnn-mutants-") as root:
        copy_tree(root, build)
        tree = Tree(root, build)
        every = sorted({t for m in chosen for t in m.tests})
        compiles, said = tree.make(every)
        if not compiles:
            sys.exit("the tree does not compile: " + said)
        for test in every:  # one that fails, or is not there, would tell nothing
            result, said = tree.test([test])
            if result != "passes":
                sys.exit("without a mutant %s %s:\n%s" % (test, result, said))
        noticed = 0
        for m in chosen:
            start = time.time()
            result = tree.try_mutant(m)
            noticed += result in ("fails", "ends", "hangs")
            shown = "SURVIVES" if result == "passes" else result
            print("%-9s %5.1f s  %s:%d: %s: %s" % (shown, time.time() - start, LIST, m.line, m.file, m.before),
                  flush=True)
        print("%d of %d mutants noticed" % (noticed, len(chosen)))
        return noticed == len(chosen)


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    parts = [a for a in arguments if a != "--check"]
    chosen = [m for m in mutants() if not parts or any(p in line for p in parts for line in m.lines)]
    faults = [(m, m.fault()) for m in chosen]
    for m, fault in faults:
        if fault:
            print("%s:%d: %s" % (LIST, m.line, fault))
    if check or any(fault for _, fault in faults):
        sys.exit(any(fault for _, fault in faults))
    if not chosen:
        sys.exit("no mutant contains " + " or ".join(parts))
    sys.exit(not run(chosen, os.environ.get("B", "build")))


main()
