"""Parses a plan; docs/studies.md describes the language. Mistakes are reported with their line.

A cell is one combination of settings: {setting: the name of its value}, without settings that its command does not use,
and without settings that are read from records and unknown. "command" is the first setting.
"""
import ast
import itertools
import math
import re
from types import SimpleNamespace

from records import Refused
from study_text import NAME, Section, known, number, read_sections, same_value, split, unquote

MOST_CELLS = 100000
RESERVED = ("command", "repeat", "out", "study")
PLACEHOLDER = re.compile(r"\{\{|(?<!\$)\{(" + NAME + r")\}")


def holds(conditions, cell):
    return all(cell.get(s) in values for s, values in conditions.items())


# ---- the plan -------------------------------------------------------------------------------------------------------

class Plan:
    """settings, commands, measures and published: by name, in the order of the file."""

    def __init__(self, path, replace=""):
        self.path = path
        self.text, self.sections = read_sections(path)
        self.givens, self.settings, self.commands, self.measures, self.published = {}, {}, {}, {}, {}
        self.head = self.sections[0]
        self.read_head(self.head)
        self.settings["command"] = SimpleNamespace(name="command", label="command", unit=None, values={}, path=None)
        for s in self.of("given"):
            for name in s:
                with s.at(name):
                    self.claim(name)
            self.givens.update(s)
        self.replace_givens(replace or "")
        for sort, read in (("setting", self.read_setting), ("command", self.read_command)):
            for s in self.of(sort):
                with s.at(None):
                    read(s)
        for c in self.commands.values():
            self.check_command(c)
        for s in self.of("setting"):
            with s.at(None):
                if not any(s.name in c.uses for c in self.commands.values()):
                    raise Refused(f"no command has {{{s.name}}} in its run")
        self.skips = [self.read_row(s, row, self.conditions) for s in self.of("skip") for row in s.rows]
        self.read_measures()
        for sort in ("command", "measure"):
            if not self.of(sort):
                raise Refused(f"{path}:1: the plan has no [{sort} NAME]")
        self.read_views()

    def of(self, sort):
        return [s for s in self.sections if s.sort == sort]

    def read_row(self, section, row, read):
        with section.at(row):
            return read(row)

    def claim(self, name):
        if name in RESERVED or name in self.settings or name in self.givens or name in self.measures:
            raise Refused(f"{name} is the name of something else already")

    def read_head(self, head):
        self.title, self.about = head.get("title"), head.get("about")
        if not self.title:
            raise Refused(f'{self.path}:1: a plan begins with a line "title: …"')
        fewest = head.number("fewest", 3, 1, 1000)
        self.repeats = head.number("repeats", 3, 1, 1000)
        self.seed = head.number("seed", 1, 0, 10 ** 15)
        self.timeout = head.number("timeout", 86400, 0.001)
        with head.at("repeats" if "repeats" in head else "fewest"):
            if self.repeats < fewest:
                raise Refused(f"{self.repeats} repeats are too few to estimate an error; give at least {fewest}, or a "
                              f'line "fewest: {self.repeats}"')

    def replace_givens(self, text):
        for piece in filter(None, split(text, " ")):
            name, equals, value = piece.partition("=")
            try:
                if not equals:
                    raise Refused("takes NAME=VALUE")
                self.givens[known(name, f"[given] in {self.path} called", self.givens)] = unquote(value)
            except Refused as error:
                raise Refused(f"--set {piece}: {error}") from None

    def read_setting(self, s):
        self.claim(s.name)
        if bool(s.get("values")) == bool(s.get("read")):
            raise Refused(f'the setting {s.name} needs a line "values: …", or "read: PATH" where its values are read '
                          "from records; not both")
        values = {}
        with s.at("values"):
            for piece in split(s["values"]) if s.get("values") else ():  # AMP = --amp, or a name that is its own text
                name, equals, text = (part.strip() for part in piece.partition("="))
                if not name or re.search(r'[\s"\[\]]', name) or name in values:
                    raise Refused(f'the value "{name}" ' + (
                        "is given twice" if name in values else "has no name" if not name else
                        "has blanks, quotes or brackets in its name; NAME = TEXT gives it a text"))
                values[name] = unquote(text if equals else name)
        self.settings[s.name] = SimpleNamespace(name=s.name, label=s.get("label") or s.name, unit=s.get("unit"),
                                                values=values, path=s.get("read"))

    def read_command(self, s):
        if not s.get("run"):
            raise Refused(f'the command {s.name} needs a line "run: …"')
        self.commands[s.name] = SimpleNamespace(
            name=s.name, section=s, run=s["run"], prepare=s.get("prepare", ""), sweep=s.get("sweep"),
            timeout=s.number("timeout", self.timeout, 0.001))
        self.settings["command"].values[s.name] = s.get("label") or s.name

    def check_command(self, c):
        with c.section.at("run"):
            c.uses = {"command"} | self.placeholders(c.run)
        with c.section.at("prepare"):
            if not self.placeholders(c.prepare) <= c.uses:
                raise Refused("prepare has a setting that is not in run")
        c.uses |= {s.name for s in self.settings.values() if s.path}
        with c.section.at("run"):
            many = math.prod(len(s.values) for s in self.crossed(c))
            if many > MOST_CELLS:
                raise Refused(f"{many} combinations of settings; at most {MOST_CELLS}")
        with c.section.at("sweep"):
            if c.sweep and c.sweep not in [s.name for s in self.crossed(c)]:
                raise Refused(f'sweep takes a setting that is in run, not "{c.sweep}"')
            # The command gets the values joined by commas, and a record says to which of them it belongs.
            values = self.settings[c.sweep].values.items() if c.sweep else ()
            for (name, text), (other, others) in itertools.permutations(values, 2):
                if any(same_value(a, b) for a, b in ((text, others), (name, others), (name, other))):
                    raise Refused(f'sweep: a record of {name} could belong to {other}, too, whose text is "{others}"')
            for name, text in values:
                if not text or "," in text:
                    raise Refused(f'sweep: the text of {name} is "{text}", and has to be one value of a list')

    def crossed(self, command):
        return [s for s in list(self.settings.values())[1:] if s.name in command.uses and not s.path]

    # ---- names in texts ----

    def placeholders(self, text):
        """The settings among {…}. Braces after a $, and around anything but a name, are the shell's."""
        found, names = set(), {*list(self.settings)[1:], *self.givens, *RESERVED[1:]}
        for match in re.finditer(r"\{\{|(?<!\$)\{(\w+)(\}?)", text, re.ASCII):
            name, closed = match.groups()
            if name and not closed and name in names:
                raise Refused(f"{{{name} has no }}; the shell's own brace before such a name is written {{{{")
            if name and closed and re.fullmatch(NAME, name):
                known(name, "setting and no given called", names)
                if name in self.settings and self.settings[name].path:
                    raise Refused(f"{{{name}}}: its values are read from records, so no command can have it")
                found |= {name} & set(self.settings)
        return found

    def expand(self, text, cell, repeat, out="{out}", study="{study}", swept=None):
        """swept: what stands for the setting that the command sweeps."""
        names = {**self.givens, **{s: self.settings[s].values[v] for s, v in cell.items() if not self.settings[s].path},
                 "repeat": str(repeat), "out": out, "study": study}
        if swept is not None:
            names[self.commands[cell["command"]].sweep] = swept
        return PLACEHOLDER.sub(lambda match: names.get(match[1], "") if match[1] else "{", text)

    def kept_command(self, cell, repeat):
        """As results.jsonl has it: that of a sweep has a placeholder for what it sweeps."""
        command = self.commands[cell["command"]]
        return self.expand(command.run, cell, repeat, swept=command.sweep and f"{{{command.sweep}}}")

    def conditions(self, text, single=False):
        """{setting: values}: "gpus=8 batch=8,16". single: one value of each."""
        out = {}
        for piece in text.split():
            name, equals, values = piece.partition("=")
            setting = self.settings[known(name, "setting", self.settings)]
            if not equals or name in out or setting.path:
                raise Refused(f'expected SETTING=VALUE, each once and of settings with values, not "{piece}"')
            out[name] = [known(v, f"value of {name} called", setting.values) for v in values.split(",")]
            if single and len(out[name]) > 1:
                raise Refused(f"several values of {name}: a figure is at one of them, NAME[{name}={out[name][0]}]")
        if not out:
            raise Refused("expected SETTING=VALUE")
        return out

    # ---- measures, tables, plots, published figures ----

    def read_measures(self):
        for s in self.of("measure"):
            with s.at(None):
                self.claim(s.name)
                if bool(s.get("read")) == bool(s.get("value")):
                    raise Refused(
                        f'the measure {s.name} needs a line "read: PATH" or one "value: EXPRESSION", not both')
            m = SimpleNamespace(name=s.name, label=s.get("label") or s.name, unit=s.get("unit"), value=None, where=[],
                                paths=split(s.get("read", "")), digits=s.number("digits", None, 0, 15),
                                of=set(s.names("of", "command", self.commands)) or set(self.commands))
            m.title = f"{m.label}, {m.unit}" if m.unit else m.label
            with s.at("read"):
                if s.get("read", "")[:1] == "@" and s["read"] != "@seconds":
                    raise Refused(f"{s['read']} is no time; @seconds is how long the command took")
            with s.at("where"):
                self.placeholders(s.get("where", ""))
                m.where = [piece.partition("=")[::2] for piece in s.get("where", "").split()]
                if "" in [value for _, value in m.where] or m.where and s.get("value"):
                    raise Refused("where takes MEMBER=VALUE, of measures that are read")
            with s.at("better"):
                m.better = {"": 0, "higher": 1, "lower": -1}.get(s.get("better", ""))
                if m.better is None:
                    raise Refused(f'better takes higher or lower, not "{s["better"]}"')
            self.measures[s.name] = m
        for s in self.of("published"):
            self.published[s.name] = Published(s.get("label") or s.name)
        for s in self.of("measure"):
            if s.get("value"):
                with s.at("value"):
                    self.measures[s.name].value = Expression(self, s.name).read(s["value"])

    def shows(self, section, name):
        """(measure, conditions) of "img_s, speedup[precision=AMP]": a comma within brackets stands between values."""
        out = []
        with section.at(name):
            for piece in re.split(r",(?![^\[]*\])", section[name]) if section.get(name) else self.measures:
                measure, bracket, conditions = piece.strip().partition("[")
                known(measure.strip(), "measure", self.measures)
                if bracket and not conditions.endswith("]"):
                    raise Refused("a [ that is not closed")
                out.append((measure.strip(), self.conditions(conditions[:-1], single=True) if bracket else {}))
        return out

    def read_views(self):
        self.tables, self.plots = [], []
        settings = list(self.settings)[len(self.commands) == 1:]
        for s in self.of("table") or [Section(self.path, self.text, "table all", [("title", self.title)])]:
            rows, columns, best = (s.names(name, "setting", self.settings) for name in ("rows", "columns", "best"))
            rows = rows if "rows" in s else [name for name in settings if name not in columns]
            table = SimpleNamespace(title=s.get("title") or s.name, rows=rows, columns=columns, best=best,
                                    shows=self.shows(s, "show"))
            with s.at("columns"):
                if set(rows) & set(columns):
                    raise Refused(f"{', '.join(set(rows) & set(columns))} is in rows already")
            with s.at("best"):
                if best and not any(self.measures[m].better for m, _ in table.shows):
                    raise Refused('none of the measures shown has a line "better: higher" or "better: lower"')
            self.tables.append(table)
        for s in self.of("plot"):
            with s.at(None):
                if not s.get("x") or not s.get("y"):
                    raise Refused(f'the plot {s.name} needs lines "x: SETTING" and "y: MEASURE"')
            x, panels = s.names(
    "x", "setting", self.settings)[0], (s.names(
        "panels", "setting", self.settings) + [None])[0]
            with s.at("log"):
                if panels == x or s.get("log", "").strip("xy ,") or s.get("bars", "no") not in ("yes", "no"):
                    raise Refused("panels are of another setting than x; log takes x, y or x y; bars takes yes or no")
            self.plots.append(SimpleNamespace(name=s.name, title=s.get("title") or s.name, x=x, panels=panels,
                                              shows=self.shows(s, "y"), log=s.get("log", ""),
                                              bars=s.get("bars") == "yes"))
        for s in self.of("published"):
            readable = [n for n in self.settings if not self.settings[n].path] + list(self.measures)
            columns = s.names("columns", "setting or measure", readable)
            with s.at(None):
                if not columns:
                    raise Refused(f'[published {s.name}] needs a line "columns: …"')
            for row in s.rows:
                self.read_row(s, row, lambda text: self.read_published(self.published[s.name], columns, split(text)))

    def read_published(self, published, columns, values):
        if len(values) != len(columns):
            raise Refused(f"a row of {len(columns)} columns has as many values")
        settings = {n: known(v, f"value of {n} called", self.settings[n].values) for n, v in zip(columns, values)
                    if n in self.settings}
        figures = {n: v for n, v in zip(columns, values) if n in self.measures and v != "-"}
        for value in figures.values():
            if number(value) is None:
                raise Refused(f'expected a number or -, not "{value}"')
        published.rows.append((settings, figures))

    # ---- cells ----

    def key(self, cell):
        return tuple(cell.get(s) for s in self.settings)

    def cells(self):
        """Of each command all combinations of the settings that it uses; the last setting changes fastest."""
        for c in self.commands.values():
            names = [s.name for s in self.crossed(c)]
            for values in itertools.product(*(s.values for s in self.crossed(c))):
                yield {"command": c.name, **dict(zip(names, values))}

    def is_skipped(self, cell):
        return any(holds(c, cell) for c in self.skips)

    def without_read(self, cell):
        """The cell as the plan knows it before anything has run."""
        return {s: v for s, v in cell.items() if not self.settings[s].path}

    def label(self, *cells):
        """gpus=1 batch=2, with the command before it where the plan has several; of the cells of a sweep batch=2,4."""
        first = cells[0]
        several = len(self.commands) > 1 or len(first) == 1
        parts = [first["command"]] if "command" in first and several else []
        return " ".join(parts + [f"{s}=" + ",".join(dict.fromkeys(cell[s] for cell in cells))
                                 for s in list(self.settings)[1:] if s in first])


class Published:
    """Figures of others. rows: (settings, {measure: its figure as it is written})."""

    def __init__(self, label):
        self.label, self.rows = label, []

    def text(self, cell, measure):
        return next((figures[measure] for settings, figures in self.rows if measure in figures and
                     all(cell.get(s) == v for s, v in settings.items())), None)

    def names(self, setting):
        """Whether it is said for single values of the setting; else it holds for all."""
        return any(setting in settings for settings, _ in self.rows)


class Expression:
    """Arithmetic over measures, settings and givens, as nested tuples: ("+", a, b), ("measure", name, conditions), …"""
    SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}

    def __init__(self, plan, measure):
        self.plan, self.places = plan, []
        self.above = list(plan.measures)[:list(plan.measures).index(measure)]  # so that none depends on itself

    def read(self, text):
        def keep(match):
            self.places.append(match[1])
            return f"[{len(self.places) - 1}]"
        try:
            return self.tree(ast.parse(re.sub(r"\[([^\[\]]*)\]", keep, text.strip()), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise Refused(f'"{text}" is no expression of numbers, names, + - * / and ( )') from None

    def tree(self, node):
        if isinstance(node, ast.BinOp) and type(node.op) in self.SIGNS:
            return self.SIGNS[type(node.op)], self.tree(node.left), self.tree(node.right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return "*", ("number", -1.0), self.tree(node.operand)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return "number", float(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
            function, measure = known(node.func.id, "function", ("min", "max", "runs")), self.measure(node.args[0])
            if self.plan.measures[measure[1]].value:
                raise Refused(f"{measure[1]} is computed; min, max and runs take measures that are read")
            return (function, *measure[1:])
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            known(node.value.id, "section [published NAME] called", self.plan.published)
            return "published", node.value.id, known(node.attr, "measure", self.plan.measures)
        name = getattr(node, "id", None)
        numbers = [self.plan.givens[name]] if name in self.plan.givens else (
            list(self.plan.settings[name].values) if name in self.plan.settings else [])
        for text in numbers:
            if number(text) is None:
                raise Refused(f'{name} is "{text}", which is no number')
        if name in self.plan.settings:
            return "setting", name
        return ("number", number(numbers[0])) if numbers else self.measure(node)

    def measure(self, node):
        at = None
        if isinstance(node, ast.Subscript):
            node, at = node.value, self.plan.conditions(self.places[node.slice.value], single=True)
        if not isinstance(node, ast.Name):
            raise SyntaxError
        return "measure", known(node.id, "measure above called", self.above), at
