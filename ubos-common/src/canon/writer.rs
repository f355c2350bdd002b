//! The one writer behind all sources: text lands in a buffer, members are put in order when
//! their object closes, and only if they were not in order already.

use super::order;
use super::{CanonError, CanonFault, MAX_DEPTH, Mode};

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
}

/// An object being written.
pub(super) struct Object {
    first: usize,
    /// The member being written, counted in `Writer::members`.
    current: usize,
    sorted: bool,
}

/// One member's text in the buffer: `"name":value`, without the comma.
struct Member {
    start: usize,
    name_end: usize,
    end: usize,
    escaped: bool,
}

impl<'s, S: Sink> Writer<'s, S> {
    pub(super) fn new(sink: &'s mut S, mode: Mode) -> Self {
        Self {
            sink,
            mode,
            depth: 0,
            objects: 0,
            members: Vec::new(),
            scratch: Vec::new(),
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
        self.settle();
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
            sorted: true,
        })
    }

    /// Begins a member: its name is to be written next, in quotes, then [`end_name`].
    ///
    /// [`end_name`]: Self::end_name
    #[inline]
    pub(super) fn begin_member(&mut self, object: &mut Object) {
        let buffer = self.sink.buffer();
        if let Some(previous) = self
            .members
            .get_mut(object.first..)
            .and_then(<[_]>::last_mut)
        {
            previous.end = buffer.len();
            buffer.push(b',');
        }
        object.current = self.members.len();
        self.members.push(Member {
            start: buffer.len(),
            name_end: 0,
            end: 0,
            escaped: false,
        });
    }

    /// Ends the name of the member just begun; its value is to be written next.
    #[inline]
    pub(super) fn end_name(
        &mut self,
        object: &mut Object,
        escaped: bool,
    ) -> Result<(), CanonError> {
        let buffer = self.sink.buffer();
        if let Some(member) = self.members.last_mut() {
            member.name_end = buffer.len();
            member.escaped = escaped;
        }
        let open = self.members.get(object.first..).unwrap_or_default();
        if object.sorted
            && let [.., previous, member] = open
        {
            match compare(buffer, previous, member) {
                core::cmp::Ordering::Less => {}
                core::cmp::Ordering::Equal => return Err(duplicate(buffer, member)),
                core::cmp::Ordering::Greater => object.sorted = false,
            }
        }
        buffer.push(b':');
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
        let members = self.members.get_mut(first..).unwrap_or_default();
        let start = members.first().map_or(buffer.len(), |member| member.start);
        if let Some(last) = members.last_mut() {
            last.end = buffer.len();
        }
        members.sort_unstable_by(|a, b| compare(buffer, a, b));
        let mut neighbours = members.windows(2);
        let twins = |pair: &&[Member]| matches!(pair, [a, b] if compare(buffer, a, b).is_eq());
        if let Some([twin, _]) = neighbours.find(twins) {
            return Err(duplicate(buffer, twin));
        }
        self.scratch.clear();
        for member in members {
            let text = buffer.get(member.start..member.end).unwrap_or_default();
            self.scratch.extend_from_slice(text);
            self.scratch.push(b',');
        }
        self.scratch.pop();
        buffer.truncate(start);
        buffer.extend_from_slice(&self.scratch);
        Ok(())
    }
}

#[inline]
fn compare(buffer: &[u8], a: &Member, b: &Member) -> core::cmp::Ordering {
    let (x, y) = (body(buffer, a), body(buffer, b));
    if a.escaped || b.escaped {
        order::compare_escaped(x, y)
    } else {
        order::compare(x, y)
    }
}

/// A member's name as written, without its quotes.
fn body<'b>(buffer: &'b [u8], member: &Member) -> &'b [u8] {
    let quoted = buffer.get(member.start..member.name_end);
    match quoted {
        Some([_, body @ .., _]) => body,
        _ => &[],
    }
}

#[cold]
fn duplicate(buffer: &[u8], member: &Member) -> CanonError {
    CanonError::from(CanonFault::DuplicateKey).under_name(&name(buffer, member))
}

fn name(buffer: &[u8], member: &Member) -> String {
    let quoted = buffer
        .get(member.start..member.name_end)
        .unwrap_or_default();
    serde_json::from_slice(quoted).unwrap_or_default()
}
