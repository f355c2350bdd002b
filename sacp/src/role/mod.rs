//! The four roles of section 9 as traits, with a default each, and what connects them.
//!
//! | role | trait | default |
//! |---|---|---|
//! | turns words into a message | [`Interface`] | [`ModelInterface`] |
//! | completes a plan | [`Planner`] | [`RegistryPlanner`] |
//! | carries out acts | [`Executor`] | [`LocalExecutor`] |
//! | renders prose | [`Formatter`] | [`PlainFormatter`] |
//!
//! An [`Orchestrator`](orchestrator::Orchestrator) takes one message through spawning, delegation, [output discipline](admit)
//! and its answer. An [`Authorizer`] says who may ask it for what. An [`Inbox`] gives the answer to a repeated message again.
//!
//! Spec: SACP 4, 9

mod answer;
mod authorize;
mod discipline;
mod executor;
mod formatter;
mod inbox;
mod interface;
pub mod orchestrator;
mod planner;
mod tracker;

use crate::any::MessageRef;
use crate::message::Message;
use crate::plan::Act;
use crate::registry::Registry;
use crate::reply::{Clarify, Reply};
use crate::runner::{Cause, StepInputs};
use ubos_common::json::RawBuf;

pub(crate) use answer::Author;
pub use authorize::{Access, AllowList, Authorizer, Grant};
pub use discipline::{Answer, AnswerForm, admit};
pub use executor::{LocalExecutor, answer_alone};
pub use formatter::PlainFormatter;
pub use inbox::{Arrival, Inbox};
pub use interface::ModelInterface;
pub use planner::{Planned, RegistryPlanner, keeps_constraints};
pub use tracker::{StateError, Tracker};

/// Turns a person's words into a message.
///
/// Spec: SACP 9
pub trait Interface {
    /// A valid message whose acts are registered or can be spawned.
    ///
    /// # Errors
    ///
    /// The words lack something: the question to ask.
    fn interpret(&self, words: &str) -> Result<Message, Clarify>;
}

/// Completes the plan of a message.
///
/// Spec: SACP 9
pub trait Planner {
    /// The message with its plan expanded, and the acts that the registry cannot serve. Goal and context are kept.
    ///
    /// # Errors
    ///
    /// The plan cannot be completed.
    fn plan(&self, message: MessageRef<'_>, registry: &dyn Registry)
    -> Result<Planned, Box<Reply>>;
}

/// Carries out acts.
///
/// Spec: SACP 9
pub trait Executor {
    /// Whether an act has one of its verbs and tools.
    fn owns(&self, act: &Act) -> bool;

    /// Runs one act, with the outputs of its dependencies. The output is structured, never prose.
    ///
    /// # Errors
    ///
    /// The act failed.
    fn execute(
        &self,
        message: MessageRef<'_>,
        act: &Act,
        inputs: &StepInputs,
    ) -> Result<RawBuf, Cause>;
}

/// Renders an answer for a person: the one role, besides Interface, that may write prose.
///
/// Spec: SACP 9
pub trait Formatter {
    /// The prose.
    fn format(&self, message: MessageRef<'_>) -> String;
}
