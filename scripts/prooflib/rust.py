"""Reads Rust text as far as the proof needs it: scopes, marks, and the code that a mark stands at.

The code of a mark `// impl: ID` is

1. the item, where the mark stands above one (comments and attributes between them do not count): a function, a type, a
   trait, an `impl`, a constant, the invocation of a macro that defines items;
2. otherwise the statement, match arm or member that begins on the next line of code, as far as its brackets reach.

The tests of a mark `// spec: ID` are the function below it, or every test of the `proptest!` below it.

A place is written as the file and the names of the scopes around the code: `sap/src/validate.rs Validator::times`. It has
no line numbers, so it stays where lines above it come or go.
"""

import bisect
import re

LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\n]+?|[^\\\'\n])\'', re.S
)  # fmt: skip
MARK = re.compile(r"^[ \t]*//[/!]?[ \t]*(spec|impl):[ \t]*(.+)$", re.M)
ID = re.compile(r"[A-Z][A-Z0-9]*-[0-9][A-Za-z0-9.]*(?:-[A-Za-z0-9.]+)*")
HEAD = re.compile(
    r"(?:(?:open|closed)\s+)?(?:pub\b(?:\s*\([^)]*\))?\s*)?(?:(?:default|const|async|unsafe|extern\s+\"[^\"]*\")\s+)*"
    r"(?P<kind>fn|struct|enum|union|trait|mod|type|const|static|impl|macro_rules!)\b\s*"
)
MACRO = re.compile(r"(?:\w+::)*(?P<name>\w+)!\s*[{(]")
SCOPE = re.compile(
    r"^(?P<before>[ \t]*(?:(?:open|closed)\s+)?(?:pub\b(?:\s*\([^)]*\))?\s*)?(?:(?:default|const|async|unsafe|extern\s+\S+)\s+)*)"
    r"(?P<kind>fn|struct|enum|union|trait|mod|impl|const|static|macro_rules!)(?=[\s<])\s*",
    re.M,
)
TEST = re.compile(r"#\[\s*(?:\w+::)*(?:test|rstest)\b")
PAIRS = {"(": ")", "[": "]", "{": "}"}


def blanked(text, pattern=LITERAL):
    """The text without comments and literals, character by character as before."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group(0)), text)


def without_comments(text):
    """The text with its literals, and without its comments."""
    keep = lambda found: found.group(0) if not found.group(0).startswith("/") else re.sub(r"[^\n]", " ", found.group(0))
    return LITERAL.sub(keep, text)


def closing(code, opening):
    """The place behind the bracket that closes the one at `opening`."""
    depth = 0
    for found in re.compile(r"[(){}\[\]]").finditer(code, opening):
        depth += 1 if found.group(0) in PAIRS else -1
        if depth == 0:
            return found.end()
    return len(code)


class Scope:
    """An item with a name: from its first word to its end."""

    def __init__(self, kind, name, start, end):
        self.kind, self.name, self.start, self.end = kind, name, start, end


class Span:
    """Code of a file: the lines `first` to `last`, and the place that names it."""

    def __init__(self, file, place, start, end):
        self.file, self.place, self.start, self.end = file, place, start, end
        self.first, self.last = file.line(start), file.line(max(start, end - 1))

    def text(self):
        return self.file.lines(self.first, self.last)


class Mark:
    """A comment that names clauses, and the code that it stands at."""

    def __init__(self, kind, clauses, line, spans):
        self.kind, self.clauses, self.line, self.spans = kind, clauses, line, spans


class Rust:
    """One file, by its path from the root of the repository."""

    def __init__(self, name, text):
        self.name, self.source = name, text
        self.code = blanked(text)
        self.starts = [0] + [found.end() for found in re.finditer(r"\n", text)]
        self.scopes = list(self.read_scopes())

    def line(self, at):
        return bisect.bisect_right(self.starts, at)

    def lines(self, first, last):
        return "\n".join(self.source.split("\n")[first - 1 : last])

    def read_scopes(self):
        for found in SCOPE.finditer(self.code):
            name = self.name_of(found["kind"], found.end())
            if name is not None:
                yield Scope(found["kind"], name, found.start("kind"), self.item_end(found["kind"], found.end()))

    def name_of(self, kind, at):
        if kind != "impl":
            found = re.compile(r"\w+").match(self.code, at)
            return found.group(0) if found else None
        head = self.code[at - 1 : self.head_end(at)]
        target = re.sub(r"\bwhere\b.*", "", without_angles(head), flags=re.S).rpartition(" for ")[2]
        names = re.findall(r"\w+", target)
        return names[-1] if names else None

    def head_end(self, at):
        """The brace or semicolon at which the head of an item ends."""
        position = at
        for found in re.compile(r"[(\[{;]").finditer(self.code, at):
            if found.start() >= position:
                if found.group(0) in "{;":
                    return found.start()
                position = closing(self.code, found.start())
        return len(self.code)

    def item_end(self, kind, at):
        if kind in ("const", "static", "type"):
            position = at
            for found in re.compile(r"[(\[{;]").finditer(self.code, at):
                if found.start() >= position:
                    if found.group(0) == ";":
                        return found.end()
                    position = closing(self.code, found.start())
            return len(self.code)
        end = self.head_end(at)
        return closing(self.code, end) if self.code.startswith("{", end) else end + 1

    def around(self, at):
        """The scopes around a place, outermost first."""
        return [scope for scope in self.scopes if scope.start <= at < scope.end]

    def place(self, at):
        names = [scope.name for scope in self.around(at) if scope.kind != "mod"]
        return f"{self.name} {'::'.join(names)}" if names else self.name

    def modules(self, at):
        """The names of the inline modules around a place."""
        return [scope.name for scope in self.around(at) if scope.kind == "mod"]

    def marks(self):
        for found in MARK.finditer(self.source):
            clauses = ID.findall(found[2])
            # A rule of the text: nothing but ids, commas and blanks.
            if not clauses or re.sub(r"[,\s]", "", ID.sub("", found[2])):
                continue
            at, attributes = self.next_code(found.end())
            spans = self.marked(at) if found[1] == "impl" else list(self.tests(at, attributes))
            yield Mark(found[1], clauses, self.line(found.start(2)), spans)

    def next_code(self, at):
        """Where the next code begins, behind comments and attributes; and the text of the attributes."""
        first = None
        while True:
            found = re.compile(r"\S").search(self.code, at)
            if not found:
                return len(self.code), ""
            at = found.start()
            first = at if first is None else first
            if not self.code.startswith("#[", at):
                return at, self.code[first:at]
            at = closing(self.code, at + 1)

    def marked(self, at):
        if at >= len(self.code) or self.code[at] in ")}]":
            return []
        head = HEAD.match(self.code, at)
        if head:
            return [Span(self, self.place(head.start("kind")), at, self.item_end(head["kind"], head.end()))]
        macro = MACRO.match(self.code, at)
        if macro and not any(scope.kind == "fn" for scope in self.around(at)):
            stop = closing(self.code, macro.end() - 1)
            inner = [scope.name for scope in self.scopes if at <= scope.start < stop]
            return [Span(self, f"{self.name} {inner[0] if inner else macro['name'] + '!'}", at, stop)]
        return [Span(self, self.place(at), at, self.statement(at))]

    def statement(self, at):
        """The end of the statement, arm or member that begins here."""
        is_let = self.code.startswith("let ", at)
        position = at
        for found in re.compile(r"[(){}\[\];,]").finditer(self.code, at):
            if found.start() < position:
                continue
            sign = found.group(0)
            if sign in PAIRS:
                position = closing(self.code, found.start())
                rest = self.code[position : position + 200].lstrip()
                if sign == "{" and not is_let and not re.match(r"[.?,;)]|else\b|=>", rest):
                    return position
            elif sign == "," and is_let:
                continue
            elif sign in ";,":
                return found.end()
            else:
                return found.start()
        return len(self.code)

    def tests(self, at, attributes):
        macro = MACRO.match(self.code, at)
        if macro and macro["name"] == "proptest":
            stop = closing(self.code, macro.end() - 1)
            for scope in self.scopes:
                if scope.kind == "fn" and at <= scope.start < stop and TEST.search(self.above(scope.start)):
                    yield Span(self, self.place(scope.start), scope.start, scope.end)
            return
        head = HEAD.match(self.code, at)
        if head and head["kind"] == "fn" and TEST.search(attributes):
            scope = next(scope for scope in self.scopes if scope.start == head.start("kind"))
            yield Span(self, self.place(scope.start), at, scope.end)

    def above(self, at):
        """The attributes above a function."""
        start = max(self.code.rfind("}", 0, at), self.code.rfind(";", 0, at), self.code.rfind("{", 0, at))
        return self.code[start + 1 : at]


def without_angles(text):
    """The text without what stands between angle brackets."""
    while True:
        shorter = re.sub(r"<[^<>]*>", "", text.replace("->", ""))
        if shorter == text:
            return text
        text = shorter
