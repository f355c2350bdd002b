//! The result or error of a message.

use std::collections::BTreeMap;

use ubos_common::json::{Fault, RawBuf, RawObject, Read, Reader, Write};
use ubos_common::violation::Level;

use super::closed::refuse_unknown;
use super::code::Code;
use super::names::{Name, in_length};
use crate::message::NonEmpty;

ubos_common::wire! {
    /// The result of a message. Unknown members are refused.
    ///
    /// Spec: SACP 1.0, 7
    pub struct Outcome checked by check_outcome {
        /// Outputs by output key.
        required outputs: BTreeMap<String, RawBuf> = "outputs", "SACP1-7-1";
        /// A summary in prose; not empty.
        optional summary: NonEmpty = "summary", "SACP1-7-1";
        /// The result of each step, by its id.
        optional step_results: RawObject = "step_results", "SACP1-7-1";
    }
}

ubos_common::wire! {
    /// The error of a message. Unknown members are refused.
    ///
    /// Spec: SACP 1.0, 7
    pub struct Failure checked by check_failure {
        /// The code.
        required code: WrittenCode = "code", "SACP1-7-1";
        /// A description of 1 to 1,024 characters.
        required message: Text = "message", "SACP1-7-1";
        /// The step that failed.
        optional step_id: Name = "step_id", "SACP1-7-1";
        /// Whether a retry may help; absent means no.
        optional retryable: bool = "retryable", "SACP1-7-1";
        /// Further details.
        optional details: RawObject = "details", "SACP1-7-1";
    }
}

// impl: SACP1-7-1
fn check_outcome(reader: &mut Reader<'_>, at: usize, outcome: &Outcome) -> Result<(), Fault> {
    if refuse_unknown(reader, at, &outcome.extra, "a result has no such member") {
        return Err(reader.noted());
    }
    Ok(())
}

// impl: SACP1-7-1
fn check_failure(reader: &mut Reader<'_>, at: usize, failure: &Failure) -> Result<(), Fault> {
    if refuse_unknown(reader, at, &failure.extra, "an error has no such member") {
        return Err(reader.noted());
    }
    Ok(())
}

impl Failure {
    /// An error. The message is cut to 1,024 characters; an empty one is replaced by the code.
    #[must_use]
    pub fn of(code: Code, message: &str) -> Self {
        let message = if message.is_empty() {
            code.as_str()
        } else {
            message
        };
        let text = Text(message.chars().take(LONGEST_MESSAGE).collect());
        Self::new(WrittenCode(code), text)
    }

    /// Sets the step.
    pub(crate) fn in_step(mut self, step_id: &str) -> Self {
        self.step_id = Name::new(step_id);
        self
    }

    /// Sets whether a retry may help.
    pub(crate) const fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = Some(retryable);
        self
    }

    /// Sets the details.
    pub(crate) fn with_details(mut self, details: RawObject) -> Self {
        self.details = Some(details);
        self
    }
}

/// A code as it stands in an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenCode(Code);

impl core::ops::Deref for WrittenCode {
    type Target = Code;

    fn deref(&self) -> &Code {
        &self.0
    }
}

impl Read<'_> for WrittenCode {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let word = reader.str()?;
        if !Code::fits(&word) {
            let wanted = "a code of 1 to 64 capital letters, digits and underscores";
            return Err(reader.bad_value_seen(at, wanted, &word));
        }
        let code = Code::from(word.as_ref());
        if !code.is_listed() {
            let what = "a code that the specification does not list";
            reader.note(at, None, "unlisted_code", Level::Advice, what);
        }
        Ok(Self(code))
    }
}

impl Write for WrittenCode {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// The message of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(String);

impl core::ops::Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Read<'_> for Text {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.str()?;
        if !in_length(&text, LONGEST_MESSAGE) {
            return Err(reader.bad_value(at, "1 to 1024 characters"));
        }
        Ok(Self(text.into_owned()))
    }
}

impl Write for Text {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// Characters of an error's message.
const LONGEST_MESSAGE: usize = 1024;
