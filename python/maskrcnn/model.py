"""Model: weights on a device. Any thread may call it, several at a time; it does not survive a fork."""
import collections
import contextlib
import ctypes
import itertools
import logging
import operator
import os
import threading
import time
import weakref
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _abi
from .errors import BY_STATUS, ArgumentError, DeadError, Error, ImageError, WeightsError, of_image
from .images import fill, is_one, name_of
from .results import Found, of_result

lib = _abi.lib
logger = logging.getLogger("maskrcnn")
logger.addHandler(logging.NullHandler())
_tags = itertools.count(1)  # of submissions, over all models


@_abi.Log
def _log(_context, level, message):
    logger.log({1: logging.INFO, 2: logging.WARNING}.get(level, logging.ERROR), "%s", message.decode(errors="replace"))


class Info(NamedTuple):
    """What was opened."""

    model: str  # "maskrcnn", "resnet", …
    device: str  # "NVIDIA H200, 132 SMs, 140 GiB"
    why_cpu: str  # why "auto" took the CPU; "": it did not
    is_classifier: bool
    categories: Dict[int, str]  # by id
    image_size: int
    max_image_size: int
    batch: int
    queue: int
    threads: int
    device_bytes: int
    host_bytes: int


def _check(status: int, error: "_abi.Error") -> int:
    if status < 0:
        raise BY_STATUS.get(status, Error)(error.message.decode(errors="replace"))
    return status


def _check_errors(errors: str) -> None:
    if errors not in ("raise", "return"):
        raise ArgumentError(f'errors is {errors!r}; it has to be "raise" or "return"')


def _text(name: str, value: Union[str, bytes, "os.PathLike[str]"]) -> bytes:
    """For C, which would end it at a zero."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise ArgumentError(f"{name} is {value!r}; it has to be text")
    data = os.fsencode(value)
    if b"\0" in data:
        raise ArgumentError(f"{name} is {value!r}, which has a zero byte")
    return data


def _option(name: str, kind: Any, value: Any) -> Any:
    """The value as the C member takes it: ctypes would cut numbers off."""
    if kind is ctypes.c_char_p:
        return None if value is None else _text(name, value)
    try:
        if kind in (ctypes.c_float, ctypes.c_double):
            return float(value)
        number = operator.index(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name} is {value!r}; it has to be a number") from None
    if kind(number).value != number:
        raise ArgumentError(f"{name} is {number}, which is out of range")
    return number


class _Open:
    """A handle of this process, and how many calls are under way."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self.handle, self.pid, self.calls, self.changed = handle, os.getpid(), 0, threading.Condition()

    def close(self) -> None:
        if os.getpid() == self.pid and not self.calls:  # the program may end while a daemon thread is within a call
            lib.close(self.handle)


class Model:
    """model = Model("model.safetensors"); model("photo.jpg").boxes

    weights: a file's path, or its contents as bytes. device: "auto" (the first usable GPU, else the CPU), "cpu",
    "cuda:0". batch: images computed at a time, at most. threads: of the CPU; 0: one per core. The other options are
    maskrcnn_options' in include/maskrcnn.h: amp, tf32, queue, min_score, mask_threshold, image_size, max_image_size,
    max_pixels, top, detections_per_image, proposals_per_image, nms, set, exif, max_device_bytes, max_host_bytes, and
    canvases as [(height, width), …]. What is logged goes to logging.getLogger("maskrcnn")."""

    def __init__(self, weights: Union[str, "os.PathLike[str]", bytes], device: str = "auto", *, batch: int = 1,
                 threads: int = 0, canvases: Sequence[Tuple[int, int]] = (), **options: Any) -> None:
        o, error, handle = _abi.Options(), _abi.Error(), ctypes.c_void_p()
        lib.options_init(o, ctypes.sizeof(o))
        if not isinstance(weights, (str, bytes, os.PathLike)):
            raise ArgumentError(f"weights is {weights!r}; give a file's path, or its contents as bytes")
        if weights == b"":
            raise WeightsError("the weights are empty")
        if isinstance(weights, bytes):
            o.weights_data, o.weights_bytes = weights, len(weights)
        else:
            o.weights = _text("weights", weights)
        o.log = _log
        try:
            sizes = (_abi.Size * len(canvases))(*(tuple(map(operator.index, size)) for size in canvases))
        except TypeError:
            raise ArgumentError(f"canvases is {canvases!r}; it has to be [(height, width), …]") from None
        if len(canvases):
            o.canvases, o.num_canvases = sizes, len(canvases)
        taken = {name for name, _ in _abi.Options._fields_[5:]} - {"num_canvases", "log_context", "log"}
        kinds = dict(_abi.Options._fields_)
        for name, value in {"device": device, "batch": batch, "threads": threads, **options}.items():
            if name not in taken and name not in ("device", "batch", "threads"):
                raise TypeError(f"Model has no option {name!r}; it has {', '.join(sorted(taken))}")
            setattr(o, name, _option(name, kinds[name], value))
        _check(lib.open(handle, o, error), error)
        self._open = _Open(handle)
        self._end = weakref.finalize(self, self._open.close)
        self.info = self._describe()

    def _describe(self) -> Info:
        d = lib.describe(self._open.handle).contents
        ids = d.category_ids[:d.num_categories] if d.num_categories else []
        categories = {i: d.category_names[k].decode(errors="replace") for k, i in enumerate(ids)}
        return Info(d.model.decode(), d.device.decode(), d.why_cpu.decode(), d.kinds[0] != _abi.DETECTIONS, categories,
                    d.image_size, d.max_image_size, d.batch, d.queue, d.threads, d.device_bytes, d.host_bytes)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self):
        raise TypeError("a Model cannot be pickled: open it in the process that uses it")

    def close(self) -> None:
        """Frees the device, after the calls that other threads have under way."""
        if os.getpid() != self._open.pid:
            return
        with self._open.changed:
            while self._open.calls:
                self._open.changed.wait()
            self._end()

    @contextlib.contextmanager
    def _call(self) -> Iterator[ctypes.c_void_p]:
        """The handle, for a call during which it stays open."""
        self._usable()  # in a fork's child the lock may be another thread's
        with self._open.changed:
            handle = self._usable()
            self._open.calls += 1
        try:
            yield handle
        finally:
            with self._open.changed:
                self._open.calls -= 1
                self._open.changed.notify_all()

    def _usable(self) -> ctypes.c_void_p:
        if os.getpid() != self._open.pid:
            raise DeadError(f"this Model was opened in process {self._open.pid}, of which this is a fork: open it here, too")
        if not self._end.alive:
            raise DeadError("this Model was closed: open another")
        return self._open.handle

    def __call__(self, images: Any, *, bgr: bool = False, errors: str = "raise") -> Any:
        """What is in an image, or, of a list or tuple of images, a list. An image is a numpy array (uint8 [height,
        width, 3], RGB or with `bgr` OpenCV's order; [height, width, 4]; [height, width]; uint16 [height, width]), an
        array on the model's GPU (__cuda_array_interface__, complete), a path, the bytes of a JPEG or PNG file, or a
        file object. An image that cannot be used raises ImageError; with errors="return" that stands in its place, and
        the others have their results."""
        several = isinstance(images, (list, tuple))
        found = self._run(list(images) if several else [images], bgr, errors)
        return found if several else found[0]

    def _run(self, images: List[Any], bgr: bool, errors: str) -> List[Union[Found, Error]]:
        self._usable()
        prepared = self._prepare(images, bgr, errors)
        out, error = ctypes.POINTER(_abi.Results)(), _abi.Error()
        with self._call() as handle:
            _check(lib.run(handle, prepared.structs, prepared.n, out, error), error)
        return self._take(out, prepared, errors)

    class _Prepared(NamedTuple):
        structs: Any  # maskrcnn_image [n]
        n: int
        names: List[str]  # of all images
        kept: List[Any]  # what they point to
        refused: Dict[int, Error]  # by index, of those that are not among them

    def _prepare(self, images: List[Any], bgr: bool, errors: str, first: int = 0) -> "_Prepared":
        _check_errors(errors)
        structs, names, kept = (_abi.Image * len(images))(), list(map(name_of, images)), []  # type: Any, Any, List[Any]
        refused: Dict[int, Error] = {}
        for i, source in enumerate(images):
            try:
                kept.append(fill(structs[len(kept)], source, bgr))
            except ImageError as e:
                refused[i] = of_image(-5, first + i, names[i], str(e))
                if errors == "raise":
                    raise refused[i] from None
        return Model._Prepared(structs, len(kept), names, kept, refused)

    def _take(self, out: Any, prepared: "_Prepared", errors: str, first: int = 0) -> List[Union[Found, Error]]:
        found: List[Union[Found, Error]] = []
        try:
            results = out.contents
            for i in range(results.n + len(prepared.refused)):
                if i in prepared.refused:
                    found.append(prepared.refused[i])
                    continue
                result = results.images[len(found) - sum(k < i for k in prepared.refused)].contents
                if result.status:
                    message = result.message.decode(errors="replace")
                    found.append(of_image(result.status, first + i, prepared.names[i], message))
                else:
                    found.append(of_result(result, self))
        finally:
            lib.results_free(out)
        if errors == "raise":
            for f in found:
                if isinstance(f, Error):
                    raise f
        return found

    def stream(self, images: Iterable[Any], *, bgr: bool = False, errors: str = "raise") -> Iterator[Any]:
        """The results of many images, in their order: later ones are read and copied while earlier ones are computed,
        `info.batch` at a time and as many as `info.queue` holds."""
        _check_errors(errors)
        if is_one(images):
            raise ArgumentError("stream takes several images, as a list or an iterator: call the model with this one")
        return self._stream(images, bgr, errors)

    def _stream(self, images: Iterable[Any], bgr: bool, errors: str) -> Iterator[Any]:
        waiting: "collections.deque[Tuple[int, Any, int]]" = collections.deque()
        try:
            for index, image in enumerate(images):
                self._usable()
                prepared = self._prepare([image], bgr, "return", index)
                tag, error = next(_tags), _abi.Error()
                if prepared.refused:
                    waiting.append((0, prepared, index))
                else:
                    while self._submit(prepared, tag, error) == _abi.FULL:
                        if waiting:
                            yield self._next(waiting, errors)
                        else:
                            time.sleep(0.001)  # the queue is another thread's
                    waiting.append((tag, prepared._replace(structs=None, kept=[]), index))
            while waiting:
                yield self._next(waiting, errors)
        finally:  # left early
            for tag, _, _ in waiting:
                out = ctypes.POINTER(_abi.Results)()
                with contextlib.suppress(DeadError):
                    if tag:
                        with self._call() as handle:
                            lib.cancel(handle, tag, None)
                            lib.wait(handle, tag, -1, out, None)
                        lib.results_free(out)

    def _submit(self, prepared: "_Prepared", tag: int, error: "_abi.Error") -> int:
        with self._call() as handle:
            return _check(lib.submit(handle, prepared.structs, 1, tag, error), error)

    def _next(self, waiting: Any, errors: str) -> Any:
        tag, prepared, index = waiting.popleft()
        if not tag and errors == "raise":
            raise prepared.refused[0]
        if not tag:
            return prepared.refused[0]
        out, error = ctypes.POINTER(_abi.Results)(), _abi.Error()
        with self._call() as handle:
            _check(lib.wait(handle, tag, -1, out, error), error)
        return self._take(out, prepared, errors, index)[0]

    def _draw(self, found: Found, image: Any, to: Optional[str], bgr: bool) -> np.ndarray:
        prepared, error = self._prepare([image], bgr, "raise"), _abi.Error()
        picture = ctypes.POINTER(_abi.Picture)()
        result, kept = found._struct()
        path = None if to is None else _text("to", to)
        with self._call() as handle:
            status = lib.draw(handle, prepared.structs, result, picture, error)
            if status == _abi.BAD_IMAGE:
                raise of_image(status, 0, prepared.names[0], error.message.decode(errors="replace"))
            _check(status, error)
        try:
            p = picture.contents
            drawn = np.ctypeslib.as_array(p.rgb, (p.height, p.width, 3)).copy()
            if path is not None:
                _check(lib.write_png(picture, path, error), error)
        finally:
            lib.picture_free(picture)
        del kept
        return drawn
