#!/usr/bin/env python3
"""The diagrams of docs/course/conv/, chapters 01 to 07: up to the tensor cores through the library's fragments."""
from course_drawing import Drawing

LESSONS = "cuda/conv/lessons/"


# ---- 01: the GEMM that a convolution is -----------------------------------------------------------------------------

def naive(sources):
    threads = sources.enums(LESSONS + "01_naive.cu")["THREADS"]
    d = Drawing(760, 330)
    d.text(20, 26, "x: pixels of channels", "title")
    size, x0, y0 = 22, 24, 56
    for i in range(5):
        for j in range(6):
            tap = 1 <= i <= 3 and 2 <= j <= 4
            d.rect(x0 + size * j, y0 + size * i, size - 2, size - 2, "a" if tap else "none")
            if tap:
                d.text(x0 + size * j + 10, y0 + size * i + 14, str(3 * (i - 1) + j - 2), "middle small")
    d.text(20, 186, "blue: the nine pixels under", "small faint")
    d.text(20, 201, "the taps of one pixel of y", "small faint")
    d.arrow(160, 122, 208, 122)
    d.text(212, 26, "A, the im2col matrix, M × K", "title")
    d.text(212, 44, "a row is a pixel of y: its nine pixels of x side by side", "small faint")
    for i in range(6):
        for tap in range(9):
            d.rect(212 + 34 * tap, 56 + 22 * i, 32, 20, "a" if i == 3 else "none")
            if i == 3:
                d.text(228 + 34 * tap, 70 + 22 * i, str(tap), "middle small")
    d.text(212, 206, "k = tap · channels + channel; nobody writes A to memory", "small faint")
    d.text(574, 26, "B, filters, N × K", "title")
    for n in range(4):
        d.rect(574 + 30 * n, 56, 26, 130, "b" if n == 2 else "none")
    d.text(574, 206, "a filter: its taps in the same order", "small faint")
    d.text(20, 240, "C, M × N = y", "title")
    for i in range(3):
        for j in range(8):
            d.rect(24 + 26 * j, 252 + 20 * i, 24, 18, "c" if i == 1 else "none")
    d.rect(23 + 26 * 2, 251 + 20, 26, 20, "strong")
    d.text(250, 266, "C[row][column] = Σ A[row][k] · B[column][k]", "small")
    d.text(250, 286, "outlined: one thread, which adds up K products", "small")
    d.text(250, 306, f"green: its neighbours; {threads} of them are a block, {threads // 32} warps of 32", "small")
    return d


# ---- 02: a tile in shared memory ------------------------------------------------------------------------------------

def smem_tile(sources):
    e = sources.enums(LESSONS + "02_smem_tile.cu")
    m, n, k = e["TILE_M"], e["TILE_N"], e["TILE_K"]
    d = Drawing(760, 330)
    d.text(300, 26, f"B: {n} columns", "title")
    for step in range(4):
        d.rect(300, 36 + 24 * step, 96, 22, "b" if step == 1 else "none")
        d.text(404, 51 + 24 * step, f"{k} of K" if step == 1 else "", "small faint")
    d.text(20, 156, f"A: {m} rows", "title")
    for step in range(4):
        d.rect(20 + 64 * step, 166, 62, 96, "a" if step == 1 else "none")
    d.text(115, 280, f"{k} of K", "middle small faint")
    d.rect(300, 166, 96, 96, "c")
    d.text(348, 210, f"{m} × {n}", "middle")
    d.text(348, 226, "of C", "middle small")
    d.path([(276, 214), (296, 214)], "line")
    d.path([(348, 136), (348, 162)], "line")
    d.text(20, 306, f"A block is {m * n} threads, one an element of its tile of C. It walks along K, {k} at a time.",
           "small faint")
    d.text(500, 26, "in shared memory", "title")
    d.rect(500, 40, 96, 62, "a")
    d.text(548, 75, f"a {m} × {k}", "middle small")
    d.rect(620, 40, 62, 96, "b")
    d.text(651, 92, f"b {k} × {n}", "middle small")
    steps = ["1  each thread copies one element", "    of A and one of B", "2  __syncthreads: all are there",
             f"3  each thread: {k} products", "4  __syncthreads: all are used"]
    for i, step in enumerate(steps):
        d.text(500, 168 + 20 * i, step, "small")
    d.text(500, 282, f"From memory, for {k} products: 2 elements", "small faint")
    d.text(500, 297, f"a thread, not {2 * k}: each serves {n} threads.", "small faint")
    return d


# ---- 03: a tile in registers ----------------------------------------------------------------------------------------

def register_tile(sources):
    e = sources.enums(LESSONS + "03_register_tile.cu")
    side, m, n = e["SIDE"], e["TILE_M"], e["TILE_N"]
    rows, columns = m // side, n // side
    d = Drawing(760, 350)
    d.text(20, 26, f"a block's {m} × {n} of C, {e['THREADS']} threads", "title")
    size, x0, y0, tx, ty = 2, 40, 44, 5, 6
    d.rect(x0, y0, size * n, size * m, "none")
    for i in range(rows):
        d.rect(x0, y0 + size * (i * side + ty), size * n, size, "a", 0)
    d.rect(x0 + size * tx * columns, y0, size * columns, size * m, "b", 0)
    for i in range(rows):
        d.rect(x0 + size * tx * columns, y0 + size * (i * side + ty), size * columns, size, "c", 0)
    d.text(20, 322, f"thread (tx {tx}, ty {ty}): every {side}th row, and {columns} columns side by side", "small faint")
    d.text(20, 338, "green: what it computes, in registers from the first k to the last", "small faint")
    d.text(400, 26, "for each k, out of shared memory", "title")
    cell, left, top = 24, 470, 84
    for j in range(columns):
        d.rect(left + cell * j, 44, cell - 3, cell - 3, "b")
    for i in range(rows):
        d.rect(430, top + cell * i, cell - 3, cell - 3, "a")
        for j in range(columns):
            d.rect(left + cell * j, top + cell * i, cell - 3, cell - 3, "c")
    d.text(left + cell * columns + 6, 59, "b[k][…]", "small")
    d.text(426, top + 8 * cell + 14, "a[…][k]", "small")
    d.text(400, 322, f"{rows} + {columns} elements read, {rows * columns} products: an outer product.", "small faint")
    d.text(400, 338, f"One thread an element would have read {2 * rows * columns}.", "small faint")
    return d


# ---- 04: banks ------------------------------------------------------------------------------------------------------

def vector_loads(sources):
    e = sources.enums(LESSONS + "04_vector_loads.cu")
    vectors, pitch = e["VECTORS"], e["PITCH"]
    d = Drawing(760, 350)
    cell, x0 = 16, 120
    for part, (words, what) in enumerate(((vectors * 4, f"rows of {vectors * 16} bytes"),
                                          (pitch * 4, f"rows of {pitch * 16} bytes"))):
        top = 44 + 156 * part
        taken = [(row * words + i) % 32 for row in range(8) for i in range(4)]
        most = max(taken.count(bank) for bank in taken)
        d.text(20, top - 18, f"{what}: the first vectors of eight rows, "
               + ("in banks of their own: 1 access" if most == 1 else f"{most} to a bank: {most} accesses"), "title")
        for row in range(8):
            first = row * words % 32
            d.text(112, top + 11 + 14 * row, f"row {row}", "end small faint")
            for bank in range(32):
                inside = (bank - first) % 32 < 4
                clash = inside and taken.count(bank) > 1
                d.rect(x0 + cell * bank, top + 14 * row, cell - 2, 12, ("b" if clash else "a") if inside else "none", 1)
    for bank in range(0, 32, 4):
        d.text(x0 + cell * bank, 326, f"{bank}", "small faint")
    d.text(112, 326, "bank", "end small faint")
    d.text(20, 344, "A lane reads a vector, 16 bytes in 4 banks; eight lanes go at once, 128 bytes. Orange: words that "
           "share a bank with another row's.", "small faint")
    return d


# ---- 05: double buffering -------------------------------------------------------------------------------------------

def cp_async(_):
    d = Drawing(760, 300)
    copy, multiply, x0 = 64, 92, 110
    d.text(20, 26, "lesson 04: one buffer, everybody waits", "title")
    x = x0
    for t in range(4):
        d.rect(x, 40, copy, 24, "b")
        d.text(x + copy / 2, 56, f"copy {t}", "middle small")
        d.rect(x + copy, 40, multiply, 24, "a")
        d.text(x + copy + multiply / 2, 56, f"multiply {t}", "middle small")
        x += copy + multiply
    d.text(102, 56, "threads", "end small faint")
    d.text(20, 108, "lesson 05: two stages, a copy beside every multiplication", "title")
    d.text(102, 138, "stage 0", "end small faint")
    d.text(102, 166, "stage 1", "end small faint")
    d.text(102, 204, "threads", "end small faint")
    d.rect(x0, 122, copy, 24, "b")
    d.text(x0 + copy / 2, 138, "copy 0", "middle small")
    for t in range(4):
        x = x0 + copy + 8 + t * (multiply + 8)
        d.path([(x - 4, 116), (x - 4, 222)], "warm")
        d.rect(x, 188, multiply, 24, "a")
        d.text(x + multiply / 2, 204, f"multiply {t}", "middle small")
        own, other = (122, 150) if t % 2 == 0 else (150, 122)
        d.rect(x, own, multiply, 24, "none")
        d.text(x + multiply / 2, own + 16, f"tile {t} is read", "middle small faint")
        if t < 3:
            d.rect(x, other, copy, 24, "b")
            d.text(x + copy / 2, other + 16, f"copy {t + 1}", "middle small")
    d.text(x0, 238, "orange lines: wait for this thread's copies, then the barrier: all copies are there, and the stage",
           "small faint")
    d.text(x0, 253, "that the next copy overwrites has been read by all", "small faint")
    d.text(20, 284, "Lengths are not measured. Where copying takes longer than multiplying, threads still wait, for less.",
           "small faint")
    return d


# ---- 06: split-K ----------------------------------------------------------------------------------------------------

def split_k(sources):
    e = sources.enums(LESSONS + "06_split_k.cu")
    m, n, k = 4 * 25 * 42, 256, 9 * 256  # p5.3x3 of lab/conv_layers.h, four images of 800 × 1344
    tiles_m, tiles_n = -(-m // e["TILE_M"]), -(-n // e["TILE_N"])
    tiles = tiles_m * tiles_n
    fill = max(1, min(e["FILL_BLOCKS"] // tiles, k // e["MIN_SLICE_K"]))
    slice_k = -(-k // (fill * e["TILE_K"])) * e["TILE_K"]
    slices = -(-k // slice_k)
    d = Drawing(760, 340)
    d.text(20, 26, f"C: {tiles_m} × {tiles_n} tiles", "title")
    height = 240 / tiles_m
    for i in range(tiles_m):
        for j in range(tiles_n):
            d.rect(24 + 44 * j, round(40 + height * i, 1), 42, round(height - 1.5, 1),
                   "c" if (i, j) == (9, 1) else "none", 1)
    d.text(20, 302, f"{m} pixels × {n} channels:", "small faint")
    d.text(20, 317, f"{tiles} blocks, for 132 SMs", "small faint")
    d.arrow(122, 108, 218, 108)
    d.text(226, 26, f"the green tile's K of {k}, cut into {slices} slices", "title")
    for s in range(slices):
        width = 68 * (min(k, (s + 1) * slice_k) - s * slice_k) / slice_k
        d.rect(226 + 72 * s, 70, round(width, 1), 72, "a")
        d.text(226 + 72 * s + width / 2, 110, f"slice {s}", "middle small")
        d.arrow(226 + 72 * s + 34, 146, 226 + 72 * s + 34, 172)
        d.rect(226 + 72 * s + 10, 176, 48, 48, "b")
    d.text(226, 58, f"{slice_k} of K, {slice_k // e['TILE_K']} steps of {e['TILE_K']}: a block each, "
           f"{tiles * slices} in all", "small faint")
    d.text(226, 244, f"workspace: {slices} partial tiles in fp32", "small faint")
    x = 226 + 72 * slices
    d.arrow(x, 200, x + 50, 200)
    d.rect(x + 58, 176, 48, 48, "c")
    d.text(x + 58, 244, "second kernel:", "small faint")
    d.text(x + 58, 259, "0 + 1 + 2 + …", "small faint")
    d.text(226, 302, "The sum has the order of the slices, whichever block was done first:", "small faint")
    d.text(226, 317, "a run repeats its bits. Atomic additions would not.", "small faint")
    return d


# ---- 07: fragments --------------------------------------------------------------------------------------------------

def wmma(sources):
    e = sources.enums(LESSONS + "07_wmma.cu")
    side, warp_m, warp_n = e["FRAGMENT"], e["WARP_M"], e["WARP_N"]
    d = Drawing(760, 350)
    d.text(20, 26, f"a block's {e['TILE_M']} × {e['TILE_N']}: {e['THREADS'] // 32} warps", "title")
    x0, y0, scale = 24, 44, 1.75
    for i in range(e["TILE_M"] // warp_m):
        for j in range(e["TILE_N"] // warp_n):
            warp = i * e["WARPS_N"] + j
            x, y = x0 + scale * warp_n * j, y0 + scale * warp_m * i
            d.rect(x, y, scale * warp_n - 3, scale * warp_m - 3, "c" if warp == 5 else "none")
            d.text(x + scale * warp_n / 2, y + scale * warp_m / 2 + 4, f"warp {warp}", "middle small")
    d.text(20, 292, f"a warp: {warp_m} × {warp_n} of C", "small faint")
    rows, columns, cell, left, top = warp_m // side, warp_n // side, 52, 380, 110
    d.text(300, 26, f"for {side} of K, from shared memory: {rows} + {columns} fragments", "title")
    for j in range(columns):
        d.rect(left + cell * j, 44, cell - 4, cell - 4, "b")
        d.text(left + cell * j + 24, 72, f"b {j}", "middle small")
    for i in range(rows):
        d.rect(310, top + cell * i, cell - 4, cell - 4, "a")
        d.text(334, top + cell * i + 28, f"a {i}", "middle small")
        for j in range(columns):
            d.rect(left + cell * j, top + cell * i, cell - 4, cell - 4, "c")
            d.text(left + cell * j + 24, top + cell * i + 28, f"acc {i} {j}", "middle small")
    notes = [f"a fragment: {side} × {side} elements,", "spread over the 32 lanes", "",
             "mma_sync: acc += a · b,", f"{side}³ = {side ** 3} products", "", f"{rows * columns} of them from",
             f"{rows + columns} fragments read"]
    for i, note in enumerate(notes):
        d.text(left + cell * columns + 24, top + 14 + 20 * i, note, "small")
    d.text(20, 338, f"An FFMA is 32 products of a warp, one a lane; an mma_sync becomes two HMMA of {side ** 3 // 2}.",
           "small faint")
    return d


DIAGRAMS = {"conv/01_naive": naive, "conv/02_smem_tile": smem_tile, "conv/03_register_tile": register_tile,
            "conv/04_vector_loads": vector_loads, "conv/05_cp_async": cp_async, "conv/06_split_k": split_k,
            "conv/07_wmma": wmma}
