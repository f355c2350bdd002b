//! Trace events of the machines: ids, counts and durations, never payloads.

/// Emits a `tracing` event at level TRACE; expands to nothing without the feature `tracing`.
#[cfg(feature = "tracing")]
macro_rules! trace {
    ($($event:tt)*) => { ::tracing::trace!($($event)*) };
}

#[cfg(not(feature = "tracing"))]
macro_rules! trace {
    ($($event:tt)*) => {};
}

pub(crate) use trace;
