//! The one writer behind all sources: text lands in a buffer, members are put in order when
//! their object closes, and only if they were not in order already.

use core::cmp::Ordering;

use super::names::Names;
use super::{CanonError, CanonFault, MAX_DEPTH, Mode};
use super::{order, text};

/// Where canonical text goes.
pub(super) trait Sink {
    /// The vector that text is appended to.
    fn buffer(&mut self) -> &mut Vec<u8>;

    /// Told now and then that what the buffer holds is final, so that it may be taken away.
    fn settle(&mut self);
}

impl Sink for Vec<u8> {
    fn buffer(&mut self) -> &mut Self {
        self
    }

    fn settle(&mut self) {}
}

pub(super) struct Writer<'s, S> {
    sink: &'s mut S,
    mode: Mode,
    depth: usize,
    /// Objects open now; while there is one, its text may still move.
    objects: usize,
    /// Members of all open objects, those of the innermost last.
    members: Vec<Member>,
    scratch: Vec<u8>,
    known: [Known; KNOWN],
    names: Names,
}

/// An object being written.
pub(super) struct Object {
    /// Its first member and the one being written, counted in `Writer::members`.
    first: usize,
    current: usize,
    /// Where the member being written starts in the buffer.
    start: usize,
    /// The prefix of the last name.
    prefix: u64,
    sorted: bool,
}

/// One member's text in the buffer: `"name":value`, without the comma.
struct Member {
    start: usize,
    /// Where the name ends, at its closing quote.
    name_end: usize,
    /// Stands for the start of the name in most comparisons: see [`order::prefix`].
    prefix: u64,
    escaped: bool,
}

impl<'s, S: Sink> Writer<'s, S> {
    pub(super) fn new(sink: &'s mut S, mode: Mode) -> Self {
        Self {
            sink,
            mode,
            depth: 0,
            objects: 0,
            members: Vec::with_capacity(32),
            scratch: Vec::new(),
            known: Default::default(),
            names: Names::default(),
        }
    }

    #[inline]
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        self.sink.buffer()
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// One level down, for an array or object that opens with `bracket`.
    #[inline]
    pub(super) fn enter(&mut self, bracket: u8) -> Result<(), CanonError> {
        if self.depth == MAX_DEPTH {
            return Err(CanonFault::TooDeep { limit: MAX_DEPTH }.into());
        }
        self.depth += 1;
        self.out().push(bracket);
        Ok(())
    }

    #[inline]
    pub(super) fn leave(&mut self, bracket: u8) {
        self.out().push(bracket);
        self.depth -= 1;
    }

    /// Lets the sink take what is final: nothing while an object may still be put in order.
    #[inline]
    pub(super) fn settle(&mut self) {
        if self.objects == 0 {
            self.sink.settle();
        }
    }

    pub(super) fn begin_object(&mut self) -> Result<Object, CanonError> {
        self.enter(b'{')?;
        self.objects += 1;
        Ok(Object {
            first: self.members.len(),
            current: self.members.len(),
            start: 0,
            prefix: 0,
            sorted: true,
        })
    }

    /// Begins a member, up to the opening quote of its name: the body of the name is to be
    /// written next, then [`end_name`].
    ///
    /// [`end_name`]: Self::end_name
    #[inline]
    pub(super) fn begin_member(&mut self, object: &mut Object) {
        object.current = self.members.len();
        let buffer = self.sink.buffer();
        object.start = buffer.len();
        if object.current > object.first {
            object.start += 1;
            buffer.extend_from_slice(b",\"");
        } else {
            buffer.push(b'"');
        }
    }

    /// Ends the name of the member just begun; its value is to be written next. `prefix` is
    /// [`order::prefix`] of the name, `escaped` tells whether it has escapes as written.
    #[inline]
    pub(super) fn end_name(
        &mut self,
        object: &mut Object,
        prefix: u64,
        escaped: bool,
    ) -> Result<(), CanonError> {
        let buffer = self.sink.buffer();
        let name_end = buffer.len();
        buffer.extend_from_slice(b"\":");
        self.note_member(object, name_end, prefix, escaped)
    }

    /// Writes the name of a field; its value is to be written next.
    #[inline]
    pub(super) fn field_name(
        &mut self,
        object: &mut Object,
        name: &'static str,
    ) -> Result<(), CanonError> {
        let Some(known) = self.names.find(name) else {
            return self.name(object, name);
        };
        object.current = self.members.len();
        let is_first = object.current == object.first;
        let buffer = self.sink.buffer();
        object.start = buffer.len() + usize::from(!is_first);
        known.append_to(buffer, is_first);
        let (name_end, prefix) = (buffer.len() - 2, known.prefix);
        self.note_member(object, name_end, prefix, false)
    }

    /// Writes the name of a member; its value is to be written next.
    #[inline]
    pub(super) fn name(&mut self, object: &mut Object, name: &str) -> Result<(), CanonError> {
        self.begin_member(object);
        let escaped = text::write_body(self.out(), name.as_bytes());
        self.end_name(object, order::prefix(name.as_bytes()), escaped)
    }

    #[inline]
    fn note_member(
        &mut self,
        object: &mut Object,
        name_end: usize,
        prefix: u64,
        escaped: bool,
    ) -> Result<(), CanonError> {
        self.members.push(Member {
            start: object.start,
            name_end,
            prefix,
            escaped,
        });
        if object.sorted && prefix <= object.prefix {
            let members = self.members.get(object.first..);
            object.sorted = ends_in_order(self.sink.buffer(), members)?;
        }
        object.prefix = prefix;
        Ok(())
    }

    pub(super) fn end_object(&mut self, object: &Object) -> Result<(), CanonError> {
        if !object.sorted {
            self.reorder(object.first)?;
        }
        self.members.truncate(object.first);
        self.objects -= 1;
        self.leave(b'}');
        Ok(())
    }

    /// Says of an error that it lies in the member of `object` that is being written.
    #[cold]
    pub(super) fn locate(&mut self, object: &Object, error: CanonError) -> CanonError {
        match self.members.get(object.current) {
            Some(member) => error.under_name(&name(self.sink.buffer(), member)),
            None => error,
        }
    }

    /// Puts the members from `first` on into canonical order.
    fn reorder(&mut self, first: usize) -> Result<(), CanonError> {
        let buffer = self.sink.buffer();
        let members = self.members.get(first..).unwrap_or_default();
        let start = members.first().map_or(buffer.len(), |member| member.start);
        let Some(known) = self.known.get_mut(members.len() % KNOWN) else {
            return Ok(());
        };
        if !known.is_of(members) {
            known.sort(buffer, members)?;
        }
        // With a comma behind the last, too, each member reaches to the start of the next.
        buffer.push(b',');
        self.scratch.clear();
        self.scratch.reserve(buffer.len() - start);
        for index in &known.order {
            let end = members.get(index + 1).map(|next| next.start);
            let span = (members.get(*index))
                .and_then(|member| buffer.get(member.start..end.unwrap_or(buffer.len())));
            text::append(&mut self.scratch, span.unwrap_or_default());
        }
        self.scratch.pop();
        buffer.truncate(start);
        buffer.extend_from_slice(&self.scratch);
        Ok(())
    }
}

/// The order of the last object with its number of members: most objects are of a few types, and their members
/// come in one order.
#[derive(Default)]
struct Known {
    /// The prefixes of the names as they came; empty where two are equal, for they do not tell the order.
    prefixes: Vec<u64>,
    /// Which member stands at each place.
    order: Vec<usize>,
}

impl Known {
    fn is_of(&self, members: &[Member]) -> bool {
        let prefixes = members.iter().map(|member| member.prefix);
        self.prefixes.iter().copied().eq(prefixes)
    }

    fn sort(&mut self, buffer: &[u8], members: &[Member]) -> Result<(), CanonError> {
        let member = |index: &usize| members.get(*index);
        let by_name = |a: &usize, b: &usize| match (member(a), member(b)) {
            (Some(a), Some(b)) => compare(buffer, a, b),
            _ => a.cmp(b),
        };
        self.prefixes.clear();
        self.order.clear();
        self.order.extend(0..members.len());
        self.order.sort_unstable_by(by_name);
        let mut is_told = true;
        for pair in self.order.windows(2) {
            if let [a, b] = pair
                && let (Some(a), Some(b)) = (member(a), member(b))
            {
                if compare(buffer, a, b).is_eq() {
                    return Err(duplicate(buffer, a));
                }
                is_told &= a.prefix != b.prefix;
            }
        }
        if is_told {
            let prefixes = members.iter().map(|member| member.prefix);
            self.prefixes.extend(prefixes);
        }
        Ok(())
    }
}

/// Orders that are remembered, by the number of members.
const KNOWN: usize = 8;

/// Whether the last of the members is in order after the one before it.
fn ends_in_order(buffer: &[u8], members: Option<&[Member]>) -> Result<bool, CanonError> {
    let Some([.., previous, last]) = members else {
        return Ok(true);
    };
    match compare(buffer, previous, last) {
        Ordering::Less => Ok(true),
        Ordering::Equal => Err(duplicate(buffer, last)),
        Ordering::Greater => Ok(false),
    }
}

#[inline]
fn compare(buffer: &[u8], a: &Member, b: &Member) -> Ordering {
    a.prefix
        .cmp(&b.prefix)
        .then_with(|| compare_names(buffer, a, b))
}

fn compare_names(buffer: &[u8], a: &Member, b: &Member) -> Ordering {
    let (x, y) = (body(buffer, a), body(buffer, b));
    if a.escaped || b.escaped {
        order::compare_escaped(x, y)
    } else {
        order::compare(x, y)
    }
}

/// A member's name as written, without its quotes.
fn body<'b>(buffer: &'b [u8], member: &Member) -> &'b [u8] {
    let name = buffer.get(member.start + 1..member.name_end);
    name.unwrap_or_default()
}

#[cold]
fn duplicate(buffer: &[u8], member: &Member) -> CanonError {
    CanonError::from(CanonFault::DuplicateKey).under_name(&name(buffer, member))
}

fn name(buffer: &[u8], member: &Member) -> String {
    let quoted = buffer
        .get(member.start..=member.name_end)
        .unwrap_or_default();
    serde_json::from_slice(quoted).unwrap_or_default()
}
