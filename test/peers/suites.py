"""Runs others' test suites through our readers and ops, against checkouts that you name; none of their files is copied.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy pillow safetensors torch torchvision pytest
    git clone https://github.com/nst/JSONTestSuite      # and lunapaint/pngsuite, image-rs/image-png,
    …                                                   # image-rs/jpeg-decoder, google/wuffs, ianare/exif-samples,
    …                                                   # huggingface/safetensors, pytorch/vision
    /tmp/venv/bin/python test/peers/suites.py --checkouts DIR [--only NAME,…] [--out FILE] [--library FILE]

DIR holds the checkouts under these names (JSONTestSuite, pngsuite, …); one that is not there is skipped and said to be.

- JSONTestSuite: y_… is read, to the values of Python's json; n_… is refused; what becomes of i_… is counted.
- pngsuite, image-png, jpeg-decoder, wuffs, exif-samples: every PNG and JPEG is decoded by us and by Pillow. PNGs must be
  equal; JPEGs, where decoders may round differently, within the limits of compare_libjpeg.py. The EXIF orientation must
  be Pillow's. pngsuite's x… are corrupt and must be refused.
- safetensors: the files that its Rust tests write as byte strings, against the Python package.
- vision: test_ops.py's cases of nms, RoIAlign and box IoU, with these functions replaced by ours (torchvision_ops.py).

Prints a line a suite, and each file where the two sides disagree, with the judgement in JUDGED. Exits 1 where a file has
none, or a case fails.
"""
import argparse
import ast
import collections
import datetime
import glob
import io
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import PIL
import safetensors
from PIL import Image

from reader_pairs import JsonFiles, Safetensors
from readers import Readers, Refusal

LIMIT_FILE, LIMIT_PIXEL = 0.2, 5  # of JPEGs, as in compare_libjpeg.py

# (who alone accepts, a pattern of the other's message, judgement)
JUDGED = [
    ("Pillow", "wrong checksum", "a wrong CRC, which Pillow does not check in the last chunk of pixels"),
    ("Pillow", "lossless", "lossless JPEG, which we do not read, and say so"),
    ("Pillow", "length, 0|length, 1", "a segment of an impossible length, which libjpeg steps over"),
    ("Pillow", "huffman|restart markers|bad SOS|bad DHT", "damaged data, of which libjpeg makes some pixels and warns"),
    ("Pillow", "lacks later progressive scans", "a progressive file without its later scans, which libjpeg smooths over"),
    ("Pillow", "truncated|before the last pixel", "a file that ends early, which libjpeg fills with grey"),
    ("Pillow", "have no scan", "components without a scan, of which libjpeg makes grey"),
    ("Pillow", "contradicts the scans", "scans whose headers do not fit together, which libjpeg warns of"),
]
# Pictures that both read, to other pixels: (a pattern of the name, judgement)
DIFFERENT = [
    (r"182\.2-byte-change", "damaged data: runs past a block's last coefficient, which libjpeg counts for that one"),
]


def commit_of(folder):
    run = subprocess.run(["git", "-C", folder, "rev-parse", "--show-toplevel", "HEAD"], capture_output=True, text=True)
    said = run.stdout.split()
    if said and os.path.realpath(said[0]) == os.path.realpath(folder):
        return said[1][:9]
    version = os.path.join(folder, "version.txt")  # torchvision has one
    return f"(version {read(version).decode().strip()})" if os.path.exists(version) else "(no commit)"


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Report:
    def __init__(self):
        self.lines, self.failed = [], False

    def say(self, line):
        print(line, flush=True)
        self.lines.append(line)

    def fail(self, line):
        self.failed = True
        self.say(f"  FAILED {line}")

    def disagree(self, name, who, message):
        for accepts, pattern, judgement in JUDGED:
            if accepts == who and re.search(pattern, message):
                return judgement
        self.fail(f"{name}: only {who} reads it: {message[:200]}")
        return None


# ---- JSON and safetensors -------------------------------------------------------------------------------------------


def json_suite(readers, folder, report):
    reader, counts, refused = JsonFiles(readers), collections.Counter(), []
    for path in sorted(glob.glob(f"{folder}/test_parsing/*.json")):
        name, data = os.path.basename(path), read(path)
        ours = readers.json_skip(data)
        accepted = not isinstance(ours, Refusal)
        counts[name[0], accepted] += 1
        if name[0] in "yn" and accepted != (name[0] == "y"):
            report.fail(f"{name}: {ours}")
        ours = readers.json(data)
        if name[0] == "y" and isinstance(ours, Refusal):
            refused.append(name)
        elif name[0] == "y" and not reader.same(ours, reader.theirs(data)):
            report.fail(f"{name}: other values than Python's")
    of = lambda letter: counts[letter, True] + counts[letter, False]
    report.say(f"JSONTestSuite {commit_of(folder)}: y read {counts['y', True]} of {of('y')}, n refused {counts['n', False]} of "
               f"{of('n')}, i (either is allowed) read {counts['i', True]}, refused {counts['i', False]}")
    report.say(f"  skipped as any value, but refused as a key, which a NUL would end: {', '.join(refused)}")


def safetensors_suite(readers, folder, report):
    reader, files, both, neither = Safetensors(readers), set(), 0, 0
    for path in glob.glob(f"{folder}/safetensors/src/*.rs") + glob.glob(f"{folder}/bindings/python/tests/*.py"):
        for text in re.findall(r'(?<![\w"])b"(?:[^"\\]|\\.)*"', read(path).decode()):
            data = ast.literal_eval(text)
            if b"{" in data or len(data) in (0, 8, 9):
                files.add(data)
    for data in sorted(files):
        ours, theirs = reader.ours(data), reader.theirs(data)
        refused = isinstance(ours, Refusal), isinstance(theirs, Refusal)
        both, neither = both + (refused == (False, False)), neither + (refused == (True, True))
        if refused[0] != refused[1]:
            report.fail(f"{data[:80]!r}: ours {ours!r}, theirs {theirs!r}")
        elif not refused[0] and not reader.same(ours, theirs):
            report.fail(f"{data[:80]!r}: other values")
    report.say(f"safetensors {commit_of(folder)}: {len(files)} files in its tests; read alike {both}, refused by both "
               f"{neither}")


# ---- pictures -------------------------------------------------------------------------------------------------------


def pillow(data):
    """(pixels, orientation)."""
    try:
        with Image.open(io.BytesIO(data), formats=["PNG", "JPEG"]) as im:
            im.load()
            try:
                orientation = im.getexif().get(0x112, 1)
            except Exception:  # a block that is no EXIF
                orientation = 1
            if im.mode.startswith("I"):
                grey = (np.asarray(im).astype(np.int64) >> 8).astype(np.uint8)
                return np.repeat(grey[..., None], 3, 2), orientation
            return np.asarray(im.convert("RGB")), orientation
    except Exception as e:
        return Refusal(f"{type(e).__name__}: {e}")


def picture_suite(readers, folder, report):
    counts, judged = collections.Counter(), collections.defaultdict(list)
    pictures = lambda path: path.lower().endswith((".png", ".jpg", ".jpeg"))
    for path in sorted(filter(pictures, glob.glob(f"{folder}/**/*", recursive=True))):
        name, data = os.path.relpath(path, folder), read(path)
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        png = data.startswith(b"\x89PNG")
        ours, theirs = readers.image(data), pillow(data)
        counts["files"] += 1
        if isinstance(ours, Refusal) and isinstance(theirs, Refusal):
            counts["neither"] += 1
        elif isinstance(ours, Refusal) or isinstance(theirs, Refusal):
            who, message = ("Pillow", ours) if isinstance(ours, Refusal) else ("we", theirs)
            judgement = report.disagree(name, who, message)
            if judgement:
                judged[who, judgement].append(name)
        else:
            counts["both"] += 1
            pixels, orientation = theirs
            if ours.shape != pixels.shape:
                report.fail(f"{name}: {ours.shape}, by Pillow {pixels.shape}")
                continue
            difference = np.abs(ours.astype(np.int16) - pixels)
            counts["equal"] += not difference.any()
            if difference.max() > (0 if png else LIMIT_PIXEL) or difference.mean() > (0 if png else LIMIT_FILE):
                said = f"{name}: mean difference {difference.mean():.3f}, of a pixel at most {difference.max()}"
                judgement = next((j for pattern, j in DIFFERENT if re.search(pattern, name)), None)
                if judgement:
                    judged["both to other pixels", judgement].append(name)
                else:
                    report.fail(said)
            valid = orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1
            if readers.orientation(data) != valid:
                report.fail(f"{name}: orientation {readers.orientation(data)}, by Pillow {orientation}")
        if re.fullmatch(r"(.*/)?pngsuite/(png/)?x[^/]*\.png", path) and not isinstance(ours, Refusal):
            report.fail(f"{name}: corrupt on purpose, and read")
    report.say(f"{os.path.basename(folder)} {commit_of(folder)}: {counts['files']} PNGs and JPEGs; read by both {counts['both']}, "
               f"to equal pixels {counts['equal']}; refused by both {counts['neither']}")
    for (who, judgement), names in sorted(judged.items()):
        read_by = {"we": "only we read", "Pillow": "only Pillow reads"}.get(who, f"read by {who}")
        report.say(f"  {read_by} {len(names)}: {judgement}: {', '.join(map(os.path.basename, names))}")


def vision_suite(readers, folder, report):
    here = os.path.dirname(os.path.abspath(__file__))
    run = subprocess.run([sys.executable, os.path.join(here, "torchvision_ops.py"), folder], capture_output=True, text=True)
    said = (run.stdout.strip() or run.stderr.strip() or "nothing").splitlines()
    report.say(f"vision {commit_of(folder)}: {said[-1]}")
    if run.returncode:
        report.fail(run.stdout[-2000:])


SUITES = {"JSONTestSuite": json_suite, "pngsuite": picture_suite, "image-png": picture_suite, "jpeg-decoder": picture_suite,
          "wuffs": picture_suite, "exif-samples": picture_suite, "safetensors": safetensors_suite, "vision": vision_suite}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkouts", required=True)
    parser.add_argument("--only", default=",".join(SUITES))
    parser.add_argument("--out")
    parser.add_argument("--library")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of Pillow, on odd files
    readers, report = Readers(args.library), Report()
    report.say(f"commit {commit_of('.')}, {datetime.date.today()}; Python {sys.version.split()[0]}, Pillow {PIL.__version__}, "
               f"safetensors {safetensors.__version__}")
    for name in args.only.split(","):
        folder = os.path.join(args.checkouts, name)
        if os.path.isdir(folder):
            SUITES[name](readers, folder, report)
        else:
            report.say(f"{name}: not in {args.checkouts}, skipped")
    if args.out:
        with open(args.out, "w") as f:
            f.write("\n".join(report.lines) + "\n")
    return int(report.failed)


if __name__ == "__main__":
    sys.exit(main())
