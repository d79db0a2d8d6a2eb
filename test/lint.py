#!/usr/bin/env python3
"""The rules of lint.sh that need to know C's brackets or all files at once: one statement a line, one name for one
thing, 120 columns, a file for every test, and no circles of includes. Reads the files named as arguments, relative to
the root of the tree, and prints FILE:LINE: what is wrong. It knows C and CUDA as far as clang-format lays them out;
macros are not expanded. In Markdown (.md) it checks only columns and links."""
import collections
import os
import re
import sys

COLUMNS = 120
KEYWORDS = {"if", "else", "while", "switch", "return", "do", "goto", "case", "delete", "throw", "co_return"}


# What may precede the name of a type in its definition: keyword and attributes.
TAG = r"\b(?:struct|union|enum|class)\s+(?:(?:__attribute__|__align__|alignas|_Alignas)\s*\((?:[^()]|\([^()]*\))*\)\s*)*"


def blank(match):
    """Spaces in place of what matched, so that offsets and lines stay."""
    return re.sub(r"[^\n]", " ", match.group())


def bare(text):
    """The code alone: no comments, preprocessor lines or contents of literals."""
    literal = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    keep = lambda m: m.group()[0] + blank(m)[1:-1] + m.group()[0] if m.group()[0] in "\"'" else blank(m)
    text = re.sub(r"//[^\n]*|/\*.*?\*/|" + literal, keep, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def without_angles(text):
    """C++: template arguments and launch configurations, whose commas separate no expressions."""
    text = re.sub(r"<<<.*?>>>", blank, text, flags=re.S)
    inner = re.compile(r"(?<=\w)<(?:[^<>;{}=|]|[!=]=)*>(?=[\s(){}:,;>*&])")
    before = None
    while before != text:
        before, text = text, inner.sub(lambda m: re.sub(r"[^\n]", "_", m.group()), text)
    return text


def last_word(text, end):
    """The identifier, or else the one character, before text[end]; '' at the beginning."""
    while end > 0 and text[end - 1].isspace():
        end -= 1
    begin = end
    while begin > 0 and (text[begin - 1].isalnum() or text[begin - 1] == "_"):
        begin -= 1
    return text[begin:end] or text[end - 1 : end]


def matching(text, end):
    """Where the bracket is opened that text[end] closes."""
    depth = 0
    for at in range(end, -1, -1):
        depth += (text[at] in ")]}") - (text[at] in "([{")
        if depth == 0:
            return at
    return 0


def wide_lines(path, text):
    """Lines past COLUMNS, with their lengths. Markdown cannot wrap tables, markers of lab/tables.py and bare links,
    and does not wrap what stands between fences. What a study has written stays as it is."""
    if path.startswith("results/studies/"):
        return
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if path.endswith(".md"):
            fence = line.lstrip().startswith("```")
            fenced ^= fence
            if fenced or fence or re.match(r"\s*\||.*<!-- |\s*([-*] )?<?https?://\S+$", line):
                continue
        if len(line) > COLUMNS:
            yield number, len(line)


def broken_links(path, text):
    """Links to files that are not there, or to headings that they do not have, as GitHub makes anchors of headings."""
    for number, line in enumerate(text.split("\n"), 1):
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", line):
            there = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
            if not os.path.exists(there):
                yield number, f"links to {there}, which does not exist"
            elif anchor:
                headings = re.findall(r"^#+ +(.*)", open(there, encoding="utf-8").read(), re.M)
                if anchor not in [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]:
                    yield number, f"links to #{anchor}, which is no heading of {there}"


def is_word(word):
    return bool(re.match(r"[A-Za-z_]", word))


class Scope:
    def __init__(self, scope_type, start):
        self.type = scope_type  # file, block, members, enum, init, for, group (parentheses that are not a call), other
        self.statement = start  # where the current statement begins
        self.commas = []  # of the current statement, outside all brackets


class File:
    """Walks the brackets of a file once and collects its problems and what it defines."""

    def __init__(self, path):
        self.path = path
        self.problems = []
        self.types = []  # (name, line)
        self.externs = []  # (name, line) of functions and variables
        self.includes = []  # (file, line) of our own headers
        raw = open(path, encoding="utf-8").read()
        self.problems += [(number, f"{length} columns; wrap at {COLUMNS}") for number, length in wide_lines(path, raw)]
        if re.match(r"test/.*/(test|fuzz)_\w+\.c$", path) and not raw.startswith("// Catches "):
            self.problems.append((1, "say in the first line what would go unnoticed without this file: // Catches ..."))
        if path.endswith(".md"):
            self.problems += broken_links(path, raw)
            return
        for include in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', raw, re.M):
            self.includes.append((include.group(1), raw.count("\n", 0, include.start()) + 1))
        self.text = bare(raw)
        if path.endswith((".cu", ".cuh")):
            self.text = without_angles(self.text)
        self.walk()
        self.find_types()

    def line(self, at):
        return self.text.count("\n", 0, at) + 1

    def report(self, at, what):
        self.problems.append((self.line(at), what))

    def brace(self, at, scope):
        """What the '{' at `at` opens."""
        head = self.text[scope.statement : at]
        word = last_word(self.text, at)
        if scope.type in ("init", "enum"):
            return "init"
        if word in (")", "]"):
            closed = self.text.rindex(word, 0, at)
            name = last_word(self.text, matching(self.text, closed))
            if word == "]":
                return "init" if is_word(name) else "block"  # an array, or a lambda
            called = is_word(name) and name not in ("return", "sizeof", "case") or name in (")", "]")
            return "block" if called else "init"  # a function or a statement, otherwise a compound literal
        if word in ("=", ",", "(", "return"):
            return "init"
        if re.search(r"\benum\b[^()]*$", head):
            return "enum"
        if re.search(r"\b(struct|union|class)\b[^()=]*$", head):
            return "members"
        if re.search(r"\bextern\b\s*\"\s*\"\s*$|\bnamespace\b[^()]*$", head):
            return "hidden" if re.search(r"\bnamespace\s*$", head) else "file"
        return "block"

    def parenthesis(self, at):
        word = last_word(self.text, at)
        if word == "for":
            return "for"
        if word in ("if", "while", "switch", "return"):
            return "group"
        if word == "(" and last_word(self.text, self.text.rindex("(", 0, at)) == "__attribute__":
            return "other"
        return "other" if is_word(word) or word in (")", "]", ">") else "group"

    def walk(self):
        scopes = [Scope("file", 0)]
        for bracket in re.finditer(r"[(){}\[\];,]", self.text):
            at, c, top = bracket.start(), bracket.group(), scopes[-1]
            if c == "{":
                scope_type = self.brace(at, top)
                if top.type == "file" and scope_type == "block":
                    self.define_function(top.statement, at)
                scopes.append(Scope(scope_type, at + 1))
            elif c == "(":
                scopes.append(Scope(self.parenthesis(at), at + 1))
            elif c == "[":
                scopes.append(Scope("other" if self.path.endswith((".cu", ".cuh")) else "index", at + 1))
            elif c in ")]}":
                if len(scopes) == 1:
                    return self.report(at, f"'{c}' closes nothing")
                closed = scopes.pop()
                if c == "}" and closed.type in ("block", "file", "hidden"):
                    scopes[-1].statement = at + 1
                    scopes[-1].commas = []
            elif c == ",":
                if top.type in ("group", "index"):
                    self.report(at, "a comma operator; one statement a line")
                top.commas.append(at)
            elif top.type != "for":
                self.end_statement(top, at)
        if len(scopes) > 1:
            self.report(scopes[-1].statement, "a bracket that is not closed")

    def end_statement(self, scope, at):
        statement = self.text[scope.statement : at]
        if scope.type == "block" and scope.commas and not self.declares(statement):
            self.report(scope.commas[0], "a comma operator; one statement a line")
        if scope.type == "file":
            self.define_variable(scope.statement, at)
        scope.statement = at + 1
        scope.commas = []
        begin = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        rest = self.text[at + 1 : end].strip()
        # clang-format itself joins a short case into one line: its statement and its end.
        label = re.match(r"\s*(case\b|default\b)", self.text[begin:at])
        if label and re.match(r"(break|continue|return\b[^;]*);$", rest) and ";" not in self.text[begin:at]:
            return
        if rest and rest[0] not in "});":
            self.report(at, "a statement follows on the line; one statement a line")

    @staticmethod
    def declares(statement):
        """Whether a statement declares names: a type and a name follow each other."""
        text = statement.strip()
        while True:
            label = re.match(r"(case\b[^;{]*?|default|[A-Za-z_]\w*)\s*:(?!:)\s*", text)
            head = re.match(r"(else|do)\b\s*|(if|for|while|switch)\s*\(", text)
            if label:
                text = text[label.end() :]
            elif head and head.group(1):
                text = text[head.end() :]
            elif head:
                depth, at = 1, head.end()
                while depth and at < len(text):
                    depth += (text[at] == "(") - (text[at] == ")")
                    at += 1
                text = text[at:].lstrip()
            else:
                break
        if re.match(r"((static|const|extern)\s+)*(struct|union|enum)\b", text):
            return True
        type_of = r"((?:[A-Za-z_][\w:]*\s+)*[A-Za-z_][\w:]*)"
        name = r"[\s*&]+(?:(?:const|restrict|__restrict__)\s+)?[A-Za-z_]\w*\s*(?:[=,\[(:]|$)"
        pointer = r"\s*\(\*+\w+(?:\[\w*\])*\)\s*[\[(]"
        words = re.match(f"{type_of}(?:{name}|{pointer})", text)
        return bool(words) and words.group(1).split()[0] not in KEYWORDS

    # ---- definitions ---- --------------------------------------------------------------------------------------------

    def define_function(self, start, at):
        head = self.text[start:at]
        head = re.sub(r"__(?:launch_bounds__|attribute__)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "", head)
        name = re.search(r"(?:\bOP\((\w+)\)|([A-Za-z_]\w*))\s*\(", head)
        if not name or re.search(r"\b(static|inline|operator|constexpr|__device__|HD)\b", head[: name.end()]):
            return  # a __device__ function is not a symbol of the program, and C++ overloads it
        if name.group(2) and not re.search(r"\w[\s*&]+$", head[: name.start()]):
            return  # a macro: TEST(name)
        self.externs.append((name.group(1) or name.group(2), self.line(start + len(self.text[start:at]) - len(
            self.text[start:at].lstrip()))))

    def define_variable(self, start, at):
        statement = self.text[start:at]
        head = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", statement).strip()
        if re.match(r"(static|extern|typedef|template|using|constexpr|inline|_Static_assert|static_assert|friend)\b", head):
            return
        head = head.split("=")[0] if re.search(r"[(){}]", head) else re.split("[=,]", head)[0]
        pointer = re.match(r"[A-Za-z_][\w\s*]*\(\s*\*\s*([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*\)\s*\(", head)
        declared = pointer or re.match(r"[A-Za-z_][\w\s*]*?[\s*]([A-Za-z_]\w*)\s*(\[[^\]]*\]\s*)*$", head)
        if declared and not re.match(r"(struct|union|enum)\s+\w+$", head):
            self.externs.append((declared.group(1), self.line(at)))
            if not re.search(r"[(){}]", statement):
                more = re.findall(r",[\s*]*([A-Za-z_]\w*)", statement)
                self.externs += [(name, self.line(at)) for name in more]

    def find_types(self):
        for tag in re.finditer(TAG + r"(\w+)\s*(?::[^;{()]*)?\{", self.text):
            self.types.append((tag.group(1), self.line(tag.start())))
        for alias in re.finditer(r"^using\s+(\w+)\s*=", self.text, re.M):
            self.types.append((alias.group(1), self.line(alias.start())))
        for start in re.finditer(r"\btypedef\b", self.text):
            depth, at = 0, start.end()
            while at < len(self.text) and (depth or self.text[at] != ";"):
                depth += (self.text[at] in "({[") - (self.text[at] in ")}]")
                at += 1
            text = self.text[start.end() : at]
            body = re.match(r"\s*(?:struct|union|enum)\s+(\w+)", text)
            pointer = re.search(r"\(\s*\*\s*(\w+)[^()]*\)\s*\(", text)
            function = re.search(r"(\w+)\s*\((?:[^()]|\([^()]*\))*\)\s*$", text)
            plain = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", text)
            if not (pointer or function or plain):
                continue
            name = (pointer or function or plain).group(1)
            if not body or body.group(1) != name:  # otherwise its tag is its name, or it is a declaration
                self.types.append((name, self.line(start.start())))


def report_twice(definitions, what):
    """definitions: name -> [(file, line)]. In one file an #if decides which of them counts."""
    for name, places in definitions.items():
        first = places[0]
        for path, line in places[1:]:
            if path != first[0]:
                yield f"{path}:{line}: {what} {name} is defined in {first[0]}:{first[1]}, too; one name, one thing"


def test_of_nothing(path, paths):
    """test/D/test_S.c tests the file of D whose stem S begins with; test/ops, those of cpu/ and cuda/."""
    match = re.match(r"test/(.+)/test_(\w+)\.c$", path)
    if not match or match.group(1) in ("harness", "fuzz", "peers", "programs"):
        return False
    folder, name = match.groups()
    folder = re.sub(r"^ops\b", "cpu", folder)  # tests of an op are for all devices, whose files have the same name
    stems = {os.path.splitext(p)[0] for p in os.listdir(folder)}  # a script's test is written in C, too
    return not any(name == stem or name.startswith(stem + "_") for stem in stems)


def way(edges, start, goal):
    """The shortest way from start to goal along edges[node] = {node: place}, as nodes; None: there is none."""
    came, queue = {start: None}, collections.deque([start])
    while queue:
        node = queue.popleft()
        if node == goal:
            nodes = [node]
            while came[nodes[-1]] is not None:
                nodes.append(came[nodes[-1]])
            return nodes[::-1]
        for after in edges.get(node, {}):
            if after not in came:
                came[after] = node
                queue.append(after)
    return None


def report_circles(edges, what):
    """edges[node][node] = place, "FILE:LINE", of an include. One circle, the shortest, of each node that is in none
    that was reported before."""
    reported = set()
    for node in sorted(edges):
        backs = [back for after in sorted(edges[node]) if (back := way(edges, after, node))]
        if node in reported or not backs:
            continue
        circle = [node, *min(backs, key=len)]
        reported.update(circle)
        places = [edges[a][b] for a, b in zip(circle, circle[1:])]
        yield f"{places[0]}: a circle of {what}: {' -> '.join(circle)} (includes at {', '.join(places)})"


def include_graphs(includes):
    """includes: (file, file, "FILE:LINE"). Of files, a header and its source being one, and of folders, where one may
    include those that it is in."""
    files, folders = collections.defaultdict(dict), collections.defaultdict(dict)
    for source, target, place in includes:
        a, b = os.path.splitext(source)[0], os.path.splitext(target)[0]
        if a != b:
            files[a].setdefault(b, place)
        a, b = os.path.dirname(source), os.path.dirname(target)
        if a != b and not a.startswith(b + "/"):
            folders[a].setdefault(b, place)
    return files, folders


def main():
    paths = sys.argv[1:]
    types, externs, includes = collections.defaultdict(list), collections.defaultdict(list), []
    for path in paths:
        file = File(path)
        for line, what in sorted(file.problems):
            print(f"{path}:{line}: {what}")
        includes += [(path, target, f"{path}:{line}") for target, line in file.includes]
        if test_of_nothing(path, paths):
            print(f"{path}:1: no file beside which this test stands: {os.path.dirname(path)[len('test/'):]}/ has none "
                  "whose name it begins with")
        # A lesson makes calls like the lesson before it, so that they differ only in their idea.
        place = re.sub(r"^cuda/conv/lessons/\d\d_\w+\.cu$", "cuda/conv/lessons", path)
        if not path.startswith("test/"):
            for name, line in file.types:
                types[name].append((place, line))
        if not path.startswith("test/fuzz/"):
            for name, line in file.externs:
                if name != "main":
                    externs[name].append((path, line))
    files, folders = include_graphs(includes)
    for line in [*report_twice(types, "type"), *report_twice(externs, "external symbol"),
                 *report_circles(files, "files"), *report_circles(folders, "folders")]:
        print(line)


main()
