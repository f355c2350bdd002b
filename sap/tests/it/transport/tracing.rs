//! Spans with correlation ids, and nothing of a payload.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sap::processor::Config;
use sap::transport::bus::{self, Bus};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::world::{Real, Seen, ask, typed};

/// Keeps all that is said as lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>, Arc<AtomicU64>);

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("sap")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0
            .lock()
            .unwrap()
            .push(format!("span {}", span.metadata().name()));
        span.record(&mut self.clone());
        Id::from_u64(self.1.fetch_add(1, Ordering::SeqCst) + 1)
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

#[tokio::test]
async fn spans_have_ids_and_nothing_of_the_payload() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let seen = Seen::default();
    let bus = Bus::new(
        Arc::new(Real::default()),
        seen.log.clone(),
        bus::Config::default(),
    )
    .unwrap();
    bus.attach(seen.processor(Config::default()), |_| {});
    let task = typed(&ask(1, "test.echo").to_string());
    bus.send(&task, &mut |_| {}).await.unwrap();
    let said = lines.0.lock().unwrap().join("\n");
    for wanted in [
        "span sap.carry".to_owned(),
        "transport=\"bus\"".into(),
        "span sap.task".into(),
        format!("task_id={}", task.task_id),
        format!("correlation_id={}", task.correlation_id),
        "capability=test.echo".into(),
        "status=SUCCEEDED".into(),
        "running=0".into(),
    ] {
        assert!(said.contains(&wanted), "{wanted} in {said}");
    }
    assert!(!said.contains("UBOS SAP V2") && !said.contains("detailed"));
}
