"""Makes one page of all clauses: code beside test, with what the last run says of each."""

import html
import json
import pathlib

from . import snapshot
from .tree import REGISTERS

TEMPLATE = pathlib.Path(__file__).with_name("page.html")
LONGEST_EXCERPT = 80
# Their order is that of the page: what is to be done first stands first.
STATES = {
    "failed": "bad",
    "no test": "bad",
    "tested, no code named": "bad",
    "not reached": "bad",
    "not run": "open",
    "no code to reach": "open",
    "no code by reason": "reason",
    "by type": "reason",
    "exception": "reason",
    "reached by some": "good",
    "reached": "good",
}
OUTCOMES = {"reached": "good", "passed": "good", "failed": "bad", "not reached": "bad", "not run": "open", "no code to reach": "open"}
escape = html.escape


def page(tree, old):
    records = snapshot.carried(tree, old)
    excerpts = Excerpts()
    clauses = "\n".join(clause(record, tree.clauses[record["id"]], excerpts) for record in records)
    parts = {
        "figures": figures(records),
        "crates": options(crate for crate in REGISTERS if any(record["crate"] == crate for record in records)),
        "states": options(state for state in STATES if any(record["state"] == state for record in records)),
        "runs": runs(old["executed"]),
        "clauses": clauses,
        "excerpts": excerpts.script(),
        "total": str(len(records)),
    }
    text = TEMPLATE.read_text()
    for name, value in parts.items():
        text = text.replace(f"<!-- {name} -->", value)
    return text


class Excerpts:
    """Excerpts of the sources, each once: several clauses may share a test."""

    def __init__(self):
        self.texts = {}

    def key(self, file, first, last):
        name = f"{file.name}:{first}-{last}"
        if name not in self.texts:
            shown = min(last, first + LONGEST_EXCERPT - 1)
            text = file.lines(first, shown)
            if shown < last:
                text += f"\n… {last - shown} more lines"
            self.texts[name] = dedented(text)
        return name

    def script(self):
        # A script ends at the first `</`, wherever it stands.
        return json.dumps(self.texts, ensure_ascii=False).replace("</", "<\\/")


def dedented(text):
    lines = text.split("\n")
    depth = min((len(line) - len(line.lstrip()) for line in lines[:1] + lines[-1:] if line.strip()), default=0)
    return "\n".join(line[depth:] if not line[:depth].strip() else line for line in lines)


def options(values):
    return "".join(f"<option>{escape(value)}</option>" for value in values)


def runs(executed):
    if not executed:
        return "<p>No run is recorded.</p>"
    alike = {}
    for crate in sorted(executed):
        alike.setdefault(executed[crate], []).append(crate)
    items = "".join(f"<li><b>{escape(stamp)}</b>: {escape(', '.join(crates))}</li>" for stamp, crates in alike.items())
    return f"<ul class=runs>{items}</ul>"


def figures(records):
    heads = ["crate", "clauses", "MUST", "code", "test", "kit", "reached", "reason", "open"]
    rows = []
    for crate in [*REGISTERS, None]:
        mine = [record for record in records if crate in (None, record["crate"])]
        if not mine:
            continue
        kinds = [STATES.get(record["state"], "open") for record in mine]
        numbers = [
            len(mine),
            sum(record["level"] == "MUST" for record in mine),
            *(sum(bool(record[part]) for record in mine) for part in ("code", "tests", "cases")),
            kinds.count("good"),
            kinds.count("reason"),
            kinds.count("open") + kinds.count("bad"),
        ]
        cells = "".join(f"<td>{number}</td>" for number in numbers)
        kind = " class=all" if crate is None else ""
        rows.append(f"<tr{kind}><th scope=row>{escape(crate or 'all')}</th>{cells}</tr>")
    head = "".join(f"<th scope=col>{name}</th>" for name in heads)
    return f"<table class=figures><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def clause(record, found, excerpts):
    attributes = {"crate": record["crate"], "level": record["level"], "state": record["state"]}
    data = " ".join(f'data-{name}="{escape(value)}"' for name, value in attributes.items())
    words = " ".join([record["id"], record["text"], *record["code"], *record["tests"], *record["cases"]]).lower()
    reasons = "".join(
        f"<p class=reason>{escape(label)}: {escape(text)}</p>"
        for label, text in (
            ("Why it has no test", found.reason), ("Why no code is named", found.no_code), ("Why no kit judges it", found.no_case),
        )
        if text
    )  # fmt: skip
    return f"""<details class=clause id="{record['id']}" {data} data-words="{escape(words)}">
<summary><code class=id>{record['id']}</code><span class="level {record['level'].lower()}">{record['level']}</span>\
{chip(record['state'], STATES)}<span class=text>{escape(record['text'])}</span></summary>
{reasons}<div class=sides><section><h3>Code</h3>{places(found.code, record['code'], excerpts, 'No code is named.')}</section>
<section><h3>Tests</h3>{places(found.tests, record['tests'], excerpts, 'No test.')}</section></div>
<section class=cases><h3>Cases of the kits</h3>{cases(found, excerpts)}</section>
</details>"""


def breakable(name):
    """A name that a narrow page may break behind `_` and `::`."""
    return escape(name).replace("_", "_<wbr>").replace("::", "::<wbr>")


def chip(word, kinds):
    return f'<span class="chip {kinds.get(word, "open")}">{escape(word)}</span>'


def places(found, outcomes, excerpts, nothing):
    parts = []
    for place in sorted(found):
        file, _, name = place.partition(" ")
        for span in found[place]:
            where = f"{file}:{span.first}"
            pre = f'<pre data-excerpt="{escape(excerpts.key(span.file, span.first, span.last))}"></pre>'
            head = f"<b>{breakable(name or file)}</b> {chip(outcomes[place], OUTCOMES)}<span class=where>{escape(where)}</span>"
            parts.append(f"<div class=place><p>{head}</p>{pre}</div>")
    return "".join(parts) or f"<p class=none>{nothing}</p>"


def cases(found, excerpts):
    parts = []
    for case in found.cases:
        first, last = case.file.line(case.start), case.file.line(case.end - 1)
        key = excerpts.key(case.file, first, last)
        head = f"<b>{escape(case.kit)}</b> {escape(case.name)}<span class=where>{escape(case.file.name)}:{first}</span>"
        mutant = f"<p class=mutant>Mutant: <code>{escape(case.mutant)}</code></p>"
        parts.append(f'<div class=place><p>{head}</p>{mutant}<pre data-excerpt="{escape(key)}"></pre></div>')
    return "".join(parts) or "<p class=none>No kit has a case of it.</p>"
