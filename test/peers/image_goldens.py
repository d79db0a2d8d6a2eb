"""Writes test/goldens/images: small JPEGs and PNGs and their pixels as Pillow, which links libjpeg-turbo, decodes them.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy pillow
    /tmp/venv/bin/python test/peers/image_goldens.py

Beside X.jpg or X.png lies X.ppm. What is in the folder already gets its pixels anew; what Pillow refuses has none.
"""
import glob
import os

import numpy as np
from PIL import Image

FOLDER = "test/goldens/images"
REFUSED = ["jpeg-missing-scans.jpg", "jpeg-zero-length.jpg"]  # by us, on purpose


def picture(h, w):
    """Gradients with hard edges in colour, where decoders differ."""
    y, x = np.mgrid[0:h, 0:w]
    rgb = np.stack([13 * x + 5 * y, 9 * y, 255 - 11 * x], axis=-1)
    rgb[:, w - w // 3:] = [200, 30, 60]
    rgb[h // 2:, : w // 4] = [20, 220, 90]
    return Image.fromarray(rgb.clip(0, 255).astype(np.uint8))


def main():
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        name = os.path.join(FOLDER, subsampling.replace(":", ""))
        picture(13, 19).save(f"{name}.jpg", quality=80, subsampling=subsampling)
        picture(13, 19).save(f"{name}-progressive.jpg", quality=80, subsampling=subsampling, progressive=True)
        picture(9, 4).save(f"{name}-narrow.jpg", quality=80, subsampling=subsampling)
    picture(11, 17).convert("CMYK").save(os.path.join(FOLDER, "cmyk.jpg"), quality=80)
    picture(11, 17).convert("L").save(os.path.join(FOLDER, "gray.jpg"), quality=80)
    for path in sorted(glob.glob(f"{FOLDER}/*.jpg") + glob.glob(f"{FOLDER}/*.png")):
        if os.path.basename(path) in REFUSED:
            continue
        try:
            Image.open(path).convert("RGB").save(os.path.splitext(path)[0] + ".ppm")
        except OSError as error:
            print(f"{path}: {error}")


if __name__ == "__main__":
    main()
