//! UAP-1.1: agents over the models, tools and messages of `upp`.
//!
//! An agent is a model, its tools and an execution strategy. A run is a function of input and state: it returns a turn and
//! a new state, and the state that it started from is not changed. A state machine without IO ([`engine::Engine`])
//! decides what a run does; `generate`, `stream` and `ask` drive that machine over futures. This crate neither wraps nor
//! re-exports types of `upp`: a program depends on both.
//!
//! ```text
//! agent()              options, generate, stream, ask, query     feature `driver`
//! engine               steps, tools, hooks and saves as effects  no IO
//! strategy             loop, react, plan, your own               no IO
//! AgentState, ThreadTree  immutable states, trees of them, and their JSON
//! CheckpointStore      states that outlive the process, in memory and in files
//! journal, Trace       runs that are recorded and resumed, or displayed
//! ```
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::{AgentOptions, ReactOptions, agent, react};
//! use upp::{FnTool, Reply, ScriptedModel, json_text, object};
//!
//! let weather = FnTool::new("weather", "The weather", object(r#"{"type":"object"}"#)?, |_, _| async {
//!     Ok(json_text("rain"))
//! });
//! let model = ScriptedModel::new([
//!     Reply::text("I should look."),
//!     Reply::default().calling("c1", "weather", object("{}")?),
//!     Reply::text("Now I know."),
//!     Reply::text("Take an umbrella."),
//! ]);
//! let options = AgentOptions::new(Arc::new(model))
//!     .with_tools([Arc::new(weather) as Arc<dyn upp::Tool>])
//!     .with_execution(react(ReactOptions::default())?);
//! let agent = agent(options)?;
//! let turn = futures::executor::block_on(agent.query("Do I need an umbrella?"))?;
//! assert_eq!(turn.response.text(), "Take an umbrella.");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`guide`] continues from here: tools, strategies, streams, middleware, checkpoints, a strategy of your own.
//!
//! There are no limits by default: a run ends when the model calls no more tools, when
//! [`AgentStrategy::stop_condition`] returns true, or at a limit that the options set.
//!
//! | feature | what it adds | default |
//! |---|---|---|
//! | `driver` | [`agent`](agent()) and its calls, on any async runtime | yes |
//! | `os` | `canon`; the clock and the ids of the operating system; with `driver`, checkpoints in files | yes |
//! | `schema` | [`repair`](repair()) checks arguments and outputs against their JSON Schema | no |
//! | `schemars` | sub-agents whose arguments are Rust types | no |
//! | `canon` | `journal`: runs that are recorded, resumed, replayed, forked and compared | yes, by `os` |
//! | `log` | `canon`; with `driver` and `os`, append-only checkpoints with their history, and journals in files | no |
//! | `sqlite` | `log`; [`sql`]: journals and checkpoints of many agents in one SQLite database | no |
//! | `postgres` | `log`; the same in PostgreSQL | no |
//! | `tracing` | spans of runs, plans, requests and tools by OpenTelemetry's conventions, and trace events of the state machines: ids, counts and sizes, never payloads | no |
//! | `arbitrary` | generators of states and thread trees, for fuzzing | no |
//! | `external-tests` | tests that start a PostgreSQL server, from the binaries in `/usr/lib/postgresql` or the path | no |

#[cfg(feature = "driver")]
mod agent;
mod approval;
#[cfg(feature = "arbitrary")]
pub mod arbitrary;
mod checkpoint;
pub mod engine;
mod event;
#[cfg(all(doc, feature = "driver", feature = "os"))]
pub mod guide;
mod hooks;
#[cfg(feature = "canon")]
pub mod journal;
pub mod middleware;
mod repair;
mod result;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub mod sql;
mod state;
pub mod strategy;
#[cfg(feature = "driver")]
mod subagent;
mod tools;
mod trace;
mod trace_event;
mod tree;
#[cfg(all(feature = "driver", feature = "os"))]
mod work_thread;

#[cfg(feature = "driver")]
pub use agent::{
    Agent, AgentInput, AgentOptions, AgentSession, AgentStreamResult, RunScope, Runtime, agent,
};
pub use approval::{ApprovalPolicy, ApprovalRequest};
#[cfg(all(feature = "driver", feature = "os"))]
pub use checkpoint::{CheckpointConfig, CorruptFile, FileCheckpoints};
pub use checkpoint::{
    CheckpointError, CheckpointHistory, CheckpointMetadata, CheckpointStore,
    MemoryCheckpointConfig, MemoryCheckpoints, Seal, SealError, StoreFuture,
};
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
pub use checkpoint::{CutTail, LogCheckpoints};
pub use event::{
    AgentStreamEvent, EventData, SubagentData, SubagentEnd, SubagentEvent, UapEvent, UapEventType,
};
pub use hooks::{AgentStrategy, HookAnswer, HookCall, HookFuture};
pub use middleware::{Middleware, MiddlewareContext};
pub use repair::{CallVerdict, OutputVerdict, RepairOptions, RepairPolicy, repair};
pub use result::{AgentError, ExecutionResult, GenerateResult};
pub use state::{
    AgentState, AgentStateJson, PlanStep, PlanStepStatus, PlanSteps, StateError, StateId,
    SubagentExecutionTrace, ToolExecutionTrace,
};
pub use strategy::{
    ExecutionContext, ExecutionStrategy, LoopOptions, PlanOptions, ReactOptions, plan, react,
    tool_loop,
};
#[cfg(feature = "driver")]
pub use subagent::SubagentTool;
pub use trace::{LeftOut, Trace, TraceError, TraceLimits};
pub use tree::{BranchError, NodeId, ThreadNode, ThreadTree};
/// The shared foundation: ids, time, JSON and the machine interface that this crate's API uses.
pub use ubos_common;

/// The README's example.
#[cfg(all(doctest, feature = "driver", feature = "os"))]
#[doc = include_str!("../README.md")]
struct Readme;
