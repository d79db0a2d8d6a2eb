"""Reads the output of lab/dump, and makes torchvision's sampler use our random numbers. For compare_torchvision.py."""
import numpy as np
import torch
from safetensors import safe_open

# ---- our random numbers, torchvision's sampler --------------------------------------------------------------------

RNG_ORDER, RNG_FLIP, RNG_RPN, RNG_ROI = 1, 2, 4, 5


def rng_mix(x):
    with np.errstate(over="ignore"):
        x = np.asarray(x, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def rng_key(key, word):
    return rng_mix(np.uint64(key) ^ rng_mix(word))


def rng_u32(key, i):
    return rng_key(key, i) >> np.uint64(32)


def rng_uniform(key, i):
    return (rng_u32(key, i) >> np.uint64(8)) * 2.0 ** -24


class KeyedSampler:
    """BalancedPositiveNegativeSampler whose permutation is ours; remembers what it chose."""

    def __init__(self, like, use):
        self.batch, self.fraction, self.use = like.batch_size_per_image, like.positive_fraction, use
        self.keys = []  # of the images of a batch

    def first(self, key, candidates, n):
        index = candidates.cpu().numpy()
        numbers = rng_u32(rng_key(key, self.use), index.astype(np.uint64))
        return candidates[torch.from_numpy(np.lexsort((index, numbers))[:n].copy())]

    def __call__(self, labels):
        self.chosen, masks = [], ([], [])
        for key, image in zip(self.keys, labels):
            positive, negative = torch.where(image >= 1)[0], torch.where(image == 0)[0]
            n = min(positive.numel(), int(self.batch * self.fraction))
            chosen = self.first(key, positive, n), self.first(key, negative, min(negative.numel(), self.batch - n))
            self.chosen.append(chosen)
            for mask, index in zip(masks, chosen):
                mask.append(torch.zeros_like(image, dtype=torch.uint8))
                mask[-1][index] = 1
        return masks


# ---- reading a dump -----------------------------------------------------------------------------------------------

class Dump:
    def __init__(self, path):
        self.file = safe_open(path, "pt")
        self.names = set(self.file.keys())
        self.info = [dict(zip(["id", "offset", "h", "w", "rh", "rw", "flip", "key"], row))
                     for row in self["info"].tolist()]
        self.canvas = self["canvas"].tolist()

    def __getitem__(self, name):
        return self.file.get_tensor(name)

    def nchw(self, name):
        return self[name].permute(0, 3, 1, 2)

    def rows(self, name):
        return self[name].flatten(1)

    def keys(self):
        """Of the images' random numbers."""
        return [np.uint64(i["key"] & (1 << 64) - 1) for i in self.info]

    def param(self, name, like):
        t = self[name]
        return t.permute(0, 3, 1, 2).reshape(like.shape) if like.dim() > 1 else t.reshape(like.shape)

    def group(self, name, g):
        """box, score, index of group g of a Boxes."""
        count = self[name + ".count"]
        first, n = g * (self[name + ".score"].shape[0] // count.shape[0]), count[g].item()
        return (self.rows(name + ".box")[first:first + n], self.rows(name + ".score")[first:first + n, 0],
                self[name + ".index"][first:first + n])

    def image(self, i, dtype):
        s = self.info[i]
        bytes_ = self["bytes"][s["offset"]:s["offset"] + 3 * s["h"] * s["w"]]
        return bytes_.reshape(s["h"], s["w"], 3).permute(2, 0, 1).to(dtype) / 255

    def masks(self, i):
        """[objects, h, w] of image i at its own resolution."""
        s, bits, capacity = self.info[i], self["truth.bits"].numpy(), len(self["truth.label"]) // len(self.info)
        out = torch.zeros(self["truth.count"][i], s["h"], s["w"], dtype=torch.uint8)
        for o in range(len(out)):
            first, x, y, w, h = self["truth.bitmap"][i * capacity + o].tolist()
            words = (w + 31) // 32
            rows = np.unpackbits(bits[first:first + h * words].view(np.uint8).reshape(h, 4 * words), axis=1,
                                 bitorder="little")[:, :w]
            out[o, y:y + h, x:x + w] = torch.from_numpy(rows)
        return out
