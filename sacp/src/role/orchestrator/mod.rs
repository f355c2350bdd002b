//! One message from its arrival to its answer.

mod words;

use std::collections::BTreeMap;

use ubos_common::id::IdSource;
use ubos_common::json::{MemberWriter, RawBuf, RawObject};
use ubos_common::machine::{Machine, Outbox};
use ubos_common::time::{Mono, Now};

use crate::check::{Gap, gaps};
use crate::error::Code;
use crate::graph::Scope;
use crate::message::{Message, NonEmpty, OutFmt, State};
use crate::plan::{Act, Plan};
use crate::registry::Registry;
use crate::reply::{Clarify, ErrReply, Reply};
use crate::role::discipline::{Admitted, Voice, admit};
use crate::runner::{self, Cause, End, Given, Input, Outcome, Runner, Ticket};
use crate::spawn;

pub use words::{Ask, Finished, OrchestratorConfig, OrchestratorError, Said, Wanted};

/// Takes one message through check, spawn, delegation and discipline to its answer.
///
/// No agent is asked before the whole message has validated and every act can be served. What is delegated is raw, whatever
/// the message says, except to an agent that writes for a person in a message that says human. A join whose tool is `MERGE`
/// is done here: its output is the list of what it joins.
///
/// ```
/// use sacp::registry::{AgentRecord, MemoryRegistry, Registry, ToolDef, VerbDef};
/// use sacp::role::{Finished, Orchestrator, OrchestratorConfig, Said, Wanted};
/// use sacp::{Message, Reply};
/// use ubos_common::id::IdSource;
/// use ubos_common::json::RawBuf;
/// use ubos_common::machine::Machine as _;
/// use ubos_common::time::{Mono, Now, Timestamp};
///
/// let mut registry = MemoryRegistry::default();
/// registry.add_verb(VerbDef::new("get".into(), "Gets".into(), vec![], RawBuf::parse("\"number\"")?))?;
/// registry.add_tool(ToolDef::new("ONE".into(), "One".into(), vec!["get".into()]))?;
/// registry.add_agent(AgentRecord::new("A".into(), vec!["get".into()], vec!["ONE".into()], vec![], vec![], "".into()))?;
///
/// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
/// let message = Message::decode(br#"{"msg_id":"m","g":"G","plan":[["get","ONE",{}]]}"#)?;
/// let mut orchestrator =
///     Orchestrator::new(now, message, registry, OrchestratorConfig::default(), IdSource::seeded(1));
/// let Some(Wanted::Ask(ask)) = orchestrator.poll_output() else { panic!() };
/// let bytes = br#"{"g":"G","plan":[],"ctx":{"result":1},"state":"DONE"}"#.to_vec();
/// orchestrator.handle_input(now, Said::Answer { ticket: ask.ticket, bytes })?;
/// let Some(Wanted::Finish(answer)) = orchestrator.poll_output() else { panic!() };
/// let Finished::Reply(Reply::Message(answer)) = *answer else { panic!() };
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
    closed: Option<(Gap, String)>,
    /// Verbs and tools whose agents were spawned in test mode: nothing is registered for them.
    rehearsed: Vec<(String, String)>,
    asked: BTreeMap<Ticket, (String, Voice)>,
    out: Outbox<Wanted>,
}

#[derive(Debug)]
enum Stage {
    Spawning(Box<(Gap, Message)>),
    Running(Box<Runner>),
    Finished,
}

impl<R: Registry> Orchestrator<R> {
    /// An orchestrator for a message that has validated.
    ///
    /// Give it a [`Shared`](crate::registry::Shared) registry where others use it, too.
    #[must_use]
    pub fn new(
        now: Now,
        request: Message,
        registry: R,
        config: OrchestratorConfig,
        ids: IdSource,
    ) -> Self {
        let bound = config.run.max_running.saturating_mul(2).max(1024);
        let mut orchestrator = Self {
            request,
            registry,
            config,
            ids,
            stage: Stage::Finished,
            spawned: 0,
            closed: None,
            rehearsed: Vec::new(),
            asked: BTreeMap::new(),
            out: Outbox::new(bound),
        };
        orchestrator.prepare(now);
        orchestrator
    }

    /// The registry.
    #[must_use]
    pub const fn registry(&self) -> &R {
        &self.registry
    }

    /// The run, once every act can be served.
    #[must_use]
    pub fn runner(&self) -> Option<&Runner> {
        match &self.stage {
            Stage::Running(runner) => Some(runner),
            _ => None,
        }
    }

    /// Asks for what is missing, or runs the plan.
    fn prepare(&mut self, now: Now) {
        let runner = match Runner::new(&self.request, self.config.run.clone()) {
            Ok(runner) => runner,
            Err(refused) => return self.finish(Finished::Reply(refused.reply(&self.request))),
        };
        let missing = gaps(&self.request, &self.registry);
        let open = |gap: &&Gap| {
            let rehearsed =
                |(verb, tool): &(String, String)| (verb, tool) == (&gap.verb, &gap.tool);
            !is_merge(&gap.verb, &gap.tool) && !self.rehearsed.iter().any(rehearsed)
        };
        if let Some(gap) = missing.iter().find(open) {
            if !self.config.spawns {
                let what = format!("act {}: {} with {}", gap.number, gap.verb, gap.tool);
                return self.refuse(ErrReply::new(gap.code, what).at(&gap.pointer));
            }
            let next = spawn::next_request(
                &self.request,
                &self.registry,
                gap,
                self.closed.as_ref(),
                self.spawned,
            );
            match next {
                Ok(request) => {
                    self.spawned += 1;
                    self.out.push(Wanted::Spawn(Box::new(request.clone())));
                    self.stage = Stage::Spawning(Box::new((gap.clone(), request)));
                }
                Err(error) => self.refuse(error),
            }
            return;
        }
        self.stage = Stage::Running(Box::new(runner));
        if let Stage::Running(runner) = &mut self.stage {
            runner.start(now);
        }
        self.pump(now);
    }

    fn on_spawned(&mut self, now: Now, reply: &Reply) -> Result<(), OrchestratorError> {
        let Stage::Spawning(asked) = &self.stage else {
            return Err(OrchestratorError::NotAsked);
        };
        let (gap, request) = asked.as_ref().clone();
        let made = spawn::confirmed(&request, reply).and_then(|record| {
            if request.is_test() {
                self.rehearsed.push((gap.verb.clone(), gap.tool.clone()));
                return Ok(record.agent_name);
            }
            spawn::take_in(&request, record, &mut self.registry)
        });
        match made {
            Ok(name) => {
                self.closed = Some((gap, name));
                self.prepare(now);
            }
            Err(error) => {
                self.refuse(ErrReply::new(Code::SpawnFailed, error.details).at(&gap.pointer))
            }
        }
        Ok(())
    }

    /// Carries the runner's outputs out.
    fn pump(&mut self, now: Now) {
        while let Stage::Running(runner) = &mut self.stage {
            let Some(output) = runner.poll_output() else {
                return;
            };
            match output {
                runner::Output::Dispatch {
                    ticket,
                    act,
                    given,
                    rank,
                } if runner.is_running(ticket) => self.delegate(now, ticket, &act, &given, rank),
                runner::Output::Cancel { ticket } if self.asked.remove(&ticket).is_some() => {
                    self.out.push(Wanted::Stop { ticket });
                }
                runner::Output::Ended(outcome) => self.on_end(&outcome),
                _ => {}
            }
        }
    }

    fn delegate(&mut self, now: Now, ticket: Ticket, act: &Act, given: &Given, rank: usize) {
        if is_merge(&act.verb, &act.tool) {
            let outputs: Vec<&RawBuf> = given.iter().map(|(_, output)| output).collect();
            let output = crate::reply::list(&outputs);
            return self.tell(now, Input::Succeeded { ticket, output });
        }
        let agents = self.registry.ready_for(&act.verb, &act.tool);
        let Some(agent) = agents.get(rank).cloned() else {
            let why = format!("nobody is there for {} with {}", act.verb, act.tool);
            let cause = Cause::Tool {
                code: Some(Code::NoAgentFound.as_str().to_owned()),
                why,
                retryable: true,
            };
            return self.tell(now, Input::Failed { ticket, cause });
        };
        let whole = self
            .scope_of(ticket)
            .is_none_or(|scope| scope.parent.is_none());
        let human = whole && self.request.out_fmt() == OutFmt::Human;
        let speaks = human && self.config.speaks(&agent);
        let message = self.delegated(ticket, act, given, speaks);
        let id = message
            .msg_id
            .as_ref()
            .map(|id| id.as_str().to_owned())
            .unwrap_or_default();
        let voice = if speaks {
            Voice::MaySpeak
        } else {
            Voice::Structured
        };
        self.asked.insert(ticket, (id, voice));
        self.out.push(Wanted::Ask(Box::new(Ask {
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

    /// The message for one act: goal and context of its message, the outputs so far, the act alone.
    // impl: SACP-4-2
    fn delegated(&mut self, ticket: Ticket, act: &Act, given: &Given, speaks: bool) -> Message {
        let mut plan = Plan::default();
        plan.push(act.clone());
        let subtask = self
            .scope_of(ticket)
            .and_then(|scope| scope.message.as_deref());
        let own = subtask.unwrap_or(&self.request);
        let mut message = Message::with_goal(own.goal(), plan);
        message.context = Some(own.context.clone().unwrap_or_default());
        let inputs: Vec<&RawBuf> = given.iter().map(|(_, output)| output).collect();
        if !inputs.is_empty() {
            message.set_context("inputs", crate::reply::list(&inputs));
        }
        if let Some(results) = self.results_so_far(ticket) {
            message.set_context("results", results);
        }
        // The request's name, the step and the attempt make the name; one without a name gets one of its own.
        let base = self.request.msg_id.as_deref().map(str::to_owned);
        let base = base.unwrap_or_else(|| self.ids.uuid().to_string());
        message.msg_id = NonEmpty::new(format!("{base}.{}.{}", ticket.step, ticket.attempt));
        message.out_fmt = Some(if speaks { OutFmt::Human } else { OutFmt::Raw });
        message.state = Some(State::Pending);
        message
    }

    /// Outputs of the acts of a step's message, by number: the newest, as far as their bound lets.
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
        let (id, voice) = self
            .asked
            .remove(&ticket)
            .ok_or(OrchestratorError::NotAsked)?;
        let refused = |code: Code, why: String| Cause::Tool {
            code: Some(code.as_str().to_owned()),
            why,
            retryable: true,
        };
        let input = match admit(bytes, voice) {
            Ok(Admitted::Prose(text)) => {
                let output = RawBuf::from_serialize(&text)
                    .unwrap_or_else(|_| ubos_common::json::Raw::NULL.to_owned());
                Input::Succeeded { ticket, output }
            }
            Ok(Admitted::Structured(reply)) => match *reply {
                Reply::Message(answer) if answer.reply_to.as_deref().is_some_and(|to| to != id) => {
                    let cause = refused(
                        Code::MalformedMessage,
                        "an answer to another message".to_owned(),
                    );
                    Input::Failed { ticket, cause }
                }
                Reply::Message(answer) if answer.state() == State::Failed => Input::Failed {
                    ticket,
                    cause: refused(Code::StepFailed, "the agent failed".to_owned()),
                },
                // A message without a state is taken for an answer; one that says it is under way is none.
                Reply::Message(answer)
                    if answer
                        .state
                        .as_ref()
                        .is_some_and(|state| *state != State::Done) =>
                {
                    let why = format!("an answer that is {}", answer.state());
                    Input::Failed {
                        ticket,
                        cause: refused(Code::InvalidState, why),
                    }
                }
                Reply::Message(answer) => Input::Succeeded {
                    ticket,
                    output: output_of(&answer),
                },
                Reply::Err(error) => Input::Failed {
                    ticket,
                    cause: refused(error.code, error.details),
                },
                Reply::Clarify(clarify) => {
                    self.ask_back(now, clarify);
                    return Ok(());
                }
                Reply::Valid { .. } => {
                    let cause = refused(
                        Code::MalformedMessage,
                        "an answer without a result".to_owned(),
                    );
                    Input::Failed { ticket, cause }
                }
            },
            Err(error) => Input::Failed {
                ticket,
                cause: refused(error.code, error.details),
            },
        };
        self.tell(now, input);
        self.pump(now);
        Ok(())
    }

    /// An agent lacks what only the sender knows: the run ends, and the question goes up.
    fn ask_back(&mut self, now: Now, mut clarify: Clarify) {
        self.stop_all(now);
        clarify.reply_to = self
            .request
            .msg_id
            .as_ref()
            .map(|id| id.as_str().to_owned());
        self.finish(Finished::Reply(Reply::Clarify(clarify)));
    }

    fn stop_all(&mut self, now: Now) {
        self.tell(now, Input::Cancel);
        for ticket in core::mem::take(&mut self.asked).into_keys() {
            self.out.push(Wanted::Stop { ticket });
        }
    }

    fn tell(&mut self, now: Now, input: Input) {
        if let Stage::Running(runner) = &mut self.stage {
            // A question that is void by now was taken from the list of those asked.
            let _ = runner.handle_input(now, input);
        }
    }

    fn on_end(&mut self, outcome: &Outcome) {
        let human = self.request.out_fmt() == OutFmt::Human;
        let prose = outcome
            .result
            .as_ref()
            .and_then(|result| result.deserialize::<String>().ok());
        let finished = match (outcome.end, human, prose) {
            (End::Done, true, Some(prose)) => Finished::Prose(prose),
            _ => Finished::Reply(outcome.answer(&self.request, &self.ids.uuid().to_string())),
        };
        self.finish(finished);
    }

    fn refuse(&mut self, error: ErrReply) {
        let error = error.to(&self.request);
        self.finish(Finished::Reply(Reply::Err(error)));
    }

    fn finish(&mut self, finished: Finished) {
        self.stage = Stage::Finished;
        self.asked.clear();
        self.out.push(Wanted::Finish(Box::new(finished)));
    }
}

impl<R: Registry> Machine for Orchestrator<R> {
    type Input<'a> = Said;
    type Output = Wanted;
    type Error = OrchestratorError;

    fn handle_input(&mut self, now: Now, said: Said) -> Result<(), OrchestratorError> {
        if matches!(self.stage, Stage::Finished) {
            return Err(OrchestratorError::Finished);
        }
        match said {
            Said::Answer { ticket, bytes } => return self.on_answer(now, ticket, &bytes),
            Said::Failed { ticket, cause } => {
                self.asked
                    .remove(&ticket)
                    .ok_or(OrchestratorError::NotAsked)?;
                self.tell(now, Input::Failed { ticket, cause });
            }
            Said::Progress { ticket } => {
                if !self.asked.contains_key(&ticket) {
                    return Err(OrchestratorError::NotAsked);
                }
                self.tell(now, Input::Progress { ticket });
            }
            Said::Spawned(reply) => return self.on_spawned(now, &reply),
            Said::Cancel => match &self.stage {
                Stage::Running(_) => self.tell(now, Input::Cancel),
                _ => self.refuse(ErrReply::new(Code::StepFailed, "cancelled")),
            },
        }
        self.pump(now);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Now) {
        if let Stage::Running(runner) = &mut self.stage {
            runner.handle_timeout(now);
            self.pump(now);
        }
    }

    fn poll_output(&mut self) -> Option<Wanted> {
        self.out.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.runner().and_then(Runner::poll_timeout)
    }

    fn accepts_input(&self) -> bool {
        !self.out.is_full()
    }

    fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Finished) && self.out.is_empty()
    }
}

/// What an answer gives: its result, or all its context where it names none.
fn output_of(answer: &Message) -> RawBuf {
    let result = answer.context.as_ref().and_then(|ctx| ctx.get("result"));
    if let Some(result) = result {
        return result.clone();
    }
    let ctx = answer.context.clone().unwrap_or_default();
    RawBuf::parse(&ubos_common::json::to_string(&ctx))
        .unwrap_or_else(|_| RawBuf::from(RawObject::empty()))
}

/// The join that ships.
fn is_merge(verb: &str, tool: &str) -> bool {
    verb == "join" && tool == "MERGE"
}
