"""Mask R-CNN inference: Model("model.safetensors")("photo.jpg") is the detections of a photograph, as numpy arrays.

`python -m maskrcnn` and the command `maskrcnn` run the programs train, infer, doctor and others."""
from ._abi import lib as _lib
from .errors import ArgumentError, DeadError, DeviceError, Error, ImageError, OutOfMemory, WeightsError
from .model import Info, Model
from .results import Classes, Detections

__version__ = _lib.version().decode().split()[0]
__all__ = ["ArgumentError", "Classes", "DeadError", "Detections", "DeviceError", "Error", "ImageError", "Info", "Model",
           "OutOfMemory", "WeightsError"]
