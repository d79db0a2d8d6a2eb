"""Figures quoted in docs/course/: nodes of a training step and of inference, from the first table of each profile."""
import json
import re

from records import Refused

TRAINING, INFERENCE = "profile-b4-h200.txt", "profile-infer-h200.txt"


def record(name):
    """Of the run that a profile's first table is of."""
    return lambda results: json.loads(results.text(name).split("\n", 1)[0])


def passes(results, name, node):
    """[(ms, percent of the ceiling or None)] of a node's forward and, where it has one, backward."""
    line = re.search(rf"^{re.escape(node)} +\S+ +\S+ +[\d.]+%(.*)$", results.text(name), re.M)
    if not line:
        raise Refused(f"results/{name}: no node is called {node}")
    return [(float(ms), float(share) if share else None)
            for ms, share in re.findall(r"([\d.]+) ms(?: +[\d.]+ \S+ +([\d.]+)%)?", line.group(1))]


def time(name, node, which=0):
    return lambda results: f"{1e3 * passes(results, name, node)[which][0]:.0f} µs"


def share(name, node, which=0):
    return lambda results: f"{passes(results, name, node)[which][1]:.0f} %"


def member(name, key, digits):
    return lambda results: f"{record(name)(results)[key]:.{digits}f}"


VALUES = {
    "course.commit": lambda results: record(TRAINING)(results)["commit"],
    "course.step": member(TRAINING, "step_ms", 2),
    "course.backward": member(TRAINING, "backward_ms", 2),
    "course.select": time(TRAINING, "rpn_select"),
    "course.nms": time(TRAINING, "rpn_nms"),
    "course.class-nms": time(INFERENCE, "class_nms"),
    "course.roi.forward": time(TRAINING, "box_roi_align"),
    "course.roi.backward": time(TRAINING, "box_roi_align", 1),
    "course.roi.forward.share": share(TRAINING, "box_roi_align"),
    "course.roi.backward.share": share(TRAINING, "box_roi_align", 1),
}
