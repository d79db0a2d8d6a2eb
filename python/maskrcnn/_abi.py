"""include/maskrcnn.h for ctypes: its structs, in its order, and its functions. The wheel has the library in native/."""
import ctypes
import os
import pathlib
from ctypes import POINTER, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

MAJOR = 2
OK, FULL, NOT_YET, BAD_IMAGE = 0, 1, 2, -5
DETECTIONS = 1
RGB, BGR, RGBA, GREY, GREY16, ENCODED = 1, 2, 3, 4, 5, 6
HOST, GPU = 0, 1


def struct(name, **members):
    return type(name, (ctypes.Structure,), {"_fields_": list(members.items())})


Log = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
Error = struct("Error", message=ctypes.c_char * 1024)
Size = struct("Size", height=c_int, width=c_int)
Options = struct(
    "Options", size=c_size_t, weights=c_char_p, weights_data=c_char_p, weights_bytes=c_size_t, device=c_char_p,
    amp=c_char_p, tf32=c_int, conv=c_char_p, batch=c_int, queue=c_int, threads=c_int, min_score=c_float,
    mask_threshold=c_float, image_size=c_int, max_image_size=c_int, max_pixels=c_int64, canvases=POINTER(Size),
    num_canvases=c_int, sync_nodes=c_int, top=c_size_t, detections_per_image=c_size_t, proposals_per_image=c_size_t,
    nms=c_float, set=c_char_p, exif=c_int, max_device_bytes=c_size_t, max_host_bytes=c_size_t, log=Log,
    log_context=c_void_p)
Description = struct(
    "Description", model=c_char_p, device=c_char_p, why_cpu=c_char_p, amp=c_char_p, num_kinds=c_int,
    kinds=POINTER(c_int), num_categories=c_int, category_ids=POINTER(c_int64), category_names=POINTER(c_char_p),
    detections_per_image=c_int, image_size=c_int, max_image_size=c_int, resize_rule=c_char_p, num_canvases=c_int,
    canvases=POINTER(Size), batch=c_int, queue=c_int, threads=c_int, max_pixels=c_int64, device_bytes=c_size_t,
    host_bytes=c_size_t, exif=c_int, range_low=c_int, range_high=c_int)
Image = struct("Image", size=c_size_t, data=c_void_p, format=c_int, width=c_int, height=c_int, pitch=c_int64,
               bytes=c_size_t, place=c_int, range_low=c_int, range_high=c_int)
Rle = struct("Rle", height=c_int, width=c_int, num_counts=c_int, counts=POINTER(c_uint32))
Detections = struct("Detections", n=c_int, boxes=POINTER(c_float), scores=POINTER(c_float), labels=POINTER(c_int),
                    category_ids=POINTER(c_int64), names=POINTER(c_char_p), masks=POINTER(POINTER(Rle)))
Classes = struct("Classes", n=c_int, scores=POINTER(c_float), labels=POINTER(c_int), category_ids=POINTER(c_int64),
                 names=POINTER(c_char_p))
Result = struct("Result", status=c_int, message=c_char_p, kind=c_int, width=c_int, height=c_int,
                detections=POINTER(Detections), classes=POINTER(Classes))
Results = struct("Results", tag=c_uint64, n=c_int, images=POINTER(POINTER(Result)), failed=c_int)
Picture = struct("Picture", width=c_int, height=c_int, rgb=POINTER(c_uint8))

FUNCTIONS = {  # name: result, arguments
    "version": (c_char_p,),
    "options_init": (None, POINTER(Options), c_size_t),
    "open": (c_int, POINTER(c_void_p), POINTER(Options), POINTER(Error)),
    "close": (None, c_void_p),
    "describe": (POINTER(Description), c_void_p),
    "run": (c_int, c_void_p, POINTER(Image), c_int, POINTER(POINTER(Results)), POINTER(Error)),
    "submit": (c_int, c_void_p, POINTER(Image), c_int, c_uint64, POINTER(Error)),
    "wait": (c_int, c_void_p, c_uint64, c_int, POINTER(POINTER(Results)), POINTER(Error)),
    "cancel": (c_int, c_void_p, c_uint64, POINTER(Error)),
    "results_free": (None, POINTER(Results)),
    "mask_string": (c_size_t, POINTER(Rle), c_char_p, c_size_t),
    "draw": (c_int, c_void_p, POINTER(Image), POINTER(Result), POINTER(POINTER(Picture)), POINTER(Error)),
    "picture_free": (None, POINTER(Picture)),
    "write_png": (c_int, POINTER(Picture), c_char_p, POINTER(Error)),
}
NATIVE = pathlib.Path(__file__).parent / "native"


def load():
    """MASKRCNN_LIBRARY names another library than the wheel's."""
    path = os.environ.get("MASKRCNN_LIBRARY") or str(NATIVE / f"libmaskrcnn.so.{MAJOR}")
    try:
        library = ctypes.CDLL(path)
        for name, (result, *arguments) in FUNCTIONS.items():
            function = getattr(library, "maskrcnn_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(library, name, function)
    except (OSError, AttributeError) as e:
        hint = f"install the wheel, or name libmaskrcnn.so.{MAJOR} in MASKRCNN_LIBRARY"
        raise ImportError(f"{path}: {e}; {hint}") from None
    found = library.version().decode()
    if not found.startswith(f"{MAJOR}."):
        raise ImportError(f"{path}: it is version {found}, and this package needs {MAJOR}")
    return library


lib = load()
