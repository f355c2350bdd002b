//! Events of the machines. They carry ids of streams and jobs, states and sizes only: no payload, no text of a peer, no
//! client id and no token.
//!
//! Without the feature `tracing` the macros expand to nothing.

/// What a machine does at each input, timer and transition.
macro_rules! trace {
    ($($event:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::trace!(target: "uap_hub::machine", $($event)*);
    }};
}

/// What a user asks about: begin, end, refusals.
macro_rules! debug {
    ($($event:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::debug!(target: "uap_hub::machine", $($event)*);
    }};
}

pub(crate) use {debug, trace};
