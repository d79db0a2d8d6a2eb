"""What can go wrong, each with one sentence that says what, where and what to do."""


class Error(Exception):
    """Of maskrcnn; the base of all that follow."""


class ArgumentError(Error, ValueError):
    """An option or argument is not possible."""


class WeightsError(Error, ValueError):
    """The weights are missing, damaged, or of a model that the options do not fit."""


class DeviceError(Error, RuntimeError):
    """The device is not there or cannot be used, or this CPU is too old."""


class OutOfMemory(Error, MemoryError):
    """There is not enough memory, or it would exceed max_device_bytes or max_host_bytes."""


class ImageError(Error, ValueError):
    """An image cannot be used. `index` is its place among those given."""

    index = 0


class DeadError(Error, RuntimeError):
    """The model cannot go on: it was closed, the process was forked, or its device failed. Open another."""


BY_STATUS = {-1: ArgumentError, -2: WeightsError, -3: DeviceError, -4: OutOfMemory, -5: ImageError, -6: DeadError,
             -7: DeadError, -8: Error}


def of_image(status, index, name, message):
    """Of the image with that place among those given, and with that path, if it has one."""
    kind = BY_STATUS.get(status, Error)
    e = kind(f"image {index} ({name}): {message}" if name else f"image {index}: {message}")
    e.index = index
    return e
