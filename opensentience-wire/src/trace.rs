//! Records of the feature `tracing`: ids and sizes, never payloads.

/// What a machine does, step by step; nothing without the feature.
#[cfg(feature = "tracing")]
macro_rules! trace {
    ($($record:tt)*) => { ::tracing::trace!(target: "opensentience_wire::role", $($record)*) };
}

/// What a machine does, step by step; nothing without the feature.
#[cfg(not(feature = "tracing"))]
macro_rules! trace {
    ($($record:tt)*) => {};
}

/// What a user would ask about; nothing without the feature.
#[cfg(feature = "tracing")]
macro_rules! debug {
    ($($record:tt)*) => { ::tracing::debug!(target: "opensentience_wire::role", $($record)*) };
}

/// What a user would ask about; nothing without the feature.
#[cfg(not(feature = "tracing"))]
macro_rules! debug {
    ($($record:tt)*) => {};
}

pub(crate) use {debug, trace};
