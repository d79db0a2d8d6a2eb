#!/usr/bin/env python3
"""Pages of doctor in a headless Chromium:

  python3 test/page/test_browser_doctor.py build/doctor FOLDER

makes data sets up below FOLDER, has build/doctor write their pages, opens them, and prints a line for each thing that is
wrong."""
import json
import os
import subprocess
import sys

from browser import Broken, Browser
from made_run import png

READY = 'document.documentElement.dataset.ready === "1"'
NAMES = ['"><script>hacked = 1</script>', "</script><img src=x onerror=hacked=1>", "x" * 300, "\u202eturned \u05e9\u05dc\u05d5\u05dd",
         "new\nline\ttab", "${x}`\"'\\", "&amp;&lt;", "", "plain"]
FILES = ['"><b>.png', "a b#c?d%.png", "y" * 200 + ".png", "\u202egnp.png", "n\nl.png", "5.png", "gone.png", "spoilt.png"]
WRONG = []


def expect(ok, what):
    if not ok:
        WRONG.append(what[:2000])
    return ok


def expect_equal(got, want, what):
    return expect(got == want, f"{what}: got {got!r}, want {want!r}")


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb" if isinstance(data, bytes) else "w") as f:
        f.write(data)


def make_set(folder, broken=()):
    """A set of objects with hostile names, a file that is gone, one that is spoilt, and a box beyond its image. The
    annotations of `broken` splits cannot be read."""
    for split in ("train", "val"):
        images, annotations = [], []
        for i, file in enumerate(FILES):
            w, h = 60 + 10 * i, 50 + 7 * i
            images.append({"id": i + 1, "file_name": file, "width": w, "height": h})
            if split == "val" or file not in ("gone.png", "spoilt.png"):
                write(os.path.join(folder, split, file), png(w, h, (40 * i % 256, 90, 128)))
            elif file == "spoilt.png":
                write(os.path.join(folder, split, file), b"no image")
            for k in range(i % 4 + (split == "train")):
                x, y, size = 3 + 4 * k, 5 + 3 * k, 9 + i
                annotations.append({"id": len(annotations) + 1, "image_id": i + 1, "iscrowd": 0, "area": size * size,
                                    "category_id": (i + k) % len(NAMES) + 1, "bbox": [x, y, size, size],
                                    "segmentation": [[x, y, x + size, y, x + size, y + size, x, y + size]]})
        if split == "train":
            annotations.append({"id": 900, "image_id": 2, "category_id": 1, "bbox": [1, 1, 500, 5], "area": 25,
                                "iscrowd": 0, "segmentation": [[1, 1, 60, 1, 60, 6, 1, 6]]})
        text = json.dumps({"images": images, "annotations": annotations,
                           "categories": [{"id": i + 1, "name": n} for i, n in enumerate(NAMES)]})
        write(os.path.join(folder, "annotations", f"instances_{split}.json"), "{\"images\":[<b>" if split in broken else text)


def make_classes(folder):
    for split, n in (("train", 6), ("val", 2)):
        for c, name in enumerate(("cat", "dog <i>")):
            for i in range(n + c):
                write(os.path.join(folder, split, name, f"{i}.png"), png(40 + i, 50, (30 * i, 100 * c, 40)))


class Scene:
    def __init__(self, doctor, folder, browser):
        self.tool, self.folder, self.page = doctor, folder, browser.page()

    def doctor(self, *arguments):
        done = subprocess.run([self.tool, *arguments], capture_output=True, text=True, errors="replace")
        expect(done.returncode in (0, 1), f"doctor {arguments}: {done.stderr}")
        return done.stdout

    def open(self, path, width):
        """Opened, with all its images, and sound: no complaint, nothing from elsewhere, nothing wider than the window."""
        page = self.page
        page.viewport(width, 900)
        page.open(path, READY)
        page.images()
        at = f"{path} at {width} px"
        for fault in page.faults:
            expect(False, f"{at}: {fault}")
        for address in page.requests:
            expect(address.startswith("data:") or address.startswith("file://") and (address.endswith(".html") or "-pictures/picture-" in address),
                   f"{at}: asks for {address[:200]}")
        page.faults.clear()
        page.requests.clear()
        expect(page.js("typeof hacked === 'undefined'"), f"{at}: a script ran that came from a name")
        expect_equal(page.js("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"), [],
                     f"{at}: images that did not load")
        expect(page.js("document.documentElement.scrollWidth <= innerWidth"), f"{at}: wider than the window")
        return page


def texts(page, selector):
    return page.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")


def objects(scene):
    """The page says what --json says, its columns are as many as the sizes that there are, and the album is filtered and
    leafed through."""
    data, path = os.path.join(scene.folder, 'set "<b>'), os.path.join(scene.folder, "a <i>#?%.html")
    make_set(data)
    arguments = ("--data", data, "--size", "128", "--html", path)
    said = scene.doctor(*arguments)
    facts = json.loads(scene.doctor(*arguments, "--json"))
    for width in (1200, 390):
        page = scene.open(path, width)
    wrong = facts["train"]["wrong"] + facts["val"]["wrong"]
    expect_equal(texts(page, "h1"), [data], "title")
    expect_equal(texts(page, ".badge"), [f"{len(wrong)} types of errors"], "badge")
    expect_equal(texts(page, "#wrong tbody td:nth-child(2)"), [str(w["count"]) for w in wrong], "counts of defects")
    expect_equal(texts(page, "#wrong tbody td:nth-child(3)"), [w["what"] for w in wrong], "defects")
    expect_equal(len(texts(page, "#hurt li")), len(facts["hurts"]), "what will hurt")
    expect(texts(page, "#suggested pre")[0] in said and facts["flags"] in texts(page, "#suggested pre")[0], "the command")
    rows = page.js("""[...document.querySelectorAll("table.categories tbody tr")].map(r =>
      [...r.querySelectorAll("td.n")].slice(0, 2).map(c => Number(c.textContent)))""")
    val = {c["id"]: c["objects"] for c in facts["val"]["categories"]}
    want = [[c["objects"], val[c["id"]]] for c in facts["train"]["categories"]]
    expect_equal(sorted(rows), sorted(want), "objects of categories")
    for plot in page.js("""[...document.querySelectorAll(".histogram svg")].map(s => [s.getAttribute("aria-label"),
        s.querySelectorAll("rect.hue0").length, s.querySelectorAll("rect.hue1").length, s.querySelectorAll("text.title").length])"""):
        expect(plot[1] > 0 and plot[2] > 0 and plot[3] == 2, f"histogram: {plot}")
    expect_equal(page.js("document.querySelectorAll('.histogram svg').length"), 4, "histograms")
    page.hover("#sizes rect.hit")
    expect("pixels: train " in texts(page, "#sizes output")[0], f"what a column says: {texts(page, '#sizes output')}")
    cards, shown = "document.querySelectorAll('.strip button').length", "document.querySelector('.album output').textContent"
    n = page.js(cards)
    expect_equal(n, 2 * len(FILES), "images")
    page.js("document.activeElement.blur()")
    for key, text in (("ArrowRight", f"2 of {n}"), ("ArrowLeft", f"1 of {n}"), ("ArrowLeft", f"{n} of {n}")):
        page.js(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))")
        expect_equal(page.js(shown), text, f"after {key}")
    page.js("""(s => { s.value = "1"; s.dispatchEvent(new Event("change")) })(document.querySelector("[aria-label=split]"))""")
    expect(0 < page.js(cards) < n, "images of val")
    expect_equal(page.faults, [], "after clicks")


def one_split(scene):
    """A split that cannot be opened: which and why, and the other one."""
    for broken, other in (("val", "train"), ("train", "val")):
        data, path = os.path.join(scene.folder, "no-" + broken), os.path.join(scene.folder, f"no-{broken}.html")
        make_set(data, [broken])
        scene.doctor("--data", data, "--size", "128", "--html", path)
        page = scene.open(path, 390)
        stops = texts(page, "#wrong p.stop")
        expect(len(stops) == 1 and stops[0].startswith(f"{broken}: training stops: ") and f"instances_{broken}.json" in stops[0],
               f"no {broken}: {stops}")
        expect_equal(texts(page, ".badge"), ["training stops"], f"no {broken}: badge")
        expect_equal(texts(page, "#sizes .hues span"), [other], f"no {broken}: histograms")
        expect(page.js("document.querySelectorAll('.strip button').length") > 0, f"no {broken}: no image")


def classes(scene):
    """A set of classes in one file: its classes, and its images."""
    data, path = os.path.join(scene.folder, "classes"), os.path.join(scene.folder, "classes.html")
    make_classes(data)
    scene.doctor("--data", data, "--html", path, "--single-file")
    expect(not os.path.exists(os.path.join(scene.folder, "classes-pictures")), "a folder beside a single file")
    page = scene.open(path, 1200)
    rows = page.js("""[...document.querySelectorAll("table.categories tbody tr")].map(r => [...r.children].map(c => c.textContent))""")
    expect_equal(rows, [["dog <i>", "", "7", "3"], ["cat", "", "6", "2"]], "classes")
    expect_equal(page.js("[...document.images].filter(i => i.src.startsWith('data:')).length"), 18 + 1, "pictures in the page")


def main():
    doctor, folder = sys.argv[1:]
    with Browser() as browser:
        for case in (objects, one_split, classes):
            try:
                below = os.path.join(folder, case.__name__)
                os.makedirs(below, exist_ok=True)
                case(Scene(os.path.abspath(doctor), below, browser))
            except Broken as why:
                expect(False, f"{case.__name__}: {why}")
    for line in WRONG:
        print(line)
    sys.exit(bool(WRONG))


if __name__ == "__main__":
    main()
