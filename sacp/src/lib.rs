//! SACP 0.1 and 1.0: compact plans for agents, checked before they run.
//!
//! A message has a goal (`g`), a context (`ctx`) and a plan (`plan`). This crate reads
//! and writes messages of both editions, checks a plan before anything runs or any token is spent, spawns missing
//! agents, and runs the plan as a state machine whose driver dispatches the acts. It does no IO and
//! needs no runtime.
//!
//! ```text
//! role               Interface, Planner, Executor, Formatter: traits with a default each
//! runner             the machine that runs a plan: it dispatches acts and takes their results
//! check, spawn       checks of a plan against the registry and itself, with repairs; spawning
//! draw               Mermaid and DOT, with states and times
//! Graph              the one plan model behind both editions
//! validate, Source   all findings of a text with pointer, code, line and column; the answer to it
//! AnyMessage         a message of the edition that its `proto_ver` names
//! Message, Plan      0.1: types and codec, owned; `MessageView` borrows
//! v1                 1.0, and the conversion between both
//! AliasTable, line   short keys; the form that a model reads and writes
//! ```
//!
//! | feature | brings |
//! |---|---|
//! | `arbitrary` | generators of messages of both editions, for fuzzing and property tests |
//! | `driver` | `driver`: runs a plan whose tools are asynchronous, on any runtime |
//! | `tokio` | the clock and the timer of tokio for it |
//! | `tracing` | events of the runner and the orchestrator, without payloads |
//!
//! # Validating a message, and repairing a plan
//!
//! ```
//! use sacp::check::{Config, check_plan, repair};
//! use sacp::validate::{admit, findings};
//! use sacp::{Code, Reply};
//!
//! // A fault of form has a code, a pointer, a line and a column.
//! let text = b"{\"g\":\"STAY\",\n \"plan\":[[\"search\",\"H_API\"]]}";
//! let Err(Reply::Err(error)) = admit(text) else { panic!("taken") };
//! assert_eq!((error.code, error.pointer.as_deref()), (Code::MalformedPlan, Some("/plan/0")));
//! let first = findings(text, None).iter().next().unwrap().clone();
//! assert_eq!(first.position.unwrap().to_string(), "line 2 column 10");
//!
//! // A fault of the plan has repairs, best first.
//! let text = br#"{"g":"STAY","ctx":{"budget":100},"plan":[["book","H_API",{"budget":250}]]}"#;
//! let message = admit(text).unwrap();
//! let wrong = check_plan(&message, None, &Config::default());
//! assert_eq!(wrong[0].repairs[0].to_string(), r#"set the parameter "budget" at /plan/0 to 100"#);
//! assert!(check_plan(&repair(&message, &wrong[0].repairs[0])?, None, &Config::default()).is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Running a plan
//!
//! Reading a message and running its plan:
//!
//! ```
//! use sacp::runner::{Config, Input, Output, Runner};
//! use sacp::{Message, Reply};
//! use sacp::ubos_common::id::IdSource;
//! use sacp::ubos_common::json::RawBuf;
//! use sacp::ubos_common::time::{Mono, Now, Timestamp};
//!
//! let text = br#"{"msg_id":"m1","g":"ADD","plan":[
//!     {"parallel":[["get","ONE",{}],["get","TWO",{}]]},
//!     ["join","SUM",{}]]}"#;
//! let message = Message::decode(text)?;
//! let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
//! let mut runner = Runner::new(&message, Config::default())?;
//! runner.start(now);
//! let outcome = loop {
//!     match runner.poll_output().expect("the runner waits for nothing else") {
//!         Output::Dispatch { ticket, act, .. } => {
//!             let output = RawBuf::parse(if act.is_join() { "3" } else { "1" })?;
//!             runner.handle_input(now, Input::Succeeded { ticket, output })?;
//!         }
//!         Output::Ended(outcome) => break outcome,
//!         _ => {}
//!     }
//! };
//! let answer = outcome.answer(now.wall, &message, &mut IdSource::seeded(1));
//! let Reply::Message(reply) = answer else { panic!() };
//! assert_eq!(reply.context.unwrap()["result"].as_str(), "3");
//! assert_eq!(reply.reply_to.as_deref(), Some("m1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod alias;
mod any;
#[cfg(feature = "arbitrary")]
mod arbitrary;
pub mod check;
pub mod draw;
#[cfg(feature = "driver")]
pub mod driver;
mod error;
mod graph;
mod limits;
pub mod line;
mod message;
mod plan;
pub mod prompt;
pub mod registry;
mod reply;
pub mod role;
pub mod runner;
mod source;
pub mod spawn;
mod state;
mod trace;
mod tree;
pub mod v1;
pub mod validate;
mod view;

pub use alias::{AliasError, AliasTable};
pub use any::{AnyMessage, Edition, MessageRef};
pub use error::{Code, ParamsError};
pub use graph::{Graph, OnError, Policy, Retry, Scope, Step};
pub use message::{Message, NonEmpty, OutFmt, State, Version};
pub use plan::{Act, Item, Plan};
pub use reply::{Clarify, ErrReply, Foreign, Reply};
pub use source::{Source, Span};
pub use ubos_common;
pub use ubos_common::ConfigError;
pub use view::{ActView, ItemView, MessageView};

/// The README's examples.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
