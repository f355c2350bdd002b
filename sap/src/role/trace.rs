//! Records of the machines: ids, states and names of inputs; no part of a task or result.
//!
//! Without the feature `tracing` the macros expand to nothing.

/// What a machine does at each input, timer and transition.
macro_rules! trace {
    ($($record:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::trace!(target: "sap::role", $($record)*);
    }};
}

/// What a user asks about: a refusal, an end, a wait that is over.
macro_rules! debug {
    ($($record:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::debug!(target: "sap::role", $($record)*);
    }};
}

pub(super) use {debug, trace};
