//! Trace events hold ids, counts and durations, and no payload.

use std::sync::Arc;

use futures::executor::block_on;
use ubos_common::id::IdSource;
use ubos_common::testing::Traces;
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{
    ErrorCode, FnTool, List, LlmCall, LlmOptions, Reply, ScriptedModel, Tool, json_text, llm,
    object,
};

#[test]
fn no_payload_is_in_a_trace_event() {
    let traces = Traces::of("");
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
    let text = traces.text();
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
