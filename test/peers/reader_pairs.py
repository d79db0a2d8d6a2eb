"""Our readers of JSON, run-length masks, PNG and safetensors in pairs with independent ones, and the mutated inputs that
fuzz_readers.py gives to both. suites.py uses the pairs, too.
"""
import collections
import glob
import io
import json
import random
import struct
import warnings
import zlib

import numpy as np
import pycocotools.mask as mask_utils
import safetensors
from PIL import Image

from readers import Pairs, Refusal


def seeds(folder):
    return [open(path, "rb").read() for path in sorted(glob.glob(f"test/corpus/{folder}/*"))]


class Reader:
    """One of ours and its counterpart: make(rng) an input, read it with ours(data) and theirs(data), compare with same().
    explain(data): what stands for our message where that does not say why only one side reads the input, or None."""

    def explain(self, data):
        return None


def edited(rng, data, tokens, edits):
    """data with bytes changed, removed, repeated, or tokens put in."""
    data = bytearray(data)
    for _ in range(edits):
        at = rng.randrange(len(data) + 1)
        length = min(rng.choice([1, 1, 1, 2, 4, 16]), len(data) - at)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.choice([0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)])
        elif kind == 2:
            del data[at:at + length]
        elif kind == 3:
            data[at:at] = data[at:at + length] * rng.choice([1, 1, 3])
        elif kind == 4:
            data[at:at] = rng.choice(tokens)
        else:
            data[at:at + length] = rng.choice(tokens)
    return bytes(data)


# ---- JSON -----------------------------------------------------------------------------------------------------------


class JsonFiles(Reader):
    name, peer = "json", "Python's json"
    tokens = [t.encode() for t in ["{", "}", "[", "]", ",", ":", '"', "\\", "\\u0000", "\\ud800", "\\udc00",
                                   "\\ud83d\\ude00", "1e308", "1e309", "-0", "0.1", "01", "1.", ".5", "-", "+1", "1E+2", "null",
                                   "true", "false", "NaN", "Infinity", "9007199254740993", "123456789012345678901234567890", "4.9e-324",
                                   "2.2250738585072011e-308", "\t", "\n", " ", "/**/", "é", "\U0001F600", "[[[[[[[["]]
    tokens += [b"\xef\xbb\xbf", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\0"]

    def __init__(self, readers):
        self.ours_reads = readers.json
        self.seeds = seeds("json") + seeds("coco") + seeds("results")

    def value(self, rng, depth):
        kind = rng.randrange(7 if depth < 5 else 5)
        if kind == 0:
            return rng.choice([None, True, False])
        if kind == 1:
            return rng.randrange(-10 ** rng.randrange(1, 30), 10 ** rng.randrange(1, 30))
        if kind == 2:
            return struct.unpack("<d", rng.randbytes(8))[0]
        if kind == 3:
            return round(rng.uniform(-1000, 1000), rng.randrange(9))
        if kind == 4:
            code = lambda: rng.choice([rng.randrange(1, 128), rng.randrange(1, 0xd800), rng.randrange(0xe000, 0x110000)])
            return "".join(chr(code()) for _ in range(rng.randrange(6)))
        if kind == 5:
            return [self.value(rng, depth + 1) for _ in range(rng.randrange(5))]
        return {str(self.value(rng, 9)): self.value(rng, depth + 1) for _ in range(rng.randrange(4))}

    def make(self, rng):
        if rng.random() < 0.5:
            data = rng.choice(self.seeds)
        else:
            value = self.value(rng, 0)
            data = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 1])).encode()
        return edited(rng, data, self.tokens, rng.choice([0, 1, 1, 1, 2, 3]))

    @staticmethod
    def constant(text):
        raise ValueError(f"the constant {text}")

    def theirs(self, data):
        try:
            return json.loads(data, parse_int=float, parse_constant=self.constant, object_pairs_hook=Pairs)
        except (ValueError, RecursionError) as e:
            return Refusal(e)

    def ours(self, data):
        return self.ours_reads(data)

    def explain(self, data):
        return None if json.detect_encoding(data).startswith("utf-8") else "UTF-16 or UTF-32"

    def same(self, ours, theirs):
        if isinstance(theirs, str):  # an escaped lone surrogate, which UTF-8 cannot hold, is U+FFFD by us
            return ours == "".join("\ufffd" if 0xd800 <= ord(c) < 0xe000 else c for c in theirs).encode()
        if isinstance(theirs, Pairs):
            return isinstance(ours, Pairs) and len(ours) == len(theirs) and all(
                self.same(a[0], b[0]) and self.same(a[1], b[1]) for a, b in zip(ours, theirs))
        if isinstance(theirs, list):
            return type(ours) is list and len(ours) == len(theirs) and all(map(self.same, ours, theirs))
        return type(ours) is type(theirs) and repr(ours) == repr(theirs)


# ---- masks ----------------------------------------------------------------------------------------------------------


class Masks(Reader):
    """An input is a line of JSON: the form, h, w, and the string, the runs or the polygon."""
    name, peer = "rle", "pycocotools"

    def __init__(self, readers):
        self.readers = readers

    def valid_runs(self, rng, h, w):
        cuts = sorted(rng.randrange(h * w + 1) for _ in range(rng.randrange(12)))
        return [b - a for a, b in zip([0] + cuts, cuts + [h * w])]

    def make(self, rng):
        h, w = rng.choice([1, 2, 7, 40, 200]), rng.choice([1, 3, 8, 50, 300])
        form = rng.choice(["string", "counts", "polygon"])
        if form == "polygon":
            near = rng.random() < 0.9
            scale, places = (1.3, rng.randrange(4)) if near else (20, 2)
            values = [round(rng.uniform(-0.3, scale) * (w, h)[i % 2], places) for i in range(rng.randrange(6, 30))]
            if near and rng.random() < 0.3:
                values = [float(round(v)) + rng.choice([0, 0.5]) for v in values]
        else:
            runs = self.valid_runs(rng, h, w)
            if form == "string":
                text = mask_utils.frPyObjects({"size": [h, w], "counts": runs}, h, w)["counts"]
                tokens = [b"0", b"O", b"P", b"o", b"1", b"^", b"oooooo1", b"PPPPPPPPP1", b" ", b"\x7f", b"`", b"/", b"\xb0"]
                values = edited(rng, text, tokens, rng.choice([0, 0, 1, 1, 2])).decode("latin1")
            else:
                values = list(runs)
                for _ in range(rng.choice([0, 0, 1, 2])):
                    at = rng.randrange(len(values))
                    value = rng.choice([values[at] + rng.randrange(-3, 4), 0, 2 ** 32 - 1, h * w])
                    values[at] = min(max(0, value), 2 ** 32 - 1)
        return json.dumps([form, h, w, values]).encode()

    @staticmethod
    def pixels(runs, h, w):
        return np.repeat(np.arange(len(runs)) % 2, runs).astype(np.uint8).reshape(w, h).T

    def ours(self, data):
        form, h, w, values = json.loads(data)
        if form == "string":
            runs = self.readers.mask_from_string(values.encode("latin1"), h, w)
        elif form == "counts":
            runs = self.readers.mask_from_counts(values, h, w)
        else:
            return self.readers.mask_from_polygon(values, h, w)
        return runs if isinstance(runs, Refusal) else self.pixels(runs, h, w)

    def theirs(self, data):
        form, h, w, values = json.loads(data)
        try:
            if form == "string":
                text = values.encode("latin1")
                read = text.split(b"\0")[0]
                if read and (read[-1] - 48) & 32:  # pycocotools would read and write past the end
                    return Refusal("the last character says that one follows")
                return mask_utils.decode({"size": [h, w], "counts": text})
            if form == "counts":
                if max(values) >= 1 << 29:  # pycocotools reserves six characters a run, and would write more
                    return Refusal("a run of 2^29 pixels or more")
                return mask_utils.decode(mask_utils.frPyObjects({"size": [h, w], "counts": values}, h, w))
            string = mask_utils.frPyObjects([values], h, w)[0]["counts"]
            return self.readers.mask_from_string(string, h, w)
        except Exception as e:
            return Refusal(e)

    def same(self, ours, theirs):
        return ours == theirs if isinstance(ours, tuple) else np.array_equal(ours, theirs)


# ---- PNG ------------------------------------------------------------------------------------------------------------

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def chunks_of(data):
    """[name, data] of a valid file."""
    at, out = 8, []
    while at + 12 <= len(data):
        length, = struct.unpack(">I", data[at:at + 4])
        out.append([data[at + 4:at + 8], data[at + 8:at + 8 + length]])
        at += 12 + length
    return out


class Pngs(Reader):
    name, peer = "png", "Pillow"
    tokens = [b"\0", b"\xff", b"\x01", b"\x10", b"\x80"]

    def __init__(self, readers):
        self.readers = readers
        self.seeds = [s for s in seeds("image") if s.startswith(SIGNATURE)]
        warnings.simplefilter("ignore")  # of Pillow, on odd files

    def valid(self, rng):
        color = rng.choice(list(CHANNELS))
        depth = rng.choice({0: [1, 2, 4, 8, 16], 3: [1, 2, 4, 8]}.get(color, [8, 16]))
        w, h, interlaced = rng.randrange(1, 20), rng.randrange(1, 20), rng.randrange(2)
        raw, colors = b"", 1 << depth if color == 3 else 0
        for x, y, dx, dy in PASSES if interlaced else [(0, 0, 1, 1)]:
            columns = (w - x + dx - 1) // dx
            size = (columns * CHANNELS[color] * depth + 7) // 8
            for _ in range((h - y + dy - 1) // dy if columns > 0 else 0):
                raw += bytes([rng.randrange(5)]) + rng.randbytes(size)
        chunks = [[b"IHDR", struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, interlaced)]]
        if rng.random() < 0.2:
            chunks.append([b"gAMA", struct.pack(">I", 45455)])
        if colors:
            chunks.append([b"PLTE", rng.randbytes(3 * rng.choice([colors, rng.randrange(1, colors + 1)]))])
        if color in (0, 2, 3) and rng.random() < 0.3:
            chunks.append([b"tRNS", {0: b"\0\1", 2: b"\0\1\0\2\0\3"}.get(color, rng.randbytes(rng.randrange(colors + 1)))])
        data = zlib.compress(raw, rng.choice([0, 1, 9]))
        cut = rng.randrange(len(data) + 1) if rng.random() < 0.3 else 0
        chunks += [[b"IDAT", part] for part in ([data[:cut], data[cut:]] if cut else [data])]
        if rng.random() < 0.2:
            chunks.append([b"tEXt", b"Comment\0x"])
        return chunks + [[b"IEND", b""]]

    def change(self, rng, chunks):
        at = rng.randrange(len(chunks))
        kind = rng.randrange(8)
        if kind == 0:
            del chunks[at]
        elif kind == 1:
            chunks.insert(at, list(rng.choice(chunks)))
        elif kind == 2:
            other = rng.randrange(len(chunks))
            chunks[at], chunks[other] = chunks[other], chunks[at]
        elif kind == 3:
            chunks[at][0] = edited(rng, chunks[at][0], [b"IDAT", b"tRNS", b"PLTE"], 1)[:4].ljust(4, b"a")
        elif kind == 4 and any(c[0] == b"IDAT" for c in chunks):  # the pixels, before compression
            first = [c[0] for c in chunks].index(b"IDAT")
            try:
                raw = zlib.decompress(b"".join(c[1] for c in chunks if c[0] == b"IDAT"))
            except zlib.error:
                return
            chunks[:] = [c for c in chunks if c[0] != b"IDAT"]
            chunks.insert(min(first, len(chunks)), [b"IDAT", zlib.compress(edited(rng, raw, self.tokens, 1))])
        else:
            chunks[at][1] = edited(rng, chunks[at][1], self.tokens, 1)

    def make(self, rng):
        while True:
            chunks = self.valid(rng) if rng.random() < 0.7 else chunks_of(rng.choice(self.seeds))
            for _ in range(rng.choice([0, 1, 1, 1, 2])):
                if chunks:
                    self.change(rng, chunks)
            data = SIGNATURE + b"".join(chunk(*c) for c in chunks)
            if rng.random() < 0.15:  # a wrong checksum, a wrong length, a cut
                data = edited(rng, data, self.tokens, 1) if rng.random() < 0.7 else data[:rng.randrange(len(data))]
            side = struct.unpack(">II", data[16:24].ljust(8, b"\0"))
            if side[0] * side[1] < 1 << 16:  # larger ones take longer, nothing else
                return data

    def ours(self, data):
        return self.readers.image(data)

    def theirs(self, data):
        try:
            with Image.open(io.BytesIO(data), formats=["PNG"]) as im:
                im.load()
                if im.mode.startswith("I;16") or im.mode == "I":  # 16-bit grey, which convert() clips
                    grey = (np.asarray(im).astype(np.int64) >> 8).astype(np.uint8)
                    return np.repeat(grey[..., None], 3, 2)
                return np.asarray(im.convert("RGB"))
        except Exception as e:
            return Refusal(f"{type(e).__name__}: {e}")

    def same(self, ours, theirs):
        return np.array_equal(ours, theirs)


# ---- safetensors ----------------------------------------------------------------------------------------------------


class Safetensors(Reader):
    name, peer = "safetensors", "safetensors"
    SIZES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2, "I8": 1,
             "U8": 1, "BOOL": 1, "F8_E4M3": 1, "C64": 8}
    tokens = [t.encode() for t in ["{", "}", "[", "]", ",", ":", '"', "\\", "\\u0000", "\\u0041", "\\ud800",
                                   "\\ud83d\\ude00", "0", "00", "-1", "1.0", "1e1", "18446744073709551615", "9223372036854775808", "null",
                                   '"dtype":"F32",', '"shape":[],', '"data_offsets":[0,0],', '"__metadata__":{"a":"b"},',
                                   '"extra":1,', "F8_E4M3", "F4", " ", "\t", "é"]]
    tokens += [b"\xff", b"\xed\xa0\x80", b"\0", b"\x7f"]

    def __init__(self, readers):
        self.readers = readers

    def header(self, rng):
        entries, at = [], 0
        for i in range(rng.randrange(5)):
            kind = rng.choice(list(self.SIZES)[:13]) if rng.random() < 0.95 else rng.choice(list(self.SIZES))
            shape = [rng.choice([0, 1, 1, 2, 3]) for _ in range(rng.randrange(5) if rng.random() < 0.95 else 9)]
            size = int(np.prod(shape, dtype=np.int64)) * self.SIZES[kind]
            members = [("dtype", kind), ("shape", shape), ("data_offsets", [at, at + size])]
            rng.shuffle(members)
            odd = rng.random() < 0.3
            entries.append((rng.choice([f"w{i}", f"w.{i}", "é", "a\"b", "same", ""]) if odd else f"t{i}", members))
            at += size
        rng.shuffle(entries)
        if rng.random() < 0.3:
            entries.insert(rng.randrange(len(entries) + 1),
                           ("__metadata__", [("k", rng.choice(["v", "", "é"])), (rng.choice(["k", "l"]), "2")]))
        return entries, at

    def change(self, rng, entries):
        """One member of one entry."""
        if not entries:
            return
        name, members = rng.choice(entries)
        i = rng.randrange(len(members))
        key, value = members[i]
        if isinstance(value, list) and value and rng.random() < 0.7:
            value = list(value)
            at = rng.randrange(len(value))
            value[at] = max(0, rng.choice([value[at] + 1, value[at] - 1, 0, 1 << 32, 1 << 62]))
            members[i] = (key, value)
        else:
            rng.choice([lambda: members.pop(i), lambda: members.append(members[i]),
                        lambda: members.insert(i, (key, rng.choice(["F32", "U8", "f32", [], None, 1, [1, 2, 3], "é"])))])()

    def make(self, rng):
        entries, size = self.header(rng)
        if rng.random() < 0.4:
            self.change(rng, entries)
        spaced = rng.random() < 0.2
        dump = lambda v: json.dumps(v, ensure_ascii=rng.random() < 0.5, separators=None if spaced else (",", ":"))
        object_of = lambda pairs: "{" + ",".join(dump(k) + ":" + text for k, text in pairs) + "}"
        text = object_of((name, object_of((k, dump(v)) for k, v in members)) for name, members in entries)
        head = text.encode() + b" " * rng.choice([0, 0, 1, 7])
        if rng.random() < 0.4:
            head = edited(rng, head, self.tokens, rng.choice([1, 1, 2]))
        body = rng.randbytes(size)
        if rng.random() < 0.1:
            body = edited(rng, body, [b"\0", b"abcd"], 1)
        length = len(head) + (rng.choice([-1, 1, 8]) if rng.random() < 0.05 else 0)
        return struct.pack("<Q", max(length, 0)) + head + body

    def ours(self, data):
        return self.readers.weights(data)

    def theirs(self, data):
        try:
            tensors = safetensors.deserialize(data)
        except Exception as e:
            return Refusal(e)
        length, = struct.unpack("<Q", data[:8])
        metadata = json.loads(data[8:8 + length]).get("__metadata__") or {}
        return ({name.encode(): (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in tensors},
                {key.encode(): value.encode() for key, value in metadata.items()})

    def same(self, ours, theirs):
        return ours == theirs

    @staticmethod
    def explain(data):
        """Of two tensors of one name safetensors checks only the last, so that our message may be of the first."""
        twice = []
        note = lambda pairs: twice.extend(k for k, n in collections.Counter(k for k, _ in pairs).items() if n > 1)
        try:
            length, = struct.unpack("<Q", data[:8])
            json.loads(data[8:8 + length], object_pairs_hook=note)
        except (ValueError, struct.error):
            return None
        return "twice" if twice else None
