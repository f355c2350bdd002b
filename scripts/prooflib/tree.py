"""What the tree says of each clause: its register, the code and the tests that are marked, the cases of the kits.

A clause without code needs a reason where it is a MUST: the reason of its status (`by-type`, `exception`), or the key
`code = "…"` of its register, which says why no code of ours does it.
"""

import pathlib
import subprocess
import tomllib

from . import kits, rust

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REGISTERS = ["ubos-common", "sap", "sacp", "upp", "uap-agent", "opensentience-wire", "uap-hub-proto"]
LONGEST = 80


class Clause:
    def __init__(self, crate, entry):
        self.crate, self.id, self.level, self.text = crate, entry["id"], entry["level"], entry["text"]
        self.status, self.reason = entry["status"], entry.get("reason", "")
        self.no_code = entry.get("code", "")
        # Place to spans: several marks of a clause may stand in one function.
        self.code, self.tests, self.cases = {}, {}, []
        self.no_case = ""

    def record(self):
        """The part of the snapshot that the tree alone decides."""
        record = {"id": self.id, "crate": self.crate, "level": self.level, "status": self.status, "text": self.text}
        if self.reason:
            record["reason"] = self.reason
        if self.no_code:
            record["no code"] = self.no_code
        record["code"] = {place: "not run" for place in sorted(self.code)}
        record["tests"] = {place: "not run" for place in sorted(self.tests)}
        record["cases"] = {f"{case.kit}: {case.name}": short(case.mutant) for case in self.cases}
        return record

    def lacks(self):
        """What a MUST has neither of its own nor a reason for."""
        if self.level != "MUST" or self.status in ("by-type", "exception"):
            return
        if not self.tests:
            yield "has no test"
        if not self.code and not self.no_code:
            yield "has no code: no `// impl:` names it, and its register gives no reason `code = \"…\"`"
        if self.code and self.no_code:
            yield "has code, and a reason why it has none"


class Tree:
    def __init__(self):
        self.files = {name: rust.Rust(name, text) for name, text in sources()}
        self.clauses = {}
        self.faults = []
        for crate in REGISTERS:
            self.read_register(crate)
        for file in self.files.values():
            for mark in file.marks():
                self.take(file, mark)
        self.take_cases()

    def read_register(self, crate):
        path = ROOT / crate / "requirements.toml"
        if path.exists():
            for entry in tomllib.loads(path.read_text())["clause"]:
                self.clauses[entry["id"]] = Clause(crate, entry)

    def take(self, file, mark):
        place = f"{file.name}:{mark.line}"
        if not mark.spans:
            wanted = "code" if mark.kind == "impl" else "a test"
            self.faults.append(f"{place}: `// {mark.kind}:` stands above what is not {wanted}")
        for id in mark.clauses:
            clause = self.clauses.get(id)
            if clause is None:
                self.faults.append(f"{place}: `// {mark.kind}:` names {id}, which no register has")
                continue
            found = clause.code if mark.kind == "impl" else clause.tests
            for span in mark.spans:
                found.setdefault(span.place, []).append(span)

    def take_cases(self):
        cases, reasons = kits.read(list(self.files.values()))
        for case in cases:
            if case.clause in self.clauses:
                self.clauses[case.clause].cases.append(case)
        for id, reason in reasons.items():
            if id in self.clauses and not self.clauses[id].cases:
                self.clauses[id].no_case = reason


def sources():
    """The Rust files that git knows or would take, with what may hold a mark or a case."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]
    for name in sorted(subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()):
        path = ROOT / name
        if path.exists():
            text = path.read_text()
            if "impl: " in text or "spec: " in text or name.startswith("conformance/src/"):
                yield name, text


def short(text):
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
