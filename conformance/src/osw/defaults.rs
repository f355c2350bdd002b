//! The limits and spans that the specification gives, as the kit checks them.

use core::time::Duration;

/// Calls of one connection that run at once.
pub(super) const MAX_INFLIGHT_REQUESTS: usize = 256;

/// Bytes of one schema.
pub(super) const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// How much longer than `timeout_ms` a core waits for the result.
pub(super) const CALL_GRACE: Duration = Duration::from_secs(1);
