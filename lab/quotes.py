#!/usr/bin/env python3
"""Updates the source lines quoted in pages, in place; --check reports pages that differ from the source instead.

    python3 lab/quotes.py [--check] [--root DIR]

In a page, on lines of their own, `<!-- quote: FILE, "FROM" to "TO" -->` to `<!-- end -->` encloses a fenced block: the
lines of FILE from the one with the text FROM to the one with TO, and the following lines that close braces opened in
them, without their common indentation. FROM and TO must each occur on exactly one line, so that a quote follows its
lines wherever they move; without `to "TO"` one line is quoted. Exit status: 0; 1 with --check if a page differs,
printing a diff; 2 if a file or a text is not found, a text is found twice, or a marker is not closed.
"""
import os
import re

import pages
from records import Refused

LANGUAGES = {".c": "c", ".h": "c", ".cu": "cuda", ".cuh": "cuda", ".py": "python", ".sh": "sh"}
MOST = 24  # lines: a longer quote would not be read; link to the source instead
MARKED = re.compile(r"^(<!-- quote: ([^\s,]+), \"([^\n]+?)\"(?: to \"([^\n]+?)\")? -->)\n.*?^<!-- end -->$",
                    re.M | re.S)
OPENING = re.compile(r"^<!-- quote: ", re.M)


def line_of(lines, text, where, path):
    """The one line that holds the text, from 0."""
    found = [i for i, line in enumerate(lines) if text in line]
    if len(found) != 1:
        lines_found = f" (lines {', '.join(str(i + 1) for i in found)})" if found else ""
        raise Refused(f'{where}: "{text}" stands on {len(found)} lines of {path}{lines_found}; a quote needs a text '
                      "that one line alone has")
    return found[0]


def open_braces(lines):
    text = "\n".join(lines)
    return text.count("{") - text.count("}")


def quoted(root, path, first, last, where):
    """The lines between the two texts, both included."""
    try:
        with open(os.path.join(root, path), encoding="utf-8") as f:
            lines = f.read().split("\n")
    except OSError as error:
        raise Refused(f"{where}: {path} cannot be quoted: {error.strerror}") from error
    begin = line_of(lines, first, where, path)
    end = line_of(lines, last, where, path) if last else begin
    if not begin <= end < begin + MOST:
        raise Refused(f'{where}: "{first}" to "{last}" are {end - begin + 1} lines of {path}; a quote has 1 to {MOST}')
    found = lines[begin:end + 1]
    while open_braces(found) > 0 and end + 1 < len(lines) and re.fullmatch(r"\s*}[;)]*", lines[end + 1]):
        end += 1
        found.append(lines[end])
    code = [line for line in found if line.strip() and not line.startswith("#")]  # #pragma is at the margin
    margin = min((len(line) - len(line.lstrip()) for line in code), default=0)
    return "\n".join(line if line.startswith("#") else line[margin:] for line in found)


def render(root, page, text):
    """The page with its quotes as the sources have them, and how many there are."""
    def replaced(match):
        marker, path, first, last = match.groups()
        where = f"{page}:{text.count(chr(10), 0, match.start()) + 1}"
        if OPENING.search(match.group(0), 1):
            raise Refused(f"{where}: a quote begins before this one has ended; close it with <!-- end -->")
        language = LANGUAGES.get(os.path.splitext(path)[1], "")
        return f"{marker}\n```{language}\n{quoted(root, path, first, last, where)}\n```\n<!-- end -->"

    found, opened = len(MARKED.findall(text)), len(OPENING.findall(text))
    if found != opened:
        raise Refused(f"{page}: {opened} quotes begin, {found} of them can be read and end; see lab/quotes.py")
    return MARKED.sub(replaced, text), found


def main():
    pages.main("quotes", __doc__, "quotes", "the source", lambda root: lambda page, text: render(root, page, text))


if __name__ == "__main__":
    main()
