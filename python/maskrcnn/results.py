"""Results as numpy arrays, which own what they hold."""
import copy
import ctypes
import dataclasses
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from . import _abi
from .errors import ArgumentError


@dataclasses.dataclass(eq=False, repr=False)
class Found:
    """What was made of an image of height × width pixels, in descending order of scores."""

    height: int
    width: int
    scores: np.ndarray  # float32 [n]
    labels: np.ndarray  # int32 [n], from 1
    category_ids: np.ndarray  # int64 [n]
    names: List[str]
    _model: Any

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        best = f", best: {self.names[0]} {float(self.scores[0]):.3f}" if len(self) else ""
        return f"<{type(self).__name__} of {self.width} x {self.height} pixels: {len(self)}{best}>"

    def __getstate__(self) -> Dict[str, Any]:  # for pickle
        return {**self.__dict__, "_model": None}

    def __copy__(self) -> "Found":
        return dataclasses.replace(self)

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Found":
        memo[id(self._model)] = self._model  # stays the same
        return type(self)(**copy.deepcopy(self.__dict__, memo))

    def draw(self, image: Any, to: Optional[str] = None, bgr: bool = False) -> np.ndarray:
        """The image that this was found in, given again, with detections drawn over it: uint8 [height, width, 3], RGB.
        Written as a PNG file as well, if `to` names one. The model has to be open."""
        if self._model is None:
            raise ArgumentError("these results were unpickled without the model that draws: draw before they are pickled")
        return self._model._draw(self, image, to, bgr)

    def _struct(self) -> Tuple[Any, Any]:
        return None, None


class Classes(Found):
    """Of a classifier: the likeliest classes; scores are probabilities."""


@dataclasses.dataclass(eq=False, repr=False)
class Detections(Found):
    """Boxes are x1 y1 x2 y2 in pixels: the left edge of the first pixel is 0."""

    boxes: np.ndarray  # float32 [n, 4]
    runs: List[np.ndarray]  # uint32: of masks, column by column, background first; [] is no mask

    def mask(self, i: int) -> np.ndarray:
        """bool [height, width]"""
        if not len(self.runs[i]):
            return np.zeros((self.height, self.width), bool)
        return np.repeat(np.arange(len(self.runs[i])) % 2 == 1, self.runs[i]).reshape(self.width, self.height).T

    @property
    def masks(self) -> np.ndarray:
        """bool [n, height, width], made when it is asked for"""
        return np.array([self.mask(i) for i in range(len(self))], bool).reshape(-1, self.height, self.width)

    def _rle(self, i: int) -> "_abi.Rle":
        counts = self.runs[i].ctypes.data_as(ctypes.POINTER(ctypes.c_uint32))
        return _abi.Rle(self.height, self.width, len(self.runs[i]), counts)

    def to_coco(self, image_id: int) -> List[Dict[str, Any]]:
        """Entries of COCO's result format, for json.dump and cocoeval."""
        entries = []
        for i in range(len(self)):
            x1, y1, x2, y2 = map(float, self.boxes[i])
            entry: Dict[str, Any] = {"image_id": image_id, "category_id": int(self.category_ids[i]),
                                     "bbox": [x1, y1, x2 - x1, y2 - y1], "score": float(self.scores[i])}
            if len(self.runs[i]):
                rle = self._rle(i)
                text = ctypes.create_string_buffer(_abi.lib.mask_string(rle, None, 0) + 1)
                _abi.lib.mask_string(rle, text, len(text))
                entry["segmentation"] = {"size": [self.height, self.width], "counts": text.value.decode()}
            entries.append(entry)
        return entries

    def _struct(self) -> Tuple[Any, Any]:
        """The C result that these came from, and what has to stay with it."""
        n = len(self)
        lengths = {len(part) for part in (self.boxes, self.labels, self.category_ids, self.names, self.runs)}
        if lengths != {n} or np.shape(self.boxes) != (n, 4):
            raise ArgumentError("boxes, scores, labels, category_ids, names and runs are not of the same detections")
        if any(len(r) and int(np.sum(r, dtype=np.uint64)) != self.height * self.width for r in self.runs):
            raise ArgumentError(f"the runs of a mask do not add up to {self.height} x {self.width} pixels")
        arrays: List[np.ndarray] = [np.ascontiguousarray(a, t) for a, t in (
            (self.boxes, np.float32), (self.scores, np.float32), (self.labels, np.int32),
            (self.category_ids, np.int64))]
        names = (ctypes.c_char_p * n)(*(name.encode() for name in self.names))
        rles = [self._rle(i) for i in range(n)]
        masks = (ctypes.POINTER(_abi.Rle) * n)(*(ctypes.pointer(rle) for rle in rles))
        pointers = [a.ctypes.data_as(t) for (_, t), a in zip(_abi.Detections._fields_[1:5], arrays)]
        found = _abi.Detections(n, *pointers, names, masks)
        result = _abi.Result(0, b"", _abi.DETECTIONS, self.width, self.height, ctypes.pointer(found), None)
        return result, (arrays, names, rles, masks, found)


def copied(pointer, n: int, dtype) -> np.ndarray:
    return np.ctypeslib.as_array(pointer, (n,)).astype(dtype, copy=True) if n else np.empty(0, dtype)


def of_result(result: "_abi.Result", model: Any) -> Found:
    found = (result.detections if result.kind == _abi.DETECTIONS else result.classes).contents
    n = found.n
    names = [found.names[i].decode(errors="replace") for i in range(n)]
    common = (result.height, result.width, copied(found.scores, n, np.float32), copied(found.labels, n, np.int32),
              copied(found.category_ids, n, np.int64), names, model)
    if result.kind != _abi.DETECTIONS:
        return Classes(*common)
    masks = [found.masks[i].contents for i in range(n)]
    return Detections(*common, copied(found.boxes, 4 * n, np.float32).reshape(n, 4),
                      [copied(m.counts, m.num_counts, np.uint32) for m in masks])
