"""The table of docs/classification.md: vgg-28 trained by ours and by PyTorch, by set and augmented epochs."""
import collections
import statistics

from conv_figures import table
from records import Refused

FILE = "vgg28-h200"
SETS = {"mnist": "MNIST", "fashion": "Fashion-MNIST, a part"}
OURS, PEERS = "vgg28", "vgg28-peer"


def settings(records):
    """By set, type and augmented epochs, in the order of first mention: by whose they are the newest of each seed."""
    found = collections.OrderedDict()
    for r in records:
        of = found.setdefault((r["set"], r["dtype"], r["augmented"]), {OURS: {}, PEERS: {}})
        of[r["bench"]][r["seed"]] = r
    return found


def same_work(key, of):
    """The seeds that both have; refuses those of other images or steps, which do not compare."""
    seeds = sorted(of[OURS].keys() & of[PEERS].keys())
    for seed in seeds:
        for what in ("images", "val_images", "steps", "batch", "parameters"):
            ours, peers = (of[whose][seed][what] for whose in (OURS, PEERS))
            if ours != peers:
                raise Refused(f"results/{FILE}.jsonl: {key}, seed {seed}: {what} is {ours}, of PyTorch's {peers}")
    return seeds


def accuracy(runs):
    """Mean and, of several, standard deviation over seeds, percent."""
    found = [100 * r["val_top1"] for r in runs]
    return f"{statistics.fmean(found):.2f}" + (f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else "")


def speeds(sides, what, digits):
    """Ours / PyTorch's, of those seeds that both sides trained with the GPU to themselves."""
    alone = [(ours, peers) for ours, peers in zip(*sides) if "together" not in ours and "together" not in peers]
    return " / ".join(f"{statistics.fmean(map(what, runs)):.{digits}f}" for runs in zip(*alone)) or "–"


def seconds(record):
    return record["seconds"]


def images_a_second(record):
    return record["steps"] * record["batch"] / record["seconds"]


def setting_row(key, of, seeds):
    name, dtype, augmented = key
    sides = [[of[whose][seed] for seed in seeds] for whose in (OURS, PEERS)]
    ours, peers = (statistics.fmean(100 * r["val_top1"] for r in runs) for runs in sides)
    return [SETS.get(name, name), dtype, augmented, len(seeds), *map(accuracy, sides), f"{ours - peers:+.2f}",
            speeds(sides, seconds, 1), speeds(sides, images_a_second, 0)]


def beside(results):
    if FILE + ".jsonl" not in results.files:
        return ""
    rows = []
    for key, of in settings(results.all(FILE)).items():
        seeds = same_work(key, of)
        if seeds:
            rows.append(setting_row(key, of, seeds))
    return table(["set", "type", "augmented epochs", "seeds", "ours, %", "PyTorch, %", "difference, points",
                  "seconds: ours / PyTorch", "images/s: ours / PyTorch"], rows)


TABLES = {"vgg28": beside}
