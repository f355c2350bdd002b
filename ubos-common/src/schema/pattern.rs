//! The size of a pattern: the states of the automaton that it becomes, and what is read until it is one.

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

/// Bytes that are read, about, until a pattern has the form that the regular expressions here take: it is read again for each
/// of the escapes that mean something else there, and grows by what is written in their place.
pub(super) fn reading(pattern: &str) -> u64 {
    let (mut escapes, mut growth) = (0_u64, 0);
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            continue;
        }
        let longer = match bytes.next() {
            Some(b's' | b'S') => SPACE,
            Some(b'w' | b'W' | b'd' | b'D') => WORD,
            Some(b'c') => 0,
            _ => continue,
        };
        escapes += 1;
        growth += longer;
    }
    let bytes = pattern.len() as u64;
    bytes + escapes.saturating_mul(bytes + growth / 2)
}

/// Bytes of the class that stands for white space.
const SPACE: u64 = 150;
/// Bytes of the class that stands for the characters of a word.
const WORD: u64 = 13;
/// States for each byte of a pattern of another dialect.
const UNREADABLE: u64 = 64;
