"""Judges messages by the schemas, with Python's `jsonschema`.

    python schemas.py FOLDER_OF_SCHEMAS FILE

Each line of the file is an array: the name of a schema, whether the message is said to be valid, the message. Prints one line of
JSON: how many were judged, and the first that are judged otherwise. Needs the package rfc3339-validator for `date-time`.
"""

import json
import pathlib
import sys

from jsonschema import Draft202012Validator, FormatChecker
import rfc3339_validator  # noqa: F401  without it `date-time` would not be checked

folder, file = map(pathlib.Path, sys.argv[1:])
validators = {}
for path in folder.glob("*.json"):
    schema = json.loads(path.read_text())
    Draft202012Validator.check_schema(schema)
    validators[path.stem] = Draft202012Validator(schema, format_checker=FormatChecker())
judged, different = 0, []
for line in file.read_text(encoding="utf-8").split("\n"):
    name, wanted, message = json.loads(line)
    judged += 1
    if validators[name].is_valid(message) != wanted and len(different) < 5:
        different.append([name, wanted, message])
print(json.dumps({"judged": judged, "different": different}))
