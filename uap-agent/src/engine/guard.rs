//! Code of the application, called so that its panics become errors.

use core::panic::AssertUnwindSafe;

use upp::{ErrorCode, UppError};

/// Calls code of the application. A panic becomes an error without the panic's message, which may hold secrets.
pub(super) fn guarded<T>(who: &str, code: impl FnOnce() -> T) -> Result<T, UppError> {
    std::panic::catch_unwind(AssertUnwindSafe(code)).map_err(|_| panicked(who))
}

/// The error of application code that panicked.
pub(crate) fn panicked(who: &str) -> UppError {
    UppError::new(ErrorCode::ProviderError, "uap", format!("{who} panicked"))
}
