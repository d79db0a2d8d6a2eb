"""Compares our readers of JSON, run-length masks, PNG and safetensors with independent ones on mutated inputs.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy pillow pycocotools safetensors
    /tmp/venv/bin/python test/peers/fuzz_readers.py [--cases 100000] [--seed 0] [--only json,rle,png,safetensors]
        [--case N]     of the one reader named by --only: writes input N to standard output, and what both say
        [--out FILE]   also writes what is printed to FILE
        [--library FILE]   a shared object with our readers; without it they are compiled

The independent readers are Python's json, pycocotools, Pillow and safetensors. Inputs are the seeds of test/corpus and
generated valid files, changed in bytes or in structure; lengths and checksums are mostly made right again, so that
changes reach what lies behind them. Input N of a reader depends on --seed and N alone.

Where both accept, the values must be equal, to the last bit. Where only one accepts, the kind is printed with its number
of inputs, an example, and the judgement in JUDGED. Exits 1 when values differ, or where a kind has no judgement.
"""
import argparse
import datetime
import importlib.metadata
import random
import re
import subprocess
import sys

import PIL
import safetensors

from reader_pairs import JsonFiles, Masks, Pngs, Safetensors
from readers import Readers, Refusal

# (reader, who alone accepts, a pattern of the other's message, judgement)
JUDGED = [
    ("json", "they", "nested deeper", "deeper than our 256 levels; a stated limit"),
    ("json", "they", r"below N\.NeN", "a number beyond a double is infinity in Python; no value of a data set is infinite"),
    ("json", "they", "without NUL", "a key with a NUL, which would end the name there"),
    ("json", "they", "expected UTF-N in a string", "an encoded surrogate, which is not UTF-8 (RFC 3629)"),
    ("json", "they", "^UTF-N or UTF-N", "UTF-16 or UTF-32, which RFC 8259 does not allow; named in the message"),
    ("rle", "they", "add", "runs that do not add up to the size; pycocotools leaves the rest of the mask uninitialised"),
    ("rle", "they", "malformed run-length string", "characters that COCO's strings do not have, or a negative run"),
    ("png", "they", "IEND|within the chunk|within its header", "cut after the last pixel; Pillow does not look"),
    ("png", "they", "first chunk", "something stands before IHDR; libpng refuses it"),
    ("png", "they", "palette", "a wrong, second or late palette, or none; Pillow makes one up"),
    ("png", "they", "second IHDR", "a second header; libpng refuses it"),
    ("png", "they", "end too early|too few", "fewer pixels than announced; Pillow shows the rest black"),
    ("png", "they", "incorrect data check|checksum", "a wrong Adler-32, or CRC behind the pixels; Pillow does not look"),
    ("png", "they", "compressed pixels", "compressed data broken past the last pixel, or in rows that Pillow leaves black"),
    ("png", "they", "invalid header", "a method that PNG does not have, or a second header made it valid"),
    ("png", "they", "unknown critical", "an unknown critical chunk, which the standard says to refuse"),
    ("png", "they", "type not of letters", "a chunk whose type is not four letters; libpng refuses it"),
    ("png", "they", "lie between", "chunks between those of the pixels, which the standard forbids"),
    ("png", "they", "invalid length", "a chunk longer than 2^31 - 1 bytes; Pillow stops reading at the last pixel"),
    ("png", "we", "Truncated [a-zA-Z]+ chunk", "an ancillary chunk of a wrong length; we read none of its type"),
    ("safetensors", "they", "eight dimensions", "nine dimensions; a stated limit"),
    ("safetensors", "they", "type that is not supported", "a type that we do not compute with, such as F8_E4M3"),
    ("safetensors", "they", "unknown or duplicate member", "a member that the format does not define, which may change values"),
    ("safetensors", "they", "twice", "a name or member twice, of which safetensors keeps the last"),
    ("safetensors", "they", "NUL", "a NUL in a name, which would end it there"),
    ("safetensors", "they", "control characters", "a control character in a tensor's name, which messages show"),
]


# ---- the comparison -------------------------------------------------------------------------------------------------


def kind_of(message):
    """The message without what differs from input to input."""
    message = re.sub(r"^FILE:(\d+:\d+: |byte \d+: |\s*)", "", message.replace("\n", " "))
    message = re.sub(r"\"[^\"]*\"|'[^']*'|‘[^’]*’", "…", message)
    return re.sub(r"0x[0-9A-Fa-f]+|[0-9]+", "N", message)[:110]


def judgement(reader, who, kind):
    for name, accepts, pattern, text in JUDGED:
        if (name, accepts) == (reader.name, who) and re.search(pattern, kind):
            return text
    return None


def compare(reader, cases, seed):
    """(lines, failed)."""
    both = neither = differing = 0
    kinds, lines = {}, []
    for n in range(cases):
        data = reader.make(random.Random(f"{seed} {reader.name} {n}"))
        ours, theirs = reader.ours(data), reader.theirs(data)
        refused = isinstance(ours, Refusal), isinstance(theirs, Refusal)
        if refused == (True, True):
            neither += 1
        elif refused == (False, False):
            both += 1
            if not reader.same(ours, theirs):
                differing += 1
                lines += [f"  VALUES DIFFER: input {n}"] if differing <= 20 else []
        else:
            who, other = ("they", ours) if refused[0] else ("we", theirs)
            text = judgement(reader, who, kind_of(reader.explain(data) or other))
            key = (who, text) if text else (who, "NOT JUDGED: " + kind_of(other))
            count, first = kinds.get(key, (0, n))
            kinds[key] = count + 1, first
    lines.insert(0, f"{reader.name} against {reader.peer}: {cases} inputs; read by both {both}, by neither {neither}; "
                    f"values differ in {differing}")
    for (who, text), (count, first) in sorted(kinds.items(), key=lambda kv: (kv[0][0], -kv[1][0])):
        read_by = "only we read" if who == "we" else f"only {reader.peer} reads"
        lines.append(f"  {read_by} {count}, as input {first}: {text}")
    return lines, differing > 0 or any(text.startswith("NOT JUDGED") for _, text in kinds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="json,rle,png,safetensors")
    parser.add_argument("--case", type=int)
    parser.add_argument("--library")
    parser.add_argument("--out")
    args = parser.parse_args()
    sys.setrecursionlimit(5000)
    all_readers = {r.name: r for r in (JsonFiles, Masks, Pngs, Safetensors)}
    readers = Readers(args.library)
    chosen = [all_readers[name](readers) for name in args.only.split(",")]
    if args.case is not None:
        data = chosen[0].make(random.Random(f"{args.seed} {chosen[0].name} {args.case}"))
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        print(f"\nours: {chosen[0].ours(data)!r}\ntheirs: {chosen[0].theirs(data)!r}", file=sys.stderr)
        return 0
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    lines = [f"commit {commit}, {datetime.date.today()}, seed {args.seed}; Python {sys.version.split()[0]}, "
             f"pycocotools {importlib.metadata.version('pycocotools')}, Pillow {PIL.__version__}, safetensors {safetensors.__version__}"]
    failed = False
    for reader in chosen:
        said, bad = compare(reader, args.cases, args.seed)
        lines += said
        failed |= bad
        print("\n".join(lines[-len(said):]), flush=True)
    if args.out:
        with open(args.out, "w") as f:
            f.write("\n".join(lines) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
