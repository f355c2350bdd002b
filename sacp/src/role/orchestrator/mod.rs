//! The orchestrator: takes one message from validation to its answer.

mod config;
mod event;

use std::collections::BTreeMap;

use ubos_common::id::IdSource;
use ubos_common::json::{MemberWriter, RawBuf, RawObject};
use ubos_common::machine::{Machine, Outbox};
use ubos_common::time::{Mono, Now};
use ubos_common::violation::{Level, Violation};

use crate::ConfigError;
use crate::any::AnyMessage;
use crate::check::{Finding, Gap, check_plan, gaps};
use crate::error::Code;
use crate::graph::{Graph, Scope};
use crate::message::{Message, NonEmpty, OutFmt, State};
use crate::plan::{Act, Plan};
use crate::registry::{Registry, is_merge};
use crate::reply::{Clarify, ErrReply, Reply};
use crate::role::discipline::{Answer, AnswerForm, admit};
use crate::runner::{self, Cause, End, Outcome, Runner, StepInputs, Ticket};
use crate::spawn;
use crate::trace::{debug, trace};
use crate::validate::code_of;

pub use config::OrchestratorConfig;
pub use event::{Delegation, Input, OrchestratorError, Output};

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
    request: Message,
    registry: R,
    config: OrchestratorConfig,
    ids: IdSource,
    stage: Stage,
    spawned: usize,
    /// The gap that was closed last, and the agent that closed it.
    last_spawn: Option<(Gap, String)>,
    /// Verbs and tools whose agents were spawned in test mode: nothing is registered for them.
    simulated_spawns: Vec<(String, String)>,
    /// Open delegations: the `msg_id` of each, and the form that its answer may have.
    open: BTreeMap<Ticket, (String, AnswerForm)>,
    /// MUST findings about the plan that the configuration overrules.
    overruled: Vec<Violation>,
    out: Outbox<Output>,
}

#[derive(Debug)]
enum Stage {
    Spawning(Box<(Gap, Message)>),
    Running(Box<Runner>),
    Finished,
}

impl<R: Registry> Orchestrator<R> {
    /// An orchestrator for a message that is valid. It starts at once.
    ///
    /// Several orchestrators can use one registry through [`Shared`](crate::registry::Shared).
    ///
    /// # Errors
    ///
    /// The configuration cannot work.
    pub fn new(
        now: Now,
        request: Message,
        registry: R,
        config: OrchestratorConfig,
        ids: IdSource,
    ) -> Result<Self, ConfigError> {
        config.run.check()?;
        let bound = config.run.max_outputs();
        let mut orchestrator = Self {
            request,
            registry,
            config,
            ids,
            stage: Stage::Finished,
            spawned: 0,
            last_spawn: None,
            simulated_spawns: Vec::new(),
            open: BTreeMap::new(),
            overruled: Vec::new(),
            out: Outbox::new(bound),
        };
        orchestrator.prepare(now);
        Ok(orchestrator)
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
            Stage::Spawning(_) => self.refuse(ErrReply::new(Code::StepFailed, "cancelled")),
            Stage::Running(runner) => {
                // A runner that has ended has left this stage.
                let _ = runner.cancel(now);
                self.drain_runner(now);
            }
        }
        Ok(())
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
        let runner = match Runner::new(&self.request, self.config.run.clone()) {
            Ok(runner) => runner,
            Err(refused) => return self.finish(Answer::Reply(refused.reply(&self.request))),
        };
        // What the plan says of itself is known before anything is spawned for it.
        if let Some(first) = self.refusals(false).first() {
            return self.refuse(refusal(first));
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
                return self.refuse(ErrReply::new(gap.code, what).at(&gap.pointer));
            }
            let next = spawn::next_request(
                &self.request,
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
                Err(error) => self.refuse(error),
            }
            return;
        }
        if let Some(first) = self.refusals(true).first() {
            return self.refuse(refusal(first));
        }
        self.stage = Stage::Running(Box::new(runner));
        if let Stage::Running(runner) = &mut self.stage {
            runner.start(now);
        }
        self.drain_runner(now);
    }

    /// The MUST findings for which the plan is refused: none where they are overruled, which is remembered.
    fn refusals(&mut self, with_registry: bool) -> Vec<Violation> {
        let message = AnyMessage::from(self.request.clone());
        let registry = with_registry.then_some(&self.registry as &dyn Registry);
        let graph = Graph::from(&message);
        // A rehearsed spawn registers nothing, so that its acts are served by nobody.
        let is_rehearsed = |finding: &Finding| {
            let act = finding.step.and_then(|step| graph.step(step));
            let pair = act.map(|step| (step.act.verb.clone(), step.act.tool.clone()));
            let unserved = [Code::UnknownVerb, Code::UnknownTool, Code::NoAgentFound];
            unserved
                .iter()
                .any(|code| code.as_str() == finding.violation.code)
                && pair.is_some_and(|pair| self.simulated_spawns.contains(&pair))
        };
        let musts = check_plan(&message, registry, &self.config.check)
            .into_iter()
            .filter(|finding| finding.violation.level == Level::Must && !is_rehearsed(finding))
            .map(|finding| finding.violation)
            .collect();
        if self.config.overrule {
            self.overruled = musts;
            return Vec::new();
        }
        musts
    }

    fn on_spawned(&mut self, now: Now, reply: &Reply) -> Result<(), OrchestratorError> {
        let Stage::Spawning(requested) = &self.stage else {
            return Err(OrchestratorError::NotRequested);
        };
        let (gap, request) = requested.as_ref().clone();
        let made = spawn::confirmed(&request, reply).and_then(|record| {
            if request.is_test() {
                self.simulated_spawns
                    .push((gap.verb.clone(), gap.tool.clone()));
                return Ok(record.agent_name);
            }
            spawn::take_in(&request, record, &mut self.registry)
        });
        match made {
            Ok(name) => {
                self.last_spawn = Some((gap, name));
                self.prepare(now);
            }
            Err(error) => {
                self.refuse(ErrReply::new(Code::SpawnFailed, error.details).at(&gap.pointer))
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
                runner::Output::Ended(mut outcome) => {
                    outcome.overruled = core::mem::take(&mut self.overruled);
                    self.on_end(&outcome);
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
        let agents = self.registry.ready_for(&act.verb, &act.tool);
        let Some(agent) = agents.get(rank).cloned() else {
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
        let human = whole && self.request.out_fmt() == OutFmt::Human;
        let prose = human && self.config.may_write_prose(&agent);
        let message = self.delegated(ticket, act, inputs, prose);
        let id = message
            .msg_id
            .as_deref()
            .map(str::to_owned)
            .unwrap_or_default();
        let form = if prose {
            AnswerForm::Prose
        } else {
            AnswerForm::Structured
        };
        trace!(
            step = ticket.step,
            attempt = ticket.attempt,
            rank,
            "act delegated"
        );
        self.open.insert(ticket, (id, form));
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

    /// The message for one act: goal and context of its own message, the outputs so far, and the act alone.
    // impl: SACP-4-2
    fn delegated(
        &mut self,
        ticket: Ticket,
        act: &Act,
        inputs: &StepInputs,
        prose: bool,
    ) -> Message {
        let mut plan = Plan::default();
        plan.push(act.clone());
        let subtask = self
            .scope_of(ticket)
            .and_then(|scope| scope.message.as_deref());
        let own = subtask.unwrap_or(&self.request);
        let mut message = Message::new(&own.g, plan);
        message.context = Some(own.context.clone().unwrap_or_default());
        let outputs: Vec<&RawBuf> = inputs.iter().map(|(_, output)| output.as_ref()).collect();
        if !outputs.is_empty() {
            message.set_context("inputs", crate::reply::list(&outputs));
        }
        if let Some(results) = self.results_so_far(ticket) {
            message.set_context("results", results);
        }
        // The id is that of the request with step and attempt, so that answers can be told apart.
        let base = self.request.msg_id.as_deref().map(str::to_owned);
        let base = base.unwrap_or_else(|| self.ids.uuid().to_string());
        message.msg_id = NonEmpty::new(format!("{base}.{}.{}", ticket.step, ticket.attempt));
        message.out_fmt = Some(if prose { OutFmt::Human } else { OutFmt::Raw });
        message.state = Some(State::Pending);
        message
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
        let (id, form) = self
            .open
            .remove(&ticket)
            .ok_or(OrchestratorError::NotRequested)?;
        trace!(
            step = ticket.step,
            attempt = ticket.attempt,
            bytes = bytes.len(),
            "answer received"
        );
        let input = match admit(bytes, form) {
            Ok(Answer::Prose(text)) => runner::Input::Succeeded {
                ticket,
                output: RawBuf::from_serialize(&text)
                    .unwrap_or_else(|_| ubos_common::json::Raw::NULL.to_owned()),
            },
            Ok(Answer::Reply(reply)) => match reply {
                Reply::Message(answer) => input_of(ticket, &answer, &id),
                Reply::Err(error) => failed(ticket, error.code, error.details),
                Reply::Clarify(clarify) => {
                    self.ask_back(now, clarify);
                    return Ok(());
                }
                Reply::Valid { .. } | Reply::V10(_) => {
                    let what = "the answer has no result".to_owned();
                    failed(ticket, Code::MalformedMessage, what)
                }
            },
            Err(error) => failed(ticket, error.code, error.details),
        };
        self.report(now, input);
        self.drain_runner(now);
        Ok(())
    }

    /// An agent needs something that only the sender knows: ends the run and passes the question on.
    fn ask_back(&mut self, now: Now, mut clarify: Clarify) {
        self.cancel_all(now);
        clarify.reply_to = self.request.msg_id.as_deref().map(str::to_owned);
        self.finish(Answer::Reply(Reply::Clarify(clarify)));
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

    fn on_end(&mut self, outcome: &Outcome) {
        let human = self.request.out_fmt() == OutFmt::Human;
        let prose = outcome
            .result
            .as_ref()
            .and_then(|result| result.deserialize::<String>().ok());
        let answer = match (outcome.end, human, prose) {
            (End::Done, true, Some(prose)) => Answer::Prose(prose),
            _ => Answer::Reply(outcome.answer(&self.request, &self.ids.uuid().to_string())),
        };
        self.finish(answer);
    }

    fn refuse(&mut self, error: ErrReply) {
        let error = error.to(&self.request);
        self.finish(Answer::Reply(Reply::Err(error)));
    }

    fn finish(&mut self, answer: Answer) {
        self.stage = Stage::Finished;
        debug!(spawned = self.spawned, "message answered");
        self.open.clear();
        self.out.push(Output::Answer(Box::new(answer)));
    }
}

impl<R: Registry> Machine for Orchestrator<R> {
    type Input<'a> = Input;
    type Output = Output;
    type Error = OrchestratorError;

    fn handle_input(&mut self, now: Now, input: Input) -> Result<(), OrchestratorError> {
        Self::handle_input(self, now, input)
    }

    fn handle_timeout(&mut self, now: Now) {
        Self::handle_timeout(self, now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        Self::poll_output(self)
    }

    fn poll_timeout(&self) -> Option<Mono> {
        Self::poll_timeout(self)
    }

    fn accepts_input(&self) -> bool {
        Self::accepts_input(self)
    }

    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }
}

/// The input of the runner for an answer that is a message. `id` is that of the delegated message.
fn input_of(ticket: Ticket, answer: &Message, id: &str) -> runner::Input {
    if answer.reply_to.as_deref().is_some_and(|to| to != id) {
        let what = "the answer belongs to another message".to_owned();
        return failed(ticket, Code::MalformedMessage, what);
    }
    match &answer.state {
        Some(State::Failed) => failed(ticket, Code::StepFailed, "the agent failed".to_owned()),
        // A message without a state counts as an answer; one that is not DONE does not.
        Some(state) if *state != State::Done => {
            let what = format!("the answer is {state}, but must be DONE");
            failed(ticket, Code::InvalidState, what)
        }
        _ => runner::Input::Succeeded {
            ticket,
            output: output_of(answer),
        },
    }
}

fn failed(ticket: Ticket, code: Code, message: String) -> runner::Input {
    let cause = Cause::Tool {
        code: Some(code.as_str().to_owned()),
        message,
        retryable: true,
    };
    runner::Input::Failed { ticket, cause }
}

/// The output of an answer: its result, or its whole context if it has no result.
fn output_of(answer: &Message) -> RawBuf {
    let result = answer.context.as_ref().and_then(|ctx| ctx.get("result"));
    if let Some(result) = result {
        return result.clone();
    }
    let ctx = answer.context.clone().unwrap_or_default();
    RawBuf::parse(&ubos_common::json::to_string(&ctx))
        .unwrap_or_else(|_| RawBuf::from(RawObject::empty()))
}

/// The answer to a plan with a finding.
fn refusal(finding: &Violation) -> ErrReply {
    ErrReply::new(code_of(finding), finding.message.as_ref()).at(&finding.pointer)
}
