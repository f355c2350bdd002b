//! How audit records and events leave a connection.

use std::sync::Arc;

use super::trace;
use crate::audit::AuditEvent;
use crate::role::core::Event;

/// Takes every record as it happens; it must not block.
#[derive(Clone)]
pub struct AuditSink(Arc<dyn Fn(AuditEvent) + Send + Sync>);

impl AuditSink {
    /// A sink that calls a function.
    pub fn new(take: impl Fn(AuditEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(super) fn take(&self, event: AuditEvent) {
        trace::audit(&event);
        (self.0)(event);
    }
}

impl Default for AuditSink {
    /// Drops every record.
    fn default() -> Self {
        Self::new(drop)
    }
}

impl core::fmt::Debug for AuditSink {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("AuditSink")
    }
}

/// Hears every event of a connection as it happens; it must not block.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(&Event) + Send + Sync>);

impl Observer {
    /// An observer that calls a function.
    pub fn new(hear: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(super) fn hear(&self, event: &Event) {
        (self.0)(event);
    }
}

impl Default for Observer {
    /// Hears nothing.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl core::fmt::Debug for Observer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Observer")
    }
}
