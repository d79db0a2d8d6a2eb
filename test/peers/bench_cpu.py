#!/usr/bin/env python3
"""Latency of one picture on the CPU: ours (the library), torchvision's and onnxruntime's, in turns.

    make && taskset -c 0-3 python3 test/peers/bench_cpu.py --threads 4 [--rounds 9] [--out results/latency-cpu.jsonl]

The network is torchvision's R50-FPN with random weights of seed 1 whose outputs are scaled to spread, the same for all.
The picture is COCO's, cut to 640 × 384, so that it becomes 800 × 1333; each of the three finds as many proposals (1,000)
and detections (100), so that the heads' work is equal; the line of results says how many. Timed is what a caller waits
for: from bytes in memory to masks of the picture's size, one byte a pixel, of all detections (torchvision: to
probabilities ≥ 0.5). onnxruntime runs our export (--onnx of build/export) from bytes on, with its second graph for
pasting. Medians over rounds, in each of which all are timed once; CPU seconds beside them, since another process's load
shows in the former alone. Needs torch, torchvision, onnxruntime, safetensors, numpy, Pillow.
"""
import argparse
import ctypes as C
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime
import torch
import torchvision
from PIL import Image

from origin import origin
from torchvision_model import R50, build, spread_outputs, write_checkpoint


def weights_and_model(folder):
    torch.manual_seed(1)
    model = build(R50)
    spread_outputs(model, R50)
    path = os.path.join(folder, "r50.safetensors")
    write_checkpoint(model, R50, [{"id": i, "name": f"c{i}"} for i in range(1, 81)], path)
    return path, model.eval()


# ---- ours ---------------------------------------------------------------------------------------------------------

class Options(C.Structure):  # maskrcnn_options, as include/maskrcnn.h has it
    _fields_ = [("size", C.c_size_t), ("weights", C.c_char_p), ("weights_data", C.c_void_p),
                ("weights_bytes", C.c_size_t), ("device", C.c_char_p), ("amp", C.c_char_p), ("tf32", C.c_int),
                ("conv", C.c_char_p), ("batch", C.c_int), ("queue", C.c_int), ("threads", C.c_int),
                ("min_score", C.c_float), ("mask_threshold", C.c_float), ("image_size", C.c_int),
                ("max_image_size", C.c_int), ("max_pixels", C.c_int64), ("canvases", C.c_void_p),
                ("num_canvases", C.c_int), ("sync_nodes", C.c_int), ("top", C.c_size_t),
                ("detections_per_image", C.c_size_t), ("proposals_per_image", C.c_size_t), ("nms", C.c_float),
                ("set", C.c_char_p), ("exif", C.c_int), ("max_device_bytes", C.c_size_t),
                ("max_host_bytes", C.c_size_t), ("log", C.c_void_p), ("log_context", C.c_void_p)]


class Input(C.Structure):  # maskrcnn_image
    _fields_ = [("size", C.c_size_t), ("data", C.c_void_p), ("format", C.c_int), ("width", C.c_int),
                ("height", C.c_int), ("pitch", C.c_int64), ("bytes", C.c_size_t), ("place", C.c_int),
                ("range_low", C.c_int), ("range_high", C.c_int)]


class Detections(C.Structure):
    _fields_ = [("n", C.c_int), ("boxes", C.c_void_p), ("scores", C.POINTER(C.c_float)), ("labels", C.c_void_p),
                ("category_ids", C.c_void_p), ("names", C.c_void_p), ("masks", C.POINTER(C.c_void_p))]


class Result(C.Structure):
    _fields_ = [("status", C.c_int), ("message", C.c_char_p), ("kind", C.c_int), ("width", C.c_int),
                ("height", C.c_int), ("detections", C.POINTER(Detections)), ("classes", C.c_void_p)]


class Results(C.Structure):
    _fields_ = [("tag", C.c_uint64), ("n", C.c_int), ("images", C.POINTER(C.POINTER(Result))), ("failed", C.c_int)]


def ours(library, weights, threads, picture, conv):
    lib, said = C.CDLL(library), C.create_string_buffer(1024)
    options, handle = Options(), C.c_void_p()
    lib.maskrcnn_options_init(C.byref(options), C.c_size_t(C.sizeof(options)))
    options.weights, options.device, options.threads = weights.encode(), b"cpu", threads
    options.conv = conv
    if lib.maskrcnn_open(C.byref(handle), C.byref(options), said):
        sys.exit(said.value.decode())
    lib.maskrcnn_results_free.argtypes = [C.c_void_p]
    lib.maskrcnn_mask_bitmap.argtypes = [C.c_void_p, C.c_void_p, C.c_int64]
    height, width = picture.shape[:2]
    image = Input(size=C.sizeof(Input), data=picture.ctypes.data, format=1, width=width, height=height)

    def run():
        results = C.POINTER(Results)()
        if lib.maskrcnn_run(handle, C.byref(image), 1, C.byref(results), said):
            sys.exit(said.value.decode())
        found = results.contents.images[0].contents.detections.contents
        masks = np.empty((found.n, height, width), np.uint8)
        for i in range(found.n):
            lib.maskrcnn_mask_bitmap(found.masks[i], masks[i].ctypes.data, width)
        scores = found.scores[:found.n]
        lib.maskrcnn_results_free(results)
        return scores, masks
    return run


# ---- the peers ----------------------------------------------------------------------------------------------------

def torchvisions(model, threads, picture):
    torch.set_num_threads(threads)

    def run():
        with torch.inference_mode():
            x = torch.from_numpy(picture).permute(2, 0, 1).float().div_(255)
            found = model([x])[0]
            return found["scores"].tolist(), (found["masks"] >= 0.5).byte().numpy()[:, 0]
    return run


def onnxruntimes(export, folder, weights, threads, picture):
    path, paste = os.path.join(folder, "model.onnx"), os.path.join(folder, "paste.onnx")
    subprocess.run([export, weights, "--onnx", path, "--paste", paste, "--uint8"], check=True, stdout=subprocess.DEVNULL)
    how = onnxruntime.SessionOptions()
    how.intra_op_num_threads = threads
    how.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, how, providers=["CPUExecutionProvider"])
    pasting = onnxruntime.InferenceSession(paste, how, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    wanted = [i.name for i in pasting.get_inputs()]
    height, width = picture.shape[:2]
    given = feeds(session, picture)

    def run():
        out = dict(zip(names, session.run(None, given)))
        n = int(out["count"][0])
        sized = {"size": np.array([height, width], np.int64), "sizes": np.array([[height, width]], np.int64)}
        masks = pasting.run(None, {k: (sized[k] if k in sized else out[k][0][:n]) for k in wanted})[0]
        return out["scores"][0][:n].tolist(), masks
    return run


def feeds(session, picture):
    height, width = picture.shape[:2]
    given = {}
    for i in session.get_inputs():
        given[i.name] = picture[None] if "uint8" in i.type else np.array([[height, width]], np.int64)
    return given


# ---- in turns -----------------------------------------------------------------------------------------------------

def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--image", default="../shared/data/coco/val2017/000000005001.jpg")
    parser.add_argument("--out", help="append a record here")
    parser.add_argument("--keep", default="", help="folder in which the weights stay, for ./infer --profile")
    o = parser.parse_args()
    b = os.environ.get("B", "build")
    picture = np.array(Image.open(o.image).convert("RGB"))[:384, :640].copy()
    assert picture.shape == (384, 640, 3), picture.shape
    with tempfile.TemporaryDirectory() as folder:
        weights, model = weights_and_model(o.keep or folder)
        library = os.path.join(b, "libmaskrcnn.so")
        runs = {"maskrcnn.c": ours(library, weights, o.threads, picture, None),
                "maskrcnn.c, reference": ours(library, weights, o.threads, picture, b"reference"),
                f"torchvision {torchvision.__version__}": torchvisions(model, o.threads, picture),
                f"onnxruntime {onnxruntime.__version__}": onnxruntimes(os.path.join(b, "export"), folder, weights,
                                                                      o.threads, picture)}
        measure(o, runs)


def measure(o, runs):
    wall, cpu, found = {k: [] for k in runs}, {k: [] for k in runs}, {}
    for turn in range(o.rounds + 1):  # the first warms up
        for name, run in runs.items():
            time.sleep(0.2)  # the others' threads stop spinning
            t, c = time.perf_counter(), time.process_time()
            scores, masks = run()
            t, c = time.perf_counter() - t, time.process_time() - c
            found[name] = dict(detections=len(scores), mask_pixels=int(masks.sum()), best_score=max(scores))
            if turn:
                wall[name].append(t)
                cpu[name].append(c)
    first, rows = next(iter(runs)), []
    for name in runs:
        ratio = statistics.median(a / c for a, c in zip(wall[first], wall[name]))
        rows.append(dict(what=name, seconds=round(statistics.median(wall[name]), 4),
                         least=round(min(wall[name]), 4), cpu_seconds=round(statistics.median(cpu[name]), 4),
                         ours_of_it=round(ratio, 3), **found[name]))
        print("{what:24s} {seconds:8.3f} s (least {least:.3f}), CPU {cpu_seconds:8.3f} s; ours takes {ours_of_it:.2f} "
              "of it; {detections} detections, {mask_pixels} mask pixels, best score {best_score:.6f}".format(**rows[-1]))
    if o.out:
        record = dict(bench="latency", canvas="800x1344", batch=1, threads=o.threads, rounds=o.rounds, rows=rows,
                      note="load of the machine at the end: %.1f" % os.getloadavg()[0])
        with open(o.out, "a") as f:
            f.write(json.dumps({**record, **origin("cpu")}) + "\n")


main()
