//! The constraints of a task, held against an output.

use super::Subject;
use super::output::Output;
use super::predicate::Predicate;
use super::severity::Severity;
use crate::context::PressureLevel;
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

/// Characters of a constraint that a check shows.
const MAX_SHOWN: usize = 120;

/// Holds an output against the task's constraints; nothing at admission, or where the level is instant.
pub(super) async fn check(
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
        let name: String = text.chars().take(MAX_SHOWN).collect();
        let given = known.iter().find(|(words, _)| words == text);
        let own = text.strip_prefix("output ").map(str::parse::<Predicate>);
        let outcome = match (given, own) {
            (Some((_, predicate)), _) => predicate
                .holds_within(output)
                .await
                .map_err(|spent| spent.to_string()),
            (None, Some(Ok(predicate))) => predicate
                .holds_within(output)
                .await
                .map_err(|spent| spent.to_string()),
            (None, Some(Err(error))) => Err(error.to_string()),
            (None, None) => Err("nobody here can check it".to_owned()),
        };
        checked.push(match outcome {
            Ok(true) => passed(name),
            Ok(false) => failed(name),
            Err(why) => unchecked(name, why, is_thorough),
        });
    }
    if constraints.len() > MAX_CHECKED {
        let more = format!("{} more constraints", constraints.len() - MAX_CHECKED);
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
