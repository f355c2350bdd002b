//! Text without the characters that nobody sees.

use core::ops::Range;
use std::borrow::Cow;

use crate::is_unseen;

/// A text as it is seen, and where its bytes stand in the original.
pub(super) struct Visible<'a> {
    text: Cow<'a, str>,
    /// What was left out: the place in `text`, and the bytes that are missing up to there. In rising order.
    gaps: Vec<(usize, usize)>,
}

impl<'a> Visible<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let mut gaps = Vec::new();
        // Most texts are, and it is known at once.
        if text.is_ascii() || !text.contains(is_unseen) {
            let text = Cow::Borrowed(text);
            return Self { text, gaps };
        }
        let mut seen = String::with_capacity(text.len());
        let mut missing = 0;
        for c in text.chars() {
            if is_unseen(c) {
                missing += c.len_utf8();
                gaps.push((seen.len(), missing));
            } else {
                seen.push(c);
            }
        }
        let text = Cow::Owned(seen);
        Self { text, gaps }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The range in the original text: what is invisible inside belongs to it, at its ends it does not.
    pub(super) fn original(&self, range: Range<usize>) -> Range<usize> {
        let before = |place: usize| {
            let known = self.gaps.partition_point(|(gap, _)| *gap <= place);
            let gap = known.checked_sub(1).and_then(|index| self.gaps.get(index));
            place + gap.map_or(0, |(_, missing)| *missing)
        };
        let end = before(range.end.saturating_sub(1)) + 1;
        before(range.start)..end.max(before(range.start))
    }
}
