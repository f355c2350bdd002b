//! What long runs cost: a test of its own process, for it counts what is allocated there.

#![allow(
    clippy::unwrap_used,
    reason = "a test that panics has failed, and says why"
)]

use std::alloc::System;
use std::sync::Arc;

use futures::executor::block_on;
use futures::future::BoxFuture;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use uap_agent::{
    AgentOptions, AgentState, ExecutionStrategy, LoopOptions, MemoryCheckpointConfig,
    MemoryCheckpoints, PlanOptions, ReactOptions, Runtime, agent, plan, react, tool_loop,
};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{FnTool, Reply, ScriptedModel, Tool, object};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

struct Still;

impl Sleep for Still {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    }
    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// What a run of so many tool rounds leaves, with the bytes that it took, and those that it holds.
fn run(execution: Arc<dyn ExecutionStrategy>, rounds: u64) -> (AgentState, usize, usize) {
    let region = Region::new(COUNTED);
    let mut left = rounds;
    let model = ScriptedModel::with(move |request| {
        let acts = request.offers_tools() && left > 0;
        left -= u64::from(acts);
        Some(if acts {
            Reply::text("again").calling("c", "echo", object("{}").ok()?)
        } else {
            Reply::text("well")
        })
    });
    let schema = object(r#"{"type":"object"}"#).unwrap();
    let echo = FnTool::new("echo", "Echoes", schema, |input, _| async {
        Ok(input.into())
    });
    let options = AgentOptions::new(Arc::new(model))
        .with_tools([Arc::new(echo) as Arc<dyn Tool>])
        .with_execution(execution)
        .with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(7)));
    // A store that keeps every state of the run.
    let history = usize::try_from(rounds).unwrap() + 1;
    let config = MemoryCheckpointConfig::default().with_history(history);
    let store = Arc::new(MemoryCheckpoints::new(config).unwrap());
    let agent = agent(options.with_checkpoints(store.clone()).with_session_id("s")).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
    assert_eq!(result.state.step(), rounds + 1);
    drop((agent, result.turn));
    let spent = region.change();
    let held = spent.bytes_allocated - spent.bytes_deallocated;
    // It held until here what is counted.
    drop(store);
    (result.state, spent.bytes_allocated, held)
}

/// The bytes that a run takes that carries out a plan of so many steps, a step of it.
fn planned(steps: usize) -> usize {
    let step = |n: usize| format!(r#"{{"id":"{n}","description":"do it","dependsOn":[]}}"#);
    let text = (0..steps).map(step).collect::<Vec<_>>().join(",");
    let text = format!(r#"{{"steps":[{text}]}}"#);
    let region = Region::new(COUNTED);
    let mut text = Some(text);
    // The conversation is sent with each step, and is not what is counted here.
    let model = ScriptedModel::with(move |_| {
        Some(Reply::text(text.take().unwrap_or_else(|| "done".into())))
    });
    let store = Arc::new(MemoryCheckpoints::default());
    let options = AgentOptions::new(Arc::new(model))
        .with_execution(plan(PlanOptions::default()).unwrap())
        .with_checkpoints(store)
        .with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(7)));
    let agent = agent(options).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
    assert_eq!(result.state.plan().unwrap().len(), steps);
    region.change().bytes_allocated / steps
}

// spec: UAP-2-1, UAP-5-4, UAP-6-2
// One test, so that nothing else is counted.
#[test]
fn what_runs_cost_is_in_proportion_to_what_they_do() {
    memory_is_in_proportion_to_messages_over_ten_thousand_rounds();
    planned(10);
    let sizes = [500, 2_000, 8_000].map(planned);
    let [least, .., most] = sizes;
    assert!(most < 2 * least, "bytes a step of a plan: {sizes:?}");
}

fn memory_is_in_proportion_to_messages_over_ten_thousand_rounds() {
    let strategies = [
        ("loop", tool_loop(LoopOptions::default()).unwrap()),
        ("react", react(ReactOptions::default()).unwrap()),
    ];
    for (name, strategy) in strategies {
        // What is made once is not of any run.
        run(Arc::clone(&strategy), 10);
        let sizes = [2_500, 5_000, 10_000].map(|rounds| {
            let (state, taken, held) = run(Arc::clone(&strategy), rounds);
            let messages = state.messages().len();
            assert!(messages as u64 > 2 * rounds);
            (messages, taken / messages, held / messages)
        });
        let of = |what: &str, bytes: [usize; 3]| {
            let [least, .., most] = bytes;
            let text = format!(
                "{name}: bytes {what} a message {bytes:?}, messages {:?}",
                sizes.map(|s| s.0)
            );
            assert!(most * 10 < least * 12, "{text}");
        };
        of("allocated", sizes.map(|(_, taken, _)| taken));
        of("held", sizes.map(|(.., held)| held));
    }
}
