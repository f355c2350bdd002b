//! Field names that were written before: a type's fields come again and again, in one order.

use super::{order, text};

/// Bytes of the longest name that is remembered, with a comma, its quotes and the colon.
const WIDTH: usize = 32;

/// Names that are remembered; those that come later are written as all others are.
const MOST: usize = 64;

/// The names of fields, found again by their address.
#[derive(Default)]
pub(super) struct Names {
    known: Vec<Name>,
    /// The name found last: the one after it is most likely the next.
    last: usize,
}

/// A name that stands for itself in JSON.
pub(super) struct Name {
    name: &'static str,
    /// A comma, the name in quotes and the colon; zeroes after it.
    text: [u8; WIDTH],
    /// Its [`order::prefix`].
    pub(super) prefix: u64,
    /// Which name came after it the last time.
    next: usize,
}

impl Name {
    /// Whether it is `name`, by address: the same text elsewhere is another name here.
    #[inline]
    fn is(&self, name: &'static str) -> bool {
        core::ptr::eq(self.name, name)
    }

    /// Appends the name in quotes and the colon, behind a comma unless it `is_first`, as one copy of a fixed size.
    #[inline]
    pub(super) fn append_to(&self, out: &mut Vec<u8>, is_first: bool) {
        let end = out.len() + self.name.len() + 4;
        if let (true, [_comma, text @ ..]) = (is_first, &self.text) {
            out.extend_from_slice(text);
            out.truncate(end - 1);
        } else {
            out.extend_from_slice(&self.text);
            out.truncate(end);
        }
    }
}

impl Names {
    /// What is known of `name`; `None` if it is too long, has to be escaped, or is one too many.
    #[inline]
    pub(super) fn find(&mut self, name: &'static str) -> Option<&Name> {
        let next = self.known.get(self.last).map_or(0, |last| last.next);
        let is_next = self.known.get(next).is_some_and(|known| known.is(name));
        self.last = if is_next { next } else { self.search(name)? };
        self.known.get(self.last)
    }

    #[cold]
    fn search(&mut self, name: &'static str) -> Option<usize> {
        let found = match self.known.iter().position(|known| known.is(name)) {
            Some(found) => found,
            None => self.learn(name)?,
        };
        if let Some(last) = self.known.get_mut(self.last) {
            last.next = found;
        }
        Some(found)
    }

    fn learn(&mut self, name: &'static str) -> Option<usize> {
        let body = name.as_bytes();
        if self.known.len() == MOST || text::split(body).is_some() {
            return None;
        }
        let mut text = [0; WIDTH];
        let (before, rest) = text.get_mut(..body.len() + 4)?.split_at_mut_checked(2)?;
        let (written, after) = rest.split_at_mut_checked(body.len())?;
        before.copy_from_slice(b",\"");
        written.copy_from_slice(body);
        after.copy_from_slice(b"\":");
        if self.known.is_empty() {
            self.known.reserve(16);
        }
        self.known.push(Name {
            name,
            text,
            prefix: order::prefix(body),
            next: 0,
        });
        Some(self.known.len() - 1)
    }
}
