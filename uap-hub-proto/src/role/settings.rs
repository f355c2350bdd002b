//! The shape that all settings here have.

/// Declares a settings struct with a chained setter for each field.
macro_rules! settings {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr,)* }) => {
        $(#[$meta])*
        #[derive(Debug)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $name {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $field(mut self, value: $type) -> Self {
                    self.$field = value;
                    self
                }
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}
pub(crate) use settings;
