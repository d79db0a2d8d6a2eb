"""Reads the text of a plan into sections and lines, like an INI file. Mistakes are reported with their line."""
import configparser
import contextlib
import difflib
import math
import re

from records import Refused

# The names that each section may have; None: any. Lines without a name are rows, in sections that allow them.
KEYS = {"plan": ("title", "about", "repeats", "fewest", "seed", "timeout"), "given": None,
        "setting": ("values", "read", "label", "unit"), "command": ("run", "prepare", "label", "timeout", "sweep"),
        "skip": (), "measure": ("read", "where", "of", "value", "label", "unit", "better", "digits"),
        "table": ("title", "rows", "columns", "show", "best"), "plot": ("title", "x", "y", "panels", "log", "bars"),
        "published": ("label", "columns")}
NAMED, WITH_ROWS = set(KEYS) - {"plan", "given", "skip"}, {"skip", "published"}
NAME, NUMBER = r"[A-Za-z][A-Za-z0-9_]*", re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def number(text):
    """None: it is not a number."""
    return float(text) if NUMBER.fullmatch(text) and math.isfinite(float(text)) else None


def same_value(a, b):
    return a == b or (number(a) is not None and number(a) == number(b))


def known(name, what, names):
    if name not in names:
        close = difflib.get_close_matches(name, [str(n) for n in names], 1)
        raise Refused(f"there is no {what} {name}" + (f", did you mean {close[0]}?" if close else ""))
    return name


def split(text, separator=","):
    """Pieces without blanks at their ends. A separator within "…" does not separate."""
    pieces, quoted = [""], False
    for c in text:
        quoted ^= c == '"'
        if c == separator and not quoted:
            pieces.append("")
        else:
            pieces[-1] += c
    return [piece.strip() for piece in pieces]


def unquote(text):
    if text.startswith('"') and (len(text) < 2 or not text.endswith('"')):
        raise Refused(f'a " that is not closed in {text}')
    return text[1:-1] if text.startswith('"') else text


class Section(dict):
    """Its lines by name; rows: those without one, whose text is their name."""

    def __init__(self, path, text, header, lines):
        self.sort, _, self.name = header.partition(" ")
        self.path, self.text, self.header, self.rows = path, text, header, []
        with self.at(None):
            allowed = KEYS[known(self.sort, "section", KEYS)]
            if self.sort in NAMED and not re.fullmatch(NAME, self.name) or self.sort not in NAMED and self.name:
                raise Refused(f"[{header}]: " + ("a name has letters, digits and _, and begins with a letter"
                                                 if self.sort in NAMED else f"[{self.sort}] has no name"))
        for name, value in lines:
            if value is None and self.sort in WITH_ROWS:
                self.rows.append(name.replace("\n", " "))
                continue
            with self.at(name):
                if value is None:
                    raise Refused(f'expected a line "name: value", not "{name}"')
                if allowed is not None:
                    known(name, f"line in [{self.sort}] called", allowed)
                elif not re.fullmatch(NAME, name):
                    raise Refused(f'"{name}": a name has letters, digits and _, and begins with a letter')
                self[name] = value.replace("\n", " ")

    @contextlib.contextmanager
    def at(self, name):
        """What is refused meanwhile, with the line of the name in this section; None: of its head."""
        try:
            yield
        except Refused as error:
            if str(error).startswith(self.path + ":"):
                raise
            line, inside = 1, self.sort == "plan"
            for i, text in enumerate(self.text.split("\n"), 1):
                if text.startswith("[") and "]" in text:
                    inside = " ".join(text.split("]")[0][1:].split()) == self.header
                    line = i if inside else line
                elif inside and name and text.startswith(name):
                    line = i
                    break
            raise Refused(f"{self.path}:{line}: {error}") from None

    def names(self, name, what, among):
        """Names between commas, each once."""
        names = split(self[name]) if self.get(name) else []
        with self.at(name):
            for i, one in enumerate(names):
                known(one, what, among)
                if one in names[:i]:
                    raise Refused(f"{one} is given twice")
        return names

    def number(self, name, otherwise, least, most=None):
        """most: of a whole number."""
        if name not in self:
            return otherwise
        value = number(self[name])
        with self.at(name):
            if value is None or value < least:
                raise Refused(f'{name} takes a number of at least {least:g}, not "{self[name]}"')
            if most is not None and (value != int(value) or value > most):
                raise Refused(f"{name} takes a whole number of at most {most}")
        return value if most is None else int(value)


def read_sections(path):
    """The text, and its sections: those of INI files."""
    parser = configparser.ConfigParser(delimiters=":", comment_prefixes="#", inline_comment_prefixes="#",
                                       interpolation=None, allow_no_value=True, empty_lines_in_values=False,
                                       default_section="\n")
    parser.optionxform = str
    try:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        parser.read_string("[plan]\n" + text)
    except (configparser.DuplicateOptionError, configparser.DuplicateSectionError) as error:
        what = f'"{error.option}"' if hasattr(error, "option") else f"[{error.section}]"
        raise Refused(f"{path}:{error.lineno - 1}: {what} is there already") from None
    except (configparser.Error, AttributeError) as error:
        line = getattr(error, "errors", [(2, "")])[0][0] - 1
        raise Refused(f'{path}:{line}: neither [SECTION] nor a line "name: value"') from None
    except ValueError:
        raise Refused(f"{path}: a plan is text in UTF-8") from None
    return text, [Section(path, text, " ".join(name.split()), parser[name].items()) for name in parser.sections()]
