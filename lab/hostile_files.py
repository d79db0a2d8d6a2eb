#!/usr/bin/env python3
"""Measures files that ask for much work: python3 lab/hostile_files.py BUILD >results/hostile-files-cpu.txt

BUILD is the folder of the programs. Of each file the median CPU seconds of three runs, the peak memory, and what the
program said if it refused the file. Pictures are of one colour, 64 megapixels unless the name says otherwise; infer
draws what it finds with a score of 0.9, which is nothing."""
import io
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib

SIDE, RUNS, MOST_SECONDS = 8000, 3, 120

# ---- JPEG ----------------------------------------------------------------------------------------------------------
# Both Huffman tables have the one code 0: no change of the DC, and a block without AC. So coded data are zeros.


def segment(marker, body):
    return bytes([0xff, marker]) + struct.pack(">H", len(body) + 2) + body


def scan(ids, data, first=0, last=63, bits=0):
    parts = b"".join(bytes([i, 0]) for i in ids)
    return segment(0xda, bytes([len(ids)]) + parts + bytes([first, last, bits])) + data


def jpeg(scans, components=3, progressive=True, before=b"", side=SIDE):
    codes = bytes([1] + 16 * [0])
    return (b"\xff\xd8" + before + segment(0xdb, bytes([0] + 64 * [1])) +
            segment(0xc2 if progressive else 0xc0, struct.pack(">BHHB", 8, side, side, components) +
                    b"".join(bytes([i + 1, 0x11, 0]) for i in range(components))) +
            segment(0xc4, b"\x00" + codes) + segment(0xc4, b"\x10" + codes) + scans + b"\xff\xd9")


def progressive(components, before=b"", side=SIDE):
    bits = bytes((side // 8) ** 2 // 8)
    ids = range(1, components + 1)
    return jpeg(b"".join(scan([i], bits, 0, 0) for i in ids) + b"".join(scan([i], bits, 1, 63) for i in ids),
                components, before=before, side=side)


def baseline(components, restarts=False, side=SIDE):
    blocks = (side // 8) ** 2
    data = bytes(blocks * components // 4)
    if restarts:
        size = (2 * components + 7) // 8
        data = b"".join(bytes(size) + bytes([0xff, 0xd0 + i % 8]) for i in range(blocks - 1)) + bytes(size)
    return jpeg((segment(0xdd, b"\0\1") if restarts else b"") + scan(range(1, components + 1), data), components, False,
                side=side)


def many_scans():
    """Each coefficient by itself, bit by bit: 896 scans, which the format allows."""
    bits = bytes((SIDE // 8) ** 2 // 8)
    return jpeg(b"".join(scan([1], bits, k, k, (b + 1 if b < 13 else 0) << 4 | b) for k in range(64)
                         for b in range(13, -1, -1)), 1)


def equal_scans():
    bits = bytes((SIDE // 8) ** 2 // 8)
    return jpeg(scan([1], bits, 0, 0) + scan([1], bits, 1, 63) + scan([1], bits[:100], 1, 63) * 4000, 1)


EXIF = b"II*\0\x08\0\0\0\xff\xff" + bytes(65000)  # 65,535 entries
ROTATED = segment(0xe1, b"Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0")

# ---- PNG -----------------------------------------------------------------------------------------------------------

ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def zeros(megabytes):
    c = zlib.compressobj(9)
    return b"".join(c.compress(bytes(1 << 20)) for _ in range(megabytes)) + c.flush()


def png(bits, color, interlaced=False, filter_type=0, extra=b"", surplus=0, side=SIDE):
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    c, packed = zlib.compressobj(9), b""
    for x, y, dx, dy in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        row = bytes([filter_type]) + bytes(((side - x + dx - 1) // dx * samples * bits + 7) // 8)
        for _ in range((side - y + dy - 1) // dy):
            packed += c.compress(row)
    packed += b"".join(c.compress(bytes(1 << 20)) for _ in range(surplus)) + c.flush()
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, bits, color, 0, 0, interlaced)) +
            extra + (chunk(b"PLTE", bytes(768)) if color == 3 else b"") + chunk(b"IDAT", packed) + chunk(b"IEND", b""))


SMALL = 64
PICTURES = [
    ("progressive JPEG, 1 component", lambda: progressive(1)),
    ("progressive JPEG, 3 components", lambda: progressive(3)),
    ("the same, EXIF orientation 6", lambda: progressive(3, ROTATED)),
    ("progressive JPEG, 4 components", lambda: progressive(4)),
    ("baseline JPEG, 3 components", lambda: baseline(3)),
    ("baseline JPEG, 4 components", lambda: baseline(4)),
    ("baseline, a restart after each block", lambda: baseline(3, True)),
    ("JPEG of 896 scans, bit by bit", many_scans),
    ("JPEG of 4,000 equal scans", equal_scans),
    ("JPEG of 1,000 EXIF blocks, 64 px", lambda: progressive(1, segment(0xe1, b"Exif\0\0" + EXIF) * 1000, SMALL)),
    ("JPEG of 1,000 ICC blocks, 64 px", lambda: progressive(
        1, segment(0xe2, b"ICC_PROFILE\0\1\xff" + bytes(65000)) * 1000, SMALL)),
    ("PNG, 1-bit gray", lambda: png(1, 0)),
    ("PNG, 8-bit RGB", lambda: png(8, 2)),
    ("PNG, 8-bit palette, Paeth", lambda: png(8, 3, False, 4)),
    ("PNG, 8-bit RGB, Adam7", lambda: png(8, 2, True)),
    ("PNG, 16-bit RGB", lambda: png(16, 2)),
    ("PNG, 16-bit RGBA", lambda: png(16, 6)),
    ("PNG, 16-bit RGBA, Adam7", lambda: png(16, 6, True)),
    ("PNG, 16-bit RGBA, Adam7, Paeth", lambda: png(16, 6, True, 4)),
    ("PNG, 4 GB behind its pixels, 64 px", lambda: png(8, 2, surplus=4000, side=SMALL)),
    ("PNG, 300 zTXt of EXIF, 64 MB each, 64 px", lambda: png(
        8, 2, extra=chunk(b"zTXt", b"Raw profile type exif\0\0" + zeros(64)) * 300, side=SMALL)),
    ("PNG, 300 iTXt, 64 MB each, 64 px", lambda: png(
        8, 2, extra=chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zeros(64)) * 300, side=SMALL)),
    ("PNG, iCCP of 1 GB, 64 px", lambda: png(8, 2, extra=chunk(b"iCCP", b"x\0\0" + zeros(1024)), side=SMALL)),
    ("PNG, eXIf of 30 MB, 64 px", lambda: png(8, 2, extra=chunk(b"eXIf", EXIF + bytes(30 << 20)), side=SMALL)),
]


# ---- other files ---------------------------------------------------------------------------------------------------


def annotations(side, categories=1):
    return json.dumps({
        "images": [{"id": 1, "file_name": "x", "width": side, "height": side}],
        "categories": [{"id": i + 1, "name": f"c{i}"} for i in range(categories)],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 32, 32], "area": 512, "iscrowd": 0,
                         "segmentation": [[0, 0, 32, 0, 0, 32]]}]})


def polygons(h, w, objects):
    """Objects, each a list of polygons, of a picture that need not exist."""
    return json.dumps({
        "images": [{"id": 1, "file_name": "x", "width": w, "height": h}], "categories": [{"id": 1, "name": "c"}],
        "annotations": [{"id": i + 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, w, h], "area": h * w, "iscrowd": 0,
                         "segmentation": o} for i, o in enumerate(objects)]}, separators=(",", ":"))


def zigzag(h, w, edges):
    return [x for i in range(edges) for x in (w * (i % 2), i * 7919 % (h + 1))]


def diagonals(h, w, edges):
    return [x for i in range(edges) for x in ((w - i % 50, h - i // 50 % 50) if i % 2 else (i % 50, i // 50 % 50))]


def stripe(w, y):
    return [0, y, w, y, w, y + 1, 0, y + 1]


POLYGONS = [
    ("20,000 edges across 60,000 columns", lambda: polygons(1000, 60000, [[zigzag(1000, 60000, 20000)]])),
    ("20,000 edges across 1,000,000 columns", lambda: polygons(1, 10 ** 6, [[zigzag(1, 10 ** 6, 20000)]])),
    ("20,000 diagonals of 8,000² pixels", lambda: polygons(8000, 8000, [[diagonals(8000, 8000, 20000)]])),
    ("an object of 9,000 stripes, 8,000² pixels", lambda: polygons(
        8000, 8000, [[stripe(8000, i % 7999) for i in range(9000)]])),
    ("9,000 objects as large as 8,000² pixels", lambda: polygons(
        8000, 8000, [[[0, i % 50, 8000, i % 50, 8000, 8000, 0, 8000]] for i in range(9000)])),
]


def safetensors(header, size=None):
    return struct.pack("<Q", len(header) if size is None else size) + header


def zipped(body):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("archive/data.pkl", body)
    return out.getvalue()


TENSOR = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
WEIGHTS = [
    ("safetensors of 10⁶ tensors", lambda: safetensors(
        json.dumps({f"t{i}": TENSOR for i in range(10 ** 6)}).encode())),
    ("safetensors, header of 2⁶⁰ bytes", lambda: safetensors(b"{}", 1 << 60)),
    ("safetensors, 40 MB of [", lambda: safetensors(b"[" * (40 << 20))),
    ("torch.save, deflated, 1 GB of zeros", lambda: zipped(bytes(1 << 30))),
    ("pickle of 20 million marks", lambda: b"\x80\2" + b"(" * (20 << 20) + b"."),
]
LOGS = [
    ("log, one line of 100 MB", lambda: b'{"step":1,"kind":"train","loss":' + b"1" * (100 << 20) + b"}\n"),
    ("log of 10⁶ names", lambda: "".join(f'{{"step":{i + 1},"kind":"train","loss_{i}":1}}\n'
                                        for i in range(10 ** 6)).encode()),
]


# ---- measuring -----------------------------------------------------------------------------------------------------


def write(path, make):
    """By a process of its own: a program's peak memory begins with that of the process that starts it."""
    child = os.fork()
    if child == 0:
        with open(path, "wb") as f:
            f.write(make())
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"cannot write {path}")


def measure(command, folder):
    """Median CPU seconds of some runs, peak MB, and the exit code and what was said where it is not 0."""
    seconds, peak, said = [], 0, ""
    for _ in range(RUNS):
        subprocess.run(["rm", "-rf", os.path.join(folder, "out")], check=True)
        with open(os.path.join(folder, "said"), "w+") as f:
            child = subprocess.Popen(["timeout", str(MOST_SECONDS)] + command, stdout=f, stderr=f, cwd=folder)
            _, status, use = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            f.seek(0)
            text = f.read(1 << 16)
        seconds.append(use.ru_utime + use.ru_stime)
        peak = max(peak, use.ru_maxrss * 1024 / 1e6)
        if child.returncode:
            why = [s for s in text.splitlines() if "corrupt" in s or "more than" in s]
            said = f"{child.returncode}: " + (why or text.splitlines() or [""])[0].strip().replace(folder + "/", "")
    return statistics.median(seconds), peak, said


def report(name, path, program, options, folder):
    seconds, peak, said = measure([program] + options, folder)
    if "corrupt (" in said:
        said = said[:3] + said[said.index("(") + 1:].split(");")[0]
    print(f"{name:40}  {os.path.getsize(path) / 1e6:7.2f}  {os.path.basename(program):8}  {seconds:7.2f}  {peak:7.0f}  "
          f"{said[:100]}".rstrip(), flush=True)


def train_options(data, out):
    return ["--data", data, "--model", "tiny", "--size", "64", "--batch", "1", "--threads", "1", "--iters", "1",
            "--eval-every", "never", "--out", out]


def annotate(data, file, side, categories=1):
    write(os.path.join(data, "annotations/instances_train.json"),
          lambda: annotations(side, categories).replace('"x"', f'"{file}"').encode())


def main():
    build = os.path.abspath(sys.argv[1])
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True,
                            cwd=pathlib.Path(__file__).parent, check=True).stdout.strip()
    print(f"Files that ask for much, {time.strftime('%Y-%m-%d')}, commit {commit}: python3\n"
          f"lab/hostile_files.py BUILD. CPU seconds (user and system) are medians of {RUNS} runs with {os.cpu_count()}\n"
          "threads, beside other work.\n"
          "Pixels are 192 MB of the peak where a picture has 64 megapixels (train: of each copy). The range of 16-bit\n"
          "pictures is measured before train decodes them. Without pixels, infer takes about 45 MB and train 40.\n")
    print(f"{'file':40}  {'MB':>7}  {'program':8}  {'seconds':>7}  {'peak MB':>7}  exit code and why, where refused")
    with tempfile.TemporaryDirectory() as folder:
        data, out = os.path.join(folder, "set"), os.path.join(folder, "out")
        os.makedirs(os.path.join(data, "annotations"))
        os.makedirs(os.path.join(data, "train"))
        path = os.path.join(data, "train/x")
        write(path, lambda: png(8, 2, side=SMALL))
        annotate(data, "x", SMALL)
        subprocess.run([f"{build}/train"] + train_options(data, os.path.join(folder, "run")), check=True,
                       capture_output=True)
        model = os.path.join(folder, "run/model.safetensors")
        for name, make in PICTURES:
            write(path, make)
            annotate(data, "x", SMALL if name.endswith("64 px") else SIDE)
            report(name, path, f"{build}/infer", ["--weights", model, "--score", "0.9", "--out", out, path], folder)
            report(name, path, f"{build}/train", train_options(data, out), folder)
            report(name, path, f"{build}/doctor", ["--data", data], folder)
        annotate(data, "x", SMALL, 10 ** 6)
        path, found = os.path.join(data, "annotations/instances_train.json"), os.path.join(folder, "found.json")
        write(found, lambda: b"[]")
        report("annotations of 10⁶ categories", path, f"{build}/doctor", ["--decode=false", "--data", data], folder)
        report("annotations of 10⁶ categories", path, f"{build}/cocoeval", ["--gt", path, "--dt", found], folder)
        write(found, lambda: b'[{"image_id":1,"category_id":1,"score":0.5,"bbox":[0,0,9000,9000]}]')
        for name, make in POLYGONS:
            write(path, lambda: make().encode())
            report(name, path, f"{build}/cocoeval", ["--gt", path, "--dt", found, "--iou", "segm"], folder)
        write(path, lambda: annotations(SMALL).replace('"x"', f'"{"x" * (20 << 20)}"').encode())
        report("a file_name of 20 MB", path, f"{build}/doctor", ["--data", data], folder)
        annotate(data, "x", SMALL, 10 ** 5)
        report("annotations of 10⁵ categories", path, f"{build}/doctor", ["--decode=false", "--data", data], folder)
        path = os.path.join(folder, "weights")
        for name, make in WEIGHTS:
            write(path, make)
            report(name, path, f"{build}/inspect", [path], folder)
        path = os.path.join(folder, "log.jsonl")
        for name, make in LOGS:
            write(path, make)
            report(name, path, f"{build}/report", [path, "--out", os.path.join(folder, "page.html"), "--force"], folder)


main()
