//! One value kept as text: checked once, read later or written back as it is.

use core::fmt;
use std::borrow::Cow;

use super::kind::Kind;
use super::write::{self, Write};

/// One JSON value, borrowed as text. It is sound: complete, within the reader's limits, no duplicate
/// members, no lone surrogates.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// `null`
    pub const NULL: Self = Self("null");

    pub(super) const fn trusted(text: &'a str) -> Self {
        Self(text)
    }

    /// The text, without white space around it.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// What kind of value it is.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self.0.as_bytes().first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    /// Reads the value into a type of the caller's.
    ///
    /// # Errors
    ///
    /// The type does not take this value, or it is nested deeper than
    /// [`Limits::SERDE_JSON_DEPTH`](super::Limits::SERDE_JSON_DEPTH), or a member has a name that `serde_json` keeps for itself
    /// (`$serde_json::private::…`): it would read another value than stands here.
    pub fn deserialize<T: serde::Deserialize<'a>>(self) -> Result<T, serde_json::Error> {
        if has_reserved_name(self.0) {
            let what = "a member has a name that serde_json keeps for itself";
            return Err(serde::de::Error::custom(what));
        }
        serde_json::from_str(self.0)
    }

    /// A copy that owns its text.
    #[must_use]
    pub fn to_owned(self) -> RawBuf {
        RawBuf(self.0.into())
    }
}

/// Whether a member of a sound text has a name that `serde_json` keeps for itself. An object that begins with one is to its
/// types the JSON inside the member's value.
pub(crate) fn has_reserved_name(text: &str) -> bool {
    let is_suspect = |text: &str| text.contains("serde_json") || text.contains("\\u");
    let is_reserved = |name: &str| {
        let name = serde_json::from_str::<String>(&format!("\"{name}\""));
        name.is_ok_and(|name| name.starts_with("$serde_json::private::"))
    };
    if !is_suspect(text) {
        return false;
    }
    let mut rest = text;
    while let Some((_, string)) = rest.split_once('"') {
        let mut is_escaped = false;
        let end = string.find(|c| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        });
        let Some((name, behind)) = end.and_then(|end| string.split_at_checked(end)) else {
            return false;
        };
        rest = behind.get(1..).unwrap_or_default();
        if rest.trim_start().starts_with(':') && is_suspect(name) && is_reserved(name) {
            return true;
        }
    }
    false
}

impl fmt::Debug for Raw<'_> {
    /// Kind and size: a payload may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({}, {} bytes)", self.kind(), self.0.len())
    }
}

impl Write for Raw<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
    }
}

impl serde::Serialize for Raw<'_> {
    /// Keeps the text where the serializer knows `serde_json`'s raw values.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &serde_json::value::RawValue =
            serde_json::from_str(self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// One JSON value that owns its text; otherwise as [`Raw`].
///
/// Two values are equal when their texts are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawBuf(Box<str>);

impl RawBuf {
    /// A text that is known to be one sound JSON value without white space around it, such as one that
    /// [`to_vec`](super::to_vec) made of a message. Nothing is looked at; a text that is none is written as it is.
    #[must_use]
    pub fn assume_sound(text: String) -> Self {
        Self(text.into_boxed_str())
    }

    /// The value, borrowed.
    #[must_use]
    pub fn as_raw(&self) -> Raw<'_> {
        Raw(&self.0)
    }

    /// The text, without white space around it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What kind of value it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.as_raw().kind()
    }

    /// Reads the value into a type of the caller's.
    ///
    /// # Errors
    ///
    /// The type does not take this value.
    pub fn deserialize<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        self.as_raw().deserialize()
    }
}

impl fmt::Debug for RawBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_raw(), f)
    }
}

impl Write for RawBuf {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_raw().write(out);
    }
}

impl serde::Serialize for RawBuf {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_raw().serialize(serializer)
    }
}

/// One JSON object that owns its text: a payload that may be nothing else.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawObject(RawBuf);

impl RawObject {
    /// `{}`
    #[must_use]
    pub fn empty() -> Self {
        Self(RawBuf("{}".into()))
    }

    /// The object in a value, if it is one.
    #[must_use]
    pub fn new(value: RawBuf) -> Option<Self> {
        (value.kind() == Kind::Object).then_some(Self(value))
    }

    /// The value, borrowed.
    #[must_use]
    pub fn as_raw(&self) -> Raw<'_> {
        self.0.as_raw()
    }

    /// The text, without white space around it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Reads the object into a type of the caller's.
    ///
    /// # Errors
    ///
    /// The type does not take this object.
    pub fn deserialize<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        self.0.deserialize()
    }
}

impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Default for RawObject {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<RawObject> for RawBuf {
    fn from(object: RawObject) -> Self {
        object.0
    }
}

impl Write for RawObject {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

impl serde::Serialize for RawObject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// The members of a wire object that its type does not know, in the order in which they came: kept, and
/// written back behind the known ones.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Members<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Members<'a> {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// The bytes that they take: names, values, and what holds these.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const FIXED: usize = size_of::<(Cow<'_, str>, Cow<'_, str>)>();
        let each = |(name, value): &(Cow<'_, str>, Cow<'_, str>)| FIXED + name.len() + value.len();
        self.0.iter().map(each).sum()
    }

    /// The value of a member.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<Raw<'_>> {
        self.iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| value)
    }

    /// Names and values, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Raw<'_>)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_ref(), Raw(value.as_ref())))
    }

    /// Adds a member that the type does not know; one that is there already is replaced.
    pub fn insert(&mut self, name: impl Into<Cow<'a, str>>, value: RawBuf) {
        let name = name.into();
        let value = Cow::Owned(value.0.into_string());
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// The same members, owning their text.
    #[must_use]
    pub fn into_owned(self) -> Members<'static> {
        let owned = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        let members = self.0.into_iter();
        Members(members.map(|(n, v)| (owned(n), owned(v))).collect())
    }

    /// Keeps a member that the type does not know.
    pub(super) fn push(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) {
        self.0.push((name, value));
    }

    /// Whether a name stands among the kept ones twice; gives its index.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn double(&self) -> Option<usize> {
        if self.0.len() < 2 {
            return None;
        }
        self.some_double()
    }

    fn some_double(&self) -> Option<usize> {
        /// Up to here comparing all pairs is faster than sorting.
        const FEW: usize = 12;
        if self.0.len() <= FEW {
            return (1..self.0.len()).find(|&n| {
                let name = self.0.get(n).map(|(name, _)| name);
                self.0.iter().take(n).any(|(other, _)| Some(other) == name)
            });
        }
        let mut names: Vec<(&str, usize)> = self
            .0
            .iter()
            .enumerate()
            .map(|(n, (name, _))| (name.as_ref(), n))
            .collect();
        names.sort_unstable();
        let double = |pair: &[(&str, usize)]| match pair {
            [(first, _), (second, n)] if first == second => Some(*n),
            _ => None,
        };
        names.windows(2).find_map(double)
    }

    /// Writes the members, each behind what `separator` writes.
    #[doc(hidden)]
    pub fn write_into(&self, members: &mut write::MemberWriter<'_>) {
        for (name, value) in self.iter() {
            members.member(name, &value);
        }
    }
}

impl fmt::Debug for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
