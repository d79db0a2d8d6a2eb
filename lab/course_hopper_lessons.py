#!/usr/bin/env python3
"""The diagrams of docs/course/conv/, chapters 08 to 14: the tensor cores' own instructions, and Hopper."""
import re

from course_drawing import Drawing, Refused

LESSONS = "cuda/conv/lessons/"
BF16 = 2         # bytes
BANKS, BANK = 32, 4


# ---- 08: fragments --------------------------------------------------------------------------------------------------

def instruction(sources, path, pattern):
    """The sizes that an instruction's name says: m16n8k16."""
    found = re.search(pattern, sources.text(path))
    if not found:
        raise Refused(f"{path}: no instruction {pattern}; lab/course_hopper_lessons.py draws it")
    return [int(n) for n in found.groups()]


def mma_sync(sources):
    m, n, k = instruction(sources, "cuda/conv/ptx.cuh", r"m(\d+)n(\d+)k(\d+)\.row\.col\.f32\.bf16")
    w, h, styles = 25, 17, ("a", "b", "c", "none")
    d = Drawing(480, 536)

    def cell(x, y, lane, register, wide=1):
        d.rect(x, y, w * wide - 2, h - 2, styles[register], 1)
        d.text(x + (w * wide - 2) / 2, y + 12, str(lane), "middle small")

    left, right, top, below = 28, 28 + w * (k // 2) + 22, 62, 62 + h * (k // 2) + 38
    d.text(right, 26, f"B [{k}, {n}]: pairs along K", "title")
    d.text(left, below - 16, f"A [{m}, {k}]: pairs along K", "title")
    d.text(right, below - 16, f"D [{m}, {n}]", "title")
    for column in range(n):
        d.text(right + w * column + 11, top - 8, str(column), "middle small faint")
    for pair in range(k // 2):
        d.text(right - 6, top + h * pair + 12, f"{2 * pair}", "end small faint")
        for column in range(n):
            cell(right + w * column, top + h * pair, column * 4 + pair % 4, pair // 4)
    for row in range(m):
        d.text(left - 6, below + h * row + 12, str(row), "end small faint")
        for pair in range(k // 2):
            cell(left + w * pair, below + h * row, row % 8 * 4 + pair % 4, pair // 4 * 2 + row // 8)
        for column in range(n):
            cell(right + w * column, below + h * row, row % 8 * 4 + column // 2, row // 8 * 2 + column % 2)
    for i, style in enumerate(styles):
        d.rect(left, top + 24 * i, 20, 15, style, 1)
        d.text(left + 28, top + 24 * i + 12, f"register {i}")
    d.text(left, top + 118, "a number is a lane", "small faint")
    d.text(left, below + h * m + 20, "A register of A or B has two neighbours along K, one of D one element.", "small faint")
    return d


# ---- 09: swizzle ----------------------------------------------------------------------------------------------------

def swizzle(sources):
    chunks = sources.constant(LESSONS + "09_swizzle.cu", "TILE_K") * BF16 // 16
    rows, w, h, read = 8, 24, 21, 2
    d = Drawing(480, 306)
    for side, (x, title) in enumerate(((30, "as it comes"), (272, "chunk ^ row % 8"))):
        d.text(x, 24, title, "title")
        for place in range(chunks):
            d.text(x + w * place + 11, 44, str(place * 16 // BANK), "middle small faint")
        for row in range(rows):
            if not side:
                d.text(x - 6, 52 + h * row + 14, str(row), "end small faint")
            for place in range(chunks):
                chunk = place ^ row % 8 if side else place
                d.rect(x + w * place, 52 + h * row, w - 2, h - 2, "b" if chunk == read else "none", 1)
                d.text(x + w * place + 11, 52 + h * row + 14, str(chunk), "middle small")
    below = 52 + h * rows + 18
    d.text(30, below, f"chunk {read}: eight times banks {read * 4} to {read * 4 + 3},", "small")
    d.text(30, below + 16, "one after the other", "small")
    d.text(272, below, f"chunk {read}: all {BANKS} banks, at once", "small")
    d.text(30, below + 42, f"Rows of {chunks * 16} bytes; above a place its first bank, in it the number of its chunk,",
           "small faint")
    d.text(30, below + 57, "16 bytes. Orange: what one phase of ldmatrix reads, a chunk of eight rows.", "small faint")
    return d


# ---- 10: wgmma ------------------------------------------------------------------------------------------------------

def wgmma(sources):
    tile_m, tile_n, tile_k = (sources.constant(LESSONS + "10_wgmma.cu", c) for c in ("TILE_M", "TILE_N", "TILE_K"))
    atom, row = sources.constant("cuda/conv/hopper.cuh", "SWIZZLE_ATOM"), sources.constant("cuda/conv/hopper.cuh",
                                                                                           "SWIZZLE_ROW")
    d = Drawing(480, 424)
    d.text(20, 24, f"A in shared memory: {tile_m} rows of {row} bytes", "title")
    x, y, w, h = 84, 58, 40, 15
    for i in range(4):
        for r in range(2 if i < 3 else 1):
            for k in range(tile_k // 16):
                style = "b" if k == 1 else "a"
                d.rect(x + w * k, y + (2 * h + 8) * i + h * r, w - 1, h - 1, style, 0)
    d.text(x - 8, y + 12, "rows 0 …", "end small")
    d.text(x - 8, y + 2 * h + 20, "rows 8 …", "end small")
    d.text(x - 8, y + 4 * h + 28, "rows 16 …", "end small")
    for k in range(tile_k // 16):
        d.text(x + w * k + 19, y - 6, f"k {16 * k}", "middle small faint")
    right = x + w * (tile_k // 16) + 10
    d.path([(right, y), (right + 10, y), (right + 10, y + 2 * h + 8), (right, y + 2 * h + 8)])
    d.text(right + 16, y + h + 8, f"{atom} bytes: stride", "small")
    d.text(right + 16, y + 3 * h + 20, "orange: the operand of one", "small")
    d.text(right + 16, y + 4 * h + 20, f"wgmma, 16 of {tile_k} of K;", "small")
    d.text(right + 16, y + 5 * h + 20, f"it starts {16 * BF16} bytes on", "small")
    y = 226
    d.text(20, y, "its descriptor, 64 bits", "title")
    fields = [(62, 63, "swizzle", "b"), (32, 45, "stride / 16", "c"), (16, 29, "leading / 16", "none"),
              (0, 13, "start / 16", "a")]
    d.rect(20, y + 12, 440, 30, "none", 0)
    for first, last, name, style in fields:
        left, wide = 20 + (63 - last) * 6.875, (last - first + 1) * 6.875
        d.rect(round(left, 1), y + 12, round(wide, 1), 30, style, 0)
        d.text(round(left + wide / 2, 1) if wide > 20 else 20, y + 31 if wide > 20 else y + 72, name,
               "middle small" if wide > 20 else "small")
        d.text(round(left, 1), y + 56, str(last), "small faint")
        if wide > 20:
            d.text(round(left + wide, 1), y + 56, str(first), "end small faint")
    y = 328
    d.text(20, y, f"D of one wgmma, 64 × {tile_n}: registers of four warps", "title")
    for warp in range(4):
        d.rect(20, y + 12 + 18 * warp, 200, 16, ("a", "b", "c", "none")[warp], 0)
        d.text(120, y + 24 + 18 * warp, f"warp {warp}: rows {16 * warp} … {16 * warp + 15}", "middle small")
    d.text(232, y + 26, "a warp's rows as in mma.sync:", "small")
    d.text(232, y + 42, f"a lane has {tile_n // 2} sums of two rows,", "small")
    d.text(232, y + 58, "pairs of every eight columns", "small")
    return d


# ---- 11: TMA --------------------------------------------------------------------------------------------------------

def tma(sources):
    lesson = LESSONS + "11_tma.cu"
    tile_m, tile_n, tile_k = (sources.constant(lesson, c) for c in ("TILE_M", "TILE_N", "TILE_K"))
    width, height, pad, first, pixels, s = 6, 4, 1, 9, 9, 24
    d = Drawing(480, 366)
    for left, tap_y, tap_x in ((24, 0, 0), (260, 1, 2)):
        d.text(left, 26, f"tap ({tap_y}, {tap_x})" + (": the box itself" if not tap_y else ": the box, shifted"), "title")
        loaded = {}
        for i in range(first, first + pixels):
            loaded[i // width - pad + tap_y, i % width - pad + tap_x] = i - first
        for y in range(-pad, height + pad):
            for x in range(-pad, width + pad):
                inside = 0 <= y < height and 0 <= x < width
                at = left + s * (x + pad), 44 + s * (y + pad)
                if inside or (y, x) in loaded:
                    d.rect(*at, s - 2, s - 2, "none" if (y, x) not in loaded else "a" if inside else "c", 1)
                if (y, x) in loaded:
                    d.text(at[0] + 11, at[1] + 15, str(loaded[y, x]), "middle small")
        d.rect(left + s * tap_x - 3, 44 + s * tap_y - 3, s * width + 4, s * height + 4, "warm")
    y = 44 + s * (height + 2 * pad) + 18
    notes = [f"An image of {height} × {width} pixels, 3 × 3 taps, padding 1. Orange: from the lower",
             "corner to the upper, where first taps are. A load goes through it row by",
             f"row: here for rows {first} to {first + pixels - 1} of A. Green: outside, arrives as zeros."]
    for i, note in enumerate(notes):
        d.text(24, y + 16 * i, note, "small")
    y += 74
    d.text(24, y, "a stage in shared memory, and what its full barrier expects", "title")
    a, b = tile_m * tile_k * BF16, tile_n * tile_k * BF16
    wide = 432 / (a + b)
    d.rect(24, y + 12, round(a * wide - 2, 1), 34, "a")
    d.rect(round(24 + a * wide, 1), y + 12, round(b * wide, 1), 34, "b")
    d.text(round(24 + a * wide / 2, 1), y + 34, f"{tile_m} pixels × {tile_k} channels", "middle small")
    d.text(round(24 + (a + b / 2) * wide, 1), y + 34, f"{tile_n} filters × {tile_k}", "middle small")
    d.text(24, y + 66, f"{a} + {b} = {a + b} bytes, zeros included", "small")
    return d


# ---- 12: producers and consumers ------------------------------------------------------------------------------------

def ring(stages, tiles, load, multiply, issue=0.25):
    """When tiles of K are asked for, have arrived, and begin and end to be multiplied, by waits at the barriers."""
    times, asked, busy = [], -issue, 0.0
    for i in range(tiles):
        asked = max(asked + issue, times[i - stages][3] if i >= stages else 0.0)
        arrived = asked + load
        begin = max(arrived, busy)
        busy = begin + multiply
        times.append((asked, arrived, begin, busy))
    return times


def warp_specialised(sources):
    stages = sources.constant(LESSONS + "12_warp_specialised.cu", "STAGES")
    times = ring(stages, 3 * stages, stages - 1.0, 1.0)
    x0, scale, top, pitch = 74, 388 / times[-1][3], 62, 46
    d = Drawing(480, top + pitch * stages + 130)
    d.text(20, 24, f"{stages} stages, of which a load takes {stages - 1} times as long as a product", "title")

    def bar(y, begin, end, h, style, words):
        d.rect(round(x0 + begin * scale, 1), y, round((end - begin) * scale - 1, 1), h, style, 1)
        d.text(round(x0 + (begin + end) / 2 * scale, 1), y + h / 2 + 4, words, "middle small")

    for s in range(stages):
        y = top + pitch * s
        d.text(x0 - 8, y + 15, f"stage {s}", "end small")
        for i in range(s, len(times), stages):
            asked, arrived, begin, end = times[i]
            bar(y, asked, arrived, 22, "a", f"load {i}")
            if begin > arrived:
                bar(y, arrived, begin, 22, "none", "")
            bar(y, begin, end, 22, "c", str(i))
            d.text(round(x0 + arrived * scale, 1), y + 35, f"f{i // stages % 2}", "middle small")
            d.text(round(x0 + end * scale, 1), y + 35, f"e{i // stages % 2}", "middle small")
    y = top + pitch * stages + 4
    d.text(x0 - 8, y + 15, "consumers", "end small")
    for i, (_, _, begin, end) in enumerate(times):
        bar(y, begin, end, 22, "c", str(i))
    d.text(x0, top - 12, "numbers: tiles of K", "small faint")
    notes = ["f0, f1: a phase of the full barrier ends, of parity 0 or 1; the bytes have arrived.",
             "e0, e1: one of the empty barrier ends; the consumers have read the stage.",
             "The producer waits for e with the parity before its own: at first for parity 1,",
             "which counts as over. So the first round of loads waits for nobody. Grey: full,",
             "not yet begun. Durations are assumed; only the order is the kernel's."]
    for i, note in enumerate(notes):
        d.text(20, y + 50 + 16 * i, note, "small")
    return d


# ---- 13: persistent blocks ------------------------------------------------------------------------------------------

def persistent(_):
    rows, columns, band, blocks, w, h = 4, 6, 3, 7, 36, 24
    styles, tiles = ("a", "b", "c", "none"), rows * columns
    d = Drawing(480, 420)
    d.text(20, 24, f"{tiles} tiles of the result, {blocks} blocks", "title")
    for row in range(rows):
        for column in range(columns):
            number = column // band * band * rows + row * band + column % band
            d.rect(20 + w * column, 38 + h * row, w - 2, h - 2, styles[number // blocks], 1)
            d.text(20 + w * column + 17, 38 + h * row + 15, str(number), "middle small")
    for i in range(-(-tiles // blocks)):
        d.rect(258, 38 + 24 * i, 20, 15, styles[i], 1)
        there = min(blocks, tiles - i * blocks)
        d.text(286, 50 + 24 * i, f"wave {i}: {there} blocks" + (f", {blocks - there} idle" if there < blocks else ""),
               "small")
    d.text(20, 38 + h * rows + 16, f"bands of {band} columns: blocks that run at once share rows and columns", "small")

    def bar(y, begin, end, style, words):
        d.rect(20 + 44 * begin, y, 44 * (end - begin) - 1, 22, style, 1)
        d.text(20 + 22 * (begin + end), y + 15, words, "middle small")

    y = 186
    d.text(20, y, "a block for each tile", "title")
    for i in range(2):
        begin = 5 * i
        bar(y + 12, begin, begin + 0.7, "none", "start")
        bar(y + 12, begin + 0.7, begin + 3.7, "a", "loads")
        bar(y + 36, begin + 1.5, begin + 4, "c", "products")
        bar(y + 36, begin + 4, begin + 5, "b", "stores")
    d.text(20, y + 78, "Between one tile's last product and the next one's first lie stores,", "small")
    d.text(20, y + 94, "a block's start and the first load.", "small")
    y = 316
    d.text(20, y, "a persistent block", "title")
    bar(y + 12, 0, 0.7, "none", "start")
    bar(y + 12, 0.7, 3.7, "a", "loads")
    bar(y + 12, 3.7, 7, "a", "the next tile's loads")
    bar(y + 36, 1.5, 4, "c", "products")
    bar(y + 36, 4, 5, "b", "stores")
    bar(y + 36, 5, 7.5, "c", "products")
    bar(y + 36, 7.5, 8.5, "b", "stores")
    d.text(20, y + 78, "The producer is ahead: stages are full when the stores are done. (Lengths are assumed.)", "small")
    return d


# ---- 14: clusters ---------------------------------------------------------------------------------------------------

def cluster(sources):
    lesson = LESSONS + "14_cluster.cu"
    tile_m, tile_n, tile_k, blocks = (sources.constant(lesson, c) for c in ("TILE_M", "TILE_N", "TILE_K", "CLUSTER"))
    a, b = tile_m * tile_k * BF16 // 1024, tile_n * tile_k * BF16 // 1024
    d = Drawing(480, 368)
    d.rect(20, 20, 440, 40, "none")
    d.text(240, 45, "L2", "middle title")
    styles, arrows, wide = ("b", "c"), ("warm", "line"), 200
    place = [round(72 + 118 / blocks * part, 1) for part in range(blocks)]  # of a part of B in its block
    for block in range(blocks):
        x = 20 + (wide + 40) * block
        d.rect(x, 124, wide, 136, "box")
        d.rect(x + 10, 134, 54, 92, "a")
        for i, words in enumerate(("A", f"{tile_m} rows", f"{a} KB")):
            d.text(x + 37, 168 + 16 * i, words, "middle small")
        for part in range(blocks):
            d.rect(x + place[part], 134, round(118 / blocks - 3, 1), 92, styles[part % 2])
            middle = round(x + place[part] + 59 / blocks - 1.5, 1)
            for i, words in enumerate(("B, from", f"row {tile_n // blocks * part}", f"{b // blocks} KB")):
                d.text(middle, 168 + 16 * i, words, "middle small")
        d.text(x + 10, 248, f"block {block}", "title")
        d.arrow(x + 37, 60, x + 37, 132)
    for part in range(blocks):
        x, y = [round(20 + (wide + 40) * b + place[part] + 59 / blocks - 1.5, 1) for b in range(blocks)], 80 + 18 * part
        d.path([(x[part], 60), (x[part], y)], arrows[part % 2])
        d.path([(x[0], y), (x[-1], y)], arrows[part % 2])
        for to in x:
            d.arrow(to, y, to, 132, arrows[part % 2])
    notes = ["Block 0 asks for the first half of B, block 1 for the second; TMA writes each",
             f"into both. A stage of a block is {a} + {b} = {a + b} KB, of which L2 gives",
             f"{a} + {b // blocks} KB a block: {a + b // blocks} instead of {a + b}.",
             "Each full barrier counts what arrives in its own block, each empty barrier",
             "the consumers of both: who loads writes into both blocks' stages."]
    for i, note in enumerate(notes):
        d.text(20, 286 + 16 * i, note, "small")
    return d


DIAGRAMS = {"conv/08_mma_sync": mma_sync, "conv/09_swizzle": swizzle, "conv/10_wgmma": wgmma, "conv/11_tma": tma,
            "conv/12_warp_specialised": warp_specialised, "conv/13_persistent": persistent,
            "conv/14_cluster": cluster}
