#!/usr/bin/env python3
"""lab/study.py with commands that are stand-ins: they print records, fail, wait and are killed. Without this: a table that
is not of its records, a run lost or made twice after a kill, a process left behind, a failure that looks like a figure."""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "lab"))
import study_figures
import study_plan
import study_run
from records import Refused
from study_figures import Data, Rows

STUDY = [sys.executable, "-S", os.path.join(ROOT, "lab", "study.py")]
ONCE = "repeats: 1\nfewest: 1\n"


class Fixture(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)

    def put(self, name, text):
        path = os.path.join(self.root, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def text(self, *names):
        with open(os.path.join(self.root, *names), encoding="utf-8") as f:
            return f.read()

    def plan(self, text, name="a"):
        return self.put(name + ".plan", text.replace("TMP", self.root))

    def command(self, plan, *options, out="out"):
        return [*STUDY, plan, "--out", os.path.join(self.root, out), *options]

    def study(self, plan, *options, status=0, out="out"):
        """What it says."""
        done = subprocess.run(
    self.command(
        plan,
        *options,
        out=out),
        capture_output=True,
        text=True,
        check=False,
         cwd=ROOT)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def tables(self, out="out"):
        return self.text(out, "tables.md")

    def records(self, record_type="run", out="out"):
        lines = [json.loads(line) for line in self.text(out, "results.jsonl").splitlines()]
        return [line for line in lines if line["kind"] == record_type]

    def assertAll(self, text, *parts):
        for part in parts:
            self.assertIn(part, text)


# ---- what is kept ---------------------------------------------------------------------------------------------------

class Kept(Fixture):
    def test_every_table_and_plot_of_results_is_made_of_its_records(self):
        """With the --set and --only of the call that the first line of results.jsonl names."""
        folder = os.path.join(ROOT, "results", "studies")
        for name in sorted(os.listdir(folder)):
            out = os.path.join(self.root, name)
            shutil.copytree(os.path.join(folder, name), out)
            call = [shlex.split(r["command"]) for r in self.records("plan", name)][-1]
            options = [word for option in ("--set", "--only") if option in call
                       for word in (option, call[call.index(option) + 1])]
            self.study(f"plans/{name}.plan", "--table", *options, out=name)
            for file in sorted(os.listdir(os.path.join(folder, name))):
                with open(os.path.join(folder, name, file), encoding="utf-8") as f:
                    self.assertEqual(f.read(), self.text(name, file), f"{name}/{file}: python3 lab/study.py "
                                     f"plans/{name}.plan --table {shlex.join(options)} --out results/studies/{name}")


# ---- figures --------------------------------------------------------------------------------------------------------

FIGURES = """title: Figures
[setting sort]
values: a = 10 12 14, b = 13 13 16, c = 100 101 102
[command draw]
run: set -- {sort}; shift $(({repeat} - 1)); echo "a line"; echo "{\\"x\\": $1}"
[measure x]
read: x
unit: km
better: higher
[measure ratio]
value: x / x[sort=b]
[measure coarse]
value: x / x[sort=b]
digits: 0
[measure least]
value: min(x)
[table all]
best: sort
[plot x]
x: sort
y: x
bars: yes
[published others]
columns: sort, x
a, 11.50
"""


class Figures(Fixture):
    def test_means_errors_and_significance(self):
        """By hand. a: mean 12, deviations -2, 0, 2, so that the error is √(8 / 6) = 1.15; b: mean 14, error √(6 / 6). a / b
        = 0.857: relative errors 1.1547 / 12 and 1 / 14, √(0.09623² + 0.07143²) · 0.857 = 0.103."""
        self.study(self.plan(FIGURES))
        self.assertAll(
            self.tables(), "from 9 of 9 runs.", "| sort | x, km | x, km: others | ratio | coarse | least |",
            "| a | 12.0 ± 1.2 | 11.50 | 0.86 ± 0.10 | 0.9 ± 0.1 | 10 |", "| b | 14.0 ± 1.0 |  | 1 | 1 | 13 |",
            "Best x: sort=c, 101.00 ± 0.58 km.",
            "- x, sort a and b: 12.0 ± 1.2 and 14.0 ± 1.0, a difference of -2.0 ± 1.5 km, smaller than twice its error",
            "1 of 3 differences are smaller than twice their error.")
        plot = self.text("out", "x.svg")
        self.assertEqual((plot.count('class="error onbar"'), plot.count('<rect class="dashed')), (3, 2))
        cell = json.loads(self.text("out", "cells.jsonl").splitlines()[0])
        self.assertEqual((cell["settings"], cell["state"], cell["measures"]["x"]["mean"]), ({"sort": "a"}, "ok", 12))
        self.assertAlmostEqual(cell["measures"]["x"]["error"], 1.1547005, 6)

    def test_errors_of_expressions_are_to_first_order(self):
        """a of n=1: 1, 2, 3; b is 10 - a, so that their sum is 10 in each run. Of n=2 there is one run."""
        plan = study_plan.Plan(self.plan(
            "title: T\n[given]\nprice: 3\n[setting n]\nvalues: 1, 2\n[command c]\nrun: {n}\n[measure a]\nread: a\n"
            "[measure b]\nread: b\n[measure sum]\nvalue: a + b\n[measure part]\nvalue: a / (a + b)\n"
            "[measure cost]\nvalue: -price * a * n + 0 * b\n[measure gain]\nvalue: a / a[n=1]\n"
            "[measure nothing]\nvalue: (a + b) / 3 - a / 3 - b / 3\n[measure far]\nvalue: 1 + a / (b - b)\n"
            "[measure spread]\nvalue: (max(a) - min(a)) / runs(a)\n"))
        rows = Rows(plan)
        rows.read(self.put("r.jsonl", "".join(json.dumps(
            {"kind": "run", "command": "c", "settings": {"n": str(n)}, "repeat": i, "state": "ok", "seconds": 1,
             "ran": str(n), "records": [{"a": a, "b": b}]}) + "\n" for n, i, a, b in (
                 (1, 1, 1, 9), (1, 2, 2, 8), (1, 3, 3, 7), (2, 1, 8, 1)))))
        data, error = Data(plan, rows), 1 / 3 ** 0.5
        for cell, measure, value, wanted in (
                (0, "a", 2, error), (0, "b", 8, error), (0, "sum", 10, 0), (0, "part", 0.2, error / 10),
                (0, "cost", -6, 3 * error), (0, "gain", 1, 0), (0, "nothing", 0, 0), (0, "spread", 2 / 3, None),
                (1, "a", 8, None), (1, "gain", 4, None), (1, "cost", -48, None)):
            figure = data.figure(data.cells[cell], measure)
            self.assertAlmostEqual(figure.value, value, 13, measure)
            if wanted is None:
                self.assertIsNone(figure.error(), measure)
            else:
                self.assertAlmostEqual(figure.error(), wanted, 13, measure)
        self.assertIsNone(data.figure(data.cells[0], "far").value)  # a division by zero is no figure
        difference = data.figure(data.cells[0], "a").apply("-", data.figure(data.cells[0], "b"))
        self.assertAlmostEqual(difference.error(), 2 * error, 13)  # they move against each other

    def test_no_more_digits_than_are_known(self):
        self.study(self.plan("title: D\n[setting a]\nvalues: diverged = 1e17 2e17 4e17, around = -0.003 0.003 -0.001\n"
                             '[command c]\nrun: set -- {a}; shift $(({repeat} - 1)); echo "{\\"v\\": $1}"\n'
                             "[measure v]\nread: v\ndigits: 2\n"))
        self.assertAll(self.tables(), "| diverged | 2.33e+17 ± 8.8e+16 |", "| around | 0.000 ± 0.002 |")

    def test_paths_into_records(self):
        record = {"a": {"b": [1, {"c": "x y"}], "99.9%": 7.5}, "t": True, "z": None, "a.b": 3}
        for path, found in (("a.b.0", (True, 1)), ("a.b.1.c", (True, "x y")), ("a.99.9%", (True, 7.5)), ("t", (True, True)),
                            ("z", (True, None)), ("a", (True, None)), ("a.b.2", (False, None)), ("b", (False, None))):
            self.assertEqual(study_figures.find(record, path), found, path)

    def test_plots(self):
        """Panels, a command that does not use their setting, numbers in their order, an axis between powers of ten."""
        two = "title: P\n[setting a]\nvalues: 16, 1\n[setting b]\nvalues: 1, 2\n[command c]\nrun: echo '{\"v\": {a}{b}}'\n"
        end = "[measure v]\nread: v\n[plot v]\nx: a\ny: v\npanels: b\n"
        plan = self.plan(two + end)
        self.study(plan, "--only", "b=1")
        svg = self.text("out", "v.svg")
        self.assertEqual((svg.count('class="panel"'), svg.count("no figures")), (1, 0))
        self.assertLess(svg.index('middle">1<'), svg.index('middle">16<'))
        self.study(plan, "--table")
        svg = self.text("out", "v.svg")
        self.assertEqual((svg.count('class="panel"'), svg.count("no figures")), (2, 1))
        self.study(
    self.plan(
        two +
        "[command d]\nrun: echo '{\"v\": {a}}'\n" +
        end),
        "--only",
        "command=d",
         out="across")
        svg = self.text("across", "v.svg")
        self.assertEqual((svg.count('class="panel"'), svg.count("<circle")), (1, 3))  # one is the legend's
        self.study(self.plan("title: N\n[setting n]\nvalues: 1, 2\n[command c]\nrun: echo '{\"v\": 6.{n}}'\n[measure v]\n"
                             "read: v\n[plot p]\nx: n\ny: v\nlog: y\n"), out="narrow")
        self.assertGreater(self.text("narrow", "p.svg").count('class="grid"'), 1)

    def test_commands_that_differ_in_their_settings(self):
        self.study(self.plan(
            "title: D\n[setting n]\nvalues: 1, 2\n[setting way]\nvalues: a, b\n[command ours]\n"
            "run: : {way}; echo '{\"v\": {n}{repeat}}'\nlabel: ours, here\n[command theirs]\n"
            "run: echo '{\"w\": {n}{repeat}}'\n[measure v]\nread: v, w\n[measure own]\nread: v\nof: ours\n"
            "[measure times]\nvalue: v / v[command=theirs]\nof: ours\nbetter: higher\n"
            "[table t]\nrows: n\ncolumns: command, way\n[plot p]\nx: n\ny: v\npanels: way\n"))
        text = self.tables()
        self.assertAll(text, "| n | v, ours, here, a | v, ours, here, b | v, theirs | own, ours, here, a | own, ours, here, b |",
                       "- v, command ours and theirs (n=2 way=b): 22.00 ± 0.58 and 22.00 ± 0.58, a difference",
                       "- times, way a and b (ours n=1): ")
        self.assertNotIn("- times, command", text)
        self.assertNotIn("(theirs n=1)", text)
        self.assertEqual(self.text("out", "p.svg").count("<circle"), 2 * 2 * 2 + 2)

    def test_rows_of_a_command_without_their_setting_are_in_those_of_another(self):
        self.study(self.plan(
            "title: T\n[setting conv]\nvalues: x, y\n[setting batch]\nvalues: 1, 2\n[command ours]\n"
            "run: echo '{\"v\": {batch}0}' {conv}\n[command theirs]\nrun: echo '{\"v\": {batch}}'\n[measure v]\nread: v\n"
            "[table t]\nrows: batch, conv\ncolumns: command\n"))
        self.assertIn("| 2 | y | 20 | 2 |", self.tables())
        self.assertNotIn("| – |", self.tables())


# ---- runs -----------------------------------------------------------------------------------------------------------

class Runs(Fixture):
    def test_each_repeat_has_an_order_of_its_own_that_the_seed_gives(self):
        plan = self.plan("title: O\n[setting n]\nvalues: 1, 2, 3, 4, 5, 6\n[command c]\nrun: echo '{\"y\":{n}}'\n"
                         "[measure y]\nread: y\n")
        said = self.study(plan, "--list")
        self.assertIn("18 of 18 runs are left", said)
        self.assertFalse(os.path.exists(os.path.join(self.root, "out")))
        order = re.findall(r"n=(\d), repeat (\d)", said)
        self.assertEqual([r for _, r in order], list("111111222222333333"))
        orders = [[n for n, r in order if r == repeat] for repeat in "123"]
        self.assertEqual([sorted(one) for one in orders], [list("123456")] * 3)
        self.assertGreater(len({tuple(one) for one in orders}), 1)
        self.assertEqual(self.study(plan, "--list"), said)
        self.study(plan, "--only", "n=2,5")
        self.assertAll(self.tables(), "from 6 of 6 runs", "| 5 | 5 |")
        self.assertNotIn("| 1 |", self.tables())
        self.study(plan, "--table", "--only", "n=1")  # what has run is shown all the same
        self.assertAll(self.tables(), "from 6 of 9 runs", "| 1 | not run |", "| 5 | 5 |")

    def test_one_command_without_settings(self):
        said = self.study(self.plan("title: O\n[command alone]\nrun: echo '{\"y\": {repeat}}'; ls {out} >&2\n[measure y]\n"
                                    "read: y\n[measure s]\nread: @seconds\n"))
        self.assertIn("[3 of 3] alone, repeat 3: ", said)
        self.assertTrue(os.path.isdir(os.path.join(self.root, "out", "runs", "alone-2")))
        self.assertRegex(self.tables(), r"\| 2\.00 ± 0\.58 \| \d+\.\d+ ")

    def test_failures_are_rows_and_the_others_go_on(self):
        plan = self.plan("""title: Failing
timeout: 1
[setting case]
values: good, record, words, crash, killed, lacks, null, nan, huge, late
[command c]
run: case {case} in
  good) echo '{"v": 1, "machine": {"gpu": "G"}}';;
  record) echo '{"out_of_memory": true, "why": "too little: 3 GB"}';;
  words) echo 'RuntimeError: CUDA Out Of Memory. Tried' >&2; echo bye >&2; exit 1;;
  crash) echo '{"v": 1}'; echo first >&2; echo the last words >&2; exit 3;;
  killed) kill -KILL $$;;
  lacks) echo '{"w": 1, "other": 2}';;
  null) echo '{"v": null}';;
  nan) echo '{"v": NaN}';;
  huge) echo '{"v": 1e400}';;
  late) sleep 5; echo '{"v": 1}';;
  esac
[measure v]
read: v
""")
        said = self.study(plan, status=1)
        self.assertIn("the command c gave no figures in 21 of its 30 runs; --rerun failed runs them again; the last", said)
        self.assertAll(
            self.tables(), "| good | 1 |", "| record | out of memory |", "| words | out of memory |", "| crash | failed |",
            "| lacks | no value |", "| late | failed |", "case=record: out of memory, 3 of 3 runs: too little: 3 GB",
            "case=words: out of memory, 3 of 3 runs: RuntimeError: CUDA Out Of Memory. Tried",
            "case=crash: failed, 3 of 3 runs: exit status 3: the last words", "case=killed: failed, 3 of 3 runs: signal 9",
            "case=lacks: no value, 3 of 3 runs: no record has v; the last has w, other",
            "case=null: no value, 3 of 3 runs: v is null, which is no number",
            "case=nan: no value, 3 of 3 runs: no JSON is printed: NaN is no JSON",
            "case=huge: no value, 3 of 3 runs: v is beyond 1.8e308, which is no number",
            ", as timeout says: it printed nothing", "- G: 3 runs")
        self.assertEqual(len(self.records()), 30)
        self.assertEqual(sum("machine" in r for r in self.records()), 27)  # those whose records do not name one
        self.study(plan, "--only", "case=crash", status=1)  # nothing runs again
        self.assertEqual(len(self.records()), 30)
        self.study(plan, "--only", "case=crash", "--rerun", "failed", status=1)
        self.assertEqual(len(self.records()), 33)
        self.assertIn("from 30 of 30 runs", self.tables())  # they replace the others

    def test_what_is_prepared_once_may_fail(self):
        self.study(self.plan(
            "title: P\n[setting a]\nvalues: 1, 2\n[setting b]\nvalues: 1, 2\n[command c]\n"
            "prepare: echo {a} >>TMP/prepared; [ {a} = 1 ] || { echo no compiler >&2; exit 1; }\n"
            "run: echo '{\"v\": {b}}'; : {a}\n[measure v]\nread: v\n"), status=1)
        self.assertEqual(sorted(self.text("prepared").split()), ["1", "2"])
        self.assertAll(self.tables(), "| 1 | 2 | 2 |", "| 2 | 2 | failed |",
                       "a=2 b=1: failed, 3 of 3 runs: prepare failed: no compiler")

    def test_limit(self):
        plan = self.plan(FIGURES)
        self.assertIn("--limit: 9 of 9 runs are left", self.study(plan, "--limit", "0", status=1))
        self.study(plan)

    def test_a_record_says_where_it_comes_from(self):
        self.study(self.plan(f"title: T\n{ONCE}[command c]\nrun: echo '{{\"v\": 1}}'\n[measure v]\nread: v\n"))
        plan, run = self.records("plan")[0], self.records()[0]
        for r in (plan, run):
            self.assertRegex(r["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertTrue(r["commit"] and r["machine"]["cores"] >= 1 and "driver" in r["machine"])
        self.assertEqual((run["state"], run["exit"], run["seed"], run["order"], run["repeat"], run["files"], run["records"]),
                         ("ok", 0, 1, 1, 1, "c-1", [{"v": 1}]))

    def test_a_copy_within_another_repository_names_no_commit_of_it(self):
        shutil.copytree(os.path.join(ROOT, "lab"), os.path.join(self.root, "repository", "copy", "lab"))
        subprocess.run("git init -q && git -c user.name=N -c user.email=N commit -q --allow-empty -m M", shell=True,
                       cwd=os.path.join(self.root, "repository"), check=True)
        plan = self.plan(f"title: T\n{ONCE}[command c]\nrun: echo '{{\"v\": 1}}'\n[measure v]\nread: v\n")
        study = os.path.join(self.root, "repository", "copy", "lab", "study.py")
        subprocess.run([*STUDY[:-1], study, plan, "--out", os.path.join(self.root, "out")], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertEqual((self.records()[0]["commit"], self.records("plan")[0]["clean"]), ("unknown", False))

    def test_all_that_was_printed_can_be_kept(self):
        """Of runs that gave their figures, and never over a file that is there."""
        plan = self.plan(f"title: T\n{ONCE}[setting n]\nvalues: 1, 2\n[command c]\nrun: echo '{{\"a\":{{n}}}}'; "
                         "[ {n} = 1 ] && echo '{\"v\":7}'\n[measure v]\nread: v\n")
        path = os.path.join(self.root, "records")
        self.study(plan, "--records", path, status=1)
        self.assertEqual(self.text("records"), '{"a":1}\n{"v":7}\n')
        self.assertIn("give a file that is not there yet", self.study(plan, "--records", path, status=2))

    def test_what_cannot_run(self):
        plan = self.plan(
            "title: T\n[setting n]\nvalues: 1, 2\n[command c]\nrun: echo {n}\n[skip]\nn=1,2\n[measure v]\nread: v\n")
        self.assertIn("nothing to run", self.study(plan, status=2))
        self.assertIn("results.jsonl is not there", self.study(plan, "--table", status=2))
        self.assertIn("--only n=3: there is no value of n called 3", self.study(plan, "--only", "n=3", status=2))
        self.assertIn("No such file", self.study("nowhere.plan", status=2))

    def test_a_study_in_use_is_left_alone(self):
        plan = self.plan(f"title: T\n{ONCE}[command c]\nrun: echo $$ >TMP/begun; sleep 20\n[measure v]\nread: v\n")
        with subprocess.Popen(self.command(plan), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as first:
            wait_for(os.path.join(self.root, "begun"))
            self.assertRegex(self.study(plan, status=2), f"is in use by process {first.pid} on ")
            first.terminate()


# ---- the end of a study ---------------------------------------------------------------------------------------------

def wait_for(path, seconds=20):
    end = time.monotonic() + seconds
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)
    assert os.path.exists(path), path


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter where it ends while it is read
        return False


# The third run starts processes that a kill of the group alone would miss: one in a session of its own, whose parent has
# ended, and one that ignores SIGTERM. Then it waits.
WAITING = """title: Waiting
[setting n]
values: 1, 2
[command c]
run: echo {n}-{repeat} >>TMP/begun; [ ! -e {out}/* ] || exit 9; touch {out}/left;
  if [ $(wc -l <TMP/begun) = 3 ] && [ -e TMP/hold ]; then
  (setsid sh -c 'echo $$ >>TMP/ids; sleep 60' &) ; sh -c '[ ! -e TMP/deaf ] || trap "" TERM; echo $$ >>TMP/ids; sleep 60' &
  echo $$ >>TMP/ids; while [ $(wc -l <TMP/ids) != 3 ]; do sleep 0.01; done; mv TMP/hold TMP/held; sleep 60; fi;
  echo '{"v": {n}}'
[measure v]
read: v
"""


def take_signals():
    """In the child: signals end it, whatever this program was started to ignore (nohup, a script's background)."""
    for which in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(which, signal.SIG_DFL)


class Ending(Fixture):
    def end(self, which):
        """Ends the study in its third run; what is left of it then is alive in no process."""
        self.put("hold", "")
        plan = self.plan(WAITING)
        with subprocess.Popen(self.command(plan), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                              preexec_fn=take_signals) as study:
            wait_for(os.path.join(self.root, "held"))
            os.kill(study.pid, which)
            said = study.stderr.read()
        end = time.monotonic() + 15
        ids = self.text("ids").split()
        self.assertEqual(len(ids), 3)
        while any(is_alive(i) for i in ids) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual([i for i in ids if is_alive(i)], [])
        self.assertEqual(len(self.records()), 2)
        return plan, study.returncode, said

    def expect_the_rest(self, plan):
        """Six runs, of which only the one that was under way has begun twice."""
        self.study(plan)
        begun = self.text("begun").split()
        self.assertEqual((len(begun), len(set(begun))), (7, 6))
        self.assertEqual((len(self.records()), len(self.records("plan"))), (6, 1))


class Ended(Ending):
    def test_a_kill_costs_the_run_under_way(self):
        plan, status, _ = self.end(signal.SIGKILL)
        self.assertEqual(status, -signal.SIGKILL)
        with open(os.path.join(self.root, "out", "results.jsonl"), "a", encoding="utf-8") as f:
            f.write('{"kind":"run","comm')  # as a kill within a write leaves it
        self.expect_the_rest(plan)

    def test_an_interrupt_keeps_what_is_done(self):
        for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(which):
                plan, status, said = self.end(which)
                self.assertEqual(status, 1)
                self.assertIn("interrupted: 4 of 6 runs are left; the same call continues with them", said)
                self.assertIn("from 2 of 6 runs", self.tables())
                self.expect_the_rest(plan)
                shutil.rmtree(os.path.join(self.root, "out"))
                for name in ("begun", "held", "ids"):
                    os.unlink(os.path.join(self.root, name))

    def test_a_watcher_that_is_killed_leaves_nothing_either(self):
        self.put("hold", "")
        plan = self.plan(WAITING)
        with subprocess.Popen(self.command(plan), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                              preexec_fn=take_signals) as study:
            wait_for(os.path.join(self.root, "held"))
            os.kill(study_run.descendants(study.pid)[0], signal.SIGKILL)
            self.assertIn("the process that watched it was killed", study.stderr.read())
        self.assertEqual((study.returncode, [i for i in self.text("ids").split() if is_alive(i)]), (2, []))
        self.expect_the_rest(plan)

    def test_what_a_command_leaves_running_is_ended(self):
        plan = self.plan(f"title: T\n{ONCE}[command c]\nrun: (setsid sh -c 'echo $$ >TMP/ids; sleep 60' &); "
                         "while [ ! -s TMP/ids ]; do sleep 0.01; done; echo '{\"v\": 1}'\n[measure v]\nread: v\n")
        self.study(plan)
        self.assertFalse(is_alive(self.text("ids").strip()))


class Deaf(Ending):
    def test_what_ignores_a_request_is_killed(self):
        """After ten seconds, although the shell is gone at once."""
        self.put("deaf", "")
        begin = time.monotonic()
        self.expect_the_rest(self.end(signal.SIGTERM)[0])
        self.assertGreater(time.monotonic() - begin, study_run.PATIENCE)


# ---- plans that change, other machines ------------------------------------------------------------------------------

class Changes(Fixture):
    def test_a_changed_command(self):
        text = "title: T\n[setting n]\nvalues: 1, 2\n[command c]\nrun: echo '{\"v\": {n}%s}'\n[measure v]\nread: v\n%s"
        plan = self.plan(text % ("", ""))
        self.study(plan)
        self.plan(text % ("", "[measure double]\nvalue: 2 * v\n"))  # what is shown may change
        self.study(plan)
        self.assertIn("| 2 | 2 | 4 |", self.tables())
        self.plan(text % ("0", ""))
        self.assertRegex(self.study(plan, status=2),
                         r'the command has changed since it ran: \S*results.jsonl:2 has "echo .*; --rerun changed runs')
        self.study(plan, "--table")
        self.assertIn("; 6 runs had another command or value than the plan has", self.tables())
        self.study(plan, "--rerun", "changed")
        self.assertAll(self.tables(), "| 2 | 20 |", "from 6 of 6 runs.")

    def test_a_measure_that_is_read_from_elsewhere(self):
        """Why there is no figure is what the plan of today says."""
        text = f"title: T\n{ONCE}[command c]\nrun: echo '{{\"w\": 1}}'\n[measure m]\nread: %s\n"
        self.study(self.plan(text % "v"), status=1)
        self.assertIn("no record has v; the last has w", self.tables())
        self.study(self.plan(text % "u"), status=1)
        self.assertIn("no record has u; the last has w", self.tables())
        self.study(self.plan(text % "w"))
        self.assertAll(self.tables(), "| 1 |", "from 1 of 1 runs")
        self.assertEqual(len(self.records()), 1)

    def test_records_of_other_machines_are_merged(self):
        text = ("title: S\n[given]\ndriver: 550\n%s[setting n]\nvalues: 1, 2\n[command c]\n"
                "run: echo '{\"v\": {n}.{repeat}, \"commit\": \"of {driver}\", \"machine\": {\"driver\": \"{driver}\", "
                "\"gpu\": \"G\"}}'\n[measure v]\nread: v\nbetter: lower\n[table t]\nrows: n%s\n%s")
        plan = self.plan(
    text %
    ("[setting drivers]\nread: machine.driver\nlabel: driver\n",
     ", drivers",
     "best: drivers\n"))
        for driver in ("9", "10"):
            self.study(plan, "--set", f"driver={driver}", out=driver)
        nine, ten = (os.path.join(self.root, n, "results.jsonl") for n in ("9", "10"))
        self.study(plan, "--merge", nine, ten, nine)  # what comes twice counts once
        self.assertAll(
            self.tables(), "| n | driver | v |\n|---|---|---:|\n| 1 | 9 | 1.200 ± 0.058 |\n| 1 | 10 | 1.200 ± 0.058 |",
            "Best v (n=1): drivers=9, 1.200 ± 0.058; not significantly worse: drivers=10 (1.200 ± 0.058).",
            "Given: driver=550.\n", "- G, driver 9: 6 runs\n- G, driver 10: 6 runs", "from 12 of 12 runs")
        self.assertNotIn("is a mean over", self.tables())
        mixed = self.plan(text % ("", "", ""), "mixed")
        self.study(mixed, "--merge", nine, ten, out="mixed")
        self.assertAll(self.tables("mixed"), "**n=1 is a mean over 2 machines**; a setting with \"read: machine.…\"",
                       "**n=1 is a mean over 2 commits**; a setting with \"read: commit\"")
        self.assertIn("no run of ", self.study(self.plan(FIGURES, "other"), "--merge", nine, out="other", status=2))

    def test_what_is_read_from_records_runs_again(self):
        """A run that failed knew nothing of its machine: the one that takes its place does."""
        plan = self.plan("title: T\n[setting n]\nvalues: 1, 2\n[setting version]\nread: version\n[command c]\n"
                         "run: [ {n} = 1 ] || [ -e {study}/ready ] && echo '{\"v\":{n},\"version\":\"v7\"}'\n"
                         "[measure v]\nread: v\n")
        self.study(plan, status=1)
        self.put("out/ready", "")
        self.study(plan, "--rerun", "failed")
        self.assertAll(self.tables(), "from 6 of 6 runs", "| 2 | v7 | 2 |")
        self.assertNotIn("failed", self.tables())

    def test_records_that_are_none(self):
        plan = self.plan(FIGURES)
        for line in ("no JSON", '{"kind":"run","command":"draw"}', '{"kind":"run","command":"draw","settings":{"sort":"a"},'
                     '"repeat":1,"state":"ok","seconds":1,"ran":"","records":[{"x":1}]} trailing'):
            self.assertIn("r.jsonl:1: this is no record of a study", self.study(
                plan, "--merge", self.put("r.jsonl", line + "\n"), status=2))
        self.put("r.jsonl", "")


# ---- sweeps: commands that take all values of a setting at once ------------------------------------------------------

class Sweeps(Fixture):
    def sweep(self, values, body, head=ONCE, tail=""):
        """By a command that has the values in $*."""
        return self.plan(f"title: T\n{head}[setting n]\nvalues: {values}\n[command c]\nsweep: n\nrun: cd TMP; "
                         f"set -- $(echo {{n}} | tr , ' '); {body}\n[measure v]\nread: v\n{tail}")

    def test_values_by_one_command(self):
        """It prints a record for each, and fails at the 4 of b."""
        plan = self.plan(
            "title: Swept\n[setting sort]\nvalues: a, b\n[setting n]\nvalues: 1, two = 2, 4, 8\n[command c]\nsweep: n\n"
            "run: echo {sort} {n} {repeat} >>TMP/swept; for n in $(echo {n} | tr , ' '); do\n"
            "  [ {sort}$n != b4 ] || {{ echo no four >&2; exit 3; }; echo '{\"n\":'$n', \"v\":'$n'0}'; done\n"
            "[measure v]\nread: v\n[table t]\nrows: sort, n\nshow: v\n")
        said = self.study(plan, "--only", "n=two,8", "--list")
        self.assertAll(said, "sort=a n=two,8, repeat 1: echo a 2,8 1 ", "12 of 12 runs are left")
        self.study(plan, "--only", "sort=a n=1,8")
        self.assertIn("sort=b n=1,two,4,8, repeat 1: exit status 3: no four; 2 of its 4 values run by themselves\n",
                      self.study(plan, status=1))
        calls = [line.rpartition(" ")[0] for line in self.text("swept").splitlines()]
        self.assertEqual(sorted(calls), sorted(["a 1,8", "a 2,4", "b 1,2,4,8", "b 4", "b 8"] * 3))
        self.assertEqual(len(self.records()), 24)
        self.assertEqual(sum(r["ran"].startswith("echo b {n} 1 ") for r in self.records()), 4)
        self.assertEqual({r["swept"] for r in self.records()}, {"1", "2", "4", "8"})
        self.assertAll(self.tables(), "| a | two | 20 |", "| b | two | 20 |", "| b | 4 | failed |", "| b | 8 | 80 |",
                       "sort=b n=4: failed, 3 of 3 runs: exit status 3: no four")

    def test_a_value_that_is_left_out(self):
        self.study(self.sweep("1, 2, 3", "echo '{\"n\":1.0,\"v\":1}'; echo '{\"v\":7}'; "
                              "echo '{\"n\":3,\"out_of_memory\":true,\"why\":\"large\"}'"), status=1)
        self.assertAll(self.tables(), "| 1 | 1 |", "n=2: no value, 1 of 1 runs: no record has the n 2",
                       "n=3: out of memory, 1 of 1 runs: large")

    def test_the_value_that_fails_is_to_blame(self):
        self.study(self.sweep("1, 2, 4, 8", "for n in $(printf '%s\\n' $* | sort -rn); do echo '{\"n\":'$n',\"warm\":1}'; "
                              "[ $n != 4 ] || { echo bad >&2; exit 7; }; echo '{\"n\":'$n',\"v\":'$n'}'; done"), status=1)
        self.assertAll(self.tables(), "| 1 | 1 |\n| 2 | 2 |\n| 4 | failed |\n| 8 | 8 |",
                       "n=4: failed, 1 of 1 runs: exit status 7: bad")

    def test_memory_is_no_crash(self):
        self.study(self.sweep("1, 2, 4", "for n; do case $n in 2) echo 'CUDA out of memory' >&2; "
                              "echo '{\"n\":2,\"out_of_memory\":true,\"why\":\"no room\"}';; 4) echo illegal >&2; exit 7;; "
                              "*) echo '{\"n\":1,\"v\":1}';; esac; done"), status=1)
        self.assertAll(self.tables(), "| 1 | 1 |\n| 2 | out of memory |\n| 4 | failed |",
                       "n=4: failed, 1 of 1 runs: exit status 7: illegal")

    def test_a_sweep_that_hangs(self):
        """timeout is for the whole sweep, and then for each value that it kept waiting."""
        self.study(self.sweep("1, 2, 3", "for n; do [ $n != 2 ] || sleep 30; echo '{\"n\":'$n',\"v\":'$n'}'; done",
                              "timeout: 1\n" + ONCE), status=1)
        self.assertIn("| 1 | 1 |\n| 2 | failed |\n| 3 | 3 |", self.tables())

    def test_an_interrupt_keeps_what_it_has_printed(self):
        plan = self.sweep("1, 2, 3", "echo $* >>cut; for n; do echo '{\"n\":'$n',\"v\":'$n'}'; "
                          "[ $n$# != 23 ] || { : >cut-here; sleep 30; }; done")
        with subprocess.Popen(self.command(plan), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                              preexec_fn=take_signals) as study:
            wait_for(os.path.join(self.root, "cut-here"))
            study.terminate()
            self.assertIn("interrupted: 1 of 3 runs are left", study.stderr.read())
        self.assertEqual(study.returncode, 1)
        self.study(plan)
        self.assertEqual(self.text("cut"), "1 2 3\n3\n")

    def test_an_interrupt_while_it_is_prepared(self):
        """What an earlier call has printed is no result."""
        plan = self.plan(f"title: T\n{ONCE}[setting n]\nvalues: 1, 2\n[command c]\nsweep: n\nprepare: touch TMP/begun; "
                         "sleep 30\nrun: : {n}\n[measure v]\nread: v\n")
        os.makedirs(os.path.join(self.root, "out", "runs"))
        self.put(os.path.join("out", "runs", "n=1+2-1.stdout"), '{"n":1,"v":1}\n')
        with subprocess.Popen(self.command(plan), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                              preexec_fn=take_signals) as study:
            wait_for(os.path.join(self.root, "begun"))
            study.terminate()
            self.assertIn("interrupted: 2 of 2 runs are left", study.stderr.read())
        self.assertEqual(self.records(), [])

    def test_one_that_failed_continues_with_single_values(self):
        """However little time each call has."""
        plan = self.sweep(
    "1, 2, 3",
     "echo $* >>live; [ $# = 1 ] || { sleep 0.3; exit 9; }; echo '{\"n\":'$1',\"v\":1}'")
        self.study(plan, "--limit", "0.2", status=1)
        self.assertEqual(len(self.records("left")), 3)
        self.study(plan)
        self.assertEqual(self.text("live"), "1 2 3\n1\n2\n3\n")

    def test_each_value_is_prepared_where_all_fail(self):
        self.study(self.plan(
            f"title: T\n{ONCE}[setting n]\nvalues: 1, 4, 2\n[command c]\nsweep: n\n"
            "prepare: case {n} in *4*) echo no four >&2; exit 1;; esac\n"
            "run: for n in $(echo {n} | tr , ' '); do echo '{\"n\":'$n',\"v\":'$n'}'; done\n[measure v]\nread: v\n"), status=1)
        self.assertAll(self.tables(), "| 1 | 1 |\n| 4 | failed |\n| 2 | 2 |",
                       "n=4: failed, 1 of 1 runs: prepare failed: no four")

    def test_the_seconds_of_one_that_failed_are_nobodys(self):
        body = "echo '{\"n\":1,\"v\":1}'; [ $# = 2 ] && exit 4; echo '{\"n\":2,\"v\":2}'"
        self.study(self.sweep("1, 2", body, tail="[measure s]\nread: @seconds\n"))
        self.assertTrue(all(r["seconds"] is not None for r in self.records()))
        self.assertEqual(len(self.records()), 2)
        self.study(self.plan(f"title: T\n{ONCE}[setting n]\nvalues: 1, 2\n[command c]\nsweep: n\nrun: : {{n}}; "
                             "echo '{\"n\":1}'\n[measure s]\nread: @seconds\n"), out="alone", status=1)
        self.assertIn("| 2 | no value |", self.tables("alone"))

    def test_an_origin_that_is_printed_once(self):
        """A record without the setting tells of the machine for all values, and is no value's figure."""
        self.study(self.sweep("1, 2", "echo '{\"v\":9,\"commit\":\"abc\",\"machine\":{\"gpu\":\"G\",\"driver\":\"570\"}}'; "
                              "for n; do echo '{\"n\":'$n',\"v\":'$n'}'; done"))
        self.assertAll(self.tables(), "| 1 | 1 |\n| 2 | 2 |", "- G, driver 570: 2 runs\n- commit abc")

    def test_files_of_other_values_are_kept(self):
        plan = self.sweep(
    "1, 2, 4",
     "for n; do echo '{\"n\":'$n',\"v\":'$n'}' | sed \"s/\\\"v\\\":1/\\\"w\\\":$#/\"; done")
        self.study(plan, status=1)
        self.study(plan, "--rerun", "failed", status=1)
        self.assertIn('{"n":4,"v":4}', self.text("out", "runs", "n=1+2+4-1.stdout"))

    def test_a_changed_text(self):
        body = "for n; do echo '{\"n\":'$n',\"v\":'$n'}'; done"
        self.study(self.sweep("small = 16, big = 64", body))
        plan = self.sweep("small = 16, big = 640", body)
        self.assertIn("the text of big has changed since it ran: ", self.study(plan, status=2))
        self.study(plan, "--rerun", "changed")
        self.assertIn("| small | 16 |\n| big | 640 |", self.tables())


# ---- mistakes in plans ----------------------------------------------------------------------------------------------

C, N, M = "[command c]\nrun: echo {n}\n", "[setting n]\nvalues: 1, 2\n", "[measure m]\nread: m\n"
MANY = ", ".join(str(i) for i in range(49))
MISTAKES = [  # of a plan with the title T, and what is said behind the file's name
    ("", "1: the plan has no [command NAME]"), (N + C, "1: the plan has no [measure NAME]"),
    ("repeat: 3\n", "2: there is no line in [plan] called repeat, did you mean repeats?"),
    ("title: U\n", '2: "title" is there already'), ("repeats: 2\n", "2: 2 repeats are too few to estimate an error"),
    ("fewest: 5\n", "2: 3 repeats are too few to estimate an error; give at least 5"),
    ("repeats: 3.5\n", "2: repeats takes a whole number"),
    ("repeats: many\n", '2: repeats takes a number of at least 1, not "many"'),
    ("timeout: 0\n", "2: timeout takes a number of at least 0.001"),
    ("what is this\n", '2: expected a line "name: value", not "what is this"'),
    ("[seting n]\n", "2: there is no section seting, did you mean setting?"), ("[setting n\n",
                                                                               '2: expected a line "name: value", not "[setting n"'),
    ("[setting]\n", "2: [setting]: a name has letters, digits and _"), ("[given x]\n", "2: [given x]: [given] has no name"),
    (N + N, "4: [setting n] is there already"),
    ("[setting n]\nvalue: 1\n", "3: there is no line in [setting] called value, did you mean values?"),
    ("[setting n]\nlabel: N\n", '2: the setting n needs a line "values: …"'),
    ("[setting n]\nvalues: 1, 2, 1\n", '3: the value "1" is given twice'),
    ("[setting n]\nvalues: 1,, 2\n", '3: the value "" has no name'),
    ("[setting n]\nvalues: a b\n", '3: the value "a b" has blanks'),
    ("[setting n]\nvalues: a = \"b\n", '3: a " that is not closed'),
    (f"[setting x]\nvalues: {MANY}\n[setting y]\nvalues: {MANY}\n[setting z]\nvalues: {MANY}\n[command c]\n"
     "run: echo {x} {y} {z}\n", "9: 117649 combinations of settings; at most 100000"),
    ("[setting repeat]\nvalues: 1\n", "2: repeat is the name of something else already"),
    ("[given]\nn: 1\n" + N, "4: n is the name of something else already"),
    ("[setting batch]\nvalues: 1\n[command c]\nrun: echo {bach}\n",
     "5: there is no setting and no given called bach, did you "),
    (N + "[command c]\nrun: echo {n ${n:-1} {print}\n", "5: {n has no }; the shell's own brace"),
    (N + "[command c]\nrun: echo {n} {repeat\n", "5: {repeat has no }"),
    (N + "[command c]\nrun: echo\n", "2: no command has {n} in its run"),
    (N + "[command c]\nprepare: x\n", '4: the command c needs a line "run: …"'),
    (N + "[command c]\nrun: echo {n} {k}\n[setting k]\nread: machine.gpu\n",
     "5: {k}: its values are read from records"),
    (N + C + "sweep: k\n", '6: sweep takes a setting that is in run, not "k"'),
    ("[setting n]\nvalues: a = \"1,2\", b\n" + C + "sweep: n\n", '6: sweep: the text of a is "1,2"'),
    ("[setting n]\nvalues: 1 = 2, 2 = 4\n" + C + "sweep: n\n", "6: sweep: a record of 2 could belong to 1, too"),
    ("[setting n]\nvalues: 1, 1.0\n" + C + "sweep: n\n", "6: sweep: a record of 1 could belong to 1.0, too"),
    (N + C + M + "[measure q]\nvalue: m / m[n=1,2]\n", "9: several values of n: a figure is at one of them"),
    (N + C + "[skip]\nn=3\n", "7: there is no value of n called 3"),
    (N + C + "[skip]\nbatch=3\n", "7: there is no setting batch"), (N + C + "[skip]\nn\n", "7: expected SETTING=VALUE"),
    (N + C + "[measure m]\nunit: s\n", '6: the measure m needs a line "read: PATH"'),
    (N + C + "[measure m]\nread: @second\n", "7: @second is no time; @seconds is how long the command took"),
    (N + C + M + "[measure q]\nvalue: 2 *\n", '9: "2 *" is no expression'),
    (N + C + M + "[measure q]\nvalue: 2 ** 3\n", '9: "2 ** 3" is no expression'),
    (N + C + M + "[measure q]\nvalue: __import__('os')\n", "9: there is no function __import__"),
    (N + C + M + "[measure q]\nvalue: " + "(" * 5000 + "\n", "9: "),
    (N + C + M + "[measure q]\nvalue: m / x\n", "9: there is no measure above called x"),
    (N + C + "[measure q]\nvalue: 1 + q\n" + M, "7: there is no measure above called q"),
    (N + C + M + "[measure q]\nvalue: m[n=7]\n", "9: there is no value of n called 7"),
    (N + C + M + "[measure q]\nvalue: mean(m)\n", "9: there is no function mean"),
    (N + C + M + "[measure q]\nvalue: m / theirs.m\n", "9: there is no section [published NAME] called theirs"),
    ("[setting n]\nvalues: 1, x\n" + C + M + "[measure q]\nvalue: n\n", '9: n is "x", which is no number'),
    (N + C + "[measure m]\nread: m\nbetter: more\n", '8: better takes higher or lower, not "more"'),
    (N + C + "[measure m]\nread: m\nof: d\n", "8: there is no command d"),
    (N + C + "[measure m]\nread: m\nwhere: sort\n", "8: where takes MEMBER=VALUE"),
    (N + C + M + "[table t]\nrows: k\n", "9: there is no setting k"),
    (N + C + M + "[table t]\nrows: n\ncolumns: n\n", "10: n is in rows already"),
    (N + C + M + "[table t]\nshow: q\n", "9: there is no measure q"),
    (N + C + M + "[table t]\nshow: m[n=3]\n", "9: there is no value of n called 3"),
    (N + C + M + "[table t]\nshow: m[n=1\n", "9: a [ that is not closed"),
    (N + C + M + "[table t]\nbest: n\n", "9: none of the measures shown has a line"),
    (N + C + M + "[plot p]\nx: n\n", '8: the plot p needs lines "x: SETTING" and "y: MEASURE"'),
    (N + C + M + "[plot p]\nx: n\ny: m\nlog: z\n", "11: panels are of another setting than x; log takes x, y or x y"),
    (N + C + M + "[published p]\ncolumns: n, k\n", "9: there is no setting or measure k"),
    (N + C + M + "[published p]\ncolumns: n, m\n1, 2\n3, 4\n", "11: there is no value of n called 3"),
    (N + C + M + "[published p]\ncolumns: n, m\n1, 2, 3\n", "10: a row of 2 columns has as many values"),
    (N + C + M + "[published p]\ncolumns: n, m\n1, about 3\n", '10: expected a number or -, not "about 3"'),
]


class Plans(Fixture):
    def test_mistakes_are_told_with_their_line(self):
        for text, says in [("[given]\n", None)] + MISTAKES:
            with self.subTest(text):
                path = self.plan(("title: T\n" if says else "") + text)
                with self.assertRaises(Refused) as refused:
                    study_plan.Plan(path)
                says = says or '1: a plan begins with a line "title: …"'
                self.assertEqual(str(refused.exception)[:len(path) + 1 + len(says)], f"{path}:{says}")
        with open(self.plan(""), "wb") as f:
            f.write(b"title: \xff\n")
        self.assertRaisesRegex(Refused, "a plan is text in UTF-8", study_plan.Plan, os.path.join(self.root, "a.plan"))

    def test_the_plan_of_the_documentation(self):
        with open(os.path.join(ROOT, "docs", "studies.md"), encoding="utf-8") as f:
            text = f.read().partition("## A whole plan")[2].split("```\n")[1]
        path = self.plan(text)
        plan = study_plan.Plan(path, 'data="/data/x --norm gn" price=3')
        self.assertEqual((len(plan.settings), len(plan.measures),
                         plan.settings["precision"].values["AMP"]), (4, 4, "--amp"))
        self.assertEqual((plan.givens["data"], plan.givens["price"]), ("/data/x --norm gn", "3"))
        self.assertIn("--seed {repeat} --benchmark 100", plan.commands["ours"].run)
        cell = {"command": "ours", "gpus": "1", "batch": "4", "precision": "TF32"}
        self.assertEqual((plan.published["theirs"].text(cell, "img_s"), plan.published["theirs"].text(cell, "speedup")),
                         ("25", None))
        for replace, says in (('data="/x', 'a " that is not closed'), ("dat=/x", "called dat, did you mean data?"),
                              ("data", "takes NAME=VALUE")):
            self.assertRaisesRegex(Refused, re.escape(f"--set {replace}: ") + ".*" + re.escape(says), study_plan.Plan, path,
                                   replace)


if __name__ == "__main__":
    unittest.main()
