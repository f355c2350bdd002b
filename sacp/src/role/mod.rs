//! The four roles of section 9 as traits, with defaults that work without a model, and what stands between them.
//!
//! | role | trait | default |
//! |---|---|---|
//! | turns words into a message | [`Interface`] | [`WordInterface`] |
//! | completes a plan | [`Planner`] | [`RegistryPlanner`], [`RecipePlanner`] |
//! | carries out acts | [`Executor`] | [`LocalExecutor`] |
//! | renders prose | [`Formatter`] | [`PlainFormatter`] |
//!
//! An [`Orchestrator`](orchestrator::Orchestrator) takes one message through spawning, delegation, [output discipline](admit)
//! and its answer. An [`Inbox`] gives the answer to a repeated message again.
//!
//! Spec: SACP 4, 9

mod discipline;
mod executor;
mod formatter;
mod inbox;
mod interface;
pub mod orchestrator;
mod planner;

use crate::message::Message;
use crate::plan::Act;
use crate::registry::Registry;
use crate::reply::{Clarify, Reply};
use crate::runner::{Cause, StepInputs};
use ubos_common::json::RawBuf;

pub use discipline::{Admitted, AnswerForm, admit};
pub use executor::{LocalExecutor, answer_alone};
pub use formatter::{Labels, PlainFormatter};
pub use inbox::{Arrival, Inbox};
pub use interface::WordInterface;
pub use planner::{Planned, RecipePlanner, RegistryPlanner, keeps_constraints};

/// Turns a person's words into a message.
///
/// Spec: SACP 9
pub trait Interface {
    /// A message that validates and whose every act is registered or may be spawned.
    ///
    /// # Errors
    ///
    /// What cannot be told from the words.
    fn interpret(&self, words: &str) -> Result<Message, Clarify>;
}

/// Completes a message's plan.
///
/// Spec: SACP 9
pub trait Planner {
    /// The message with its plan expanded, goal and context kept; and the acts that the registry cannot serve.
    ///
    /// # Errors
    ///
    /// The plan cannot be made to work.
    fn plan(&self, message: &Message, registry: &dyn Registry) -> Result<Planned, Box<Reply>>;
}

/// Carries out acts.
///
/// Spec: SACP 9
pub trait Executor {
    /// Whether an act is its own.
    fn owns(&self, act: &Act) -> bool;

    /// Carries out one act, with the outputs of the acts that it waited for. Structured, never prose.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn execute(&self, message: &Message, act: &Act, inputs: &StepInputs) -> Result<RawBuf, Cause>;
}

/// Renders an answer for a person: the one role, besides Interface, that may write prose.
///
/// Spec: SACP 9
pub trait Formatter {
    /// The prose.
    fn format(&self, message: &Message) -> String;
}
