//! The constraints of a task, held against an output.

use super::Subject;
use super::output::Output;
use super::predicate::Predicate;
use super::severity::Severity;
use crate::context::{ConstitutionalContext, PressureLevel};
use crate::evidence::PolicyCheck;

/// What came of one constraint.
pub(super) struct Checked {
    /// The constraint, cut where it is long.
    pub(super) name: String,
    pub(super) check: PolicyCheck,
    pub(super) issue: Option<(Severity, String)>,
}

/// Constraints of one task that are checked; further ones are listed as unchecked, once.
const MAX_CHECKED: usize = 64;

/// How often at most the constraints of a task look at all of an output: once a term.
pub(super) fn looks(context: &ConstitutionalContext, known: &[(String, Predicate)]) -> usize {
    /// Bytes of the shortest term, with what joins it to the one before.
    const TERM: usize = 10;
    let looks = context.constraints.iter().flatten().take(MAX_CHECKED);
    let looks = looks.map(|text| match (given(text, known), own(text)) {
        (Some(predicate), _) => predicate.terms(),
        (None, Some(own)) => (1 + own.len() / TERM).min(Predicate::MAX_TERMS),
        (None, None) => 0,
    });
    looks.sum()
}

/// What a constraint in words is checked by.
fn given<'k>(text: &str, known: &'k [(String, Predicate)]) -> Option<&'k Predicate> {
    let mut known = known.iter();
    known.find_map(|(words, predicate)| (words == text).then_some(predicate))
}

/// The predicate that a constraint is itself, as text.
fn own(text: &str) -> Option<&str> {
    text.strip_prefix("output ")
}

/// Characters of a constraint, or of a principle, that a check shows.
const MAX_SHOWN: usize = 120;

/// The beginning of what a task says, as much of it as a check shows.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

/// The constraints of a task as unchecked, for a reason.
pub(crate) fn all_unchecked(context: &ConstitutionalContext, why: &str) -> Vec<PolicyCheck> {
    let constraints = context.constraints.as_deref().unwrap_or_default();
    let named = constraints.iter().take(MAX_CHECKED).map(|text| shown(text));
    let more = unlisted(constraints);
    let check = |name: String| PolicyCheck::with(&name, "UNCHECKED", why);
    named.chain(more).map(check).collect()
}

/// The name of what stands for the constraints beyond those that are checked.
fn unlisted(constraints: &[String]) -> Option<String> {
    let more = constraints.len().saturating_sub(MAX_CHECKED);
    (more > 0).then(|| format!("{more} more constraints"))
}

/// Holds an output against the task's constraints; nothing at admission, or where the level is instant.
pub(super) fn check(
    subject: &Subject<'_>,
    known: &[(String, Predicate)],
    output: Option<&mut Output<'_>>,
) -> Vec<Checked> {
    let level = subject.context.pressure_level;
    let Some(output) = output.filter(|_| level != PressureLevel::Instant) else {
        return Vec::new();
    };
    let constraints = subject.context.constraints.as_deref().unwrap_or_default();
    let is_thorough = level == PressureLevel::Deliberated;
    let mut checked = Vec::new();
    for text in constraints.iter().take(MAX_CHECKED) {
        let name = shown(text);
        let mut hold = |predicate: &Predicate| {
            let held = predicate.holds_within(output);
            held.map_err(|spent| spent.to_string())
        };
        let outcome = match (given(text, known), own(text).map(str::parse::<Predicate>)) {
            (Some(predicate), _) => hold(predicate),
            (None, Some(Ok(predicate))) => hold(&predicate),
            (None, Some(Err(error))) => Err(error.to_string()),
            (None, None) => Err("nobody here can check it".to_owned()),
        };
        checked.push(match outcome {
            Ok(true) => passed(name),
            Ok(false) => failed(name),
            Err(why) => unchecked(name, why, is_thorough),
        });
    }
    if let Some(more) = unlisted(constraints) {
        checked.push(unchecked(more, "too many to check".to_owned(), is_thorough));
    }
    checked
}

fn passed(name: String) -> Checked {
    let check = PolicyCheck::with(&name, "PASS", "the output keeps this constraint");
    Checked {
        name,
        check,
        issue: None,
    }
}

fn failed(name: String) -> Checked {
    let why = "the output breaks this constraint";
    let check = PolicyCheck::with(&name, "FAIL", why);
    Checked {
        name,
        check,
        issue: Some((Severity::High, why.to_owned())),
    }
}

fn unchecked(name: String, why: String, is_thorough: bool) -> Checked {
    let check = PolicyCheck::with(&name, "UNCHECKED", why.clone());
    Checked {
        name,
        check,
        issue: is_thorough.then_some((Severity::Low, why)),
    }
}
