#!/usr/bin/env python3
"""Drawing tools for the diagrams of docs/course/: an SVG, and the constants of the code."""
import html
import os
import re

STYLE = """text { font: 13px Helvetica, Arial, sans-serif; fill: #1f2328 } .small { font-size: 11px }
.title { font-weight: bold } .middle { text-anchor: middle } .end { text-anchor: end } .faint { fill: #656d76 }
.back { fill: #ffffff } .box { fill: none; stroke: #656d76 } .line { fill: none; stroke: #656d76; stroke-width: 1.2 }
.a { fill: #bfdbfe; stroke: #2563eb } .b { fill: #fed7aa; stroke: #c2410c } .c { fill: #bbf7d0; stroke: #15803d }
.none { fill: #f6f8fa; stroke: #d0d7de } .strong { fill: none; stroke: #2563eb; stroke-width: 1.8 }
.warm { fill: none; stroke: #c2410c; stroke-width: 1.8 } .dot { fill: #c2410c } .tip { fill: #656d76 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .faint { fill: #9198a1 } .back { fill: #0d1117 } .box, .line { stroke: #9198a1 }
.a { fill: #1e3a8a; stroke: #93c5fd } .b { fill: #7c2d12; stroke: #fdba74 } .c { fill: #14532d; stroke: #86efac }
.none { fill: #161b22; stroke: #30363d } .strong { stroke: #93c5fd } .warm { stroke: #fdba74 } .dot { fill: #fdba74 }
.tip { fill: #9198a1 }
}"""


class Refused(Exception):
    pass


class Drawing:
    def __init__(self, width, height):
        self.size, self.parts = (width, height), []

    def rect(self, x, y, w, h, style="box", round_by=2):
        self.parts.append(f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{round_by}"/>')

    def text(self, x, y, words, style=""):
        self.parts.append(f'<text x="{x:g}" y="{y:g}"' + (f' class="{style}"' if style else "")
                          + f">{html.escape(words, quote=False)}</text>")

    def path(self, points, style="line"):
        self.parts.append(f'<path class="{style}" d="M' + "L".join(f"{x:g} {y:g}" for x, y in points) + '"/>')

    def dot(self, x, y, r=2.5, style="dot"):
        self.parts.append(f'<circle class="{style}" cx="{x:g}" cy="{y:g}" r="{r:g}"/>')

    def arrow(self, x1, y1, x2, y2, style="line"):
        length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1e-9)
        u, v = (x2 - x1) / length, (y2 - y1) / length
        self.path([(x1, y1), (round(x2 - 5 * u, 1), round(y2 - 5 * v, 1))], style)
        corners = [(x2, y2), (x2 - 7 * u - 3 * v, y2 - 7 * v + 3 * u), (x2 - 7 * u + 3 * v, y2 - 7 * v - 3 * u)]
        self.parts.append('<path class="tip" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners) + 'Z"/>')

    def svg(self):
        w, h = self.size
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}">\n'
                f"<style>\n{STYLE}\n</style>\n" + f'<rect class="back" width="{w}" height="{h}" rx="6"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")


class Sources:
    """Constants as the code has them."""

    def __init__(self, root):
        self.root = root

    def text(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as f:
            return f.read()

    def constant(self, path, name):
        """NAME = 123, of an enum, or 16e9 of a double."""
        found = re.search(rf"\b{name} = ([0-9.e+-]+)\b", self.text(path))
        if not found:
            raise Refused(f"{path}: no constant {name}; a diagram of the course needs it")
        return float(found.group(1)) if re.search("[.e]", found.group(1)) else int(found.group(1))

    def enums(self, path):
        """All enumerators of a file by name, those of `enum { NAME = 1, OTHER = NAME * 2 }`."""
        found = {}
        for body in re.findall(r"\benum (?:\w+ )?\{([^}]*)\}", re.sub(r"//[^\n]*", "", self.text(path))):
            for name, value in re.findall(r"(\w+) = ([\w\s+*/()%-]+)", body):
                try:
                    found[name] = int(eval(value.replace("/", "//"), {"__builtins__": {}}, found))
                except (NameError, SyntaxError) as error:
                    raise Refused(f"{path}: {name} = {value} cannot be drawn: {error}") from error
        return found
