//! The four roles of section 9 as traits, with defaults that work without a model.

use crate::check::{Gap, gaps};
use crate::error::Code;
use crate::message::Message;
use crate::registry::Registry;
use crate::reply::{Clarify, ErrReply, Reply};

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

/// What a planner gives back.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Planned {
    /// The message.
    pub message: Message,
    /// Acts that somebody must be spawned for.
    pub missing: Vec<Gap>,
}

impl Planned {
    /// What a planner gives back.
    #[must_use]
    pub const fn new(message: Message, missing: Vec<Gap>) -> Self {
        Self { message, missing }
    }
}

/// Renders an answer for a person: the one role that may write prose.
///
/// Spec: SACP 9
pub trait Formatter {
    /// The prose.
    fn format(&self, message: &Message) -> String;
}

/// The default planner: takes a plan as it is and holds it against the registry.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "a unit, used by its name")]
pub struct RegistryPlanner;

impl Planner for RegistryPlanner {
    fn plan(&self, message: &Message, registry: &dyn Registry) -> Result<Planned, Box<Reply>> {
        if message.plan.is_empty() {
            let mut clarify = Clarify::new(["plan"], "nothing to do");
            clarify.reply_to = message.msg_id.as_ref().map(|id| id.as_str().to_owned());
            return Err(Box::new(Reply::Clarify(clarify)));
        }
        let missing = gaps(message, registry);
        if let Some(gap) = missing.iter().find(|gap| !gap.can_be_spawned()) {
            let why = format!(
                "act {}: {} does not go with {}",
                gap.number, gap.verb, gap.tool
            );
            let error = ErrReply::new(gap.code, why).at(&gap.pointer).to(message);
            return Err(Box::new(Reply::Err(error)));
        }
        Ok(Planned::new(message.clone(), missing))
    }
}

/// Holds what a planner returns against what it was given: goal and context are the sender's.
///
/// # Errors
///
/// [`Code::MalformedMessage`] naming what was changed.
///
/// Spec: SACP 9
pub fn keeps_constraints(before: &Message, after: &Message) -> Result<(), ErrReply> {
    if before.g != after.g {
        return Err(ErrReply::new(Code::MalformedMessage, "the planner changed the goal").at("/g"));
    }
    let kept =
        before.context.iter().flatten().all(|(name, value)| {
            after.context.as_ref().and_then(|ctx| ctx.get(name)) == Some(value)
        });
    if kept {
        Ok(())
    } else {
        Err(ErrReply::new(Code::MalformedMessage, "the planner changed the context").at("/ctx"))
    }
}
