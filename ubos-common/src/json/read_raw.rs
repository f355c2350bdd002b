//! How values that are kept as text are read.

use std::borrow::Cow;

use super::error::{Fault, JsonError};
use super::raw::{Members, Raw, RawBuf, RawObject};
use super::read::Read;
use super::reader::Reader;

impl<'a> Read<'a> for Raw<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        reader.raw()
    }
}

impl RawBuf {
    /// The value as a serializable type writes it.
    ///
    /// # Errors
    ///
    /// The type refuses to be written, or writes what is no sound JSON.
    pub fn from_serialize<T: serde::Serialize + ?Sized>(
        value: &T,
    ) -> Result<Self, serde_json::Error> {
        let text = serde_json::to_string(value)?;
        Self::parse(&text).map_err(serde::ser::Error::custom)
    }

    /// Checks a text within the default limits.
    ///
    /// # Errors
    ///
    /// No sound JSON, or over a limit.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        super::read::read_one(text, |reader| reader.raw().map(Raw::to_owned))
    }
}

impl Read<'_> for RawBuf {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        reader.raw().map(Raw::to_owned)
    }
}

impl<'de> serde::Deserialize<'de> for RawBuf {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

impl RawObject {
    /// Checks a text within the default limits.
    ///
    /// ```
    /// use ubos_common::json::RawObject;
    ///
    /// let city = RawObject::parse(r#"{"city":"Paris"}"#)?;
    /// assert_eq!(city.as_str(), r#"{"city":"Paris"}"#);
    /// assert!(RawObject::parse("[]").is_err());
    /// # Ok::<(), ubos_common::json::JsonError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// No sound JSON, no object, or over a limit.
    #[expect(clippy::redundant_closure, reason = "it reads for any lifetime")]
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        super::read::read_one(text, |reader| Self::read(reader))
    }

    /// The object as a serializable type writes it; `None` where it writes no object.
    ///
    /// # Errors
    ///
    /// The type refuses to be written, or writes what is no sound JSON.
    pub fn from_serialize<T: serde::Serialize + ?Sized>(
        value: &T,
    ) -> Result<Option<Self>, serde_json::Error> {
        Ok(Self::new(RawBuf::from_serialize(value)?))
    }
}

impl Read<'_> for RawObject {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let start = reader.mark();
        let raw = reader.raw()?;
        Self::new(raw.to_owned()).ok_or_else(|| reader.wrong_type(start, "an object", raw.kind()))
    }
}

impl<'a> Members<'a> {
    /// Keeps the member whose value comes next, borrowed.
    #[doc(hidden)]
    pub fn keep(&mut self, reader: &mut Reader<'a>, name: Cow<'a, str>) -> Result<(), Fault> {
        let value = reader.raw()?;
        self.push(name, Cow::Borrowed(value.as_str()));
        Ok(())
    }
}

impl Members<'static> {
    /// Keeps the member whose value comes next, copied.
    #[doc(hidden)]
    pub fn keep_owned(&mut self, reader: &mut Reader<'_>, name: &str) -> Result<(), Fault> {
        let value = reader.raw()?;
        let value = value.as_str().to_owned();
        self.push(Cow::Owned(name.to_owned()), Cow::Owned(value));
        Ok(())
    }
}
