"""Folders of runs, made up: the facts that ./train leaves (training/run_facts.c, evaluation/), with names and ends that
a test chooses. Figures are smooth functions, so that a test knows them."""
import json
import math
import os
import struct
import zlib

LOSSES = {"loss": "total", "loss_classifier": "classifier", "loss_box_reg": "box", "loss_mask": "mask",
          "loss_objectness": "objectness", "loss_rpn_box_reg": "RPN box"}
SCORES = {"bbox_AP": "box AP", "bbox_AP50": "box AP50", "segm_AP": "mask AP", "segm_AP50": "mask AP50"}
SCORES_OF_CELLS = [0.05, 0.25, 0.5, 0.75]
COLUMNS = ["objects", "box AP", "box AP50", "mask AP", "mask AP50", "mask AR", "precision @0.5", "recall @0.5"]


def png(width, height, colour):
    """The bytes of a picture of one colour."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = b"".join(b"\0" + bytes(colour) * width for _ in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def panel(title, unit, curves, log=False, noisy=False, metrics=False):
    return {"title": title, "unit": unit, "log": log, "noisy": noisy, "metrics": metrics,
            "curves": [{"key": k, "label": v} for k, v in curves.items()]}


class Run:
    """What a run's folder says. Change members, then write(folder)."""

    def __init__(self, steps=120, every=20, categories=("disc", "square", "star"), classifier=False, loss=None, ap=None):
        self.steps, self.every, self.categories, self.classifier = steps, every, list(categories), classifier
        self.loss = loss or (lambda step: 0.5 + 3 * math.exp(-step / 40) + 0.1 * math.sin(7 * step))
        self.ap = ap or (lambda step: 0.4 * math.sin(math.pi * step / (1.4 * self.steps)))  # best before the end
        self.log = []
        self.run = {
            "state": "complete", "model": "vgg-28" if classifier else "tiny", "data": "a/set", "device": "CPU, 1 thread",
            "classes": len(self.categories) + (not classifier), "images": 800, "val_images": 60, "step": steps,
            "steps": steps, "complete": True, "batch": 8, "world": 1, "per_epoch": 100, "rollbacks": 0,
            "parameters": 1362321, "date": "2026-01-02T03:04:05Z", "commit": "0123456", "clean": True,
            "command": "./train --data a/set --out run --lr 0.05 --clip-grad 10 --eval-every 20 --warmup=100",
            "machine": {"cpu": "a CPU", "gpu": None},
            "settings": {"data": {"value": "a/set", "from": "given"}, "lr": {"value": 0.05, "from": "given"},
                         "clip-grad": {"value": 10, "from": "default"}, "seed": {"value": 1, "from": "default"}},
            "data_text": "data: 800 images to train on\nevaluation: 60 images\n", "warnings": [],
            "panels": self.panels(), "timed_steps": 3,
            "time": [{"name": "training steps", "seconds": 50}, {"name": "start", "seconds": 4},
                     {"name": "evaluations", "seconds": 8.5}],
            "parts": [{"name": "backbone", "forward": 0.02, "backward": 0.04}, {"name": "update", "forward": 0.001,
                                                                               "backward": None}],
            "memory": [{"name": "activations", "place": "device", "bytes": 151119872}], "seconds": 100, "img_s": 12.5,
            "phase": []}
        self.evaluation = self.classes() if classifier else self.objects()

    def panels(self):
        """As training/run_facts.c has them."""
        if self.classifier:
            first = [panel("Losses", "loss", {"loss": "total", "loss_class": "classes"}, log=True, noisy=True),
                     panel("Accuracy", "accuracy", {"val_top1": "top-1", "val_top5": "top-5"}, metrics=True)]
        else:
            first = [panel("Losses", "loss", LOSSES, log=True, noisy=True),
                     panel("Average precision", "AP", SCORES, metrics=True)]
        return first + [panel("Validation loss", "loss", {"val_loss": "Validation loss"}, log=True),
                        panel("Gradient norm", "L2 norm", {"grad_norm": "Gradient norm"}, log=True, noisy=True),
                        panel("Learning rate", "learning rate", {"lr": "Learning rate"}),
                        panel("Speed", "images per second", {"img_s": "Speed"}),
                        panel("Data-loading wait", "seconds per step", {"wait": "Data-loading wait"}, noisy=True)]

    def evaluated(self):
        """The steps of evaluations."""
        return list(range(self.every, self.steps + 1, self.every))

    def scores(self, step):
        ap = self.ap(step)
        if self.classifier:
            return {"val_loss": self.loss(step) + 0.1, "val_top1": ap, "val_top5": min(1, 2 * ap)}
        return {"val_loss": self.loss(step) + 0.1, "bbox_AP": ap, "bbox_AP50": 1.6 * ap, "bbox_AP75": 0.8 * ap,
                "bbox_AP_large": None, "segm_AP": 0.9 * ap, "segm_AP50": 1.5 * ap}

    def records(self):
        losses = ["loss_class"] if self.classifier else list(LOSSES)[1:]
        for step in range(1, self.steps + 1):
            loss = self.loss(step)
            record = {"step": step, "kind": "train", "lr": 0.05 * (1 - step / (2 * self.steps)), "loss": loss}
            record.update({key: loss / len(losses) for key in losses})
            record.update({"grad_norm": 2 + math.sin(step), "img_s": None if step == 1 else 12.5, "wait": 1e-5,
                           "seconds": 0.6 * step})
            yield record
            if step % self.every == 0:
                yield {"step": step, "kind": "eval", **self.scores(step), "images": 60, "left_out": 0,
                       "clock": {"at": 0.6 * step, "took": 1.5}}

    def objects(self):
        names, n = self.categories, len(self.categories)
        # Most objects are found, each category's next is what it is taken for, some are missed, one detection is false.
        cells = []  # how often at each of the scores, without zeros at the end
        for i in range(n):
            found, taken = [20 + i, 15 + i, 9, 0], [3, 2, 1, 0] if n > 1 else [0] * 4  # taken: for the next category
            missed = [25 + i - f - t for f, t in zip(found, taken)]
            cells += [[i, i, found[:3]], [i, n, missed], [n, i, [40 + i, 5]]] + ([[i, (i + 1) % n, taken[:3]]] if n > 1 else [])
        recall = [r / 100 for r in range(101)]
        curve = lambda name: [name, recall, [max(0, 1 - r * r) for r in recall]]
        return {
            "step": self.steps - self.steps % self.every, "images": 60, "left_out": 0,
            "rule": "Rows are true categories, columns are predicted ones.",
            "metrics": self.scores(self.steps - self.steps % self.every),
            "columns": COLUMNS,
            "categories": [[name, 25 + i, 0.1 + i / (2 * n), 0.2 + i / (2 * n), 0.1, 0.2, None, 0.8, 0.5]
                           for i, name in enumerate(names)],
            "panels": [{"title": t, "x": "recall", "unit": "precision", "curves": [curve("IoU 0.50"), curve("IoU 0.75")]}
                       for t in ("Boxes, all categories", "Masks, all categories")],
            "category_panels": [{"title": name, "x": "recall", "unit": "precision", "curves": [curve("boxes, IoU 0.50")]}
                                for name in names],
            "confusion": {"background": True, "names": names + ["background"], "scores": SCORES_OF_CELLS,
                          "report_score": 0.5, "opens_at": 0.25, "highest_score": 0.74,
                          "objects": [25 + i for i in range(n)], "cells": sorted(cells)},
            "pictures": [["Worst images", "000001.png", "quality 0.00: 0 correct, 8 missed, 0 false positives", "pictures/a-truth.png",
                          "pictures/a-found.png"],
                         ["Best images", "000002.png", "quality 0.61: 2 correct, 1 missed, 0 false positives", "pictures/b-truth.png",
                          "pictures/b-found.png"]]}

    def classes(self):
        names, n = self.categories, len(self.categories)
        cells = sorted([[i, i, 20 + i] for i in range(n)] + [[i, (i + 1) % n, 3 + i] for i in range(n) if n > 1])
        return {
            "step": self.steps - self.steps % self.every, "images": 60, "left_out": 0,
            "rule": "Rows are true classes, columns are the predicted ones (highest probability).",
            "metrics": self.scores(self.steps - self.steps % self.every),
            "columns": ["images", "recall", "precision", "F1"],
            "categories": [[name, 23 + i, 0.5 + i / (4 * n), 0.6, 0.55] for i, name in enumerate(names)],
            "panels": [], "category_panels": [],
            "confusion": {"background": False, "names": names, "cells": cells},
            "pictures": [["Most confident errors", "a/000033.png", "true a, predicted b (57.0\xa0%)", "pictures/a-truth.png", None]]}

    def write(self, folder, log_only=False):
        os.makedirs(os.path.join(folder, "pictures"), exist_ok=True)
        with open(os.path.join(folder, "log.jsonl"), "w", encoding="utf-8") as f:
            for record in self.log or self.records():
                f.write(json.dumps(record, separators=(",", ":")) + "\n")
        if log_only:
            return folder
        for name, facts in (("run.json", self.run), ("evaluation.json", self.evaluation)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                json.dump(facts, f, separators=(",", ":"), ensure_ascii=False)
        best = max(self.evaluated(), key=self.ap, default=None)
        if best:
            name, key = ("best-top1", "val_top1") if self.classifier else ("best-bbox", "bbox_AP")
            with open(os.path.join(folder, "best.json"), "w", encoding="utf-8") as f:
                json.dump({name: {key: self.ap(best), "step": best}}, f)
            open(os.path.join(folder, name + ".safetensors"), "w").close()
        for at, colour in (("a-truth", (200, 60, 60)), ("a-found", (60, 200, 60)), ("b-truth", (60, 60, 200)),
                           ("b-found", (200, 200, 60))):
            with open(os.path.join(folder, "pictures", at + ".png"), "wb") as f:
                f.write(png(64, 48, colour))
        return folder
