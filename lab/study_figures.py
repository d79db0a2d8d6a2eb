"""A study's results: the lines of results.jsonl, the measures' values from their records, and means over runs with
standard errors. Errors of expressions are propagated to first order: a figure knows how far each run's deviation moves
it, so that a deviation shared by two figures counts once."""
import json
import math
import re
import sys

from records import Refused
from study_plan import Expression, holds
from study_text import number, same_value

OK, NO_VALUE, OUT_OF_MEMORY, FAILED = "ok", "no value", "out of memory", "failed"
HALF_ULP = sys.float_info.epsilon / 2  # of numbers near 1


# ---- records --------------------------------------------------------------------------------------------------------

def find(value, path):
    """(whether it is there, what it is) of a path such as phase.0.seconds; names may have points themselves."""
    items = value.items() if isinstance(value, dict) else (
        ((str(i), v) for i, v in enumerate(value)) if isinstance(value, list) else ())
    for name, inner in items:
        if path == name:
            return True, None if isinstance(inner, (dict, list)) else inner
        if path.startswith(name + "."):
            found = find(inner, path[len(name) + 1:])
            if found[0]:
                return found
    return False, None


def text_of(value):
    """A scalar as text, a whole number without a point; None: null."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return value if value is None or isinstance(value, str) else str(value)


def member_is(record, path, value):
    text = text_of(find(record, path)[1])
    return text is not None and same_value(text, value)


class Run:
    """Of one cell and repeat; records: what its command printed. What a measure reads, and why it cannot."""

    def __init__(self, plan, cell, repeat, records, seconds):
        self.plan, self.cell, self.repeat, self.records, self.seconds = plan, cell, repeat, records, seconds
        self.sweep = plan.commands[cell["command"]].sweep

    def owns(self, record):
        """Every record, but of a sweep those alone that name its value."""
        if not self.sweep:
            return True
        value = self.cell[self.sweep]
        return any(member_is(record, self.sweep, text)
                   for text in (self.plan.settings[self.sweep].values[value], value))

    def source(self, measure, where=True):
        """The index of the record that the measure is read from; None: there is none."""
        for i, record in reversed(list(enumerate(self.records))):
            if any(find(record, path)[0] for path in measure.paths) and self.owns(record) and (not where or all(
                    member_is(record, path, self.plan.expand(v, self.cell, self.repeat)) for path, v in measure.where)):
                return i
        return None

    def value(self, measure):
        """(the number, None) or (None, why there is none)."""
        owned = [r for r in self.records if self.owns(r)]
        if self.sweep and self.records and not owned:
            return None, f"no record has the {self.sweep} {self.cell[self.sweep]}"
        if measure.paths == ["@seconds"]:
            return self.seconds, None if self.seconds is not None else "its sweep failed, so its time is not known"
        if not self.records:
            return None, "no record was printed"
        path, source = measure.paths[0], self.source(measure)
        if source is None:
            return None, (f"no record that has {path} is as where says" if self.source(measure, where=False) is not None
                          else f"no record has {path}; the last has {', '.join(owned[-1])}"[:600])
        value = next(found[1] for found in (find(self.records[source], p) for p in measure.paths) if found[0])
        if isinstance(value, (int, float)) and math.isfinite(value):
            return float(value), None
        return None, f"{path} is {'beyond 1.8e308' if isinstance(value, float) else text_of(value) or 'null'}, " \
                     "which is no number"

    def own_measures(self):
        return [m for m in self.plan.measures.values() if not m.value and self.cell["command"] in m.of]


class Row(Run):
    """A run that is in results.jsonl."""

    def __init__(self, plan, line, where):
        j = json.loads(line)
        super().__init__(plan, {"command": j["command"], **j["settings"]}, j["repeat"], j["records"], j["seconds"])
        self.line, self.where, self.json, self.ran, self.swept = line, where, j, j["ran"], j.get("swept")
        self.state, self.why = j["state"], j.get("why")
        for s in plan.settings.values():  # settings that are read from records do not apply to a command
            self.cell.pop(s.path and s.name, None)
            text = self.text_at(s.path) if s.path else None
            if text is not None:
                s.values.setdefault(text, text)
                self.cell[s.name] = text
        self.values, whole = {}, self.state in (OK, NO_VALUE)
        reasons = []
        for m in self.own_measures() if whole else ():
            value, why = self.value(m)
            if value is not None:
                self.values[m.name] = value
            else:
                reasons.append(why)
        if whole:  # by the measures of today's plan; only the run itself knew why nothing was printed
            self.state = NO_VALUE if reasons else OK
            self.why = None if not reasons else self.why if self.why and not self.records else reasons[0]
        self.machine, self.commit = self.machine_text(), self.text_at("commit")

    def text_at(self, path):
        """From the last record that has it, or else from the line, which has what the study itself knows."""
        return next((t for t in (text_of(find(r, path)[1])
                    for r in [*self.records[::-1], self.json]) if t is not None), None)

    def machine_text(self):
        """What makes two machines different for a measurement."""
        out, joint = "", ""
        for name, before, behind in (("gpus", "", " × "), ("gpu", "", ", "), ("driver", "driver ", ", "),
                                     ("cuda_toolkit", "CUDA toolkit ", ", "), ("cuda_runtime", "runtime ", ", "),
                                     ("cores", "", " cores of "), ("cpu", "", "")):
            text = self.text_at("machine." + name)
            if text is not None:
                out, joint = out + joint + before + text, behind
        return out

    def is_changed(self):
        """Whether the plan would run it by another command, or by another text of the value that it swept."""
        text = self.plan.settings[self.sweep].values[self.cell[self.sweep]] if self.sweep else None
        return self.plan.kept_command(self.cell, self.repeat) != self.ran or (self.swept or text) != text


class Rows:
    """The runs of files of results; of a cell and repeat that a file has twice the last counts. left: the runs of
    sweeps that failed, which run by themselves; others: lines of settings or values that the plan does not have."""

    def __init__(self, plan):
        self.plan, self.rows, self.left, self.others = plan, {}, set(), 0

    def __iter__(self):
        return iter(self.rows.values())

    def run_key(self, cell, repeat):
        return self.plan.key(self.plan.without_read(cell)), repeat

    def read(self, path):
        seen = {row.line for row in self}
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        for i, line in enumerate(text.split("\n")[:-1], 1):  # a kill cut off what follows the last newline
            try:
                j = json.loads(line) if line else {}
                if j.get("kind") not in ("run", "left"):
                    continue
                cell = {"command": j["command"], **j["settings"]}
                read = {s for s in cell if s in self.plan.settings and self.plan.settings[s].path}
                command = self.plan.commands.get(j["command"])
                uses = {s for s in command.uses if not self.plan.settings[s].path} if command else None
                if set(cell) - read != uses or any(v not in self.plan.settings[s].values for s, v in cell.items()
                                                   if s not in read):
                    self.others += j["kind"] == "run"
                elif j["kind"] == "left":
                    self.left.add(self.run_key(cell, j["repeat"]))
                elif line not in seen:
                    self.rows[(path, *self.run_key(cell, j["repeat"]))] = Row(self.plan, line, f"{path}:{i}")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise Refused(f"{path}:{i}: this is no record of a study ({error!r})") from None
        for s in self.plan.settings.values():
            if s.path:  # numbers in them as numbers
                s.values = dict(sorted(s.values.items(), key=lambda item: [
                    (number(part) or 0, part) for part in re.split(r"(\d+)", item[0])]))

    def drop(self, is_dropped):
        self.rows = {key: row for key, row in self.rows.items() if not is_dropped(row)}

    def runs_done(self):
        return {self.run_key(row.cell, row.repeat) for row in self}


# ---- figures --------------------------------------------------------------------------------------------------------

class Figure:
    """value: None: there is none. moves: by run its deviation's share; the sum of their squares is the error's square.
    rounding: how far arithmetic may put it off. single: a mean of one run alone takes part, so no error is known."""

    def __init__(self, value, moves=None, rounding=0.0, single=False):
        self.value, self.moves, self.rounding, self.single = value, moves, rounding, single  # moves: None: not measured

    def combined(self, other, value, mine, theirs):
        """mine, theirs: how the value moves for what self and other do."""
        moves = None
        if self.moves is not None or other.moves is not None:
            a, b = self.moves or {}, other.moves or {}
            moves = {run: mine * a.get(run, 0) + theirs * b.get(run, 0) for run in [*a, *(r for r in b if r not in a)]}
        rounding = abs(mine) * self.rounding + abs(theirs) * other.rounding + HALF_ULP * abs(value)
        return Figure(value, moves, rounding, self.single or other.single)

    def apply(self, sign, other):
        x, y = self.value, other.value
        if x is None or y is None or sign == "/" and y * y == 0:
            return Figure(None)
        if sign == "*":
            return self.combined(other, x * y, y, x)
        if sign == "/":
            return self.combined(other, x / y, 1 / y, -x / (y * y))
        out = self.combined(other, x + y if sign == "+" else x - y, 1, 1 if sign == "+" else -1)
        if abs(out.value) <= out.rounding:
            out.value = 0.0  # its terms cancel
        return out

    def error(self):
        """None: not known."""
        if self.value is None or self.moves is None or self.single:
            return None
        error = math.sqrt(sum(move * move for move in self.moves.values()))
        return 0.0 if error <= self.rounding else error

    def text(self, digits):
        """12.0 ± 1.2. digits: behind the point; None: as many as the error has, with two of it."""
        error = self.error()
        if self.value is None:
            return "–"
        if error is not None and error <= 1e-12 * abs(self.value):
            error = None  # runs that are equal, or a ratio to itself
        if digits is None:
            digits = digits_for(error, 2) if error else 0 if self.value.is_integer() else digits_for(self.value, 4)
        elif error:
            digits = max(digits, digits_for(error, 1))  # never ± 0.00
        if error is None:
            return fixed(self.value, digits)
        if error >= 1e6:  # 2.33e+17 ± 8.8e+16
            figures = math.floor(math.log10(max(abs(self.value), error))) - math.floor(math.log10(error)) + 2
            return f"{self.value:.{min(figures, 17)}g} ± {error:.2g}"
        return f"{fixed(self.value, digits)} ± {error:.{digits}f}"


def digits_for(value, figures):
    """Digits behind the point with which the value shows so many significant ones."""
    return min(max(figures - 1 - math.floor(math.log10(abs(value))), 0), 9) if value else 0


def fixed(value, digits):
    """What rounds to zero has no sign."""
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


class Data:
    """Cells with their runs. only: the conditions of the cells that are wanted beside those that have runs."""

    def __init__(self, plan, rows, only=None):
        self.plan, self.rows, by_plan = plan, rows, {}
        for row in rows:
            by_plan.setdefault(plan.key(plan.without_read(row.cell)), []).append(row)
        self.cells, self.runs = [], {}
        for cell in plan.cells():  # in the plan's order; next to each cell, its values from records
            found = by_plan.get(plan.key(cell), [])
            for one in ([row.cell for row in found] or [cell]):
                if plan.key(one) not in self.runs and (found or not only or holds(only, cell)):
                    self.cells.append(one)
                    self.runs[plan.key(one)] = [row for row in found if row.cell == one]

    def runs_of(self, cell):
        return self.runs.get(self.plan.key(cell), [])

    def find(self, cell, conditions):
        """The cell where the conditions have their values, and what its command then has no use for is left out."""
        cell = {"command": next(iter(self.plan.commands)), **cell, **{s: values[0] for s, values in conditions.items()}}
        cell = {s: v for s, v in cell.items() if s in self.plan.commands[cell["command"]].uses and v is not None}
        return cell if self.plan.key(cell) in self.runs else None

    def values(self, cell, measure):
        return [(row, row.values[measure]) for row in self.runs_of(cell) if measure in row.values]

    def mean(self, cell, measure):
        values = self.values(cell, measure)
        if not values:
            return Figure(None)
        n, first = len(values), values[0][1]
        mean = first + sum(v - first for _, v in values) / n  # exact but for its own rounding
        moves = {row.where: (v - mean) / math.sqrt(n * (n - 1)) for row, v in values} if n > 1 else {}
        return Figure(mean, moves, HALF_ULP * max(abs(v) for _, v in values), n == 1)

    def evaluate(self, cell, tree):
        sort, *parts = tree
        if sort in Expression.SIGNS.values():
            return self.evaluate(cell, parts[0]).apply(sort, self.evaluate(cell, parts[1]))
        if sort == "number":
            return Figure(parts[0])
        if sort == "setting":
            return Figure(number(cell[parts[0]]) if parts[0] in cell else None)
        if sort == "published":
            text = self.plan.published[parts[0]].text(cell, parts[1])
            return Figure(number(text) if text else None)
        measure, at = parts
        cell = self.find(cell, at) if at else cell
        if cell is None:
            return Figure(None)
        if sort == "measure":
            return self.raw(cell, measure)
        values = [v for _, v in self.values(cell, measure)]
        return Figure(float(len(values))) if sort == "runs" else Figure(
            {"min": min, "max": max}[sort](values, default=None))

    def raw(self, cell, measure):
        tree = self.plan.measures[measure].value
        return self.evaluate(cell, tree) if tree else self.mean(cell, measure)

    def figure(self, cell, measure):
        if cell["command"] not in self.plan.measures[measure].of:
            return Figure(None)
        figure = self.raw(cell, measure)
        return figure if figure.value is not None and math.isfinite(figure.value) else Figure(None)

    def state(self, cell):
        """What its runs have come to: failed if they differ; None: none was run."""
        states = {row.state for row in self.runs_of(cell)}
        return states.pop() if len(states) == 1 else FAILED if states else None
