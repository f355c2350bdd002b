//! What a person or an audit may see of an agent's texts.
//!
//! Agents are strangers: their output may hold secrets that they read somewhere. Nothing here is removed on the wire; a core
//! redacts what it shows or writes down. Best effort: it knows the shapes and names of secrets, not the secrets.
//!
//! ```
//! use opensentience_wire::{ErrorCode, ErrorObject};
//! use opensentience_wire::Redact;
//! use ubos_common::secret::Bounds;
//!
//! let error = ErrorObject::of(ErrorCode::ToolFailed, "login with password=hunter2hunter2 failed");
//! assert_eq!(error.redacted(&Bounds::default()).message, "login with password=[REDACTED] failed");
//! ```
//!
//! Spec: OpenSentience 7

use ubos_common::json::{RawBuf, RawObject};
use ubos_common::secret::{Bounds, redact_json, redact_text};

use crate::error::ErrorObject;
use crate::message::ToolStream;
use crate::role::core::Outcome;

/// Values that can be shown once what looks like a secret is replaced.
pub trait Redact {
    /// The value with what looks like a secret replaced, and cut to bounds.
    #[must_use]
    fn redacted(&self, bounds: &Bounds) -> Self;
}

// impl: OSW-7-2
impl Redact for ErrorObject {
    fn redacted(&self, bounds: &Bounds) -> Self {
        let mut shown = self.clone();
        shown.message = redact_text(&self.message, bounds.chars).into_owned();
        shown.details = self.details.as_ref().map(|details| object(details, bounds));
        // For developers of the tool, and theirs alone.
        shown.debug = None;
        shown.extra = ubos_common::json::Members::new();
        shown
    }
}

// impl: OSW-7-2
impl Redact for ToolStream {
    fn redacted(&self, bounds: &Bounds) -> Self {
        let mut shown = self.clone();
        shown.data.text = self
            .data
            .text
            .as_deref()
            .map(|text| redact_text(text, bounds.chars).into_owned());
        shown.data.json = self.data.json.as_ref().map(|json| object(json, bounds));
        shown.data.extra = ubos_common::json::Members::new();
        shown.extra = ubos_common::json::Members::new();
        shown
    }
}

// impl: OSW-7-2
impl Redact for Outcome {
    fn redacted(&self, bounds: &Bounds) -> Self {
        let mut shown = self.clone();
        shown.output = self.output.as_ref().map(|output| object(output, bounds));
        shown.error = self.error.as_ref().map(|error| error.redacted(bounds));
        shown.metrics = self.metrics.as_ref().map(|metrics| object(metrics, bounds));
        shown
    }
}

fn object(value: &RawObject, bounds: &Bounds) -> RawObject {
    let shown: RawBuf = redact_json(value.as_raw(), bounds);
    RawObject::new(shown).unwrap_or_default()
}
