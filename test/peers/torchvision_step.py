"""One training step of torchvision's MaskRCNN on the batch of a dump, unit by unit, with every activation, every index
and the gradient that reaches each activation: what lab/dump --feed is given, and what its indices are held against.
Used by compare_torchvision_gpu.py.
"""
import torch
import torch.nn.functional as F
import torchvision
from torchvision.models.detection import roi_heads
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import concat_box_prediction_layers

from torchvision_dump import RNG_ROI, RNG_RPN, KeyedSampler
from torchvision_units import Unit, backbone_units, box_units, mask_units, pyramid_units, rpn_units

LOSSES = ["loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg", "loss_mask"]
BOX_OUTPUTS = ["roi_heads.box_predictor.cls_score", "roi_heads.box_predictor.bbox_pred"]
MASK_OUTPUT = "roi_heads.mask_predictor.mask_fcn_logits"


def set_tf32(on):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = on


def nhwc(t):
    """A dump's layout of an activation."""
    return t.permute(0, 2, 3, 1) if t.dim() == 4 else t[:, None, None]


def prepare_images(model, dump, device, dtype):
    """torchvision's resizing and normalising, padded to our canvas: [n, 3, h, w]."""
    out = torch.zeros(len(dump.info), 3, *dump.canvas, dtype=dtype, device=device)
    for i, canvas in enumerate(out):
        image, _ = model.transform.resize(model.transform.normalize(dump.image(i, dtype).to(device)), None)
        canvas[:, :image.shape[1], :image.shape[2]] = image
    return out


def targets_of(dump, device):
    capacity, targets = len(dump["truth.label"]) // len(dump.info), []
    for i, (s, n) in enumerate(zip(dump.info, dump["truth.count"].tolist())):
        rows = slice(i * capacity, i * capacity + n)
        masks = F.interpolate(dump.masks(i)[:, None].float(), size=(s["rh"], s["rw"]))[:, 0]
        targets.append({"boxes": dump.rows("truth.box")[rows].to(device), "masks": masks.to(torch.uint8).to(device),
                        "labels": dump["truth.label"][rows].long().to(device)})
    return targets


def keyed_sampler(batch, positive, dump, use):
    sampler = KeyedSampler(BalancedPositiveNegativeSampler(batch, positive), use)
    sampler.keys = dump.keys()
    return sampler


# ---- indices: torchvision's float32 box arithmetic on logits and deltas ---------------------------------------------

class Groups:
    """Scored boxes step by step, as dump's Boxes: steps[name] = groups and their capacity; a group is (box, score,
    index, box in double, score in double), best first, equal scores by index. Where the order is that of computed
    scores, whose last bit may differ, the set is compared, and that ours are in the order of ours."""
    computed = ()

    def feed(self):
        out = {}
        for name, (groups, capacity) in self.steps.items():
            box, score = torch.zeros(len(groups), capacity, 4), torch.zeros(len(groups), capacity)
            index = torch.zeros(len(groups), capacity, dtype=torch.int32)
            for g, rows in enumerate(groups):
                for t, r in zip((box, score, index), rows):
                    t[g, :len(r)] = r.cpu()
            out |= {name + ".box": box, name + ".score": score, name + ".index": index,
                    name + ".count": torch.tensor([len(g[1]) for g in groups], dtype=torch.int32)}
        return out

    def check(self, report, precision, dump):
        """Every index; the numbers of the first step, which later ones only hand on."""
        for (name, (groups, _)), stage in zip(self.steps.items(), self.stages):
            ours, differ = [dump.group(name, g) for g in range(len(groups))], 0
            if stage in self.computed:
                differ += sum((o[1][1:] > o[1][:-1]).sum().item() for o in ours)
                ours, groups = ([tuple(t[g[2].argsort()] for t in g) for g in side] for side in (ours, groups))
            for mine, rows in zip(ours, groups):
                n = min(len(mine[2]), len(rows[2]))
                differ += (mine[2][:n] != rows[2][:n].cpu()).sum().item() + max(len(mine[2]), len(rows[2])) - n
            report.same(precision, stage, name, differ, sum(len(g[2]) for g in groups))
            if stage == self.stages[0] and not differ:
                for k, what in enumerate(("box", "score")):
                    report.value(precision, stage, f"{name}.{what}", torch.cat([o[k] for o in ours]),
                                 *(torch.cat([g[j] for g in groups]).cpu() for j in (k, k + 3)), torch.float32)


def merged(groups, limit):
    rows = tuple(torch.cat(t) for t in zip(*groups))
    rows = tuple(t[rows[2].argsort()] for t in rows)
    order = rows[1].sort(descending=True, stable=True).indices[:limit]
    return tuple(t[order] for t in rows)


def suppressed(group, threshold, limit):
    keep = torchvision.ops.nms(group[0], group[1], threshold)[:limit]
    return tuple(t[keep] for t in group)


class Proposals(Groups):
    """What torchvision makes of logits and deltas: the best anchors of each level, those that suppression keeps, and an
    image's proposals."""
    stages = "rpn top-k", "rpn nms", "rpn merge"

    def __init__(self, model, values, canvas, sizes):
        rpn, device = model.rpn, values["logits0"].device
        logits = [values[f"logits{l}"].detach().float() for l in range(5)]
        deltas = [values[f"deltas{l}"].detach().float() for l in range(5)]
        images = ImageList(torch.empty(len(sizes), 3, *canvas, device=device), sizes)
        self.anchors = rpn.anchor_generator(images, [values[f"p{l}"].detach().float() for l in range(5)])
        counts = [l[0].numel() for l in logits]
        scores, flat = concat_box_prediction_layers(logits, deltas)
        boxes = rpn.box_coder.decode(flat, self.anchors).view(len(sizes), -1, 4)
        exact = rpn.box_coder.decode(flat.double(), [a.double() for a in self.anchors]).view(len(sizes), -1, 4)
        scores, firsts = scores.view(len(sizes), -1), [sum(counts[:l]) for l in range(5)]
        pre, post = rpn.pre_nms_top_n(), rpn.post_nms_top_n()
        self.steps = {"rpn_top": ([], pre), "rpn_kept": ([], min(pre, post)), "proposals": ([], post)}
        top, kept, proposals = (groups for groups, _ in self.steps.values())
        self.topk_differs = 0
        for i, size in enumerate(sizes):
            for first, count in zip(firsts, counts):
                level = scores[i, first:first + count]
                order = level.sort(descending=True, stable=True).indices[:pre]
                self.topk_differs += (level[order] != level.topk(len(order)).values).sum().item()
                box, wide = (torchvision.ops.clip_boxes_to_image(b[i, first + order], size) for b in (boxes, exact))
                score = level[order].sigmoid()
                keep = torchvision.ops.remove_small_boxes(box, rpn.min_size)
                keep = keep[score[keep] >= rpn.score_thresh]
                top.append(tuple(t[keep] for t in (box, score, first + order, wide, level[order].double().sigmoid())))
                kept.append(suppressed(top[-1], rpn.nms_thresh, min(pre, post)))
            proposals.append(merged(kept[-len(counts):], post))

    def check(self, report, precision, dump):
        report.same(precision, self.stages[0], "torchvision's topk and a stable sort", self.topk_differs, 1)
        super().check(report, precision, dump)


class Detections(Groups):
    """The same of the box head's outputs: of each class the RoIs that score enough, those that suppression keeps, and
    an image's detections. Index: RoI · classes + class."""
    stages = "detect select", "detect nms", "detect merge"
    computed = "detect select",

    def __init__(self, model, logits, deltas, proposals, sizes, capacity):
        heads, classes = model.roi_heads, logits.shape[1]
        boxes = heads.box_coder.decode(deltas, proposals)
        exact = heads.box_coder.decode(deltas.double(), [p.double() for p in proposals])
        scores, wide_scores = logits.softmax(-1), logits.double().softmax(-1)
        limit, first = heads.detections_per_img, 0
        self.steps = {"class_top": ([], capacity), "class_kept": ([], limit), "detections": ([], limit)}
        top, kept, found = (groups for groups, _ in self.steps.values())
        for p, size in zip(proposals, sizes):
            rois = slice(first, first + len(p))
            for k in range(1, classes):
                box, wide = (torchvision.ops.clip_boxes_to_image(b[rois, k], size) for b in (boxes, exact))
                index = (first + torch.arange(len(p), device=box.device)) * classes + k
                rows = box, scores[rois, k], index, wide, wide_scores[rois, k]
                keep = torch.where(rows[1] > heads.score_thresh)[0]
                keep = keep[torchvision.ops.remove_small_boxes(box[keep], 1e-2)]
                keep = keep[rows[1][keep].sort(descending=True, stable=True).indices]
                top.append(tuple(t[keep] for t in rows))
                kept.append(suppressed(top[-1], heads.nms_thresh, limit))
            found.append(merged(kept[1 - classes:], limit))
            first += len(p)


# ---- the step -----------------------------------------------------------------------------------------------------

class Step:
    """amp: under bf16's autocast. Everything is rounded to what dump stores then, so that both sides hold the same."""

    def __init__(self, model, c, dump, device, amp):
        self.c, self.dump = c, dump
        self.sizes = [(s["rh"], s["rw"]) for s in dump.info]
        self.targets = targets_of(dump, device)
        self.rpn_sampler = keyed_sampler(c["rpn_batch"], c["rpn_positive"], dump, RNG_RPN)
        model.roi_heads.fg_bg_sampler = keyed_sampler(c["roi_batch"], c["roi_positive"], dump, RNG_ROI)
        values, losses = {"image": prepare_images(model, dump, device, torch.float32)}, []
        set_tf32(False)
        with torch.autocast(device, torch.bfloat16, enabled=amp):
            self.run(self.first_units(model), values, losses)
            with torch.autocast(device, enabled=False):
                self.proposals = Proposals(model, values, tuple(dump.canvas), self.sizes)
                self.match_anchors(model)
                self.sample_rois(model)
            self.run(self.second_units(model), values, losses)
            self.differ = self.check_units(model, values)
        sum(losses).backward()
        model.zero_grad()
        relu = {u.name for u in self.units(model) if u.relu}
        self.types = {k: v.dtype for k, v in values.items()}
        self.grads = {k: v.grad * (v.detach() > 0) if k in relu else v.grad for k, v in values.items()
                      if v.grad is not None}
        self.values = {k: v.detach() for k, v in values.items()}
        if amp:  # numbers that both sides can hold
            self.values = {k: v.bfloat16().to(v.dtype) for k, v in self.values.items()}
            self.grads = {k: v.bfloat16().to(v.dtype) for k, v in self.grads.items()}

    def units(self, model):
        return self.first_units(model) + self.second_units(model)

    def first_units(self, model):
        return backbone_units(model, self.c) + pyramid_units(model) + rpn_units(model)

    def second_units(self, model):
        real = next(model.parameters()).dtype

        def rpn_loss(*x):
            model.rpn.fg_bg_sampler = self.rpn_sampler
            return model.rpn.compute_loss(*concat_box_prediction_layers(list(x[:5]), list(x[5:])),
                                          [l.to(real) for l in self.anchor_labels],
                                          [d.to(real) for d in self.anchor_deltas])

        def box_loss(logits, deltas):
            return roi_heads.fastrcnn_loss(logits, deltas, self.roi_labels, [d.to(real) for d in self.roi_deltas])

        def mask_loss(logits):
            return (roi_heads.maskrcnn_loss(logits, [b.to(real) for b in self.objects],
                                            [t["masks"] for t in self.targets], [t["labels"] for t in self.targets],
                                            self.object_matched),)
        maps = [f"{name}{l}" for name in ("logits", "deltas") for l in range(5)]
        return ([Unit("rpn_loss", "rpn_loss", "rpn loss", maps, rpn_loss, [], losses=LOSSES[:2])] +
                box_units(model, self.rois) +
                [Unit("box_loss", "box_loss", "box loss", BOX_OUTPUTS, box_loss, [], losses=LOSSES[2:4])] +
                mask_units(model, self.objects) +
                [Unit("mask_loss", "mask_loss", "mask loss", [MASK_OUTPUT], mask_loss, [], losses=LOSSES[4:])])

    def run(self, units, values, losses):
        for u in units:
            y = u.run(*(values[i] for i in u.inputs))
            if u.losses:
                losses.extend(y)
                continue
            values[u.name] = F.relu(y) if u.relu else y
            if y.requires_grad:
                values[u.name].retain_grad()

    @staticmethod
    def check_units(model, values):
        """That the units are the model: how many elements differ where torchvision runs whole stages."""
        heads, aligned = model.roi_heads, [values["box_roi_align"], values["mask_roi_align"]]
        with torch.no_grad():
            features = list(model.backbone(values["image"]).values())
            logits, deltas = model.rpn.head(features)
            outputs = [*heads.box_predictor(heads.box_head(aligned[0])),
                       heads.mask_predictor(heads.mask_head(aligned[1]))]
        whole = {f"{name}{l}": t for name, ts in (("p", features), ("logits", logits), ("deltas", deltas))
                 for l, t in enumerate(ts)} | dict(zip([*BOX_OUTPUTS, MASK_OUTPUT], outputs))
        return {name: (values[name] != t).sum().item() for name, t in whole.items()}

    def match_anchors(self, model):
        anchors = self.proposals.anchors
        self.anchor_labels, self.anchor_boxes = model.rpn.assign_targets_to_anchors(anchors, self.targets)
        self.anchor_deltas = model.rpn.box_coder.encode(self.anchor_boxes, anchors)

    def sample_rois(self, model):
        """In our order: the objects of each image first."""
        proposals = [rows[0] for rows in self.proposals.steps["proposals"][0]]
        boxes, matched, labels, deltas = model.roi_heads.select_training_samples(proposals, self.targets)
        order = [torch.argsort((l == 0).int(), stable=True) for l in labels]
        self.rois, matched, self.roi_labels, self.roi_deltas = (
            [t[o] for t, o in zip(ts, order)] for ts in (boxes, matched, labels, deltas))
        self.objects = [b[l > 0] for b, l in zip(self.rois, self.roi_labels)]
        self.object_matched = [m[l > 0] for m, l in zip(matched, self.roi_labels)]

    def mask_targets(self, real):
        size = self.values[MASK_OUTPUT].shape[-1]
        return torch.cat([roi_heads.project_masks_on_boxes(t["masks"], b.to(real), m, size)
                          for t, b, m in zip(self.targets, self.objects, self.object_matched)])[:, None]

    def feed(self, storage):
        """What dump is fed; activations and their gradients in the type in which it stores them."""
        rows = {"rois.box": torch.cat(self.rois), "rois.delta": torch.cat(self.roi_deltas),
                "objects.box": torch.cat(self.objects), "mask_target": nhwc(self.mask_targets(torch.float32)),
                "rpn_targets.delta": self.sampled_deltas(self.anchor_deltas)}
        activations = self.values | {"grad." + k: v for k, v in self.grads.items()}
        out = {k: v.cpu().contiguous() for k, v in rows.items()} | self.proposals.feed()
        return out | {k: nhwc(v).to(storage).cpu().contiguous() for k, v in activations.items()}

    def sampled_deltas(self, deltas):
        """Of the sampled objects of each image, in rpn_batch rows an image."""
        out = torch.zeros(len(deltas), self.c["rpn_batch"], 4, dtype=deltas[0].dtype)
        for rows, d, (positive, _) in zip(out, deltas, self.rpn_sampler.chosen):
            rows[:len(positive)] = d[positive.sort().values].cpu()
        return out

    def check_indices(self, report, precision, dump):
        self.proposals.check(report, precision, dump)
        rows = self.c["rpn_batch"]
        for i, (positive, negative) in enumerate(self.rpn_sampler.chosen):
            n, positives = dump["rpn_targets.count"][i].item(), dump["rpn_targets.positives"][i].item()
            theirs = torch.cat([positive.sort().values, negative.sort().values]).cpu()
            ours = dump["rpn_targets.index"][i * rows:i * rows + n]
            same = n == len(theirs) and positives == len(positive)
            report.same(precision, "rpn matching", f"anchors of image {i}",
                        (ours != theirs).sum() if same else len(theirs), len(theirs))
        capacity = len(dump["truth.label"]) // len(dump.info)
        truth = torch.cat([m + i * capacity for i, m in enumerate(self.object_matched)])
        for name, theirs in (("rois.label", torch.cat(self.roi_labels)), ("objects.truth", truth),
                             ("rois.box", torch.cat(self.rois)), ("objects.box", torch.cat(self.objects))):
            ours, theirs = dump[name], theirs.cpu()
            same = ours.numel() == theirs.numel()
            report.same(precision, "roi matching", name,
                        (ours.reshape(theirs.shape) != theirs).sum() if same else len(theirs), len(theirs))

    def check_targets(self, report, precision, model, dump):
        """Regression and mask targets."""
        wide = [[t.double() for t in ts] for ts in (self.anchor_boxes, self.proposals.anchors)]
        exact = self.sampled_deltas(model.rpn.box_coder.encode(*wide)).flatten(0, 1)
        report.value(precision, "rpn matching", "rpn_targets.delta", dump.rows("rpn_targets.delta"),
                     self.sampled_deltas(self.anchor_deltas).flatten(0, 1), exact, torch.float32)
        matched = [t["boxes"][m].double() for t, m in zip(self.targets, self.object_matched)]
        exact = torch.cat(model.roi_heads.box_coder.encode(matched, [b.double() for b in self.objects])).cpu()
        objects = torch.cat(self.roi_labels).cpu() > 0
        report.value(precision, "roi matching", "rois.delta", dump.rows("rois.delta")[objects],
                     torch.cat(self.roi_deltas).cpu()[objects], exact, torch.float32)
        report.value(precision, "mask targets", "mask_target", dump["mask_target"],
                     *(nhwc(self.mask_targets(t)).cpu() for t in (torch.float32, torch.float64)), torch.float32)


# ---- inference ----------------------------------------------------------------------------------------------------

class Inference:
    """Detection unit by unit, in float32; the model is in eval mode."""

    def __init__(self, model, c, dump, device):
        self.values = {"image": prepare_images(model, dump, device, torch.float32)}
        set_tf32(False)
        sizes = [(s["rh"], s["rw"]) for s in dump.info]
        with torch.no_grad():
            self.run(backbone_units(model, c) + pyramid_units(model) + rpn_units(model))
            self.proposals = Proposals(model, self.values, tuple(dump.canvas), sizes)
            rois = [rows[0] for rows in self.proposals.steps["proposals"][0]]
            self.run(box_units(model, rois))
            self.detections = Detections(model, *(self.values[n] for n in BOX_OUTPUTS), rois, sizes,
                                         c["rpn_post_nms_test"])
            found = self.detections.steps["detections"][0]
            self.run(mask_units(model, [rows[0] for rows in found]))
            self.labels = [rows[2] % c["classes"] for rows in found]

    def run(self, units):
        for u in units:
            y = u.run(*(self.values[i] for i in u.inputs))
            self.values[u.name] = F.relu(y) if u.relu else y

    def feed(self):
        return ({k: nhwc(v).cpu().contiguous() for k, v in self.values.items()} | self.proposals.feed() |
                self.detections.feed())

    def check(self, report, dump):
        self.proposals.check(report, "fp32", dump)
        self.detections.check(report, "fp32", dump)
        logits = self.values[MASK_OUTPUT]
        probs = [torch.cat(roi_heads.maskrcnn_inference(t, self.labels)) for t in (logits, logits.double())]
        report.value("fp32", "mask select", "mask_probs", dump["mask_probs"], *(nhwc(p).cpu() for p in probs),
                     torch.float32)
