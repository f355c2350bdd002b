"""The snapshot `proof.json`: one line a clause, and one line a crate about the run that executed its tests.

What the tree decides is compared; the outcomes of the run are carried from one snapshot to the next by clause and place.
An outcome is `reached`, `not reached`, `no code to reach`, `failed` or `not run`.
"""

import json

from .tree import ROOT

PATH = ROOT / "proof.json"
STATIC = ["crate", "level", "status", "text", "reason", "no code"]
PARTS = {"code": "code", "tests": "test", "cases": "case"}
RENEW = "`scripts/proof update` renews the snapshot; commit proof.json with the change"


def load():
    if not PATH.exists():
        return {"executed": {}, "clauses": []}
    return json.loads(PATH.read_text())


def write(executed, records):
    line = lambda value: json.dumps(value, ensure_ascii=False)
    head = ",\n".join(f"    {line(crate)}: {line(executed[crate])}" for crate in sorted(executed))
    body = ",\n".join(f"    {line(record)}" for record in records)
    PATH.write_text(f'{{\n  "executed": {{\n{head}\n  }},\n  "clauses": [\n{body}\n  ]\n}}\n')


def carried(tree, old):
    """The records of the tree, with the outcomes of the old snapshot."""
    before = {record["id"]: record for record in old["clauses"]}
    records = []
    for clause in tree.clauses.values():
        record, known = clause.record(), before.get(clause.id, {})
        for part in ("code", "tests"):
            outcomes = known.get(part, {})
            moved = {name_of(place): outcome for place, outcome in outcomes.items() if place not in record[part]}
            for place in record[part]:
                record[part][place] = outcomes.get(place) or moved.get(name_of(place), "not run")
        record["state"] = state(record)
        records.append(record)
    return records


def name_of(place):
    """What a place is called where its file has another name."""
    return place.partition(" ")[2].rpartition("::")[2]


def state(record):
    """The state of a clause, from what its tests reached."""
    if not record["tests"]:
        return "by type" if record["status"] == "by-type" else "exception" if record["status"] == "exception" else "no test"
    if not record["code"]:
        return "no code by reason" if "no code" in record or record["status"] != "tested" else "tested, no code named"
    found = set(record["tests"].values())
    if "reached" in found:
        return "reached" if found == {"reached"} else "reached by some"
    for outcome in ("no code to reach", "not run", "failed"):
        if outcome in found:
            return outcome
    return "not reached"


def unproved(record):
    """What is wrong with a MUST whose tests have not reached its code."""
    if record["level"] != "MUST" or record["state"] not in ("not reached", "not run", "failed", "no code to reach"):
        return None
    what = "no test is seen to reach its code" if record["state"] == "not run" else f"its code is {record['state']!r}"
    return f"{record['id']}: is a MUST and {what}: `scripts/proof run --clause {record['id']}` finds out"


def differences(tree, old):
    """What each clause lost, and what else the snapshot does not say; each as one line."""
    before = {record["id"]: record for record in old["clauses"]}
    lost, other = [], []
    for record in carried(tree, old):
        id, known = record["id"], before.pop(record["id"], None)
        if known is None:
            other.append(f"{id}: is not in the snapshot")
            continue
        gone, new = [], []
        for part, word in PARTS.items():
            gone += [f"{id}: lost its {word} {it}" for it in known[part] if it not in record[part]]
            new += [f"{id}: has a new {word} {it}" for it in record[part] if it not in known[part]]
        changed = [it for it in record["cases"] if known["cases"].get(it, record["cases"][it]) != record["cases"][it]]
        gone += [f"{id}: lost the mutant of its case {it}" for it in changed]
        new += [f"{id}: has another {key}" for key in STATIC if known.get(key) != record.get(key)]
        if not gone and not new and known.get("state") != record["state"]:
            new.append(f"{id}: is {record['state']!r}, and the snapshot says {known.get('state')!r}")
        lost += gone
        other += new
    lost += [f"{id}: is in no register any more" for id in before]
    return lost, other
