#!/usr/bin/env python3
"""Updates the measured figures in the documentation from results/, in place; --check reports differences instead.

    python3 lab/tables.py [--check] [--root DIR]

In a page, `<!-- table: NAME -->` to `<!-- end -->`, on lines of their own, encloses a table; `<!-- value: NAME -->`
to `<!-- end -->`, within a line, a figure. The text between them comes from TABLES and VALUES of lab/*figures.py.
Exit status: 0; 1 with --check if a page differs, printing a diff; 2 if a record has no origin (lab/records.py), a name
is unknown or a marker is not closed.
"""
import os
import re

import conv_figures
import course_figures
import figures
import ladder_figures
import lesson_figures
import nets_figures
import pages
import profile_figures
import scaling_figures
import step_figures
import training_figures
import vgg28_figures
from records import Refused, Results

TABLES = {**figures.TABLES, **conv_figures.TABLES, **step_figures.TABLES, **training_figures.TABLES,
          **scaling_figures.TABLES, **nets_figures.TABLES, **vgg28_figures.TABLES, **ladder_figures.TABLES,
          **lesson_figures.TABLES, **profile_figures.TABLES}
VALUES = {**figures.VALUES, **training_figures.VALUES, **scaling_figures.VALUES, **course_figures.VALUES,
          **ladder_figures.VALUES, **lesson_figures.VALUES, **profile_figures.VALUES, **vgg28_figures.VALUES}
MARKED = re.compile(r"^<!-- table: (\S+) -->\n.*?^<!-- end -->$|<!-- value: (\S+) -->[^\n]*?<!-- end -->", re.M | re.S)
OPENING = re.compile(r"<!-- (?:table|value): ")


def render(path, text, results):
    """The page as its records have it."""
    def replaced(match):
        table, value = match.groups()
        element, makers, name = ("table", TABLES, table) if table else ("value", VALUES, value)
        where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
        if name not in makers:
            raise Refused(f"{where}: no {element} is called {name}; lab/*figures.py define them")
        if OPENING.search(match.group(0), 1):
            raise Refused(f"{where}: a marker begins before {name} has ended; close it with <!-- end -->")
        try:
            made = makers[name](results)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise Refused(f"{where}: {name}: a record lacks or misstates what it needs ({error!r})") from error
        return f"<!-- table: {name} -->\n{made}\n<!-- end -->" if table else f"<!-- value: {name} -->{made}<!-- end -->"

    page, found = MARKED.sub(replaced, text), len(MARKED.findall(text))
    if found != len(OPENING.findall(text)):
        raise Refused(f"{path}: {len(OPENING.findall(text))} markers begin, {found} of them end; see lab/tables.py")
    return page, found


def check_list(results):
    """results/README.md has a line for every file beside it."""
    listed = results.text("README.md")
    for name in sorted(os.listdir(results.folder)):
        if name != "README.md" and f"`{name}`" not in listed:
            raise Refused(f"results/README.md: {name} is not listed: what is it, which command made it, where?")


def renderer(root):
    results = Results(root)
    check_list(results)
    return lambda path, text: render(path, text, results)


def main():
    pages.main("tables", __doc__, "tables and figures", "results/", renderer)


if __name__ == "__main__":
    main()
