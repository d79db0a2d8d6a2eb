"""Writes the seeds of the fuzzers of JSON, results, command lines, run-length masks and images to test/corpus/, where a
file is a finding if its name begins with found. Run from the root of the tree; Pillow 13.0 wrote what is committed:
    python3 test/peers/make_fuzz_corpus.py
"""
import io
import json
import os
import struct
import zlib

from PIL import Image

OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "corpus")


def write(folder, name, data):
    os.makedirs(os.path.join(OUT, folder), exist_ok=True)
    with open(os.path.join(OUT, folder, name), "wb") as f:
        f.write(data)


def json_files():
    """Every form of a segmentation, and odd ways to write what is in a data set."""
    images = [{"id": 1, "file_name": "a.png", "height": 8, "width": 6}, {"id": "2", "file_name": "b", "height": 9,
                                                                         "width": 9}]
    categories = [{"id": 3, "name": "thing"}, {"id": -1, "name": "é\n"}, {"id": 9}]
    segmentations = [[[1, 1, 4.5, 1, 4.5, 6e0]], [[0, 0, 5, 0, 5, 5, 0, 5], [2, 2, 3, 2, 3, 3]],
                     {"size": [8, 6], "counts": [4, 8, 36]}, {"counts": rle_string([4, 8, 36]).decode(), "size": [8, 6]}, [], None, "none",
                     [[1, 2]], [[None, 1, 2, 3, 4, 5]]]
    annotations = [{"id": i + 1, "image_id": 1, "category_id": 3, "bbox": [1, 1, 3.25, 4], "area": 13.5,
                    "iscrowd": i % 2, "segmentation": s} for i, s in enumerate(segmentations)]
    write("json", "instances.json", json.dumps({"images": images, "categories": categories,
                                                "annotations": annotations}).encode())
    write("json", "spread.json", json.dumps({"info": {"year": 2026, "x": [True, False, None, [[[]]]]},
                                             "annotations": annotations[:2], "images": images,
                                             "categories": []}, indent=1, ensure_ascii=False).encode())
    detections = [{"image_id": 1, "category_id": 3, "score": 0.5, "bbox": [0, 0, 2, 2]},
                  {"image_id": 1, "category_id": 3, "score": 1e-3, "segmentation": {"size": [8, 6], "counts": rle_string([4, 8, 36]).decode()}}]
    write("json", "detections.json", json.dumps(detections).encode())
    write("json", "object.json", json.dumps({"detections": detections}).encode())
    write("json", "numbers.json", b"[0,-0,1.5,-2e3,1E+2,12345678901234567890,9007199254740993,1e-400,0.1e22,1e22]")
    write("json", "strings.json", b'\xef\xbb\xbf["\\u00e9\\ud83d\\ude00\\ud800\\"\\\\\\/\\b\\f\\n\\r\\t","\xc3\xa9\xf0\x9f\x98\x80"]')
    write("json", "deep.json", b"[" * 300 + b"]" * 300)
    words = ["images", "annotations", "categories", "detections", "id", "file_name", "height", "width", "image_id",
             "category_id", "segmentation", "bbox", "area", "iscrowd", "score", "counts", "size", "name"]
    syntax = ['{"', '":', '[[', ']]', '},{', 'null', 'true', 'false', '\\u', '\\ud800\\udc00', 'e-', '1e308',
              '9223372036854775807', '-9223372036854775808', '4294967296', '2147483648']
    quoted = [w.replace("\\", "\\\\").replace('"', '\\"') for w in ['"%s":' % w for w in words] + syntax]
    write("", "json.dict", "".join('"%s"\n' % q for q in quoted).encode())


def results_files():
    """Detections of the data set in test/fuzz/fuzz_results.c."""
    runs = lambda size, counts: {"size": size, "counts": counts}
    one = lambda score, **rest: dict({"image_id": 1, "category_id": 3, "score": score}, **rest)
    dump = lambda value: json.dumps(value, separators=(",", ":")).replace("},{", "},\n{").encode()
    write("results", "forms.json", dump([one(0.5, bbox=[1, 1, 3, 4]), one(0.4, segmentation=runs([8, 6], [9, 4, 4, 4, 27])),
                                         one(0.3, segmentation=[[1, 1, 4, 1, 4, 5, 1, 5]])]))
    odd = [{"image_id": "2", "category_id": 3, "score": 0.9, "bbox": [3, 3, 4, 4],
            "segmentation": runs([9, 9], rle_string([30, 3, 6, 3, 39]).decode())},
           {"image_id": 3, "category_id": 7, "score": 1e-3, "bbox": [0, 0, 2, 2], "segmentation": None},
           {"image_id": 9, "category_id": 7, "score": -1, "bbox": [0, 0, 2, 2]}]
    write("results", "odd.json", dump({"detections": odd}))


def cli_files():
    """Command lines of the options in test/fuzz/fuzz_cli.c, an argument a line."""
    lines = {"every-kind": ["--batch", "3", "--any=-7", "--seed=-9223372036854775808", "--momentum", "0.5", "--rate=1e-3",
                            "--sizes=640,672", "--schedule=cosine", "--amp", "--steps", "7", "image.png"],
             "flags": ["--keep-empty", "--flip=false", "--steps", "--", "--batch"], "mistyped": ["--bacth", "3"],
             "help": ["--batch", "--help"]}
    for name, arguments in lines.items():
        write("cli", name, "\n".join(arguments).encode())


def rle_string(runs):
    """COCO's string, as rle_to_string writes it (data/coco/rle.c)."""
    out = ""
    for i, run in enumerate(runs):
        x, more = run - (runs[i - 2] if i > 2 else 0), True
        while more:
            group, x = x & 31, x >> 5
            more = x != (-1 if group & 16 else 0)
            out += chr(48 + group + 32 * more)
    return out.encode()


def rle_files():
    """One file of each form that test/fuzz/fuzz_rle.c reads."""
    small = lambda numbers: b"".join(struct.pack("<H", round((v + 64) * 128)) for v in numbers)
    doubles = lambda numbers: struct.pack("<%dd" % len(numbers), *numbers)
    write("rle", "string", b"s" + bytes([8, 6]) + rle_string([4, 8, 36]))
    write("rle", "string-tall", b"s" + bytes([255, 3]) + rle_string([100, 0, 0, 300, 20, 345]))
    write("rle", "counts", b"c" + bytes([8, 6]) + struct.pack("<5I", 4, 8, 0, 30, 6))
    write("rle", "polygon-small", b"P" + bytes([40, 32]) + small([5, 5, 30, 7.5, 41, 33, -3, 28]))
    write("rle", "star-small", b"P" + bytes([64, 32]) + small([32, 2, 50, 60, 3, 22, 61, 22, 14, 60]))
    write("rle", "polygon", b"p" + bytes([40, 32]) + doubles([5, 5, 1e300, 7.5, 41, float("nan"), -1e6, 28]))
    write("rle", "box-small", b"B" + bytes([20, 30]) + small([3, 4, 10, 12.5]))
    write("rle", "box", b"b" + bytes([20, 30]) + doubles([-1, -2, float("inf"), 1e9]))


def png(color, depth, interlaced, *chunks):
    """A PNG of 9 x 7 pixels. Adam7 has seven passes of every eighth, fourth, second … pixel."""
    w, h = 9, 7
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    raw = b""
    for n, (x, y, dx, dy) in enumerate(passes if interlaced else [(0, 0, 1, 1)]):
        columns, rows = (w - x + dx - 1) // dx, (h - y + dy - 1) // dy
        size = (columns * channels * depth + 7) // 8
        for row in range(rows if columns else 0):
            raw += bytes([(n + row) % 5]) + bytes((37 * n + 11 * row + 5 * i) % 256 for i in range(size))
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    header = struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(*c) for c in chunks) +
            chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def image_files():
    """Every coding that is read."""
    palette = (b"PLTE", bytes(range(48)))
    write("image", "rgb.png", png(2, 8, 0))
    write("image", "adam7.png", png(6, 8, 1))
    write("image", "gray1.png", png(0, 1, 1))
    write("image", "gray16.png", png(4, 16, 0))
    write("image", "rgb16.png", png(2, 16, 1))
    write("image", "palette.png", png(3, 4, 0, palette, (b"tRNS", b"\0\x80")))
    rgb = Image.frombytes("RGB", (19, 17), bytes((7 * i * i + i) % 256 for i in range(19 * 17 * 3)))
    exif = Image.Exif()
    exif[0x112] = 6
    for name, image, options in [("420.jpg", rgb, {"subsampling": 2}), ("progressive.jpg", rgb, {"progressive": True}),
                                 ("444.jpg", rgb, {"subsampling": 0, "exif": exif}),
                                 ("restart.jpg", rgb, {"restart_marker_blocks": 1}), ("gray.jpg", rgb.convert("L"), {}),
                                 ("cmyk.jpg", rgb.convert("CMYK"), {})]:
        out = io.BytesIO()
        image.save(out, "JPEG", quality=30, optimize=True, **options)
        write("image", name, out.getvalue())
    jpeg = ["\\xff\\x%02x" % m for m in [0xc0, 0xc1, 0xc2, 0xc4, 0xd0, 0xd8, 0xd9, 0xda, 0xdb, 0xdd, 0xe0, 0xe1, 0xee]]
    names = ["IHDR", "PLTE", "tRNS", "IDAT", "IEND", "CgBI", "\\x89PNG\\x0d\\x0a\\x1a\\x0a", "Exif\\x00\\x00", "Adobe",
             "JFIF"]
    write("", "image.dict", "".join('"%s"\n' % t for t in jpeg + names).encode())


json_files()
results_files()
cli_files()
rle_files()
image_files()
