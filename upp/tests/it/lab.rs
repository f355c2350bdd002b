//! The tool loop in the lab: late, doubled and reordered results give the same turn.

use std::collections::BTreeSet;
use std::time::Duration;

use ubos_common::id::IdSource;
use ubos_common::testing::{Actions, Arrival, Lab, Wiring};
use ubos_common::time::{Mono, Now, Timestamp};
use upp::tool_loop::{Input, Output, ToolLoop};
use upp::{
    AssistantMessage, ContentBlock, CycleUsage, FnTool, List, LlmOptions, LlmRequest, LlmResponse,
    ModelEvent, ScriptedModel, StreamEvent, StreamEventType, Tool, ToolCall, ToolExecution,
    json_text, llm, object,
};

/// Two calls, then a text.
fn respond(request: LlmRequest) -> LlmResponse {
    let calls = (request.messages.len() == 1).then(|| {
        let call = |id: &str| ToolCall::new(id.into(), "echo".into(), object("{}").unwrap());
        vec![call("c1"), call("c2")]
    });
    let content = vec![ContentBlock::text("text")];
    let message = AssistantMessage::new(request.stamp, content, calls);
    LlmResponse::new(message, CycleUsage::new(1, 1, 0, 0), "stop")
}

fn execute(call: &ToolCall) -> ToolExecution {
    let (name, id) = (call.tool_name.clone(), call.tool_call_id.clone());
    let result = json_text(&id);
    ToolExecution::new(name, id, call.arguments.clone(), result, false, 0)
}

/// Gives every result twice, after delays that a seed draws.
struct Unreliable {
    ids: IdSource,
    /// The request whose response is being read.
    request: Option<LlmRequest>,
}

impl Wiring<ToolLoop> for Unreliable {
    type Event = Vec<String>;
    type Answer = Input;

    fn deliver(&mut self, tool_loop: &mut ToolLoop, now: Now, arrival: Arrival<'_, Input>) {
        if let Arrival::Answer(input) = arrival {
            // A doubled result may come after the end.
            let _ = tool_loop.handle_input(now, input);
        }
    }

    fn perform(
        &mut self,
        _: &mut ToolLoop,
        _: Now,
        output: Output,
        actions: &mut Actions<Vec<String>, Input>,
    ) {
        let mut twice = |input: &dyn Fn() -> Input| {
            for _ in 0..2 {
                let delay = Duration::from_millis(self.ids.bits() % 50);
                actions.answer(delay, input());
            }
        };
        match output {
            Output::Infer(id, request) => {
                self.request = Some(request);
                let start = StreamEvent::bare(StreamEventType::MessageStart, 0);
                let event = Input::Model(id, Some(Ok(ModelEvent::Event(start))));
                actions.answer(Duration::from_millis(1), event);
            }
            Output::More(id) => {
                let response = respond(self.request.take().unwrap());
                twice(&|| {
                    let done = ModelEvent::Done(Box::new(response.clone()));
                    Input::Model(id, Some(Ok(done)))
                });
            }
            Output::Tool(id, call) => twice(&|| Input::Tool(id, execute(&call))),
            Output::MaxIterations(id, _) => twice(&|| Input::HookDone(id)),
            Output::Finished(result) => {
                let turn = result.unwrap();
                let calls = turn.tool_executions.iter();
                actions.event(calls.map(|call| call.result.as_str().to_owned()).collect());
            }
            _ => {}
        }
    }
}

// spec: UPP-13
#[test]
fn doubled_and_reordered_results_give_the_same_turn() {
    let echo = FnTool::new("echo", "", object("{}").unwrap(), |_, _| async {
        Ok(json_text("unused"))
    });
    let options = LlmOptions::new(std::sync::Arc::new(ScriptedModel::new([])))
        .with_tools([std::sync::Arc::new(echo) as std::sync::Arc<dyn Tool>]);
    let instance = llm(options).unwrap();
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let mut lab = Lab::new(seed);
        let ids = IdSource::seeded(3);
        let tool_loop = ToolLoop::new(now, &instance, &List::default(), ["go"], ids);
        let wiring = Unreliable {
            ids: IdSource::seeded(seed),
            request: None,
        };
        let node = lab.add(tool_loop, wiring);
        lab.run(1_000);
        let machine = lab.machine(node);
        assert!(
            machine.is_closed() && !machine.accepts_input(),
            "seed {seed}"
        );
        let mut events = lab.take_events();
        assert_eq!(events.len(), 1, "seed {seed}");
        seen.insert(events.remove(0).2);
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
}
