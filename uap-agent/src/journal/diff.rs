//! The first difference of two runs.

use super::entry::{BeginEntry, Entry};
use super::recording::Recording;
use crate::engine::EffectId;

/// The comparison of two runs. Ids and times are ignored, and entries of leases are not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diff {
    /// The number of equal entries at the start.
    pub same: usize,
    /// The number of entries of the first run.
    pub left: usize,
    /// The number of entries of the second run.
    pub right: usize,
    /// The first difference; `None` where the runs are equal.
    pub first: Option<Difference>,
}

/// A difference of two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The runs started differently: with another input, state, strategy, model or option.
    Beginning {
        /// What differs.
        what: String,
    },
    /// The runs requested different effects.
    Effect {
        /// The effect of the first run; `None` where it has ended.
        left: Option<(EffectId, &'static str)>,
        /// The effect of the second run.
        right: Option<(EffectId, &'static str)>,
    },
    /// The results of an effect differ.
    Answer {
        /// The effect of the first run; `None` for an abort.
        effect: Option<EffectId>,
        /// The kind of the effect: `infer`, `tool`, `hook`, `sleep`, `save`, or `abort`.
        kind: &'static str,
    },
    /// The runs ended differently.
    End,
    /// One recording ends before the other.
    Length,
}

impl Recording {
    /// Compares two runs. Ids and times are ignored.
    #[must_use]
    pub fn diff(&self, other: &Self) -> Diff {
        diff(self, other)
    }
}

fn diff(left: &Recording, right: &Recording) -> Diff {
    // Who wrote a run is nothing of the run itself.
    let (left_entries, right_entries) = (of_run(left), of_run(right));
    let mut diff = Diff {
        same: 0,
        left: left_entries.len() + 1,
        right: right_entries.len() + 1,
        first: beginning(&left.begin, &right.begin).map(|what| Difference::Beginning {
            what: what.to_owned(),
        }),
    };
    if diff.first.is_some() {
        return diff;
    }
    diff.same = 1;
    let mut rest = left_entries.iter().zip(&right_entries);
    diff.first = rest.find_map(|(left, right)| {
        let differs = entries(left, right);
        diff.same += usize::from(differs.is_none());
        differs
    });
    if diff.first.is_none() && diff.left != diff.right {
        diff.first = Some(Difference::Length);
    }
    diff
}

fn of_run(recording: &Recording) -> Vec<&Entry> {
    let is_of_run = |entry: &&Entry| !matches!(entry, Entry::Lease(_));
    recording.entries.iter().filter(is_of_run).collect()
}

fn beginning<'a>(left: &'a BeginEntry, right: &'a BeginEntry) -> Option<&'a str> {
    let texts = |begin: &BeginEntry| -> Vec<String> {
        begin
            .state
            .messages()
            .iter()
            .map(upp::Message::text)
            .collect()
    };
    let parts = [
        ("strategy", left.strategy == right.strategy),
        ("hooks", left.has_hooks == right.has_hooks),
        ("middleware", left.layers == right.layers),
        ("retries", left.retries == right.retries),
        ("repair", left.repairs == right.repairs),
        ("plan events", left.plan_events == right.plan_events),
        ("checkpoints", left.saves == right.saves),
        ("approvals", left.approvals == right.approvals),
        ("input", left.input.content() == right.input.content()),
        ("state", texts(left) == texts(right)),
    ];
    let other = left
        .program
        .iter()
        .find(|(name, hex)| right.program.get(*name) != Some(hex));
    let program = other.map(|(name, _)| name.as_str());
    let part = || parts.iter().find(|(_, same)| !same).map(|(name, _)| *name);
    program.or_else(part)
}

fn entries(left: &Entry, right: &Entry) -> Option<Difference> {
    match (left, right) {
        (Entry::Effect(l), Entry::Effect(r)) => {
            let same = l.kind == r.kind && l.fingerprint.content == r.fingerprint.content;
            (!same).then(|| question(left, right))
        }
        (Entry::Answer(l), Entry::Answer(r)) => {
            let same =
                l.result.kind() == r.result.kind() && l.result.content() == r.result.content();
            let (effect, kind) = (l.id, l.result.kind().unwrap_or("abort"));
            (!same).then_some(Difference::Answer { effect, kind })
        }
        (Entry::End(l), Entry::End(r)) => {
            let same = l.success == r.success && l.fingerprint.content == r.fingerprint.content;
            (!same).then_some(Difference::End)
        }
        (Entry::Question(_, l), Entry::Question(_, r)) if l.digest == r.digest => None,
        (Entry::Decision(_, l), Entry::Decision(_, r)) if l.verdict == r.verdict => None,
        _ => Some(question(left, right)),
    }
}

const fn question(left: &Entry, right: &Entry) -> Difference {
    Difference::Effect {
        left: asked(left),
        right: asked(right),
    }
}

const fn asked(entry: &Entry) -> Option<(EffectId, &'static str)> {
    match entry {
        Entry::Effect(effect) => Some((effect.id, effect.kind.as_str())),
        _ => None,
    }
}
