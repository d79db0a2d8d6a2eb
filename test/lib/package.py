"""Uses python/maskrcnn as its callers do: package.py WEIGHTS CLASSIFIER PICTURE.png FOLDER [NAME=BYTES,…], the sizes of
structs of include/maskrcnn.h. Prints what is wrong."""
import copy
import ctypes
import io
import os
import pathlib
import pickle
import re
import subprocess
import sys
import threading

import numpy as np

import maskrcnn
from maskrcnn import _abi

weights, classifier, picture, folder, *sizes = sys.argv[1:]
model = maskrcnn.Model(weights, "cpu", threads=1, batch=2, min_score=0.0, max_pixels=1 << 16)
wrong = []


def check(holds, what):
    if not holds:
        wrong.append(what)


def raises(kind, says, call, *args, **options):
    try:
        call(*args, **options)
    except kind as e:
        check(says in str(e) and "\n" not in str(e), f"{kind.__name__} says: {e}")
    else:
        check(False, f"no {kind.__name__} that says {says!r}")


def same(a, b):
    fields = ("boxes", "scores", "labels", "category_ids")
    return all(np.array_equal(getattr(a, f), getattr(b, f)) for f in fields) and np.array_equal(a.masks, b.masks)


data = open(picture, "rb").read()
of_file = model(picture)
rgb = of_file.draw(data)
check(len(of_file) > 3 and of_file.masks.any() and of_file.masks.shape == (len(of_file), *rgb.shape[:2]), "detections")
check(all(same(of_file, model(x)) for x in (data, io.BytesIO(data), memoryview(data))), "files")

# Arrays: every layout of memory is the same image.
noise = np.random.default_rng(1).integers(0, 256, (70, 90, 3), np.uint8)
want = model(noise)
wide = np.zeros((70, 200, 3), np.uint8)
wide[:, 5:95] = noise
for what, array, bgr in (
        ("rows with a gap", wide[:, 5:95], False), ("upside down", np.ascontiguousarray(noise[::-1])[::-1], False),
        ("mirrored", np.ascontiguousarray(noise[:, ::-1])[:, ::-1], False),
        ("Fortran", np.asfortranarray(noise), False),
        ("read-only", np.frombuffer(noise.tobytes(), np.uint8).reshape(noise.shape), False),
        ("BGR", np.ascontiguousarray(noise[..., ::-1]), True), ("BGR, a view", noise[..., ::-1], True),
        ("RGBA", np.dstack([noise, noise[..., :1]]), False)):
    check(same(want, model(array, bgr=bgr)), what)
grey = noise[..., 0]
check(same(model(grey), model(np.dstack([grey] * 3))), "grey")
check(len(model(grey.astype(np.uint16))) >= 0, "16-bit grey")
for array, says in ((noise.astype(np.float32), "float32"), (noise[..., :2], "[70, 90, 2]"), (noise[0, 0], "[3]"),
                    (noise[:0], "[0, 90, 3]"), (noise[None], "[1, 70, 90, 3]"), (3, "int"), (None, "NoneType"),
                    (np.zeros((300, 300), np.uint8), "max_pixels"), ("/nowhere.jpg", "/nowhere.jpg"), (b"", "")):
    raises(maskrcnn.ImageError, says, model, array)
for library, says in (("PIL.PngImagePlugin", "convert('RGB')"), ("torch", "permute(1, 2, 0)")):
    raises(maskrcnn.ImageError, says, model, type("Image", (), {"__module__": library})())
gpu_array = {"shape": (70, 90, 3), "typestr": "|u1", "data": (4096, False)}
raises(maskrcnn.ImageError, "computes on the CPU", model, type("G", (), {"__cuda_array_interface__": gpu_array})())
cut = os.path.join(folder, "cut.png")
with open(cut, "wb") as f:
    f.write(data[:len(data) // 2])
with open(cut, "rb") as f:
    for image in (cut, pathlib.Path(cut), f):
        raises(maskrcnn.ImageError, f"image 0 ({cut}): ", model, image)
raises(maskrcnn.ImageError, f"image 1 ({cut}): ", list, model.stream([picture, cut]))
with open(cut, encoding="latin-1") as f:
    raises(maskrcnn.ImageError, "'rb'", model, f)
raises(maskrcnn.ImageError, "closed", model, f)
raises(maskrcnn.WeightsError, "empty", maskrcnn.Model, b"")
raises(maskrcnn.ArgumentError, "a file's path, or its contents", maskrcnn.Model, None)
check(of_file == of_file and of_file != model(picture) and len({of_file, want}) == 2, "results are compared by identity")
check(len(repr(of_file)) < 120 and "pixels" in repr(of_file), f"a result's repr: {of_file!r}")
raises(maskrcnn.ImageError, f"({cut}): ", of_file.draw, cut)

# One bad image does not stop the others.
batch = [picture, data[:len(data) // 2], noise, "/nowhere.png", data]
found = model(batch, errors="return")
check([isinstance(f, maskrcnn.ImageError) for f in found] == [False, True, False, True, False], f"a batch: {found}")
check([f.index for f in found if isinstance(f, maskrcnn.ImageError)] == [1, 3], "indices of bad images")
check(same(found[0], of_file) and same(found[2], want) and same(found[4], of_file), "beside bad images")
raises(maskrcnn.ImageError, "image 1", model, batch[:3])
raises(ValueError, "errors", model, batch, errors="ignore")
check(model([]) == [] and isinstance(model([noise]), list), "lists")

# A stream, in order; left early; with a bad image.
images = [noise[:40 + i % 20] for i in range(50)]
check(all(map(same, model.stream(iter(images)), model(images))), "a stream")
for _ in model.stream(images):
    break
for one in (picture, pathlib.Path(picture), data, io.BytesIO(data), noise, grey):
    raises(maskrcnn.ArgumentError, "call the model", model.stream, one)
check(all(map(same, model.stream(np.stack([noise] * 3)), [want] * 3)), "a stream of an array's images")
streamed = list(model.stream(batch, errors="return"))
check([getattr(f, "index", 0) for f in streamed] == [0, 1, 0, 3, 0], "a stream with bad images")
raises(maskrcnn.ImageError, "image 1", list, model.stream(batch))

# Threads.
results = [[] for _ in range(4)]


def caller(i):
    for _ in range(4):
        results[i].append(model(noise) if i % 2 else list(model.stream([noise] * 3))[2])


threads = [threading.Thread(target=caller, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
check(all(len(r) == 4 and all(same(f, want) for f in r) for r in results), "four threads")

# A fork.
end, begin = os.pipe()
child = os.fork()
if not child:
    try:
        model(noise)
    except maskrcnn.DeadError as e:
        os.write(begin, str(e).encode())
    os._exit(0)
os.waitpid(child, 0)
os.close(begin)
check(b"which this is a fork" in os.read(end, 1000), "a fork's sentence")
check(same(model(noise), want), "after a fork")

# What becomes of detections.
coco = of_file.to_coco(7)
keys = {"image_id", "category_id", "bbox", "score", "segmentation"}
check(len(coco) == len(of_file) and set(coco[0]) == keys, "COCO")
try:
    from pycocotools import mask
    check(all(np.array_equal(mask.decode(c["segmentation"]), m) for c, m in zip(coco, of_file.masks)), "masks of COCO")
except ImportError:
    pass
for copied in (copy.copy(of_file), copy.deepcopy(of_file)):
    check(same(copied, of_file) and np.array_equal(copied.draw(data), rgb), "a copy of detections")
again = pickle.loads(pickle.dumps(of_file))
check(same(again, of_file), "pickled detections")
raises(ValueError, "unpickled", again.draw, picture)
raises(TypeError, "pickled", pickle.dumps, model)
drawn = of_file.draw(picture, to=os.path.join(folder, "drawn.png"))
check(drawn.shape == rgb.shape and drawn.dtype == np.uint8 and np.array_equal(drawn, rgb), "a drawing")
check(open(os.path.join(folder, "drawn.png"), "rb").read(4) == b"\x89PNG", "a drawing's file")
raises(maskrcnn.Error, "/nowhere/a.png", of_file.draw, picture, "/nowhere/a.png")
raises(maskrcnn.Error, "", of_file.draw, noise)
again = model(picture)
again.runs[0] = np.array([0, 64 * 64 * 1000], np.uint32)
raises(ValueError, "add up to", again.draw, picture)
again = model(picture)
again.boxes = again.boxes[:1]
raises(ValueError, "of the same detections", again.draw, picture)
raises(maskrcnn.ImageError, "empty", model, b"")

# The structs of the header: the names of their members, and sizes as compiled.
for name, size in (pair.split("=") for pair in (sizes[0].split(",") if sizes else [])):
    with open("include/maskrcnn.h") as f:
        text = re.sub("//.*", "", f.read())
    body = re.search(rf"typedef struct maskrcnn_{name} {{(.*?)}} maskrcnn_{name};", text, re.S)[1]
    members = [re.sub(r"\[.*", "", part).split()[-1].lstrip("*") for part in re.split("[;,]", body) if part.strip()]
    ours = getattr(_abi, name.capitalize())
    check(members == [field for field, _ in ours._fields_], f"members of {name}: {members}")
    check(ctypes.sizeof(ours) == int(size), f"the size of {name} is {size}")

# Opening.
raises(maskrcnn.WeightsError, "/nowhere.pth", maskrcnn.Model, "/nowhere.pth")
raises(maskrcnn.WeightsError, "", maskrcnn.Model, data)
raises(maskrcnn.DeviceError, "abacus", maskrcnn.Model, weights, "abacus")
raises(maskrcnn.ArgumentError, "batch", maskrcnn.Model, weights, "cpu", batch=-1)
raises(TypeError, "bacth", maskrcnn.Model, weights, bacth=2)
raises(maskrcnn.OutOfMemory, "", maskrcnn.Model, weights, "cpu", max_host_bytes=1000)
for option, value in (("batch", 2**32 + 2), ("max_host_bytes", -1), ("max_pixels", 2**64 + 1), ("min_score", "high"),
                      ("set", "nms=0.4\0junk"), ("canvases", [64, 64])):
    raises(maskrcnn.ArgumentError, option, maskrcnn.Model, weights, "cpu", **{option: value})
raises(maskrcnn.ArgumentError, "device", maskrcnn.Model, weights, 0)
raises(maskrcnn.ArgumentError, "zero byte", maskrcnn.Model, weights + "\0junk")
with maskrcnn.Model(open(weights, "rb").read(), "cpu", threads=1, batch=2, min_score=0.0) as other:
    check(same(other(noise), want) and not other.info.is_classifier and other.info.batch == 2, "weights in memory")
    check(len(other.info.categories) > 1 and other.info.device.startswith("CPU"), f"{other.info}")
raises(maskrcnn.DeadError, "closed", other, noise)
other = maskrcnn.Model(weights, "cpu", threads=1, batch=2)
stream = other.stream([noise] * 10)
next(stream)
calling = [threading.Thread(target=other, args=([noise] * 20,)) for _ in range(2)]
for t in calling:
    t.start()
while not other._open.calls:
    pass
other.close()  # waits for the threads
raises(maskrcnn.DeadError, "closed", list, stream)
for t in calling:
    t.join()
with maskrcnn.Model(classifier, "cpu", threads=1, top=3) as net:
    classes = net(noise)
    check(isinstance(classes, maskrcnn.Classes) and len(classes) == 3 and net.info.is_classifier, "a classifier")

# A program ends while daemon threads are within calls.
LOOP = f"""import threading, numpy, maskrcnn
model, called = maskrcnn.Model({weights!r}, "cpu", threads=1), threading.Event()
def loop():
    while True:
        model(numpy.zeros((600, 600, 3), numpy.uint8))
        called.set()
for _ in range(3):
    threading.Thread(target=loop, daemon=True).start()
called.wait()"""
check(subprocess.run([sys.executable, "-c", LOOP], timeout=30).returncode == 0, "daemon threads at the end")

print("\n".join(wrong))
sys.exit(bool(wrong))
