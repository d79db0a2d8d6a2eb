"""The documentation's pages with generated parts, and the main program of the tools that write those parts."""
import argparse
import difflib
import glob
import os
import sys

from records import Refused

PAGES = ("README.md", "docs/*.md", "docs/course/*.md", "docs/course/conv/*.md", "cuda/conv/*.md", "results/*.md")


def pages(root):
    """(path from root, text) of each."""
    for path in sorted(p for pattern in PAGES for p in glob.glob(os.path.join(root, pattern))):
        with open(path, encoding="utf-8") as f:
            yield os.path.relpath(path, root), f.read()


def show(tool, source, path, old, new):
    first = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
    print(f"{path}:{first + 1}: differs from {source}; python3 lab/{tool}.py rewrites it")
    print("\n".join(difflib.unified_diff(old, new, "as it is", f"as {source} has it", lineterm="", n=0)))


def main(tool, doc, parts, source, renderer):
    """lab/TOOL.py [--check] [--root DIR]: renderer(root) returns a function of a page's path and text, whose result is
    the page as `source` has it, and how many `parts` of it come from there."""
    parser = argparse.ArgumentParser(description=doc.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where a page differs")
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    args = parser.parse_args()
    differ = total = 0
    try:
        render = renderer(args.root)
        for path, text in pages(args.root):
            page, found = render(path, text)
            total += found
            if page == text:
                continue
            differ += 1
            if args.check:
                show(tool, source, path, text.split("\n"), page.split("\n"))
            else:
                with open(os.path.join(args.root, path), "w", encoding="utf-8") as f:
                    f.write(page)
    except (Refused, OSError) as error:
        sys.exit(print(f"{tool}: {error}", file=sys.stderr) or 2)
    if not args.check:
        print(f"{total} {parts}, {differ} pages rewritten")
    sys.exit(args.check and differ > 0)
