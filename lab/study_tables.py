"""Writes the tables of a study, tables.md; its figures as records, cells.jsonl; and its plots."""
import itertools
import json

import plot
from study_plan import holds
from study_text import number

MOST_DIFFERENCES = 60  # maximum number listed
SIGNIFICANT = 2  # standard errors: a smaller difference may be noise


def content(text):
    """Of a table's cell."""
    return text.replace("|", "\\|").replace("\n", " ")


class Tables:
    def __init__(self, data, others=0, changed=0):
        self.data, self.plan, self.others, self.changed = data, data.plan, others, changed

    # ---- a table ----

    def distinct(self, cells, settings):
        """The different values that cells have of the settings, in order; what has no use for one comes first."""
        values = {s: [None, *self.plan.settings[s].values] for s in settings}
        parts = {tuple(values[s].index(c.get(s)) for s in settings): {s: c.get(s) for s in settings} for c in cells}
        return [parts[order] for order in sorted(parts)]

    def name(self, setting, value):
        """batch/GPU 4, or the value alone where it is no number; driver unknown where no record has told it."""
        s = self.plan.settings[setting]
        if value is None:
            return f"{s.label} unknown" if s.path else "–"
        if setting == "command":
            return content(s.values[value])
        return (f"{s.label} {value}" + (f" {s.unit}" if s.unit else "")
                ) if number(value) is not None else content(value)

    def columns(self, table, cells, group, rows):
        """(measure, its conditions, values of the columns' settings, published figures or None for ours)."""
        out = []
        for (measure, at), part in itertools.product(table.shows, self.distinct(cells, table.columns)):
            if part.get("command") and part["command"] not in self.plan.measures[measure].of or any(
                    part[s] not in at[s] for s in set(at) & set(table.columns)):
                continue
            out.append((measure, at, part, None))
            for block in self.plan.published.values():
                found = [self.data.find({**group, **row, **part}, at) for row in rows]
                repeated = any(m == measure and a is at and b is block and all(
                    p[s] == part[s] or not block.names(s) for s in table.columns) for m, a, p, b in out)
                if not repeated and any(cell and block.text(cell, measure) for cell in found):
                    out.append((measure, at, part, block))
        return out

    def column_title(self, table, column):
        measure, _, part, block = column
        names = [self.name(s, part[s]) for s in table.columns
                 if (not block or block.names(s)) and (part[s] is not None or self.plan.settings[s].path)]
        title = ", ".join([content(self.plan.measures[measure].title), *names])
        return title + (f": {content(block.label)}" if block else "")

    def cell_text(self, cell, measure, block):
        if cell is None or cell["command"] not in self.plan.measures[measure].of:
            return ""
        if block:
            return block.text(cell, measure) or ""
        runs, of, m = len(self.data.values(cell, measure)), len(self.data.runs_of(cell)), self.plan.measures[measure]
        figure = self.data.figure(cell, measure)
        if of and figure.value is not None:
            few = f" ({runs} of {max(self.plan.repeats, of)})" if not m.value and runs < self.plan.repeats else ""
            return figure.text(m.digits) + few
        state = self.data.state(cell)
        return "left out" if self.plan.is_skipped(
            cell) else "not run" if state is None else "–" if state == "ok" else state

    def is_covered(self, table, row, rows):
        """Its command does not use a setting of the rows, and its figures are in the rows of one that does."""
        return None in row.values() and "command" not in table.rows and any(other is not row and all(
            other[s] is not None and row[s] in (None, other[s]) for s in table.rows) for other in rows)

    def table(self, table, others, group):
        cells = [c for c in self.shown() if all(c.get(s) == v for s, v in group.items())]
        rows = self.distinct(cells, table.rows)
        columns = self.columns(table, cells, group, rows)
        title = ", ".join(self.name(s, group[s]) for s in others)
        settings = [self.plan.settings[s] for s in table.rows]
        heads = [content(s.label) + (f", {s.unit}" if s.unit else "") for s in settings]
        lines = [f"\n## {table.title}" + (f": {title}" if others else ""), "",
                 "| " + " | ".join(heads + [self.column_title(table, c) for c in columns]) + " |",
                 "|" + "---|" * len(heads) + "---:|" * len(columns)]
        for row in rows:
            if not self.is_covered(table, row, rows):
                names = ["–" if row[s.name] is None else
                         content(s.values[row[s.name]] if s.name == "command" else row[s.name]) for s in settings]
                texts = [self.cell_text(self.data.find({**group, **row, **part}, at), measure, block)
                         for measure, at, part, block in columns]
                lines.append("| " + " | ".join(names + texts) + " |")
        return lines + (self.best(table, group) if table.best else [])

    def shown(self):
        """What the plan leaves out is shown only where others have a figure."""
        return [c for c in self.data.cells if not self.plan.is_skipped(c) or any(
            block.text(c, m) for block in self.plan.published.values() for m in self.plan.measures)]

    def best(self, table, group):
        rest = [s for s in self.plan.settings if s not in table.best]
        cells = [c for c in self.data.cells if all(c.get(s) == v for s, v in group.items())]
        lines = []
        for (measure, at), part in itertools.product(table.shows, self.distinct(cells, rest)):
            m = self.plan.measures[measure]
            figures = [(c, self.data.figure(c, measure)) for c in self.data.cells
                       if self.data.runs_of(c) and all(c.get(s) == v for s, v in part.items()) and holds(at, c)]
            figures = [(c, f) for c, f in figures if f.value is not None]
            if not m.better or len(figures) < 2:
                continue
            best = max(figures, key=lambda one: m.better * one[1].value)
            close = [one for one in figures if one is not best and not self.is_significant(best[1], one[1])]
            label = self.label({s: v for s, v in part.items() if v is not None})
            place = [(self.label({s: c[s] for s in table.best if s in c}), f.text(m.digits)) for c, f in [best, *close]]
            lines.append(f"\nBest {m.label}" + (f" ({label})" if label else "") + f": {place[0][0]}, {place[0][1]}" +
                         (f" {m.unit}" if m.unit else "") + (close and "; not significantly worse: " or "") +
                         ", ".join(f"{where} ({text})" for where, text in place[1:]) + ".")
        return lines

    def label(self, cell):
        if len(self.plan.commands) == 1:
            cell = {s: v for s, v in cell.items() if s != "command"}
        return self.plan.label(cell) if cell else ""

    def is_significant(self, a, b):
        difference = a.apply("-", b)
        error = difference.error()
        return error is not None and abs(difference.value) >= SIGNIFICANT * error

    # ---- notes below the tables ---- 

    def differing(self, a, b):
        """The setting in which alone two cells differ; what one of two commands does not use is no difference."""
        other_command = a["command"] != b["command"]
        settings = [s for s in self.plan.settings if a.get(s) != b.get(
            s) and not (other_command and not (s in a and s in b))]
        return settings[0] if len(settings) == 1 and settings[0] in a and settings[0] in b else None

    def differences(self):
        pairs = unknown = 0
        close, shown = [], {m for t in self.plan.tables for m, _ in t.shows}
        for m in self.plan.measures.values():
            if m.name not in shown or m.value and not m.better:
                continue
            figures = [(c, self.data.figure(c, m.name)) for c in self.data.cells]
            for (a, x), (b, y) in itertools.combinations([(c, f) for c, f in figures if f.value is not None], 2):
                setting = self.differing(a, b)
                if not setting:
                    continue
                difference = x.apply("-", y)
                error = difference.error()
                pairs, unknown = pairs + 1, unknown + (error is None)
                if error is not None and abs(difference.value) < SIGNIFICANT * error:
                    rest = self.label({s: v for s, v in a.items() if s != setting})
                    close.append(
                        f"- {m.label}, {self.plan.settings[setting].label} {a[setting]} and {b[setting]}" +
                        (f" ({rest})" if rest else "") + f": {x.text(m.digits)} and {y.text(m.digits)}, a difference "
                        f"of {difference.text(m.digits)}" + (f" {m.unit}" if m.unit else "") + ", smaller than " +
                        ("" if abs(difference.value) < error else "twice ") + "its error")
        lines = ["", "## Differences that are not significant", "",
                 "Figures are means over runs ± their standard error. Settings that differ in one value are compared; the "
                 "error of a difference is the square root of the sum of both errors' squares.", "",
                 *close[:MOST_DIFFERENCES]]
        lines += [f"- and {len(close) - MOST_DIFFERENCES} more"] if len(close) > MOST_DIFFERENCES else []
        return lines + [""] * bool(close) + [
            f"{len(close)} of {pairs} differences are smaller than twice their error" +
            (f"; the error of {unknown} is not known, as one side has a single run" if unknown else "") + "."]

    def failures(self):
        lines = []
        for cell in self.data.cells:
            runs = self.data.runs_of(cell)
            for state, why in dict.fromkeys((r.state, r.why or "") for r in runs if r.state != "ok"):
                times = sum((r.state, r.why or "") == (state, why) for r in runs)
                lines.append(f"- {self.plan.label(cell)}: {state}, {times} of {len(runs)} runs: {why}")
        return ["", "## Runs without figures", "", *lines] if lines else []

    def machines(self):
        machines, commits = ([getattr(row, name) for row in self.data.rows if getattr(row, name) is not None]
                             for name in ("machine", "commit"))
        lines = [f"- {name}: {machines.count(name)} runs" for name in dict.fromkeys(machines)]
        lines += ["- commit " + ", ".join(dict.fromkeys(commits))] if commits else []
        for cell, (plural, attribute, read) in itertools.product(
                self.data.cells, (("machines", "machine", "machine.…"), ("commits", "commit", "commit"))):
            found = {getattr(r, attribute) for r in self.data.runs_of(cell) if r.state == "ok"} - {None}
            if len(found) > 1:
                lines.append(f"- **{self.plan.label(cell)} is a mean over {len(found)} {plural}**; a setting with "
                             f'"read: {read}" tells them apart')
        return ["", "## Machines", "", *lines]

    def text(self):
        p, data = self.plan, self.data
        counts = [len(data.runs_of(c)) for c in data.cells]
        wanted = sum(n if p.is_skipped(c) else max(n, p.repeats) for c, n in zip(data.cells, counts))
        lines = [f"# {p.title}"] + (["", p.about] if p.about else [])
        lines += ["", "Given: " + ", ".join(f"{n}={v}" for n, v in p.givens.items()) + "."] if p.givens else []
        lines += ["", f"By `lab/study.py` from {sum(counts)} of {wanted} runs" +
                  (f"; {self.others} lines are of settings that the plan does not have" if self.others else "") +
                  (f"; {self.changed} runs had another command or value than the plan has" if self.changed else "") +
                  "."]
        for table in p.tables:
            others = [s for s in list(p.settings)[len(p.commands) == 1:] if s not in table.rows + table.columns]
            for group in self.distinct(self.shown(), others):
                lines += self.table(table, others, group)
        lines += [""] * bool(p.plots) + [f"![{one.title}]({one.name}.svg)" for one in p.plots]
        return "\n".join(lines + self.differences() + self.failures() + self.machines()) + "\n"

    def records(self):
        """cells.jsonl."""
        for cell in self.data.cells:
            if self.plan.is_skipped(cell):
                continue
            measures = {}
            for m in self.plan.measures.values():
                if cell["command"] in m.of:
                    figure, values = self.data.figure(cell, m.name), [v for _, v in self.data.values(cell, m.name)]
                    measures[m.name] = {"mean": figure.value, "error": figure.error(), **({} if m.value else {
                        "least": min(values, default=None), "most": max(values, default=None), "runs": len(values)}),
                        "unit": m.unit}
            machine = {"machine": row.machine for row in self.data.runs_of(cell)[:1]}
            yield json.dumps({"study": self.plan.title, "command": cell["command"],
                              "settings": {s: v for s, v in cell.items() if s != "command"},
                              "state": self.data.state(cell) or "not run", "measures": measures, **machine},
                             ensure_ascii=False, separators=(",", ":"))

    # ---- plots ----

    def plot(self, one):
        x, cells = self.plan.settings[one.x], self.data.cells
        names = [v for v in x.values if any(c.get(one.x) == v for c in cells)]
        numbers = not one.bars and all(number(v) is not None and ("x" not in one.log or number(v) > 0) for v in names)
        names = sorted(names, key=number) if numbers else names
        at = {name: number(name) if numbers else i for i, name in enumerate(names)}
        x_axis = plot.points_axis([(at[n], n) for n in names], "x" in one.log) if numbers else plot.names_axis(names)
        panels = [v for v in (self.plan.settings[one.panels].values if one.panels else ())
                  if any(c.get(one.panels) == v for c in cells)]
        curves = self.curves(one)
        return plot.svg(one.title, [self.panel(one, shown, panel, x_axis, at, curves)
                                    for shown in one.shows for panel in panels or [None]])

    def curves(self, one):
        """(published figures or None for ours, settings of its cells): (colour, name). Published figures have the
        colour of ours that they belong to, where they name all settings of a curve."""
        settings = [s for s in list(self.plan.settings)[len(self.plan.commands) == 1:] if s not in (one.x, one.panels)]
        out = {}
        for block in [None, *self.plan.published.values()]:
            own = [s for s in settings if not block or block.names(s)]
            for cell in self.data.cells:
                part = tuple((s, cell.get(s)) for s in own)
                if (block, part) in out or block and not any(block.text(cell, m) for m, _ in one.shows):
                    continue
                colour = out[None, part][0] if (None, part) in out else len({c for c, _ in out.values()})
                # If all are of one command, its name would be mistaken for a part of theirs.
                anonymous = {"command"} if block and len({r.get("command") for r, _ in block.rows}) == 1 else set()
                names = ", ".join(self.name(s, v) for s, v in part if v is not None and s not in anonymous)
                out[block, part] = colour, ": ".join(filter(None, [names, block.label if block else ""])) or "measured"
        return out

    def panel(self, one, shown, panel, x_axis, at, curves):
        """A command that does not use the panels' setting is in all of them."""
        (measure, conditions), series, blocks = shown, [], [None, *self.plan.published.values()]
        cells = [
    c for c in self.data.cells if one.x in c and holds(
        conditions, c) and c.get(
            one.panels, panel) == panel]
        for (block, part), (colour, name) in curves.items():
            points = {}
            for cell in (c for c in cells if all(c.get(s) == v for s, v in part)):
                figure = self.data.figure(cell, measure)
                value = number(block.text(cell, measure) or "") if block else figure.value
                if value is not None:
                    points[at[cell[one.x]]] = value, None if block else figure.error()
            series.append(plot.Series(name, [(x, *points[x]) for x in sorted(points)], colour, block is not None,
                                      blocks.index(block) - 1))
        m, s = self.plan.measures[measure], self.plan.settings[one.x]
        ends = [value + sign * (error or 0) for one_of in series for _, value,
                error in one_of.points for sign in (-1, 0, 1)]
        title = m.label + (f": {self.plan.settings[one.panels].label} {panel}" if panel else "")
        return plot.Panel(title, s.label + (f", {s.unit}" if s.unit else ""), m.title, x_axis,
                          plot.values_axis(ends, "y" in one.log, one.bars), series, one.bars)
