//! How a configuration is refused.

use core::fmt;
use std::time::Duration;

use crate::capability::RegistrationError;

/// A configuration that cannot work.
///
/// ```
/// use uap_hub_proto::role::hub::{Config, Hub};
/// use uap_hub_proto::ubos_common::id::IdSource;
///
/// let refused = Hub::new(Config::default().with_max_jobs(0), IdSource::seeded(1)).unwrap_err();
/// assert_eq!(refused.to_string(), "max_jobs is 0, but must be at least 1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is out of its range.
    #[error(transparent)]
    Setting(#[from] ubos_common::ConfigError),
    /// A capability that every hub would refuse.
    #[error(transparent)]
    Capability(#[from] RegistrationError),
}

impl ConfigError {
    /// A value that must be at least `least`.
    pub(crate) fn at_least<T: PartialOrd + fmt::Debug>(
        setting: &'static str,
        seen: T,
        least: T,
    ) -> Result<(), Self> {
        ubos_common::ConfigError::at_least(setting, seen, least)?;
        Ok(())
    }

    /// A time that must be longer than zero.
    pub(crate) fn not_zero(setting: &'static str, seen: Duration) -> Result<(), Self> {
        let wanted = "must be longer than zero";
        let zero = format_args!("0");
        ubos_common::ConfigError::require(!seen.is_zero(), setting, zero, wanted)?;
        Ok(())
    }

    /// A setting that a side cannot do without.
    #[cfg(all(feature = "tls", any(feature = "client", feature = "server")))]
    pub(crate) fn present(is_present: bool, setting: &'static str, side: &str) -> Result<(), Self> {
        let wanted = format!("{side} needs it");
        let seen = format_args!("missing");
        ubos_common::ConfigError::require(is_present, setting, seen, wanted)?;
        Ok(())
    }
}
