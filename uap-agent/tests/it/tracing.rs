//! Trace events hold ids, counts and steps, and no payload.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use ::tracing::field::{Field, Visit};
use ::tracing::span::{Attributes, Id, Record};
use ::tracing::{Event, Metadata, Subscriber};
use futures::executor::block_on;
use uap_agent::agent;
use uap_agent::journal::MemoryJournal;
use upp::{ErrorCode, Reply};

use crate::support::{calling, echo, options, script};

/// Collects the text of every span and event.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
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

#[test]
fn no_payload_is_in_a_trace_event() {
    let lines = Lines::default();
    // With one subscriber, `tracing` asks the thread that reaches a callsite first, which may be that of another test
    // and have none. With two it asks both.
    let _second = ::tracing::Dispatch::new(Lines::default());
    let _guard = ::tracing::subscriber::set_default(lines.clone());
    let model = script([
        calling("canary reply", "c1", r#"{"canary":"arguments"}"#),
        Reply::error(ErrorCode::ProviderError, "canary error"),
    ]);
    let options = options(&model)
        .with_system("canary system")
        .with_tools([echo("echo")]);
    let agent = agent(options).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let run = agent.record(journal, "canary input", &agent.initial_state());
    block_on(run.result()).unwrap_err();
    let text = lines.text();
    for message in [
        "run started",
        "engine takes an input",
        "journal write",
        "run ended",
    ] {
        assert!(text.contains(message), "{message} in {text}");
    }
    assert!(!text.contains("canary"), "{text}");
}
