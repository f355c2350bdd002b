//! A hub in virtual time, and its outputs in words.
//!
//! The tests of the machine and the model check inside the crate share this file.

use super::*;

/// A hub, its clock, and the outputs that no test has looked at yet.
pub(crate) struct Rig {
    pub(crate) hub: Hub,
    pub(crate) now: Now,
    pub(crate) streams: u64,
    pub(crate) said: Vec<Output>,
    /// The number of the next report, if the agent resumes its sessions.
    pub(crate) number: Option<u64>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self {
            hub: Hub::new(config, IdSource::seeded(0)).unwrap(),
            now: Now::new(Mono::ZERO, Timestamp::EPOCH),
            streams: 0,
            said: Vec::new(),
            number: None,
        }
    }

    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.hub.poll_output() {
            self.said.push(output);
        }
    }

    /// Takes what was said.
    pub(crate) fn take(&mut self) -> Vec<Output> {
        self.drain();
        std::mem::take(&mut self.said)
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        self.now = self.now.plus(span);
        self.hub.handle_timeout(self.now);
        self.drain();
    }

    pub(crate) fn seconds(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    pub(crate) fn register(&mut self, capabilities: Vec<Capability>) -> String {
        let registration = AgentRegistration {
            display_name: "a".into(),
            capabilities,
        };
        self.drain();
        let answer = self.hub.register(self.now, registration).unwrap();
        let said = self.hub.poll_output();
        assert!(matches!(
            said,
            Some(Output::Event(Event::AgentRegistered { .. }))
        ));
        answer.client_id
    }

    pub(crate) fn open(&mut self, rpc: Rpc, key: Option<&str>) -> StreamId {
        self.open_as(rpc, key, None)
    }

    pub(crate) fn open_as(
        &mut self,
        rpc: Rpc,
        key: Option<&str>,
        resume: Option<Resume>,
    ) -> StreamId {
        self.streams += 1;
        let stream = StreamId(self.streams);
        self.hub
            .handle_input(
                self.now,
                Input::Opened {
                    stream,
                    rpc,
                    key,
                    identity: None,
                    resume,
                },
            )
            .unwrap();
        self.drain();
        stream
    }

    /// An agent for test type `t` that listens.
    pub(crate) fn agent(&mut self) -> (String, StreamId) {
        let id = self.register(vec![Skill::test("t").into()]);
        let stream = self.open(Rpc::Listen, Some(&id));
        (id, stream)
    }

    pub(crate) fn submit(&mut self) -> JobId {
        let job = self
            .hub
            .submit(self.now, Job::test("t", vec![Payload::new("p")]))
            .unwrap();
        self.drain();
        job
    }

    pub(crate) fn message(&mut self, stream: StreamId, message: Inbound) {
        self.hub
            .handle_input(self.now, Input::Message { stream, message })
            .unwrap();
        self.drain();
    }

    pub(crate) fn answer(&mut self, stream: StreamId, session: &str, accepted: bool) {
        let answer = SessionAcceptance {
            session_id: session.into(),
            accepted,
            reason: "no wish".into(),
        };
        let event = Some(listen_request::Event::SessionAcceptance(answer));
        self.message(stream, Inbound::Listen(ListenRequest { event }));
    }

    pub(crate) fn say(&mut self, stream: StreamId, event: test_response::Event) {
        let number = self.next_number();
        self.message(
            stream,
            Inbound::Test(TestResponse {
                timestamp: None,
                event: Some(event),
                number,
            }),
        );
    }

    fn next_number(&mut self) -> u64 {
        let Some(number) = &mut self.number else {
            return 0;
        };
        *number += 1;
        *number - 1
    }

    pub(crate) fn status(&mut self, stream: StreamId, state: i32) {
        self.say(
            stream,
            test_response::Event::Status(TestStatus {
                state,
                message: format!("s{state}"),
            }),
        );
    }

    pub(crate) fn result(&mut self, stream: StreamId, state: State) {
        self.say(
            stream,
            test_response::Event::Result(TestResult::new(state, "r")),
        );
    }

    pub(crate) fn half_close(&mut self, stream: StreamId) {
        self.hub
            .handle_input(self.now, Input::HalfClosed { stream })
            .unwrap();
        self.drain();
    }

    pub(crate) fn reset(&mut self, stream: StreamId) {
        self.hub
            .handle_input(
                self.now,
                Input::Reset {
                    stream,
                    reason: "gone".into(),
                },
            )
            .unwrap();
        self.drain();
    }

    pub(crate) fn lose(&mut self, stream: StreamId) {
        let reason = "cut".to_owned();
        let lost = Input::Lost { stream, reason };
        self.hub.handle_input(self.now, lost).unwrap();
        self.drain();
    }

    /// Session ids proposed on a stream, taken from what was said.
    pub(crate) fn proposals(&mut self) -> Vec<(StreamId, String)> {
        let proposals = self.take().into_iter().filter_map(|output| match output {
            Output::Send {
                stream,
                message: Outbound::Listen(message),
            } => match message.event? {
                listen_response::Event::SessionProposal(proposal) => {
                    Some((stream, proposal.session_id))
                }
                listen_response::Event::SessionReady(_) => None,
            },
            _ => None,
        });
        proposals.collect()
    }

    /// An agent with a session whose stream is open.
    pub(crate) fn running(&mut self) -> (StreamId, JobId, String, StreamId) {
        self.agent();
        let job = self.submit();
        let (listen, session) = self.proposals().pop().unwrap();
        self.answer(listen, &session, true);
        let stream = self.open(Rpc::Execute, Some(&session));
        self.take();
        (listen, job, session, stream)
    }
}

/// What happened, in words.
pub(crate) fn words(outputs: Vec<Output>) -> Vec<String> {
    outputs.into_iter().map(word).collect()
}

#[allow(
    unreachable_patterns,
    reason = "inside the crate the patterns are exhaustive"
)]
pub(crate) fn word(output: Output) -> String {
    match output {
        Output::Send {
            message: Outbound::Listen(message),
            ..
        } => match message.event {
            Some(listen_response::Event::SessionProposal(_)) => "propose".into(),
            Some(listen_response::Event::SessionReady(_)) => "ready".into(),
            None => "nothing".into(),
        },
        Output::Send {
            message: Outbound::Test(init),
            ..
        } => match init.acknowledged {
            Some(number) if init.test_type.is_empty() => format!("acknowledge {number}"),
            _ => format!("init {}", init.test_type),
        },
        Output::Send {
            message: Outbound::Translation(init),
            ..
        } => format!("init {}", init.target_format),
        Output::End { status, .. } => format!("end {:?} {}", status.code, status.message)
            .trim()
            .to_owned(),
        Output::Trace { stream, trace } => format!("trace {} on {}", trace, stream.0),
        Output::Prepare { .. } => "prepare".into(),
        Output::Pause { .. } => "pause".into(),
        Output::Resume { .. } => "resume".into(),
        Output::Store { record, .. } => match record {
            Record::Accepted(_) => "store job".into(),
            Record::Ended(outcome) => format!("store {:?}", outcome.verdict),
            other => panic!("{other:?}"),
        },
        Output::Event(Event::AgentRegistered { .. }) => "registered".into(),
        Output::Event(Event::AgentAway { .. }) => "away".into(),
        Output::Event(Event::AgentAvailable { .. }) => "available".into(),
        Output::Event(Event::AgentGone { .. }) => "gone".into(),
        Output::Event(Event::Audit(audit)) => format!("audit {:?}", audit.kind),
        Output::Event(Event::Closed) => "closed".into(),
        Output::Event(Event::Job { event, .. }) => match event {
            JobEvent::Offered { .. } => "offered".into(),
            JobEvent::Declined { reason, .. } => format!("declined {reason}"),
            JobEvent::Stored => "stored".into(),
            JobEvent::Accepted { .. } => "accepted".into(),
            JobEvent::Requeued { reason, .. } => format!("requeued {reason}"),
            JobEvent::Ready { .. } => "told ready".into(),
            JobEvent::Started { .. } => "started".into(),
            JobEvent::Cut { .. } => "cut".into(),
            JobEvent::Resumed { .. } => "resumed".into(),
            JobEvent::Status { state, .. } => format!("status {state:?}"),
            JobEvent::Telemetry { telemetry, .. } => format!("telemetry {}", telemetry.message),
            JobEvent::Ended(outcome) => {
                let data = if outcome.result.is_some() {
                    " with data"
                } else {
                    ""
                };
                format!("ended {:?} {}{data}", outcome.verdict, outcome.message)
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

pub(crate) fn ended(rig: &mut Rig) -> Vec<String> {
    words(rig.take())
        .into_iter()
        .filter(|word| word.starts_with("ended"))
        .collect()
}
