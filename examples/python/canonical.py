"""Compares canonical forms with those of the package rfc8785.

    canonical.py FILE

Each line of the file is a JSON text, a tab, and its canonical form. Prints one line of JSON: how many were compared, and the
first that differ.
"""

import json
import sys

import rfc8785

compared, different = 0, []
with open(sys.argv[1], encoding="utf-8", newline="\n") as lines:
    for line in lines:
        text, wanted = line.rstrip("\n").split("\t")
        seen = rfc8785.dumps(json.loads(text)).decode()
        compared += 1
        if seen != wanted and len(different) < 5:
            different.append({"text": text, "seen": seen, "wanted": wanted})
print(json.dumps({"compared": compared, "different": different}))
