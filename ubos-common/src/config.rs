//! Configurations: the shape that they have, and how one is refused.

use core::fmt;
use std::borrow::Cow;

/// Declares a configuration: private fields, a default for each, and a chained setter with documentation.
///
/// The setters of the section `into` take whatever converts into the field. The fields of the section `also` have
/// setters written by hand. The machine that takes a configuration checks it.
///
/// ```
/// ubos_common::config! {
///     /// How a link works.
///     Config {
///         /// Sets how many messages may wait: 16 by default.
///         with_max_waiting: max_waiting: usize = 16,
///     }
///     into {
///         /// Sets the name of the peer: empty by default.
///         with_peer: peer: String = String::new(),
///     }
/// }
///
/// let config = Config::default().with_max_waiting(4).with_peer("a");
/// assert_eq!((config.max_waiting, config.peer.as_str()), (4, "a"));
/// ```
#[macro_export]
macro_rules! config {
    (
        $(#[$meta:meta])* $name:ident {
            $($(#[$doc:meta])* $setter:ident: $field:ident: $type:ty = $default:expr,)*
        }
        $(into { $($(#[$into_doc:meta])* $into:ident: $into_field:ident: $into_type:ty = $into_default:expr,)* })?
        $(also { $($(#[$cfg:meta])* $other:ident: $other_type:ty = $other_default:expr,)* })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $(pub(crate) $field: $type,)*
            $($(pub(crate) $into_field: $into_type,)*)?
            $($($(#[$cfg])* pub(crate) $other: $other_type,)*)?
        }

        impl $name {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $setter(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
            $($(
                $(#[$into_doc])*
                #[must_use]
                pub fn $into(mut self, $into_field: impl ::core::convert::Into<$into_type>) -> Self {
                    self.$into_field = $into_field.into();
                    self
                }
            )*)?
        }

        impl ::core::default::Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $default,)*
                    $($($into_field: $into_default,)*)?
                    $($($(#[$cfg])* $other: $other_default,)*)?
                }
            }
        }
    };
}

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
