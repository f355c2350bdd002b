"""Reads the cases of the conformance kits: clause, name and mutant of each.

A case is written in one of three ways, and a test of `conformance` holds what is read here against the kits themselves:

* a call `case((clause, name), …, mutant)`, or `point(…)`;
* a row with the members `clause`, `name` and `flaw`, which is the mutant;
* a pair (clause, name) in a list of clauses of vectors: its mutant answers wrong about every vector of the clause.
"""

import re

from . import rust

CALL = re.compile(r"\b(?:case|point)(?P<judge>::<[^()]*>)?\s*(?=\()")
TEXT = r'"((?:\\.|[^"\\])*)"'
PAIR = re.compile(r'\(?\s*"([A-Z][A-Z0-9]*-[0-9][\w.-]*)"\s*,\s*' + TEXT)
ROW = re.compile(r'\bclause:\s*"([^"]+)",\s*name:\s*' + TEXT)
LIST = re.compile(r"\b(?:const CLAUSES:[^=]*\(&str, &str\)[^=]*|let clauses )=\s*&?(?=\[)")
OUT_OF_REACH = re.compile(r"\bconst OUT_OF_REACH:[^=]*=\s*&?(?=\[)")
KIT = re.compile(r'\b(?:Kit::new|vector_kit|kit_of)\(\s*"([^"]+)"')
FIXED = re.compile(r'\(\s*"([A-Z][A-Z0-9]*-[0-9][\w.-]*)"\s*,\s*name\s*\)')
WRONG_ANSWERS = "answers wrong about every vector of the clause"


class Case:
    def __init__(self, kit, clause, name, mutant, file, start, end):
        self.kit, self.clause, self.name, self.mutant = kit, clause, name, " ".join(mutant.split()).rstrip(",")
        self.file, self.start, self.end = file, start, end

    def excerpt(self):
        return self.file.lines(self.file.line(self.start), self.file.line(self.end - 1))


def read(files):
    """All cases, in the order of the files, and the reasons of the clauses that no peer can be tested for."""
    files = [file for file in files if file.name.startswith("conformance/src/") and "/bin/" not in file.name]
    texts = {file.name: rust.without_comments(file.source) for file in files}
    cases, reasons = [], {}
    for file in files:
        text = texts[file.name]
        kit = kit_of(file.name, texts)
        if kit is None:
            continue
        cases += [Case(kit, *found) for found in calls(file, text)]
        cases += [Case(kit, *found) for found in rows(file, text)]
        cases += [Case(kit, *found) for found in lists(file, text)]
    for file in files:
        for found in OUT_OF_REACH.finditer(texts[file.name]):
            stop = rust.closing(file.code, found.end())
            reasons.update(PAIR.findall(texts[file.name][found.end() : stop]))
    return cases, reasons


def kit_of(name, texts):
    """The kit that a file belongs to: named in the file, or in the module above."""
    folder = name.rpartition("/")[0]
    for place in (name, f"{folder}/mod.rs"):
        found = KIT.search(texts.get(place, ""))
        if found:
            return found[1]
    return None


def calls(file, text):
    fixed = FIXED.search(text)
    for found in CALL.finditer(file.code):
        stop = rust.closing(file.code, found.end())
        arguments = split(file.code, text, found.end() + 1, stop - 1)
        pair = PAIR.match(text[found.end() + 1 : stop].lstrip())
        if pair:
            yield pair[1], pair[2], arguments[-1], file, found.start(), stop
        elif fixed and len(arguments) > 2 and re.fullmatch(TEXT, arguments[1]):
            yield fixed[1], arguments[1].strip('"'), arguments[0].strip('"'), file, found.start(), stop


def split(code, text, start, stop):
    """The arguments of a call."""
    found, at, position = [], start, start
    for sign in re.compile(r"[(\[{,]").finditer(code, start, stop):
        if sign.start() < position:
            continue
        if sign.group(0) == ",":
            found.append(text[at : sign.start()].strip())
            at = sign.end()
        else:
            position = rust.closing(code, sign.start())
    found.append(text[at:stop].strip())
    return [argument for argument in found if argument]


def rows(file, text):
    for found in ROW.finditer(text):
        opening = file.code.rindex("{", 0, found.start())
        stop = rust.closing(file.code, opening)
        flaw = re.search(r"\bflaw:\s*([^,]+),", text[found.end() : stop])
        yield found[1], found[2], flaw[1] if flaw else "", file, opening, stop


def lists(file, text):
    for found in LIST.finditer(text):
        stop = rust.closing(file.code, found.end())
        for pair in PAIR.finditer(text, found.end(), stop):
            yield pair[1], pair[2], WRONG_ANSWERS, file, pair.start(), pair.end()
