//! Events of the driver and the log: ids, places and sizes, never what is inside.
//!
//! Without the feature `tracing` the macros expand to nothing.

/// What happens at each input, timer and effect.
#[cfg(feature = "driver")]
macro_rules! trace {
    ($($event:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::trace!(target: "ubos_common", $($event)*);
    }};
}

/// What a user asks about: ends, refusals, recoveries.
#[cfg(any(feature = "driver", feature = "log"))]
macro_rules! debug {
    ($($event:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::debug!(target: "ubos_common", $($event)*);
    }};
}

#[cfg(any(feature = "driver", feature = "log"))]
pub(crate) use debug;
#[cfg(feature = "driver")]
pub(crate) use trace;
