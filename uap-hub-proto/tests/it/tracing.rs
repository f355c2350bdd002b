//! Spans with session ids, and nothing of a payload, an id that opens doors, or a token.

use std::{
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tracing::{
    Dispatch, Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use uap_hub_proto::{
    role::hub::{self, Job},
    transport::{
        client::AgentBuilder,
        server::{ServerConfig, serve},
    },
    wire::{Payload, TestResult},
};

use crate::loopback::within;

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
        metadata.target().starts_with("uap_hub")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let name = format!("span {}", span.metadata().name());
        self.0.lock().unwrap().push(name);
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
    // With one dispatcher alone, an event that another test's thread reaches first is off for good.
    let _second = Dispatch::new(Lines::default());
    let _guard = tracing::subscriber::set_default(lines.clone());
    let hub = hub::Config::default().with_max_jobs(77);
    let config = ServerConfig::default().with_hub(hub);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let payload = Payload::file("text", "t", "text/plain", "payload bytes");
    let job = hub.submit(Job::test("echo", vec![payload])).unwrap();
    let _agent = AgentBuilder::new("traced")
        .with_bearer_token(String::from("sesame"))
        .on_test("echo", |payloads, context| async move {
            context.status("payload words").await?;
            Ok(TestResult::completed(String::from_utf8_lossy(
                payloads[0].data(),
            )))
        })
        .start(&hub.url())
        .unwrap();
    assert_eq!(within(job.outcome()).await.message, "payload bytes");
    let client_id = hub.agents()[0].client_id.to_string();
    let said = lines.0.lock().unwrap().join("\n");
    for wanted in [
        "span hub.session",
        "session_id=JOB-",
        "skill=test type \"echo\"",
        "state=Completed",
        "side=\"hub\"",
        "message=job accepted",
        "message=session opened",
        "message=job ended",
        "message=hub: message received",
        "message=agent: message received",
        "message=result sent",
        "side=\"agent\"",
        "rpc=Execute",
        "name=\"reports\"",
        "name=\"jobs\"\nwaiting=1\nrunning=0\nbound=77",
        "name=\"jobs\"\nwaiting=0\nrunning=1\nbound=77",
        "name=\"jobs\"\nwaiting=0\nrunning=0\nbound=77",
    ] {
        assert!(said.contains(wanted), "{wanted} in {said}");
    }
    for secret in ["payload", "sesame", client_id.as_str()] {
        assert!(!said.contains(secret), "{secret} in {said}");
    }
}
