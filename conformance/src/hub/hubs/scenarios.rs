//! The scenarios that hubs are put through.

use std::time::Duration;

use super::super::{SILENCE, SOON};
use super::{HubAction, HubLine, HubPeer};
use crate::Recorder;
use uap_hub_proto::{
    capability::{Kind, Skill},
    id::StreamId,
    role::{
        Rpc,
        agent::{Inbound, Outbound},
    },
    state::State,
    wire::{
        AgentRegistration, Attachment, Capability, ListenRequest, Payload, SessionAcceptance,
        Severity, Telemetry, TestResponse, TestResult, TestStatus, TranslationResponse,
        TranslationResult, TranslationStatus, listen_request, listen_response, test_response,
        translation_response,
    },
};

/// A report of the fleet's agents, before it becomes a message of the kind of the hub's jobs.
enum Said {
    Status(State),
    Line(Telemetry),
    /// A result with this state, these words and so many bytes of data.
    Result(State, &'static str, usize),
}

/// A report as a message.
fn message(kind: Kind, said: Option<Said>) -> Outbound {
    let data = |bytes| vec![7; bytes];
    match kind {
        Kind::Test => {
            use test_response::Event;
            let event = said.map(|said| match said {
                Said::Status(state) => Event::Status(TestStatus {
                    state: state.to_wire(kind),
                    message: String::new(),
                }),
                Said::Line(line) => Event::Telemetry(line),
                Said::Result(state, words, 0) => Event::Result(TestResult::new(state, words)),
                Said::Result(state, words, bytes) => {
                    let file = Attachment::new("large", "application/octet-stream", data(bytes));
                    Event::Result(TestResult::new(state, words).with_attachment(file))
                }
            });
            Outbound::Test(TestResponse {
                timestamp: None,
                event,
                number: 0,
            })
        }
        Kind::Translation => {
            use translation_response::Event;
            let event = said.map(|said| match said {
                Said::Status(state) => Event::Status(TranslationStatus {
                    state: state.to_wire(kind),
                    message: String::new(),
                }),
                Said::Line(line) => Event::Telemetry(line),
                Said::Result(state, words, bytes) => Event::Result(TranslationResult {
                    status: Some(TranslationStatus {
                        state: state.to_wire(kind),
                        message: words.to_owned(),
                    }),
                    payloads: vec![Payload::file(
                        "made",
                        "made",
                        "application/octet-stream",
                        data(bytes),
                    )],
                    summary: None,
                }),
            });
            Outbound::Translation(TranslationResponse {
                timestamp: None,
                event,
                number: 0,
            })
        }
    }
}

/// A good result without words.
const DONE: Said = Said::Result(State::Completed, "", 0);

/// Drives a hub and records what it does.
pub(super) struct Driver<'a> {
    pub(super) hub: &'a mut dyn HubPeer,
    pub(super) lines: &'a mut Recorder<HubLine>,
}

impl Driver<'_> {
    fn register(&mut self, capabilities: Vec<Capability>) -> Option<String> {
        let answer = self.hub.register(AgentRegistration {
            display_name: "conformance".to_owned(),
            capabilities,
        });
        self.lines.record(HubLine::Registered(answer.clone()));
        answer.ok()
    }

    fn open(&mut self, rpc: Rpc, key: Option<&str>) -> StreamId {
        let stream = self.hub.open(rpc, key);
        self.lines.record(HubLine::Opened(stream, rpc));
        stream
    }

    fn next(&mut self, stream: StreamId, timeout: Duration) -> Option<HubAction> {
        let said = self.hub.next(stream, timeout);
        self.lines.record(match &said {
            Some(said) => HubLine::Hub(stream, said.clone()),
            None => HubLine::Silence(stream),
        });
        said
    }

    /// Registers an agent with the skill of the hub's jobs, and opens its `Listen`.
    fn capable(&mut self) -> Option<StreamId> {
        let skill = self.hub.skill();
        let id = self.register(vec![skill.into()])?;
        Some(self.open(Rpc::Listen, Some(&id)))
    }

    /// Waits for a proposal.
    fn proposal(&mut self, listen: StreamId) -> Option<String> {
        match self.next(listen, SOON)? {
            HubAction::Sent(Inbound::Listen(message)) => match message.event? {
                listen_response::Event::SessionProposal(proposal) => Some(proposal.session_id),
                listen_response::Event::SessionReady(_) => None,
            },
            _ => None,
        }
    }

    fn answer(&mut self, listen: StreamId, session: &str, accepted: bool) {
        if accepted {
            self.lines
                .record(HubLine::Accepted(listen, session.to_owned()));
        }
        let answer = SessionAcceptance {
            session_id: session.to_owned(),
            accepted,
            reason: String::new(),
        };
        let event = Some(listen_request::Event::SessionAcceptance(answer));
        self.hub
            .send(listen, Outbound::Listen(ListenRequest { event }));
    }

    /// Waits for `SessionReady`, and skips proposals of other jobs.
    fn is_ready(&mut self, listen: StreamId) -> bool {
        /// More proposals than any hub makes to one agent at once.
        const MANY: usize = 1_000;
        for _ in 0..MANY {
            let event = match self.next(listen, SOON) {
                Some(HubAction::Sent(Inbound::Listen(message))) => message.event,
                _ => return false,
            };
            if let Some(listen_response::Event::SessionReady(_)) = event {
                return true;
            }
        }
        false
    }

    /// Takes a session to the point where its stream may be opened.
    fn ready(&mut self) -> Option<(StreamId, String)> {
        let listen = self.capable()?;
        self.hub.want_job();
        let session = self.proposal(listen)?;
        self.answer(listen, &session, true);
        self.is_ready(listen).then_some((listen, session))
    }

    /// Takes a session to its job.
    fn started(&mut self) -> Option<StreamId> {
        let (_, session) = self.ready()?;
        let stream = self.open(self.rpc(), Some(&session));
        self.report(stream, Some(Said::Status(State::Acknowledged)));
        self.next(stream, SOON)?;
        Some(stream)
    }

    /// The call of the hub's jobs.
    fn rpc(&self) -> Rpc {
        match self.hub.skill().kind() {
            Kind::Test => Rpc::Execute,
            Kind::Translation => Rpc::Translate,
        }
    }

    fn report(&mut self, stream: StreamId, said: Option<Said>) {
        let message = message(self.hub.skill().kind(), said);
        self.hub.send(stream, message);
    }

    /// Ends a session with a result and a half-close.
    fn finish(&mut self, stream: StreamId, result: Said) {
        self.report(stream, Some(result));
        self.end(stream);
    }

    fn end(&mut self, stream: StreamId) {
        /// More messages than any hub sends on a stream.
        const MANY: usize = 8;
        self.hub.half_close(stream);
        for _ in 0..MANY {
            match self.next(stream, SOON) {
                Some(HubAction::Sent(_)) => {}
                Some(HubAction::Ended(_)) | None => return,
            }
        }
    }
}

pub(super) fn register_twice(fleet: &mut Driver<'_>) -> Option<()> {
    for _ in 0..2 {
        let skill = fleet.hub.skill();
        fleet.register(vec![skill.into()])?;
    }
    None
}

pub(super) fn register_empty(fleet: &mut Driver<'_>) -> Option<()> {
    let answer = fleet.hub.register(AgentRegistration::default());
    fleet.lines.record(HubLine::Registered(answer));
    None
}

pub(super) fn register_nothing(fleet: &mut Driver<'_>) -> Option<()> {
    fleet.register(vec![Capability::default()]);
    fleet.register(vec![Skill::test("").into()]);
    None
}

pub(super) fn listen_as_nobody(fleet: &mut Driver<'_>) -> Option<()> {
    for key in [None, Some(""), Some("nobody")] {
        let stream = fleet.open(Rpc::Listen, key);
        fleet.next(stream, SOON);
    }
    None
}

/// Four calls without a session id, then two with an unknown one.
pub(super) fn open_nothing(fleet: &mut Driver<'_>) -> Option<()> {
    for key in [None, Some(""), Some("JOB-nobody")] {
        for rpc in [Rpc::Execute, Rpc::Translate] {
            let stream = fleet.open(rpc, key);
            fleet.next(stream, SOON);
        }
    }
    None
}

pub(super) fn other_kind(fleet: &mut Driver<'_>) -> Option<()> {
    let (_, session) = fleet.ready()?;
    let other = match fleet.rpc() {
        Rpc::Translate => Rpc::Execute,
        _ => Rpc::Translate,
    };
    let wrong = fleet.open(other, Some(&session));
    fleet.next(wrong, SOON);
    let right = fleet.open(fleet.rpc(), Some(&session));
    fleet.next(right, SOON)?;
    fleet.finish(right, DONE);
    None
}

pub(super) fn second_stream(fleet: &mut Driver<'_>) -> Option<()> {
    let (_, session) = fleet.ready()?;
    let first = fleet.open(fleet.rpc(), Some(&session));
    fleet.next(first, SOON)?;
    let second = fleet.open(fleet.rpc(), Some(&session));
    fleet.next(second, SOON);
    fleet.next(first, SILENCE);
    fleet.finish(first, DONE);
    None
}

pub(super) fn listen_twice(fleet: &mut Driver<'_>) -> Option<()> {
    let id = fleet.register(Vec::new())?;
    let first = fleet.open(Rpc::Listen, Some(&id));
    fleet.next(first, SILENCE);
    let second = fleet.open(Rpc::Listen, Some(&id));
    fleet.next(first, SOON);
    fleet.next(second, SILENCE);
    None
}

pub(super) fn one_session(fleet: &mut Driver<'_>) -> Option<()> {
    let stream = fleet.started()?;
    fleet.next(stream, SILENCE);
    fleet.finish(stream, Said::Result(State::Completed, "done", 0));
    None
}

/// Accepts late, and looks on after ready.
pub(super) fn unhurried(fleet: &mut Driver<'_>) -> Option<()> {
    let listen = fleet.capable()?;
    fleet.hub.want_job();
    let session = fleet.proposal(listen)?;
    fleet.next(listen, SILENCE);
    fleet.answer(listen, &session, true);
    fleet.is_ready(listen);
    fleet.next(listen, SILENCE);
    None
}

pub(super) fn refuse_one(fleet: &mut Driver<'_>) -> Option<()> {
    let first = fleet.capable()?;
    fleet.hub.want_job();
    let session = fleet.proposal(first)?;
    let second = fleet.capable()?;
    fleet.answer(first, &session, false);
    fleet.proposal(second);
    None
}

pub(super) fn leave_one(fleet: &mut Driver<'_>) -> Option<()> {
    let first = fleet.capable()?;
    fleet.hub.want_job();
    fleet.proposal(first)?;
    let second = fleet.capable()?;
    fleet.hub.reset(first);
    fleet.proposal(second);
    None
}

/// Sends `ready` only if no proposal came without it.
pub(super) fn never_ready(fleet: &mut Driver<'_>) -> Option<()> {
    let listen = fleet.capable()?;
    fleet.hub.want_job();
    if fleet.proposal(listen).is_none() {
        let event = Some(listen_request::Event::Ready(()));
        fleet
            .hub
            .send(listen, Outbound::Listen(ListenRequest { event }));
        fleet.proposal(listen);
    }
    None
}

pub(super) fn ask_the_incapable(fleet: &mut Driver<'_>) -> Option<()> {
    fleet.hub.want_job();
    let id = fleet.register(vec![
        Skill::test("conformance: nobody asks for this").into(),
    ])?;
    let listen = fleet.open(Rpc::Listen, Some(&id));
    fleet.next(listen, SILENCE);
    let capable = fleet.capable()?;
    fleet.proposal(capable);
    None
}

pub(super) fn stray_answer(fleet: &mut Driver<'_>) -> Option<()> {
    let id = fleet.register(Vec::new())?;
    let listen = fleet.open(Rpc::Listen, Some(&id));
    fleet.answer(listen, "JOB-nobody", true);
    fleet.answer(listen, "", false);
    fleet.next(listen, SILENCE);
    None
}

pub(super) fn foreign_answer(fleet: &mut Driver<'_>) -> Option<()> {
    let owner = fleet.capable()?;
    fleet.hub.want_job();
    let session = fleet.proposal(owner)?;
    let id = fleet.register(Vec::new())?;
    let thief = fleet.open(Rpc::Listen, Some(&id));
    fleet.answer(thief, &session, true);
    fleet.next(thief, SILENCE);
    fleet.next(owner, SILENCE);
    None
}

pub(super) fn too_early(fleet: &mut Driver<'_>) -> Option<()> {
    let listen = fleet.capable()?;
    fleet.hub.want_job();
    let session = fleet.proposal(listen)?;
    let early = fleet.open(fleet.rpc(), Some(&session));
    fleet.next(early, SOON);
    fleet.answer(listen, &session, true);
    if fleet.is_ready(listen) {
        let stream = fleet.open(fleet.rpc(), Some(&session));
        fleet.next(stream, SOON)?;
        fleet.finish(stream, DONE);
    }
    None
}

pub(super) fn silent_stream(fleet: &mut Driver<'_>) -> Option<()> {
    let (_, session) = fleet.ready()?;
    let stream = fleet.open(fleet.rpc(), Some(&session));
    fleet.next(stream, SOON);
    fleet.finish(stream, DONE);
    None
}

pub(super) fn empty_messages(fleet: &mut Driver<'_>) -> Option<()> {
    let stream = fleet.started()?;
    fleet.report(stream, None);
    let line = Telemetry::new(Severity::Unspecified, "");
    fleet.report(stream, Some(Said::Line(line)));
    fleet.next(stream, SILENCE);
    fleet.finish(stream, DONE);
    None
}

pub(super) fn late_messages(fleet: &mut Driver<'_>) -> Option<()> {
    let stream = fleet.started()?;
    fleet.report(stream, Some(Said::Result(State::Completed, "first", 0)));
    fleet.report(stream, Some(Said::Status(State::Completed)));
    fleet.report(stream, Some(Said::Status(State::Running)));
    let line = Telemetry::new(Severity::Info, "late");
    fleet.report(stream, Some(Said::Line(line)));
    fleet.report(stream, Some(Said::Result(State::Failed, "second", 0)));
    fleet.end(stream);
    None
}

pub(super) fn large_result(fleet: &mut Driver<'_>) -> Option<()> {
    let stream = fleet.started()?;
    fleet.finish(stream, Said::Result(State::Completed, "", 6 << 20));
    None
}
