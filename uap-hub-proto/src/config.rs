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
    #[error("{field} is {seen}, but must be {wanted}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        seen: String,
        /// The range.
        wanted: String,
    },
    /// A capability that every hub would refuse.
    #[error(transparent)]
    Capability(#[from] RegistrationError),
}

impl ConfigError {
    /// A value that must be at least `least`.
    pub(crate) fn at_least<T: PartialOrd + fmt::Display>(
        field: &'static str,
        seen: T,
        least: T,
    ) -> Result<(), Self> {
        if seen >= least {
            return Ok(());
        }
        Err(Self::OutOfRange {
            field,
            seen: seen.to_string(),
            wanted: format!("at least {least}"),
        })
    }

    /// A time that must be at least `least`.
    pub(crate) fn no_shorter(
        field: &'static str,
        seen: Duration,
        least: Duration,
    ) -> Result<(), Self> {
        if seen >= least {
            return Ok(());
        }
        Err(Self::OutOfRange {
            field,
            seen: format!("{seen:?}"),
            wanted: format!("at least {least:?}"),
        })
    }

    /// A time that must be longer than zero.
    pub(crate) fn not_zero(field: &'static str, seen: Duration) -> Result<(), Self> {
        if !seen.is_zero() {
            return Ok(());
        }
        Err(Self::OutOfRange {
            field,
            seen: "0".to_owned(),
            wanted: "longer than zero".to_owned(),
        })
    }
}
