//! The agent's sessions, from proposal to the end of their call.

use prost::Message as _;
use ubos_common::{time::Now, trace_context::TraceContext};

use super::{
    CommandError, Event, Outbound, Output,
    event::Say,
    resume::rpc_of,
    state::{FleetAgent, Phase, Session, SessionStage, Timer},
};
use crate::{
    capability::{Kind, Skill},
    convert::to_timestamp,
    id::{SessionId, StreamId},
    message::JobResult,
    role::{Resume, slots::SlotKey as SessionKey},
    state::State,
    status::{Status, brief},
    wire::{
        Payload, SessionAcceptance, SessionProposal, TestResponse, TestStatus, TranslationResponse,
        TranslationStatus, listen_request, listen_response, session_proposal::Details,
        test_response, translation_response,
    },
};

/// Sessions beyond those that may run: they have given their result, and wait for the hub's end.
const MAX_FINISHING: usize = 256;

/// Bytes of a session's id. It stands in each answer and each event, which wait in bounded numbers.
const MAX_ID_BYTES: usize = 1024;

impl FleetAgent {
    pub(super) fn control(&mut self, now: Now, stream: StreamId, event: listen_response::Event) {
        match event {
            listen_response::Event::SessionProposal(proposal) => {
                self.proposed(now, stream, proposal)
            }
            listen_response::Event::SessionReady(ready) => self.ready(now, &ready.session_id),
        }
    }

    // impl: HUB-3-7
    fn proposed(&mut self, now: Now, stream: StreamId, proposal: SessionProposal) {
        // choice: HUB-3-7 an answer would have to repeat the id, so there is none
        if proposal.session_id.len() > MAX_ID_BYTES {
            return self.outputs.push(Output::Event(Event::Refused {
                session: brief(&proposal.session_id).into(),
                reason: "the id of the session is longer than 1,024 bytes",
            }));
        }
        let id = SessionId::from(proposal.session_id.as_str());
        if let Some(known) = self.by_id.get(&id) {
            // On a new control stream: the answer was lost with the one before.
            if let Some(known) = self.sessions.get_mut(*known)
                && known.stage == SessionStage::Accepted
                && known.answered_on != stream
            {
                known.answered_on = stream;
                self.decide(stream, proposal.session_id, "");
            }
            return;
        }
        let skill = proposal.details.map(|details| match details {
            Details::Test(test) => Skill::test(test.r#type),
            Details::Translation(translation) => Skill::translation(translation.r#type),
        });
        let reason = match &skill {
            None => "the proposal says neither test nor translation",
            Some(skill) if !self.skills.contains_key(skill) => {
                "the agent has no handler for that type"
            }
            Some(_) if self.is_leaving => "the agent is leaving",
            Some(_) if self.is_busy() => "the agent is busy",
            Some(_) => "",
        };
        let accepted = reason.is_empty();
        self.decide(stream, proposal.session_id, reason);
        match skill {
            Some(skill) if accepted => {
                let session = self.accepted(id.clone(), skill, stream);
                let key = self.sessions.add(session);
                self.by_id.insert(id, key);
                let at = now.mono.saturating_add(self.config.ready_timeout);
                self.timers.set(Timer::Session(key), at);
            }
            _ => self.outputs.push(Output::Event(Event::Refused {
                session: id,
                reason,
            })),
        }
    }

    /// Answers a proposal; without a reason it is accepted.
    fn decide(&mut self, stream: StreamId, session_id: String, reason: &str) {
        let answer = SessionAcceptance {
            session_id,
            accepted: reason.is_empty(),
            reason: reason.to_owned(),
        };
        self.answer(stream, listen_request::Event::SessionAcceptance(answer));
    }

    /// Whether as many sessions run as may. Those that wait for the hub's end take no place, but what a hub that never ends them
    /// has the agent keep is bounded.
    fn is_busy(&self) -> bool {
        let (all, most) = (self.sessions.len(), self.config.max_sessions);
        let takes_place = |(_, session): &(_, &Session)| session.stage != SessionStage::Finishing;
        // They are counted only where there can be enough.
        all >= most.saturating_add(MAX_FINISHING)
            || (all >= most && self.sessions.iter().filter(takes_place).count() >= most)
    }

    /// Opens the call and acknowledges at once: a hub may wait for that before it sends the job.
    // impl: HUB-3-5 HUB-4-1 HUB-2-8
    fn ready(&mut self, now: Now, id: &str) {
        let Some(key) = self.by_id.get(id).copied() else {
            return;
        };
        let stream = StreamId(self.opened + 1);
        let resume = self.config.resume.then_some(Resume::Job(1));
        let session = self.sessions.get_mut(key);
        let Some(session) = session.filter(|session| session.stage == SessionStage::Accepted)
        else {
            return;
        };
        self.opened = stream.0;
        (session.stage, session.stream) = (SessionStage::Opened, Some(stream));
        session.opened = 1;
        let rpc = rpc_of(session.skill.kind());
        self.streams.insert(stream, key);
        self.timers.set(
            Timer::Session(key),
            now.mono.saturating_add(self.config.init_timeout),
        );
        self.outputs.push(Output::Open {
            stream,
            rpc,
            key: id.to_owned(),
            resume,
            // The hub tells it in its answer.
            trace: None,
        });
        // Small, and nothing waits before it.
        let _ = self.report(now, key, Say::Status(State::Acknowledged, String::new()));
    }

    /// The hub told the place of a job in a trace. What comes after the job comes too late for its handler.
    pub(super) fn traced(&mut self, stream: StreamId, trace: TraceContext) {
        let session = self.streams.get(&stream);
        if let Some(session) = session.and_then(|key| self.sessions.get_mut(*key))
            && session.stage == SessionStage::Opened
        {
            session.trace = Some(trace);
        }
    }

    /// The job came: its handler may run. What comes after it can only acknowledge reports.
    pub(super) fn init(
        &mut self,
        now: Now,
        stream: StreamId,
        payloads: Vec<Payload>,
        acknowledged: Option<u64>,
    ) {
        let Some(key) = self.streams.get(&stream).copied() else {
            return;
        };
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if session.stage != SessionStage::Opened {
            // choice: HUB-4-1 a second job on the stream is ignored
            if acknowledged.is_some() {
                self.acknowledged(now, key, acknowledged);
            }
            return;
        }
        session.stage = SessionStage::Running;
        let id = session.id.clone();
        let (skill, trace) = (session.skill.clone(), session.trace.clone());
        self.timers.clear(&Timer::Session(key));
        self.acknowledged(now, key, acknowledged);
        if let Some(session) = self.sessions.get_mut(key) {
            session.made_way();
        }
        // Small, and the call is open.
        let _ = self.report(now, key, Say::Status(State::Running, String::new()));
        self.outputs.push(Output::Run {
            session: id,
            skill,
            payloads,
            trace,
        });
    }

    /// The session of a handler that runs.
    pub(super) fn running(&self, id: &SessionId) -> Result<SessionKey, CommandError> {
        let key = self.by_id.get(id).copied();
        let session = key.and_then(|key| Some((key, self.sessions.get(key)?)));
        match session {
            Some((key, session)) if session.stage == SessionStage::Running => Ok(key),
            _ => Err(CommandError::NotRunning),
        }
    }

    /// Sends a report of a handler, or keeps it for the next call.
    pub(super) fn say(&mut self, now: Now, key: SessionKey, say: Say) -> Result<(), CommandError> {
        let session = self.sessions.get(key).ok_or(CommandError::NotRunning)?;
        let wanted = session.skill.kind();
        if let Say::Result(result) = &say
            && result.kind() != wanted
        {
            return Err(CommandError::WrongKind {
                seen: result.kind(),
                wanted,
            });
        }
        self.report(now, key, say)
    }

    fn report(&mut self, now: Now, key: SessionKey, say: Say) -> Result<(), CommandError> {
        let session = self.sessions.get_mut(key).ok_or(CommandError::NotRunning)?;
        let message = {
            let number = session.kept.next(self.config.max_unacknowledged_bytes);
            message(now, session.skill.kind(), number, say)
        };
        let (seen, most) = (message.encoded_len(), self.config.max_message_bytes);
        if seen > most {
            return Err(CommandError::TooLarge { seen, most });
        }
        (session.kept).keep(&message, self.config.max_unacknowledged_bytes);
        match session.stream {
            Some(stream) => self.outputs.push(Output::Send { stream, message }),
            None if session.kept.can_resume() => {}
            // The report is kept nowhere, so the session is lost.
            None => {
                self.over(key, None);
                self.leave_if_drained(now);
            }
        }
        Ok(())
    }

    // impl: HUB-4-8
    pub(super) fn finishing(&mut self, now: Now, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.stage = SessionStage::Finishing;
        let Some(stream) = session.stream else {
            return;
        };
        // A dead connection is noticed in time to send the result again.
        let wait = match session.kept.can_resume() {
            true => self.config.resume_limit,
            false => self.config.linger,
        };
        self.timers
            .set(Timer::Session(key), now.mono.saturating_add(wait));
        self.outputs.push(Output::HalfClose { stream });
    }

    pub(super) fn session_timeout(&mut self, now: Now, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        match session.stage {
            _ if session.is_cut() => self.resume(now, key),
            SessionStage::Opened => {
                let kind = session.skill.kind();
                let result =
                    JobResult::bare(kind, State::Failed, "the hub did not send the job in time");
                // Small, and the call is open.
                let _ = self.report(now, key, Say::Result(result));
                self.finishing(now, key);
            }
            SessionStage::Accepted | SessionStage::Running | SessionStage::Finishing => {
                self.give_up(key)
            }
        }
    }

    /// Ends a session from this side, without a report.
    pub(super) fn give_up(&mut self, key: SessionKey) {
        let stream = self.sessions.get(key).and_then(|session| session.stream);
        if let Some(stream) = stream {
            self.outputs.push(Output::Drop { stream });
        }
        self.over(key, None);
    }

    /// The call of a session ended: a handler that still runs is stopped. While a cut session is being resumed, what stands
    /// between may refuse for now: then the call is opened again.
    // impl: HUB-4-7 HUB-5-4
    pub(super) fn session_ended(&mut self, now: Now, stream: StreamId, status: Status) {
        let Some(key) = self.streams.get(&stream).copied() else {
            return;
        };
        let session = self.sessions.get(key);
        let is_resuming = session.is_some_and(|session| session.cut_at.is_some());
        if is_resuming && status.code.is_transient() {
            return self.cut(now, stream, status);
        }
        self.over(key, Some(status));
    }

    /// The control stream is gone: what was only accepted will never be ready.
    pub(super) fn drop_accepted(&mut self) {
        let is_accepted = |session: &Session| session.stage == SessionStage::Accepted;
        for key in self.sessions.keys_of(is_accepted) {
            self.over(key, None);
        }
    }

    pub(super) fn over(&mut self, key: SessionKey, status: Option<Status>) {
        let Some(session) = self.sessions.remove(key) else {
            return;
        };
        let id = session.id;
        self.by_id.remove(&id);
        self.timers.clear(&Timer::Session(key));
        if let Some(stream) = session.stream {
            self.streams.remove(&stream);
        }
        if session.stage == SessionStage::Running {
            self.outputs.push(Output::Stop {
                session: id.clone(),
            });
        }
        self.outputs.push(Output::Event(Event::SessionOver {
            session: id,
            status,
        }));
        debug_assert!(self.phase != Phase::Closed, "sessions end before the agent");
    }
}

impl Outbound {
    pub(super) fn encoded_len(&self) -> usize {
        match self {
            Self::Listen(message) => message.encoded_len(),
            Self::Test(message) => message.encoded_len(),
            Self::Translation(message) => message.encoded_len(),
        }
    }
}

/// Puts a report in its kind's message, with the time and its number.
fn message(now: Now, kind: Kind, number: u64, mut say: Say) -> Outbound {
    let timestamp = Some(to_timestamp(now.wall));
    if let Say::Telemetry(telemetry) = &mut say {
        telemetry
            .timestamp
            .get_or_insert_with(|| to_timestamp(now.wall));
    }
    match kind {
        Kind::Test => {
            use test_response::Event;
            let event = match say {
                Say::Status(state, message) => Some(Event::Status(TestStatus {
                    state: state.to_wire(kind),
                    message,
                })),
                Say::Telemetry(telemetry) => Some(Event::Telemetry(telemetry)),
                Say::Result(JobResult::Test(result)) => Some(Event::Result(result)),
                Say::Result(JobResult::Translation(_)) => None,
            };
            Outbound::Test(TestResponse {
                timestamp,
                event,
                number,
            })
        }
        Kind::Translation => {
            use translation_response::Event;
            let event = match say {
                Say::Status(state, message) => Some(Event::Status(TranslationStatus {
                    state: state.to_wire(kind),
                    message,
                })),
                Say::Telemetry(telemetry) => Some(Event::Telemetry(telemetry)),
                Say::Result(JobResult::Translation(result)) => Some(Event::Result(result)),
                Say::Result(JobResult::Test(_)) => None,
            };
            Outbound::Translation(TranslationResponse {
                timestamp,
                event,
                number,
            })
        }
    }
}
