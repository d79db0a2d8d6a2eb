"""The plot of docs/scaling.md: weak scaling and images a second by the number of GPUs, ours and others', what was
measured as filled marks on a line and what is predicted as open marks on a dashed one."""
import math
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, PANEL, GAP = 860, 78, 24, 92, 250, 84
COLORS = ("#1f5fa8", "#d1495b", "#2e8b57", "#7b5ea7", "#c77f1a", "#666666")
STYLE = """text { fill: #333 } .title { font-size: 18px; font-weight: bold }
.panel { font-size: 14px; font-weight: bold }
.label, .tick, .legend { font-size: 12px } .tick { fill: #666 }
.middle { text-anchor: middle } .end { text-anchor: end }
path { fill: none; stroke-linejoin: round } .grid { stroke: #e8e8e8 } .axis { stroke: #999 } .line { stroke-width: 1.8 }
.predicted { stroke-dasharray: 6 4 }"""


class Series:
    """points: (GPUs, value), ascending. What is measured and predicted of the same thing has one colour."""

    def __init__(self, thing, points, predicted=False, ours=True):
        self.thing, self.points, self.predicted, self.color = thing, points, predicted, None
        self.name = thing + (", predicted" if predicted else ", measured") if ours else thing


class Panel:
    """One over the other in the plot: its own y axis from low to high, with these ticks; log: powers of ten are as far
    apart as each other."""

    def __init__(self, title, y_label, series, low, high, ticks, log=False):
        self.title, self.y_label, self.series, self.log = title, y_label, series, log
        self.low, self.high, self.ticks = low, high, ticks

    def height_of(self, value):
        scale = math.log if self.log else float
        return (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))


def text(x, y, kind, what):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(what)}</text>'


def mark(x, y, series):
    fill = "#fff" if series.predicted else series.color
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{series.color}" stroke-width="1.6"/>'


def draw_axes(panel, top, most_gpus, x_of):
    bottom, right = top + PANEL, WIDTH - RIGHT
    out = [text(LEFT, top - 12, "panel", panel.title)]
    for tick in panel.ticks:
        y = bottom - PANEL * panel.height_of(tick)
        out += [f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>', text(LEFT - 8, y + 4, "tick end", f"{tick:g}")]
    gpus = 1
    while gpus <= most_gpus:
        out.append(text(x_of(gpus), bottom + 18, "tick middle", str(gpus)))
        gpus *= 2
    out.append(f'<path class="axis" d="M{LEFT} {top}V{bottom}H{right}"/>')
    out.append(text((LEFT + right) / 2, bottom + 38, "label middle", "GPUs"))
    middle = top + PANEL / 2
    out.append(f'<text transform="translate(18 {middle:.1f}) rotate(-90)" class="label middle">{escape(panel.y_label)}'
               "</text>")
    return out


def draw_series(panel, series, top, x_of):
    at = [(x_of(gpus), top + PANEL * (1 - panel.height_of(value))) for gpus, value in series.points]
    out, kind = [], "line predicted" if series.predicted else "line"
    if len(at) > 1:
        out.append(f'<path class="{kind}" stroke="{series.color}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in at) +
                   '"/>')
    return out + [mark(x, y, series) for x, y in at]


def draw_legend(named, y):
    """A line for each series, in two columns."""
    out = []
    for i, series in enumerate(named):
        x, line = LEFT + (i % 2) * 390, y + 18 * (i // 2)
        out += [mark(x + 6, line - 4, series), text(x + 18, line, "legend", series.name)]
    return out


def svg(title, note, panels):
    colors, named = {}, {}
    for series in (s for p in panels for s in p.series):
        series.color = colors.setdefault(series.thing, COLORS[len(colors) % len(COLORS)])
        named.setdefault(series.name, series)
    most = max(gpus for p in panels for s in p.series for gpus, _ in s.points)
    x_of = lambda gpus: LEFT + 24 + (WIDTH - LEFT - RIGHT - 48) * math.log2(gpus) / max(math.log2(most), 1)
    legend = TOP + len(panels) * (PANEL + GAP) - 12
    height = legend + 18 * ((len(named) + 1) // 2) + 12
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           'font-family="Helvetica, Arial, sans-serif">', f"<style>\n{STYLE}\n</style>",
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', text(LEFT, 32, "title", title),
           text(LEFT, 54, "legend", note)]
    for i, panel in enumerate(panels):
        top = TOP + i * (PANEL + GAP)
        out += draw_axes(panel, top, most, x_of)
        for series in panel.series:
            out += draw_series(panel, series, top, x_of)
    return "\n".join(out + draw_legend(named.values(), legend)) + "\n</svg>\n"
