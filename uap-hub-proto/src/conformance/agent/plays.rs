//! What is done to an agent.

use std::time::Duration;

use ubos_common::conformance::Recorder;

use super::{AgentPeer, Did, Line, What};
use crate::{
    capability::Kind,
    conformance::{SILENCE, SOON},
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

/// How long an agent may take to come back: the longest pause, and some.
const RETURN: Duration = Duration::from_secs(75);

/// How long a session may take.
const WORK: Duration = Duration::from_secs(30);

/// An agent and the recording of what it does.
struct Play<'a> {
    agent: &'a mut dyn AgentPeer,
    lines: &'a mut Recorder<Line>,
    registration: AgentRegistration,
}

/// What an agent can do, and what it wants for that.
struct Ability {
    kind: Kind,
    name: String,
    payloads: Vec<Payload>,
}

impl Play<'_> {
    fn record(&mut self, what: What) {
        let at = self.agent.elapsed();
        self.lines.record(Line { at, what });
    }

    fn next(&mut self, patience: Duration) -> Option<Did> {
        let did = self.agent.next(patience)?;
        self.record(What::Agent(did.clone()));
        Some(did)
    }

    /// Goes on until the agent does what is wanted; `None` when it does not in time.
    fn until<T>(
        &mut self,
        patience: Duration,
        mut wanted: impl FnMut(&Did) -> Option<T>,
    ) -> Option<T> {
        let end = self.agent.elapsed() + patience;
        loop {
            let left = end.checked_sub(self.agent.elapsed())?;
            let did = self.next(left)?;
            if let Some(found) = wanted(&did) {
                return Some(found);
            }
        }
    }

    /// Looks on for a while.
    fn watch(&mut self, span: Duration) {
        let _: Option<()> = self.until(span, |_| None);
    }

    fn registers(&mut self) -> Option<()> {
        let registration = self.until(RETURN, |did| match did {
            Did::Registers(registration) => Some(registration.clone()),
            _ => None,
        });
        self.registration = registration?;
        Some(())
    }

    fn answer(&mut self, answer: Result<String, Status>) {
        self.record(What::Answered(answer.clone()));
        self.agent.answer(answer);
    }

    fn send(&mut self, stream: StreamId, message: Outbound) {
        self.record(What::Sent(stream, message.clone()));
        self.agent.send(stream, message);
    }

    fn end(&mut self, stream: StreamId, status: Status) {
        self.record(What::Ended(stream, status.clone()));
        self.agent.end(stream, status);
    }

    /// Lets the agent in, and waits until it is there and has said something.
    fn listening(&mut self) -> Option<StreamId> {
        self.registers()?;
        self.answer(Ok("conformance-client".to_owned()));
        let listen = self.opened(Rpc::Listen)?;
        let said = self.until(SOON, |did| match did {
            Did::Says(stream, _) if *stream == listen => Some(()),
            _ => None,
        });
        said.map(|()| listen)
    }

    fn opened(&mut self, wanted: Rpc) -> Option<StreamId> {
        self.until(SOON, |did| match did {
            Did::Opens { stream, rpc, .. } if *rpc == wanted => Some(*stream),
            _ => None,
        })
    }

    fn tell(&mut self, listen: StreamId, event: listen_response::Event) {
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
        self.tell(listen, listen_response::Event::SessionProposal(proposal));
        self.until(SOON, |did| match did {
            Did::Says(_, Inbound::Listen(message)) => match message.event.as_ref()? {
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
        self.tell(
            listen,
            listen_response::Event::SessionReady(SessionReady { session_id }),
        );
    }

    /// What the agent says that it can do, with made-up payloads for all that it requires.
    fn ability(&self) -> Option<Ability> {
        let format = self.registration.capabilities.first()?.format.clone()?;
        let (kind, name, required) = match format {
            Format::Test(test) => (Kind::Test, test.r#type, test.payloads),
            Format::Translation(to) => (Kind::Translation, to.r#type, to.source_payloads),
        };
        let required = required.iter().filter(|one| one.is_required);
        Some(Ability {
            kind,
            name,
            payloads: required.map(made_up).collect(),
        })
    }

    /// Brings a session to its open stream.
    fn session(&mut self, listen: StreamId, session: &str) -> Option<(StreamId, Ability)> {
        let ability = self.ability()?;
        if !self.propose(listen, session, Some(ability.details()))? {
            return None;
        }
        self.ready(listen, session);
        let stream = self.opened(ability.rpc())?;
        Some((stream, ability))
    }

    /// Waits for the half-close.
    fn half_closed(&mut self, wanted: StreamId) -> Option<()> {
        self.until(WORK, |did| match did {
            Did::HalfCloses(stream) | Did::Resets(stream) if *stream == wanted => Some(()),
            _ => None,
        })
    }
}

impl Ability {
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
            }),
            Kind::Translation => Outbound::Translation(TranslationInit {
                target_format: self.name,
                payloads: self.payloads,
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

macro_rules! plays {
    ($($(#[$doc:meta])* $name:ident($play:ident) $body:block)*) => {$(
        $(#[$doc])*
        pub(super) fn $name(agent: &mut (dyn AgentPeer + 'static), lines: &mut Recorder<Line>) {
            let registration = AgentRegistration::default();
            let mut play = Play { agent, lines, registration };
            fn go($play: &mut Play<'_>) -> Option<()> $body
            // A play that cannot go on ends; its judge sees how far it came.
            let _: Option<()> = go(&mut play);
        }
    )*};
}

plays! {
    listens(play) {
        play.listening()?;
        None
    }

    one_session(play) {
        let listen = play.listening()?;
        let (stream, ability) = play.session(listen, "JOB-one")?;
        play.send(stream, ability.job());
        play.half_closed(stream)?;
        play.end(stream, Status::ok());
        None
    }

    hesitate(play) {
        let listen = play.listening()?;
        let details = play.ability()?.details();
        play.propose(listen, "JOB-hesitate", Some(details))?;
        play.watch(SILENCE);
        None
    }

    propose_oddly(play) {
        let listen = play.listening()?;
        let r#type = "conformance: nobody does this".to_owned();
        let odd = Details::Test(TestProposalDetails { r#type });
        play.propose(listen, "JOB-odd", Some(odd));
        play.propose(listen, "JOB-nothing", None);
        play.watch(SILENCE);
        None
    }

    ready_for_nobody(play) {
        let listen = play.listening()?;
        play.ready(listen, "JOB-nobody");
        play.watch(SILENCE * 2);
        None
    }

    /// A hub that waits for the agent's first message before it sends the job.
    silent_hub(play) {
        let listen = play.listening()?;
        let (stream, ability) = play.session(listen, "JOB-silent")?;
        play.watch(SILENCE * 2);
        play.send(stream, ability.job());
        play.half_closed(stream)?;
        play.end(stream, Status::ok());
        None
    }

    two_sessions(play) {
        let listen = play.listening()?;
        let (first, ability) = play.session(listen, "JOB-first")?;
        let (second, _) = play.session(listen, "JOB-second")?;
        for stream in [first, second] {
            let again = play.ability()?;
            play.send(stream, again.job());
        }
        drop(ability);
        for _ in 0..2 {
            play.until(WORK, |did| matches!(did, Did::HalfCloses(_)).then_some(()))?;
        }
        play.end(first, Status::ok());
        play.end(second, Status::ok());
        None
    }

    large_job(play) {
        let listen = play.listening()?;
        let (stream, mut ability) = play.session(listen, "JOB-large")?;
        let size = 6 << 20;
        ability.payloads.push(Payload::file("conformance-padding", "padding", "application/octet-stream", vec![0; size]));
        // The recording has no need of the bytes.
        play.agent.send(stream, ability.job());
        play.half_closed(stream)?;
        play.end(stream, Status::ok());
        None
    }

    slow_end(play) {
        let listen = play.listening()?;
        let (stream, ability) = play.session(listen, "JOB-slow")?;
        play.send(stream, ability.job());
        play.half_closed(stream)?;
        play.watch(SILENCE * 2);
        play.end(stream, Status::ok());
        None
    }

    refuse_thrice(play) {
        let listen = play.listening()?;
        play.watch(Duration::from_millis(1_200));
        play.end(listen, unavailable());
        for _ in 0..2 {
            play.registers()?;
            play.answer(Err(unavailable()));
        }
        play.registers()?;
        play.answer(Ok("conformance-again".to_owned()));
        play.watch(SILENCE);
        None
    }

    end_ok(play) {
        let listen = play.listening()?;
        play.watch(Duration::from_millis(1_200));
        play.end(listen, Status::ok());
        play.registers()?;
        play.answer(Ok("conformance-again".to_owned()));
        play.watch(SILENCE);
        None
    }
}
