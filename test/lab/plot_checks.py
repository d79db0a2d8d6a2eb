#!/usr/bin/env python3
"""Without this: a plot of results/ that is not of its records any more, an axis that cuts a value off, a mark that is
not where its value is."""
import os
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "lab"))
import conv_plot
import ladder_plot
import loss_plot
import plot
from records import Results


def kept(name):
    with open(os.path.join(ROOT, "results", name), encoding="utf-8") as f:
        return f.read()


class Plots(unittest.TestCase):
    def test_the_plots_that_are_kept_are_of_the_records(self):
        results = Results(ROOT)
        self.assertEqual(kept("conv-h200.svg"), conv_plot.svg(results),
                         "python3 lab/conv_plot.py >results/conv-h200.svg")
        ladder = ladder_plot.Ladder(results.all("ladder-h200", bench="ladder"))
        self.assertEqual(kept("ladder-h200.svg"), ladder_plot.svg(ladder),
                         "python3 lab/ladder_plot.py results/ladder-h200.jsonl >results/ladder-h200.svg")

    def test_an_axis_holds_its_values(self):
        for values in ([3], [0, 0], [-2, 5], [0.001, 0.0011], [180.2, 181.9], [1, 1e6]):
            for log in (False, True):
                axis = plot.values_axis(values, log)
                shown = [v for v in values if axis.shows(v)]
                self.assertEqual(len(shown), len([v for v in values if v > 0 or not log]))
                for v in shown:
                    self.assertTrue(-1e-9 <= axis.fraction(v) <= 1 + 1e-9, (values, log))
                self.assertGreater(len(axis.ticks), 1, (values, log))
        self.assertEqual(plot.values_axis([6, 7], from_zero=True).low, 0)

    def test_marks_bars_and_errors_stand_where_values_are(self):
        points, axis = [(1, 0, None), (4, 100, 50)], plot.Axis(0, 100, [(0, "0"), (100, "100")])
        line = plot.Panel("p", "x", "y", plot.Axis(0, 4, []), axis, [plot.Series("a < b", points, 0)])
        svg = plot.svg("t", [line])
        self.assertIn('cx="272.0" cy="310.0"', svg)  # a quarter of 752 right of 84; the bottom of the panel
        self.assertIn('cx="836.0" cy="96.0"', svg)
        self.assertIn('d="M836.0 -11.0V203.0', svg)  # a half of 214 up and down
        self.assertIn(">a &lt; b<", svg)
        names = plot.names_axis(["one", "two"])
        dashed = plot.Series("theirs\x01", [(1, 50, None)], 1, dashed=True)
        svg = plot.svg("t", [plot.Panel("p", "x", "y", names, axis, [dashed, plot.Series("none", [], 2)], bars=True)])
        self.assertIn('<rect class="dashed open c1" x="509.6" y="203.0" width="276.7" height="107.0"/>', svg)
        self.assertIn(">theirs\ufffd<", svg)
        self.assertNotIn(">none<", svg)

    def test_losses_of_runs(self):
        """A log that is being written, one of a run that diverged, and one without seconds."""
        with tempfile.NamedTemporaryFile("w+", suffix=".jsonl") as f:
            f.write('{"step":1,"kind":"train","loss":4,"loss_mask":1,"seconds":1}\n{"step":1,"kind":"eval","loss":9}\n'
                    '{"step":2,"kind":"train","loss":2,"loss_mask":null,"seconds":2}\n'
                    '{"step":3,"kind":"train","loss":NaN,"loss_mask":1,"seconds":3}\n{"step":4,"ki')
            f.flush()
            steps = loss_plot.read(f.name)
        self.assertEqual([r["step"] for r in steps], [1, 2, 3])
        self.assertEqual(loss_plot.points(steps, "loss", "step"), [(1, 4, None), (2, 2, None)])
        many = [{"step": i, "loss": i % 2} for i in range(1, 1201)]
        self.assertEqual(loss_plot.points(many, "loss", "step")[0], (4, 0.5, None))
        svg = loss_plot.svg("T", [("ours", steps), ("torchvision", [{"step": 1, "loss": 3}])])
        self.assertEqual((svg.count('class="panel"'), svg.count(">ours<"), svg.count("<circle")), (3, 1, 0))
        self.assertEqual(svg.count(">seconds of training<"), 1)

    def test_a_panel_without_values_says_so(self):
        axis = plot.values_axis([])
        self.assertIn("no figures", plot.svg("t", [plot.Panel("p", "x", "y", plot.names_axis([]), axis, [])]))

    def test_names_that_would_cover_others_are_left_out(self):
        ticks = [(i, f"a long name, {i}") for i in range(40)]
        drawn = plot.draw_names(ticks, lambda v: 10 * v, 0)
        self.assertTrue(0 < len(drawn) < 40)


if __name__ == "__main__":
    unittest.main()
