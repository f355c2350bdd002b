//! How audit records and events leave a connection.

use std::sync::Arc;

use super::trace;
use crate::audit::AuditEvent;
use crate::role::core::Event;

/// Takes every audit record as it happens; it must not block. A function is one by `From`.
#[derive(Clone)]
pub struct AuditSink(Arc<dyn Fn(AuditEvent) + Send + Sync>);

impl<F: Fn(AuditEvent) + Send + Sync + 'static> From<F> for AuditSink {
    fn from(take: F) -> Self {
        Self(Arc::new(take))
    }
}

impl AuditSink {
    pub(super) fn take(&self, event: AuditEvent) {
        trace::audit(&event);
        (self.0)(event);
    }
}

impl Default for AuditSink {
    /// Drops every record.
    fn default() -> Self {
        Self::from(drop)
    }
}

impl core::fmt::Debug for AuditSink {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("AuditSink")
    }
}

/// Observes every event of a connection as it happens; it must not block. A function is one by `From`.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(&Event) + Send + Sync>);

impl<F: Fn(&Event) + Send + Sync + 'static> From<F> for Observer {
    fn from(observe: F) -> Self {
        Self(Arc::new(observe))
    }
}

impl Observer {
    pub(super) fn observe(&self, event: &Event) {
        (self.0)(event);
    }
}

impl Default for Observer {
    /// Drops every event.
    fn default() -> Self {
        Self::from(|_: &Event| {})
    }
}

impl core::fmt::Debug for Observer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Observer")
    }
}
