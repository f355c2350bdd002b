//! How audit records and events leave a connection.

use std::sync::Arc;

use tokio::sync::watch;

use super::trace;
use crate::audit::AuditEvent;
use crate::message::Health;
use crate::role::core::Event;

/// Takes every audit record as it happens; it must not block, nor call a tool. A function is one by `From`.
///
/// Without one no records are made of calls that are routed and completed.
#[derive(Clone, Default)]
pub struct AuditSink(Option<Arc<dyn Fn(AuditEvent) + Send + Sync>>);

impl<F: Fn(AuditEvent) + Send + Sync + 'static> From<F> for AuditSink {
    fn from(take: F) -> Self {
        Self(Some(Arc::new(take)))
    }
}

impl AuditSink {
    pub(super) fn take(&self, event: AuditEvent) {
        trace::audit(&event);
        if let Some(take) = &self.0 {
            take(event);
        }
    }

    /// Whether anybody takes the records.
    pub(super) const fn listens(&self) -> bool {
        self.0.is_some() || cfg!(feature = "tracing")
    }
}

impl core::fmt::Debug for AuditSink {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("AuditSink")
    }
}

/// Observes every event of a connection as it happens; it must not block, nor call a tool. A function is one by `From`.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<Observe>>);

type Observe = dyn Fn(&Event) + Send + Sync;

impl<F: Fn(&Event) + Send + Sync + 'static> From<F> for Observer {
    fn from(observe: F) -> Self {
        Self(Some(Arc::new(observe)))
    }
}

impl Observer {
    /// Whether anybody observes.
    pub(super) const fn listens(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn observe(&self, event: &Event) {
        if let Some(observe) = &self.0 {
            observe(event);
        }
    }
}

/// Who hears of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Listeners {
    pub(super) audit: AuditSink,
    pub(super) observer: Observer,
    /// Whoever asks for the agent's health alone has no records of calls made.
    pub(super) health: Option<watch::Sender<Health>>,
}

impl Listeners {
    /// Whether anybody hears of calls.
    pub(super) const fn hear_of_calls(&self) -> bool {
        self.audit.listens() || self.observer.listens()
    }

    pub(super) fn observe(&self, event: &Event) {
        self.observer.observe(event);
        if let (Event::Health(health), Some(listener)) = (event, &self.health) {
            listener.send_replace(health.clone());
        }
    }
}

impl core::fmt::Debug for Observer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Observer")
    }
}
