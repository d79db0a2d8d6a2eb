"""Plots as SVG, using only the standard library: stacked panels with lines or bars, and one legend. Our measurements
are filled; published or predicted values are open and dashed."""
import html
import math
import re

WIDTH, LEFT, RIGHT, HEAD, PANEL, TOP, BOTTOM, LEGEND_LINE = 860, 84, 24, 52, 320, 44, 62, 20
# Okabe and Ito's palette, safe for colour-blind readers, without yellow; brighter on dark pages.
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555")
DARK = ("#4aa8e0", "#f28538", "#2fc79a", "#e39cc4", "#8fd0f5", "#f2b94a", "#aaaaaa")
MARKS = ("m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "m-4 -4h8v8h-8z", "m0 -5.5l5 5.5l-5 5.5l-5 -5.5z", "m0 -5l5 9h-10z")


def colours(palette):
    return "\n".join(f".c{i} {{ stroke: {c} }} .f{i} {{ fill: {c} }}" for i, c in enumerate(palette))


STYLE = f"""text {{ fill: #333; font-size: 12px }} .title {{ font-size: 18px; font-weight: bold }}
.panel {{ font-size: 14px; font-weight: bold }} .middle {{ text-anchor: middle }} .end {{ text-anchor: end }}
path {{ fill: none; stroke-linejoin: round }} .page {{ fill: #fff }} .grid {{ stroke: #e6e6e6 }}
.axis {{ stroke: #888 }}
.line {{ stroke-width: 1.8 }} .error {{ stroke-width: 1.4 }} .onbar {{ stroke: #222 }}
.dashed {{ stroke-width: 1.6; stroke-dasharray: 5 4 }} .open {{ fill: #fff; stroke-width: 1.6 }}
{colours(LIGHT)}
@media (prefers-color-scheme: dark) {{
text {{ fill: #d8d8d8 }} .page, .open {{ fill: #16181c }} .grid {{ stroke: #33363c }} .onbar {{ stroke: #eee }}
{colours(DARK)}
}}"""


class Series:
    """points: (x, value, its error or None), in ascending x. Series of one colour show the same thing. mark: which of
    MARKS stands at each point; None: a line alone."""

    def __init__(self, name, points, colour, dashed=False, mark=0):
        self.name, self.points, self.colour = name, points, colour % len(LIGHT)
        self.dashed, self.mark = dashed, None if mark is None else mark % len(MARKS)


class Axis:
    """From low to high, both logarithms if log; ticks: (value, text)."""

    def __init__(self, low, high, ticks, log=False):
        self.low, self.high, self.ticks, self.log = low, high, ticks, log

    def shows(self, value):
        return value is not None and math.isfinite(value) and (not self.log or value > 0)

    def fraction(self, value):
        return ((math.log10(value) if self.log else value) - self.low) / (self.high - self.low)


class Panel:
    """One plot: what is above it, its axes, its series; bars: of an axis of names."""

    def __init__(self, title, x_label, y_label, x, y, series, bars=False):
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.x, self.y, self.series, self.bars = x, y, series, bars


# ---- axes -----------------------------------------------------------------------------------------------------------

def even_step(extent):
    """About five of them are the extent."""
    raw = extent / 5
    power = 10 ** math.floor(math.log10(raw))
    return power * next(step for most, step in ((1.5, 1), (3.5, 2), (7.5, 5), (math.inf, 10)) if raw / power < most)


def values_axis(values, log=False, from_zero=False):
    """An axis that holds all values, with a tick at each round number."""
    scaled = [math.log10(v) if log else v for v in values if math.isfinite(v) and (not log or v > 0)] or [0, 1]
    low, high = min(scaled), max(scaled)
    if log:
        margin = max(0.04 * (high - low), 0.05)
        low, high = low - margin, high + margin
        leads = (1, 2, 5) if high - low < 2.5 else (1,)
        ticks = [lead * 10.0 ** p for p in range(math.floor(low), math.ceil(high) + 1) for lead in leads]
        ticks = [v for v in ticks if low <= math.log10(v) <= high]
        if len(ticks) < 2:  # the range is so short that no tick lies in it
            step = even_step(10 ** high - 10 ** low)
            ticks = [i * step for i in range(math.ceil(10 ** low / step), math.floor(10 ** high / step) + 1)]
    else:
        if from_zero or 0 < low < 0.5 * high:
            low = min(low, 0)
        if high <= low:
            high = low + (0.1 * abs(low) or 1)
        step = even_step(high - low)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        low, high, ticks = first * step, last * step, [i * step for i in range(first, last + 1)]
    return Axis(low, high, [(v, f"{v:.6g}") for v in ticks], log)


def points_axis(ticks, log=False):
    """An axis with a tick at each of these (value, text), and a little room at both ends."""
    scaled = [math.log10(v) if log else v for v, _ in ticks] or [0, 1]
    margin = 0.04 * (max(scaled) - min(scaled)) or 0.5
    return Axis(min(scaled) - margin, max(scaled) + margin, ticks, log)


def names_axis(names):
    """Names side by side, at 0, 1, 2, …, each in the middle of its share."""
    return Axis(-0.5, max(len(names), 1) - 0.5, list(enumerate(names)))


# ---- drawing --------------------------------------------------------------------------------------------------------

def text(x, y, style, what):
    what = re.sub("[\0-\x08\x0b-\x1f\ufffe\uffff]", "\ufffd", what)  # XML cannot represent them
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{html.escape(what, quote=False)}</text>'


def draw_mark(series, x, y):
    if series.mark is None:
        return ""
    if series.dashed:
        return f'<path class="open c{series.colour}" d="M{x:.1f} {y:.1f}{MARKS[series.mark]}"/>'
    return f'<circle class="f{series.colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.6"/>'


def draw_bar(series, x, y, width, height):
    style = f"dashed open c{series.colour}" if series.dashed else f"f{series.colour}"
    return f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def draw_names(ticks, x_of, y):
    """In two rows where one has no room, and without those that would cover others even so."""
    wide = [x_of(v) for v, _ in ticks]
    rows = 2 if any(b - a < 7 * len(name) + 8 for a, b, (_, name) in zip(wide, wide[1:], ticks[1:])) else 1
    ends, out = [-math.inf] * rows, []
    for i, (at, (_, name)) in enumerate(zip(wide, ticks)):
        if at - ends[i % rows] >= 7 * len(name) + 8:
            ends[i % rows] = at
            out.append(text(at, y + 14 * (i % rows), "middle", name))
    return out


class Drawing:
    """A panel at its height on the page."""

    def __init__(self, panel, top):
        self.panel, self.top, self.bottom = panel, top + TOP, top + PANEL - BOTTOM
        self.seen = [(s, [p for p in s.points if panel.y.shows(p[1])]) for s in panel.series]
        self.seen = [(s, points) for s, points in self.seen if points]

    def x_of(self, value):
        return LEFT + (WIDTH - LEFT - RIGHT) * self.panel.x.fraction(value)

    def y_of(self, value):
        return self.bottom - (self.bottom - self.top) * self.panel.y.fraction(value)

    def axes(self):
        panel, right, out = self.panel, WIDTH - RIGHT, []
        for value, name in panel.y.ticks:
            y = self.y_of(value)
            out += [f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>', text(LEFT - 8, y + 4, "end", name)]
        out += draw_names(panel.x.ticks, self.x_of, self.bottom + 18)
        out += [f'<path class="axis" d="M{LEFT} {self.top}V{self.bottom}H{right}"/>',
                text(LEFT, self.top - 14, "panel", panel.title),
                text((LEFT + right) / 2, self.bottom + 50, "middle", panel.x_label),
                f'<g transform="translate(20 {(self.top + self.bottom) / 2:.1f}) rotate(-90)">'
                + text(0, 0, "middle", panel.y_label) + "</g>"]
        return out

    def error(self, x, point, style):
        _, value, error = point
        if not error or error <= 1e-12 * abs(value) or not self.panel.y.shows(value - error):
            return []
        high, low = self.y_of(value + error), self.y_of(value - error)
        return [f'<path class="error {style}" d="M{x:.1f} {high:.1f}V{low:.1f}M{x - 4:.1f} {high:.1f}h8'
                f'M{x - 4:.1f} {low:.1f}h8"/>']

    def line(self, series, points):
        at = [(self.x_of(x), self.y_of(value)) for x, value, _ in points]
        style = f'{"dashed" if series.dashed else "line"} c{series.colour}'
        out = [f'<path class="{style}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in at) + '"/>']
        for (x, y), point in zip(at, points):
            out += self.error(x, point, f"c{series.colour}") + [draw_mark(series, x, y)]
        return out

    def bars(self):
        """Side by side within four fifths of the share of each name."""
        share, out = (WIDTH - LEFT - RIGHT) / (self.panel.x.high - self.panel.x.low), []
        width = 0.8 * share / max(len(self.seen), 1)
        for i, (series, points) in enumerate(self.seen):
            for point in points:
                x, tip = self.x_of(point[0]) - 0.4 * share + i * width, self.y_of(point[1])
                base = self.y_of(0) if not self.panel.y.log and self.panel.y.low < 0 else self.bottom
                out.append(draw_bar(series, x + 0.04 * width, min(tip, base), 0.92 * width, abs(base - tip)))
                out += self.error(x + 0.5 * width, point, "onbar")
        return out

    def draw(self):
        out = self.axes()
        if not self.seen:
            out.append(text((LEFT + WIDTH - RIGHT) / 2, (self.top + self.bottom) / 2, "middle", "no figures"))
        return out + (self.bars() if self.panel.bars else [o for s, p in self.seen for o in self.line(s, p)])


def draw_legend(series, bars, y):
    out = []
    for i, one in enumerate(series):
        line = y + LEGEND_LINE * i
        if bars:
            out.append(draw_bar(one, LEFT, line - 9, 22, 10))
        else:
            style = "dashed" if one.dashed else "line"
            out += [f'<path class="{style} c{one.colour}" d="M{LEFT} {line - 4}h22"/>',
                    draw_mark(one, LEFT + 11, line - 4)]
        out.append(text(LEFT + 30, line, "legend", one.name))
    return out


def svg(title, panels, note=None):
    """The whole picture. Series of one name are told once in the legend."""
    head = HEAD + (20 if note else 0)
    drawings = [Drawing(panel, head + PANEL * i) for i, panel in enumerate(panels)]
    named = {}
    for series, _ in (seen for drawing in drawings for seen in drawing.seen):
        named.setdefault(series.name, series)
    legend = head + PANEL * len(panels) + 14
    height = legend + LEGEND_LINE * len(named) + 12
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           'font-family="Helvetica, Arial, sans-serif">', f"<style>\n{STYLE}\n</style>",
           f'<rect class="page" width="{WIDTH}" height="{height}"/>', text(LEFT, 32, "title", title)]
    out += [text(LEFT, 54, "legend", note)] if note else []
    for drawing in drawings:
        out += drawing.draw()
    bars = any(panel.bars for panel in panels)
    return "\n".join(out + draw_legend(named.values(), bars, legend)) + "\n</svg>\n"
