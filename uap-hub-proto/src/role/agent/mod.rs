//! The fleet agent: registers, listens, answers proposals, runs sessions, comes back.

mod config;
mod event;
mod kept;
mod resume;
mod session;
mod state;

use std::{collections::HashMap, time::Duration};

use ubos_common::{
    id::IdSource,
    machine::{Backoff, Outbox, Timers},
    time::{Mono, Now},
};

pub use self::event::{CommandError, Event, Input, InputError, Output};
pub use self::{config::Config, state::FleetAgent};
use self::{
    event::Say,
    state::{Phase, Timer},
};
pub use super::{AgentMessage as Outbound, HubMessage as Inbound};
use super::{Rpc, machine::impl_machine, slots::Slots};
use crate::{
    ConfigError,
    capability::skills,
    hash::ById,
    id::{ClientId, SessionId, StreamId},
    message::JobResult,
    state::State,
    status::{Code, Status, brief},
    trace::{debug, trace},
    wire::{AgentRegistration, ListenRequest, Telemetry, listen_request},
};

/// Outputs that wait before the driver stops reading.
const MAX_OUTPUTS: usize = 1024;

impl FleetAgent {
    /// An agent that has not started. `ids` is the source of jitter.
    ///
    /// # Errors
    ///
    /// The configuration cannot work, or a hub would refuse its capabilities.
    pub fn new(config: Config, ids: IdSource) -> Result<Self, ConfigError> {
        config.check()?;
        let skills = skills(Self::registration(&config))?;
        let backoff = Backoff::new(config.first_retry, config.longest_retry);
        Ok(Self {
            config,
            ids,
            skills,
            phase: Phase::Idle,
            backoff,
            attempt: 0,
            opened: 0,
            is_leaving: false,
            resumable: None,
            sessions: Slots::new(),
            by_id: HashMap::new(),
            streams: ById::default(),
            timers: Timers::default(),
            outputs: Outbox::new(MAX_OUTPUTS),
        })
    }

    /// Starts: registers, and retries forever.
    pub fn start(&mut self, now: Now) {
        if self.phase == Phase::Idle {
            self.register(now);
        }
    }

    /// Reports a state of a running session: `Running`, with words for people.
    ///
    /// # Errors
    ///
    /// The session does not run, or the state is not [`State::Running`].
    ///
    /// Spec: UAP hub 4
    pub fn status(
        &mut self,
        now: Now,
        session: &SessionId,
        state: State,
        message: impl Into<String>,
    ) -> Result<(), CommandError> {
        match state {
            State::Running => {
                let key = self.running(session)?;
                self.say(now, key, Say::Status(state, message.into()))
            }
            State::Acknowledged => Err(CommandError::Backward),
            State::Completed | State::Failed | State::Invalid => Err(CommandError::Terminal),
        }
    }

    /// Reports a line of a running session's log; a missing time is filled in.
    ///
    /// # Errors
    ///
    /// The session does not run, or the message is too large.
    ///
    /// Spec: UAP hub 4
    pub fn telemetry(
        &mut self,
        now: Now,
        session: &SessionId,
        telemetry: Telemetry,
    ) -> Result<(), CommandError> {
        let key = self.running(session)?;
        self.say(now, key, Say::Telemetry(telemetry))
    }

    /// Sends the result of a running session and half-closes its stream.
    ///
    /// # Errors
    ///
    /// The session does not run, or the result is of the other kind, not terminal, or too large.
    ///
    /// Spec: UAP hub 4
    pub fn finish(
        &mut self,
        now: Now,
        session: &SessionId,
        result: JobResult,
    ) -> Result<(), CommandError> {
        if !result.state().is_some_and(State::is_terminal) {
            return Err(CommandError::NotTerminal);
        }
        let key = self.running(session)?;
        self.say(now, key, Say::Result(result))?;
        debug!(%session, "result sent");
        self.finishing(now, key);
        Ok(())
    }

    /// Leaves: accepts nothing more, gives running sessions `drain`, then closes `Listen`.
    // impl: HUB-5-3
    pub fn shutdown(&mut self, now: Now, drain: Duration) {
        if self.is_leaving || self.phase == Phase::Closed {
            return;
        }
        self.is_leaving = true;
        self.timers
            .set(Timer::Drain, now.mono.saturating_add(drain));
        if !matches!(self.phase, Phase::Listening { .. }) {
            self.timers.clear(&Timer::Control);
            self.phase = Phase::Idle;
        }
        self.leave_if_drained(now);
    }

    fn on_input(&mut self, now: Now, input: Input) -> Result<(), InputError> {
        if self.phase == Phase::Closed {
            return Err(InputError::Closed);
        }
        match input {
            Input::Registered { attempt, client_id } if self.is_awaited(attempt) => {
                debug!(attempt, "agent registered");
                self.listen(now, client_id)
            }
            Input::RegisterFailed { attempt, reason } if self.is_awaited(attempt) => {
                debug!(attempt, "registration failed");
                self.pause(now, &reason)
            }
            Input::Registered { .. } | Input::RegisterFailed { .. } => {}
            Input::Trace { stream, trace } => self.traced(stream, trace),
            Input::Message { stream, message } => {
                trace!(stream = stream.0, "agent: message received");
                self.message(now, stream, message);
            }
            Input::Ended { stream, status } => {
                trace!(stream = stream.0, code = ?status.code, "agent: call ended");
                self.ended(now, stream, status);
            }
            Input::Broken { stream, status } => {
                trace!(stream = stream.0, "agent: call broke");
                match self.streams.contains_key(&stream) {
                    true => self.cut(now, stream, status),
                    false => self.ended(now, stream, status),
                }
            }
        }
        self.leave_if_drained(now);
        Ok(())
    }

    fn on_due(&mut self, now: Now) {
        while let Some(timer) = self.timers.pop_due(now.mono) {
            trace!(sessions = self.sessions.len(), "agent timer");
            match timer {
                Timer::Control => match self.phase {
                    Phase::Registering => self.pause(now, "the hub did not answer in time"),
                    Phase::Pausing => match self.resumable.take() {
                        Some(client_id) => self.listen(now, client_id),
                        None => self.register(now),
                    },
                    Phase::Leaving { stream } => {
                        self.outputs.push(Output::Drop { stream });
                        self.close();
                    }
                    Phase::Idle | Phase::Listening { .. } | Phase::Closed => {}
                },
                Timer::Session(session) => self.session_timeout(now, session),
                Timer::Drain => {
                    for session in self.sessions.keys_of(|_| true) {
                        self.give_up(session);
                    }
                }
            }
        }
        self.leave_if_drained(now);
    }

    fn registration(config: &Config) -> AgentRegistration {
        AgentRegistration {
            display_name: config.name.clone(),
            capabilities: config.capabilities.clone(),
        }
    }

    fn is_awaited(&self, attempt: u64) -> bool {
        self.phase == Phase::Registering && attempt == self.attempt
    }

    fn register(&mut self, now: Now) {
        self.attempt += 1;
        self.phase = Phase::Registering;
        self.timers.set(
            Timer::Control,
            now.mono.saturating_add(self.config.register_timeout),
        );
        let registration = Self::registration(&self.config);
        self.outputs.push(Output::Register {
            attempt: self.attempt,
            registration,
        });
    }

    // impl: HUB-2-7 HUB-2-8
    fn listen(&mut self, now: Now, client_id: String) {
        let stream = self.next_stream();
        self.timers.clear(&Timer::Control);
        self.phase = Phase::Listening {
            stream,
            since: now.mono,
            heard: false,
        };
        let id = ClientId::from(client_id.as_str());
        self.resumable = self.config.resume.then(|| client_id.clone());
        self.outputs.push(Output::Open {
            stream,
            rpc: Rpc::Listen,
            key: client_id,
            resume: None,
            trace: None,
        });
        self.answer(stream, listen_request::Event::Ready(()));
        self.outputs
            .push(Output::Event(Event::Listening { client_id: id }));
        self.resume_all(now);
    }

    // impl: HUB-5-2
    fn pause(&mut self, now: Now, reason: &str) {
        let after = match self.config.jitter {
            true => self.backoff.next_delay_with_jitter(&mut self.ids),
            false => self.backoff.next_delay(),
        };
        let is_cut = self
            .sessions
            .iter()
            .any(|(_, session)| session.cut_at.is_some());
        let after = match is_cut {
            true => after.min(self.config.longest_cut_retry),
            false => after,
        };
        self.phase = Phase::Pausing;
        self.timers
            .set(Timer::Control, now.mono.saturating_add(after));
        self.outputs.push(Output::Event(Event::Retrying {
            after,
            reason: brief(reason),
        }));
    }

    fn ended(&mut self, now: Now, stream: StreamId, status: Status) {
        match self.phase {
            Phase::Listening {
                stream: control,
                since,
                heard,
            } if control == stream => {
                /// A control stream that lasted this long, or received a message, resets the backoff.
                const GOOD: Duration = Duration::from_secs(1);
                if heard || now.mono.saturating_since(since) >= GOOD {
                    self.backoff.reset();
                }
                if status.code == Code::NotFound {
                    self.resumable = None;
                }
                if self.resumable.is_none() || self.is_leaving {
                    self.drop_accepted();
                }
                if self.is_leaving {
                    self.phase = Phase::Idle;
                } else {
                    self.pause(now, &format!("Listen ended: {status}"));
                }
            }
            Phase::Leaving { stream: control } if control == stream => self.close(),
            _ => self.session_ended(now, stream, status),
        }
    }

    fn message(&mut self, now: Now, stream: StreamId, message: Inbound) {
        match (&mut self.phase, message) {
            (
                Phase::Listening {
                    stream: control,
                    heard,
                    ..
                },
                Inbound::Listen(message),
            ) if *control == stream => {
                *heard = true;
                if let Some(event) = message.event {
                    self.control(now, stream, event);
                }
            }
            (_, Inbound::Listen(_)) => {}
            (_, Inbound::Test(init)) => {
                self.init(now, stream, init.payloads, init.acknowledged);
            }
            (_, Inbound::Translation(init)) => {
                self.init(now, stream, init.payloads, init.acknowledged);
            }
        }
    }

    fn answer(&mut self, stream: StreamId, event: listen_request::Event) {
        let message = Outbound::Listen(ListenRequest { event: Some(event) });
        self.outputs.push(Output::Send { stream, message });
    }

    fn next_stream(&mut self) -> StreamId {
        self.opened += 1;
        StreamId(self.opened)
    }

    pub(super) fn leave_if_drained(&mut self, now: Now) {
        if !self.is_leaving || !self.sessions.is_empty() {
            return;
        }
        match self.phase {
            Phase::Listening { stream, .. } => {
                self.outputs.push(Output::HalfClose { stream });
                self.timers
                    .set(Timer::Control, now.mono.saturating_add(self.config.linger));
                self.phase = Phase::Leaving { stream };
            }
            Phase::Idle | Phase::Registering | Phase::Pausing => self.close(),
            Phase::Leaving { .. } | Phase::Closed => {}
        }
    }

    fn close(&mut self) {
        self.phase = Phase::Closed;
        self.timers = Timers::default();
        self.outputs.push(Output::Event(Event::Closed));
    }
}

impl_machine!(
    FleetAgent,
    Input,
    Input,
    /// Takes an input. Inputs of calls and attempts that are over are ignored.
    ///
    /// # Errors
    ///
    /// The agent has left.
);
