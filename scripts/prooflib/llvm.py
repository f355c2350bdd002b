"""The tools that read records of coverage."""

import pathlib
import re
import subprocess
import sys


def find_tools():
    """The folder of llvm-profdata and llvm-cov that belong to the compiler: others may not read what it writes."""
    show = lambda *what: subprocess.run(["rustc", *what], capture_output=True, text=True, check=True).stdout
    host = re.search(r"^host: (.*)$", show("-vV"), re.M)[1]
    folder = pathlib.Path(show("--print", "sysroot").strip()) / "lib" / "rustlib" / host / "bin"
    if not (folder / "llvm-cov").exists():
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: run `rustup component add llvm-tools` first")
    return folder


def merge(tools, raw, into):
    """One record of many; those of processes that were killed may be cut short and are left out."""
    command = [str(tools / "llvm-profdata"), "merge", "--sparse", "--failure-mode=all", "-o", str(into), *map(str, raw)]
    subprocess.run(command, check=True, capture_output=True)
