"""Runs each test of a clause alone, in a program built with coverage, and finds whether it reached the clause's code.

The package is built with all its features (`-C instrument-coverage`, only for crates of this workspace), so its tests may
need the servers and the Python packages that `.ci/run` installs. A test runs by its exact name, with a folder of its own
for what it and the programs that it starts record. Code is reached where a line of it was executed. What a macro of
another file makes of a declaration (`wire!`, `words!`) has no lines there: it is reached where the function ran
that reads or writes the type.
"""

import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

from . import llvm, snapshot
from .tree import ROOT, Tree

MACROS = ["ubos-common/src/json/wire.rs", "ubos-common/src/json/words.rs"]
LONGEST_S = 1800
WRAPPER = ROOT / "scripts" / "prooflib" / "rustc-with-coverage"


class Test:
    """A test of the tree, and the program that has it."""

    def __init__(self, place, span):
        self.place, self.span = place, span
        self.program, self.name = None, None
        self.clauses = []


def run(given):
    tree, old = Tree(), snapshot.load()
    tools = llvm.find_tools()
    chosen = [clause for clause in tree.clauses.values() if not given.clause or clause.id in given.clause]
    tests = collect(chosen)
    folders = sorted({place.split("/")[0] for place in tests if not given.crate or place.split("/")[0] in given.crate})
    records = {record["id"]: record for record in snapshot.carried(tree, old)}
    faults = []
    programs, others = build(folders, given.target_dir)
    for folder in folders:
        here = [test for place, found in tests.items() if place.startswith(folder + "/") for test in found]
        faults += assign(here, programs[folder])
        outcomes = execute([test for test in here if test.program], folder, others[folder], tools, given.jobs)
        faults += take(outcomes, records)
        if not given.clause:
            old["executed"][folder] = stamp()
        current = list(records.values())
        for record in current:
            record["state"] = snapshot.state(record)
        snapshot.write(old["executed"], current)
    for fault in faults:
        print(f"scripts/proof: {fault}", file=sys.stderr)
    return 1 if faults else 0


def collect(clauses):
    """The tests of these clauses by place; several where one place names several functions."""
    tests = {}
    for clause in clauses:
        for place, spans in clause.tests.items():
            for span in spans:
                found = tests.setdefault(place, [])
                test = next((it for it in found if it.span.start == span.start), None)
                if test is None:
                    test = Test(place, span)
                    found.append(test)
                test.clauses.append(clause)
    return tests


def stamp():
    git = subprocess.run(["git", "rev-parse", "--short=9", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    rustc = subprocess.run(["rustc", "-V"], cwd=ROOT, capture_output=True, text=True, check=True)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return f"{today}, commit {git.stdout.strip()}, {rustc.stdout.split(' (')[0]}"


def build(folders, target):
    """The test programs of each package, and its other programs, which tests may start. One build for all: packages that
    are built apart have other features, and are compiled anew for each."""
    target = pathlib.Path(target or os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
    target.mkdir(parents=True, exist_ok=True)
    env = dict(os.environ, CARGO_TARGET_DIR=str(target), RUSTC_WORKSPACE_WRAPPER=str(WRAPPER), CARGO_INCREMENTAL="0")
    env.update(CARGO_PROFILE_DEV_DEBUG="0", CARGO_PROFILE_TEST_DEBUG="0", LLVM_PROFILE_FILE=os.devnull)
    names = [tomllib.loads((ROOT / folder / "Cargo.toml").read_text())["package"]["name"] for folder in folders]
    packages = [word for name in names for word in ("--package", name)]
    command = ["cargo", "test", *packages, "--all-features", "--tests", "--no-run", "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("scripts/proof: the tests do not build")
    programs, others = ({folder: [] for folder in folders} for _ in range(2))
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message.get("executable"):
            folder = str(pathlib.Path(message["manifest_path"]).parent.relative_to(ROOT))
            if message["profile"]["test"] and folder in programs:
                programs[folder].append((message["target"]["src_path"], message["executable"]))
            elif folder in others:
                others[folder].append(message["executable"])
    return programs, others


def assign(tests, programs):
    """Finds the program and the full name of each test."""
    faults = []
    listed = []
    for root, program in programs:
        env = dict(os.environ, LLVM_PROFILE_FILE=os.devnull)
        shown = subprocess.run([program, "--list", "--format=terse"], env=env, capture_output=True, text=True)
        names = [line.rpartition(": ")[0] for line in shown.stdout.splitlines() if line.endswith(": test")]
        listed.append((pathlib.Path(root).relative_to(ROOT), program, names))
    for test in tests:
        test.program, test.name = find(test, listed)
        if test.program is None:
            faults.append(f"{test.place}: no program has this test")
    return faults


def find(test, listed):
    """The program whose root is nearest above the test's file, and the test's path in it."""
    file, function = pathlib.Path(test.span.file.name), test.place.rpartition(" ")[2].rpartition("::")[2]
    for root, program, names in sorted(listed, key=lambda it: -len(it[0].parent.parts)):
        if root != file and (root.parent not in file.parents or root.name not in ("lib.rs", "main.rs")):
            continue
        parts = [] if root == file else list(file.relative_to(root.parent).with_suffix("").parts)
        if parts and parts[-1] == "mod":
            parts.pop()
        path = [*parts, *test.span.file.modules(test.span.start), function]
        for name in names:
            if name.split("::") == path:
                return program, name
        # A file may be a module under another name (`#[path]`): the function's name decides where it is the only one.
        alike = [name for name in names if name.split("::")[-1] == function]
        if len(alike) == 1:
            return program, alike[0]
    return None, None


def execute(tests, folder, others, tools, jobs):
    """What became of each test: whether it passed, and the places that it reached and those that have lines at all."""
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run_one, test, folder, others, tools): test for test in tests}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            outcomes.append((running[done], *done.result()))
            if number % 25 == 0 or number == len(tests):
                print(f"{folder}: {number} of {len(tests)} tests", flush=True)
    return outcomes


def run_one(test, folder, others, tools):
    with tempfile.TemporaryDirectory(prefix="proof-") as there:
        # A program with an environment of its own leaves its record where it stands: each test stands in a copy of its folder.
        for path in (ROOT / folder).iterdir():
            (pathlib.Path(there) / path.name).symlink_to(path)
        env = dict(os.environ, LLVM_PROFILE_FILE=f"{there}/%p-%m.profraw", PROPTEST_FAILURE_PERSISTENCE="off")
        command = [test.program, "--exact", test.name]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        try:
            done = subprocess.run(command, cwd=there, env=env, timeout=LONGEST_S, errors="replace", **quiet)
        except subprocess.TimeoutExpired:
            return False, f"took longer than {LONGEST_S} s", {}
        passed = not done.returncode and "1 passed" in done.stdout
        if not passed:
            return False, done.stdout[-600:], {}
        files = sorted({place.partition(" ")[0] for clause in test.clauses for place in clause.code})
        report = export(pathlib.Path(there), [test.program, *others], files, tools) if files else ""
        return True, "", hits(report, test.clauses)


def export(there, programs, files, tools):
    profile = there / "merged"
    llvm.merge(tools, [path for path in there.glob("*.profraw") if path.stat().st_size], profile)
    objects = [programs[0], *(f"--object={program}" for program in programs[1:])]
    sources = [str(ROOT / file) for file in [*files, *MACROS]]
    shown = [str(tools / "llvm-cov"), "export", "--format=lcov", f"--instr-profile={profile}", *objects, "--sources", *sources]
    return subprocess.run(shown, check=True, capture_output=True, text=True).stdout


def hits(report, clauses):
    """For each place of these clauses: True where it was reached, False where it was not, None where it has no lines."""
    lines, functions, file = {}, [], None
    for line in report.splitlines():
        kind, _, value = line.partition(":")
        if kind == "SF":
            file = str(pathlib.Path(value).relative_to(ROOT))
        elif kind == "DA":
            number, count = value.split(",")[:2]
            lines.setdefault(file, {})[int(number)] = int(count)
        elif kind == "FNDA" and file in MACROS:
            count, name = value.split(",", 1)
            functions.append((name, int(count)))
    found = {}
    for clause in clauses:
        for place, spans in clause.code.items():
            counts = [
                count for span in spans for number, count in lines.get(span.file.name, {}).items() if span.first <= number <= span.last
            ] or [count for span in spans for count in made(span, functions)]  # fmt: skip
            found[place] = any(counts) if counts else None
    return found


def made(span, functions):
    """How often the functions ran that a macro made of this declaration to read and write it."""
    if "! {" not in span.file.lines(max(1, span.first - 1), span.last) and not in_macro(span):
        return []
    path = pathlib.Path(span.file.name).with_suffix("").parts
    module = path[-2] if path[-1] in ("mod", "lib") else path[-1]
    module = path[0].replace("-", "_") if module == "src" else module
    name = span.place.rpartition(" ")[2].rpartition("::")[2]
    mangled = re.compile(rf"{len(module)}{module}I?NtB[0-9A-Za-z]*_{len(name)}{name}(?![0-9a-z_]).*(?:4Read4read|5Write5write)")
    return [count for function, count in functions if mangled.search(function)]


def in_macro(span):
    """Whether a declaration stands in the braces of a macro."""
    opening = re.compile(r"\b(?:wire|words)!\s*\{")
    for found in opening.finditer(span.file.code, 0, span.start):
        depth = span.file.code.count("{", found.end(), span.start) - span.file.code.count("}", found.end(), span.start)
        if depth >= 0:
            return True
    return False


def take(outcomes, records):
    """Writes the outcomes into the records; says which tests failed."""
    faults, seen, ran = [], {}, {}
    for test, passed, said, found in outcomes:
        if not passed:
            faults.append(f"{test.place}: did not pass alone\n{said}")
        for clause in test.clauses:
            here = {place: found.get(place) for place in clause.code}
            records[clause.id]["tests"][test.place] = outcome(passed, here)
            ran.setdefault(clause.id, set()).add(test.place)
            for place, hit in here.items() if passed else ():
                best = seen.setdefault(clause.id, {})
                best[place] = True if hit or best.get(place) else hit if best.get(place) is None else best[place]
    for id, places in seen.items():
        record = records[id]
        whole = ran[id] >= set(record["tests"])
        for place, hit in places.items():
            if hit or whole or record["code"][place] != "reached":
                record["code"][place] = "reached" if hit else "no code to reach" if hit is None else "not reached"
        # What one program does not hold, another may.
        if {"reached", "not reached"} & set(record["code"].values()):
            for place, said in record["tests"].items():
                record["tests"][place] = "not reached" if said == "no code to reach" else said
    return faults


def outcome(passed, found):
    if not passed:
        return "failed"
    if not found:
        return "passed"
    if any(found.values()):
        return "reached"
    return "no code to reach" if all(hit is None for hit in found.values()) else "not reached"
