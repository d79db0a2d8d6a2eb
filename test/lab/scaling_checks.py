#!/usr/bin/env python3
"""Tests the arithmetic of lab/scaling*.py, by hand and on made-up records that follow the model with known inputs."""
import contextlib
import io
import json
import math
import os
import shutil
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "lab"))
import scaling
import scaling_model as model
import scaling_records
import tables
from records import MACHINE, Refused

INPUTS, SOURCES = scaling_records.read_inputs(os.path.join(ROOT, "results", "scaling-model.json"))
TRUE = {**INPUTS, "bucket_mb": 16, "ctas": 8, "step_ms": 11.0, "backward_ms": 6.0, "spread_ms": 0.1,
        "multiprocessors_share": 0.02, "bandwidth_ms_per_gb": 0.4, "nvlink_gb_s": 250.0, "base_us": 10.0}
ORIGIN = {"commit": "abc1234", "clean": True, "command": "by hand", "date": "2030-01-01T10:00:00Z",
          "machine": {name: 1 for name in MACHINE}}


def train_record(world, **members):
    record = {"bench": "train", "world": world, "reserve": -1, "latency_ms_p50": 11.0, "latency_ms_p99": 11.0 + 0.2326,
              "forward_input_ms": 4.4, "backward_ms": 6.0, "update_ms": 0.6, "data_wait_ms": 0,
              **scaling_records.default_setting(), **ORIGIN, **members}
    return {**record, "img_s": 1e3 * world * record["batch"] / record["step_ms"]}


def several(world, step_ms, **members):
    own = {"reduce": "fp32", "ctas": 8, "reserve": -1, "bucket_mb": 16, "buckets": 8, "same_images": False,
           "transport": "nccl", "nccl": 22907, "variables": {}}
    return train_record(world, step_ms=step_ms, **{**own, **members})


def made_up():
    """One GPU, with 8 multiprocessors left out and not, two of them with and without everything, and all-reduces."""
    own, same = (model.predict(TRUE, 2, own_images=o).step_ms for o in (True, False))
    records = [train_record(1, step_ms=11.0), several(2, 11.0, reduce="none", same_images=True, reserve=0),
               several(2, 11.12, reduce="none", same_images=True), several(2, same, same_images=True), several(2, own)]
    for size in (65536, 1 << 20, 1 << 24, 176000000):
        us = TRUE["base_us"] + 2 * 3.4 + 1e-3 * size / TRUE["nvlink_gb_s"]
        records.append({"bench": "reduce", "world": 2, "bytes": size, "dtype": "fp32", "ctas": 8, "us": us,
                        "gb_s": 1e-3 * size / us, "transport": "nccl", "variables": {}, **ORIGIN})
    return records


class Arithmetic(unittest.TestCase):
    def test_buckets_end_where_enough_gradients_wait(self):
        line = [[0.25, 3e6], [0.5, 2e6], [0.75, 5e6], [1.0, 1e6]]
        self.assertEqual(model.buckets(line, 5), [(0.5, 5e6), (0.75, 5e6), (1.0, 1e6)])
        self.assertEqual(model.buckets(line, 0), [(r, b) for r, b in line])
        self.assertEqual(model.buckets(line, 100, 2), [(1.0, 5.5e6)])

    def test_tail_is_what_the_walk_does_not_hide(self):
        made = [model.Bucket(0.5, 1), model.Bucket(1.0, 1)]
        self.assertAlmostEqual(model.tail_ms(made, 10, lambda _: 2), 2)  # the first is over at 7
        self.assertAlmostEqual(model.tail_ms(made, 10, lambda _: 7), 9)  # and here at 12
        self.assertEqual(model.tail_ms([model.Bucket(0.5, 1)], 10, lambda _: 2), 0)

    def test_largest_of_normal_draws(self):
        self.assertEqual(model.largest_of(1), 0)
        self.assertAlmostEqual(model.largest_of(2), 1 / math.sqrt(math.pi), 4)
        self.assertAlmostEqual(model.largest_of(3), 1.5 / math.sqrt(math.pi), 4)
        self.assertAlmostEqual(model.largest_of(100), 2.5076, 3)

    def test_rings_and_trees(self):
        self.assertEqual(model.moved(4, 100), 150)
        ring = {"kind": "ring", "inside_us": 1, "between_us": 10, "bandwidth_share": 1}
        tree = {"kind": "tree", "inside_us": 1, "between_us": 10, "bandwidth_share": 0.5}
        self.assertEqual(model.hops_us(ring, 8, 1), 14)
        self.assertEqual(model.hops_us(ring, 32, 4), 2 * (28 + 30))
        self.assertEqual(model.hops_us(tree, 32, 4), 2 * (7 + 20))
        links = {**TRUE, "algorithms": [ring, tree], "link_gbit_s": 400, "link_efficiency": 1}
        self.assertEqual(model.bus_bandwidth({**links, "links_per_node": 1}, 32, 4), 50)
        self.assertEqual(model.bus_bandwidth({**links, "links_per_node": 8}, 32, 4), 250)  # NVLink is the slower one
        # Few bytes go by the tree, many by the ring.
        self.assertAlmostEqual(model.all_reduce_ms(links, 32, 4, 0), 0.010 + 0.054)
        self.assertAlmostEqual(model.all_reduce_ms(links, 32, 4, 1e9), 0.010 + 0.116 + 1.9375 * 1e9 / 250e6)

    def test_line_is_fitted_by_relative_errors(self):
        latency, bandwidth = model.fit_line([(x, 20 + x / 250e3) for x in (1e5, 1e7, 1e8)])
        self.assertAlmostEqual(latency, 20)
        self.assertAlmostEqual(bandwidth, 250)
        self.assertRaises(ValueError, model.fit_line, [(1e5, 20), (1e5, 21)])
        self.assertRaises(ValueError, model.fit_line, [(1e5, 20), (1e6, 19)])

    def test_one_gpu_is_what_was_measured(self):
        p = model.predict(TRUE, 1)
        self.assertEqual((p.step_ms, p.efficiency, p.reduce_ms), (11.0, 1.0, 0.0))

    def test_loader_limits_a_step(self):
        p = model.predict({**TRUE, "cores_per_gpu": 1, "loader_img_s_core": 100}, 8)
        self.assertAlmostEqual(p.step_ms, 40)
        self.assertAlmostEqual(p.img_s, 800)

    def test_an_epoch_is_no_shorter_than_its_scores(self):
        p = model.predict({**TRUE, "scoring_s": 1e6}, 256, 32)
        self.assertAlmostEqual(p.beside, 1 - TRUE["epoch_images"] / p.img_s / 1e6)

    def test_the_profile_gives_all_gradients(self):
        with open(os.path.join(ROOT, "results", "profile-b4-h200.txt"), encoding="utf-8") as f:
            line = model.timeline_of_profile(f.read())
        self.assertEqual(line, INPUTS["timeline"])
        self.assertEqual(line[-1][0], 1.0)
        # torchvision's 44,401,393 parameters but the frozen stem and first stage
        self.assertEqual(sum(size for _, size in line), 4 * (44401393 - 9408 - 212992))
        self.assertRaises(ValueError, model.timeline_of_profile, "nothing")


class Records(unittest.TestCase):
    def test_what_is_lost_is_told_apart(self):
        records = made_up()
        lost = scaling_records.losses(records, records[4], TRUE["timeline"])
        truth = model.predict(TRUE, 2)
        self.assertAlmostEqual(lost["multiprocessors"], 0.12)
        self.assertAlmostEqual(lost["waiting for each other"], 0)
        self.assertAlmostEqual(lost["slowest rank"], truth.terms["slowest rank"])
        self.assertAlmostEqual(lost["all"], truth.step_ms - 11)
        self.assertAlmostEqual(lost["tail"], 1e-3 * (16.8 + 1e-3 * 16441344 / 250), 3)
        parts = (lost[k] for k in ("multiprocessors", "waiting for each other", "reducing", "slowest rank"))
        self.assertAlmostEqual(sum(parts), lost["all"])

    def test_other_runs_are_not_divided_by(self):
        records = made_up()
        self.assertAlmostEqual(scaling_records.efficiency(records, records[4]), 11.0 / records[4]["step_ms"])
        for other in ({"commit": "def5678"}, {"date": "2030-01-01T20:00:00Z"}, {"run": "a"}, {"batch": 1},
                      {"full_masks": True}, {"machine": {**ORIGIN["machine"], "gpus": 4}}):
            self.assertIsNone(scaling_records.efficiency(records, {**records[4], **other}))

    def test_the_fit_finds_what_made_the_records(self):
        fitted, sources = scaling_records.fit(INPUTS, SOURCES, made_up(), scaling_records.default_setting())
        for name in ("step_ms", "backward_ms", "spread_ms", "multiprocessors_share", "nvlink_gb_s", "base_us"):
            self.assertAlmostEqual(fitted[name], TRUE[name], 4, name)
            self.assertTrue(sources[name].startswith("measured: "), name)
        self.assertAlmostEqual(model.predict(fitted, 8).img_s / model.predict(TRUE, 8).img_s, 1, 3)

    def test_an_evaluation_is_the_newest_that_was_measured(self):
        infer = {"bench": "infer", "model": "maskrcnn", "batch": 8, "amp": "bf16", "canvas_h": 800, "canvas_w": 1344,
                 "img_s": 500.0, **ORIGIN}
        scores = [{"bench": "cocoeval", "iou": iou, "images": 5000, "detections": 500000, "cores": 2, "ours_s": s, **ORIGIN}
                  for iou, s in (("bbox", 3.0), ("segm", 4.0), ("boundary", 50.0))]
        old = [{**r, "img_s": 1.0, "ours_s": 1e3, "date": "2029-01-01T10:00:00Z"} for r in [infer, *scores]]
        other = [{**infer, "batch": 24, "img_s": 2.0}, {**infer, "canvas_h": 512, "img_s": 2.0}]
        records = [infer, *other, *scores, *old, *made_up()]
        fitted, sources = scaling_records.fit(INPUTS, SOURCES, records, scaling_records.default_setting())
        self.assertEqual((fitted["infer_img_s"], fitted["scoring_s"]), (500, 7.0 * 2 / INPUTS["cores_per_gpu"]))
        self.assertIn("7.0 s for boxes and masks on 2 cores, abc1234", sources["scoring_s"])
        half, _ = scaling_records.fit(INPUTS, SOURCES, [scores[0], *made_up()], scaling_records.default_setting())
        self.assertEqual(half["scoring_s"], INPUTS["scoring_s"])

    def test_a_setting_of_which_nothing_is_known_is_refused(self):
        with self.assertRaisesRegex(Refused, "no one-GPU record .* batch 3"):
            scaling_records.fit(INPUTS, SOURCES, made_up(), scaling_records.default_setting(batch=3))


class Programs(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        os.mkdir(os.path.join(self.root, "results"))
        shutil.copy(os.path.join(ROOT, "results", "scaling-model.json"), os.path.join(self.root, "results"))
        self.put("results/scaling-h200.jsonl", made_up())
        self.put("results/bench-h200.jsonl", [])
        self.put("results/legacy.json", "[]\n")
        self.put("results/clocks-h200.jsonl", [
            {"bench": "clocks", "case": case, "gpu": 0, "mhz": 1900, "mhz_sd": 40, "watts": 690, "img_s": 280, **ORIGIN}
            for case in ("one", "not reducing", "reducing")])
        self.put("results/learning-ranks-h200.jsonl", [
            {"steps": 100, "gpus": 2, "batch": 4, "reduce": "fp32", "sockets": False, "bbox_AP": 0.5 + seed / 100,
             "segm_AP": 0.25, **ORIGIN} for seed in (1, 2)])
        self.put("results/README.md", "`scaling-model.json`, `scaling-h200.jsonl`, `bench-h200.jsonl`, "
                                      "`clocks-h200.jsonl`, `learning-ranks-h200.jsonl`, `legacy.json`\n")
        self.kept, scaling.ROOT = scaling.ROOT, self.root

    def tearDown(self):
        scaling.ROOT = self.kept
        shutil.rmtree(self.root)

    def put(self, name, what):
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as f:
            f.write(what if isinstance(what, str) else "".join(json.dumps(r) + "\n" for r in what))
        return os.path.join(self.root, name)

    def call(self, main, *args):
        """Exit status and what was said."""
        kept, sys.argv = sys.argv, ["program", *args]
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                main()
        except SystemExit as end:
            return end.code or 0, said.getvalue()
        finally:
            sys.argv = kept
        return 0, said.getvalue()

    def test_a_measurement_is_held_against_the_prediction(self):
        truth = model.predict(TRUE, 8).step_ms
        good = self.put("new.jsonl", [several(8, truth)])
        status, said = self.call(scaling.main, "--check", good)
        self.assertEqual(status, 0, said)
        self.assertRegex(said, r"[+-]0\.0 %")
        status, said = self.call(scaling.main, "--check", self.put("new.jsonl", [several(8, 1.2 * truth)]))
        self.assertEqual(status, 1, said)
        self.assertIn("+20.0 %", said)
        status, said = self.call(scaling.main, "--check", self.put("new.jsonl", [several(32, truth, nodes=4)]))
        self.assertRegex(said, r"32 +4 +4 ")
        # Its own one-GPU record counts, where it is newer: a machine half as fast.
        date = {"date": "2031-01-01T00:00:00Z"}
        slow = [train_record(1, step_ms=22.0, **date), several(8, 22.0 + truth - 11.0 + 0.12, **date)]
        status, said = self.call(scaling.main, "--check", self.put("new.jsonl", slow))
        self.assertEqual(status, 0, said)

    def test_what_cannot_be_used_is_said_in_a_line(self):
        cases = ((("--check", os.path.join(self.root, "none")), "No such file"),
                 (("--check", self.put("bad.jsonl", "{\n")), "bad.jsonl:1: no JSON object"),
                 (("--check", self.put("list.jsonl", "[]\n")), "list.jsonl:1: no JSON object"),
                 (("--check", self.put("one.jsonl", [train_record(1, step_ms=1)])), "no record of ./train"),
                 (("--check", self.put("few.jsonl", [{"bench": "train", "world": 2}])), "few"),
                 (("--inputs", self.put("inputs.json", "{}")), "not the model's inputs"),
                 (("--set", "speed=1"), "no number is called speed; there are "),
                 (("--set", "batch=many"), "many is no number"),
                 (("--batch", "3"), "no one-GPU record"))
        for args, expected in cases:
            status, said = self.call(scaling.main, *args)
            self.assertEqual((status, said.count("\n")), (2, 1), (args, said))
            if expected != "few":
                self.assertIn(expected, said)

    def test_the_prediction_says_what_it_rests_on(self):
        status, said = self.call(scaling.main, "--set", "link_gbit_s=100")
        self.assertEqual(status, 0, said)
        self.assertIn("step_ms 11  (measured: one GPU, abc1234)", said)
        self.assertIn("link_gbit_s 100  (given)", said)
        self.assertRegex(said, r"\n +256 +32 ")

    def test_the_plot_tells_measured_from_predicted(self):
        self.put("results/scaling-h200.jsonl",
                 made_up() + [train_record(1, step_ms=13.0, full_masks=True)])
        path = os.path.join(self.root, "plot.svg")
        status, said = self.call(scaling.main, "--plot", path)
        self.assertEqual((status, said), (0, ""))
        with open(path, encoding="utf-8") as f:
            svg = f.read()
        for text in (">batch 4, bf16, measured<", ">batch 4, bf16, predicted<", ">GPUs<", ">images a second<",
                     "torchvision"):
            self.assertIn(text, svg)
        self.assertEqual(svg.count("</svg>"), 1)
        self.assertIn('class="dashed c0"', svg)

    def test_the_plot_that_is_kept_is_of_the_records(self):
        path = os.path.join(ROOT, "results", "scaling-h200.svg")
        if not os.path.exists(path):
            self.skipTest("results/ has no plot yet")
        scaling.ROOT = ROOT
        again = os.path.join(self.root, "again.svg")
        self.assertEqual(self.call(scaling.main, "--plot", again), (0, ""))
        with open(path, encoding="utf-8") as kept, open(again, encoding="utf-8") as drawn:
            self.assertEqual(kept.read(), drawn.read(), "python3 lab/scaling.py --plot results/scaling-h200.svg")

    def test_the_tables_are_written(self):
        names = sorted(n for n in tables.TABLES if n.startswith("scaling-"))
        page = "".join(f"<!-- table: {n} -->\n<!-- end -->\n" for n in names)
        page += "".join(f"<!-- value: {n} --><!-- end -->\n" for n in tables.VALUES if n.startswith("scaling."))
        self.put("README.md", page.replace("<!-- value: scaling.full --><!-- end -->\n", ""))
        status, said = self.call(tables.main, "--root", self.root)
        self.assertEqual(status, 0, said)
        with open(os.path.join(self.root, "README.md"), encoding="utf-8") as f:
            page = f.read()
        own = model.predict(TRUE, 2).step_ms
        self.assertIn(f"| batch 4, frozen-bn | 2 | each rank's own | fp32 | NVLink | 16 / 8 | "
                      f"{8e3 / own:.0f} | {own:.2f} | {1100 / own:.1f} % | abc1234 |", page)
        self.assertIn("| batch 4, frozen-bn | 2 | fp32 | NVLink | 0.00 | 0.12 | ", page)
        self.assertIn("| 2 GPUs | 8 CTAs |\n|---|---|\n| 16 MB, 8 buckets | ", page)
        self.assertIn("| 2 × batch 4 | fp32 |  | 100 | 51.0 / 25.0, 52.0 / 25.0 | 51.50 / 25.00 |", page)
        self.assertIn("| 2 | 176 MB | 721 µs, 244 GB/s |", page)
        self.assertIn("| `nvlink_gb_s` | 250 | measured: bench_reduce on 2 GPUs, 8 CTAs |", page)
        self.assertEqual(self.call(tables.main, "--root", self.root, "--check")[0], 0)

    def test_a_record_without_its_one_gpu_is_refused(self):
        self.put("results/scaling-h200.jsonl", made_up()[1:])
        self.put("README.md", "<!-- table: scaling-weak -->\n<!-- end -->\n")
        status, said = self.call(tables.main, "--root", self.root)
        self.assertEqual(status, 2)
        self.assertIn("no one-GPU record of its setting in its run", said)


if __name__ == "__main__":
    unittest.main()
