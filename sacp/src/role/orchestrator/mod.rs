//! The orchestrator: takes one message from validation to its answer.

mod access;
mod answer;
mod config;
mod delegate;
mod dispatch;
mod event;
mod resume;
mod saved;
mod spawning;

use std::collections::BTreeMap;

use ubos_common::id::IdSource;
use ubos_common::machine::Outbox;
use ubos_common::time::{Mono, Now};
use ubos_common::violation::Violation;

use crate::ConfigError;
use crate::any::AnyMessage;
use crate::check::Gap;
use crate::error::Code;
use crate::registry::Registry;
use crate::reply::ErrReply;
use crate::runner::{self, Runner, Ticket};
use crate::v1;

use delegate::Open;

pub use config::OrchestratorConfig;
pub use event::{Decision, Delegation, Input, OrchestratorError, Output, RestoreError};

/// Takes one message through spawning, delegation and output discipline to its answer.
///
/// It [checks](mod@crate::check) the plan before it spawns or delegates anything, and delegates nothing before an agent
/// exists for every act. A delegated act is raw, whatever the `out_fmt` of the
/// message, except for an agent that may write prose in a message that asks for `human`. The orchestrator itself runs a
/// join with the tool `MERGE`: its output is the list of its inputs.
///
/// ```
/// use sacp::registry::{AgentRecord, MemoryRegistry, Registry, ToolDef, VerbDef};
/// use sacp::role::Answer;
/// use sacp::role::orchestrator::{Input, Orchestrator, OrchestratorConfig, Output};
/// use sacp::{Message, Reply};
/// use sacp::ubos_common::id::IdSource;
/// use sacp::ubos_common::json::RawBuf;
/// use sacp::ubos_common::time::{Mono, Now, Timestamp};
///
/// let mut registry = MemoryRegistry::default();
/// registry.add_verb(VerbDef::new("get".into(), "Gets".into(), vec![], RawBuf::parse("\"number\"")?))?;
/// registry.add_tool(ToolDef::new("ONE".into(), "One".into(), vec!["get".into()]))?;
/// registry.add_agent(AgentRecord::new("A".into(), vec!["get".into()], vec!["ONE".into()], vec![], vec![], "".into()))?;
///
/// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
/// let message = Message::decode(br#"{"msg_id":"m","g":"G","plan":[["get","ONE",{}]]}"#)?;
/// let mut orchestrator =
///     Orchestrator::new(now, message, registry, OrchestratorConfig::default(), IdSource::seeded(1))?;
/// let Some(Output::Delegate(delegation)) = orchestrator.poll_output() else { panic!() };
/// let bytes = br#"{"g":"G","plan":[],"ctx":{"result":1},"state":"DONE"}"#.to_vec();
/// orchestrator.handle_input(now, Input::Answered { ticket: delegation.ticket, bytes })?;
/// let Some(Output::Answer(answer)) = orchestrator.poll_output() else { panic!() };
/// let Answer::Reply(Reply::Message(answer)) = *answer else { panic!() };
/// assert_eq!(answer.context.unwrap()["result"].as_str(), "1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 3, 4, 9, 14
#[derive(Debug)]
pub struct Orchestrator<R> {
    request: AnyMessage,
    registry: R,
    config: OrchestratorConfig,
    ids: IdSource,
    stage: Stage,
    spawned: usize,
    /// The gap that was closed last, and the agent that closed it.
    last_spawn: Option<(Gap, String)>,
    /// Verbs and tools whose agents were spawned in test mode: nothing is registered for them.
    simulated_spawns: Vec<(String, String)>,
    /// Open delegations.
    open: BTreeMap<Ticket, Open>,
    /// The run to continue, until every act has an agent.
    saved: Option<saved::Saved>,
    /// MUST findings about the plan that the configuration overrules.
    overruled: Vec<Violation>,
    /// What the agents say that they took of tokens and money.
    spent: v1::Metrics,
    out: Outbox<Output>,
}

#[derive(Debug)]
enum Stage {
    Spawning(Box<(Gap, AnyMessage)>),
    Running(Box<Runner>),
    Finished,
}

impl<R: Registry> Orchestrator<R> {
    /// An orchestrator for a valid message of either edition. It starts at once.
    ///
    /// Several orchestrators can use one registry through [`Shared`](crate::registry::Shared).
    ///
    /// # Errors
    ///
    /// The configuration cannot work.
    pub fn new(
        now: Now,
        request: impl Into<AnyMessage>,
        registry: R,
        config: OrchestratorConfig,
        ids: IdSource,
    ) -> Result<Self, ConfigError> {
        let mut orchestrator = Self::idle(request.into(), registry, config, ids)?;
        orchestrator.prepare(now);
        Ok(orchestrator)
    }

    /// One that has not looked at its message.
    fn idle(
        request: AnyMessage,
        registry: R,
        config: OrchestratorConfig,
        ids: IdSource,
    ) -> Result<Self, ConfigError> {
        config.run.check()?;
        let bound = config.run.max_outputs();
        Ok(Self {
            request,
            registry,
            config,
            ids,
            stage: Stage::Finished,
            spawned: 0,
            last_spawn: None,
            simulated_spawns: Vec::new(),
            open: BTreeMap::new(),
            saved: None,
            overruled: Vec::new(),
            spent: v1::Metrics::new(),
            out: Outbox::new(bound),
        })
    }

    /// Takes an input.
    ///
    /// # Errors
    ///
    /// The message is answered, or no open delegation or spawn waits for this input.
    pub fn handle_input(&mut self, now: Now, input: Input) -> Result<(), OrchestratorError> {
        if matches!(self.stage, Stage::Finished) {
            return Err(OrchestratorError::Closed);
        }
        match input {
            Input::Answered { ticket, bytes } => return self.on_answer(now, ticket, &bytes),
            Input::Failed { ticket, cause } => {
                self.open
                    .remove(&ticket)
                    .ok_or(OrchestratorError::NotRequested)?;
                self.report(now, runner::Input::Failed { ticket, cause });
            }
            Input::Progress { ticket } => {
                if !self.open.contains_key(&ticket) {
                    return Err(OrchestratorError::NotRequested);
                }
                self.report(now, runner::Input::Progress { ticket });
            }
            Input::Spawned(reply) => return self.on_spawned(now, &reply),
        }
        self.drain_runner(now);
        Ok(())
    }

    /// Cancels the message: open delegations are cancelled, and the sender gets an error.
    ///
    /// # Errors
    ///
    /// The message is answered.
    pub fn cancel(&mut self, now: Now) -> Result<(), OrchestratorError> {
        match &mut self.stage {
            Stage::Finished => return Err(OrchestratorError::Closed),
            Stage::Spawning(_) => self.refuse(now, ErrReply::new(Code::StepFailed, "cancelled")),
            Stage::Running(runner) => {
                // A runner that has ended has left this stage.
                let _ = runner.cancel(now);
                self.drain_runner(now);
            }
        }
        Ok(())
    }

    /// Delegates nothing more; open delegations go on. [`Output::Paused`] follows when none is left.
    ///
    /// # Errors
    ///
    /// The message is answered, or an agent for it is still spawned.
    pub fn pause(&mut self, now: Now) -> Result<(), OrchestratorError> {
        let runner = self.running()?;
        runner.pause(now).map_err(|_| OrchestratorError::Closed)?;
        self.drain_runner(now);
        Ok(())
    }

    /// Delegates again after a [`pause`](Self::pause).
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause).
    pub fn resume(&mut self, now: Now) -> Result<(), OrchestratorError> {
        let runner = self.running()?;
        runner.resume(now).map_err(|_| OrchestratorError::Closed)?;
        self.drain_runner(now);
        Ok(())
    }

    fn running(&mut self) -> Result<&mut Runner, OrchestratorError> {
        match &mut self.stage {
            Stage::Running(runner) => Ok(runner),
            Stage::Spawning(_) => Err(OrchestratorError::NotRequested),
            Stage::Finished => Err(OrchestratorError::Closed),
        }
    }

    /// Does what is due at `now`: the timeouts of the run.
    pub fn handle_timeout(&mut self, now: Now) {
        if let Stage::Running(runner) = &mut self.stage {
            runner.handle_timeout(now);
            self.drain_runner(now);
        }
    }

    /// The next output; `None` when there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.runner().and_then(Runner::poll_timeout)
    }

    /// Whether the orchestrator takes more input; `false` while too many outputs wait.
    #[must_use]
    pub fn accepts_input(&self) -> bool {
        !self.out.is_full()
    }

    /// Whether the message is answered and every output is taken.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Finished) && self.out.is_empty()
    }

    /// The registry.
    #[must_use]
    pub const fn registry(&self) -> &R {
        &self.registry
    }

    /// The run of the plan, once every act has an agent.
    #[must_use]
    pub fn runner(&self) -> Option<&Runner> {
        match &self.stage {
            Stage::Running(runner) => Some(runner),
            _ => None,
        }
    }
}

ubos_common::forward_machine! { [R: Registry] Orchestrator<R>: Input => Output, OrchestratorError }
