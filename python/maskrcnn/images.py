"""What a caller gives as an image, as maskrcnn_image."""
import ctypes
import os
from typing import Any, Tuple

import numpy as np

from . import _abi
from .errors import ImageError

TAKEN = ("give uint8 [height, width, 3] (RGB), [height, width, 4] (RGBA) or [height, width] (grey), or uint16 "
         "[height, width]; a path; bytes of a JPEG or PNG file; or a file object")


HINTS = {"PIL": "; of PIL: numpy.asarray(PIL.ImageOps.exif_transpose(image).convert('RGB'))",
         "torch": "; of PyTorch: image.permute(1, 2, 0).cpu().numpy(), of torch.uint8"}


def hint(source: Any) -> str:
    """How an image of another library becomes one of ours."""
    return HINTS.get(type(source).__module__.split(".")[0], "")


def name_of(source: Any) -> str:
    """The image's path, for messages; "": it has none."""
    name = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", "")
    return os.fsdecode(name) if isinstance(name, (str, os.PathLike)) else ""


def is_one(images: Any) -> bool:
    """Whether this is an image by itself and not several."""
    if isinstance(images, np.ndarray):
        return images.ndim < 3 or (images.ndim == 3 and images.shape[2] in (1, 3, 4))
    kinds = (str, bytes, bytearray, memoryview, os.PathLike)
    return isinstance(images, kinds) or hasattr(images, "read") or bool(hint(images))


def shape_format(shape: Tuple[int, ...], dtype: np.dtype, bgr: bool, how: str = "") -> int:
    channels = shape[2] if len(shape) == 3 else 1 if len(shape) == 2 else 0
    if dtype == np.uint16 and len(shape) == 2:
        return _abi.GREY16
    formats = {3: _abi.BGR if bgr else _abi.RGB, 4: _abi.RGBA, 1: _abi.GREY}
    if dtype != np.uint8 or channels not in formats or 0 in shape or (bgr and channels == 4):
        raise ImageError(f"cannot use an array of {dtype} {list(shape)}{' with bgr' if bgr else ''}; {TAKEN}{how}")
    return formats[channels]


def pixels(image: "_abi.Image", address: int, shape, strides, dtype: np.dtype, bgr: bool) -> None:
    image.format = shape_format(shape, dtype, bgr)
    image.data, image.height, image.width, image.pitch = address, shape[0], shape[1], strides[0]


def is_dense(shape, strides, item: int) -> bool:
    """Whether the pixels of a row follow each other, and the rows too, with or without a gap."""
    channels = shape[2] if len(shape) == 3 else 1
    if len(shape) == 3 and shape[2] > 1 and strides[2] != item:
        return False
    return strides[1] == channels * item and strides[0] >= shape[1] * channels * item


def fill(image: "_abi.Image", source: Any, bgr: bool) -> Any:
    """Describes `source` in `image`; returns what has to stay until the library has copied it."""
    image.size = ctypes.sizeof(image)
    device = getattr(source, "__cuda_array_interface__", None)
    if device is not None:
        dtype = np.dtype(device["typestr"])
        strides = device.get("strides") or np.empty(device["shape"], dtype).strides
        if not is_dense(device["shape"], strides, dtype.itemsize):
            raise ImageError(f"a GPU array with strides {tuple(strides)}; make it contiguous")
        shape_format(device["shape"], dtype, bgr, hint(source))
        pixels(image, device["data"][0], device["shape"], strides, dtype, bgr)
        image.place = _abi.GPU
        return source
    if isinstance(source, np.ndarray):
        shape_format(source.shape, source.dtype, bgr)
        array = source if is_dense(source.shape, source.strides, source.itemsize) else np.ascontiguousarray(source)
        pixels(image, array.ctypes.data, array.shape, array.strides, array.dtype, bgr)
        return array
    if isinstance(source, (str, os.PathLike)):
        try:
            with open(source, "rb") as f:
                data = f.read()
        except OSError as e:
            raise ImageError(e.strerror) from None
        except ValueError as e:  # a zero byte
            raise ImageError(str(e)) from None
    elif hasattr(source, "read"):
        try:
            data = source.read()
        except (OSError, ValueError) as e:  # ValueError: it is closed
            raise ImageError(str(e)) from None
        if isinstance(data, str):
            raise ImageError("the file object gives text: open the file with 'rb'")
    else:
        data = source
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ImageError(f"cannot use a {type(source).__name__}; {TAKEN}{hint(source)}")
    data = bytes(data)
    if not data:
        raise ImageError("the file is empty")
    image.data = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
    image.format, image.bytes = _abi.ENCODED, len(data)
    return data
