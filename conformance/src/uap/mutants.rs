//! A reference recording that keeps every clause, and mutants that break one.

use super::recording::Recording;

const REFERENCE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/vectors/uap/run.jsonl"
));

/// Runs of all strategies, with concurrent tools, a sub-agent, states, branches and a log.
pub(super) fn reference() -> Recording {
    read(REFERENCE)
}

#[expect(clippy::expect_used, reason = "our own file, read by a test")]
fn read(text: &str) -> Recording {
    Recording::read_lines(text).expect("lines of a recording")
}

/// The recording with every line changed or removed.
fn changed(mut change: impl FnMut(&str) -> Option<String>) -> Recording {
    let lines: Vec<String> = REFERENCE.lines().filter_map(&mut change).collect();
    read(&lines.join("\n"))
}

/// The recording with the first matching line changed or removed.
fn first_that(
    is_meant: impl Fn(&str) -> bool,
    change: impl Fn(&str) -> Option<String>,
) -> Recording {
    let mut is_done = false;
    changed(|line| {
        if is_done || !is_meant(line) {
            return Some(line.to_owned());
        }
        is_done = true;
        change(line)
    })
}

/// The recording with the first line that contains a text changed or removed.
fn first(part: &str, change: impl Fn(&str) -> Option<String>) -> Recording {
    first_that(|line| line.contains(part), change)
}

/// The recording without the first line that contains a text.
fn without(part: &str) -> Recording {
    first(part, |_| None)
}

/// The recording with a text replaced in every state.
fn in_states(from: &str, to: &str) -> Recording {
    changed(|line| {
        Some(if line.starts_with(STATE) {
            line.replace(from, to)
        } else {
            line.to_owned()
        })
    })
}

const STATE: &str = r#"{"state":"#;

/// The text between a mark and the next quotation mark.
fn quoted<'a>(line: &'a str, mark: &str) -> &'a str {
    let behind = line.split_once(mark).map_or("", |(_, behind)| behind);
    behind.split('"').next().unwrap_or_default()
}

pub(super) fn two_sources() -> Recording {
    let both = r#"{"source":"upp","uap":{},"#;
    first(r#"{"source":"upp","#, |line| {
        Some(line.replacen(r#"{"source":"upp","#, both, 1))
    })
}

pub(super) fn other_type() -> Recording {
    first("subagent_event", |line| {
        Some(line.replacen("subagent_event", "subagent_news", 1))
    })
}

/// The action comes before the end of the response.
pub(super) fn early_tools() -> Recording {
    let mut lines: Vec<&str> = REFERENCE.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.contains(r#""type":"action""#))
        .unwrap_or_default();
    if let Some(both) = lines.get_mut(at.saturating_sub(1)..=at) {
        both.reverse();
    }
    read(&lines.join("\n"))
}

pub(super) fn lost_step() -> Recording {
    // Not one that an agent tells that is called.
    let is_end = |line: &str| line.starts_with(r#"{"source":"uap","uap":{"type":"step_end""#);
    first_that(is_end, |_| None)
}

pub(super) fn other_agent() -> Recording {
    let mark = r#""agentId":""#;
    first(mark, |line| Some(line.replace(quoted(line, mark), "agent")))
}

pub(super) fn lost_end() -> Recording {
    without(r#""type":"tool_execution_end""#)
}

pub(super) fn swapped() -> Recording {
    first(r#""type":"observation""#, |line| {
        let line = line.replace(r#""toolCallId":"c1""#, r#""toolCallId":"c0""#);
        let line = line.replace(r#""toolCallId":"c2""#, r#""toolCallId":"c1""#);
        Some(line.replace(r#""toolCallId":"c0""#, r#""toolCallId":"c2""#))
    })
}

pub(super) fn thoughtless() -> Recording {
    without(r#""type":"reasoning""#)
}

pub(super) fn unannounced() -> Recording {
    without(r#""type":"subagent_start""#)
}

pub(super) fn no_state() -> Recording {
    first(STATE, |line| {
        Some(line.replace(r#""step":1,"#, r#""step":-1,"#))
    })
}

pub(super) fn other_version() -> Recording {
    first(STATE, |line| Some(line.replacen("1.1.0", "1.1.3", 1)))
}

pub(super) fn unsaved() -> Recording {
    without(STATE)
}

/// The second state has the id of the first.
pub(super) fn same_id() -> Recording {
    let (mark, mut before) = (r#""version":"1.1.0","id":""#, None);
    changed(|line| {
        if !line.starts_with(STATE) {
            return Some(line.to_owned());
        }
        let own = quoted(line, mark).to_owned();
        let other = before.get_or_insert_with(|| own.clone());
        Some(line.replacen(&own, other, 1))
    })
}

pub(super) fn rewritten() -> Recording {
    let is_second = |line: &str| line.starts_with(STATE) && line.contains(r#""step":2,"#);
    first_that(is_second, |line| {
        Some(line.replacen(r#""text":"look around""#, r#""text":"look away""#, 1))
    })
}

pub(super) fn unanswered() -> Recording {
    in_states(
        r#""results":[{"toolCallId":"c1""#,
        r#""results":[{"toolCallId":"c9""#,
    )
}

/// The second step of a plan is done before the first.
pub(super) fn impatient() -> Recording {
    changed(|line| {
        let (done, open) = (r#""status":"completed""#, r#""status":"pending""#);
        let is_half = line.starts_with(STATE) && line.contains(done) && line.contains(open);
        Some(if is_half {
            line.replace(done, "?")
                .replace(open, done)
                .replace('?', open)
        } else {
            line.to_owned()
        })
    })
}

pub(super) fn traceless() -> Recording {
    in_states("subagentTraces", "otherTraces")
}

pub(super) fn no_tree() -> Recording {
    let mark = r#""currentId":""#;
    let nobody = "00000000-0000-4000-8000-000000000000";
    first(mark, |line| {
        let current = quoted(line, mark);
        Some(line.replacen(&format!("{mark}{current}"), &format!("{mark}{nobody}"), 1))
    })
}

/// The first tree comes back after the last.
pub(super) fn pruned() -> Recording {
    let first = REFERENCE
        .lines()
        .find(|line| line.starts_with(r#"{"tree":"#));
    read(&format!("{REFERENCE}\n{}", first.unwrap_or_default()))
}

pub(super) fn silent_end() -> Recording {
    without("Execution completed")
}
