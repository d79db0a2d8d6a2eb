"""Figures of docs/classification.md: vgg-28 compared with PyTorch, by data set and by epochs with augmentation."""
import collections
import math
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


def difference(sides):
    """Ours less PyTorch's, of the means over seeds, in points; and its standard error, None of one seed."""
    ours, peers = ([100 * r["val_top1"] for r in runs] for runs in sides)
    error = None
    if len(ours) > 1:
        error = math.sqrt((statistics.variance(ours) + statistics.variance(peers)) / len(ours))
    return statistics.fmean(ours) - statistics.fmean(peers), error


def points(mean, error):
    return f"{round(mean, 2) + 0:+.2f}" + ("" if error is None else f" ± {error:.2f}")


def speeds(sides, what, digits):
    """Ours / PyTorch's, of those seeds that both sides trained with the GPU to themselves."""
    alone = [(ours, peers) for ours, peers in zip(*sides) if "together" not in ours and "together" not in peers]
    return " / ".join(f"{statistics.fmean(map(what, runs)):.{digits}f}" for runs in zip(*alone)) or "–"


def seconds(record):
    return record["seconds"]


def images_a_second(record):
    return record["steps"] * record["batch"] / record["seconds"]


def sides_of(of, seeds):
    return [[of[whose][seed] for seed in seeds] for whose in (OURS, PEERS)]


def setting_row(key, of, seeds):
    name, dtype, augmented = key
    sides = sides_of(of, seeds)
    return [SETS.get(name, name), dtype, augmented, len(seeds), *map(accuracy, sides), points(*difference(sides)),
            speeds(sides, seconds, 1), speeds(sides, images_a_second, 0)]


def trained(results):
    """Key, runs and seeds of each setting that both sides have."""
    if FILE + ".jsonl" in results.files:
        for key, of in settings(results.all(FILE)).items():
            seeds = same_work(key, of)
            if seeds:
                yield key, of, seeds


def over_settings(results, name, seeds_of=lambda seed: True):
    """The difference on a set: the mean over its settings, each weighed by the inverse square of its error."""
    chosen = [(of, list(filter(seeds_of, seeds))) for key, of, seeds in trained(results) if key[0] == name]
    found = [difference(sides_of(of, seeds)) for of, seeds in chosen if seeds]
    weighed = [(mean, error**-2) for mean, error in found if error]
    if not weighed:
        return "–"
    weight = sum(w for _, w in weighed)
    return points(sum(mean * w for mean, w in weighed) / weight, weight**-0.5)


def beside(results):
    rows = [setting_row(*setting) for setting in trained(results)]
    return table(["set", "type", "augmented epochs", "seeds", "ours, %", "PyTorch, %", "difference, points",
                  "seconds: ours / PyTorch", "images/s: ours / PyTorch"], rows) if rows else ""


TABLES = {"vgg28": beside}
# A difference suggested by the seeds up to 20 is tested with other seeds.
VALUES = {"vgg28.fashion.first": lambda results: over_settings(results, "fashion", lambda seed: seed <= 20),
          "vgg28.fashion.fresh": lambda results: over_settings(results, "fashion", lambda seed: seed > 20),
          "vgg28.fashion": lambda results: over_settings(results, "fashion")}
