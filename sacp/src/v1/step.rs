//! One step of a plan of 1.0.

use serde::Serialize;
use ubos_common::json::{Fault, RawObject, Read, Reader, Write};
use ubos_common::violation::Level;

use super::closed::refuse_unknown;
use super::names::{Name, Word};
use crate::error::ParamsError;

ubos_common::wire! {
    /// A step of a plan. Unknown members are refused.
    ///
    /// Spec: SACP 1.0, 6
    pub struct Step checked by check_step {
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
        optional timeout_ms: Bounded<1, 3_600_000> = "timeout_ms", "SACP1-6-1";
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
    /// The retry policy of a step. Unknown members are refused.
    ///
    /// Spec: SACP 1.0, 6
    pub struct Retry checked by check_retry {
        /// Attempts, the first included: 1 to 10.
        required max_attempts: Bounded<1, 10> = "max_attempts", "SACP1-6-1";
        /// Milliseconds before the second attempt; absent means none.
        optional backoff_ms: Bounded<0, 600_000> = "backoff_ms", "SACP1-6-1";
        /// How further waits grow; absent means not at all.
        optional strategy: RetryStrategy = "strategy", "SACP1-6-1";
    }
}

ubos_common::words! {
    /// What happens when a step's last attempt failed.
    ///
    /// Spec: SACP 1.0, 6
    // impl: SACP1-6-1
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
    // impl: SACP1-6-1
    closed pub enum RetryStrategy {
        /// Each is as long as the first.
        Fixed = "fixed",
        /// Each is twice the one before.
        Exponential = "exponential",
    }
}

impl Step {
    /// Sets its parameters: whatever serializes to an object.
    ///
    /// # Errors
    ///
    /// The value does not serialize, or is no object.
    pub fn with_params<T: Serialize + ?Sized>(mut self, params: &T) -> Result<Self, ParamsError> {
        self.params = ParamsError::params(params)?;
        Ok(self)
    }

    /// Sets its dependencies, each once.
    #[must_use]
    pub fn after(mut self, ids: impl IntoIterator<Item = Name>) -> Self {
        let mut seen = std::collections::BTreeSet::new();
        let ids = ids.into_iter().filter(|id| seen.insert(id.clone()));
        self.depends_on = Some(ids.collect());
        self
    }
}

/// Refuses unknown members, doubles in `depends_on`, and a fallback without its step; notes a fallback step that never runs.
// impl: SACP1-6-1
fn check_step(reader: &mut Reader<'_>, at: usize, step: &Step) -> Result<(), Fault> {
    let mut refused = refuse_unknown(reader, at, &step.extra, "a step has no such member");
    let mut names: Vec<&Name> = step.depends_on.iter().flatten().collect();
    names.sort_unstable();
    if names
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if a == b))
    {
        let what = "names a step more than once";
        reader.note(at, Some("depends_on".into()), "double", Level::Must, what);
        refused = true;
    }
    let member = || Some("fallback_step".into());
    match (&step.on_error, &step.fallback_step) {
        (Some(OnError::Fallback), None) => {
            let what = "absent where on_error is fallback";
            reader.note(at, member(), "missing", Level::Must, what);
            refused = true;
        }
        (Some(OnError::Fallback), Some(_)) | (_, None) => {}
        (_, Some(_)) => {
            let what = "without effect, since on_error is not fallback";
            reader.note(at, member(), "idle_fallback", Level::Advice, what);
        }
    }
    if refused {
        return Err(reader.noted());
    }
    Ok(())
}

fn check_retry(reader: &mut Reader<'_>, at: usize, retry: &Retry) -> Result<(), Fault> {
    if refuse_unknown(reader, at, &retry.extra, "a retry has no such member") {
        return Err(reader.noted());
    }
    Ok(())
}

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bounded<const LEAST: u64, const MOST: u64>(u64);

impl<const LEAST: u64, const MOST: u64> Bounded<LEAST, MOST> {
    /// The number; `None` if it is out of range.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        (LEAST..=MOST).contains(&number).then_some(Self(number))
    }

    const WANTED: &str = match (LEAST, MOST) {
        (1, 10) => "an integer from 1 to 10",
        (1, 3_600_000) => "an integer from 1 to 3600000",
        (0, 600_000) => "an integer from 0 to 600000",
        (1, u64::MAX) => "an integer from 1",
        (0, u64::MAX) => "an integer from 0",
        _ => "an integer within its limits",
    };
}

impl<const LEAST: u64, const MOST: u64> From<Bounded<LEAST, MOST>> for u64 {
    fn from(bounded: Bounded<LEAST, MOST>) -> Self {
        bounded.0
    }
}

impl<const LEAST: u64, const MOST: u64> Read<'_> for Bounded<LEAST, MOST> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.number()?;
        let number = whole(text).and_then(Self::new);
        number.ok_or_else(|| reader.bad_value_seen(at, Self::WANTED, text))
    }
}

/// The number that is a whole one however it is written: `10`, `10.0` or `1e1`.
fn whole(text: &str) -> Option<u64> {
    /// The largest power of ten in the range.
    const LARGEST: i32 = 19;
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let (mantissa, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (digits, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let power: i32 = power.parse().ok()?;
    let number = format!("{digits}{fraction}");
    let number: u64 = number.trim_start_matches('-').parse().ok()?;
    if number == 0 {
        return Some(0);
    }
    let power = power.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let by = |power: i32| 10_u64.checked_pow(u32::try_from(power).ok()?);
    match power {
        _ if text.starts_with('-') => None,
        0..=LARGEST => number.checked_mul(by(power)?),
        i32::MIN..0 => {
            let divisor = by(power.checked_neg()?)?;
            number.is_multiple_of(divisor).then(|| number / divisor)
        }
        _ => None,
    }
}

impl<const LEAST: u64, const MOST: u64> Write for Bounded<LEAST, MOST> {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}
