"""Writes test/corpus/: small files of weights as torch.save and safetensors write them, which
test/weights/test_torch.c reads and the fuzzers start from. Run from the root of the tree; torch 2.11 and safetensors
0.8 wrote what is committed:
    python3 test/peers/make_weights_corpus.py
"""
import argparse
import collections
import io
import os
import struct
import zipfile

import torch
from safetensors.torch import save_file

OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "corpus")


def tensors():
    """One tensor of each type: dtypes, a scalar, nothing, a parameter, a transposed view, two windows into one storage."""
    shared = torch.arange(12, dtype=torch.float32)
    return collections.OrderedDict([
        ("f32", torch.tensor([[1.5, -2.0, 0.25]])),
        ("f64", torch.tensor([0.1, -3.0], dtype=torch.float64)),
        ("f16", torch.tensor([65504.0, -0.5], dtype=torch.float16)),
        ("bf16", torch.tensor([1.0, -3.0], dtype=torch.bfloat16)),
        ("i64", torch.tensor(7)),
        ("u8", torch.tensor([1, 2, 255], dtype=torch.uint8)),
        ("none", torch.zeros(0, 4)),
        ("parameter", torch.nn.Parameter(torch.tensor([8.0, 9.0]))),
        ("transposed", torch.arange(6, dtype=torch.float32).reshape(2, 3).t()),
        ("window", shared[2:5]),
        ("column", shared.reshape(3, 4)[:, 1]),
    ])


def names():
    """What the reader looks for in a detector, under the names of 2019; the shapes are of no model."""
    shared = torch.zeros(16)
    return {name: shared[:n].reshape(n, *[1] * (dims - 1)) for name, n, dims in [
        ("backbone.body.conv1.weight", 8, 4), ("backbone.body.bn1.running_mean", 8, 1),
        ("backbone.body.layer1.0.conv1.weight", 8, 4), ("backbone.body.layer3.0.conv1.weight", 8, 4),
        ("backbone.fpn.inner_blocks.0.weight", 4, 4), ("backbone.fpn.layer_blocks.3.bias", 4, 1),
        ("module.rpn.head.conv.weight", 4, 4), ("roi_heads.box_head.fc6.weight", 4, 2),
        ("roi_heads.box_predictor.cls_score.weight", 3, 2), ("roi_heads.mask_head.mask_fcn1.weight", 4, 4),
        ("roi_heads.mask_predictor.mask_fcn_logits.weight", 3, 4)]}


def python2(state):
    """The object as Python 2 and PyTorch before 0.4 wrote it: an OrderedDict of pairs, byte strings, _rebuild_tensor,
    parameters by REDUCE with a state. No such PyTorch is at hand, so the bytes are written here."""
    def string(s):
        return b"U" + bytes([len(s)]) + s.encode()

    def integers(values):
        return b"(" + b"".join(b"K" + bytes([v]) for v in values) + b"t"

    def tensor(key, t):
        storage = b"(" + string("storage") + b"ctorch\nFloatStorage\n" + string(key) + string("cpu")
        storage += b"K" + bytes([t.numel()]) + b"NtQ"
        window = b"K\0" + integers(t.shape) + integers(t.stride())
        return b"ctorch._utils\n_rebuild_tensor\n(" + storage + window + b"tR"

    def parameter(data):
        return b"ctorch.nn.parameter\nParameter\n" + data + b"\x85R(\x88\x89N" + b"tb"

    pairs = b"".join(b"]" + string(k) + b"a" + parameter(tensor(str(i), t)) + b"a" for i, (k, t) in
                     enumerate(state.items()))
    keys = b"](" + b"".join(string(str(i)) for i in range(len(state))) + b"e"
    out = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}" + string("little_endian") + b"\x88s."
    out += b"\x80\x02ccollections\nOrderedDict\n](" + pairs + b"e\x85R." + b"\x80\x02" + keys + b"."
    for t in state.values():
        out += struct.pack("<q", t.numel()) + t.numpy().tobytes()
    return out


def zip64(path):
    """The members of an archive in one whose directory has every size and place in 64 bits, as it is above 4 GiB."""
    local, central = b"", b""
    with zipfile.ZipFile(path) as archive:
        for m in archive.infolist():
            data, name, ones = archive.read(m), m.filename.encode(), b"\xff" * 4
            common = struct.pack("<HHHHHI", 45, 0, 0, 0, 33, m.CRC) + ones + ones + struct.pack("<H", len(name))
            sizes = struct.pack("<QQ", len(data), len(data))
            central += b"PK\1\2" + struct.pack("<H", 45) + common + struct.pack("<HHHHI", 28, 0, 0, 0, 0) + ones + name
            central += struct.pack("<HH", 1, 24) + sizes + struct.pack("<Q", len(local))
            local += b"PK\3\4" + common + struct.pack("<H", 20) + name + struct.pack("<HH", 1, 16) + sizes + data
        n = len(archive.infolist())
    end = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, n, n, len(central), len(local))
    end += b"PK\6\7" + struct.pack("<IQI", 0, len(local) + len(central), 1)
    return local + central + end + b"PK\5\6" + b"\0" * 4 + b"\xff" * 12 + b"\0\0"


def main():
    torch_dir, safe_dir = os.path.join(OUT, "torch"), os.path.join(OUT, "safetensors")
    os.makedirs(torch_dir, exist_ok=True)
    os.makedirs(safe_dir, exist_ok=True)
    state = tensors()
    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.BatchNorm2d(2))
    with torch.no_grad():
        layers[0].weight.fill_(3)
    nested = {"epoch": 3, "best": torch.tensor(0.5), "lr": 0.1, "list": [1, (2, None)],
              "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}}, "model": layers.state_dict(),
              "lr_scheduler": {"milestones": collections.Counter([8, 11])},
              "args": argparse.Namespace(lr=0.1, data="coco")}  # as torchvision's reference scripts leave it
    for name, what in [("plain", state), ("nested", nested)]:
        torch.save(what, os.path.join(torch_dir, name + "-zip.pth"))
        torch.save(what, os.path.join(torch_dir, name + "-legacy.pth"), _use_new_zipfile_serialization=False)
    with open(os.path.join(torch_dir, "nested-zip64.pth"), "wb") as f:
        f.write(zip64(os.path.join(torch_dir, "nested-zip.pth")))
    with torch.serialization.safe_globals([argparse.Namespace, collections.Counter]):
        assert "model" in torch.load(os.path.join(torch_dir, "nested-zip64.pth"))
    torch.save(names(), os.path.join(torch_dir, "names-legacy.pth"), _use_new_zipfile_serialization=False)
    with open(os.path.join(torch_dir, "python2-legacy.pth"), "wb") as f:
        f.write(python2({"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([3.0])}))
    with open(os.path.join(torch_dir, "python2-legacy.pth"), "rb") as f:  # torch reads it, too
        read = torch.load(io.BytesIO(f.read()), weights_only=True)
        assert read["a"].tolist() == [[1.0, 2.0]] and read["b"].tolist() == [3.0]
    dense = {k: v.detach().contiguous().clone() for k, v in state.items()}
    save_file(dense, os.path.join(safe_dir, "plain.safetensors"), {"note": "a\"b\\c\né"})


if __name__ == "__main__":
    main()
