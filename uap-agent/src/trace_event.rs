//! Events of the machines: ids, counts and durations, never payloads.
//!
//! Without the feature `tracing` the macros expand to nothing.

/// What a machine does at each input and transition.
macro_rules! trace {
    ($($event:tt)*) => {{
        #[cfg(feature = "tracing")]
        ::tracing::trace!($($event)*);
    }};
}

/// What a user asks about: begin, end, refusals, failures, retries.
macro_rules! debug {
    ($($event:tt)*) => {{
        #[cfg(feature = "tracing")]
        ::tracing::debug!($($event)*);
    }};
}

pub(crate) use {debug, trace};
