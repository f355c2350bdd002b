//! A stream comes to what generating comes to.

use core::future::pending;
use std::sync::Arc;

use futures::StreamExt as _;
use futures_core::future::BoxFuture;
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::json::{Write, to_string};
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{ErrorCode, List, Turn, UppError};

use uap_agent::AgentState;
use uap_agent::{AgentError, GenerateResult};
use uap_agent::{AgentOptions, Runtime, agent};

/// How a stream comes to something else than generating does. `reading` says how the stream was read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamFault {
    /// No agent can be made of the options.
    #[error("no agent can be made of the options")]
    Options(#[source] UppError),
    /// One fails, the other does not.
    #[error("{reading}: generating {generate}, the stream {stream}")]
    Ends {
        /// How the stream was read.
        reading: &'static str,
        /// How generating ends.
        generate: &'static str,
        /// How the stream ends.
        stream: &'static str,
    },
    /// Both fail, each with another error.
    #[error("{reading}: generating fails with {generate}, the stream with {stream}")]
    Error {
        /// How the stream was read.
        reading: &'static str,
        /// What generating fails with.
        generate: ErrorCode,
        /// What the stream fails with; it may be the same code with another text.
        stream: ErrorCode,
    },
    /// The states differ.
    #[error("{reading}: the states differ at {at}")]
    State {
        /// How the stream was read.
        reading: &'static str,
        /// A pointer to the first difference.
        at: String,
    },
    /// The turns differ.
    #[error("{reading}: the turns differ at {at}")]
    Turn {
        /// How the stream was read.
        reading: &'static str,
        /// A pointer to the first difference.
        at: String,
    },
    /// The state that the run began with is not what it was.
    #[error("{reading}: the state that the run began with has changed")]
    StateChanged {
        /// How the stream was read.
        reading: &'static str,
    },
}

/// Runs an agent by generating and by streams, read to the end, in part and not at all, and compares all that they
/// come to: turn and state, or the error with what it carries, to the last id.
///
/// `make` gives the options of one agent and is called for each run: its model, tools and hooks must be as at the
/// first call. Time stands still, and all ids come from one seed; a runtime that the options bring is replaced.
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::{AgentOptions, ReactOptions, react};
/// use ubos_conformance::uap::check_stream_equals_generate;
/// use upp::{Reply, ScriptedModel};
///
/// let strategy = react(ReactOptions::default())?;
/// let make = || {
///     let model = ScriptedModel::new([Reply::text("I think"), Reply::text("I am")]);
///     AgentOptions::new(Arc::new(model)).with_execution(Arc::clone(&strategy))
/// };
/// futures::executor::block_on(check_stream_equals_generate(make, "are you?"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The first difference.
///
/// Spec: UAP-1.1 11.3
pub async fn check_stream_equals_generate(
    mut make: impl FnMut() -> AgentOptions,
    input: &str,
) -> Result<(), StreamFault> {
    let generated = run(make(), input, None, "generating").await?;
    let readings = [
        (usize::MAX, "read to the end"),
        (3, "read for three events"),
        (0, "not read"),
    ];
    for (events, reading) in readings {
        let streamed = run(make(), input, Some(events), reading).await?;
        same(&generated, &streamed, reading)?;
    }
    Ok(())
}

type RunResult = Result<GenerateResult, Box<AgentError>>;

async fn run(
    options: AgentOptions,
    input: &str,
    events: Option<usize>,
    reading: &'static str,
) -> Result<RunResult, StreamFault> {
    let runtime = Runtime::new(Arc::new(StoppedClock), IdSource::seeded(11));
    let agent = agent(options.with_runtime(runtime)).map_err(StreamFault::Options)?;
    let start = agent.initial_state();
    let before = start.to_json();
    let result = match events {
        None => agent.generate(input, &start).await,
        Some(most) => {
            let mut stream = agent.stream(input, &start);
            let mut taken = 0;
            while taken < most && stream.next().await.is_some() {
                taken += 1;
            }
            stream.result().await
        }
    };
    if start.to_json() == before {
        Ok(result)
    } else {
        Err(StreamFault::StateChanged { reading })
    }
}

fn same(
    generated: &RunResult,
    streamed: &RunResult,
    reading: &'static str,
) -> Result<(), StreamFault> {
    let (states, turns) = match (generated, streamed) {
        (Ok(a), Ok(b)) => ((&a.state, &b.state), (Some(&a.turn), Some(&b.turn))),
        (Err(a), Err(b)) => {
            if to_string(&a.error) != to_string(&b.error) {
                return Err(StreamFault::Error {
                    reading,
                    generate: a.error.code.clone(),
                    stream: b.error.code.clone(),
                });
            }
            ((&a.state, &b.state), (a.turn.as_ref(), b.turn.as_ref()))
        }
        (a, b) => {
            return Err(StreamFault::Ends {
                reading,
                generate: ending(a),
                stream: ending(b),
            });
        }
    };
    if let Some(at) = state_differs(states.0, states.1) {
        return Err(StreamFault::State { reading, at });
    }
    match turns {
        (Some(a), Some(b)) => match turn_differs(a, b) {
            Some(at) => Err(StreamFault::Turn { reading, at }),
            None => Ok(()),
        },
        (None, None) => Ok(()),
        _ => {
            let at = String::new();
            Err(StreamFault::Turn { reading, at })
        }
    }
}

const fn ending(result: &RunResult) -> &'static str {
    match result {
        Ok(_) => "succeeds",
        Err(_) => "fails",
    }
}

fn state_differs(a: &AgentState, b: &AgentState) -> Option<String> {
    if a == b {
        return None;
    }
    let lists = list_differs("/messages", a.messages(), b.messages())
        .or_else(|| list_differs("/reasoning", a.reasoning(), b.reasoning()))
        .or_else(|| list_differs("/subagentTraces", a.subagent_traces(), b.subagent_traces()));
    let other = || {
        let metadata = a
            .metadata()
            .iter()
            .map(|(key, value)| (key, value.as_str()));
        let others = b
            .metadata()
            .iter()
            .map(|(key, value)| (key, value.as_str()));
        if a.step() != b.step() {
            "/step"
        } else if a.plan() != b.plan() {
            "/plan"
        } else if !metadata.eq(others) {
            "/metadata"
        } else if a.id() != b.id() {
            "/id"
        } else {
            ""
        }
    };
    lists.or_else(|| Some(other().to_owned()))
}

fn turn_differs(a: &Turn, b: &Turn) -> Option<String> {
    if a == b {
        return None;
    }
    let lists = list_differs("/messages", &a.messages, &b.messages)
        .or_else(|| list_differs("/toolExecutions", &a.tool_executions, &b.tool_executions));
    let other = || {
        if a.usage != b.usage {
            "/usage"
        } else if a.cycles != b.cycles {
            "/cycles"
        } else if a.data != b.data {
            "/data"
        } else {
            "/response"
        }
    };
    lists.or_else(|| Some(other().to_owned()))
}

fn list_differs<T: Write>(name: &str, a: &List<T>, b: &List<T>) -> Option<String> {
    let differs = a
        .iter()
        .zip(b.iter())
        .position(|(a, b)| to_string(a) != to_string(b));
    let longer = || (a.len() != b.len()).then(|| a.len().min(b.len()));
    differs.or_else(longer).map(|n| format!("{name}/{n}"))
}

/// A clock that stands still.
struct StoppedClock;

impl Sleep for StoppedClock {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    }

    fn sleep_until(&self, _deadline: Mono) -> BoxFuture<'static, ()> {
        Box::pin(pending())
    }
}
