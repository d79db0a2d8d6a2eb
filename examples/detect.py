"""Finds what is in a photograph and draws it: python3 detect.py weights.safetensors photo.jpg found.png [device]"""
import sys

import maskrcnn


def main(weights, photo, to, device="auto"):
    found = maskrcnn.Model(weights, device)(photo)
    for i, name in enumerate(found.names):
        at = "" if isinstance(found, maskrcnn.Classes) else " at {:.1f} {:.1f} {:.1f} {:.1f}".format(*found.boxes[i])
        print(f"{name} {found.scores[i]:.3f}{at}")
    found.draw(photo, to=to)


if len(sys.argv) not in (4, 5):
    sys.exit("usage: python3 detect.py WEIGHTS PHOTO OUT.png [DEVICE]")
try:
    main(*sys.argv[1:])
except maskrcnn.Error as e:
    sys.exit(str(e))
