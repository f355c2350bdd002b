//! The shape that configurations have.

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
