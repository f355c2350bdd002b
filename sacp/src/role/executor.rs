//! An executor whose acts are functions in this process.

use core::fmt;
use std::collections::BTreeMap;

use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::time::Now;

use super::Executor;
use super::answer::Author;
use crate::any::MessageRef;
use crate::error::Code;
use crate::graph::{Graph, Step};
use crate::plan::Act;
use crate::registry::KNOWN_VERBS;
use crate::reply::{ErrReply, Reply};
use crate::runner::{Cause, Config, Input, Output, Runner, StepInputs};

type Handler =
    Box<dyn Fn(MessageRef<'_>, &Act, &StepInputs) -> Result<RawBuf, Cause> + Send + Sync>;

/// An executor with a function for each verb and tool. It does not delegate.
///
/// ```
/// use sacp::role::{LocalExecutor, answer_alone};
/// use sacp::runner::Config;
/// use sacp::{Message, Reply};
/// use ubos_common::id::IdSource;
/// use ubos_common::json::RawBuf;
/// use ubos_common::time::{Mono, Now, Timestamp};
///
/// let executor = LocalExecutor::default()
///     .with("get", "ONE", |_, _, _| Ok(RawBuf::parse("1").unwrap()));
/// let message = Message::decode(br#"{"g":"G","plan":[["get","ONE",{}]]}"#)?;
/// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
/// let reply = answer_alone(now, &message, &executor, Config::default(), &mut IdSource::seeded(1));
/// assert!(matches!(reply, Reply::Message(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 9
#[derive(Default)]
pub struct LocalExecutor {
    handlers: BTreeMap<(String, String), Handler>,
}

impl LocalExecutor {
    /// Adds an act.
    #[must_use]
    pub fn with(
        mut self,
        verb: &str,
        tool: &str,
        handler: impl Fn(MessageRef<'_>, &Act, &StepInputs) -> Result<RawBuf, Cause>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.handlers
            .insert((verb.to_owned(), tool.to_owned()), Box::new(handler));
        self
    }
}

impl fmt::Debug for LocalExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

impl Executor for LocalExecutor {
    fn owns(&self, act: &Act) -> bool {
        self.handlers
            .contains_key(&(act.verb.clone(), act.tool.clone()))
    }

    // impl: SACP-9-1
    fn execute(
        &self,
        message: MessageRef<'_>,
        act: &Act,
        inputs: &StepInputs,
    ) -> Result<RawBuf, Cause> {
        match self.handlers.get(&(act.verb.clone(), act.tool.clone())) {
            Some(handler) => handler(message, act, inputs),
            None => Err(Cause::permanent("not an act of this agent")),
        }
    }
}

/// The answer of a single agent to a message of either edition: it runs the whole plan if it can run every act, and nothing otherwise.
/// Acts run one after the other, and waits between attempts are skipped.
///
/// Spec: SACP 9, 13
// impl: SACP-13-2
#[must_use]
pub fn answer_alone<'a>(
    now: Now,
    message: impl Into<MessageRef<'a>>,
    executor: &dyn Executor,
    config: Config,
    ids: &mut IdSource,
) -> Reply {
    let message = message.into();
    let author = Author {
        at: now.wall,
        sender: None,
        msg_id: ids.uuid().to_string(),
    };
    let mut runner = match Runner::new(message, config) {
        Ok(runner) => runner,
        Err(refused) => return author.of_reply(message, refused.reply(message)),
    };
    if let Some(error) = foreign(runner.graph(), executor) {
        return author.of_error(message, error);
    }
    let mut now = now;
    runner.start(now);
    loop {
        while let Some(output) = runner.poll_output() {
            match output {
                Output::Dispatch {
                    ticket,
                    act,
                    inputs,
                    ..
                } if runner.is_running(ticket) => {
                    let input = match executor.execute(message, &act, &inputs) {
                        Ok(output) => Input::Succeeded { ticket, output },
                        Err(cause) => Input::Failed { ticket, cause },
                    };
                    // The attempt is running, so the runner accepts its result.
                    let _ = runner.handle_input(now, input);
                }
                Output::Ended(outcome) => return author.of_run(message, &outcome),
                _ => {}
            }
        }
        // Only a step that backs off is left, so its wait is skipped.
        let Some(due) = runner.poll_timeout() else {
            let error = ErrReply::new(Code::InternalError, "the run waits for nothing");
            return author.of_error(message, error);
        };
        now = Now::new(due, now.wall);
        runner.handle_timeout(now);
    }
}

/// The error of a plan with an act that is not the executor's.
fn foreign(graph: &Graph, executor: &dyn Executor) -> Option<ErrReply> {
    let foreign = |step: &&Step| step.subtask.is_none() && !executor.owns(&step.act);
    let step = graph.steps().iter().find(foreign)?;
    let (verb, tool) = (&step.act.verb, &step.act.tool);
    let code = if KNOWN_VERBS.contains(&verb.as_str()) {
        Code::UnknownTool
    } else {
        Code::UnknownVerb
    };
    let what = format!(
        "act {}: {verb} with {tool} is not an act of this agent",
        step.place
    );
    Some(ErrReply::new(code, what).at(&step.pointer))
}
