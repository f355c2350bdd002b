//! SACP 0.1: compact plans for agents, made safe.
//!
//! A message says what is wanted (`g`), under which circumstances (`ctx`), and how (`plan`: acts in order,
//! groups of acts side by side, joins). This crate reads and writes messages, checks a plan against a
//! [`Registry`](registry::Registry) before anything runs, spawns what is missing, and runs the plan as a
//! state machine that asks its driver to dispatch acts. It does no IO and knows no runtime.
//!
//! ```text
//! role::*         Interface, Planner, Executor, Formatter: traits with defaults that need no model
//! runner          the machine: dispatch out, outcomes in
//! check, spawn    a plan against the registry; what to spawn
//! validate        all findings of a message, with pointer and code
//! message, plan   types and codec
//! ```
//!
//! Reading a message and running its plan:
//!
//! ```
//! use sacp::runner::{Config, Input, Output, Runner};
//! use sacp::{Message, Reply};
//! use ubos_common::json::RawBuf;
//! use ubos_common::machine::Machine as _;
//! use ubos_common::time::{Mono, Now, Timestamp};
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
//! let Reply::Message(reply) = outcome.answer(&message, "m2") else { panic!() };
//! assert_eq!(reply.context.unwrap()["result"].as_str(), "3");
//! assert_eq!(reply.reply_to.as_deref(), Some("m1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Not here yet: the 1.0 profile, aliases, embeddings, fallbacks, prompts and pictures.

pub mod alias;
pub mod any;
#[cfg(feature = "arbitrary")]
mod arbitrary;
pub mod check;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod draw;
pub mod error;
pub mod graph;
pub mod limits;
pub mod line;
pub mod message;
pub mod plan;
pub mod prompt;
pub mod registry;
pub mod reply;
pub mod role;
pub mod runner;
pub mod source;
pub mod spawn;
mod tree;
pub mod v1;
pub mod validate;
pub mod view;

pub use any::{AnyMessage, Edition};
pub use error::Code;
pub use message::{Message, OutFmt, State};
pub use plan::{Act, Group, Item, Plan, Step};
pub use reply::{Clarify, ErrReply, Reply};
