"""Tables of bench ladder's results: the lessons of cuda/conv/lessons/, rungs and cuDNN."""
import collections

from conv_figures import table
from records import Refused

# A layer's name in tables and plots.
PROBLEMS = {"p2.3x3": "3 × 3 at P2", "gemm.8192": "8192³", "p5.3x3": "3 × 3 at P5"}


class Ladder:
    """The newest record of each (rung, layer): cell[rung][layer]. cuDNN is last, whatever came first."""

    def __init__(self, records):
        self.cell, gpus = collections.OrderedDict(), {r["gpu"] for r in records}
        if len(gpus) != 1:
            raise Refused(f"ladder: records of {' and '.join(sorted(gpus)) or 'no GPU'} cannot stand in one table")
        self.gpu = gpus.pop()
        for r in records:
            self.cell.setdefault(r["rung"], {})[r["layer"]] = r
        names = sorted(self.cell, key=lambda name: (name == "cudnn", not name[0].isdigit(), name if name[0].isdigit()
                                                    else ""))
        self.cell = collections.OrderedDict((name, self.cell[name]) for name in names)

    def problems(self):
        return [p for p in PROBLEMS if any(p in cells for cells in self.cell.values())]


def figure(tflops):
    return f"{tflops:.2f}" if tflops < 10 else f"{tflops:.1f}" if tflops < 100 else f"{tflops:.0f}"


def percent(share):
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def cells_of(record, is_peer):
    """TFLOP/s, of cuDNN's speed, of the chip's peak; – where there is none."""
    if not record:
        return "–", "–", "–"
    ratio, floor = record.get("ratio"), record.get("floor_us")
    share = "" if is_peer else percent(ratio) if ratio else "–"
    return figure(record["tflops"]), share, percent(floor / record["us"]) if floor else "–"


def ladder_lessons(results):
    ladder = Ladder(results.all("ladder-h200", bench="ladder", op="fwd"))
    head = ["lesson or rung"]
    for p in ladder.problems():
        head += [f"{PROBLEMS[p]}, TFLOP/s", "of cuDNN's speed", "of the peak"]
    return table(head, [(name, *(c for p in ladder.problems() for c in cells_of(cells.get(p), name == "cudnn")))
                        for name, cells in ladder.cell.items()])


def tflops(rung, layer):
    """VALUES' figures for the chapters of the course."""
    return lambda results: figure(results.newest("ladder-h200", rung=rung, layer=layer)["tflops"])


TABLES = {"ladder-lessons": ladder_lessons}
LESSONS = ("01_naive", "02_smem_tile", "03_register_tile", "04_vector_loads", "05_cp_async", "06_split_k", "07_wmma",
           "08_mma_sync", "09_swizzle", "10_wgmma", "11_tma", "12_warp_specialised", "13_persistent", "14_cluster")
# lesson.07.p2.3x3: TFLOP/s of lesson 07.
VALUES = {f"lesson.{name[:2]}.{layer}": tflops(name, layer) for name in LESSONS for layer in PROBLEMS}
