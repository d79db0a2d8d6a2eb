#!/usr/bin/env python3
"""Pages of runs in a headless Chromium:

  python3 test/page/test_browser.py build/report FOLDER [CASE…]

makes folders of runs up below FOLDER, has build/report draw them, opens the pages, and prints a line for each thing
that is wrong. CASE is the name of a function below that is marked @case; none: all of them."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from browser import Broken, Browser
from made_run import LOSSES, SCORES, SCORES_OF_CELLS, Run

READY = 'document.documentElement.dataset.ready === "1"'
PHONE, PHONE_HEIGHT, DESK, PAPER = 390, 844, 1200, 718  # pixels; PAPER: A4 within margins of a centimetre
CASES, WRONG = {}, []


def case(function):
    CASES[function.__name__] = function
    return function


def expect(ok, what):
    if not ok:
        WRONG.append(what)
    return ok


def expect_equal(got, want, what):
    return expect(got == want, f"{what}: got {got!r}, want {want!r}"[:2000])


class Scene:
    """Folder, report tool and browser of a case."""

    def __init__(self, browser, report, folder):
        self.tool, self.folder, self.page = report, folder, browser.page()

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def report(self, *arguments):
        done = subprocess.run([self.tool, *arguments], capture_output=True, text=True, errors="replace")
        expect(done.returncode == 0, f"report {arguments}: exit status {done.returncode}: {done.stderr}")

    def drawn(self, run, *names, **how):
        """Writes a run's folder and its page; where the page is."""
        folder = run.write(self.path(*names), **how)
        self.report(folder)
        return os.path.join(folder, "report.html")

    def open(self, path, width=DESK, height=PHONE_HEIGHT):
        """A page, opened, with its images, that has complained about nothing and asked for nothing but itself and its pictures."""
        page = self.page
        page.media()
        page.viewport(width, height)
        page.seconds = page.open(path, READY)
        page.file = path
        page.shown = page.images()
        self.sound(page)
        return page

    def sound(self, page):
        for fault in page.faults:
            expect(False, f"{page.file}: {fault}")
        page.faults.clear()
        for address in page.requests:
            own = address.startswith("file://") and (address.endswith(".html") or "pictures/" in address)
            expect(own or address.startswith(("data:", "blob:")), f"{page.file}: asks for {address[:200]}")
        page.requests.clear()
        expect(page.js("window.hacked === undefined"), f"{page.file}: a script ran that came from a name")
        expect_equal(page.js("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"), [],
                     f"{page.file}: images that did not load")


# ---- what a page shows ----------------------------------------------------------------------------------------------

def series(page):
    """Of every line of every plot the plot's title, the line's key and label, how many points it says it has, the
    vertices of its path and of its faint raw values, its dots, and which share of the plot's height its first half
    takes."""
    return page.js("""[...document.querySelectorAll("svg.plot g.series")].map(g => {
      const vertices = c => [...g.querySelectorAll("path." + c)].reduce((n, p) =>
        n + (p.getAttribute("d").match(/[ML]/g) || []).length, 0);
      const line = g.querySelector("path.line"), all = line ? line.getAttribute("d").match(/[\\d.]+(?=[ML]|$)/g) : [0];
      const first = all.slice(0, Math.ceil(all.length / 2)).map(Number), height = g.closest("svg").viewBox.baseVal.height;
      return {title: g.closest("svg").dataset.title, key: g.dataset.key, label: g.dataset.label,
        points: Number(g.dataset.points), line: vertices("line"), raw: vertices("raw"),
        dots: g.querySelectorAll("circle.dot").length, rings: g.querySelectorAll(".ring").length,
        share: (Math.max(...first) - Math.min(...first)) / height}})""")


def line_of(page, key, label=None):
    found = [s for s in series(page) if s["key"] == key and label in (None, s["label"])]
    if expect(found, f"{page.file}: no line '{key}' {label or ''} among {[(s['key'], s['label']) for s in series(page)]}"):
        return found[0]
    return {"points": 0, "line": 0, "raw": 0, "dots": 0, "rings": 0, "share": 0, "title": ""}


def expect_lines(page, run):
    """Every point of the log and of the evaluations is in a line, and drawn."""
    losses = ["loss"] if run.classifier else list(LOSSES)
    scores = ["val_top1", "val_top5"] if run.classifier else list(SCORES)
    for key, n in [(k, run.steps) for k in losses] + [(k, len(run.evaluated())) for k in scores + ["val_loss"]]:
        line = line_of(page, key)
        expect_equal(line["points"], n, f"{page.file}: points of {key}")
        expect_equal(line["raw"] or line["line"], n, f"{page.file}: drawn points of {key}")
        if n == len(run.evaluated()):
            expect(line["dots"] >= n, f"{page.file}: {line['dots']} dots of {n} evaluations in {key}")
    for s in series(page):
        expect(s["points"] > 0 and s["line"] + s["dots"] > 0, f"{page.file}: {s['title']}, {s['key']}: nothing is drawn")


def text(page, selector="body"):
    return page.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText).join('\\n')")


def number_in(cell):
    """The number in a cell of a table, and half of its last digit; None: there is none."""
    match = re.search(r"-?[\d,]*\.?\d+(e[+-]?\d+)?", cell)
    if not match:
        return None, 0
    digits = match.group().split("e")[0].partition(".")[2]
    return float(match.group().replace(",", "")), 0.5 * 10 ** -len(digits)


def expect_figures(page, run):
    """The table of categories has evaluation.json's figures."""
    rows = page.js("""[...document.querySelectorAll("table tbody tr")].map(r =>
      [...r.children].map(c => c.textContent))""")
    columns = run.evaluation["columns"]
    for name, *values in run.evaluation["categories"]:
        found = [r for r in rows if r and r[0] == name and len(r) > len(columns)]
        if not expect(len(found) == 1, f"{page.file}: {len(found)} rows of figures for {name!r}"):
            continue
        for column, cell, value in zip(columns, found[0][1:], values):
            got, half = number_in(cell)
            same = got is None if value is None else got is not None and abs(got - value) <= half * 1.000001
            expect(same, f"{page.file}: {name}, {column}: {cell!r}, want {value}")


def expect_fits(page, width):
    """Nothing is wider than the window."""
    page.viewport(width)
    got = page.js("document.scrollingElement.scrollWidth")
    if not expect(got <= width, f"{page.file}: {got} px wide in a window of {width}"):
        wide = page.js(f"""[...document.querySelectorAll("main *")].filter(e => !e.closest(".scroll") &&
          e.getBoundingClientRect().right > {width} + 1).slice(0, 5).map(e => e.tagName + "." + e.className + ": " +
          e.textContent.slice(0, 40))""")
        expect(False, f"    by {wide}")


def expect_on_first_screen(page, words):
    """At a phone's size, visible elements with these texts end above the edge of the screen."""
    page.viewport(PHONE, PHONE_HEIGHT)
    page.js("scrollTo(0, 0)")
    shown = page.js(f"""(() => {{
      const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), parts = [];
      for (let n; (n = walk.nextNode());) {{
        const range = document.createRange();
        range.selectNodeContents(n);
        const r = range.getBoundingClientRect();
        if (r.height && r.bottom <= {PHONE_HEIGHT}) parts.push(n.data);
      }}
      return parts.join(" ")}})()""")
    for word in words:
        expect(word in shown, f"{page.file}: {word!r} is not on a phone's first screen, which says: {shown[:600]!r}")


def expect_confusion(page, run, at=None):
    """The matrix of the page, in any order of rows and columns, has the counts of evaluation.json (at the place `at` of
    its scores), and no others."""
    facts = run.evaluation["confusion"]
    names = facts["names"]
    shown = page.js("""(() => { const t = document.querySelector("table.confusion"); return t && {
      columns: [...t.querySelectorAll("thead th")].map(e => e.title || e.textContent),
      rows: [...t.querySelectorAll("tbody tr")].map(r => [r.querySelector("th").title || r.querySelector("th").textContent,
        ...[...r.querySelectorAll("td")].map(c => Number(c.textContent.replace(/[^0-9]/g, "") || 0))])}})()""")
    counts = lambda n: n if at is None else n[at] if at < len(n) else 0
    if not any(f < len(run.categories) and counts(n) for _, f, n in facts["cells"]):
        expect("No detection reaches" in text(page, "#confusion"), f"{page.file}: an empty confusion does not say why")
        return
    if not expect(shown, f"{page.file}: no table of confusion"):
        return
    want = sorted(counts(n) for _, _, n in facts["cells"] if counts(n))
    got = sorted(n for row in shown["rows"] for n in row[1:] if n)
    expect_equal(got, want, f"{page.file}: counts of the confusion{'' if at is None else f' at score {at}'}")
    for row in shown["rows"]:
        for t, f, n in facts["cells"]:
            if t == f and names[t] == row[0]:
                expect(counts(n) in row[1:], f"{page.file}: {names[t]}: {counts(n)} is not in its row {row}")


# ---- cases ----------------------------------------------------------------------------------------------------------

HOSTILE = ["<script>window.hacked=1</script>", "</script><script>window.hacked=2</script>",
           "\"><img src=x onerror=window.hacked=3>", "' onmouseover='window.hacked=4", "<!--", "]]>", "&lt;&amp;\\u003c",
           "W" * 300, "\u202egnorw\u202c \u05d0\u05d1\u05d2 \u0627\u0628\u062a", "javascript:window.hacked=5",
           "__proto__", "constructor", "a\nb\tc", "", "${window.hacked=6}", "\U0001f600", "\\", "disc", "disc"]


@case
def detector(scene):
    run = Run()
    page = scene.open(scene.drawn(run, "detector"))
    best = max(run.evaluated(), key=run.ap)
    expect_lines(page, run)
    expect_figures(page, run)
    expect_equal(page.shown, 4, "images")
    ap = line_of(page, "bbox_AP")
    expect(ap["rings"] == 1, f"{page.file}: {ap['rings']} rings around the best AP")
    expect_on_first_screen(page, ["complete", f"{run.ap(best):.3f}", str(best), "best-bbox.safetensors"])
    expect("62.5 s: training steps 80 %, start 4.0 s, evaluations 8.5 s" in text(page),
           f"{page.file}: no word of the time besides training")
    expect_fits(page, PHONE)
    broken = page.js("""[...document.querySelectorAll(".copy pre")].flatMap(pre => {
      const walk = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT), broken = [];
      for (let n; (n = walk.nextNode());)
        for (const word of n.data.matchAll(/\\S+/g)) {
          const r = document.createRange();
          r.setStart(n, word.index);
          r.setEnd(n, word.index + word[0].length);
          if (new Set([...r.getClientRects()].map(x => x.top)).size > 1) broken.push(word[0]);
        }
      return broken})""")
    expect_equal(broken, [], f"{page.file}: words of a command that a phone breaks")
    page.viewport(DESK)
    hover_and_zoom(page, best)
    hide_a_line(page)
    slide(page, run)
    page.media(dark=True)
    dark = page.js("getComputedStyle(document.body).backgroundColor")
    page.media(dark=False)
    expect(dark != page.js("getComputedStyle(document.body).backgroundColor"), "a dark page is not dark")
    scene.sound(page)
    nothing_is_found(scene)


def plot_with(key):
    return f'svg.plot:has(g.series[data-key="{key}"])'


def hover_and_zoom(page, best):
    """The pointer reads values, dragging zooms in, a button goes back."""
    page.hover(plot_with("bbox_AP"))
    readout = text(page, "figure:has(g.series[data-key=bbox_AP]) .readout")
    expect(re.search(r"box AP: 0\.\d+", readout), f"hovering says {readout!r}")
    before = line_of(page, "bbox_AP")["dots"]
    page.drag(plot_with("bbox_AP"), (-60, 0), (60, 0))
    zoomed = line_of(page, "bbox_AP")["dots"]
    expect(0 < zoomed < before, f"zooming in leaves {zoomed} of {before} points")
    expect(line_of(page, "loss")["points"], "zooming in leaves no loss")
    page.js("""[...document.querySelectorAll("figure button")].find(b => b.textContent === "whole range").click()""")
    expect_equal(line_of(page, "bbox_AP")["dots"], before, "points when zoomed out again")


def hide_a_line(page):
    button = 'ul.legend button'
    before, pressed = len(series(page)), page.js(f"document.querySelector({json.dumps(button)}).ariaPressed")
    page.click(button)
    hidden = len(series(page))
    expect(pressed == "true" and page.js(f"document.querySelector({json.dumps(button)}).ariaPressed") == "false" and
           hidden < before, f"a click on the legend leaves {hidden} of {before} lines")
    page.click(button)
    expect_equal(len(series(page)), before, "lines after a second click on the legend")


def slide(page, run):
    """Every position of the slider has the counts of its score; it opens at the best F1."""
    slider = 'document.querySelector(".slider input")'
    opens = SCORES_OF_CELLS.index(run.evaluation["confusion"]["opens_at"])
    expect_confusion(page, run, opens)
    for at, score in enumerate(SCORES_OF_CELLS):
        page.js(f"""(s => {{ s.value = {at}; s.dispatchEvent(new Event("input", {{bubbles: true}})) }})({slider})""")
        expect_confusion(page, run, at)
        expect(f"{score:g}" in text(page, ".slider"), f"the slider at {score} says {text(page, '.slider')!r}")


def nothing_is_found(scene):
    """Where no detection reaches a score, the page says so."""
    run = Run()
    run.evaluation["confusion"].update(cells=[[i, 3, [25 + i] * 4] for i in range(3)], highest_score=0.03, opens_at=None)
    page = scene.open(scene.drawn(run, "nothing"))
    said = text(page, "#confusion")
    expect("0.03" in said, f"{page.file}: the highest score is not told: {said[:500]!r}")


@case
def classifier(scene):
    run = Run(classifier=True)
    page = scene.open(scene.drawn(run, "classifier"))
    best = max(run.evaluated(), key=run.ap)
    expect_lines(page, run)
    expect_figures(page, run)
    expect_confusion(page, run)
    expect_on_first_screen(page, ["complete", str(best), "best-top1.safetensors"])
    expect_fits(page, PHONE)
    run.evaluation["confusion"]["cells"] = [[i, 1, 25] for i in range(3)]
    page = scene.open(scene.drawn(run, "one-class"))
    expect("square" in text(page, "section.warn"), f"{page.file}: no warning that 'square' is predicted for everything")


def diverging(scale):
    """A run whose loss leaves what can be drawn at step 70."""
    run = Run()
    sound = run.loss
    run.loss = lambda step: sound(step) if step <= 70 else scale * 10.0 ** (step - 70)
    run.steps = 75
    run.run.update(state="diverged", complete=False, step=75, warnings=[
        {"text": "step 76: loss or gradient is not finite (loss_mask 1e+29), images 000035.png; the weights were not updated"}])
    return run


@case
def several(scene):
    runs = {"one": Run(), "two": Run(ap=lambda step: step / 1000), "diverged": diverging(1e9)}
    runs["two"].run["settings"]["lr"] = {"value": 0.01, "from": "given"}
    for name, run in runs.items():
        run.write(scene.path(name))
    out = scene.path("several.html")
    scene.report(*(scene.path(name) for name in runs), "--out", out)
    page = scene.open(out)
    for name, run in runs.items():
        losses = [s for s in series(page) if s["label"] == name and s["points"] == run.steps]
        expect(losses, f"{out}: no line of {run.steps} points for {name}: {[(s['key'], s['label'], s['points']) for s in series(page)]}")
    for s in series(page):
        if "one" in s["label"] and s["points"] == 120 and s["key"] == "loss":
            expect(s["share"] > 0.25, f"{out}: the diverged run flattens the loss of another: {s}")
    said = text(page)
    for word in ("complete", "diverged", "0.05", "0.01", f"{max(map(runs['one'].ap, runs['one'].evaluated())):.3f}"):
        expect(word in said, f"{out}: {word!r} is not there")
    expect(page.js('document.querySelectorAll("td.best").length') > 0, f"{out}: no winner is marked")
    expect_equal(page.js('document.querySelectorAll("ul.legend").length'), 1, f"{out}: legends")
    expect_fits(page, PHONE)
    alone = scene.open(scene.drawn(runs["diverged"], "diverged"))
    loss = line_of(alone, "loss")
    expect(loss["share"] > 0.25, f"{alone.file}: the end flattens the loss: {loss}")
    expect(alone.js('document.querySelectorAll("svg.plot .mark").length') > 0, f"{alone.file}: no mark at the step")
    expect_on_first_screen(alone, ["diverged"])
    expect_fits(alone, PHONE)


@case
def hostile(scene):
    run = Run(categories=HOSTILE)
    for at, name in enumerate(HOSTILE):
        run.run["settings"][f"option-{at}"] = {"value": name, "from": name}
        run.run["settings"][name] = {"value": at, "from": "given"}
        run.run["warnings"].append({"text": name})
        run.evaluation["pictures"].append([name, name, name, "pictures/a-truth.png", "pictures/a-found.png"])
    for key in ("model", "data", "device", "command", "data_text", "commit", "date"):
        run.run[key] = " ".join(HOSTILE)
    run.run["machine"] = {name: name for name in HOSTILE}
    run.run["memory"] += [{"name": n, "place": n, "bytes": 1} for n in HOSTILE]
    run.run["panels"][0]["title"] = run.run["panels"][1]["curves"][0]["label"] = HOSTILE[0]
    run.evaluation["rule"] = HOSTILE[1]
    # Pictures by other names than ours, and elsewhere.
    odd = "a#b?c%41 'd\".png"
    run.evaluation["pictures"] += [["Odd", "odd", "odd", "pictures/" + odd, None]]
    run.evaluation["pictures"] += [["Elsewhere", at, at, at, at] for at in (
        "http://127.0.0.1:9/x.png", "//127.0.0.1:9/x.png", "javascript:window.hacked=7", "/etc/passwd",
        "pictures/../run.json", "file:///etc/hostname", "data:text/html,<script>window.hacked=8</script>")]
    folders = ["plain", "<script>window.hacked=9<", "\"><img src=x onerror=window.hacked=10>", "a#b?c%41 'd",
               "\u202egnorw \u05d0\u05d1", "w" * 200]
    for name in folders:
        folder = run.write(scene.path(name))
        shutil.copy(scene.path(name, "pictures", "a-truth.png"), scene.path(name, "pictures", odd))
        scene.report(folder)
        page = scene.open(os.path.join(folder, "report.html"))
        expect_fits(page, PHONE)
        page.viewport(DESK)
        names_are_shown(page)
        expect_equal(page.shown, 2 * (2 + len(HOSTILE)) + 1, "images")
        scene.sound(page)
    out = scene.path("several.html")
    scene.report(*(scene.path(name) for name in folders), "--out", out)
    page = scene.open(out)
    expect_fits(page, PHONE)
    scene.sound(page)


def names_are_shown(page):
    """Names are there as texts; what looks like markup has made no element."""
    said = page.js("document.querySelector('main').textContent")
    for name in HOSTILE:
        expect(name in said, f"{page.file}: {name[:60]!r} is not shown")
    expect_equal(page.js("document.querySelectorAll('main script, [onerror], [onmouseover], img[src=x]').length"), 0,
                 f"{page.file}: elements made of names")


@case
def broken(scene):
    def cut(path, keep):
        with open(path, "r+b") as f:
            f.truncate(int(os.path.getsize(path) * keep))

    for what in ("run.json", "evaluation.json", "log.jsonl"):
        for keep in (0, 0.5, 0.97):
            folder = Run().write(scene.path(f"{what}-{keep}"))
            cut(os.path.join(folder, what), keep)
            scene.report(folder)
            page = scene.open(os.path.join(folder, "report.html"))
            said = text(page)
            expect(what in said if what != "log.jsonl" or not keep else "log" in said,
                   f"{page.file}: {what} is cut, and the page does not say so")
            expect_fits(page, PHONE)
    alone = Run()
    page = scene.open(scene.drawn(alone, "log-only", log_only=True))
    said = text(page)
    expect("run.json" in said and "evaluation.json" in said, f"{page.file}: what is missing is not told")
    expect_equal(line_of(page, "loss")["points"], alone.steps, f"{page.file}: points of the loss")
    goes_on = Run()
    goes_on.run.update(state="running", complete=False, steps=200)
    page = scene.open(scene.drawn(goes_on, "killed"))
    expect(text(page, ".badge") == "interrupted", f"{page.file}: a killed run is called {text(page, '.badge')!r}")
    # Moved: the command that continues it names the folder where it is.
    goes_on.run["settings"]["out"] = {"value": "run", "from": "given"}
    page = scene.open(scene.drawn(goes_on, "moved here"))
    where = os.path.realpath(scene.path("moved here"))
    expect(f" --resume --out '{where}'" in text(page),
           f"{page.file}: the command for a moved run names another folder")
    # Values of unexpected types.
    for at, odd in enumerate(([], {}, None, "x", 1e308, True, [None, {}, "x"])):
        run = Run()
        run.run = {key: odd for key in run.run}
        run.evaluation = {key: odd for key in run.evaluation}
        folder = run.write(scene.path(f"odd-{at}"))
        scene.report(folder)
        page = scene.open(os.path.join(folder, "report.html"))
        expect(text(page, "h1"), f"{page.file}: no heading")


@case
def judged(scene):
    """What the first sentence says of runs that did not simply learn."""
    undefined = Run()
    undefined.log = [{k: None if "AP" in k else v for k, v in r.items()} for r in undefined.records()]
    undefined.evaluation["metrics"] = {k: None for k in undefined.evaluation["metrics"]}
    no_set = Run()
    no_set.log, no_set.evaluation = [r for r in no_set.records() if r["kind"] == "train"], None
    sudden = Run(loss=lambda step: 3 + 0.1 * (step % 2))
    sudden.run.update(state="diverged", complete=False)
    sudden.log = [*sudden.records(), {"step": 121, "kind": "train", "loss": None}]
    over, fits = Run(ap=lambda step: 0.3 + 0.001 * step), Run(ap=lambda step: 0.3 + 0.001 * step)
    for made, rise in ((over, 0.02), (fits, 0)):
        made.log = [{**r, "val_loss": 1 + rise * max(0, r["step"] - 40)} if "bbox_AP" in r else r for r in made.records()]
    patient = Run()
    patient.run.update(step=patient.run["step"], steps=2 * patient.run["step"])
    scored = Run(ap=lambda step: 0.3 + 0.001 * min(step, 60) - 0.002 * max(0, step - 60))
    scored.log = [{k: v for k, v in r.items() if k != "val_loss"} for r in scored.records()]
    for name, run, words in (("overfits", over, "The model overfits: since step 40 the loss on validation has risen from 1 to 2.6, while"),
                             ("overfits by score", scored,
                              "The model overfits: since step 60 box AP has fallen from 0.360 to 0.240, while the loss of training fell"),
                             ("fits", fits, "Box AP was still rising at the end."),
                             ("patient", patient, "rose from"),
                             ("worse", Run(ap=lambda step: 0.3 - 0.002 * step), "It got worse: box AP was best at the first"),
                             ("once", Run(steps=20), "One evaluation so far: box AP 0.313, at step 20"),
                             ("undefined", undefined, "6 evaluations have no score"),
                             ("no set", no_set, "no evaluation shows how good the model is"),
                             ("sudden", sudden, "the last normal loss was 3, at step 120")):
        page = scene.open(scene.drawn(run, name))
        said = text(page, "p.verdict")
        expect(words in said, f"{page.file}: {said!r} lacks {words!r}")
        expect(run is not over or "stop earlier" not in said, f"{page.file}: {said!r}") # its AP rises
        if run is patient:
            expect_on_first_screen(page, ["complete, ended early"])
        expect(run is not fits or "overfits" not in said, f"{page.file}: {said!r}")
        if run is sudden:
            marks = page.js('document.querySelectorAll("svg.plot .mark").length')
            expect(marks > 0, f"{page.file}: no mark at a step behind the last that is recorded")


@case
def odd_values(scene):
    """Single values of unexpected types: they are left out, and what is sound is drawn."""
    odd = {"toString": 1}
    run = Run()
    run.run["settings"]["lr"] = {"value": odd, "from": odd}
    run.run["panels"][1]["curves"][0]["label"] = odd
    run.run["timed_steps"] = odd
    run.evaluation["categories"][0][2] = odd
    run.evaluation["columns"][1] = odd
    run.evaluation["pictures"][0][3] = "pictures/HALF.jpg"
    run.evaluation["confusion"]["cells"] += [[0, "x", [1, 1]], [99, 0, [1]], [1, 1, "9"], [1, -1, [2]], None]
    run.evaluation["confusion"]["objects"][1] = "x"
    run.log = list(run.records())
    folder = run.write(scene.path("values"))
    facts = pathlib.Path(folder, "evaluation.json")
    facts.write_text(facts.read_text(encoding="utf-8").replace("HALF", "\\ud800"), encoding="utf-8")
    with open(os.path.join(folder, "log.jsonl"), "a", encoding="utf-8") as f:
        f.write('{"step":121,"kind":"train","loss":1e400}\n')
    scene.report(folder)
    page = scene.open(os.path.join(folder, "report.html"))
    said = text(page)
    for word in ("undefined", "NaN", "[object"):
        expect(word not in said, f"{page.file}: {word} is shown")
    expect("5 of its counts cannot be read" in said, f"{page.file}: counts that are left out are not told")
    expect_equal(line_of(page, "loss")["points"], 120, f"{page.file}: points of the loss: 1e400 is none")
    same = scene.path("same.html")
    scene.report("a=" + folder, "a=" + folder, "--out", same)
    names = scene.open(same).js('[...document.querySelectorAll("ul.legend button")].map(e => e.textContent)')
    expect_equal(names, ["a", "a (2)"], f"{same}: two runs of one name")


@case
def long(scene):
    run = Run(steps=20000, every=200)
    at = scene.drawn(run, "long")
    size, log = os.path.getsize(at), os.path.getsize(scene.path("long", "log.jsonl"))
    expect(size < log / 4, f"{at}: {size} bytes, made of a log of {log}")
    page = scene.open(at)
    print(f"{run.steps} records: {size} bytes, ready in {page.seconds:.2f} s")
    expect(0 < line_of(page, "loss")["points"] <= run.steps, f"{at}: no loss")
    expect_equal(line_of(page, "bbox_AP")["points"], len(run.evaluated()), f"{at}: points of AP")


@case
def crowd(scene):
    """Of more classes than a page draws at once: the matrix has those with most mistakes, each with all of its images,
    and a button shows the rows that the table left out."""
    run = Run(classifier=True, categories=[f"species {i}" for i in range(1100)])
    page = scene.open(scene.drawn(run, "crowd"))
    rows = page.js("""[...document.querySelectorAll("table.confusion tbody tr")].map(r => [r.querySelector("th").title,
      [...r.querySelectorAll("td")].reduce((sum, c) => sum + Number(c.textContent.replace(/[^0-9]/g, "")), 0)])""")
    expect_equal(rows, [[f"species {i}", 23 + 2 * i] for i in range(1100 - len(rows), 1100)], "rows of the matrix")
    seen = """[...document.querySelectorAll("[aria-label=Categories] tbody tr")].filter(r => r.offsetHeight).map(
      r => r.querySelector("th").textContent)"""
    expect_equal(page.js(seen), run.categories[:25], "rows of the table")
    page.click("button.more")
    expect_equal(page.js(seen), run.categories, "rows of the whole table")


@case
def policy(scene):
    """What a page might load or run from elsewhere is forbidden by its own policy."""
    page = scene.open(scene.drawn(Run(), "policy"))
    asked = "http://127.0.0.1:9/x"
    attempts = {
        "image": f"document.body.append(Object.assign(new Image(), {{src: '{asked}.png'}}))",
        "script": f"document.body.append(Object.assign(document.createElement('script'), {{src: '{asked}.js'}}))",
        "inline script": "document.body.append(Object.assign(document.createElement('script'), {text: 'hacked = 1'}))",
        "handler": "document.body.setAttribute('onclick', 'hacked = 2'); document.body.click()",
        "style": f"document.head.append(Object.assign(document.createElement('link'), {{rel: 'stylesheet', href: '{asked}.css'}}))",
        "frame": f"document.body.append(Object.assign(document.createElement('iframe'), {{src: '{asked}.html'}}))",
        "fetch": f"fetch('{asked}').catch(() => 0)",
        "form": f"(f => {{ document.body.append(f); f.submit() }})(Object.assign(document.createElement('form'), {{action: '{asked}'}}))",
    }
    for what, script in attempts.items():
        page.js(script + "; 0")
        for _ in range(200):  # it is said a little later
            if any(f.startswith("console: policy") for f in page.faults):
                break
            page.js("new Promise(done => setTimeout(done, 20))")
        else:
            expect(False, f"{what}: not forbidden; {page.faults}")
        page.faults.clear()
    expect(page.js("typeof hacked === 'undefined'"), "a script without the page's mark ran")


@case
def paper(scene):
    """On paper nothing is cut, and what is folded away or scrolls on a screen is there as a whole."""
    names = [f"category number {i}" for i in range(40)]
    names[7] = "a category with a name so long that it has to be wrapped"
    run = Run(categories=names)
    page = scene.open(scene.drawn(run, "paper"))
    page.media(paper=True)
    expect_fits(page, PAPER)
    cut = page.js("""[...document.querySelectorAll("main *")].filter(e => e.scrollWidth > e.clientWidth + 1 &&
      e.clientWidth && getComputedStyle(e).overflowX !== "visible" && getComputedStyle(e).textOverflow !== "ellipsis")
      .map(e => e.tagName + "." + e.className)""")
    expect_equal(cut, [], f"{page.file}: elements with a part cut off")
    rows = page.js("""[...document.querySelectorAll("table tbody tr")].filter(r => !r.closest("details:not([open])") &&
      !r.getClientRects().length).length""")
    expect_equal(rows, 0, f"{page.file}: rows that are not printed")
    eight = [scene.path(f"a-run-{i}") for i in range(8)]
    for folder in eight:
        late = Run()
        late.run.update(state="running", data="/a/path/to/a/set-of-data", steps=500)
        late.write(folder)
    scene.report(*(f"experiments/of-run-{i}={folder}" for i, folder in enumerate(eight)), "--out", scene.path("eight.html"))
    several = scene.open(scene.path("eight.html"))
    several.media(paper=True)
    expect_fits(several, PAPER)
    page.pdf(scene.path("paper.pdf"))
    expect(os.path.getsize(scene.path("paper.pdf")) > 10000, "nothing is printed")


def main():
    report, folder, *names = sys.argv[1:]
    with Browser() as browser:
        for name in names or CASES:
            below = os.path.join(folder, name)
            shutil.rmtree(below, ignore_errors=True)
            os.makedirs(below)
            begin = time.monotonic()
            try:
                CASES[name](Scene(browser, report, below))
            except Broken as why:
                expect(False, f"{name}: {why}")
            print(f"{name}: {time.monotonic() - begin:.1f} s")
    for line in WRONG:
        print(line)
    sys.exit(bool(WRONG))


if __name__ == "__main__":
    main()
