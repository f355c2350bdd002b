//! One step of a plan of 1.0.

use core::time::Duration;

use ubos_common::json::{Fault, RawObject, Read, Reader, Write};
use ubos_common::violation::Level;

use super::closed::refuse_unknown;
use super::names::{Name, Word};

ubos_common::wire! {
    /// The members of a [`Step`].
    pub struct OpenStep {
        /// Its id in this message.
        required id: Name = "id", "SACP1-6-1";
        /// The verb.
        required verb: Word = "verb", "SACP1-6-1";
        /// The tool.
        required tool: Word = "tool", "SACP1-6-1";
        /// The parameters.
        required params: RawObject = "params", "SACP1-6-1";
        /// The steps that must be done before.
        optional depends_on: Vec<Name> = "depends_on", "SACP1-6-1";
        /// The timeout of one attempt, in milliseconds.
        optional timeout_ms: Millis<1, 3_600_000> = "timeout_ms", "SACP1-6-1";
        /// The retry policy; absent means one attempt.
        optional retry: Retry = "retry", "SACP1-6-1";
        /// What happens when the last attempt failed; absent means that the message fails.
        optional on_error: OnError = "on_error", "SACP1-6-1";
        /// The fallback step.
        optional fallback_step: Name = "fallback_step", "SACP1-6-1";
        /// The name of its output in the result.
        optional output_key: Name = "output_key", "SACP1-6-1";
    }
}

ubos_common::wire! {
    /// The members of a [`Retry`].
    pub struct OpenRetry {
        /// Attempts, the first included: 1 to 10.
        required max_attempts: Attempts = "max_attempts", "SACP1-6-1";
        /// Milliseconds before the second attempt; absent means none.
        optional backoff_ms: Millis<0, 600_000> = "backoff_ms", "SACP1-6-1";
        /// How further waits grow; absent means not at all.
        optional strategy: RetryStrategy = "strategy", "SACP1-6-1";
    }
}

ubos_common::words! {
    /// What happens when a step's last attempt failed.
    ///
    /// Spec: SACP 1.0, 6
    closed pub enum OnError {
        /// The message fails: the default.
        FailFast = "fail_fast",
        /// Its dependents are skipped, all other steps go on.
        Continue = "continue",
        /// Another step runs in its place.
        Fallback = "fallback",
    }
}

ubos_common::words! {
    /// How the waits between attempts grow.
    ///
    /// Spec: SACP 1.0, 6
    closed pub enum RetryStrategy {
        /// Each is as long as the first.
        Fixed = "fixed",
        /// Each is twice the one before.
        Exponential = "exponential",
    }
}

/// A step of a plan.
///
/// Spec: SACP 1.0, 6
#[derive(Clone, Debug, PartialEq)]
pub struct Step(OpenStep);

impl Step {
    /// A step without parameters and dependencies.
    #[must_use]
    pub fn new(id: Name, verb: Word, tool: Word) -> Self {
        Self(OpenStep::new(id, verb, tool, RawObject::empty()))
    }

    /// Sets the parameters.
    #[must_use]
    pub fn with_params(mut self, params: RawObject) -> Self {
        self.0.params = params;
        self
    }

    /// Sets its dependencies.
    #[must_use]
    pub fn after(mut self, ids: impl IntoIterator<Item = Name>) -> Self {
        self.0.depends_on = Some(ids.into_iter().collect());
        self
    }
}

impl core::ops::Deref for Step {
    type Target = OpenStep;

    fn deref(&self) -> &OpenStep {
        &self.0
    }
}

impl core::ops::DerefMut for Step {
    fn deref_mut(&mut self) -> &mut OpenStep {
        &mut self.0
    }
}

impl Read<'_> for Step {
    // impl: SACP1-6-1
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let step = OpenStep::read(reader)?;
        let mut refused = refuse_unknown(reader, at, &step.extra, "a step has no such member");
        match (&step.on_error, &step.fallback_step) {
            (Some(OnError::Fallback), None) => {
                let what = "absent where on_error is fallback";
                reader.note(
                    at,
                    Some("fallback_step".into()),
                    "missing",
                    Level::Must,
                    what,
                );
                refused = true;
            }
            (Some(OnError::Fallback), Some(_)) | (_, None) => {}
            (_, Some(_)) => {
                let what = "without effect, since on_error is not fallback";
                let member = Some("fallback_step".into());
                reader.note(at, member, "idle_fallback", Level::Advice, what);
            }
        }
        if refused {
            return Err(reader.noted());
        }
        Ok(Self(step))
    }
}

impl Write for Step {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// The retry policy of a step.
///
/// Spec: SACP 1.0, 6
#[derive(Clone, Debug, PartialEq)]
pub struct Retry(OpenRetry);

impl Retry {
    /// Attempts with a wait between them; `None` if a value is out of range.
    #[must_use]
    pub fn new(max_attempts: u32, backoff: Duration, strategy: RetryStrategy) -> Option<Self> {
        let mut retry = OpenRetry::new(Attempts::new(max_attempts)?);
        retry.backoff_ms = Some(Millis::new(backoff)?);
        retry.strategy = Some(strategy);
        Some(Self(retry))
    }
}

impl core::ops::Deref for Retry {
    type Target = OpenRetry;

    fn deref(&self) -> &OpenRetry {
        &self.0
    }
}

impl Read<'_> for Retry {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let retry = OpenRetry::read(reader)?;
        if refuse_unknown(reader, at, &retry.extra, "a retry has no such member") {
            return Err(reader.noted());
        }
        Ok(Self(retry))
    }
}

impl Write for Retry {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// A number of attempts, the first included: 1 to 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts(u32);

impl Attempts {
    /// The number; `None` if it is out of range.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        (1..=10).contains(&number).then_some(Self(number))
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl Read<'_> for Attempts {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.number()?;
        let number = text.parse().ok().and_then(Self::new);
        number.ok_or_else(|| reader.bad_value_seen(at, "an integer from 1 to 10", text))
    }
}

impl Write for Attempts {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// Whole milliseconds within limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis<const LEAST: u64, const MOST: u64>(u64);

impl<const LEAST: u64, const MOST: u64> Millis<LEAST, MOST> {
    /// The time, rounded down to milliseconds; `None` if it is out of range.
    #[must_use]
    pub fn new(time: Duration) -> Option<Self> {
        let millis = u64::try_from(time.as_millis()).ok()?;
        (LEAST..=MOST).contains(&millis).then_some(Self(millis))
    }

    /// The time.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl<const LEAST: u64, const MOST: u64> Read<'_> for Millis<LEAST, MOST> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let wanted = if LEAST == 0 {
            "an integer from 0 to 600000"
        } else {
            "an integer from 1 to 3600000"
        };
        let at = reader.offset();
        let text = reader.number()?;
        let millis = text.parse().ok().filter(|n| (LEAST..=MOST).contains(n));
        millis
            .map(Self)
            .ok_or_else(|| reader.bad_value_seen(at, wanted, text))
    }
}

impl<const LEAST: u64, const MOST: u64> Write for Millis<LEAST, MOST> {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}
