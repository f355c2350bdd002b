//! What spans and events say, for tests that no payload is in them.

use core::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Collects the spans and events of the calling thread, as lines `span NAME` and `field=value`, until it is dropped.
///
/// ```
/// use ubos_common::testing::Traces;
///
/// let traces = Traces::of("my_crate");
/// tracing::debug!(target: "my_crate", id = 7, "call ended");
/// tracing::debug!(target: "another", "not collected");
/// assert_eq!(traces.text(), "message=call ended\nid=7");
/// ```
#[derive(Debug)]
pub struct Traces {
    lines: Lines,
    _default: DefaultGuard,
    /// With one dispatcher alone, `tracing` asks the thread that reaches a callsite first, which may be that of another
    /// test and have none: the event is off for good then. With two it asks both.
    _second: Dispatch,
}

impl Traces {
    /// Collects from now on what has a target that begins so; all, where it is empty.
    #[must_use]
    pub fn of(target: &'static str) -> Self {
        let lines = Lines {
            target,
            lines: Arc::default(),
            spans: Arc::default(),
        };
        Self {
            _second: Dispatch::new(lines.clone()),
            _default: set_default(lines.clone()),
            lines,
        }
    }

    /// What was collected so far.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = self.lines.lines.lock();
        lines.unwrap_or_else(PoisonError::into_inner).join("\n")
    }
}

#[derive(Clone, Debug)]
struct Lines {
    target: &'static str,
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<AtomicU64>,
}

impl Lines {
    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line);
    }
}

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(self.target)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.push(format!("span {}", span.metadata().name()));
        span.record(&mut self.clone());
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
