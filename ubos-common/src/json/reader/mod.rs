//! The pull parser.

mod note;
mod notes;
mod strings;

use core::fmt;
use std::borrow::Cow;

use super::error::{Fault, FaultKind, JsonError};
use super::kind::Kind;
use super::limits::Limits;
use super::raw::Raw;
use super::scan;
use crate::violation::Profile;
use note::Note;

/// Reads one document value by value, within [`Limits`], and collects findings on the way.
///
/// Each method first skips white space. After a fault that [`is_recoverable`](Fault::is_recoverable) the
/// reader stands somewhere in the value; [`Reader::settle`] notes the fault and goes on behind the value.
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    limits: Limits,
    profile: Profile,
    clause: &'static str,
    secret: bool,
    notes: Vec<Note>,
    unlisted: usize,
    /// Whether one of the unlisted breaks a MUST.
    refused_unlisted: bool,
    names: Vec<Name<'a>>,
}

/// The place before a value: see [`Reader::mark`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at: usize,
    depth: usize,
}

/// A member name of an object that is open, to find its double.
struct Name<'a> {
    tag: u64,
    at: usize,
    text: Cow<'a, str>,
}

impl<'a> Reader<'a> {
    /// A reader over a whole document. Checks size and UTF-8.
    ///
    /// # Errors
    ///
    /// [`FaultKind::TooLarge`], [`FaultKind::InvalidUtf8`].
    pub fn new(bytes: &'a [u8], limits: &Limits, profile: Profile) -> Result<Self, Fault> {
        refuse_size(bytes, limits)?;
        let text = core::str::from_utf8(bytes)
            .map_err(|e| Fault::new(FaultKind::InvalidUtf8, e.valid_up_to()))?;
        Ok(Self::over(text, limits, profile))
    }

    fn over(text: &'a str, limits: &Limits, profile: Profile) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            limits: limits.with_max_depth(limits.max_depth),
            profile,
            clause: "",
            secret: false,
            notes: Vec::new(),
            unlisted: 0,
            refused_unlisted: false,
            names: Vec::new(),
        }
    }

    /// A reader over the text of a [`Raw`] value, which is known to be sound: its size is not looked at
    /// again, all other limits are.
    #[must_use]
    pub fn of_raw(raw: Raw<'a>, limits: &Limits, profile: Profile) -> Self {
        Self::over(raw.as_str(), limits, profile)
    }

    /// The byte where the next value begins.
    #[inline(always)]
    pub fn offset(&mut self) -> usize {
        self.at = scan::skip_space(self.text.as_bytes(), self.at);
        self.at
    }

    /// The byte where the reader stands, white space not skipped.
    #[must_use]
    pub const fn offset_here(&self) -> usize {
        self.at
    }

    /// Arrays and objects that are open.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Whether the lenient profile is in force.
    #[must_use]
    pub const fn is_lenient(&self) -> bool {
        matches!(self.profile, Profile::Lenient)
    }

    /// The limits in force.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What kind of value comes next.
    ///
    /// # Errors
    ///
    /// The text ends, or no value begins here.
    #[inline]
    pub fn peek(&mut self) -> Result<Kind, Fault> {
        let at = self.offset();
        match self.text.as_bytes().get(at) {
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'"') => Ok(Kind::String),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            Some(_) => Err(self.unexpected("a value")),
            None => Err(self.end()),
        }
    }

    /// Takes `null` if it comes next.
    ///
    /// # Errors
    ///
    /// The text ends, or no value begins here.
    #[inline]
    pub fn null(&mut self) -> Result<bool, Fault> {
        if !self.begins(b'n') {
            // Whether any value begins here is for the one who takes it.
            return if self.at < self.text.len() {
                Ok(false)
            } else {
                Err(self.end())
            };
        }
        self.literal("null")?;
        Ok(true)
    }

    /// Takes a boolean.
    ///
    /// # Errors
    ///
    /// Another type, or no sound JSON.
    pub fn bool(&mut self) -> Result<bool, Fault> {
        let at = self.offset();
        if !matches!(self.text.as_bytes().get(at), Some(b't' | b'f')) {
            self.want(Kind::Bool, "a boolean")?;
        }
        let value = self.text.as_bytes().get(self.at) == Some(&b't');
        self.literal(if value { "true" } else { "false" })?;
        Ok(value)
    }

    /// Takes a number, as it is written.
    ///
    /// # Errors
    ///
    /// Another type, or no sound JSON.
    pub fn number(&mut self) -> Result<&'a str, Fault> {
        let at = self.offset();
        if !matches!(self.text.as_bytes().get(at), Some(b'-' | b'0'..=b'9')) {
            self.want(Kind::Number, "a number")?;
        }
        let start = self.at;
        let Some(end) = scan::number_end(self.text.as_bytes(), start) else {
            return Err(self.unexpected("a number"));
        };
        if end - start > self.limits.max_string_bytes {
            return Err(self.too_long(start));
        }
        self.at = end;
        Ok(self.text.get(start..end).unwrap_or_default())
    }

    /// Takes a string; borrowed unless it has escapes.
    ///
    /// # Errors
    ///
    /// Another type, a string over the limit, or no sound JSON.
    #[inline]
    pub fn str(&mut self) -> Result<Cow<'a, str>, Fault> {
        if !self.begins(b'"') {
            self.want(Kind::String, "a string")?;
        }
        self.quoted()
    }

    /// Takes a value of any kind, checked to its depths, and gives its text.
    ///
    /// # Errors
    ///
    /// No sound JSON, or over a limit.
    pub fn raw(&mut self) -> Result<Raw<'a>, Fault> {
        let start = self.offset();
        self.skip()?;
        Ok(Raw::trusted(
            self.text.get(start..self.at).unwrap_or_default(),
        ))
    }

    /// Takes an object: `member` is called behind each name and must take the value.
    ///
    /// Duplicate names are refused when the object ends.
    ///
    /// # Errors
    ///
    /// Another type, a duplicate name, no sound JSON, over a limit, or what `member` returns.
    #[inline]
    pub fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &Cow<'a, str>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        /// Most objects have no more: their names need no memory of their own.
        const FEW: usize = 4;
        let base = self.names.len();
        let (mut few, mut count) = ([const { None::<Name<'a>> }; FEW], 0);
        let result = self.fields(|reader, name, at| {
            member(reader, &name)?;
            let name = Name {
                tag: scan::name_tag(&name),
                at,
                text: name,
            };
            // Objects inside have taken their names back by now.
            match few.get_mut(count) {
                Some(place) => *place = Some(name),
                None => {
                    let earlier = few.iter_mut().filter_map(Option::take);
                    reader.names.extend(earlier);
                    reader.names.push(name);
                }
            }
            count += 1;
            Ok(())
        });
        let result = result.and_then(|()| match count {
            0..=FEW => refuse_doubles(few.iter().flatten()),
            _ => self.refuse_doubles(base),
        });
        self.names.truncate(base);
        result
    }

    /// As [`Reader::object`], and gives the object's text as well: for payloads that are kept raw and in
    /// which a few members are looked at on the way.
    ///
    /// # Errors
    ///
    /// As [`Reader::object`].
    pub fn object_raw(
        &mut self,
        member: impl FnMut(&mut Self, &Cow<'a, str>) -> Result<(), Fault>,
    ) -> Result<Raw<'a>, Fault> {
        let start = self.offset();
        self.object(member)?;
        Ok(Raw::trusted(
            self.text.get(start..self.at).unwrap_or_default(),
        ))
    }

    /// Takes an object without looking for duplicates: `field` gets each name with the byte where it
    /// stands, must take the value, and answers for duplicates itself ([`Reader::duplicate`]).
    ///
    /// # Errors
    ///
    /// Another type, no sound JSON, over a limit, or what `field` returns.
    #[inline]
    pub fn fields(
        &mut self,
        mut field: impl FnMut(&mut Self, Cow<'a, str>, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if !self.begins(b'{') {
            self.want(Kind::Object, "an object")?;
        }
        self.open()?;
        if self.take(b'}') {
            self.depth -= 1;
            return Ok(());
        }
        let mut members = 0;
        loop {
            let at = self.offset();
            members += 1;
            if members > self.limits.max_members {
                return Err(Fault::new(
                    FaultKind::TooManyMembers {
                        limit: self.limits.max_members,
                    },
                    at,
                ));
            }
            if self.text.as_bytes().get(at) != Some(&b'"') {
                return Err(self.unexpected("a member name"));
            }
            let name = self.quoted()?;
            if !self.take(b':') {
                return Err(self.unexpected("a colon"));
            }
            field(self, name, at)?;
            if self.take(b',') {
                continue;
            }
            if !self.take(b'}') {
                return Err(self.unexpected("a comma or the end of the object"));
            }
            self.depth -= 1;
            return Ok(());
        }
    }

    /// Takes an array: `element` is called before each element, with its index, and must take it.
    ///
    /// # Errors
    ///
    /// Another type, no sound JSON, over a limit, or what `element` returns.
    #[inline]
    pub fn array(
        &mut self,
        mut element: impl FnMut(&mut Self, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if !self.begins(b'[') {
            self.want(Kind::Array, "an array")?;
        }
        self.open()?;
        if self.take(b']') {
            self.depth -= 1;
            return Ok(());
        }
        for index in 0.. {
            if index >= self.limits.max_array_len {
                return Err(Fault::new(
                    FaultKind::ArrayTooLong {
                        limit: self.limits.max_array_len,
                    },
                    self.at,
                ));
            }
            element(self, index)?;
            if self.take(b',') {
                continue;
            }
            if !self.take(b']') {
                return Err(self.unexpected("a comma or the end of the array"));
            }
            break;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Takes a value of any kind and drops it; all rules hold inside.
    ///
    /// # Errors
    ///
    /// No sound JSON, or over a limit.
    pub fn skip(&mut self) -> Result<(), Fault> {
        match self.peek()? {
            Kind::Null => self.literal("null"),
            Kind::Bool => self.bool().map(drop),
            Kind::Number => self.number().map(drop),
            Kind::String => self.skip_quoted(),
            Kind::Array => self.array(|reader, _| reader.skip()),
            Kind::Object => self.object(|reader, _| reader.skip()),
        }
    }

    /// Whether the next value begins with a byte.
    #[inline]
    fn begins(&mut self, byte: u8) -> bool {
        let at = self.offset();
        self.text.as_bytes().get(at) == Some(&byte)
    }

    #[cold]
    fn want(&mut self, kind: Kind, wanted: &'static str) -> Result<(), Fault> {
        let at = self.offset();
        let first = self.text.as_bytes().get(at);
        let is_right = match kind {
            Kind::Object => first == Some(&b'{'),
            Kind::Array => first == Some(&b'['),
            Kind::String => first == Some(&b'"'),
            Kind::Null | Kind::Bool | Kind::Number => self.peek() == Ok(kind),
        };
        if is_right {
            return Ok(());
        }
        Err(self.not(wanted))
    }

    #[cold]
    #[inline(never)]
    fn not(&mut self, wanted: &'static str) -> Fault {
        match self.peek() {
            // Only sound JSON is a recoverable fault; `settle` skips the value and so finds what is not.
            Ok(seen) => Fault::new(FaultKind::WrongType { wanted, seen }, self.at),
            Err(fault) => fault,
        }
    }

    #[inline]
    fn open(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > self.limits.max_depth {
            return Err(Fault::new(
                FaultKind::TooDeep {
                    limit: self.limits.max_depth,
                },
                self.at,
            ));
        }
        self.at += 1;
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self, byte: u8) -> bool {
        let at = self.offset();
        let found = self.text.as_bytes().get(at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn literal(&mut self, word: &'static str) -> Result<(), Fault> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word) {
            return Err(if word.starts_with(rest) {
                self.end()
            } else {
                self.unexpected("a value")
            });
        }
        self.at += word.len();
        Ok(())
    }

    /// Refuses a name that stands twice among those from `base` on.
    fn refuse_doubles(&mut self, base: usize) -> Result<(), Fault> {
        /// Up to here comparing all pairs is faster than sorting.
        const FEW: usize = 24;
        if self.names.len() <= base + 1 {
            return Ok(());
        }
        let names = self.names.get_mut(base..).unwrap_or_default();
        if names.len() > FEW {
            names.sort_unstable_by(|a, b| a.text.cmp(&b.text).then(a.at.cmp(&b.at)));
            let pairs = names.iter().zip(names.iter().skip(1));
            let doubles = pairs.filter(|(first, second)| first.text == second.text);
            // The first in the text, as among few.
            return match doubles.map(|(_, second)| second.at).min() {
                Some(at) => Err(Fault::new(FaultKind::DuplicateMember, at)),
                None => Ok(()),
            };
        }
        refuse_doubles(names.iter())
    }

    fn unexpected(&self, wanted: &'static str) -> Fault {
        if self.at >= self.text.len() {
            return self.end();
        }
        Fault::new(FaultKind::Unexpected { wanted }, self.at)
    }

    fn end(&self) -> Fault {
        Fault::new(FaultKind::UnexpectedEnd, self.text.len())
    }

    fn too_long(&self, at: usize) -> Fault {
        Fault::new(
            FaultKind::StringTooLong {
                limit: self.limits.max_string_bytes,
            },
            at,
        )
    }

    /// Gives faults of this document their place.
    pub(super) fn placer(&self) -> impl Fn(Fault) -> JsonError + use<'a> {
        let text = self.text;
        move |fault| JsonError::new(fault, text.as_bytes())
    }
}

impl fmt::Debug for Reader<'_> {
    /// Where it stands: the text may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("bytes", &self.text.len())
            .field("at", &self.at)
            .field("depth", &self.depth)
            .field("findings", &(self.notes.len() + self.unlisted))
            .finish_non_exhaustive()
    }
}

/// Refuses a name that stands twice among a few.
fn refuse_doubles<'n, 'a: 'n>(
    names: impl Iterator<Item = &'n Name<'a>> + Clone,
) -> Result<(), Fault> {
    for (n, name) in names.clone().enumerate() {
        let mut earlier = names.clone().take(n);
        if earlier.any(|other| other.tag == name.tag && other.text == name.text) {
            return Err(Fault::new(FaultKind::DuplicateMember, name.at));
        }
    }
    Ok(())
}

/// Refuses a document over the limit.
pub(super) fn refuse_size(bytes: &[u8], limits: &Limits) -> Result<(), Fault> {
    if bytes.len() <= limits.max_bytes {
        return Ok(());
    }
    let kind = FaultKind::TooLarge {
        seen: bytes.len(),
        limit: limits.max_bytes,
    };
    Err(Fault::new(kind, limits.max_bytes))
}
