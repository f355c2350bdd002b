//! Trace events hold ids, counts and steps, and no payload.

use std::sync::Arc;

use futures::executor::block_on;
use uap_agent::agent;
use uap_agent::journal::MemoryJournal;
use ubos_common::testing::Traces;
use upp::{ErrorCode, Reply};

use crate::support::{calling, echo, options, script};

#[test]
fn no_payload_is_in_a_trace_event() {
    let traces = Traces::of("");
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
    let text = traces.text();
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
