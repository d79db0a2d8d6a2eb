"""Prints what a model recognises in a picture: python3 detect.py weights.safetensors a.ppm [device].

Needs numpy and libmaskrcnn.so."""
import ctypes
import os
import sys
import numpy

lib = ctypes.CDLL(os.environ.get("MASKRCNN_LIBRARY", "libmaskrcnn.so.1"))
P, I, F, L = ctypes.POINTER, ctypes.c_int, ctypes.c_float, ctypes.c_int64
lib.maskrcnn_message.restype, lib.maskrcnn_mask_bitmap.argtypes = ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_void_p, L]


def struct(**members):
    return type("Struct", (ctypes.Structure,), {"_fields_": list(members.items())})


# The first members, as many as are set here: maskrcnn_options_init gets the size of this struct.
Options = struct(size=ctypes.c_size_t, weights=ctypes.c_char_p, device=ctypes.c_char_p)
Image = struct(rgb=ctypes.c_void_p, width=I, height=I, pitch=L)
Detections = struct(n=I, boxes=P(F), scores=P(F), labels=P(I), category_ids=P(L), names=P(ctypes.c_char_p),
                    masks=P(ctypes.c_void_p))
Classes = struct(n=I, scores=P(F), labels=P(I), category_ids=P(L), names=P(ctypes.c_char_p))
Result = struct(kind=I, width=I, height=I, detections=P(Detections), classes=P(Classes))
Results = struct(tag=ctypes.c_uint64, n=I, images=P(P(Result)))


def read_ppm(path):
    try:
        kind, width, height, rest = open(path, "rb").read().split(maxsplit=3)
        return numpy.frombuffer(rest.split(b"\n", 1)[1], numpy.uint8).reshape(int(height), int(width), 3)
    except (OSError, ValueError, IndexError):
        sys.exit(f"{path}: missing, or not an 8-bit PPM (P6) file; convert {path} a.ppm makes one")


def main(weights, path, device="auto"):
    options, handle, message = Options(), ctypes.c_void_p(), ctypes.create_string_buffer(512)
    lib.maskrcnn_options_init(ctypes.byref(options), ctypes.c_size_t(ctypes.sizeof(options)))
    options.weights, options.device = weights.encode(), device.encode()
    if lib.maskrcnn_open(ctypes.byref(handle), ctypes.byref(options), message, ctypes.c_size_t(512)):
        sys.exit(message.value.decode())
    rgb, results = read_ppm(path), P(Results)()
    image = Image(rgb.ctypes.data, rgb.shape[1], rgb.shape[0], rgb.strides[0])
    if lib.maskrcnn_run(handle, ctypes.byref(image), 1, ctypes.byref(results)):
        sys.exit(lib.maskrcnn_message(handle).decode())
    found = results.contents.images[0].contents
    if found.detections:  # NULL for a classifier
        d, mask = found.detections.contents, numpy.empty(rgb.shape[:2], bool)
        for i in range(d.n):
            lib.maskrcnn_mask_bitmap(d.masks[i], mask.ctypes.data, mask.strides[0])
            print(d.names[i].decode(), f"{d.scores[i]:.3f} at", *(f"{d.boxes[4 * i + k]:.1f}" for k in range(4)))
    if found.classes:
        for i in range(found.classes.contents.n):
            print(found.classes.contents.names[i].decode(), f"{found.classes.contents.scores[i]:.3f}")
    lib.maskrcnn_results_free(results)
    lib.maskrcnn_close(handle)


main(*sys.argv[1:])
