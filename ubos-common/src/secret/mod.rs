//! Secrets that cannot be printed, and redaction of text that may hold some.

mod free;
mod redact;
mod shape;
mod stream;

use core::fmt;

pub use free::is_secret_free;
pub use redact::{Bounds, redact_json, redact_text};
pub use shape::{SecretKind, SecretShape, is_secret_name, secret_shapes};
pub use stream::{PLACEHOLDER, Redactor};

use zeroize::{Zeroize, Zeroizing};

/// A secret: wiped when dropped, and shown by no `Debug`, `Display`, serializer or panic.
///
/// Only [`Secret::expose`] sees inside, so that every use can be found by its name.
///
/// ```
/// use ubos_common::secret::Secret;
///
/// let token = Secret::new(String::from("tok-123"));
/// assert_eq!(format!("{token:?}"), "Secret(…)");
/// assert_eq!(token.expose(), "tok-123");
/// ```
///
/// It has no `Display` and no `Serialize`:
///
/// ```compile_fail
/// let token = ubos_common::secret::Secret::new(String::from("tok-123"));
/// println!("{token}");
/// ```
#[derive(Clone, Default)]
pub struct Secret<T: Zeroize>(Zeroizing<T>);

impl<T: Zeroize> Secret<T> {
    /// Takes a value in.
    pub fn new(value: T) -> Self {
        Self(Zeroizing::new(value))
    }

    /// The value. Keep what you make of it out of logs, errors and messages.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
