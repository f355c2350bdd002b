//! What `trace` prints: a line a step, then what is missing, then the stores.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use ubos_common::violation::OneLine;

use crate::rebuild::{Condition, MOST_STEPS, Rebuilt, State};
use crate::step_id;
use crate::trace::Span;

/// The tree for people. What comes from the stores may hold anything.
pub(super) fn text(rebuilt: &Rebuilt, out: &mut dyn Write) -> io::Result<()> {
    heading(rebuilt, out)?;
    writeln!(
        out,
        "\n{:>10} {:>10}  {:<13}  step",
        "begun ms", "took ms", "protocol"
    )?;
    let from = rebuilt.spans.list.iter().map(|span| span.started).min();
    for (depth, span) in rebuilt.spans.tree() {
        let begun = from.map_or(Duration::ZERO, |from| span.started.saturating_since(from));
        let took = match span.ended {
            Some(ended) => ended.saturating_since(span.started).as_millis().to_string(),
            None => "-".to_owned(),
        };
        writeln!(
            out,
            "{:>10} {took:>10}  {:<13}  {:indent$}{}: {} [{}]",
            begun.as_millis(),
            span.who.name(),
            "",
            OneLine(&span.name),
            OneLine(outcome(span)),
            OneLine(&span.id),
            indent = 2 * depth.min(MOST_INDENT),
        )?;
    }
    let steps = rebuilt.spans.list.len();
    match rebuilt.is_whole() && !rebuilt.has_unreadable() {
        true => writeln!(
            out,
            "\n{steps} steps: each has an end, each message its cause"
        )?,
        false => writeln!(out, "\n{steps} steps")?,
    }
    for complaint in complaints(rebuilt) {
        writeln!(out, "{complaint}")?;
    }
    for store in rebuilt.stores.iter().filter(|store| !is_bad(store)) {
        writeln!(out, "store {}", OneLine(&store.to_string()))?;
    }
    Ok(())
}

fn heading(rebuilt: &Rebuilt, out: &mut dyn Write) -> io::Result<()> {
    let [run] = &rebuilt.runs[..] else {
        return writeln!(out, "all {} runs", rebuilt.runs.len());
    };
    write!(out, "run {}", OneLine(run))?;
    let id = step_id::mission(run);
    if let Some(mission) = rebuilt.spans.list.iter().find(|span| span.id == id) {
        write!(out, ", begun {}", mission.started)?;
    }
    match rebuilt.all_runs {
        1 => writeln!(out),
        all => writeln!(out, "; one of {all} here, --all shows them"),
    }
}

/// Steps below each other that still move to the right.
const MOST_INDENT: usize = 32;

fn outcome(span: &Span) -> &str {
    match span.ended {
        None => "did not end",
        Some(_) => &span.outcome,
    }
}

/// What keeps the tree from being whole, a line each.
pub(super) fn complaints(rebuilt: &Rebuilt) -> Vec<String> {
    let mut said = Vec::new();
    for missing in &rebuilt.missing {
        said.push(format!(
            "no cause: {} {} names {}, which no store holds",
            missing.who.name(),
            OneLine(&missing.message),
            OneLine(&missing.names)
        ));
    }
    let endless = rebuilt.endless().count();
    if endless > 0 {
        said.push(format!("no end: {endless} steps"));
    }
    if rebuilt.spans.more > 0 {
        let more = rebuilt.spans.more;
        said.push(format!(
            "not looked at: {more} steps beyond {MOST_STEPS}, which is the bound; what names them seems to have no cause"
        ));
    }
    let bad = rebuilt.stores.iter().filter(|store| is_bad(store));
    said.extend(bad.map(|store| format!("not read: {}", OneLine(&store.to_string()))));
    said
}

fn is_bad(store: &Condition) -> bool {
    store.is_unreadable() || store.state == State::Missing
}

/// A line of JSON.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Step {
        depth: usize,
        protocol: &'a str,
        id: &'a str,
        parent: Option<&'a str>,
        name: &'a str,
        in_tools: bool,
        started: String,
        ended: Option<String>,
        took_ms: Option<u128>,
        outcome: &'a str,
    },
    Missing {
        protocol: &'a str,
        message: &'a str,
        names: &'a str,
    },
    Unread {
        steps: u64,
    },
    Store {
        place: &'a str,
        records: u64,
        is_whole: bool,
        said: String,
    },
}

/// The same for programs.
pub(super) fn json(rebuilt: &Rebuilt, out: &mut dyn Write) -> io::Result<()> {
    let mut line = |line: &Line<'_>| {
        serde_json::to_writer(&mut *out, line)?;
        writeln!(out)
    };
    for (depth, span) in rebuilt.spans.tree() {
        line(&Line::Step {
            depth,
            protocol: span.who.name(),
            id: &span.id,
            parent: span.parent.as_deref(),
            name: &span.name,
            in_tools: span.in_tools,
            started: span.started.to_string(),
            ended: span.ended.map(|ended| ended.to_string()),
            took_ms: span
                .ended
                .map(|ended| ended.saturating_since(span.started).as_millis()),
            outcome: outcome(span),
        })?;
    }
    for missing in &rebuilt.missing {
        line(&Line::Missing {
            protocol: missing.who.name(),
            message: &missing.message,
            names: &missing.names,
        })?;
    }
    if rebuilt.spans.more > 0 {
        let steps = rebuilt.spans.more;
        line(&Line::Unread { steps })?;
    }
    for store in &rebuilt.stores {
        line(&Line::Store {
            place: &store.place,
            records: store.records,
            is_whole: store.state == State::Whole,
            said: store.to_string(),
        })?;
    }
    Ok(())
}
