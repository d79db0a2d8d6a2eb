"""One training step of torchvision's MaskRCNN on the batch of a dump, unit by unit, with every activation, every index
and the gradient that reaches each activation: what tools/dump --feed is given, and what its indices are held against.
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
    return KeyedSampler(BalancedPositiveNegativeSampler(batch, positive), dump.keys(), use)


# ---- indices: torchvision's float32 box arithmetic on logits and deltas ---------------------------------------------

class Proposals:
    """What torchvision makes of logits and deltas, step by step: (box, score, index; box and score in double) of the
    best anchors of each level, of those that suppression keeps, and of an image's proposals."""

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
        top, kept, merged = (groups for groups, _ in self.steps.values())
        self.topk_differs = 0
        for i, size in enumerate(sizes):
            for first, count in zip(firsts, counts):
                level = scores[i, first:first + count]
                order = level.sort(descending=True, stable=True).indices[:pre]
                self.topk_differs += (level[order] != level.topk(len(order)).values).sum().item()
                box, wide = (torchvision.ops.clip_boxes_to_image(b[i, first + order], size) for b in (boxes, exact))
                score = level[order].sigmoid()
                rows = box, score, first + order, wide, level[order].double().sigmoid()
                keep = torchvision.ops.remove_small_boxes(box, rpn.min_size)
                keep = keep[score[keep] >= rpn.score_thresh]
                top.append(tuple(t[keep] for t in rows))
                keep = torchvision.ops.nms(top[-1][0], top[-1][1], rpn.nms_thresh)[:min(pre, post)]
                kept.append(tuple(t[keep] for t in top[-1]))
            rows = tuple(torch.cat(t) for t in zip(*kept[-len(counts):]))
            rows = tuple(t[rows[2].argsort()] for t in rows)
            order = rows[1].sort(descending=True, stable=True).indices[:post]
            merged.append(tuple(t[order] for t in rows))

    def feed(self):
        """As dump's Boxes."""
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
        report.same(precision, "rpn top-k", "torchvision's topk and a stable sort", self.topk_differs, 1)
        for (name, (groups, _)), stage in zip(self.steps.items(), ("rpn top-k", "nms", "merge")):
            ours = [dump.group(name, g) for g in range(len(groups))]
            same = [o[2].equal(g[2].cpu().int()) for o, g in zip(ours, groups)]
            for g, rows in enumerate(groups):
                n = min(len(ours[g][2]), len(rows[2]))
                differ = (ours[g][2][:n] != rows[2][:n].cpu()).sum().item() + max(len(ours[g][2]), len(rows[2])) - n
                report.same(precision, stage, f"{name} {g}", differ, len(rows[2]))
            if name == "rpn_top" and all(same):
                for k, what in enumerate(("box", "score")):
                    report.value(precision, "rpn decoding", f"{name}.{what}", torch.cat([o[k] for o in ours]),
                                 *(torch.cat([g[j] for g in groups]).cpu() for j in (k, k + 3)), torch.float32)


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
        maps = [f"{kind}{l}" for kind in ("logits", "deltas") for l in range(5)]
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
