#!/usr/bin/env python3
"""Mutation testing: makes small mistakes in the sources, one at a time, and lists those that no test notices. Run it
from the root of a tree whose programs are built (make all build/test_all), and do not edit the tree meanwhile:

    CUDA=0 B=build python3 test/mutate.py [--seed N] [--count N] [--folder F] [--list] [--resume FILE]

CUDA, B, CC, CFLAGS and ARCH are read from the environment and must be those that make was given.

A mutant has one mistake: a condition of if, while or ?: is negated (negate); a guard is removed, which is an if that
leaves the block, or an operand of && or || (guard); a call whose result is unused is removed (call); a comparison or
the end of a loop moves by one (bound). Mutants come from all folders that the Makefile compiles for the CPU, drawn
with --seed. Lines that did not change keep their position in the draw, so that two versions of the tree are tested
with nearly the same mutants.

A mutant is run against the tests of its own folder (tiers 0 and 1), then against those of every folder that includes a
header of the mutant's file (tier 0), up to the first failure. Programs are not relinked, so test/programs is not run.
A mutant is caught when a test fails or crashes twice, or prints nothing for --seconds, and passes without
the mutant. It is equivalent, and not run, when its object code is the original's.

Each mutant is one line: FILE:LINE, operator, result, test, seconds, the mistake. --resume appends these lines to FILE
and skips mutants that FILE has already. Everything is compiled in a temporary folder. Since a mutant may delete
files or kill processes, tests run in namespaces where they see no other process and can write only to that folder; this
needs unshare (util-linux) and permission to create namespaces."""
import argparse
import collections
import glob
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

OPERATORS = ("negate", "guard", "call", "bound")
TOKEN = re.compile(r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*)|(?P<str>"(?:\\.|[^"\\\n])*")|
  (?P<char>'(?:\\.|[^'\\\n])+')|(?P<num>\.?\d(?:[eEpP][+-]|[\w.])*)|(?P<word>[A-Za-z_]\w*)|
  (?P<op><<=|>>=|->|\+\+|--|<<|>>|[<>=!+*/%&|^-]=|&&|\|\||.)""", re.S | re.M | re.X)
OPENS, CLOSES = "([{", ")]}"
ASSIGNS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
LEAVES = {"return", "continue", "break", "goto", "die", "exit", "_exit"}
# Messages, and invariants that only a bug breaks.
MESSAGE = re.compile(r"(err_set|die\w*|printf|perror|warn\w*|log_note|CHECK\w*|_Static_assert|assert)$")
# Calls that only release something (a leak would show it), that only matter in a race, or that print.
KEPT = re.compile(r"(\w*free|free_\w+|f?close|closedir|dlclose|munmap|va_end|pthread_mutex_\w+|pthread_\w+_destroy|"
                  r"atomic_\w+)$")
KEYWORDS = {"if", "while", "for", "switch", "return", "sizeof", "else", "do", "case"}
Mutant = collections.namedtuple("Mutant", "file line operator start end text shown key")


class Source:
    """The tokens of a file, which brackets belong together, and the mistakes that can be made in it."""

    def __init__(self, path):
        self.path, self.raw = path, open(path, encoding="utf-8").read()
        self.tokens = [(m.lastgroup, m.group(), m.start(), m.end()) for m in TOKEN.finditer(self.raw)
                       if m.lastgroup != "skip"]
        self.word = [t[1] for t in self.tokens] + [""]
        self.pair, stack = {}, []
        self.hushed = [False] * len(self.word)  # inside a message or an invariant, or outside all functions
        bodies, quiet = 0, []
        for i, (group, word, _, _) in enumerate(self.tokens):
            if group == "op" and word in OPENS:
                body = word == "{" and (bodies > 0 or self.word[i - 1] == ")")
                hush = word == "(" and (MESSAGE.match(self.word[i - 1]) or self.word[i + 1] == "stderr" or
                                        self.word[i - 1] == "fputs" and self.to_stderr(i))
                stack.append((i, body, hush))
                bodies += body
                quiet += [i] if hush else []
            self.hushed[i] = bodies == 0 or bool(quiet)
            if group == "op" and word in CLOSES and stack:
                begin, body, hush = stack.pop()
                self.pair[begin], self.pair[i] = i, begin
                bodies -= body
                if hush:
                    quiet.pop()
        self.found = []

    def to_stderr(self, i):
        return "stderr" in self.word[i : self.word.index(";", i)] if ";" in self.word[i:] else False

    def add(self, operator, first, last, text):
        """The tokens first … last (included) become text."""
        start, end = self.tokens[first][2], self.tokens[last][3]
        self.found.append((operator, start, end, text + "\n" * self.raw.count("\n", start, end)))

    def between(self, first, last):
        return self.raw[self.tokens[first][2] : self.tokens[last][3]] if first <= last else ""

    def operand_start(self, at, stops):
        """The first token of the operand that ends before the operator at `at`."""
        i = at - 1
        while i >= 0 and self.word[i] not in stops and self.word[i] not in "([{;,}":
            i = self.pair.get(i, i) - 1 if self.word[i] in ")]" else i - 1
        return i + 1

    def operand_end(self, at, stops):
        i = at + 1
        while i < len(self.tokens) and self.word[i] not in stops and self.word[i] not in ")]};,":
            i = self.pair.get(i, i) + 1 if self.word[i] in OPENS else i + 1
        return i - 1

    def make(self):
        outer = ASSIGNS | {"return", "?", ":", "case"}
        for i, word in enumerate(self.word[:-1]):
            if self.hushed[i] or self.tokens[i][0] == "str":
                continue
            if word in ("if", "while") and self.word[i + 1] == "(":
                self.condition(i, word)
            elif word == "?":
                first = self.operand_start(i, outer)
                strings = {self.tokens[i + 1][0], self.tokens[i + 3][0]}
                if strings != {"str"}:  # a choice between two texts is not mutated
                    self.add("negate", first, i - 1, "!(%s)" % self.between(first, i - 1))
            elif word in ("&&", "||"):
                first, last = self.operand_start(i, outer | {"&&", "||"}), self.operand_end(i, outer | {"&&", "||"})
                self.operand(first, i, self.word[first])
                self.operand(i, last, self.word[i + 1])
            elif word in ("<", "<=", ">", ">="):
                self.comparison(i, word)
            elif self.tokens[i][0] == "word" and self.word[i - 1] in ("{", "}", ";", "else", ")"):
                self.statement(i)
        return self.found

    def operand(self, first, last, word):
        if not MESSAGE.match(word):
            self.add("guard", first, last, "")

    def condition(self, i, word):
        close = self.pair[i + 1]
        test = self.between(i + 2, close - 1)
        if test not in ("true", "1"):
            self.add("negate", i + 2, close - 1, "!(%s)" % test)
        if word != "if":
            return
        end = self.pair[close + 1] if self.word[close + 1] == "{" else self.word.index(";", close)
        last = max((k for k in range(close + 1, end) if self.word[k] in ";{" and k < end - 1), default=close)
        if self.word[last + 1] in LEAVES and self.word[end + 1] != "else":
            self.add("guard", i, end, "(void)(%s);" % test)

    def comparison(self, i, word):
        stops = ASSIGNS | {"return", "?", ":", "&&", "||", "case", "<", ">", "<=", ">=", "==", "!=", "!"}
        first, last = self.operand_start(i, stops), self.operand_end(i, stops)
        left, right = self.between(first, i - 1), self.between(i + 1, last)
        if re.search(r"\d\.|\.\d|\de-?\d|\bINFINITY\b|\bHUGE_VAL|_MAX\b", left + " " + right):
            return  # real numbers are rarely equal, so that the mutant would hardly ever differ
        if self.word[last + 1] == "?":  # min or max of two values
            middle = self.operand_end(last + 1, {":"})
            if {self.between(last + 2, middle), self.between(middle + 2, self.operand_end(middle + 1, stops))} == \
               {left, right}:
                return
        then = "%s = %s;"
        if self.word[last + 1] == ")" and self.raw[self.tokens[last + 1][3] :].lstrip().startswith(
                (then % (left, right), then % (right, left))):
            return  # if (x > most) most = x;
        if self.word[first - 1] == "(" and "-" in (self.word[first - 2], self.word[last + 2]):
            return  # (x > y) - (x < y)
        begin = first - 1
        while begin > 0 and self.word[begin] not in "({":
            begin = self.pair.get(begin, begin) - 1 if self.word[begin] in CLOSES else begin - 1
        if self.word[begin - 1] == "for" and KEPT.match(self.word[self.pair[begin] + 1]):
            return  # releases what an array holds
        if self.word[begin - 1] == "for" and word == "<":
            self.early(begin, i, first, last)
        else:
            self.add("bound", i, i, {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[word])

    def early(self, begin, i, first, last):
        """The loop whose parenthesis opens at `begin` ends one step early. OpenMP wants its variable to stand alone."""
        header = self.between(begin, self.pair[begin])
        left = self.between(first, i - 1)
        step = re.match(r"\s*%s \+= ([^,;]+)\)$" % re.escape(left), header.rsplit(";", 1)[-1])
        above = self.raw[: self.tokens[begin - 1][2]].rstrip().rsplit("\n", 1)[-1].strip()
        by = step.group(1) if step else "1"
        if above.startswith("#pragma omp"):
            self.add("bound", i + 1, last, "%s - %s" % (self.between(i + 1, last), by))
        else:
            self.add("bound", first, i - 1, "%s + %s" % (left, by))

    def statement(self, i):
        """name(…); name->f(…); name[i].f(…); a call whose result nobody uses."""
        if self.word[i] in KEYWORDS or self.word[i - 1] == ")" and \
           self.word[self.pair[i - 1] - 1] not in ("if", "for", "while"):
            return
        at = i
        while self.word[at + 1] in ("->", ".", "["):
            at = self.pair[at + 1] if self.word[at + 1] == "[" else at + 2
        if self.word[at + 1] != "(" or self.word[self.pair[at + 1] + 1] != ";":
            return
        name = self.word[at]
        if MESSAGE.match(name) or KEPT.match(name) or "stderr" in self.word[at : self.pair[at + 1]]:
            return
        self.add("call", i, self.pair[at + 1], "")

    def mutants(self, seed):
        seen = collections.Counter()
        for operator, start, end, text in self.make():
            begin = self.raw.rfind("\n", 0, start) + 1
            stop = self.raw.find("\n", end)
            before, after = " ".join(self.raw[begin:stop].split()), \
                " ".join((self.raw[begin:start] + text + self.raw[end:stop]).split())
            shown = "%s  ->  %s" % (before, after)
            seen[operator, shown] += 1
            key = "%d %s %s %s %d" % (seed, self.path, operator, shown, seen[operator, shown])
            yield Mutant(self.path, self.raw.count("\n", 0, start) + 1, operator, start, end, text, shown,
                         hashlib.sha256(key.encode()).digest())


def folders():
    """Those that the Makefile compiles for the CPU, without lab/; exact/ has headers alone."""
    listed = re.search(r"^folders := ((?:[^\n]*\\\n)*[^\n]*)", open("Makefile").read(), re.M).group(1)
    return [f for f in listed.replace("\\\n", " ").split() if not f.startswith("lab")] + ["exact"]


class Tests:
    """Which tests a file has."""

    def __init__(self):
        self.named = {}  # test/F/test_S.c: the names of its tests
        self.users = collections.defaultdict(set)  # a header: the folders of files that include it
        self.headers = collections.defaultdict(list)  # a file: what it includes
        self.text = {}
        for path in glob.glob("**/*.[ch]", recursive=True):
            tested = re.sub(r"^test/ops\b", "test/cpu", path)  # tests of an op are for both devices
            self.text[path] = text = open(path, encoding="utf-8").read()
            for header in re.findall(r'^#include "([^"]+)"', text, re.M):
                self.users[header].add(os.path.dirname(tested))
                self.headers[path].append(header)
            if os.path.basename(path).startswith("test_"):
                self.named[tested] = re.findall(r"^TEST\w*\((\w+)", text, re.M)
        self.known = set(folders()) | {"fuzz"}

    def of(self, path):
        """Names and their tier, in the order in which they run: the file's own tests, its folder's, the others'."""
        folder, stem = os.path.dirname(path), os.path.splitext(os.path.basename(path))[0]
        include = {re.sub("^test/", "", user) for h in self.own(path) for user in self.users[h]} - {folder}
        mine = {p for p in self.named if os.path.dirname(p) == "test/" + folder}
        first = {p for p in mine if self.is_of(os.path.basename(p)[len("test_"):-2], stem)}
        others = {p for p in self.named if os.path.dirname(p)[len("test/"):] in include & self.known}
        return [(sorted(n for p in part for n in self.named[p]), tier)
                for part, tier in ((first, 1), (mine - first, 1), (others - mine, 0))]

    def own(self, path):
        """The headers of its folder that declare what the file defines; of an op, those that it includes."""
        near = [h for h in self.text if h.endswith(".h") and os.path.dirname(h) == os.path.dirname(path)]
        names = re.findall(r"^(?!static\b|typedef\b)[A-Za-z_][\w ]*[ *](\w+)\(", self.text[path], re.M)
        declared = re.compile(r"\b(%s)\(" % "|".join(set(names))) if names else None
        found = [h for h in near if h == path or declared and declared.search(self.text[h])]
        return found or [h for h in self.headers[path] if h in near]

    @staticmethod
    def is_of(tested, stem):
        return (tested + "_").startswith(stem + "_") or (stem + "_").startswith(tested + "_")


CONFINED = """for m in $(awk '{ print $2 }' /proc/self/mounts); do case $m in /proc* | /sys* | /dev*) ;; *)
  mount -o remount,bind,ro "$m" ;; esac; done 2>/dev/null
mount --bind "$TMPDIR" "$TMPDIR" && mount -o remount,bind,rw "$TMPDIR" && ! [ -w "$THIS" ] || exit 99
echo 1000 >/proc/self/oom_score_adj
ulimit -f 2000000
exec "$@" """  # killed first if memory runs out; files of at most 1 GB


class Lab:
    """Compiles, links and tests a mutant in a temporary folder."""

    def __init__(self, room, options):
        self.room, self.options, self.build = room, options, os.environ.get("B", "build")
        self.given = ["%s=%s" % (name, os.environ[name]) for name in ("B", "CUDA", "CC", "CFLAGS", "ARCH")
                      if name in os.environ]
        self.healthy = {}  # a test: whether it passes without a mutant
        self.original = {}  # an object's command: the code that it makes of the original
        shared = os.environ.get("MASKRCNN_SHARED", os.path.abspath("../shared"))
        self.environment = dict(os.environ, B=self.build, MASKRCNN_SHARED=shared, TMPDIR=room + "/tmp",
                                THIS=os.path.abspath("Makefile"), CCACHE_DISABLE="1", LC_ALL="C")
        os.makedirs(room + "/tmp")
        self.confine = []
        if not options.unconfined:
            user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
            self.confine = ["unshare", *user, "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c",
                            CONFINED, "sh"]
            if subprocess.run(self.confine + ["true"], env=self.environment, stderr=subprocess.DEVNULL).returncode:
                sys.exit("mutate.py: unshare cannot confine the tests here, and a mutant may delete files or kill "
                         "processes: run as root, or in a container of your own with --unconfined")
        if subprocess.run(["make", "-s", *self.given, self.build + "/test_all"]).returncode:
            sys.exit("mutate.py: the tree does not build, see above. CUDA, B, CC, CFLAGS and ARCH are as for make")
        listed = subprocess.check_output([self.build + "/test_all", "--tier", "1", "--list"], text=True)
        self.registered = {name: int(tier) for tier, name in map(str.split, listed.splitlines())}

    def commands(self, path):
        """What make would run if the file were newer: commands of objects, and the one that links test_all."""
        target = self.build + "/test_all"
        said = subprocess.run(["make", "-n", "-W", path, *self.given, target], capture_output=True, text=True).stdout
        lines = [line.rsplit(" && ", 1)[-1] for line in said.splitlines()]
        needed = next((shlex.split(line) for line in lines if " -o %s " % target in line + " "), [])
        archived = next((line.split() for line in lines if line.startswith("ar qcs %s/objects.a " % self.build)), [])
        objects = [c for c in map(shlex.split, lines) if "-c" in c and c[c.index("-o") + 1].endswith(".o")]
        return [c for c in objects if c[c.index("-o") + 1] in needed + archived], needed

    def compile(self, command, path, folder):
        """The object, compiled with the file in `folder` in place of the tree's, or None."""
        to = os.path.join(folder, command[command.index("-o") + 1].replace("/", "+"))
        at = command.index("-c")
        source = os.path.join(folder, command[at + 1]) if command[at + 1] == path else command[at + 1]
        flags = [f for f in command[:at] if f not in ("-Werror", "-MMD", "-MP", "-g", "-I.")]
        flags += ["-w", "-I" + folder, "-I.", "-ffile-prefix-map=%s/=" % folder]
        done = subprocess.run(flags + ["-c", source, "-o", to], capture_output=True, env=self.environment)
        return to if done.returncode == 0 else None

    def write(self, folder, path, text):
        os.makedirs(os.path.join(folder, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(folder, path), "w", encoding="utf-8") as f:
            f.write(text)

    def make(self, m):
        """The mutant's test_all, or why there is none."""
        objects, link = self.commands(m.file)
        if not objects or not link:
            return None, "not compiled"  # a header that nobody includes here
        text = open(m.file, encoding="utf-8").read()
        folder, plain = self.room + "/mutant", self.room + "/original"
        shutil.rmtree(folder, ignore_errors=True)  # a header left by an earlier mutant
        self.write(folder, m.file, text[: m.start] + m.text + text[m.end :])
        self.write(plain, m.file, text)
        made, differ = {}, False
        for command in objects:
            name = command[command.index("-o") + 1]
            made[name] = self.compile(command, m.file, folder)
            if not made[name]:
                return None, "not compiled"
            if name not in self.original:
                path = self.compile(command, m.file, plain)
                self.original[name] = open(path, "rb").read() if path else b""
            differ |= open(made[name], "rb").read() != self.original[name]
        if not differ:
            return None, "equivalent"
        program = self.room + "/test_all"
        first = [o for name, o in made.items() if name not in link]  # before the archive with the originals
        command = [made.get(word, program if word == self.build + "/test_all" else word) for word in link]
        at = next(i for i, word in enumerate(command) if word.endswith(".o"))
        done = subprocess.run(command[:at] + ["-Wl,-S"] + first + command[at:], capture_output=True, text=True,
                              env=self.environment)
        return (program, None) if done.returncode == 0 else (None, "not compiled")

    def run(self, program, names):
        """The first test that fails, and how: "fails", "crashes" or "hangs"; (None, None) when all pass."""
        process = subprocess.Popen([*self.confine, program, "--tier", "1", *names], env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        said, at, failed = b"", "", None
        heard, ended, silent = [time.time()], threading.Event(), threading.Event()

        def watch():
            while not ended.wait(0.2):
                if time.time() - heard[0] > self.options.seconds:
                    silent.set()
                    os.killpg(process.pid, signal.SIGKILL)
                    return
        threading.Thread(target=watch, daemon=True).start()
        try:
            while not failed:
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    break
                heard[0] = time.time()
                said = (said + piece)[-65536:]
                for name in re.findall(rb"^\w+", said, re.M):  # a long name has no space after it
                    at = name.decode() if name.decode() in self.registered else at
                line = re.search(rb"^(\w+) [^\n]* s  FAIL", said, re.M)
                failed = line and line.group(1).decode()
            if not failed:
                process.wait()
        finally:
            ended.set()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        process.stdout.close()
        shutil.rmtree(self.room + "/tmp", ignore_errors=True)
        os.makedirs(self.room + "/tmp", exist_ok=True)
        if failed:
            return failed, "fails"
        if silent.is_set():
            return at, "hangs"
        return (None, None) if code == 0 else (at, "crashes")

    def test(self, program, names, tier):
        """As run, of tests that pass without the mutant; a failure counts when it comes again."""
        names = [n for n in names if self.registered.get(n, 2) <= tier and self.healthy.get(n, True)]
        while names:
            name, how = self.run(program, names)
            if not how:
                break
            if not name:  # before the first test
                return "the start", how
            if name not in self.healthy:
                self.healthy[name] = self.run(self.build + "/test_all", [name])[1] is None
                if not self.healthy[name]:
                    print("# %s does not pass without a mutant: left out" % name, flush=True)
            if self.healthy[name] and (how == "hangs" or self.run(program, [name])[1]):
                return name, how
            names = [n for n in names if n > name]  # sorted, as test_all runs them
        return None, None

    def outcome(self, m, parts):
        program, why = self.make(m)
        if why:
            return why, "-"
        for names, tier in parts:
            test, how = self.test(program, names, tier)
            if how:
                return "caught", "%s %s" % (test, how)
        return "survived", "-"


def drawn(seed, folder):
    paths = sorted(p for f in folders() if not folder or f == folder for p in glob.glob(f + "/*.[ch]"))
    return sorted((m for p in paths for m in Source(p).mutants(seed)), key=lambda m: m.key)


def summary(results):
    """results: (operator, result) of every mutant."""
    for operator in (*OPERATORS, "all"):
        counts = collections.Counter(r for k, r in results if operator in (k, "all"))
        compiled = counts["caught"] + counts["survived"]
        if compiled:
            print("# %-6s %d of %d caught (%.1f %%); %d equivalent, %d not compiled" % (
                operator, counts["caught"], compiled, 100 * counts["caught"] / compiled, counts["equivalent"],
                counts["not compiled"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20, help="how many of the draw (default: 20)")
    parser.add_argument("--folder", help="only mutants of this folder, such as data/coco")
    parser.add_argument("--list", action="store_true", help="print the mutants; compile nothing")
    parser.add_argument("--resume", metavar="FILE", help="append the results to FILE; leave out what it has already")
    parser.add_argument("--seconds", type=float, default=40, help="a test that prints nothing for so long hangs")
    parser.add_argument("--unconfined", action="store_true", help="run the tests without namespaces, so that they can "
                        "delete and kill whatever you can")
    options = parser.parse_args()
    if not os.path.exists("Makefile") or not os.path.isdir("test"):
        parser.error("run it from the root of the tree")
    if options.folder and options.folder not in folders():
        parser.error("no folder %s; there are %s" % (options.folder, " ".join(folders())))
    chosen = drawn(options.seed, options.folder)[: options.count]
    if options.list:
        for m in chosen:
            print("%s:%d\t%s\t%s" % (m.file, m.line, m.operator, m.shown))
        return
    known = {}
    if options.resume and os.path.exists(options.resume):
        rows = [line.rstrip("\n").split("\t") for line in open(options.resume, encoding="utf-8")]
        known = {(row[0], row[1], row[5]): row[2] for row in rows if len(row) == 6}
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # so that the temporary folder is removed
    tests, results = Tests(), []
    with tempfile.TemporaryDirectory(prefix="maskrcnn-mutants-") as room:
        lab = Lab(room, options)
        for m in chosen:
            place = "%s:%d" % (m.file, m.line)
            result = known.get((place, m.operator, m.shown))
            if not result:
                begin = time.time()
                result, test = lab.outcome(m, tests.of(m.file))
                line = "\t".join((place, m.operator, result, test, "%.1f" % (time.time() - begin), m.shown))
                print(line, flush=True)
                if options.resume:
                    with open(options.resume, "a", encoding="utf-8") as f:
                        f.write(line + "\n")
            results.append((m.operator, result))
    summary(results)


if __name__ == "__main__":
    main()
