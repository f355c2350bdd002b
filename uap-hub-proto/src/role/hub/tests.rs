//! The hub machine, one clause at a time, in virtual time.

use std::time::Duration;

use ubos_common::time::{Mono, Now, Timestamp};

use super::*;
use crate::{
    message::JobResult,
    state::State,
    wire::{
        Capability, ListenRequest, PayloadRequirement, SessionAcceptance, Telemetry,
        TestCapability, TestResponse, TestResult, TestStatus, TranslationResponse,
        TranslationResult, capability::Format, listen_request, listen_response, session_proposal,
        test_response, translation_response,
    },
};

/// A hub, its clock, and everything it said that was not looked at yet.
struct Rig {
    hub: Hub,
    now: Now,
    streams: u64,
    said: Vec<Output>,
}

impl Rig {
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        Self {
            hub: Hub::new(config),
            now: Now::new(Mono::ZERO, Timestamp::EPOCH),
            streams: 0,
            said: Vec::new(),
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.hub.poll_output() {
            self.said.push(output);
        }
    }

    /// Takes what was said.
    fn take(&mut self) -> Vec<Output> {
        self.drain();
        std::mem::take(&mut self.said)
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now.plus(span);
        self.hub.handle_timeout(self.now);
        self.drain();
    }

    fn seconds(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    fn register(&mut self, capabilities: Vec<Capability>) -> String {
        let registration = AgentRegistration {
            display_name: "a".into(),
            capabilities,
        };
        self.hub.register(self.now, registration).unwrap().client_id
    }

    fn open(&mut self, rpc: Rpc, key: Option<&str>) -> StreamId {
        self.streams += 1;
        let stream = StreamId(self.streams);
        self.hub
            .handle_input(self.now, Input::Opened { stream, rpc, key })
            .unwrap();
        self.drain();
        stream
    }

    /// An agent for test type `t` that listens.
    fn agent(&mut self) -> (String, StreamId) {
        let id = self.register(vec![Skill::test("t").into()]);
        let stream = self.open(Rpc::Listen, Some(&id));
        (id, stream)
    }

    fn submit(&mut self) -> JobId {
        let job = self
            .hub
            .submit(self.now, Job::test("t", vec![Payload::new("p")]))
            .unwrap();
        self.drain();
        job
    }

    fn message(&mut self, stream: StreamId, message: Inbound) {
        self.hub
            .handle_input(self.now, Input::Message { stream, message })
            .unwrap();
        self.drain();
    }

    fn answer(&mut self, stream: StreamId, session: &str, accepted: bool) {
        let answer = SessionAcceptance {
            session_id: session.into(),
            accepted,
            reason: "no wish".into(),
        };
        let event = Some(listen_request::Event::SessionAcceptance(answer));
        self.message(stream, Inbound::Listen(ListenRequest { event }));
    }

    fn say(&mut self, stream: StreamId, event: test_response::Event) {
        self.message(
            stream,
            Inbound::Test(TestResponse {
                timestamp: None,
                event: Some(event),
            }),
        );
    }

    fn status(&mut self, stream: StreamId, state: i32) {
        self.say(
            stream,
            test_response::Event::Status(TestStatus {
                state,
                message: format!("s{state}"),
            }),
        );
    }

    fn result(&mut self, stream: StreamId, state: State) {
        self.say(
            stream,
            test_response::Event::Result(TestResult::new(state, "r")),
        );
    }

    fn half_close(&mut self, stream: StreamId) {
        self.hub
            .handle_input(self.now, Input::HalfClosed { stream })
            .unwrap();
        self.drain();
    }

    fn reset(&mut self, stream: StreamId) {
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

    /// Session ids proposed on a stream, taken from what was said.
    fn proposals(&mut self) -> Vec<(StreamId, String)> {
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
    fn running(&mut self) -> (StreamId, JobId, String, StreamId) {
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
fn words(outputs: Vec<Output>) -> Vec<String> {
    outputs.into_iter().map(word).collect()
}

fn word(output: Output) -> String {
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
        } => format!("init {}", init.test_type),
        Output::Send {
            message: Outbound::Translation(init),
            ..
        } => format!("init {}", init.target_format),
        Output::End { status, .. } => format!("end {:?} {}", status.code, status.message)
            .trim()
            .to_owned(),
        Output::Prepare { .. } => "prepare".into(),
        Output::Event(Event::AgentAvailable { .. }) => "available".into(),
        Output::Event(Event::AgentGone { .. }) => "gone".into(),
        Output::Event(Event::Audit(audit)) => format!("audit {:?}", audit.kind),
        Output::Event(Event::Closed) => "closed".into(),
        Output::Event(Event::Job { event, .. }) => match event {
            JobEvent::Offered { .. } => "offered".into(),
            JobEvent::Declined { reason, .. } => format!("declined {reason}"),
            JobEvent::Ready { .. } => "told ready".into(),
            JobEvent::Started { .. } => "started".into(),
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
        },
    }
}

fn ended(rig: &mut Rig) -> Vec<String> {
    words(rig.take())
        .into_iter()
        .filter(|word| word.starts_with("ended"))
        .collect()
}

// spec: HUB-2-1
#[test]
fn every_registration_is_a_new_agent_up_to_the_bound() {
    let mut rig = Rig::with(Config::default().max_agents(2));
    let (one, two) = (rig.register(vec![]), rig.register(vec![]));
    assert_ne!(one, two);
    let third = rig
        .hub
        .register(rig.now, AgentRegistration::default())
        .unwrap_err();
    assert_eq!(
        (third.status().code, rig.hub.agents().count()),
        (Code::ResourceExhausted, 2)
    );
    rig.open(Rpc::Listen, Some(&one));
    rig.submit();
    assert_eq!(rig.proposals(), [], "an agent without capabilities");
}

// spec: HUB-2-2, HUB-3-5
#[test]
fn each_stage_of_a_session_has_its_status_for_a_stream() {
    let mut rig = Rig::new();
    for key in [None, Some(""), Some("x")] {
        rig.open(Rpc::Listen, key);
        assert_eq!(words(rig.take()), ["end NotFound Invalid Client ID"]);
    }
    for rpc in [Rpc::Execute, Rpc::Translate] {
        for (key, code) in [
            (None, "InvalidArgument"),
            (Some(""), "InvalidArgument"),
            (Some("x"), "NotFound"),
        ] {
            rig.open(rpc, key);
            assert!(words(rig.take())[0].starts_with(&format!("end {code}")));
        }
    }
    let refused = |rig: &mut Rig, rpc, session: &str| {
        rig.take();
        rig.open(rpc, Some(session));
        let said = words(rig.take());
        assert!(
            said.len() == 1 && said[0].starts_with("end FailedPrecondition"),
            "{said:?}"
        );
    };
    let (_, listen) = rig.agent();
    rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    refused(&mut rig, Rpc::Execute, &session);
    rig.answer(listen, &session, true);
    refused(&mut rig, Rpc::Translate, &session);
    let stream = rig.open(Rpc::Execute, Some(&session));
    refused(&mut rig, Rpc::Execute, &session);
    rig.status(stream, 3);
    assert_eq!(
        words(rig.take()),
        ["status Running"],
        "the running stream is untouched"
    );
    rig.result(stream, State::Completed);
    refused(&mut rig, Rpc::Execute, &session);
    rig.half_close(stream);
    refused(&mut rig, Rpc::Execute, &session);
}

// spec: HUB-2-4
#[test]
fn an_agent_that_does_not_listen_is_dropped() {
    let mut rig = Rig::new();
    let (late, early) = (rig.register(vec![]), rig.register(vec![]));
    rig.open(Rpc::Listen, Some(&early));
    rig.pass(Duration::from_millis(59_999));
    assert_eq!(rig.hub.agents().count(), 2);
    rig.pass(Duration::from_millis(1));
    rig.take();
    rig.open(Rpc::Listen, Some(&late));
    assert_eq!(
        (words(rig.take()), rig.hub.agents().count()),
        (vec!["end NotFound Invalid Client ID".into()], 1)
    );
}

// spec: HUB-2-5, HUB-2-6
#[test]
fn a_second_listen_replaces_the_first_and_keeps_everything() {
    let mut rig = Rig::new();
    let (id, first) = rig.agent();
    rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    let second = rig.open(Rpc::Listen, Some(&id));
    let wanted = Output::End {
        stream: first,
        status: Status::new(Code::Aborted, "replaced by a newer Listen stream"),
    };
    assert_eq!(rig.take(), [wanted]);
    rig.reset(first);
    rig.answer(first, &session, true);
    assert_eq!(rig.take(), [], "the old stream is nobody's");
    rig.answer(second, &session, true);
    assert_eq!(words(rig.take()), ["told ready", "ready"]);
}

// spec: HUB-3-1, HUB-4-9, HUB-4-1
#[test]
fn a_job_is_proposed_made_ready_and_sent() {
    for prepare in [false, true] {
        let mut rig = Rig::with(Config::default().prepare(prepare));
        let (_, listen) = rig.agent();
        rig.take();
        let payloads: Vec<_> = (0..9)
            .map(|n| Payload::file("p", format!("{n}"), "x/y", vec![n; 3]))
            .collect();
        rig.hub
            .submit(rig.now, Job::test("t", payloads.clone()))
            .unwrap();
        let said = rig.take();
        let Some(Output::Send {
            message: Outbound::Listen(message),
            ..
        }) = said.last()
        else {
            panic!("{said:?}")
        };
        let Some(listen_response::Event::SessionProposal(proposal)) = &message.event else {
            panic!("{said:?}")
        };
        let Some(session_proposal::Details::Test(details)) = &proposal.details else {
            panic!("{said:?}")
        };
        assert_eq!(details.r#type, "t");
        let session = SessionId::from(proposal.session_id.as_str());
        let uuid = session.as_str().strip_prefix("JOB-").unwrap();
        assert!(ubos_common::id::parse_hyphenated(uuid).is_ok());
        rig.answer(listen, session.as_str(), true);
        if prepare {
            assert_eq!(words(rig.take()), ["prepare"]);
            rig.open(Rpc::Execute, Some(session.as_str()));
            assert!(
                words(rig.take())[0].starts_with("end FailedPrecondition"),
                "not before it is prepared"
            );
            rig.hub.prepared(rig.now, &session, Ok(())).unwrap();
            assert_eq!(
                rig.hub.prepared(rig.now, &session, Ok(())),
                Err(CommandError::NotPreparing)
            );
        }
        assert_eq!(words(rig.take()), ["told ready", "ready"]);
        rig.answer(listen, session.as_str(), true);
        assert_eq!(
            words(rig.take()),
            ["audit StrayAcceptance"],
            "ready is said once"
        );
        rig.open(Rpc::Execute, Some(session.as_str()));
        let said = rig.take();
        let init = crate::wire::TestInit {
            test_type: "t".into(),
            payloads,
        };
        assert!(
            matches!(&said[1], Output::Send { message: Outbound::Test(sent), .. } if *sent == init),
            "{said:?}"
        );
        assert_eq!(said.len(), 2);
    }
}

// spec: HUB-3-1
#[test]
fn a_translation_has_its_own_prefix_and_details() {
    let mut rig = Rig::new();
    let id = rig.register(vec![Skill::translation("f").into()]);
    let listen = rig.open(Rpc::Listen, Some(&id));
    rig.take();
    rig.hub
        .submit(rig.now, Job::translation("f", vec![]))
        .unwrap();
    let (_, session) = rig.proposals().pop().unwrap();
    assert!(session.starts_with("TRN-"));
    rig.answer(listen, &session, true);
    let stream = rig.open(Rpc::Translate, Some(&session));
    assert_eq!(
        words(rig.take()),
        ["told ready", "ready", "started", "init f"]
    );
    let event = Some(translation_response::Event::Result(
        TranslationResult::completed(vec![Payload::new("made")]),
    ));
    rig.message(
        stream,
        Inbound::Translation(TranslationResponse {
            timestamp: None,
            event,
        }),
    );
    let said = rig.take();
    let Some(Output::Event(Event::Job {
        event: JobEvent::Ended(outcome),
        ..
    })) = said.first()
    else {
        panic!("{said:?}")
    };
    let Some(JobResult::Translation(result)) = &outcome.result else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        (outcome.verdict, result.payloads.len()),
        (Verdict::Completed, 1)
    );
}

// spec: HUB-3-2
#[test]
fn only_a_capable_listening_agent_is_asked() {
    let mut rig = Rig::new();
    let requirement = PayloadRequirement {
        r#type: "need".into(),
        is_required: true,
        ..PayloadRequirement::default()
    };
    let strict = TestCapability {
        r#type: "t".into(),
        payloads: vec![requirement],
    };
    let strict = rig.register(vec![Capability {
        format: Some(Format::Test(strict)),
    }]);
    rig.open(Rpc::Listen, Some(&strict));
    let other = rig.register(vec![
        Skill::translation("t").into(),
        Skill::test("T").into(),
    ]);
    rig.open(Rpc::Listen, Some(&other));
    let deaf = rig.register(vec![Skill::test("t").into()]);
    rig.submit();
    assert_eq!(rig.proposals(), []);
    let stream = rig.open(Rpc::Listen, Some(&deaf));
    assert_eq!(rig.proposals()[0].0, stream, "without waiting for ready");
    let job = Job::test("t", vec![Payload::new("need"), Payload::new("whatever")]);
    rig.hub.submit(rig.now, job).unwrap();
    assert_eq!(
        rig.proposals().len(),
        1,
        "the strict one is free and is asked"
    );
}

// spec: HUB-3-3, HUB-3-4, HUB-3-1
#[test]
fn an_unanswered_proposal_goes_elsewhere_under_a_new_name() {
    let mut rig = Rig::new();
    let (_, one) = rig.agent();
    let (_, two) = rig.agent();
    rig.submit();
    let (first, old) = rig.proposals().pop().unwrap();
    rig.pass(Duration::from_millis(29_999));
    assert_eq!(rig.proposals(), []);
    rig.pass(Duration::from_millis(1));
    let (second, new) = rig.proposals().pop().unwrap();
    assert!(first == one && second == two && old != new);
    for (stream, session, kind) in [
        (one, old.as_str(), "audit StrayAcceptance"),
        (one, new.as_str(), "audit ForeignAcceptance"),
        (one, "JOB-unknown", "audit StrayAcceptance"),
    ] {
        rig.answer(stream, session, true);
        assert_eq!(words(rig.take()), [kind]);
    }
    rig.answer(two, &new, true);
    rig.answer(two, &new, true);
    assert_eq!(
        words(rig.take()),
        ["told ready", "ready", "audit StrayAcceptance"]
    );
}

// spec: HUB-3-3, HUB-5-1
#[test]
fn a_closing_listen_frees_the_proposal_at_once() {
    for broken in [false, true] {
        let mut rig = Rig::new();
        let (_, one) = rig.agent();
        rig.submit();
        let (_, two) = rig.agent();
        rig.take();
        if broken {
            rig.reset(one)
        } else {
            rig.half_close(one)
        }
        let said = rig.take();
        assert!(
            said.iter()
                .any(|output| matches!(output, Output::Send { stream, .. } if *stream == two)),
            "{said:?}"
        );
        assert_eq!(words(said)[0], "gone");
    }
}

// spec: HUB-3-1, HUB-3-6
#[test]
fn a_refused_job_returns_to_the_same_agent_only_after_all_others() {
    let mut rig = Rig::new();
    let (_, one) = rig.agent();
    let (_, two) = rig.agent();
    rig.submit();
    let (first, session) = rig.proposals().pop().unwrap();
    rig.answer(first, &session, false);
    assert!(words(rig.said.clone()).contains(&"declined no wish".to_owned()));
    let (second, session) = rig.proposals().pop().unwrap();
    assert!(first == one && second == two);
    rig.answer(second, &session, false);
    assert_eq!(rig.proposals(), [], "no hot loop");
    rig.seconds(1);
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(one, &session, false);
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(two, &session, false);
    rig.seconds(1);
    assert_eq!(rig.proposals(), [], "the pause doubles");
    rig.seconds(1);
    assert_eq!(rig.proposals().len(), 1);
}

// spec: HUB-3-6
#[test]
fn a_job_that_nobody_takes_ends_with_the_reason() {
    let mut rig = Rig::new();
    let job = |name| Job::test(name, vec![]).wait_at_most(Duration::from_secs(10));
    rig.hub.submit(rig.now, job("t")).unwrap();
    rig.seconds(9);
    assert_eq!(ended(&mut rig), Vec::<String>::new());
    rig.seconds(1);
    assert_eq!(
        ended(&mut rig),
        ["ended Unplaced no agent offers test type \"t\""]
    );
    let (id, listen) = rig.agent();
    rig.hub.submit(rig.now, job("t")).unwrap();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, false);
    rig.seconds(10);
    assert_eq!(
        ended(&mut rig),
        ["ended Unplaced no agent took the job in time; the last one asked said: no wish"]
    );
    rig.hub
        .submit(rig.now, job("t").only_by(id.as_str().into()))
        .unwrap();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, false);
    assert_eq!(ended(&mut rig), ["ended Refused no wish"]);
    rig.hub
        .submit(rig.now, job("other").only_by(id.as_str().into()))
        .unwrap();
    assert_eq!(
        rig.hub.submit(rig.now, job("t").only_by("x".into())),
        Err(CommandError::UnknownAgent)
    );
    assert_eq!(rig.hub.job_count(), 1);
}

// spec: HUB-3-6, HUB-4-5
#[test]
fn load_spreads_and_stops_at_the_agents_bound() {
    let mut rig = Rig::with(Config::default().max_sessions_per_agent(2));
    let (_, one) = rig.agent();
    rig.seconds(1);
    let (_, two) = rig.agent();
    for _ in 0..5 {
        rig.submit();
    }
    let asked = rig.proposals();
    let order: Vec<_> = asked.iter().map(|(stream, _)| *stream).collect();
    assert_eq!(order, [one, two, one, two]);
    rig.answer(one, &asked[0].1, true);
    let stream = rig.open(Rpc::Execute, Some(&asked[0].1));
    rig.take();
    rig.result(stream, State::Completed);
    assert_eq!(
        rig.proposals()[0].0,
        one,
        "the fifth takes the place that got free"
    );
}

/// From a state, what a status does: delivered, or the audit.
// spec: HUB-4-2, HUB-4-3
#[test]
fn statuses_go_forward_only() {
    const STATES: [(i32, &str); 5] = [
        (1, "Acknowledged"),
        (3, "Running"),
        (4, "Completed"),
        (5, "Failed"),
        (2, "Invalid"),
    ];
    let rank = |state: i32| {
        [0, 1, 3, 2, 3, 3]
            .get(usize::try_from(state).unwrap_or(9))
            .copied()
            .unwrap_or(9)
    };
    for (before, _) in [(0, "")].into_iter().chain(STATES) {
        for after in [0, 1, 2, 3, 4, 5, 6, -1] {
            let mut rig = Rig::new();
            let (.., stream) = rig.running();
            if before != 0 {
                rig.status(stream, before);
                rig.take();
            }
            rig.status(stream, after);
            let name = STATES
                .iter()
                .find(|(number, _)| *number == after)
                .map(|(_, name)| *name);
            let wanted = match name {
                None => "audit UnknownState".to_owned(),
                Some(_) if rank(before) == 3 => "audit LateStatus".to_owned(),
                Some(_) if rank(after) < rank(before) => "audit Backward".to_owned(),
                Some(name) => format!("status {name}"),
            };
            assert_eq!(words(rig.take()), [wanted], "{before} then {after}");
        }
    }
}

// spec: HUB-4-2
#[test]
fn empty_messages_are_ignored() {
    let mut rig = Rig::new();
    let (listen, _, _, stream) = rig.running();
    rig.message(stream, Inbound::Test(TestResponse::default()));
    rig.message(listen, Inbound::Listen(ListenRequest::default()));
    rig.message(
        listen,
        Inbound::Listen(ListenRequest {
            event: Some(listen_request::Event::Ready(())),
        }),
    );
    rig.message(
        listen,
        Inbound::Listen(ListenRequest {
            event: Some(listen_request::Event::Ready(())),
        }),
    );
    assert_eq!(rig.take(), []);
}

// spec: HUB-4-3
#[test]
fn a_terminal_status_waits_for_its_result_and_no_longer() {
    let mut rig = Rig::new();
    let (.., stream) = rig.running();
    rig.status(stream, 4);
    rig.say(
        stream,
        test_response::Event::Telemetry(Telemetry::default()),
    );
    rig.result(stream, State::Failed);
    let wanted = [
        "status Completed",
        "audit LateTelemetry",
        "ended Completed s4 with data",
    ];
    assert_eq!(words(rig.take()), wanted, "the first terminal state stays");
    rig.status(stream, 5);
    rig.say(
        stream,
        test_response::Event::Telemetry(Telemetry::default()),
    );
    rig.result(stream, State::Failed);
    assert_eq!(
        words(rig.take()),
        [
            "audit LateStatus",
            "audit LateTelemetry",
            "audit SecondResult"
        ]
    );

    let mut rig = Rig::new();
    let (.., stream) = rig.running();
    rig.status(stream, 4);
    rig.pass(Duration::from_millis(4_999));
    assert_eq!(words(rig.take()), ["status Completed"]);
    rig.pass(Duration::from_millis(1));
    assert_eq!(words(rig.take()), ["ended Completed s4"]);
    rig.result(stream, State::Completed);
    assert_eq!(words(rig.take()), ["audit SecondResult"]);
    rig.seconds(5);
    assert_eq!(
        words(rig.take()),
        ["end Ok"],
        "the stream is not kept for ever"
    );
}

// spec: HUB-4-7, HUB-4-8
#[test]
fn every_end_of_a_stream_has_its_verdict() {
    type Act = fn(&mut Rig, StreamId);
    let half: Act = |rig, stream| rig.half_close(stream);
    let reset: Act = |rig, stream| rig.reset(stream);
    let done: Act = |rig, stream| rig.status(stream, 2);
    let result: Act = |rig, stream| rig.result(stream, State::Completed);
    let vague: Act = |rig, stream| rig.result(stream, State::Running);
    let empty: Act =
        |rig, stream| rig.say(stream, test_response::Event::Result(TestResult::default()));
    for (acts, wanted) in [
        (
            vec![half],
            vec!["ended Failed stream closed without result", "end Ok"],
        ),
        (vec![reset], vec!["ended Failed Stream error: gone"]),
        (
            vec![done, half],
            vec!["status Invalid", "ended Invalid s2", "end Ok"],
        ),
        (
            vec![done, reset],
            vec!["status Invalid", "ended Invalid s2"],
        ),
        (
            vec![result, half],
            vec!["ended Completed r with data", "end Ok"],
        ),
        (vec![result, reset], vec!["ended Completed r with data"]),
        (
            vec![vague, half],
            vec![
                "ended Failed result without a terminal status with data",
                "end Ok",
            ],
        ),
        (
            vec![empty],
            vec![
                "audit UnknownState",
                "ended Failed result without a terminal status with data",
            ],
        ),
    ] {
        let mut rig = Rig::new();
        let (.., stream) = rig.running();
        acts.iter().for_each(|act| act(&mut rig, stream));
        assert_eq!(words(rig.take()), wanted);
        rig.half_close(stream);
        rig.status(stream, 3);
        assert!(rig.take().len() < 2, "an ended stream says nothing");
        assert_eq!(rig.hub.job_count(), 0);
    }
}

// spec: HUB-5-1
#[test]
fn sessions_fail_with_their_agent_and_what_still_comes_is_ignored() {
    let mut rig = Rig::new();
    let (listen, _, _, stream) = rig.running();
    rig.submit();
    let (_, ready) = rig.proposals().pop().unwrap();
    rig.answer(listen, &ready, true);
    rig.take();
    rig.reset(listen);
    assert_eq!(
        words(rig.take()),
        [
            "gone",
            "ended Failed Agent disconnected",
            "ended Failed Agent disconnected"
        ]
    );
    rig.result(stream, State::Completed);
    assert_eq!(words(rig.take()), ["audit SecondResult"]);
    rig.submit();
    assert_eq!(rig.proposals(), []);
    rig.seconds(5);
    assert_eq!(words(rig.take()), ["end Aborted the agent disconnected"]);
    assert_eq!(rig.hub.agents().count(), 0);
}

// spec: HUB-3-5
#[test]
fn an_agent_that_never_opens_its_stream_loses_the_session() {
    let mut rig = Rig::new();
    let (_, listen) = rig.agent();
    rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    rig.seconds(30);
    assert_eq!(
        ended(&mut rig),
        ["ended Failed the agent did not open the stream in time"]
    );
}

#[test]
fn cancelling_ends_a_job_at_every_stage() {
    let mut rig = Rig::new();
    let waiting = rig.submit();
    rig.hub.cancel(rig.now, waiting).unwrap();
    assert_eq!(
        rig.hub.cancel(rig.now, waiting),
        Err(CommandError::UnknownJob)
    );
    let (listen, job, session, _) = rig.running();
    rig.take();
    rig.hub.cancel(rig.now, job).unwrap();
    assert_eq!(
        words(rig.take()),
        [
            "ended Cancelled cancelled by the caller",
            "end Cancelled cancelled"
        ]
    );
    let proposed = rig.submit();
    let (_, offer) = rig.proposals().pop().unwrap();
    rig.hub.cancel(rig.now, proposed).unwrap();
    rig.take();
    rig.answer(listen, &offer, true);
    rig.open(Rpc::Execute, Some(&session));
    let said = words(rig.take());
    assert_eq!(
        said,
        [
            "audit StrayAcceptance",
            "end FailedPrecondition the session has ended"
        ]
    );
}

// spec: HUB-5-3, HUB-2-6
#[test]
fn shutdown_drains_then_ends_everything_unavailable() {
    let mut rig = Rig::new();
    let (_, _, _, stream) = rig.running();
    rig.submit();
    rig.take();
    rig.hub.shutdown(rig.now, Duration::from_secs(10));
    assert_eq!(
        words(rig.take()),
        ["ended Cancelled the hub is shutting down"],
        "the proposed one"
    );
    rig.open(Rpc::Listen, Some("x"));
    assert!(words(rig.take())[0].starts_with("end Unavailable"));
    assert_eq!(
        rig.hub.submit(rig.now, Job::test("t", vec![])),
        Err(CommandError::ShuttingDown)
    );
    assert_eq!(
        rig.hub.register(rig.now, AgentRegistration::default()),
        Err(RegisterError::ShuttingDown)
    );
    let mut slow = rig;
    slow.result(stream, State::Completed);
    slow.half_close(stream);
    let wanted = [
        "ended Completed r with data",
        "end Ok",
        "end Unavailable the hub is shutting down",
        "closed",
    ];
    assert_eq!(
        words(slow.take()),
        wanted,
        "it closes as soon as nothing runs"
    );
    assert_eq!(
        slow.hub
            .handle_input(slow.now, Input::HalfClosed { stream }),
        Err(InputError::Closed)
    );
    assert_eq!(slow.hub.poll_timeout(), None);

    let mut rig = Rig::new();
    rig.running();
    rig.hub.shutdown(rig.now, Duration::from_secs(10));
    rig.pass(Duration::from_millis(9_999));
    assert_eq!(rig.take(), []);
    rig.pass(Duration::from_millis(1));
    let gone = "end Unavailable the hub is shutting down";
    assert_eq!(
        words(rig.take()),
        [
            "ended Cancelled the hub is shutting down",
            gone,
            gone,
            "closed"
        ]
    );
}

#[test]
fn bounds_of_the_queue_hold_and_refusals_change_nothing() {
    let mut rig = Rig::with(
        Config::default()
            .max_jobs(2)
            .max_message_bytes(100)
            .max_queued_bytes(150),
    );
    let job = |size| Job::test("t", vec![Payload::file("p", "", "", vec![0; size])]);
    assert!(matches!(
        rig.hub.submit(rig.now, job(100)),
        Err(CommandError::TooLarge { most: 100, .. })
    ));
    rig.hub.submit(rig.now, job(80)).unwrap();
    assert!(matches!(
        rig.hub.submit(rig.now, job(80)),
        Err(CommandError::QueueFull { most: 150, .. })
    ));
    assert_eq!(
        rig.hub.submit(rig.now, Job::test("", vec![])),
        Err(CommandError::EmptyType)
    );
    let last = rig.hub.submit(rig.now, Job::test("t", vec![])).unwrap();
    assert_eq!(
        rig.hub.submit(rig.now, Job::test("t", vec![])),
        Err(CommandError::TooManyJobs { most: 2 })
    );
    rig.hub.cancel(rig.now, last).unwrap();
    assert_eq!((rig.hub.job_count(), ended(&mut rig).len()), (1, 1));
}

#[test]
fn the_size_of_an_init_message_is_exact() {
    for size in [0, 1, 120, 200, 20_000] {
        let payloads = vec![Payload::file("p", "n", "m", vec![7; size]); 3];
        let init = crate::wire::TestInit {
            test_type: "t".into(),
            payloads,
        };
        assert_eq!(init_bytes("t", &init.payloads), init.encoded_len());
    }
}

#[test]
fn ended_sessions_are_remembered_up_to_the_bound() {
    let mut rig = Rig::with(Config::default().max_remembered(1));
    let (_, _, first, stream) = rig.running();
    rig.half_close(stream);
    let (_, _, second, stream) = rig.running();
    rig.half_close(stream);
    rig.take();
    rig.open(Rpc::Execute, Some(&first));
    rig.open(Rpc::Execute, Some(&second));
    let said = words(rig.take());
    assert!(
        said[0].starts_with("end NotFound") && said[1].starts_with("end FailedPrecondition"),
        "{said:?}"
    );
}

// spec: HUB-3-6
#[test]
fn an_agent_that_gets_free_is_asked_again_at_once() {
    let mut rig = Rig::new();
    let (listen, _, _, stream) = rig.running();
    rig.submit();
    rig.submit();
    for (_, session) in rig.proposals() {
        rig.answer(listen, &session, false);
    }
    assert_eq!(rig.proposals(), [], "both rest");
    rig.result(stream, State::Completed);
    assert_eq!(
        rig.proposals().len(),
        1,
        "one place got free, one job is asked for"
    );
    rig.seconds(1);
    assert_eq!(rig.proposals().len(), 1, "the other after its pause");
}

// spec: HUB-3-6
#[test]
fn an_accepted_job_waits_no_more() {
    let mut rig = Rig::new();
    let (_, job, _, _) = rig.running();
    rig.seconds(3600);
    assert_eq!(ended(&mut rig), Vec::<String>::new());
    assert!(rig.hub.cancel(rig.now, job).is_ok());
}
