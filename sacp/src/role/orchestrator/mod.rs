//! The orchestrator: takes one message from validation to its answer.

mod access;
mod config;
mod delegate;
mod event;

use std::collections::BTreeMap;

use ubos_common::id::IdSource;
use ubos_common::json::{MemberWriter, RawBuf};
use ubos_common::machine::Outbox;
use ubos_common::time::{Mono, Now};
use ubos_common::violation::Violation;

use crate::ConfigError;
use crate::any::{AnyMessage, Edition, MessageRef};
use crate::check::{Gap, gaps};
use crate::error::Code;
use crate::graph::{Scope, Step};
use crate::message::{NonEmpty, OutFmt};
use crate::plan::Act;
use crate::registry::{AgentRecord, Registry, is_merge};
use crate::reply::{Clarify, ErrReply, Reply};
use crate::role::answer::Author;
use crate::role::discipline::{Answer, AnswerForm, admit};
use crate::runner::{self, Cause, End, Outcome, Runner, StepInputs, Ticket};
use crate::spawn;
use crate::trace::{debug, trace};
use crate::v1;

use delegate::{Open, Parts, failed};

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
    saved: Option<Vec<u8>>,
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

    /// Continues a run that was [saved](Self::save), of the same message. The plan is checked again, and the acts that were
    /// delegated are delegated anew: an answer to the life before is refused.
    ///
    /// # Errors
    ///
    /// The configuration cannot work, or the text is not a saved run of this message.
    pub fn restore(
        now: Now,
        request: impl Into<AnyMessage>,
        registry: R,
        config: OrchestratorConfig,
        ids: IdSource,
        saved: &[u8],
    ) -> Result<Self, RestoreError> {
        let mut orchestrator = Self::idle(request.into(), registry, config, ids)?;
        orchestrator.saved = Some(saved.to_vec());
        match orchestrator.ready(now) {
            Some(runner) => orchestrator.begin(now, runner)?,
            None if matches!(orchestrator.stage, Stage::Spawning(_)) => {
                // What cannot be continued is refused now, not when the agent is there.
                let (request, config) = (&orchestrator.request, orchestrator.config.run.clone());
                if let Ok(mut runner) = Runner::new(request, config) {
                    runner.restore(now, saved)?;
                }
            }
            None => {}
        }
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

    /// The run as JSON text, for [`restore`](Self::restore). `None` before every act has an agent, and after the answer.
    #[must_use]
    pub fn save(&self, now: Now) -> Option<Vec<u8>> {
        self.runner().and_then(|runner| runner.save(now))
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

    /// Spawns the next missing agent, or starts the plan.
    fn prepare(&mut self, now: Now) {
        if let Some(runner) = self.ready(now)
            && let Err(error) = self.begin(now, runner)
        {
            self.refuse(now, ErrReply::new(Code::InternalError, error.to_string()));
        }
    }

    /// Starts the plan, or continues it.
    fn begin(&mut self, now: Now, mut runner: Box<Runner>) -> Result<(), runner::ResumeError> {
        match self.saved.take() {
            Some(saved) => runner.restore(now, &saved)?,
            None => runner.start(now),
        }
        self.stage = Stage::Running(runner);
        self.drain_runner(now);
        Ok(())
    }

    /// The runner, if the plan may run and every act has an agent; else the message is answered, or an agent is spawned.
    fn ready(&mut self, now: Now) -> Option<Box<Runner>> {
        let runner = match Runner::new(&self.request, self.config.run.clone()) {
            Ok(runner) => runner,
            Err(refused) => {
                let reply = refused.reply(&self.request);
                self.give_back(now, reply);
                return None;
            }
        };
        // What the plan says of itself is known before anything is spawned for it.
        if self.is_refused(now, false) {
            return None;
        }
        if let Some(step) = self.denied() {
            self.deny(now, &step);
            return None;
        }
        let missing = gaps(&self.request, &self.registry);
        let open = |gap: &&Gap| {
            let simulated =
                |(verb, tool): &(String, String)| (verb, tool) == (&gap.verb, &gap.tool);
            !self.simulated_spawns.iter().any(simulated)
        };
        if let Some(gap) = missing.iter().find(open) {
            if !self.config.spawning {
                let what = format!("act {}: {} with {}", gap.number, gap.verb, gap.tool);
                self.refuse(now, ErrReply::new(gap.code, what).at(&gap.pointer));
                return None;
            }
            let next = spawn::next_request(
                now.wall,
                MessageRef::from(&self.request),
                &self.registry,
                gap,
                self.last_spawn.as_ref(),
                self.spawned,
            );
            match next {
                Ok(request) => {
                    self.spawned += 1;
                    debug!(step = gap.number, spawned = self.spawned, "agent requested");
                    self.out.push(Output::Spawn(Box::new(request.clone())));
                    self.stage = Stage::Spawning(Box::new((gap.clone(), request)));
                }
                Err(error) => self.refuse(now, error),
            }
            return None;
        }
        if self.is_refused(now, true) {
            return None;
        }
        Some(Box::new(runner))
    }

    fn on_spawned(&mut self, now: Now, reply: &Reply) -> Result<(), OrchestratorError> {
        let Stage::Spawning(requested) = &self.stage else {
            return Err(OrchestratorError::NotRequested);
        };
        let (gap, request) = requested.as_ref().clone();
        let request = MessageRef::from(&request);
        let made = spawn::confirmed(request, reply).and_then(|record| {
            if request.is_test() {
                self.simulated_spawns
                    .push((gap.verb.clone(), gap.tool.clone()));
                return Ok(record.agent_name);
            }
            spawn::take_in(request, record, &mut self.registry)
        });
        match made {
            Ok(name) => {
                self.last_spawn = Some((gap, name));
                self.prepare(now);
            }
            Err(error) => {
                let error = ErrReply::new(Code::SpawnFailed, error.details).at(&gap.pointer);
                self.refuse(now, error);
            }
        }
        Ok(())
    }

    /// Acts on the outputs of the runner.
    fn drain_runner(&mut self, now: Now) {
        while let Stage::Running(runner) = &mut self.stage {
            let Some(output) = runner.poll_output() else {
                return;
            };
            match output {
                runner::Output::Dispatch {
                    ticket,
                    act,
                    inputs,
                    rank,
                } if runner.is_running(ticket) => self.delegate(now, ticket, &act, &inputs, rank),
                runner::Output::Cancel { ticket } if self.open.remove(&ticket).is_some() => {
                    self.out.push(Output::Cancel { ticket });
                }
                runner::Output::Paused => self.out.push(Output::Paused),
                runner::Output::Ended(mut outcome) => {
                    outcome.overruled = core::mem::take(&mut self.overruled);
                    self.on_end(now, &outcome);
                }
                _ => {}
            }
        }
    }

    fn delegate(&mut self, now: Now, ticket: Ticket, act: &Act, inputs: &StepInputs, rank: usize) {
        if is_merge(&act.verb, &act.tool) {
            let outputs: Vec<&RawBuf> = inputs.iter().map(|(_, output)| output.as_ref()).collect();
            let output = crate::reply::list(&outputs);
            return self.report(now, runner::Input::Succeeded { ticket, output });
        }
        let Ok(agent) = self.allowed(ticket.step, act, rank) else {
            let cause = Cause::Tool {
                code: Some(v1::Code::AuthzDenied.as_str().to_owned()),
                message: denial(act),
                retryable: false,
            };
            return self.report(now, runner::Input::Failed { ticket, cause });
        };
        let Some(agent) = agent else {
            let message = format!("no agent is available for {} with {}", act.verb, act.tool);
            let cause = Cause::Tool {
                code: Some(Code::NoAgentFound.as_str().to_owned()),
                message,
                retryable: true,
            };
            return self.report(now, runner::Input::Failed { ticket, cause });
        };
        let whole = self
            .scope_of(ticket)
            .is_none_or(|scope| scope.parent.is_none());
        let human = whole && MessageRef::from(&self.request).out_fmt() == OutFmt::Human;
        let prose = human && self.config.may_write_prose(&agent);
        let (out_fmt, form) = if prose {
            (OutFmt::Human, AnswerForm::Prose)
        } else {
            (OutFmt::Raw, AnswerForm::Structured)
        };
        let Some(message) = self.delegated(now, ticket, act, inputs, &agent, out_fmt) else {
            let what = "a name of the act is not valid in a message of 1.0".to_owned();
            return self.report(now, failed(ticket, Code::InternalError, what));
        };
        trace!(
            step = ticket.step,
            attempt = ticket.attempt,
            rank,
            "act delegated"
        );
        self.open.insert(ticket, Open::new(&message, form));
        self.out.push(Output::Delegate(Box::new(Delegation {
            ticket,
            agent,
            message,
        })));
    }

    /// The message that a step belongs to: the request, or a subtask.
    fn scope_of(&self, ticket: Ticket) -> Option<&Scope> {
        let graph = self.runner()?.graph();
        graph.scopes().get(graph.step(ticket.step)?.scope)
    }

    /// The message for one act; `None` if a name in it is not valid in the edition of the request.
    fn delegated(
        &mut self,
        now: Now,
        ticket: Ticket,
        act: &Act,
        inputs: &StepInputs,
        to: &AgentRecord,
        out_fmt: OutFmt,
    ) -> Option<AnyMessage> {
        let mut context = Vec::new();
        let outputs: Vec<&RawBuf> = inputs.iter().map(|(_, output)| output.as_ref()).collect();
        if !outputs.is_empty() {
            context.push(("inputs", crate::reply::list(&outputs)));
        }
        let results = self.results_so_far(ticket);
        context.extend(results.map(|results| ("results", results)));
        // The id is that of the request with step and attempt, so that answers can be told apart.
        let own_id = self.request.msg_id().filter(|id| id.len() <= LONGEST_BASE);
        let base = own_id.map_or_else(|| self.ids.uuid().to_string(), str::to_owned);
        let subtask = self
            .scope_of(ticket)
            .and_then(|scope| scope.message.as_deref());
        let parts = Parts {
            own: subtask.map_or_else(|| MessageRef::from(&self.request), MessageRef::from),
            act,
            step: self.runner().and_then(|run| run.graph().step(ticket.step)),
            context,
            msg_id: format!("{base}.{}.{}", ticket.step, ticket.attempt),
            out_fmt,
            at: now.wall,
            sender: self.config.sender.as_ref(),
            recipient: &to.agent_name,
        };
        parts.message()
    }

    /// Outputs of the acts of a step's message, by number: the newest ones, up to the limit.
    // impl: SACP-3-8
    fn results_so_far(&self, ticket: Ticket) -> Option<RawBuf> {
        let (runner, own) = (self.runner()?, self.scope_of(ticket)?);
        let (mut room, mut results) = (self.config.max_shared_bytes, Vec::new());
        for step in own.steps.iter().rev() {
            let Some(output) = runner.output(*step) else {
                continue;
            };
            let Some(left) = room.checked_sub(output.as_str().len()) else {
                break;
            };
            room = left;
            results.push((runner.graph().step(*step)?.place, output));
        }
        let mut text = Vec::new();
        let mut object = MemberWriter::begin(&mut text);
        for (place, output) in results.iter().rev() {
            object.member(&place.to_string(), *output);
        }
        object.end();
        (!results.is_empty()).then(|| crate::reply::raw(text))
    }

    fn on_answer(
        &mut self,
        now: Now,
        ticket: Ticket,
        bytes: &[u8],
    ) -> Result<(), OrchestratorError> {
        let mut open = self
            .open
            .remove(&ticket)
            .ok_or(OrchestratorError::NotRequested)?;
        trace!(
            step = ticket.step,
            attempt = ticket.attempt,
            bytes = bytes.len(),
            "answer received"
        );
        let input = match admit(bytes, open.form) {
            Ok(Answer::Prose(text)) => runner::Input::Succeeded {
                ticket,
                output: RawBuf::from_serialize(&text)
                    .unwrap_or_else(|_| ubos_common::json::Raw::NULL.to_owned()),
            },
            Ok(Answer::Reply(reply)) => match reply {
                Reply::Message(answer) => open.input_of(ticket, MessageRef::V01(&answer)),
                Reply::V10(answer) => {
                    let metrics = answer
                        .trace
                        .as_ref()
                        .and_then(|trace| trace.metrics.as_ref());
                    if let Some(metrics) = metrics {
                        self.spent.spend(metrics);
                    }
                    open.input_of(ticket, MessageRef::V10(&answer))
                }
                Reply::Err(error) => failed(ticket, error.code, error.details),
                Reply::Clarify(clarify) => {
                    self.ask_back(now, clarify);
                    return Ok(());
                }
                Reply::Valid { .. } => {
                    let what = "the answer has no result".to_owned();
                    failed(ticket, Code::MalformedMessage, what)
                }
            },
            Err(error) => failed(ticket, error.code, error.details),
        };
        if matches!(input, runner::Input::Progress { .. }) {
            self.open.insert(ticket, open);
        }
        self.report(now, input);
        self.drain_runner(now);
        Ok(())
    }

    /// An agent needs something that only the sender knows: ends the run and passes the question on.
    fn ask_back(&mut self, now: Now, mut clarify: Clarify) {
        self.cancel_all(now);
        clarify.reply_to = self.request.msg_id().map(str::to_owned);
        self.give_back(now, Reply::Clarify(clarify));
    }

    fn cancel_all(&mut self, now: Now) {
        if let Stage::Running(runner) = &mut self.stage {
            let _ = runner.cancel(now);
        }
        for ticket in core::mem::take(&mut self.open).into_keys() {
            self.out.push(Output::Cancel { ticket });
        }
    }

    fn report(&mut self, now: Now, input: runner::Input) {
        if let Stage::Running(runner) = &mut self.stage {
            // The runner refuses nothing here: a cancelled delegation is no longer open.
            let _ = runner.handle_input(now, input);
        }
    }

    fn on_end(&mut self, now: Now, outcome: &Outcome) {
        let human = MessageRef::from(&self.request).out_fmt() == OutFmt::Human;
        let prose = outcome
            .result
            .as_ref()
            .and_then(|result| result.deserialize::<String>().ok());
        let answer = match (outcome.end, human, prose) {
            (End::Done, true, Some(prose)) if self.request.edition() == Edition::V01 => {
                Answer::Prose(prose)
            }
            (_, _, prose) => {
                let request = self.request.clone();
                let reply = self.author(now).of_run(MessageRef::from(&request), outcome);
                Answer::Reply(summed_up(reply, prose.filter(|_| human)))
            }
        };
        self.finish(answer);
    }

    /// Who signs an answer.
    fn author(&mut self, now: Now) -> Author<'_> {
        Author {
            at: now.wall,
            sender: self.config.sender.as_ref(),
            msg_id: self.ids.uuid().to_string(),
        }
    }

    fn refuse(&mut self, now: Now, error: ErrReply) {
        let error = error.to(&self.request);
        self.give_back(now, Reply::Err(error));
    }

    /// The sender may not have a step: `AUTHZ_DENIED` in 1.0; 0.1 has no code for it.
    fn deny(&mut self, now: Now, step: &Step) {
        let what = denial(&step.act);
        let request = self.request.clone();
        let reply = match MessageRef::from(&request) {
            MessageRef::V01(_) => {
                let error = ErrReply::new(Code::StepFailed, what).at(&step.pointer);
                return self.refuse(now, error);
            }
            MessageRef::V10(request) => {
                let failure = v1::Failure::of(v1::Code::AuthzDenied, &what).in_step(&step.id);
                self.author(now).of_failure(request, failure)
            }
        };
        self.finish(Answer::Reply(reply));
    }

    /// Answers without a run, in the edition of the request.
    fn give_back(&mut self, now: Now, reply: Reply) {
        let request = self.request.clone();
        let reply = self.author(now).of_reply(MessageRef::from(&request), reply);
        self.finish(Answer::Reply(reply));
    }

    fn finish(&mut self, mut answer: Answer) {
        if let Answer::Reply(Reply::V10(answer)) = &mut answer
            && self.spent != v1::Metrics::new()
            && let Some(trace) = &mut answer.trace
        {
            let metrics = trace.metrics.get_or_insert_with(v1::Metrics::new);
            metrics.spend(&self.spent);
        }
        self.stage = Stage::Finished;
        debug!(spawned = self.spawned, "message answered");
        self.open.clear();
        self.out.push(Output::Answer(Box::new(answer)));
    }
}

ubos_common::forward_machine! { [R: Registry] Orchestrator<R>: Input => Output, OrchestratorError }

/// Bytes of a request's id that is the beginning of the ids of its delegations: longer ones would be too long in 1.0.
const LONGEST_BASE: usize = 96;

/// An answer of 1.0 with the prose that was asked for as its summary.
fn summed_up(reply: Reply, prose: Option<String>) -> Reply {
    match reply {
        Reply::V10(mut answer) => {
            if let (Some(result), Some(prose)) = (&mut answer.result, prose) {
                result.summary = NonEmpty::new(prose);
            }
            Reply::V10(answer)
        }
        other => other,
    }
}

/// Names no sender: what it may not have is what it asked for.
fn denial(act: &Act) -> String {
    format!("the sender may not have {} with {}", act.verb, act.tool)
}
