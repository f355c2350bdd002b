//! The scenarios that agents are put through.

use std::time::Duration;

use super::super::{SILENCE, SOON};
use super::{AgentAction, AgentLine, AgentPeer, LineKind};
use crate::Recorder;
use uap_hub_proto::{
    capability::Kind,
    id::StreamId,
    role::{
        Rpc,
        hub::{Inbound, Outbound},
    },
    status::{Code, Status},
    wire::{
        AgentRegistration, ListenResponse, Payload, PayloadRequirement, SessionProposal,
        SessionReady, TestInit, TestProposalDetails, TranslationInit, TranslationProposalDetails,
        capability::Format, listen_request, listen_response, session_proposal::Details,
    },
};

/// How long an agent may take to register again: the longest pause and a margin.
const RETURN: Duration = Duration::from_secs(75);

/// How long a session may take.
const WORK: Duration = Duration::from_secs(30);

/// How long its first word is waited for: not as long as agents wait for their job.
const FIRST_WORD: Duration = Duration::from_secs(20);

/// Drives an agent and records what it does.
pub(super) struct Driver<'a> {
    pub(super) peer: &'a mut dyn AgentPeer,
    pub(super) lines: &'a mut Recorder<AgentLine>,
    pub(super) registration: AgentRegistration,
}

/// A capability of the agent, with payloads that meet its requirements.
struct Skill {
    kind: Kind,
    name: String,
    payloads: Vec<Payload>,
}

impl Driver<'_> {
    fn record(&mut self, kind: LineKind) {
        let at = self.peer.elapsed();
        self.lines.record(AgentLine { at, kind });
    }

    fn next(&mut self, timeout: Duration) -> Option<AgentAction> {
        let action = self.peer.next(timeout)?;
        self.record(LineKind::Agent(action.clone()));
        Some(action)
    }

    /// Waits for a wanted action; `None` if it does not come in time.
    fn until<T>(
        &mut self,
        timeout: Duration,
        mut wanted: impl FnMut(&AgentAction) -> Option<T>,
    ) -> Option<T> {
        let end = self.peer.elapsed() + timeout;
        loop {
            let left = end.checked_sub(self.peer.elapsed())?;
            let action = self.next(left)?;
            if let Some(found) = wanted(&action) {
                return Some(found);
            }
        }
    }

    /// Records actions for a while.
    fn watch(&mut self, span: Duration) {
        let _: Option<()> = self.until(span, |_| None);
    }

    fn registers(&mut self) -> Option<()> {
        let registration = self.until(RETURN, |action| match action {
            AgentAction::Registered(registration) => Some(registration.clone()),
            _ => None,
        });
        self.registration = registration?;
        Some(())
    }

    fn answer(&mut self, answer: Result<String, Status>) {
        self.record(LineKind::Answered(answer.clone()));
        self.peer.answer(answer);
    }

    fn send(&mut self, stream: StreamId, message: Outbound) {
        self.record(LineKind::Sent(stream, message.clone()));
        self.peer.send(stream, message);
    }

    fn end(&mut self, stream: StreamId, status: Status) {
        self.record(LineKind::Ended(stream, status.clone()));
        self.peer.end(stream, status);
    }

    /// Accepts the registration, and waits for the first message on `Listen`.
    fn listening(&mut self) -> Option<StreamId> {
        self.registers()?;
        self.answer(Ok("conformance-client".to_owned()));
        let listen = self.opened(Rpc::Listen)?;
        let said = self.until(SOON, |action| match action {
            AgentAction::Sent(stream, _) if *stream == listen => Some(()),
            _ => None,
        });
        said.map(|()| listen)
    }

    fn opened(&mut self, wanted: Rpc) -> Option<StreamId> {
        self.until(SOON, |action| match action {
            AgentAction::Opened { stream, rpc, .. } if *rpc == wanted => Some(*stream),
            _ => None,
        })
    }

    fn send_event(&mut self, listen: StreamId, event: listen_response::Event) {
        let message = ListenResponse { event: Some(event) };
        self.send(listen, Outbound::Listen(message));
    }

    fn propose(
        &mut self,
        listen: StreamId,
        session: &str,
        details: Option<Details>,
    ) -> Option<bool> {
        let proposal = SessionProposal {
            session_id: session.to_owned(),
            details,
        };
        self.send_event(listen, listen_response::Event::SessionProposal(proposal));
        self.until(SOON, |action| match action {
            AgentAction::Sent(_, Inbound::Listen(message)) => match message.event.as_ref()? {
                listen_request::Event::SessionAcceptance(answer) => {
                    (answer.session_id == session).then_some(answer.accepted)
                }
                listen_request::Event::Ready(()) => None,
            },
            _ => None,
        })
    }

    fn ready(&mut self, listen: StreamId, session: &str) {
        let session_id = session.to_owned();
        self.send_event(
            listen,
            listen_response::Event::SessionReady(SessionReady { session_id }),
        );
    }

    /// The first capability of the agent, with made-up payloads for its requirements.
    fn skill(&self) -> Option<Skill> {
        let format = self.registration.capabilities.first()?.format.clone()?;
        let (kind, name, required) = match format {
            Format::Test(test) => (Kind::Test, test.r#type, test.payloads),
            Format::Translation(to) => (Kind::Translation, to.r#type, to.source_payloads),
        };
        let required = required.iter().filter(|one| one.is_required);
        Some(Skill {
            kind,
            name,
            payloads: required.map(made_up).collect(),
        })
    }

    /// Takes a session to its open stream.
    fn session(&mut self, listen: StreamId, session: &str) -> Option<(StreamId, Skill)> {
        let skill = self.skill()?;
        if !self.propose(listen, session, Some(skill.details()))? {
            return None;
        }
        self.ready(listen, session);
        let stream = self.opened(skill.rpc())?;
        Some((stream, skill))
    }

    /// Waits for the half-close.
    fn half_closed(&mut self, wanted: StreamId) -> Option<()> {
        self.until(WORK, |action| match action {
            AgentAction::HalfClosed(stream) | AgentAction::Reset(stream) if *stream == wanted => {
                Some(())
            }
            _ => None,
        })
    }
}

impl Skill {
    const fn rpc(&self) -> Rpc {
        match self.kind {
            Kind::Test => Rpc::Execute,
            Kind::Translation => Rpc::Translate,
        }
    }

    fn details(&self) -> Details {
        let r#type = self.name.clone();
        match self.kind {
            Kind::Test => Details::Test(TestProposalDetails { r#type }),
            Kind::Translation => Details::Translation(TranslationProposalDetails { r#type }),
        }
    }

    fn job(self) -> Outbound {
        match self.kind {
            Kind::Test => Outbound::Test(TestInit {
                test_type: self.name,
                payloads: self.payloads,
                acknowledged: None,
            }),
            Kind::Translation => Outbound::Translation(TranslationInit {
                target_format: self.name,
                payloads: self.payloads,
                acknowledged: None,
            }),
        }
    }
}

fn made_up(requirement: &PayloadRequirement) -> Payload {
    let mime = requirement.accepted_mime_types.first();
    let mime = mime.map_or("text/plain", String::as_str);
    Payload::file(
        requirement.r#type.as_str(),
        "conformance",
        mime,
        "conformance",
    )
}

fn unavailable() -> Status {
    Status::new(Code::Unavailable, "conformance: come again")
}

pub(super) fn listens(agent: &mut Driver<'_>) -> Option<()> {
    agent.listening()?;
    None
}

pub(super) fn one_session(agent: &mut Driver<'_>) -> Option<()> {
    let listen = agent.listening()?;
    let (stream, skill) = agent.session(listen, "JOB-one")?;
    agent.send(stream, skill.job());
    agent.half_closed(stream)?;
    agent.end(stream, Status::ok());
    None
}

pub(super) fn hesitate(agent: &mut Driver<'_>) -> Option<()> {
    let listen = agent.listening()?;
    let details = agent.skill()?.details();
    agent.propose(listen, "JOB-hesitate", Some(details))?;
    agent.watch(SILENCE);
    None
}

pub(super) fn propose_oddly(agent: &mut Driver<'_>) -> Option<()> {
    let listen = agent.listening()?;
    let r#type = "conformance: nobody does this".to_owned();
    let odd = Details::Test(TestProposalDetails { r#type });
    agent.propose(listen, "JOB-odd", Some(odd));
    agent.propose(listen, "JOB-nothing", None);
    agent.watch(SILENCE);
    None
}

pub(super) fn ready_for_nobody(agent: &mut Driver<'_>) -> Option<()> {
    let listen = agent.listening()?;
    agent.ready(listen, "JOB-nobody");
    agent.watch(SILENCE * 2);
    None
}

/// Waits for the agent's first message before it sends the job.
pub(super) fn silent_hub(agent: &mut Driver<'_>) -> Option<()> {
    let listen = agent.listening()?;
    let (stream, skill) = agent.session(listen, "JOB-silent")?;
    let said = |action: &AgentAction| matches!(action, AgentAction::Sent(on, _) if *on == stream);
    agent.until(FIRST_WORD, |action| said(action).then_some(()));
    agent.send(stream, skill.job());
    agent.half_closed(stream)?;
    agent.end(stream, Status::ok());
    None
}

pub(super) fn two_sessions(agent: &mut Driver<'_>) -> Option<()> {
    let listen = agent.listening()?;
    let (first, skill) = agent.session(listen, "JOB-first")?;
    let (second, _) = agent.session(listen, "JOB-second")?;
    for stream in [first, second] {
        let again = agent.skill()?;
        agent.send(stream, again.job());
    }
    drop(skill);
    for _ in 0..2 {
        agent.until(WORK, |action| {
            matches!(action, AgentAction::HalfClosed(_)).then_some(())
        })?;
    }
    agent.end(first, Status::ok());
    agent.end(second, Status::ok());
    None
}

pub(super) fn large_job(agent: &mut Driver<'_>) -> Option<()> {
    let listen = agent.listening()?;
    let (stream, mut skill) = agent.session(listen, "JOB-large")?;
    let size = 6 << 20;
    skill.payloads.push(Payload::file(
        "conformance-padding",
        "padding",
        "application/octet-stream",
        vec![0; size],
    ));
    // The recording does not need the bytes.
    agent.peer.send(stream, skill.job());
    agent.half_closed(stream)?;
    agent.end(stream, Status::ok());
    None
}

pub(super) fn slow_end(agent: &mut Driver<'_>) -> Option<()> {
    let listen = agent.listening()?;
    let (stream, skill) = agent.session(listen, "JOB-slow")?;
    agent.send(stream, skill.job());
    agent.half_closed(stream)?;
    agent.watch(SILENCE * 2);
    agent.end(stream, Status::ok());
    None
}

pub(super) fn refuse_thrice(agent: &mut Driver<'_>) -> Option<()> {
    let listen = agent.listening()?;
    agent.watch(Duration::from_millis(1_200));
    agent.end(listen, unavailable());
    for _ in 0..2 {
        agent.registers()?;
        agent.answer(Err(unavailable()));
    }
    agent.registers()?;
    agent.answer(Ok("conformance-again".to_owned()));
    agent.watch(SILENCE);
    None
}

pub(super) fn end_ok(agent: &mut Driver<'_>) -> Option<()> {
    let listen = agent.listening()?;
    agent.watch(Duration::from_millis(1_200));
    agent.end(listen, Status::ok());
    agent.registers()?;
    agent.answer(Ok("conformance-again".to_owned()));
    agent.watch(SILENCE);
    None
}
