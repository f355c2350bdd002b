//! What is done to a hub.

use std::time::Duration;

use ubos_common::conformance::Recorder;

use super::{HubPeer, Line, Said};
use crate::{
    capability::Skill,
    conformance::{SILENCE, SOON},
    id::StreamId,
    role::{
        Rpc,
        agent::{Inbound, Outbound},
    },
    state::State,
    wire::{
        AgentRegistration, Attachment, Capability, ListenRequest, SessionAcceptance, Severity,
        Telemetry, TestResponse, TestResult, TestStatus, listen_request, listen_response,
        test_response::Event,
    },
};

/// A hub and the recording of what it does.
struct Play<'a> {
    hub: &'a mut dyn HubPeer,
    lines: &'a mut Recorder<Line>,
}

impl Play<'_> {
    fn register(&mut self, capabilities: Vec<Capability>) -> Option<String> {
        let answer = self.hub.register(AgentRegistration {
            display_name: "conformance".to_owned(),
            capabilities,
        });
        self.lines.record(Line::Registered(answer.clone()));
        answer.ok()
    }

    fn open(&mut self, rpc: Rpc, key: Option<&str>) -> StreamId {
        let stream = self.hub.open(rpc, key);
        self.lines.record(Line::Opened(stream, rpc));
        stream
    }

    fn next(&mut self, stream: StreamId, patience: Duration) -> Option<Said> {
        let said = self.hub.next(stream, patience);
        self.lines.record(match &said {
            Some(said) => Line::Said(stream, said.clone()),
            None => Line::Silence(stream),
        });
        said
    }

    /// An agent that can do what the hub's jobs ask for, and listens.
    fn capable(&mut self) -> Option<StreamId> {
        let skill = self.hub.skill();
        let id = self.register(vec![skill.into()])?;
        Some(self.open(Rpc::Listen, Some(&id)))
    }

    /// Waits for a proposal.
    fn proposal(&mut self, listen: StreamId) -> Option<String> {
        match self.next(listen, SOON)? {
            Said::Message(Inbound::Listen(message)) => match message.event? {
                listen_response::Event::SessionProposal(proposal) => Some(proposal.session_id),
                listen_response::Event::SessionReady(_) => None,
            },
            _ => None,
        }
    }

    fn answer(&mut self, listen: StreamId, session: &str, accepted: bool) {
        if accepted {
            self.lines
                .record(Line::Accepted(listen, session.to_owned()));
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

    /// Waits for ready, past proposals of other jobs.
    fn is_ready(&mut self, listen: StreamId) -> bool {
        /// More proposals than any hub makes to one agent at once.
        const MANY: usize = 1_000;
        for _ in 0..MANY {
            let event = match self.next(listen, SOON) {
                Some(Said::Message(Inbound::Listen(message))) => message.event,
                _ => return false,
            };
            if let Some(listen_response::Event::SessionReady(_)) = event {
                return true;
            }
        }
        false
    }

    /// Brings a session to the point where its stream may be opened.
    fn ready(&mut self) -> Option<(StreamId, String)> {
        let listen = self.capable()?;
        self.hub.want_job();
        let session = self.proposal(listen)?;
        self.answer(listen, &session, true);
        self.is_ready(listen).then_some((listen, session))
    }

    /// Brings a session to its job.
    fn started(&mut self) -> Option<StreamId> {
        let (_, session) = self.ready()?;
        let stream = self.open(Rpc::Execute, Some(&session));
        self.say(stream, Some(status(State::Acknowledged)));
        self.next(stream, SOON)?;
        Some(stream)
    }

    fn say(&mut self, stream: StreamId, event: Option<Event>) {
        let message = TestResponse {
            timestamp: None,
            event,
        };
        self.hub.send(stream, Outbound::Test(message));
    }

    /// Ends a session as agents do.
    fn finish(&mut self, stream: StreamId, result: TestResult) {
        self.say(stream, Some(Event::Result(result)));
        self.end(stream);
    }

    fn end(&mut self, stream: StreamId) {
        /// More than any hub has to say on a stream.
        const MANY: usize = 8;
        self.hub.half_close(stream);
        for _ in 0..MANY {
            match self.next(stream, SOON * 2) {
                Some(Said::Message(_)) => {}
                Some(Said::Ended(_)) | None => return,
            }
        }
    }
}

fn status(state: State) -> Event {
    Event::Status(TestStatus {
        state: state.to_wire(crate::capability::Kind::Test),
        message: String::new(),
    })
}

macro_rules! plays {
    ($($(#[$doc:meta])* $name:ident($play:ident) $body:block)*) => {$(
        $(#[$doc])*
        pub(super) fn $name(hub: &mut (dyn HubPeer + 'static), lines: &mut Recorder<Line>) {
            let mut play = Play { hub, lines };
            fn go($play: &mut Play<'_>) -> Option<()> $body
            // A play that cannot go on ends; its judge sees how far it came.
            let _: Option<()> = go(&mut play);
        }
    )*};
}

plays! {
    register_twice(play) {
        for _ in 0..2 {
            let skill = play.hub.skill();
            play.register(vec![skill.into()])?;
        }
        None
    }

    register_empty(play) {
        let answer = play.hub.register(AgentRegistration::default());
        play.lines.record(Line::Registered(answer));
        None
    }

    register_nothing(play) {
        play.register(vec![Capability::default()]);
        play.register(vec![Skill::test("").into()]);
        None
    }

    listen_as_nobody(play) {
        for key in [None, Some(""), Some("nobody")] {
            let stream = play.open(Rpc::Listen, key);
            play.next(stream, SOON);
        }
        None
    }

    /// Four calls without a session's name, then two with one of nobody.
    open_nothing(play) {
        for key in [None, Some(""), Some("JOB-nobody")] {
            for rpc in [Rpc::Execute, Rpc::Translate] {
                let stream = play.open(rpc, key);
                play.next(stream, SOON);
            }
        }
        None
    }

    other_kind(play) {
        let (_, session) = play.ready()?;
        let wrong = play.open(Rpc::Translate, Some(&session));
        play.next(wrong, SOON);
        let right = play.open(Rpc::Execute, Some(&session));
        play.next(right, SOON)?;
        play.finish(right, TestResult::completed(""));
        None
    }

    second_stream(play) {
        let (_, session) = play.ready()?;
        let first = play.open(Rpc::Execute, Some(&session));
        play.next(first, SOON)?;
        let second = play.open(Rpc::Execute, Some(&session));
        play.next(second, SOON);
        play.next(first, SILENCE);
        play.finish(first, TestResult::completed(""));
        None
    }

    listen_twice(play) {
        let id = play.register(Vec::new())?;
        let first = play.open(Rpc::Listen, Some(&id));
        play.next(first, SILENCE);
        let second = play.open(Rpc::Listen, Some(&id));
        play.next(first, SOON);
        play.next(second, SILENCE);
        None
    }

    one_session(play) {
        let stream = play.started()?;
        play.next(stream, SILENCE);
        play.finish(stream, TestResult::completed("done"));
        None
    }

    /// One that takes its time, and its ready.
    unhurried(play) {
        let listen = play.capable()?;
        play.hub.want_job();
        let session = play.proposal(listen)?;
        play.next(listen, SILENCE);
        play.answer(listen, &session, true);
        play.is_ready(listen);
        play.next(listen, SILENCE);
        None
    }

    refuse_one(play) {
        let first = play.capable()?;
        play.hub.want_job();
        let session = play.proposal(first)?;
        let second = play.capable()?;
        play.answer(first, &session, false);
        play.proposal(second);
        None
    }

    leave_one(play) {
        let first = play.capable()?;
        play.hub.want_job();
        play.proposal(first)?;
        let second = play.capable()?;
        play.hub.reset(first);
        play.proposal(second);
        None
    }

    /// One that says nothing, and `ready` only when nothing came.
    never_ready(play) {
        let listen = play.capable()?;
        play.hub.want_job();
        if play.proposal(listen).is_none() {
            let event = Some(listen_request::Event::Ready(()));
            play.hub.send(listen, Outbound::Listen(ListenRequest { event }));
            play.proposal(listen);
        }
        None
    }

    ask_the_incapable(play) {
        play.hub.want_job();
        let id = play.register(vec![Skill::test("conformance: nobody asks for this").into()])?;
        let listen = play.open(Rpc::Listen, Some(&id));
        play.next(listen, SILENCE);
        let capable = play.capable()?;
        play.proposal(capable);
        None
    }

    stray_answer(play) {
        let id = play.register(Vec::new())?;
        let listen = play.open(Rpc::Listen, Some(&id));
        play.answer(listen, "JOB-nobody", true);
        play.answer(listen, "", false);
        play.next(listen, SILENCE);
        None
    }

    foreign_answer(play) {
        let owner = play.capable()?;
        play.hub.want_job();
        let session = play.proposal(owner)?;
        let id = play.register(Vec::new())?;
        let thief = play.open(Rpc::Listen, Some(&id));
        play.answer(thief, &session, true);
        play.next(thief, SILENCE);
        play.next(owner, SILENCE);
        None
    }

    too_early(play) {
        let listen = play.capable()?;
        play.hub.want_job();
        let session = play.proposal(listen)?;
        let early = play.open(Rpc::Execute, Some(&session));
        play.next(early, SOON);
        play.answer(listen, &session, true);
        if play.is_ready(listen) {
            let stream = play.open(Rpc::Execute, Some(&session));
            play.next(stream, SOON)?;
            play.finish(stream, TestResult::completed(""));
        }
        None
    }

    silent_stream(play) {
        let (_, session) = play.ready()?;
        let stream = play.open(Rpc::Execute, Some(&session));
        play.next(stream, SOON);
        play.finish(stream, TestResult::completed(""));
        None
    }

    empty_messages(play) {
        let stream = play.started()?;
        play.say(stream, None);
        let line = Telemetry::new(Severity::Unspecified, "");
        play.say(stream, Some(Event::Telemetry(line)));
        play.next(stream, SILENCE);
        play.finish(stream, TestResult::completed(""));
        None
    }

    late_messages(play) {
        let stream = play.started()?;
        play.say(stream, Some(Event::Result(TestResult::completed("first"))));
        play.say(stream, Some(status(State::Completed)));
        play.say(stream, Some(status(State::Running)));
        let line = Telemetry::new(Severity::Info, "late");
        play.say(stream, Some(Event::Telemetry(line)));
        play.say(stream, Some(Event::Result(TestResult::failed("second"))));
        play.end(stream);
        None
    }

    large_result(play) {
        let stream = play.started()?;
        let file = Attachment::new("large", "application/octet-stream", vec![7; 6 << 20]);
        play.finish(stream, TestResult::completed("").with_attachment(file));
        None
    }
}
