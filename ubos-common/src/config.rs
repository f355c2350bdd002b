//! Checking settings.

use core::fmt;
use std::borrow::Cow;

/// A setting that cannot work: which one, its value, and what it must be. Settings are checked where the thing that they
/// are for is made.
///
/// ```
/// use ubos_common::ConfigError;
///
/// let refused = ConfigError::at_least("max_running", 0, 1).unwrap_err();
/// assert_eq!(refused.to_string(), "max_running is 0, but must be at least 1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{setting} is {seen}, but {wanted}")]
pub struct ConfigError {
    /// The setting.
    pub setting: &'static str,
    /// Its value.
    pub seen: String,
    /// The range: what stands behind "but".
    pub wanted: Cow<'static, str>,
}

impl ConfigError {
    /// Checks one setting: `wanted` goes behind "`setting` is `seen`, but".
    ///
    /// # Errors
    /// When the condition does not hold.
    pub fn require(
        holds: bool,
        setting: &'static str,
        seen: impl fmt::Debug,
        wanted: impl Into<Cow<'static, str>>,
    ) -> Result<(), Self> {
        if holds {
            return Ok(());
        }
        Err(Self {
            setting,
            seen: format!("{seen:?}"),
            wanted: wanted.into(),
        })
    }

    /// Checks a setting that has a least value.
    ///
    /// # Errors
    /// When `seen` is below it.
    pub fn at_least<T: PartialOrd + fmt::Debug>(
        setting: &'static str,
        seen: T,
        least: T,
    ) -> Result<(), Self> {
        if seen >= least {
            return Ok(());
        }
        let wanted = format!("must be at least {least:?}");
        Self::require(false, setting, seen, wanted)
    }
}
