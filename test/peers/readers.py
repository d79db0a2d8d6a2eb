"""Our readers, called from Python: compiles them from the sources of this tree (run from its root) and loads them. Each
function returns what it read, or a Refusal with the message. Used by compare_libjpeg.py, fuzz_readers.py and suites.py.

Structures are declared as in the headers named beside them.
"""
import ctypes
import glob
import os
import subprocess
import tempfile
from ctypes import (POINTER, Structure, byref, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint8, c_uint32,
                    c_uint64, c_void_p)

import numpy as np


class Refusal(str):
    """The message of a reader that does not take a file."""


class Picture(Structure):  # data/images/image.h
    _fields_ = [("h", c_int), ("w", c_int), ("rgb", POINTER(c_uint8))]


class Rle(Structure):  # data/coco/rle.h
    _fields_ = [("h", c_int), ("w", c_int), ("n", c_int), ("runs", POINTER(c_uint32))]


class CkptTensor(Structure):  # weights/checkpoint.h
    _fields_ = [("name", c_char_p), ("type", c_int), ("ndim", c_int), ("dims", c_int64 * 8), ("elements", c_size_t),
                ("bytes", c_size_t), ("data", c_void_p)]


class CkptMeta(Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class Checkpoint(Structure):
    _fields_ = [("tensors", POINTER(CkptTensor)), ("num_tensors", c_size_t), ("cap_tensors", c_size_t),
                ("meta", POINTER(CkptMeta)), ("num_meta", c_size_t), ("cap_meta", c_size_t),
                ("rest", ctypes.c_char * 256)]


JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT = range(6)  # base/json.h
SOURCES = ["data/images/*.c", "data/coco/rle.c", "data/coco/spans.c", "weights/*.c",
           *(f"base/{name}.c" for name in ("alloc", "error", "file", "foreign", "json", "record", "scratch", "utf8"))]


def compile_library(folder, sources=SOURCES):
    path = os.path.join(folder, "readers.so")
    files = [name for pattern in sources for name in sorted(glob.glob(pattern))]
    subprocess.check_call([os.environ.get("CC", "cc"), "-std=c11", "-D_DEFAULT_SOURCE", "-D_POSIX_C_SOURCE=200809L", "-I.",
                           "-O2", "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-pthread", "-o", path,
                           *files, "-lz", "-lm"])
    return path


class Readers:
    def __init__(self, path=None):
        """path: a shared object with the readers; None compiles one."""
        with tempfile.TemporaryDirectory() as folder:
            self.library = ctypes.CDLL(path or compile_library(folder), os.RTLD_LAZY)  # nothing calls all of base/
        for name, returns in {"image_decode": c_bool, "ckpt_parse": c_bool, "ckpt_type_name": c_char_p,
                              "json_begin_array": c_bool, "json_next": c_bool, "json_begin_object": c_bool,
                              "json_key": c_void_p, "json_number": c_double, "json_bool": c_bool,
                              "json_string": c_void_p, "json_skip": None, "json_done": c_bool,
                              "rle_from_string": c_bool, "rle_from_counts": c_bool, "rle_from_polygon": Rle,
                              "rle_area": c_uint64, "rle_to_string": c_void_p}.items():
            getattr(self.library, name).restype = returns
        self.library.rle_from_polygon.argtypes = [c_void_p, c_int, c_int, c_int]
        self.error = ctypes.create_string_buffer(4096)

    def refusal(self):
        return Refusal(self.error.value.decode(errors="replace"))

    # ---- images -----------------------------------------------------------------------------------------------------

    def image(self, data):
        """Pixels [h, w, 3]."""
        picture = Picture()
        if not self.library.image_decode(byref(picture), data, c_size_t(len(data)), b"FILE", self.error):
            return self.refusal()
        pixels = np.ctypeslib.as_array(picture.rgb, (picture.h, picture.w, 3)).copy()
        self.library.image_free(byref(picture))
        return pixels

    def orientation(self, data):
        return self.library.image_orientation(data, c_size_t(len(data)))

    # ---- JSON -------------------------------------------------------------------------------------------------------

    def json(self, data):
        """Numbers as float, objects as a list of pairs under Pairs."""
        j = ctypes.create_string_buffer(8192)  # larger than a Json, whose message is 4 KiB
        self.library.json_open(j, b"FILE", data, c_size_t(len(data)))
        value = self.json_value(j)
        done = self.library.json_done(j)
        message = "" if done else self.json_message(j)
        self.library.json_close(j)
        return value if done else Refusal(message)

    def json_skip(self, data):
        """Whether all of it is JSON, keys with a NUL included."""
        j = ctypes.create_string_buffer(8192)
        self.library.json_open(j, b"FILE", data, c_size_t(len(data)))
        self.library.json_skip(j)
        done = self.library.json_done(j)
        message = "" if done else self.json_message(j)
        self.library.json_close(j)
        return True if done else Refusal(message)

    @staticmethod
    def json_message(j):
        at = j.raw.find(b"FILE:")
        return ctypes.string_at(ctypes.addressof(j) + at).decode(errors="replace") if at >= 0 else "?"

    def json_value(self, j):
        lib = self.library
        kind = lib.json_peek(j)
        if kind == JSON_ARRAY:
            items = []
            if lib.json_begin_array(j):
                while lib.json_next(j):
                    items.append(self.json_value(j))
            return items
        if kind == JSON_OBJECT:
            pairs = Pairs()
            if lib.json_begin_object(j):
                while (key := lib.json_key(j)):
                    key = ctypes.string_at(key)
                    pairs.append((key, self.json_value(j)))
            return pairs
        if kind == JSON_STRING:
            length = c_size_t()
            text = lib.json_string(j, byref(length))
            return ctypes.string_at(text, length.value)
        if kind == JSON_NUMBER:
            return lib.json_number(j)
        if kind == JSON_BOOL:
            return bool(lib.json_bool(j))
        lib.json_skip(j)  # null, or a failure
        return None

    # ---- weights ----------------------------------------------------------------------------------------------------

    def weights(self, data):
        """({name: (type, shape, bytes)}, metadata)."""
        c = Checkpoint()
        kept = ctypes.create_string_buffer(data, len(data))
        if not self.library.ckpt_parse(byref(c), kept, c_size_t(len(data)), b"FILE", self.error):
            return self.refusal()
        tensors = {}
        for t in c.tensors[:c.num_tensors]:
            tensors[t.name] = (self.library.ckpt_type_name(t.type).decode(), tuple(t.dims[:t.ndim]),
                               ctypes.string_at(t.data, t.bytes) if t.bytes else b"")
        metadata = {m.key: m.value for m in c.meta[:c.num_meta]}
        self.library.ckpt_close(byref(c))
        return tensors, metadata

    # ---- masks ------------------------------------------------------------------------------------------------------

    def runs(self, rle):
        runs = tuple(rle.runs[:rle.n])
        self.library.rle_free(byref(rle))
        return runs

    def mask_from_string(self, text, h, w):
        """Runs."""
        rle = Rle()
        if not self.library.rle_from_string(byref(rle), text, c_size_t(len(text)), h, w, self.error):
            return self.refusal()
        return self.runs(rle)

    def mask_from_counts(self, counts, h, w):
        rle = Rle()
        if not self.library.rle_from_counts(byref(rle), (c_uint32 * max(len(counts), 1))(*counts), len(counts), h, w,
                                            self.error):
            return self.refusal()
        return self.runs(rle)

    def mask_from_polygon(self, xy, h, w):
        numbers = (c_double * len(xy))(*xy)
        return self.runs(self.library.rle_from_polygon(numbers, len(xy) // 2, h, w))


class Pairs(list):
    """The members of an object, in order."""
