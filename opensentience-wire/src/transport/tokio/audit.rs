//! How audit records and events leave a connection.

use core::sync::atomic::{AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::watch;

use super::trace;
use crate::audit::AuditEvent;
use crate::message::Health;
use crate::role::core::Event;

/// Takes every audit record as it happens; it must not block, nor call a tool. A function is one by `From`.
///
/// Without one no records are made of calls that are routed and completed. One that panics loses the record, and nothing else:
/// see [`lost`](Self::lost).
#[derive(Clone, Default)]
pub struct AuditSink(Option<Arc<Taker<Take>>>);

type Take = dyn Fn(AuditEvent) + Send + Sync;

/// What an application takes things with, and how often that panicked.
struct Taker<F: ?Sized> {
    panics: AtomicU64,
    take: F,
}

impl<F: ?Sized> Taker<F> {
    /// Goes on where the application panics: those behind a connection are none the worse for it.
    fn hand_over(&self, hand_over: impl FnOnce(&F)) {
        if catch_unwind(AssertUnwindSafe(|| hand_over(&self.take))).is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
            trace::sink_panicked();
        }
    }
}

impl<F: Fn(AuditEvent) + Send + Sync + 'static> From<F> for AuditSink {
    fn from(take: F) -> Self {
        let panics = AtomicU64::new(0);
        Self(Some(Arc::new(Taker { panics, take })))
    }
}

impl AuditSink {
    /// Records that were lost because the function panicked that was to take them. All clones of a sink have one count.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let panics = self.0.as_ref().map(|taker| &taker.panics);
        panics.map_or(0, |panics| panics.load(Ordering::Relaxed))
    }

    pub(super) fn take(&self, event: AuditEvent) {
        trace::audit(&event);
        if let Some(taker) = &self.0 {
            taker.hand_over(|take| take(event));
        }
    }

    /// Whether anybody takes the records.
    pub(super) fn listens(&self) -> bool {
        self.0.is_some() || trace::hears_of_calls()
    }
}

impl core::fmt::Debug for AuditSink {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("AuditSink")
    }
}

/// Observes every event of a connection as it happens; it must not block, nor call a tool. A function is one by `From`. One that
/// panics misses the event, and nothing else: see [`lost`](Self::lost).
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<Taker<Observe>>>);

type Observe = dyn Fn(&Event) + Send + Sync;

impl<F: Fn(&Event) + Send + Sync + 'static> From<F> for Observer {
    fn from(take: F) -> Self {
        let panics = AtomicU64::new(0);
        Self(Some(Arc::new(Taker { panics, take })))
    }
}

impl Observer {
    /// Events that were missed because the function panicked. All clones of an observer have one count.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let panics = self.0.as_ref().map(|taker| &taker.panics);
        panics.map_or(0, |panics| panics.load(Ordering::Relaxed))
    }

    /// Whether anybody observes.
    pub(super) const fn listens(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn observe(&self, event: &Event) {
        if let Some(taker) = &self.0 {
            taker.hand_over(|observe| observe(event));
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
    pub(super) fn hear_of_calls(&self) -> bool {
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
