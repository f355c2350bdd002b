//! The size of a pattern: the states of the automaton that it becomes.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

/// States of a pattern, about; more than any bound for one that cannot be read, which the validator refuses.
pub(super) fn states(pattern: &str) -> u64 {
    // `\w` and its like mean ASCII in the dialect of JSON Schema, so that is tried first.
    let ascii = ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .build()
        .parse(pattern)
        .ok();
    let parsed = ascii.or_else(|| regex_syntax::parse(pattern).ok());
    let unreadable = (pattern.len() as u64).saturating_mul(UNREADABLE);
    parsed.map_or(unreadable, |hir| of(&hir))
}

fn of(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        // One that is not of ASCII alone stands for characters of up to four bytes.
        HirKind::Class(Class::Bytes(class)) if class.is_ascii() => 1,
        HirKind::Class(Class::Bytes(_)) => 10,
        HirKind::Literal(literal) => literal.0.len() as u64,
        // A range of characters becomes up to four of bytes.
        HirKind::Class(Class::Unicode(class)) => class.ranges().len() as u64 * 4 + 1,
        HirKind::Repetition(repetition) => {
            let most = repetition
                .max
                .unwrap_or_else(|| repetition.min.saturating_add(1));
            of(&repetition.sub).saturating_mul(u64::from(most.max(1)))
        }
        HirKind::Capture(capture) => of(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(of).fold(1, u64::saturating_add)
        }
    }
}

/// States for each byte of a pattern of another dialect.
const UNREADABLE: u64 = 64;
