//! Events of the machines. They carry numbers, states and sizes only: no parameter, output, goal or text of a message.
//!
//! Without the feature `tracing` the macros expand to nothing.

/// What a machine does at each input, timer and transition.
macro_rules! trace {
    ($($event:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::trace!(target: "sacp", $($event)*);
    }};
}

/// What a user asks about: begin, end, refusals, recoveries.
macro_rules! debug {
    ($($event:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::debug!(target: "sacp", $($event)*);
    }};
}

pub(crate) use {debug, trace};
