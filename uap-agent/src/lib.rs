//! UAP-1.1: agents over the models, tools and messages of `upp`.
//!
//! An agent is a model, its tools and a strategy. A run is a function of input and state: it gives a turn and a new
//! state, and the old one stays as it is. Everything that a run does is decided by a machine without IO
//! ([`engine::Engine`]); generating, streaming and asking are that machine, driven over futures, with its events
//! drained or handed on. No type of `upp` is wrapped or handed on by this crate: use both.
//!
//! ```text
//! agent()              options, generate, stream, ask, query     feature `driver`
//! engine               steps, tools, hooks, saves as effects     no IO
//! strategy             loop, react, plan, your own: what is next no IO
//! state, tree, event   immutable snapshots, their branches, their JSON
//! journal, trace       a run that is gone on with after a kill, or looked at
//! ```
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::{AgentOptions, ReactOptions, agent, react};
//! use upp::{FnTool, Reply, ScriptedModel, json_text, object};
//!
//! let weather = FnTool::new("weather", "Says the weather", object(r#"{"type":"object"}"#)?, |_, _| async {
//!     Ok(json_text("rain"))
//! });
//! let model = ScriptedModel::new([
//!     Reply::text("I should look."),
//!     Reply::silent().calling("c1", "weather", object("{}")?),
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
//! [`guide`] goes on from here: tools, strategies, streams, layers, checkpoints, a strategy of your own.
//!
//! There are no limits by default: a run ends when the model calls no more tools, when
//! [`AgentStrategy::stop_condition`] says so, or at a limit that the developer has set.
//!
//! | feature | what it adds | default |
//! |---|---|---|
//! | `driver` | [`agent`](agent()) and its calls, on any async runtime | yes |
//! | `os` | time and ids of the operating system where no runtime is given; with `driver`, checkpoints in files | yes |
//! | `schema` | [`repair`](repair::repair) looks at arguments and outputs with their JSON Schema | no |
//! | `arbitrary` | generators of states and thread trees, for fuzzing | no |
//! | `conformance` | `conformance`: tests of anybody's agents, by what they leave behind | no |
//! | `testing` | what every store of checkpoints and every strategy must do, for who writes one; streams equal generating | no |
//! | `canon` | `journal`: runs that are recorded, resumed, replayed, forked and compared | no |
//! | `log` | `canon`; with `driver` and `os`, checkpoints in files that only grow, with their history, and journals in files | no |

#[cfg(feature = "driver")]
mod agent;
#[cfg(feature = "arbitrary")]
pub mod arbitrary;
pub mod checkpoint;
pub mod engine;
pub mod event;
#[cfg(all(doc, feature = "driver", feature = "os"))]
pub mod guide;
pub mod hooks;
#[cfg(feature = "canon")]
pub mod journal;
pub mod middleware;
mod order;
pub mod repair;
mod result;
pub mod state;
pub mod strategy;
#[cfg(feature = "driver")]
mod subagent;
pub mod trace;
mod trace_event;
pub mod tree;

#[cfg(all(feature = "driver", feature = "canon"))]
pub use agent::RecordedAgent;
#[cfg(feature = "driver")]
pub use agent::{AbortHandle, Agent, AgentInput, AgentOptions, AgentStreamResult, Runtime, agent};
#[cfg(all(feature = "driver", feature = "os"))]
pub use checkpoint::FileCheckpoints;
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
pub use checkpoint::LogCheckpoints;
pub use checkpoint::{
    CheckpointError, CheckpointHistory, CheckpointMetadata, CheckpointStore, MemoryCheckpoints,
};
pub use event::{AgentStreamEvent, EventData, UapEvent, UapEventType};
pub use hooks::AgentStrategy;
pub use middleware::{Middleware, MiddlewareContext};
pub use repair::RepairPolicy;
pub use result::{AgentError, ExecutionResult, GenerateResult};
pub use state::{
    AgentState, AgentStateJson, PlanStep, PlanStepStatus, StateId, SubagentExecutionTrace,
    ToolExecutionTrace,
};
pub use strategy::{
    ExecutionContext, ExecutionStrategy, LoopOptions, PlanOptions, ReactOptions, plan, react,
    tool_loop,
};
#[cfg(feature = "driver")]
pub use subagent::{RunScope, SubagentTool};
pub use tree::{ThreadNode, ThreadTree};
