"""Runs torchvision's own test cases of nms, RoIAlign (forward and backward) and box IoU with these functions replaced by
ours: the CPU reference in double, and the evaluator's IoU. Run from the root of the tree; needs torch, torchvision, pytest.

    python3 test/peers/torchvision_ops.py CHECKOUT      of pytorch/vision, whose test/test_ops.py is run

Prints the number of cases; exits 1 where one fails or a kind has none. Called by suites.py. Structures are declared as in
the headers named beside them.
"""
import ctypes
import os
import subprocess
import sys
import tempfile
from ctypes import POINTER, Structure, byref, c_bool, c_double, c_float, c_int, c_void_p

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny cases: starting threads would take most of the time

import pytest
import torch

SOURCES = ["cpu/nms.c", "cpu/roi_align.c", "data/coco/rle.c", "data/coco/spans.c", "base/alloc.c", "base/error.c",
           "base/record.c", "base/scratch.c"]
WORKSPACE = "void *device_workspace(void *dev, unsigned long bytes) { static char memory[1 << 26]; return memory; }"
CASES = {"TestNMS": "test_nms_ref", "TestRoIAlign": "test_forward or test_backward", "TestBoxIou": "test_iou"}
F64, MAX_LEVELS = 1, 5


class Tensor(Structure):  # nn/tensor.h
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("n", c_int), ("h", c_int), ("w", c_int), ("c", c_int), ("ldc", c_int),
                ("count", POINTER(c_int))]


class Boxes(Structure):  # nn/ops.h, as all that follow
    _fields_ = [("groups", c_int), ("capacity", c_int), ("box", Tensor), ("score", Tensor), ("index", POINTER(c_int)),
                ("count", POINTER(c_int))]


class Nms(Structure):
    _fields_ = [("threshold", c_float), ("extra", c_float)]


class Rois(Structure):
    _fields_ = [("capacity", c_int), ("box", Tensor), ("image", POINTER(c_int)), ("count", POINTER(c_int))]


class RoiAlign(Structure):
    _fields_ = [("size", c_int), ("sampling", c_int), ("aligned", c_bool), ("levels", c_int), ("first_level", c_int),
                ("scale", c_float * MAX_LEVELS), ("canonical_size", c_float), ("canonical_level", c_float),
                ("size_eps", c_float), ("level_eps", c_float), ("extra", c_float)]


class Dest(Structure):
    _fields_ = [("t", Tensor), ("accumulate", c_bool), ("relu", c_bool), ("bias", c_void_p), ("addend", c_void_p),
                ("mask", c_void_p), ("moments", c_void_p)]


def load():
    with tempfile.TemporaryDirectory() as folder:
        path, shim = os.path.join(folder, "ops.so"), os.path.join(folder, "workspace.c")
        with open(shim, "w") as f:
            f.write(WORKSPACE)
        subprocess.check_call([os.environ.get("CC", "cc"), "-std=c11", "-D_DEFAULT_SOURCE", "-D_POSIX_C_SOURCE=200809L",
                               "-DREAL64", "-I.", "-O2", "-march=native", "-ffp-contract=off", "-fopenmp", "-fPIC", "-shared",
                               "-o", path, shim, *SOURCES, "-lm"])
        return ctypes.CDLL(path, os.RTLD_LAZY)


library = load()
device = ctypes.create_string_buffer(4096)  # larger than a Device; of it these ops read `measuring` alone, false


def ints(values):
    return (c_int * max(len(values), 1))(*values)


def rows(t):
    """[n, c] doubles without padding."""
    return Tensor(t.data_ptr(), F64, t.shape[0], 1, 1, t.shape[1], t.shape[1], None)


def pixels(t):
    """[n, h, w, c]."""
    return Tensor(t.data_ptr(), F64, *t.shape, t.shape[3], None)


def padded(t):
    """[n, c, h, w] as [n, h, w, c], with channels filled up to a multiple of eight."""
    return torch.nn.functional.pad(t.permute(0, 2, 3, 1), (0, -t.shape[1] % 8)).double().contiguous()


def nms(boxes, scores, iou_threshold):
    order = scores.argsort(descending=True, stable=True)
    n = len(order)
    box, score = boxes[order].double().contiguous(), scores[order].double().reshape(-1, 1).contiguous()
    kept_box, kept_score = torch.zeros_like(box), torch.zeros_like(score)
    kept, count = ints([0] * n), ints([0])
    given = Boxes(1, n, rows(box), rows(score), ints(range(n)), ints([n]))
    survivors = Boxes(1, n, rows(kept_box), rows(kept_score), kept, count)
    library.cpu64_nms(device, byref(Nms(iou_threshold, 0)), byref(given), byref(survivors))
    return order[torch.tensor(kept[:count[0]])]


class Align(torch.autograd.Function):
    @staticmethod
    def setting(boxes, size, scale, sampling, aligned):
        p = RoiAlign(size, max(sampling, 0), aligned, 1, 0)
        p.scale[0] = scale
        box = boxes[:, 1:].double().contiguous()
        return p, box, Rois(len(box), rows(box), ints([int(i) for i in boxes[:, 0]]), ints([len(box)]))

    @staticmethod
    def forward(ctx, x, boxes, *options):
        p, box, rois = Align.setting(boxes, *options)
        padded_x = padded(x)
        y = torch.zeros(len(box), p.size, p.size, padded_x.shape[3], dtype=torch.float64)
        library.cpu64_roi_align_forward(device, byref(p), byref(rois), byref(pixels(padded_x)), byref(pixels(y)))
        ctx.shape, ctx.boxes, ctx.options = x.shape, boxes, options
        return y[..., :x.shape[1]].permute(0, 3, 1, 2).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        p, box, rois = Align.setting(ctx.boxes, *ctx.options)
        n, c, h, w = ctx.shape
        padded_dy = padded(dy)
        dx = torch.zeros(n, h, w, padded_dy.shape[3], dtype=torch.float64)
        library.cpu64_roi_align_backward(device, byref(p), byref(rois), byref(pixels(padded_dy)), byref(Dest(pixels(dx))))
        return dx[..., :c].permute(0, 3, 1, 2).to(dy.dtype), None, None, None, None, None


def roi_align(input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1, aligned=False):
    size = output_size if isinstance(output_size, int) else output_size[0]
    return Align.apply(input, boxes, size, spatial_scale, sampling_ratio, aligned)


def box_iou(boxes1, boxes2):
    """By the evaluator's bbox_iou, which takes x y w h."""
    a, b = (torch.cat([t[:, :2], t[:, 2:] - t[:, :2]], 1).contiguous() for t in (boxes1.double(), boxes2.double()))
    iou = torch.zeros(len(a), len(b), dtype=torch.float64)
    library.bbox_iou(c_void_p(a.data_ptr()), len(a), c_void_p(b.data_ptr()), len(b), None, c_void_p(iou.data_ptr()))
    return iou


class Ours:
    """Puts our functions in torchvision's place, for the cases of theirs alone, and counts."""

    def __init__(self):
        self.passed = dict.fromkeys(CASES, 0)

    @pytest.fixture(autouse=True)
    def replace(self, request, monkeypatch):
        ops, name = request.module.ops, request.cls.__name__
        if name == "TestNMS":
            monkeypatch.setattr(ops, "nms", nms)
        elif name == "TestBoxIou":
            monkeypatch.setattr(ops, "box_iou", box_iou)
        else:
            monkeypatch.setattr(sys.modules["torchvision.ops.roi_align"], "roi_align", roi_align)
            monkeypatch.setattr(request.cls, "get_script_fn", lambda _, rois, size: lambda x: roi_align(x, rois, size))

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.passed[report.nodeid.split("::")[1]] += 1


def main():
    tests = os.path.join(sys.argv[1], "test")
    sys.path.insert(0, tests)
    ours = Ours()
    chosen = " or ".join(f"({name} and ({cases}))" for name, cases in CASES.items())
    status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--rootdir", tests, "-k", f"({chosen}) and not jit and not "
                          "cartesian and not cuda", os.path.join(tests, "test_ops.py")], plugins=[ours])
    print(f"cases passed with our functions: nms {ours.passed['TestNMS']}, RoIAlign {ours.passed['TestRoIAlign']}, box IoU "
          f"{ours.passed['TestBoxIou']}")
    return int(status != 0 or not all(ours.passed.values()))


if __name__ == "__main__":
    sys.exit(main())
