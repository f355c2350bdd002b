//! States, checkpoints and runs of agents: `cargo bench -p benches --bench uap [--features yardsticks]`.
//!
//! Prints, each beside its yardstick of the same run: appending to a state at several lengths, and cloning a vector to push to
//! it; the bytes that checkpoints of 4,000 steps take, append-only and whole; a step of an agent with one tool on a scripted
//! model, at several lengths of its history, and the same agent in rig (feature `yardsticks`).

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the summary is the result")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::{Bar, report};
use criterion::Criterion;
use futures::executor::block_on;
use uap_agent::{
    Agent, AgentOptions, AgentState, CheckpointMetadata, CheckpointStore, LogCheckpoints, agent,
};
use ubos_common::id::IdSource;
use ubos_common::time::Timestamp;
use upp::{FnTool, Message, Messages, Reply, ScriptedModel, Stamp, Tool, object};

/// Tool rounds of a run; one more answer ends it.
const ROUNDS: usize = 20;
const STEPS: u64 = 4_000;
/// Runs of each side, taken in turn; the shortest counts.
const TURNS: usize = 60;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut ids = IdSource::from_os().expect("randomness");
    let (short, long) = (history(&mut ids, 100), history(&mut ids, 100_000));
    let mut group = criterion.benchmark_group("uap");
    for (name, state) in [("100", &short), ("100,000", &long)] {
        let more: Vec<_> = (0..320).map(|n| message(&mut ids, n)).collect();
        group.bench_function(format!("320 appends to a state of {name} messages"), |b| {
            b.iter(|| {
                let begun = black_box(state).clone();
                more.iter().fold(begun, |state, said| {
                    state.with_message(&mut ids, said.clone())
                })
            })
        });
    }
    group.bench_function("run of 20 tool rounds", |b| {
        b.iter_batched(
            ours,
            |agent| run(&agent, &short),
            criterion::BatchSize::SmallInput,
        )
    });
    group.finish();
    appends(&mut ids);
    checkpoints(&mut ids);
    runs(&mut ids);
}

fn message(ids: &mut IdSource, n: usize) -> Message {
    let text = format!("this is message {n:6}, and it has fifty characters..");
    Message::user(Stamp::new(ids, Timestamp::EPOCH), text)
}

fn history(ids: &mut IdSource, messages: usize) -> AgentState {
    let said: Vec<_> = (0..messages).map(|n| message(ids, n)).collect();
    AgentState::initial(ids).with_messages(ids, said)
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

/// The shortest of all rounds, for each of several things that are timed in turn.
fn in_turn<const N: usize>(
    rounds: usize,
    mut timed: [&mut dyn FnMut() -> Duration; N],
) -> [Duration; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..rounds {
        for (best, timed) in best.iter_mut().zip(&mut timed) {
            *best = timed().min(*best);
        }
    }
    best
}

/// Appends in a row, each to the state that the one before made; all of them stay alive.
fn appends(ids: &mut IdSource) {
    const MANY: u32 = 3_200;
    let more: Vec<_> = (0..MANY).map(|n| message(ids, n as usize)).collect();
    let bases = [100, 1_000, 10_000, 100_000].map(|n| history(ids, n));
    let mut seeds = IdSource::from_os().expect("randomness");
    let mut grow = |base: &AgentState| {
        let mut states = Vec::with_capacity(more.len());
        let start = Instant::now();
        let mut state = base.clone();
        for message in &more {
            state = state.with_message(&mut seeds, message.clone());
            states.push(state.clone());
        }
        let spent = start.elapsed();
        black_box(&states);
        spent / MANY
    };
    let vector: Vec<Message> = bases
        .get(2)
        .map(|base| base.messages().iter().cloned().collect())
        .expect("ten thousand");
    let pushed = more.first().expect("a message").clone();
    let clone_and_push = || {
        let start = Instant::now();
        let mut next = black_box(&vector).clone();
        next.push(pushed.clone());
        let spent = start.elapsed();
        black_box(&next);
        spent
    };
    let mut best = [Duration::MAX; 5];
    for _ in 0..TURNS {
        for (best, base) in best.iter_mut().zip(&bases) {
            *best = grow(base).min(*best);
        }
        if let Some(best) = best.last_mut() {
            *best = clone_and_push().min(*best);
        }
    }
    let [hundred, thousand, ten, most, vector] = best;
    println!(
        "\nappend to a state of 100: {hundred:?}, 1,000: {thousand:?}, 10,000: {ten:?}, 100,000: {most:?}"
    );
    report(
        "UAP: append to a state of 100,000 messages / of 100",
        ratio(most, hundred),
        Bar::AtMost(1.5),
    );
    println!("  clone-and-push of a vector of 10,000: {vector:?}");
    report(
        "UAP: clone and push of a vector of 10,000 / append",
        ratio(vector, ten),
        Bar::AtLeast(100.0),
    );
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("a folder");
    let sizes = entries.map(|entry| {
        let entry = entry.expect("an entry");
        let known = entry.metadata().expect("what is known of it");
        if known.is_dir() {
            bytes_below(&entry.path())
        } else {
            known.len()
        }
    });
    sizes.sum()
}

/// Saves a state after each of so many steps, one message each.
fn checkpoints(ids: &mut IdSource) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = LogCheckpoints::open(folder.path()).expect("a store");
    let mut state = AgentState::initial(ids);
    let (mut whole, mut one) = (0, state.to_json().len());
    let (mut early, mut late) = (Duration::ZERO, Duration::ZERO);
    for step in 1..=STEPS {
        let said = message(ids, usize::try_from(step).expect("small"));
        // The state, had it been written whole.
        one += ubos_common::json::to_vec(&said).len() + 1;
        whole += one as u64;
        state = state.with_message(ids, said).with_step(ids, step);
        let (id, at) = (ids.uuid(), Timestamp::EPOCH);
        let metadata = CheckpointMetadata::new("session".into(), id, at, step, "agent".into());
        let start = Instant::now();
        block_on(store.save(metadata, state.clone())).expect("saved");
        if step <= 500 {
            early += start.elapsed();
        } else if step > STEPS - 500 {
            late += start.elapsed();
        }
    }
    drop(store);
    let (written, json) = (bytes_below(folder.path()), state.to_json().len() as u64);
    let times = |bytes: u64| {
        Duration::from_micros(bytes).as_secs_f64() / Duration::from_micros(json).as_secs_f64()
    };
    println!(
        "checkpoints of {STEPS} steps of one message: {written} bytes, the state has {json}; whole states: {:.0} times",
        times(whole)
    );
    report(
        "UAP: bytes of 4,000 checkpoints / of the last state",
        times(written),
        Bar::AtMost(3.0),
    );
    println!(
        "  a save, on the disk: {:?} in the first 500 steps, {:?} in the last 500",
        early / 500,
        late / 500
    );
}

fn echo() -> Arc<dyn Tool> {
    let schema =
        object(r#"{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}"#);
    Arc::new(FnTool::new(
        "echo",
        "Gives back its input",
        schema.expect("a schema"),
        |input, _| async { Ok(input.into()) },
    ))
}

/// An agent whose model calls its tool twenty times, one call a round.
fn ours() -> Agent {
    let call = |n: usize| {
        let input = object(r#"{"x":1}"#).expect("an input");
        Reply::default().calling(format!("call-{n}"), "echo", input)
    };
    let model = ScriptedModel::new((0..ROUNDS).map(call).chain([Reply::text("done")]));
    agent(AgentOptions::new(Arc::new(model)).with_tools([echo()])).expect("an agent")
}

fn run(agent: &Agent, state: &AgentState) -> Messages {
    let result = block_on(agent.generate("go", state)).expect("a result");
    assert_eq!(result.turn.tool_executions.len(), ROUNDS);
    result.state.messages().clone()
}

/// One run, for each of its steps.
fn timed(state: &AgentState) -> Duration {
    let agent = ours();
    let start = Instant::now();
    black_box(run(&agent, state));
    start.elapsed() / STEPS_OF_A_RUN
}

const STEPS_OF_A_RUN: u32 = 21;

fn runs(ids: &mut IdSource) {
    let [ten, thousand, most] = [10, 1_000, 10_000].map(|n| history(ids, n));
    let [short, middle, long] = in_turn(
        TURNS * 10,
        [&mut || timed(&ten), &mut || timed(&thousand), &mut || {
            timed(&most)
        }],
    );
    println!(
        "a step of an agent with one tool, history of 10: {short:?}, 1,000: {middle:?}, 10,000: {long:?}"
    );
    report(
        "UAP: a step with a history of 10,000 / of 10",
        ratio(long, short),
        Bar::None,
    );
    #[cfg(feature = "yardsticks")]
    {
        let rig = yardsticks::Rig::new();
        let [bare_ours, bare_rig, ours, theirs] = in_turn(
            TURNS * 3,
            [
                &mut || timed(&AgentState::initial(&mut IdSource::seeded(1))),
                &mut || rig.timed(0),
                &mut || timed(&thousand),
                &mut || rig.timed(1_000),
            ],
        );
        println!(
            "  without a history: {bare_ours:?}, rig {bare_rig:?}; history of 1,000: {ours:?}, rig {theirs:?}"
        );
        report(
            "rig / UAP: a step without a history",
            ratio(bare_rig, bare_ours),
            Bar::AtLeast(3.0),
        );
        report(
            "rig / UAP: a step with a history of 1,000",
            ratio(theirs, ours),
            Bar::None,
        );
    }
    #[cfg(not(feature = "yardsticks"))]
    println!("  rig: not built, feature yardsticks");
}

#[cfg(feature = "yardsticks")]
mod yardsticks {
    use super::{Duration, Instant, ROUNDS, STEPS_OF_A_RUN, black_box};
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;
    use rig_agent::completion::{CompletionRequest, CompletionResponse, Usage};
    use rig_agent::tool::{Tool, ToolContext};
    use rig_agent::{Agent, AgentBuilder};
    use rig_core::driver::{Exchange, Model, Opened, Opening, Transport};
    use rig_core::message::{AssistantContent, Message, Origin, ToolCall, ToolFunction, ToolName};
    use rig_core::test_utils::{MockFrame, MockScript};

    /// Calls the tool in each answer but the last of a run.
    #[derive(Clone)]
    struct Scripted(Arc<AtomicUsize>);

    impl Transport<MockScript> for Scripted {
        fn send(&self, _: CompletionRequest, _: Exchange) -> Opening<MockFrame> {
            let n = self.0.fetch_add(1, Ordering::Relaxed) % (ROUNDS + 1);
            let answer = if n < ROUNDS {
                let name = ToolName::new("echo").expect("a name");
                let call = ToolFunction::new(name, serde_json::json!({"x": 1}));
                AssistantContent::ToolCall(ToolCall::from_wire(format!("call-{n}"), call))
            } else {
                AssistantContent::text("done")
            };
            let origin = Origin::new("example.api", "scripted", "");
            let usage = Usage::new().total_tokens(8);
            let response =
                CompletionResponse::new(vec![answer], usage, origin, serde_json::Value::Null);
            Opening::ready(Opened::new(stream::iter([Ok(MockFrame::Response(
                Box::new(response),
            ))])))
        }
    }

    #[derive(serde::Deserialize)]
    struct Input {
        x: i32,
    }

    #[derive(Clone)]
    struct Echo;

    impl Tool for Echo {
        const NAME: &'static str = "echo";
        type Args = Input;
        type Output = i32;
        type Error = Infallible;

        fn description(&self) -> String {
            "Gives back its input".to_owned()
        }

        fn parameters(&self) -> serde_json::Value {
            serde_json::json!({"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]})
        }

        async fn call(&self, _: &mut ToolContext, input: Input) -> Result<i32, Infallible> {
            Ok(input.x)
        }
    }

    pub(super) struct Rig {
        agent: Agent,
        runtime: tokio::runtime::Runtime,
    }

    impl Rig {
        pub(super) fn new() -> Self {
            let transport = Scripted(Arc::new(AtomicUsize::new(0)));
            let model = Model::new(MockScript::new("scripted"), transport);
            let agent = AgentBuilder::named_model("scripted", model)
                .tool(Echo)
                .build();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("a runtime");
            Self { agent, runtime }
        }

        /// One run after so many messages, for each of its steps.
        pub(super) fn timed(&self, history: usize) -> Duration {
            let said = |n| {
                Message::user(format!(
                    "this is message {n:6}, and it has fifty characters.."
                ))
            };
            let history: Vec<_> = (0..history).map(said).collect();
            let start = Instant::now();
            let run = self
                .agent
                .prompt("go")
                .history(history)
                .max_turns(ROUNDS + 5);
            let answer = self.runtime.block_on(async { run.await });
            black_box(answer.expect("an answer"));
            start.elapsed() / STEPS_OF_A_RUN
        }
    }
}
