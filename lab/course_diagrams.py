#!/usr/bin/env python3
"""Draws the diagrams of docs/course/, an SVG each; --check says which differ from what it would draw.

    python3 lab/course_diagrams.py [--check] [--root DIR]

Sizes are the constants of the code: a diagram differs as soon as one of them does. Colours follow the reader's scheme,
light or dark. Exit status: 0; 1 with --check where a diagram differs; 2 where a constant is not found.
"""
import argparse
import json
import os
import sys

import course_hopper_lessons
import course_lessons
import scaling_model
from course_drawing import Drawing, Refused, Sources


# ---- reductions -----------------------------------------------------------------------------------------------------

def reductions(sources):
    norm = "cuda/norm_passes.cuh"
    threads, tile = sources.constant(norm, "THREADS"), sources.constant(norm, "TILE")
    channels = 64
    vectors = min(channels // 8, tile)
    lanes, pixels = threads // vectors, 32 // vectors
    d = Drawing(760, 300)
    d.text(20, 26, "x [pixels, channels]", "title")
    for i in range(6):
        d.rect(20, 40 + 36 * i, 110, 32, "a" if i == 2 else "none")
        d.text(75, 61 + 36 * i, f"chunk {i}" if i < 5 else "…", "middle small")
    d.text(20, 274, "a threadblock a chunk", "small faint")
    d.arrow(134, 128, 176, 128)
    d.text(180, 26, f"one of {threads // 32} warps, {channels} channels", "title")
    d.text(180, 44, f"{vectors} vectors of 8 channels × {pixels} pixels; {lanes} pixels a block", "small faint")
    for p in range(pixels):
        for v in range(vectors):
            d.rect(180 + 20 * v, 58 + 30 * p, 17, 20, "a")
        d.text(180 + 20 * vectors + 8, 72 + 30 * p, f"pixel {p}", "small faint")
    x, offset, reach = 180 + 20 * vectors + 64, 16, pixels // 2
    while reach >= 1:
        for p in range(0, pixels, 2 * reach):
            for q in range(reach):
                top, bottom = 68 + 30 * (p + q), 68 + 30 * (p + q + reach)
                d.path([(x, top), (x + 12 + 8 * q, (top + bottom) / 2), (x, bottom)], "strong")
        d.text(x - 2, 58 + 30 * pixels + 10, f"xor {offset}", "small")
        x, offset, reach = x + 46, offset // 2, reach // 2
    d.text(180, 58 + 30 * pixels + 10, "butterflies merge n, mean, m2", "small")
    d.arrow(300, 196, 300, 218)
    for w in range(threads // 32):
        d.rect(180 + 34 * w, 222, 30, 24, "b")
        d.text(195 + 34 * w, 238, f"w{w}", "middle small")
    d.text(180, 264, "shared memory: warps in order, in double", "small faint")
    d.arrow(458, 234, 516, 150)
    d.text(520, 26, "partial [chunk, channel]", "title")
    for i in range(6):
        d.rect(520, 40 + 36 * i, 90, 32, "b" if i == 2 else "none")
        d.text(565, 61 + 36 * i, "mean, m2" if i < 5 else "…", "middle small")
    d.text(520, 274, "workspace, a few KB", "small faint")
    for i in range(6):
        d.arrow(612, 56 + 36 * i, 654, 146)
    d.rect(658, 122, 86, 48, "c")
    d.text(701, 142, "statistics", "middle small")
    d.text(701, 158, "of a group", "middle small")
    d.text(640, 214, "second kernel", "small faint")
    return d


# ---- top-k and NMS --------------------------------------------------------------------------------------------------

def nms(sources):
    tile, threads = sources.constant("cuda/nms.cu", "TILE"), sources.constant("cuda/nms.cu", "OVERLAP_THREADS")
    stages, words, tiles, side = sources.constant("cuda/nms.cu", "STAGES"), threads // tile, 6, 34
    d = Drawing(760, 306)
    d.text(20, 26, "overlap bits: box i of a row, box j across", "title")
    for i in range(tiles):
        for j in range(tiles):
            style = "none" if j < i else "b" if i == j else "a"
            d.rect(60 + side * j, 44 + side * i, side - 3, side - 3, style)
        d.text(52, 44 + side * i + 20, f"{tile * i}", "end small faint")
    d.rect(60 + side * 1 - 3, 44 + side - 3, side * words + 3, side + 3, "strong")
    d.text(20, 266, f"a word is {tile} bits; a threadblock makes {words} words", "small faint")
    d.text(20, 281, f"of {tile} rows (outlined); below the diagonal none is", "small faint")
    d.text(20, 296, "written: IoU is the same either way round", "small faint")
    d.text(330, 26, "the scan, by one threadblock a group", "title")
    steps = [("b", f"1  a warp resolves the tile on the diagonal: {tile} boxes,",
              "a lane two of them, in rounds of ballots"),
             ("c", "2  survivors: one word", "stored in order; the count ends the scan early"),
             ("a", "3  rows of survivors, OR over lanes", "a warp a word: gone[w] |= …"),
             ("none", f"4  next tile; {stages} tiles' bits are in flight (cp.async)",
              "what is gone is not asked again")]
    for i, (style, first, second) in enumerate(steps):
        d.rect(330, 44 + 58 * i, 26, 44, style)
        d.text(366, 62 + 58 * i, first)
        d.text(366, 79 + 58 * i, second, "small faint")
        if i < 3:
            d.arrow(343, 88 + 58 * i, 343, 101 + 58 * i)
    return d


# ---- RoIAlign -------------------------------------------------------------------------------------------------------

def roi_align(sources):
    warps, backward = sources.constant("cuda/roi_align.cu", "WARPS"), "cuda/roi_align_backward.cuh"
    rows, columns = sources.constant(backward, "ROWS"), sources.constant(backward, "COLUMNS")
    d = Drawing(760, 350)
    d.text(20, 26, "forward: a warp a bin", "title")
    x0, y0, step = 30, 46, 24
    for i in range(10):
        for j in range(12):
            d.dot(x0 + step * j, y0 + step * i, 2, "tip")
    left, top, bin_w, bin_h = x0 + 1.6 * step, y0 + 1.8 * step, 2.9 * step, 2.3 * step
    for i in range(3):
        for j in range(3):
            d.rect(round(left + bin_w * j, 1), round(top + bin_h * i, 1), round(bin_w, 1), round(bin_h, 1),
                   "strong", 0)
    for sy in (1, 3):
        for sx in (1, 3):
            d.dot(round(left + bin_w * sx / 4, 1), round(top + bin_h * sy / 4, 1), 4)
    sample = round(left + bin_w / 4, 1), round(top + bin_h / 4, 1)
    for gx in (2, 3):
        for gy in (2, 3):
            d.path([sample, (x0 + step * gx, y0 + step * gy)], "warm")
    d.text(20, 308, "grey: pixels, 256 channels each; orange: 2 × 2 sampling points of", "small faint")
    d.text(20, 323, f"a bin, four pixels to each; {warps} warps make a row of seven bins at", "small faint")
    d.text(20, 338, "once, and find the same pixels in L1", "small faint")
    d.text(430, 26, f"backward: a tile of {rows} × {columns} pixels gathers", "title")
    size = 26
    for i in range(rows):
        for j in range(columns):
            d.rect(522 + size * j, 50 + size * i, size - 2, size - 2, "c" if i == 3 else "none")
    for x, y, w, h in ((440, 36, 120, 110), (500, 110, 230, 90), (590, 150, 110, 130)):
        d.rect(x, y, w, h, "warm", 0)
    d.text(690, 50 + size * 3 + 16, "a warp's row", "small")
    d.text(430, 308, "orange: RoIs that reach the tile, taken in their order; sums stay in", "small faint")
    d.text(430, 323, "registers, no atomics, and the result is written once", "small faint")
    return d


# ---- masks ----------------------------------------------------------------------------------------------------------

def masks(sources):
    slices, cached = sources.constant("nn/ops.h", "RUN_SLICES"), sources.constant("cuda/mask_runs.cu", "CACHED")
    rows, columns, w, h = 12, 16, 20, 17
    inside = [[((j - 7.5) / 6.5) ** 2 + ((i - 5.5) / 4.4) ** 2 <= 1 and not (9 <= j <= 10 and 4 <= i <= 6)
               for j in range(columns)] for i in range(rows)]
    d = Drawing(760, 330)
    d.text(20, 26, "a pasted mask, walked column by column", "title")
    for i in range(rows):
        for j in range(columns):
            d.rect(30 + w * j, 44 + h * i, w - 2, h - 2, "a" if inside[i][j] else "none", 1)
    flat = [inside[i][j] for j in range(columns) for i in range(rows)]
    toggles = [k for k in range(len(flat)) if flat[k] != (flat[k - 1] if k else False)]
    for k in toggles:
        x, y = 30 + w * (k // rows), 44 + h * (k % rows)
        d.path([(x - 1, y - 1), (x + w - 1, y - 1)], "warm")
    d.text(30, 266, "orange: toggles, where a pixel differs from the one before it", "small faint")
    d.text(30, 282, f"a lane takes a column, a warp 32 of them; a mask is {slices} slices", "small faint")
    d.text(400, 26, "counted, placed, written", "title")
    place = toggles[:7]
    d.text(400, 62, "toggles", "small")
    d.text(400, 110, "runs", "small")
    for i, k in enumerate(place):
        d.rect(456 + 40 * i, 46, 36, 24, "b")
        d.text(474 + 40 * i, 62, str(k), "middle small")
        d.rect(456 + 40 * i, 94, 36, 24, "c")
        d.text(474 + 40 * i, 110, str(k - (place[i - 1] if i else 0)), "middle small")
        d.arrow(474 + 40 * i, 72, 474 + 40 * i, 92)
    notes = ["1  count: toggles of every slice, by all warps",
             "2  place: a prefix sum over slices and masks says where runs begin",
             "3  write: the walk again, each run the distance of two toggles;",
             f"    up to {cached} toggles a column pass through shared memory, so that",
             "    neighbouring lanes write neighbouring words to the host"]
    for i, note in enumerate(notes):
        d.text(400, 158 + 21 * i, note, "small")
    d.text(400, 282, f"{rows} × {columns} pixels, {len(toggles) + 1} runs", "small faint")
    d.text(30, 310, "Numbers count pixels down the columns, as COCO's run-length encoding does.", "small faint")
    return d


# ---- the step -------------------------------------------------------------------------------------------------------

def place_greedily(blocks):
    """nn/arena.c: the largest first, each at the lowest offset where nothing that lives at the same time lies."""
    placed = []
    for name, size, first, last in sorted(blocks, key=lambda b: -b[1]):
        at = 0
        for _, other, begin, end, offset in sorted(placed, key=lambda p: p[4]):
            if begin <= last and first <= end and offset < at + size:
                at = max(at, offset + other)
        placed.append((name, size, first, last, at))
    return placed


def step(_):
    # Of a residual block: x → conv1 → a → conv2 (+ x) → y → loss.
    steps = ["conv1", "conv2 + x", "loss", "d loss", "d conv2", "d conv1"]
    blocks = [("x", 4, 0, 5), ("a", 2, 0, 4), ("y", 4, 1, 3), ("d(y)", 4, 3, 5), ("d(a)", 2, 4, 5), ("d(x)", 4, 5, 5)]
    d = Drawing(760, 300)
    d.text(20, 26, "lifetimes, from what nodes touch", "title")
    x0, w = 66, 52
    for i, name in enumerate(steps):
        d.text(x0 + w * i + w / 2, 52 + (i % 2) * 14, name, "middle small")
        d.path([(x0 + w * i, 72), (x0 + w * i, 246)], "line")
    d.path([(x0 + w * 6, 72), (x0 + w * 6, 246)], "line")
    d.path([(x0 + w * 3, 34), (x0 + w * 3, 246)], "strong")
    for k, (name, size, first, last) in enumerate(blocks):
        y = 78 + 28 * k
        d.text(58, y + 15, name, "end small")
        d.rect(x0 + w * first + 2, y, w * (last - first + 1) - 4, 22, "b" if name.startswith("d(") else "a")
        d.text(x0 + w * first + 10, y + 15, f"{size} MB", "small")
    d.text(20, 266, "The residual's share of d(x) is d(y) itself: no pass adds it, d(y)", "small faint")
    d.text(20, 282, "lives until conv1's backward takes it along as its addend.", "small faint")
    d.text(430, 26, "one arena: address by step", "title")
    placed, unit, ax, base = place_greedily(blocks), 11, 450, 222
    for name, size, first, last, offset in placed:
        d.rect(ax + 46 * first + 1, base - unit * (offset + size) + 1, 46 * (last - first + 1) - 2, unit * size - 2,
               "b" if name.startswith("d(") else "a")
        d.text(ax + 46 * first + 8, base - unit * (offset + size / 2) + 4, name, "small")
    total = max(offset + size for _, size, _, _, offset in placed)
    d.path([(ax, base), (ax + 46 * 6, base)])
    whole = sum(size for _, size, _, _ in blocks)
    d.text(430, base + 18, f"{total} MB for {whole} MB of tensors, the largest placed first", "small")
    d.text(430, 266, "Addresses are the same in every step: the kernels' arguments, too,", "small faint")
    d.text(430, 282, "so the step is recorded once and replayed as one launch.", "small faint")
    return d


# ---- all-reduce -----------------------------------------------------------------------------------------------------

def overlap(sources):
    """The measured backward walk, its buckets, and reductions at the rates that engine/reduction.c assumes."""
    model = json.loads(sources.text("results/scaling-model.json"))
    profile = json.loads(sources.text("results/profile-b4-h200.txt").split("\n", 1)[0])
    rate = sources.constant("engine/reduction.c", "CTA_BYTES") * 16  # --ctas 16, the default
    latency = sources.constant("engine/reduction.c", "REDUCE_SECONDS")
    walk = profile["backward_ms"]
    d = Drawing(760, 250)
    x0, scale = 96, 600 / (walk * 1.05)
    d.text(20, 26, "a backward walk and the buckets reduced beside it, two GPUs, 25 MB a bucket", "title")
    d.text(88, 72, "backward", "end small")
    d.rect(x0, 56, round(walk * scale, 1), 26, "a")
    d.text(88, 128, "reductions", "end small")
    busy = 0.0
    for share, size in scaling_model.buckets(model["timeline"]["value"], 25):
        ready = share * walk
        d.path([(round(x0 + ready * scale, 1), 56), (round(x0 + ready * scale, 1), 112)], "line")
        begin, took = max(busy, ready), 1e3 * (latency + size / rate)
        d.rect(round(x0 + begin * scale, 1), 112, round(took * scale, 1), 26, "b")
        d.text(round(x0 + (begin + took / 2) * scale, 1), 154, f"{size / 1e6:.0f}", "middle small")
        busy = begin + took
    d.text(88, 154, "MB", "end small")
    for ms in range(int(walk) + 1):
        x = round(x0 + ms * scale, 1)
        d.path([(x, 172), (x, 177)])
        d.text(x, 192, f"{ms} ms", "middle small faint")
    d.path([(x0, 172), (round(x0 + walk * 1.05 * scale, 1), 172)])
    commit = profile["commit"]
    notes = [f"When gradients are complete: results/profile-b4-h200.txt ({commit}); how long reductions take: the rates",
             "that engine/reduction.c expects, not measured here. What sticks out behind the walk is what reducing costs."]
    for i, note in enumerate(notes):
        d.text(20, 218 + 16 * i, note, "small faint")
    return d


DIAGRAMS = {"reductions": reductions, "nms": nms, "roi_align": roi_align, "masks": masks, "step": step,
            "overlap": overlap, **course_lessons.DIAGRAMS, **course_hopper_lessons.DIAGRAMS}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where a diagram differs")
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    args = parser.parse_args()
    differ = 0
    try:
        for name, draw in DIAGRAMS.items():
            path = os.path.join("docs", "course", name + ".svg")
            drawn, full = draw(Sources(args.root)).svg(), os.path.join(args.root, path)
            if os.path.exists(full):
                with open(full, encoding="utf-8") as f:
                    if f.read() == drawn:
                        continue
            differ += 1
            if args.check:
                print(f"{path}:1: differs from the constants it shows; python3 lab/course_diagrams.py draws it again")
                continue
            with open(full, "w", encoding="utf-8") as f:
                f.write(drawn)
    except (Refused, OSError, KeyError, ValueError) as error:
        sys.exit(print(f"course_diagrams: {error}", file=sys.stderr) or 2)
    sys.exit(args.check and differ > 0)


if __name__ == "__main__":
    main()
