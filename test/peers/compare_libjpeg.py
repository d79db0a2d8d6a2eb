"""Compares our decoding of JPEGs with libjpeg-turbo's. Not part of `make test`: it needs Python packages.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy pillow
    /tmp/venv/bin/python test/peers/compare_libjpeg.py [--data ../shared/data] [--pictures 100] [--out FILE]
        [--library FILE]   a shared object with our readers; without it they are compiled (readers.py)

Pictures of DATA/coco/val2017 and all of DATA/odd_images that Pillow reads, cut to odd sizes, and noise of widths from 1
on are encoded by Pillow with chroma at full, half and quarter resolution (4:4:4, 4:2:2, 4:2:0), baseline and
progressive, at three qualities; then the files of both folders as they are. Each file is decoded by us and by Pillow,
which links libjpeg-turbo. Prints a line per type: files, mean and largest difference of a channel's levels. Exits 1 if
the mean over all re-encoded files is above 0.1, that of a file above 0.2, or a channel is more than 5 levels off where
chroma is at least three samples wide (libjpeg smooths wider rows only).
"""
import argparse
import datetime
import glob
import io
import os
import subprocess
import sys

import numpy as np
from PIL import Image, features

from readers import Readers

SUBSAMPLINGS = ["4:4:4", "4:2:2", "4:2:0"]
QUALITIES = [50, 75, 95]
LIMIT_SET, LIMIT_FILE, LIMIT_PIXEL = 0.1, 0.2, 5


def pillow(data):
    """Pixels as int16 [h, w, 3], by Pillow; None where it refuses."""
    try:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(np.int16)
    except Exception:
        return None


class Tally:
    def __init__(self):
        self.files, self.sum, self.worst_mean, self.worst, self.worst_file = 0, 0.0, 0.0, 0, ""

    def add(self, name, difference):
        mean, most = float(difference.mean()), int(difference.max())
        self.files += 1
        self.sum += mean
        if mean > self.worst_mean or most > self.worst:
            self.worst_file = name
        self.worst_mean, self.worst = max(self.worst_mean, mean), max(self.worst, most)

    def line(self, name):
        return (f"{name:32} {self.files:5} files, mean difference {self.sum / max(self.files, 1):.5f}, of a file at most "
                f"{self.worst_mean:.5f}, of a pixel at most {self.worst}")


def sources(data, count):
    """(name, picture) to encode: photographs of odd sizes, the odd images, noise."""
    for i, path in enumerate(sorted(glob.glob(f"{data}/coco/val2017/*.jpg"))[:count]):
        im = Image.open(path).convert("RGB")
        yield os.path.basename(path), im.crop((i % 3, i % 2, im.width - i % 17, im.height - i % 13))
    for i, path in enumerate(sorted(glob.glob(f"{data}/odd_images/*.*"))):
        try:
            im = Image.open(path).convert("RGB")
        except Exception:
            continue
        yield os.path.basename(path), im.crop((0, 0, max(1, im.width - i % 5), max(1, im.height - i % 3)))
    random = np.random.default_rng(0)
    for w in [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33]:
        h = 1 + (7 * w) % 29
        yield f"noise{w}x{h}", Image.fromarray(random.integers(0, 256, (h, w, 3), dtype=np.uint8))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--pictures", type=int, default=100)
    parser.add_argument("--library")
    parser.add_argument("--out")
    args = parser.parse_args()
    failed, lines = [], []
    readers = Readers(args.library)
    total, types, narrow, as_is = Tally(), {}, Tally(), Tally()
    for name, im in sources(args.data, args.pictures):
        for subsampling in SUBSAMPLINGS:
            for progressive in (False, True):
                for quality in QUALITIES:
                    out = io.BytesIO()
                    im.save(out, "JPEG", quality=quality, subsampling=subsampling, progressive=progressive)
                    what = f"{subsampling} {'progressive' if progressive else 'baseline'}"
                    ours, theirs = readers.image(out.getvalue()), pillow(out.getvalue())
                    if isinstance(ours, str) or ours.shape != theirs.shape:
                        failed.append(f"{name} {what} {quality}: {ours if isinstance(ours, str) else ours.shape}")
                        continue
                    difference = np.abs(ours - theirs)
                    chroma_width = im.width if subsampling == "4:4:4" else (im.width + 1) // 2
                    if chroma_width < 3:
                        narrow.add(name, difference)
                    else:
                        types.setdefault(what, Tally()).add(name, difference)
                        if difference.max() > LIMIT_PIXEL:
                            failed.append(f"{name} {what} {quality}: a pixel is {difference.max()} off")
                    total.add(name, difference)
                    if difference.mean() > LIMIT_FILE:
                        failed.append(f"{name} {what} {quality}: {difference.mean():.3f} off on average")
    for path in sorted(glob.glob(f"{args.data}/coco/*2017/*.jpg") + glob.glob(f"{args.data}/odd_images/*.jpg")):
        with open(path, "rb") as f:
            data = f.read()
        ours, theirs = readers.image(data), pillow(data)
        if isinstance(ours, str) or theirs is None:
            if not isinstance(ours, str) or theirs is not None:
                lines.append(f"only {'Pillow' if isinstance(ours, str) else 'ours'} reads {os.path.basename(path)}"
                             f"{': ' + ours if isinstance(ours, str) else ''}")
            continue
        as_is.add(os.path.basename(path), np.abs(ours - theirs))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    lines = [f"commit {commit}, {datetime.date.today()}; Pillow {Image.__version__}, libjpeg-turbo "
             f"{features.version('libjpeg_turbo')}",
             *(tally.line(name) for name, tally in types.items()), narrow.line("chroma of 1 or 2 samples a row"),
             total.line("all of these"), as_is.line("files as they are"), *lines]
    if total.sum / max(total.files, 1) > LIMIT_SET or total.files < 1000:
        failed.append("the mean over all is above the limit, or there are fewer than 1,000 files")
    lines += [f"FAILED {line}" for line in failed] or ["all within the limits"]
    print("\n".join(lines))
    if args.out:
        with open(args.out, "w") as f:
            f.write("\n".join(lines) + "\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
