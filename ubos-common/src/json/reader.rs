//! The pull parser.

use core::fmt;
use std::borrow::Cow;

use super::error::{Fault, FaultKind, JsonError};
use super::limits::Limits;
use super::locate::{Walker, push_token};
use super::raw::Raw;
use super::scan;
use crate::violation::{Level, Profile, Report, Violation};

/// What kind of value begins here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "JSON has these six")]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        })
    }
}

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

/// A finding whose place is still an offset.
struct Note {
    at: usize,
    member: Option<Cow<'static, str>>,
    code: &'static str,
    clause: &'static str,
    level: Level,
    message: Cow<'static, str>,
}

/// The place before a value: see [`Reader::mark`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at: usize,
    depth: usize,
    names: usize,
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
    pub fn null(&mut self) -> Result<bool, Fault> {
        if self.peek()? != Kind::Null {
            return Ok(false);
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
        self.want(Kind::Bool, "a boolean")?;
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
        self.want(Kind::Number, "a number")?;
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
    pub fn str(&mut self) -> Result<Cow<'a, str>, Fault> {
        self.want(Kind::String, "a string")?;
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
    pub fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &Cow<'a, str>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let base = self.names.len();
        let result = self.fields(|reader, name, at| {
            let slot = reader.names.len();
            reader.names.push(Name {
                tag: scan::name_tag(&name),
                at,
                text: Cow::Borrowed(""),
            });
            let result = member(reader, &name);
            if let Some(entry) = reader.names.get_mut(slot) {
                entry.text = name;
            }
            result
        });
        let result = result.and_then(|()| self.refuse_doubles(base));
        self.names.truncate(base);
        result
    }

    /// Takes an object without looking for duplicates: `field` gets each name with the byte where it
    /// stands, must take the value, and answers for duplicates itself ([`Reader::duplicate`]).
    ///
    /// # Errors
    ///
    /// Another type, no sound JSON, over a limit, or what `field` returns.
    pub fn fields(
        &mut self,
        mut field: impl FnMut(&mut Self, Cow<'a, str>, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.want(Kind::Object, "an object")?;
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
    pub fn array(
        &mut self,
        mut element: impl FnMut(&mut Self, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.want(Kind::Array, "an array")?;
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
            Kind::String => self.quoted_end().map(drop),
            Kind::Array => self.array(|reader, _| reader.skip()),
            Kind::Object => self.object(|reader, _| reader.skip()),
        }
    }

    /// Ends the document: nothing may follow. Gives all findings with their places.
    ///
    /// # Errors
    ///
    /// [`FaultKind::TrailingBytes`].
    pub fn finish(mut self) -> Result<Report, Fault> {
        let at = self.offset();
        if at < self.text.len() {
            return Err(Fault::new(FaultKind::TrailingBytes, at));
        }
        Ok(self.into_report())
    }

    /// The findings so far, with their places.
    #[must_use]
    pub fn into_report(mut self) -> Report {
        /// Bytes of pointers in one report: a long name above many findings stands in each of them.
        const POINTERS: usize = 1_048_576;
        let mut report = Report::default();
        if self.notes.is_empty() && self.unlisted == 0 {
            return report;
        }
        // Findings come in order of discovery: a missing member is known only when its object ends.
        self.notes.sort_by_key(|note| note.at);
        let mut walker = Walker::new(self.text);
        let mut pointers = 0;
        for note in self.notes {
            if pointers > POINTERS {
                self.unlisted += 1;
                self.refused_unlisted |= note.level == Level::Must;
                continue;
            }
            let place = walker.place(note.at);
            let mut pointer = place.pointer;
            if let Some(member) = note.member {
                push_token(&mut pointer, &member);
            }
            pointers += pointer.len();
            report.push(
                Violation::new(pointer, note.code, note.clause, note.level, note.message)
                    .at(place.position),
            );
        }
        report.count_unlisted(self.unlisted, self.refused_unlisted);
        report
    }

    // What follows is for implementors of `Read`.

    /// A fault: a value of the right type that breaks a rule. The value is not shown.
    #[must_use]
    pub fn bad_value(&self, at: usize, wanted: &'static str) -> Fault {
        Fault::new(FaultKind::BadValue { wanted, seen: None }, at)
    }

    /// As [`Reader::bad_value`], with a bounded piece of the value, unless the member is marked secret.
    #[must_use]
    pub fn bad_value_seen(&self, at: usize, wanted: &'static str, seen: &str) -> Fault {
        /// Characters of a value that a message shows.
        const SHOWN: usize = 64;
        let seen = (!self.secret).then(|| seen.chars().take(SHOWN).collect::<String>().into());
        Fault::new(FaultKind::BadValue { wanted, seen }, at)
    }

    /// A fault: the value at `mark` has another type.
    #[must_use]
    pub const fn wrong_type(&self, mark: Mark, wanted: &'static str, seen: Kind) -> Fault {
        Fault::new(FaultKind::WrongType { wanted, seen }, mark.at)
    }

    /// A fault: the name at `at` stands twice in its object.
    #[must_use]
    pub fn duplicate(&self, at: usize) -> Fault {
        Fault::new(FaultKind::DuplicateMember, at)
    }

    /// A fault for a value whose findings are noted and that has been taken to its end.
    #[must_use]
    pub fn noted(&self) -> Fault {
        Fault::new(FaultKind::Noted, self.at)
    }

    /// Runs `read` under a clause, which findings inside are filed under, and settles its result.
    ///
    /// # Errors
    ///
    /// What is not recoverable.
    pub fn under<T>(
        &mut self,
        clause: &'static str,
        secret: bool,
        read: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let mark = self.mark();
        let outer = (self.clause, self.secret);
        self.clause = clause;
        self.secret |= secret;
        let result = read(self);
        let settled = self.settle(mark, result);
        (self.clause, self.secret) = outer;
        settled
    }

    /// The place before a value, for [`Reader::settle`].
    pub fn mark(&mut self) -> Mark {
        Mark {
            at: self.offset(),
            depth: self.depth,
            names: self.names.len(),
        }
    }

    /// Notes a recoverable fault in the value that began at `mark` and goes on behind that value.
    ///
    /// # Errors
    ///
    /// What is not recoverable, or no sound JSON behind the fault.
    pub fn settle<T>(&mut self, mark: Mark, result: Result<T, Fault>) -> Result<Option<T>, Fault> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(fault) if fault.kind == FaultKind::Noted => Ok(None),
            Err(fault) if fault.is_recoverable() => {
                self.note(
                    fault.at,
                    None,
                    fault.kind.code(),
                    Level::Must,
                    fault.kind.to_string(),
                );
                self.at = mark.at;
                self.depth = mark.depth;
                self.names.truncate(mark.names);
                self.skip()?;
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Notes that an object lacks a member.
    pub fn missing(
        &mut self,
        object_at: usize,
        member: &'static str,
        clause: &'static str,
        level: Level,
    ) {
        let outer = core::mem::replace(&mut self.clause, clause);
        self.note(object_at, Some(member.into()), "missing", level, "absent");
        self.clause = outer;
    }

    /// Notes what the lenient profile lets pass, as advice.
    pub fn tolerate(&mut self, at: usize, code: &'static str, message: &'static str) {
        self.note(at, None, code, Level::Advice, message);
    }

    /// Notes a finding at a byte of the text, or at a member of the object that begins there.
    pub fn note(
        &mut self,
        at: usize,
        member: Option<Cow<'static, str>>,
        code: &'static str,
        level: Level,
        message: impl Into<Cow<'static, str>>,
    ) {
        if self.notes.len() >= self.limits.max_findings {
            self.unlisted += 1;
            self.refused_unlisted |= level == Level::Must;
            return;
        }
        self.notes.push(Note {
            at,
            member,
            code,
            clause: self.clause,
            level,
            message: message.into(),
        });
    }

    // Private.

    fn want(&mut self, kind: Kind, wanted: &'static str) -> Result<(), Fault> {
        let seen = self.peek()?;
        if seen == kind {
            return Ok(());
        }
        // Only sound JSON is a recoverable fault; `settle` skips the value and so finds what is not.
        Err(Fault::new(FaultKind::WrongType { wanted, seen }, self.at))
    }

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

    /// A string, from its opening quote, which is known to be there.
    fn quoted(&mut self) -> Result<Cow<'a, str>, Fault> {
        let start = self.at + 1;
        let plain = scan::plain_end(self.text.as_bytes(), start);
        if self.text.as_bytes().get(plain) == Some(&b'"') {
            if plain - start > self.limits.max_string_bytes {
                return Err(self.too_long(self.at));
            }
            self.at = plain + 1;
            return Ok(Cow::Borrowed(
                self.text.get(start..plain).unwrap_or_default(),
            ));
        }
        let escaped = self.quoted_end()?;
        Ok(Cow::Owned(unescape(escaped)))
    }

    /// Takes a string and checks its escapes; gives what stands between the quotes.
    fn quoted_end(&mut self) -> Result<&'a str, Fault> {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let mut end = start;
        loop {
            end = scan::plain_end(bytes, end);
            if end - start > self.limits.max_string_bytes {
                return Err(self.too_long(self.at));
            }
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end = self.escape_end(end)?,
                Some(_) => return Err(Fault::new(FaultKind::ControlCharacter, end)),
                None => return Err(self.end()),
            }
        }
        self.at = end + 1;
        Ok(self.text.get(start..end).unwrap_or_default())
    }

    /// The byte behind the escape whose backslash is at `at`.
    fn escape_end(&self, at: usize) -> Result<usize, Fault> {
        let bytes = self.text.as_bytes();
        match bytes.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => {
                let invalid = Fault::new(FaultKind::InvalidEscape, at);
                let unit = bytes
                    .get(at + 2..at + 6)
                    .and_then(scan::hex4)
                    .ok_or(invalid)?;
                match unit {
                    0xd800..0xdc00 => {
                        let low = bytes.get(at + 6..at + 12).filter(|b| b.starts_with(b"\\u"));
                        let low = low.and_then(|b| b.get(2..)).and_then(scan::hex4);
                        match low {
                            Some(0xdc00..0xe000) => Ok(at + 12),
                            _ => Err(Fault::new(FaultKind::LoneSurrogate, at)),
                        }
                    }
                    0xdc00..0xe000 => Err(Fault::new(FaultKind::LoneSurrogate, at)),
                    _ => Ok(at + 6),
                }
            }
            Some(_) => Err(Fault::new(FaultKind::InvalidEscape, at)),
            None => Err(self.end()),
        }
    }

    /// Refuses a name that stands twice among those from `base` on.
    fn refuse_doubles(&mut self, base: usize) -> Result<(), Fault> {
        /// Up to here comparing all pairs is faster than sorting.
        const FEW: usize = 12;
        let names = self.names.get_mut(base..).unwrap_or_default();
        if names.len() > FEW {
            names.sort_unstable_by(|a, b| a.text.cmp(&b.text).then(a.at.cmp(&b.at)));
            for pair in names.windows(2) {
                if let [first, second] = pair
                    && first.text == second.text
                {
                    return Err(Fault::new(FaultKind::DuplicateMember, second.at));
                }
            }
            return Ok(());
        }
        for (n, name) in names.iter().enumerate() {
            let earlier = names.iter().take(n);
            if earlier
                .into_iter()
                .any(|other| other.tag == name.tag && other.text == name.text)
            {
                return Err(Fault::new(FaultKind::DuplicateMember, name.at));
            }
        }
        Ok(())
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

/// Refuses a document over the limit.
pub(super) const fn refuse_size(bytes: &[u8], limits: &Limits) -> Result<(), Fault> {
    if bytes.len() <= limits.max_bytes {
        return Ok(());
    }
    let kind = FaultKind::TooLarge {
        seen: bytes.len(),
        limit: limits.max_bytes,
    };
    Err(Fault::new(kind, limits.max_bytes))
}

/// Decodes escapes that have been checked.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (plain, escape) = rest.split_at(at);
        out.push_str(plain);
        let (c, length) = unescape_one(escape);
        out.push(c);
        rest = escape.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// The character of one checked escape and the bytes it takes.
fn unescape_one(escape: &str) -> (char, usize) {
    let bytes = escape.as_bytes();
    let plain = match bytes.get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            let unit = bytes.get(2..).and_then(scan::hex4).unwrap_or(0);
            if (0xd800..0xdc00).contains(&unit) {
                let low = bytes.get(8..).and_then(scan::hex4).unwrap_or(0);
                let code = 0x1_0000 + ((unit & 0x3ff) << 10 | (low & 0x3ff));
                return (
                    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
                    12,
                );
            }
            return (
                char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER),
                6,
            );
        }
        other => other
            .copied()
            .map_or(char::REPLACEMENT_CHARACTER, char::from),
    };
    (plain, 2)
}
