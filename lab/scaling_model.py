"""A model of a training step on several nodes, simple enough to check by hand; results/scaling.md explains it.

    step = one GPU's step + multiprocessors + bandwidth + tail + slowest rank, or the loader's time where that is longer

multiprocessors   what a GPU loses by leaving some multiprocessors to NCCL
bandwidth         what NCCL's memory traffic costs the kernels that run at the same time: by bytes moved
tail              the part of the all-reduces after the end of the backward walk: simulated bucket by bucket; each
                  begins when its gradients are complete and the previous bucket is reduced
slowest rank      every step waits for the largest of N draws from the distribution of step times: images differ

Times are in milliseconds, sizes in bytes, bandwidths in GB/s (1e9 bytes), latencies in microseconds. An all-reduce of
b bytes over N ranks takes base + hops + 2 (N - 1)/N · b / bandwidth, as NCCL's own model has it (src/graph/tuning.cc),
with the fastest of its algorithms. Nothing here reads a record: scaling_records.py does.
"""
import collections
import math

Bucket = collections.namedtuple("Bucket", "ready bytes")  # ready: fraction of the backward walk done by then
Prediction = collections.namedtuple(
    "Prediction", "gpus nodes step_ms img_s efficiency terms reduce_ms beside")  # beside: fraction of an epoch


# ---- buckets --------------------------------------------------------------------------------------------------------

def buckets(timeline, bucket_mb, bytes_per_gradient=4):
    """Those of a walk as engine/reduction.c makes them. timeline: [share of the walk, bytes as fp32] in its order."""
    made, waiting = [], 0
    for ready, size in timeline:
        waiting += size
        if waiting >= 1e6 * bucket_mb:
            made.append(Bucket(ready, waiting * bytes_per_gradient / 4))
            waiting = 0
    if waiting:
        made.append(Bucket(1.0, waiting * bytes_per_gradient / 4))
    return made


# ---- links ----------------------------------------------------------------------------------------------------------

def moved(gpus, size):
    """Bytes that each GPU sends in a ring, and as many that it receives."""
    return 2 * (gpus - 1) / gpus * size


def bus_bandwidth(inputs, gpus, nodes):
    """GB/s per GPU of the slowest link of a ring that goes through every GPU of a node before it leaves."""
    inside = inputs["nvlink_gb_s"]
    if nodes == 1:
        return inside
    links = inputs["links_per_node"] * inputs["link_gbit_s"] / 8 * inputs["link_efficiency"]
    return min(inside, links)


def hops_us(algorithm, gpus, nodes):
    """Latency of all hops, without the first start."""
    inside, between = algorithm["inside_us"], algorithm["between_us"]
    if algorithm["kind"] == "ring":
        return 2 * ((gpus - nodes) * inside + (nodes - 1 if nodes > 1 else 0) * between)
    return 2 * ((gpus / nodes - 1) * inside + math.ceil(math.log2(nodes)) * between)


def all_reduce_ms(inputs, gpus, nodes, size):
    """The fastest algorithm's time."""
    if gpus == 1:
        return 0.0
    bandwidth = bus_bandwidth(inputs, gpus, nodes)
    return min(1e-3 * (inputs["base_us"] + hops_us(a, gpus, nodes)) +
               moved(gpus, size) / (1e6 * bandwidth * a["bandwidth_share"]) for a in inputs["algorithms"])


def fit_line(points):
    """Latency in us and bandwidth in GB/s of (bytes moved, us), so that relative errors are smallest."""
    weights = [(1 / us ** 2, x, us) for x, us in points]
    s, sx = sum(w for w, _, _ in weights), sum(w * x for w, x, _ in weights)
    sy, sxx = sum(w * y for w, _, y in weights), sum(w * x * x for w, x, _ in weights)
    sxy = sum(w * x * y for w, x, y in weights)
    determinant = s * sxx - sx * sx
    if determinant <= 0:
        raise ValueError("all-reduces of one size alone: latency and bandwidth cannot be told apart")
    slope = (s * sxy - sx * sy) / determinant  # us per byte
    if slope <= 0:
        raise ValueError("larger all-reduces took no longer than smaller ones: measure again")
    return max((sy - slope * sx) / s, 0.0), 1e-3 / slope


# ---- the all-reduces during the backward walk ---- ------------------------------------------------------------------

def tail_ms(made, backward_ms, reduce_ms):
    """How long after the backward walk the last bucket is reduced. reduce_ms(bytes)."""
    free = 0.0
    for b in made:
        free = max(free, b.ready * backward_ms) + reduce_ms(b.bytes)
    return max(free - backward_ms, 0.0)


# ---- the slowest rank -----------------------------------------------------------------------------------------------

def largest_of(n):
    """Expected largest of n draws from a normal distribution, in standard deviations."""
    if n == 1:
        return 0.0
    steps, low, high = 4000, -8.0, 8.0
    h, total, before = (high - low) / steps, 0.0, 0.0
    for i in range(1, steps + 1):  # of x dF, where F is that of the largest
        x = low + i * h
        below = (0.5 * math.erfc(-x / math.sqrt(2))) ** n
        total += (x - h / 2) * (below - before)
        before = below
    return total


# ---- a step, and an epoch -------------------------------------------------------------------------------------------

def predict(inputs, gpus, nodes=1, own_images=True):
    """inputs: results/scaling-model.json and what scaling_records.py has fitted."""
    made = buckets(inputs["timeline"], inputs["bucket_mb"], inputs["bytes_per_gradient"])
    size = sum(b.bytes for b in made)
    several = gpus > 1
    terms = {
        "multiprocessors": inputs["multiprocessors_share"] * inputs["backward_ms"] if several else 0.0,
        "bandwidth": inputs["bandwidth_ms_per_gb"] * 1e-9 * moved(gpus, size),
        "slowest rank": inputs["spread_ms"] * largest_of(gpus) if own_images else 0.0,
    }
    backward = inputs["backward_ms"] + terms["multiprocessors"] + terms["bandwidth"]
    each = lambda b: all_reduce_ms(inputs, gpus, nodes, b)
    terms["tail"] = tail_ms(made, backward, each) if several else 0.0
    step = inputs["step_ms"] + sum(terms.values())
    loader = 1e3 * inputs["batch"] / (inputs["cores_per_gpu"] * inputs["loader_img_s_core"])
    terms["loader"] = max(loader - step, 0.0)
    step += terms["loader"]
    img_s = 1e3 * gpus * inputs["batch"] / step
    train = inputs["epoch_images"] / img_s
    after = inputs["evaluated_images"] / (gpus * inputs["infer_img_s"])
    # Scores and checkpoints are computed during the next epoch's steps, which wait if they take longer.
    epoch = max(train + after, inputs["scoring_s"], inputs["checkpoint_s"])
    return Prediction(gpus, nodes, step, img_s, inputs["step_ms"] / step, terms, sum(each(b.bytes) for b in made),
                      1 - train / epoch)


# ---- the backward walk's gradients ----------------------------------------------------------------------------------

def gradients_of(name, classes=91):
    """Bytes in fp32 of the gradients of a node of R50-FPN with frozen batch norm, by its name; padding left out."""
    part = name.split(".")
    fixed = {
        "rpn.head.conv.0.0": 256 * 256 * 9 + 256, "rpn.head.cls_logits": 257 * 3, "rpn.head.bbox_pred": 257 * 12,
        "roi_heads.box_head.fc6": 256 * 49 * 1024 + 1024, "roi_heads.box_head.fc7": 1025 * 1024,
        "roi_heads.box_predictor.cls_score": 1025 * classes, "roi_heads.box_predictor.bbox_pred": 1025 * 4 * classes,
        "roi_heads.mask_predictor.conv5_mask": 256 * 256 * 4 + 256,
        "roi_heads.mask_predictor.mask_fcn_logits": 257 * classes,
    }
    if name in fixed:
        return 4 * fixed[name]
    if name.startswith("roi_heads.mask_head.") or name.startswith("backbone.fpn.layer_blocks."):
        return 4 * (256 * 256 * 9 + 256)
    if name.startswith("backbone.fpn.inner_blocks."):
        return 4 * (256 * 2 ** int(part[3]) * 256 + 256)
    if name.startswith("backbone.body.layer"):
        stage, block, layer = int(part[2][5:]), int(part[3]), part[4]
        inner = 32 * 2 ** stage
        outer = 4 * inner
        entering = (64 if stage == 1 else outer // 2) if block == 0 else outer
        return 4 * {"conv1": entering * inner, "conv2": inner * inner * 9, "conv3": inner * outer,
                    "downsample": entering * outer}[layer]
    return 0


def timeline_of_profile(text):
    """[share of the backward walk, bytes] from what ./train --profile prints: its first canvas, nodes from the last."""
    nodes = []
    for line in text.split("\n"):
        words = line.split()
        if line.startswith("all nodes"):
            break
        times = [float(before) for before, unit in zip(words, words[1:]) if unit == "ms"]
        if len(words) > 3 and words[3].endswith("%") and times:
            nodes.append((words[0], times[1] if len(times) > 1 else 0.0))
    total, done, timeline = sum(ms for _, ms in nodes), 0.0, []
    if not total:
        raise ValueError("no nodes with times of a backward walk: what ./train --benchmark --profile prints is wanted")
    for name, ms in reversed(nodes):
        done += ms
        if ms and gradients_of(name):
            timeline.append([round(done / total, 4), gradients_of(name)])
    return timeline
