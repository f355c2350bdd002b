//! Trace events hold ids, counts and durations, and no payload.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use ::tracing::field::{Field, Visit};
use ::tracing::span::{Attributes, Id, Record};
use ::tracing::{Event, Metadata, Subscriber};
use futures::executor::block_on;
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{
    ErrorCode, FnTool, List, LlmCall, LlmOptions, Reply, ScriptedModel, Tool, json_text, llm,
    object,
};

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
    let model = ScriptedModel::new([
        Reply::text("canary reply").calling(
            "c1",
            "echo",
            object(r#"{"canary":"arguments"}"#).unwrap(),
        ),
        Reply::error(ErrorCode::ProviderError, "canary error"),
    ]);
    let echo = FnTool::new("echo", "canary", object("{}").unwrap(), |_, _| async {
        Ok(json_text("canary result"))
    });
    let options = LlmOptions::new(Arc::new(model))
        .with_system("canary system")
        .with_params(object(r#"{"canary":"params"}"#).unwrap())
        .with_tools([Arc::new(echo) as Arc<dyn Tool>]);
    let call = LlmCall::new(IdSource::seeded(1), || {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    });
    let instance = llm(options).unwrap();
    block_on(instance.generate(&List::default(), ["canary input"], call)).unwrap_err();
    let text = lines.text();
    for message in [
        "tool loop started",
        "tool loop takes an input",
        "tool loop infers",
        "tool loop received a response",
        "tool loop ran a tool",
        "tool loop finished",
    ] {
        assert!(text.contains(message), "{message} in {text}");
    }
    assert!(!text.contains("canary"), "{text}");
}
