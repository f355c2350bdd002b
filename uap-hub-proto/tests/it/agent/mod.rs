//! The agent machine, one clause at a time, in virtual time.

mod reports;
mod resume;
mod table;
mod trace;

use std::time::Duration;

use uap_hub_proto::{
    capability::Skill,
    id::{SessionId, StreamId},
    role::agent::*,
    state::State,
    status::{Code, Status},
    wire::{
        ListenResponse, Payload, SessionProposal, SessionReady, Severity, Telemetry, TestInit,
        TestProposalDetails, TestResult, TranslationInit, TranslationProposalDetails,
        TranslationResult, listen_request, listen_response, session_proposal::Details,
        test_response,
    },
};
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::trace_context::TraceContext;

struct Rig {
    agent: FleetAgent,
    now: Now,
    attempt: u64,
}

impl Rig {
    fn new(change: impl FnOnce(Config) -> Config) -> Self {
        let capabilities = vec![Skill::test("t").into(), Skill::translation("f").into()];
        let config = change(
            Config::default()
                .with_name("a")
                .with_capabilities(capabilities),
        );
        let mut agent = FleetAgent::new(config, IdSource::seeded(0)).unwrap();
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        agent.start(now);
        Self {
            agent,
            now,
            attempt: 0,
        }
    }

    /// One that listens on stream 1.
    fn listening() -> Self {
        let mut rig = Self::new(|config| config.with_max_sessions(2));
        rig.registered();
        rig.take();
        rig
    }

    fn input(&mut self, input: Input) {
        self.agent.handle_input(self.now, input).unwrap();
    }

    fn registered(&mut self) {
        self.attempt += 1;
        self.input(Input::Registered {
            attempt: self.attempt,
            client_id: format!("id{}", self.attempt),
        });
    }

    fn failed(&mut self) {
        self.attempt += 1;
        self.input(Input::RegisterFailed {
            attempt: self.attempt,
            reason: "refused".into(),
        });
    }

    fn ended(&mut self, stream: u64, code: Code) {
        self.input(Input::Ended {
            stream: StreamId(stream),
            status: Status::new(code, "why"),
        });
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.plus(Duration::from_millis(millis));
        self.agent.handle_timeout(self.now);
    }

    fn heard(&mut self, event: listen_response::Event) {
        let message = Inbound::Listen(ListenResponse { event: Some(event) });
        self.input(Input::Message {
            stream: StreamId(1),
            message,
        });
    }

    fn propose(&mut self, session: &str, details: Option<Details>) {
        let session_id = session.to_owned();
        self.heard(listen_response::Event::SessionProposal(SessionProposal {
            session_id,
            details,
        }));
    }

    fn ready(&mut self, session: &str) {
        self.heard(listen_response::Event::SessionReady(SessionReady {
            session_id: session.to_owned(),
        }));
    }

    fn init(&mut self, stream: u64) {
        let message = Inbound::Test(TestInit {
            test_type: "t".into(),
            payloads: vec![Payload::new("p")],
            acknowledged: None,
        });
        self.input(Input::Message {
            stream: StreamId(stream),
            message,
        });
    }

    /// Session `s` runs on stream 2.
    fn running() -> Self {
        let mut rig = Self::listening();
        rig.propose("s", test("t"));
        rig.ready("s");
        rig.init(2);
        rig.take();
        rig
    }

    fn take(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.agent.poll_output())
            .map(word)
            .collect()
    }
}

fn test(name: &str) -> Option<Details> {
    Some(Details::Test(TestProposalDetails {
        r#type: name.into(),
    }))
}

fn translation(name: &str) -> Option<Details> {
    Some(Details::Translation(TranslationProposalDetails {
        r#type: name.into(),
    }))
}

fn word(output: Output) -> String {
    match output {
        Output::Register { attempt, .. } => format!("register {attempt}"),
        Output::Open {
            stream,
            rpc,
            key,
            resume,
            trace,
        } => {
            let resume =
                resume.map_or_else(String::new, |resume| format!(" {}", resume.to_value()));
            format!("open {} {rpc:?} {key}{resume}{}", stream.0, within(trace))
        }
        Output::Send { stream, message } => format!("{}: {}", stream.0, said(message)),
        Output::HalfClose { stream } => format!("half-close {}", stream.0),
        Output::Drop { stream } => format!("drop {}", stream.0),
        Output::Run {
            session,
            skill,
            payloads,
            trace,
        } => format!("run {session} {skill} {}{}", payloads.len(), within(trace)),
        Output::Stop { session } => format!("stop {session}"),
        Output::Event(Event::Listening { client_id }) => format!("listening as {client_id}"),
        Output::Event(Event::Retrying { after, .. }) => format!("retrying {}", after.as_secs()),
        Output::Event(Event::Refused { session, .. }) => format!("refused {session}"),
        Output::Event(Event::SessionOver { session, .. }) => format!("over {session}"),
        Output::Event(Event::SessionCut { session, .. }) => format!("cut {session}"),
        Output::Event(Event::SessionResumed { session }) => format!("resumed {session}"),
        Output::Event(Event::Closed) => "closed".into(),
        other => panic!("{other:?}"),
    }
}

fn within(trace: Option<TraceContext>) -> String {
    trace.map_or_else(String::new, |trace| format!(" in {trace}"))
}

fn said(message: Outbound) -> String {
    match message {
        Outbound::Listen(message) => match message.event.unwrap() {
            listen_request::Event::Ready(()) => "ready".into(),
            listen_request::Event::SessionAcceptance(answer) => {
                let word = if answer.accepted { "accept" } else { "refuse" };
                format!("{word} {} {}", answer.session_id, answer.reason)
                    .trim()
                    .to_owned()
            }
        },
        Outbound::Test(message) => {
            assert!(message.timestamp.is_some());
            let number = match message.number {
                0 => String::new(),
                number => format!("#{number} "),
            };
            number
                + &match message.event.unwrap() {
                    test_response::Event::Status(status) => {
                        format!("status {} {}", status.state, status.message)
                    }
                    test_response::Event::Telemetry(telemetry) => telemetry.message,
                    test_response::Event::Result(result) => {
                        format!("result {}", result.status.unwrap().message)
                    }
                }
        }
        Outbound::Translation(_) => "translation".into(),
    }
}

// spec: HUB-2-7, HUB-2-8
#[test]
fn it_registers_listens_and_says_ready_first() {
    let mut rig = Rig::new(|config| config);
    assert_eq!(rig.take(), ["register 1"]);
    rig.registered();
    assert_eq!(
        rig.take(),
        ["open 1 Listen id1", "1: ready", "listening as id1"]
    );
    assert_eq!(rig.agent.poll_timeout(), None, "no deadline on the call");
}

// spec: HUB-3-7
#[test]
fn each_proposal_is_answered_once() {
    let mut rig = Rig::listening();
    rig.propose("a", test("t"));
    rig.propose("a", test("t"));
    assert_eq!(rig.take(), ["1: accept a"]);
    rig.propose("b", test("f"));
    assert_eq!(
        rig.take(),
        [
            "1: refuse b the agent has no handler for that type",
            "refused b"
        ]
    );
    rig.propose("c", None);
    assert_eq!(
        rig.take(),
        [
            "1: refuse c the proposal says neither test nor translation",
            "refused c"
        ]
    );
    rig.propose("d", translation("f"));
    rig.propose("e", test("t"));
    assert_eq!(
        rig.take(),
        ["1: accept d", "1: refuse e the agent is busy", "refused e"]
    );
    for stranger in ["b", "e", "x"] {
        rig.ready(stranger);
    }
    assert_eq!(
        rig.take(),
        Vec::<String>::new(),
        "nothing that was not accepted is ready"
    );
    rig.input(Input::Message {
        stream: StreamId(1),
        message: Inbound::Listen(ListenResponse::default()),
    });
    assert_eq!(rig.take(), Vec::<String>::new());
}

// spec: HUB-3-7, HUB-5-4
#[test]
fn an_answer_that_was_lost_with_its_stream_is_given_again_on_the_next() {
    let mut rig = Rig::new(|config| config.with_resume(true));
    rig.registered();
    rig.propose("a", test("t"));
    rig.ended(1, Code::Unavailable);
    rig.pass(60_000);
    rig.take();
    let proposal = SessionProposal {
        session_id: "a".into(),
        details: test("t"),
    };
    for again in [&["2: accept a"][..], &[]] {
        let event = Some(listen_response::Event::SessionProposal(proposal.clone()));
        rig.input(Input::Message {
            stream: StreamId(2),
            message: Inbound::Listen(ListenResponse { event }),
        });
        assert_eq!(rig.take(), again);
    }
}

// spec: HUB-4-1, HUB-3-5, HUB-2-8
#[test]
fn it_acknowledges_without_waiting_for_the_job() {
    let mut rig = Rig::listening();
    rig.propose("a", test("t"));
    rig.take();
    rig.ready("a");
    assert_eq!(rig.take(), ["open 2 Execute a", "2: status 1 "]);
    rig.ready("a");
    rig.init(2);
    assert_eq!(rig.take(), ["2: status 3 ", "run a test type \"t\" 1"]);
    rig.init(2);
    assert_eq!(rig.take(), Vec::<String>::new(), "one job a stream");
    rig.propose("b", translation("f"));
    rig.ready("b");
    assert_eq!(
        rig.take(),
        ["1: accept b", "open 3 Translate b", "3: translation"]
    );
    let message = Inbound::Translation(TranslationInit::default());
    rig.input(Input::Message {
        stream: StreamId(3),
        message,
    });
    assert_eq!(
        rig.take(),
        ["3: translation", "run b translation type \"f\" 0"]
    );
}

// spec: HUB-3-7
#[test]
fn a_session_that_gave_its_result_is_not_busy() {
    let mut rig = Rig::running();
    let id = SessionId::from("s");
    rig.propose("one", test("t"));
    rig.propose("two", test("t"));
    rig.agent
        .finish(rig.now, &id, TestResult::completed("done").into())
        .unwrap();
    rig.propose("three", test("t"));
    let answers = rig.take();
    let answers: Vec<_> = answers.iter().filter(|word| word.contains(": ")).collect();
    assert_eq!(
        answers,
        [
            "1: accept one",
            "1: refuse two the agent is busy",
            "2: result done",
            "1: accept three"
        ]
    );
}

// spec: HUB-3-7
#[test]
fn a_session_whose_id_is_too_long_is_not_answered() {
    let mut rig = Rig::new(|config| config);
    rig.registered();
    rig.take();
    let most = "s".repeat(1_024);
    rig.propose(&format!("{most}s"), test("t"));
    assert_eq!(rig.take(), [format!("refused {most}")]);
    rig.propose(&most, test("t"));
    assert_eq!(rig.take(), [format!("1: accept {most}")]);
}

// spec: HUB-3-7
#[test]
fn so_many_results_wait_for_the_hub_and_the_next_proposal_is_refused() {
    let mut rig = Rig::new(|config| config.with_max_sessions(1).with_resume(true));
    rig.registered();
    let last = |rig: &mut Rig, session: &str| {
        rig.propose(session, test("t"));
        let said = rig.take();
        said.into_iter().rfind(|word| word.contains(": ")).unwrap()
    };
    let sessions = 1 + 256;
    for n in 0..sessions {
        let session = n.to_string();
        assert_eq!(last(&mut rig, &session), format!("1: accept {n}"));
        rig.ready(&session);
        rig.init(n + 2);
        let done = TestResult::completed("done").into();
        let id = SessionId::from(session);
        rig.agent.finish(rig.now, &id, done).unwrap();
    }
    assert_eq!(last(&mut rig, "more"), "1: refuse more the agent is busy");
    rig.ended(2, Code::Ok);
    assert_eq!(last(&mut rig, "next"), "1: accept next");
}

// spec: HUB-4-8
#[test]
fn the_result_half_closes_and_the_call_lingers() {
    let mut rig = Rig::running();
    let id = SessionId::from("s");
    rig.agent
        .status(rig.now, &id, State::Running, "half")
        .unwrap();
    rig.agent
        .telemetry(rig.now, &id, Telemetry::new(Severity::Info, "line"))
        .unwrap();
    rig.agent
        .finish(rig.now, &id, TestResult::completed("done").into())
        .unwrap();
    assert_eq!(
        rig.take(),
        [
            "2: status 3 half",
            "2: line",
            "2: result done",
            "half-close 2"
        ]
    );
    let late = rig.agent.telemetry(rig.now, &id, Telemetry::default());
    assert_eq!(late, Err(CommandError::NotRunning));
    rig.pass(4_999);
    assert_eq!(rig.take(), Vec::<String>::new());
    rig.pass(1);
    assert_eq!(rig.take(), ["drop 2", "over s"]);

    let mut rig = Rig::running();
    rig.agent
        .finish(rig.now, &id, TestResult::completed("done").into())
        .unwrap();
    rig.take();
    rig.ended(2, Code::Ok);
    assert_eq!(rig.take(), ["over s"]);
    rig.pass(5_000);
    assert_eq!(rig.take(), Vec::<String>::new());
}

#[test]
fn wrong_reports_are_refused_and_change_nothing() {
    let mut rig = Rig::running();
    let (now, id, agent) = (rig.now, SessionId::from("s"), &mut rig.agent);
    assert_eq!(
        agent.status(now, &id, State::Failed, ""),
        Err(CommandError::Terminal)
    );
    assert_eq!(
        agent.status(now, &id, State::Acknowledged, ""),
        Err(CommandError::Backward)
    );
    assert_eq!(
        agent.status(now, &"x".into(), State::Running, ""),
        Err(CommandError::NotRunning)
    );
    let running = TestResult::new(State::Running, "");
    assert_eq!(
        agent.finish(now, &id, running.into()),
        Err(CommandError::NotTerminal)
    );
    assert_eq!(
        agent.finish(now, &id, TestResult::default().into()),
        Err(CommandError::NotTerminal)
    );
    let wrong = agent.finish(now, &id, TranslationResult::completed(vec![]).into());
    assert!(matches!(wrong, Err(CommandError::WrongKind { .. })));
    let large = agent.finish(now, &id, TestResult::completed("x".repeat(65 << 20)).into());
    assert!(matches!(large, Err(CommandError::TooLarge { .. })));
    assert_eq!(rig.take(), Vec::<String>::new());
    rig.agent
        .finish(now, &id, TestResult::completed("").into())
        .unwrap();
}

// spec: HUB-5-2
#[test]
fn it_tries_again_after_one_two_four_to_sixty_seconds() {
    let mut rig = Rig::new(|config| config);
    rig.take();
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        rig.failed();
        assert_eq!(rig.take(), [format!("retrying {seconds}")]);
        rig.pass(seconds * 1000 - 1);
        assert_eq!(rig.take(), Vec::<String>::new());
        rig.pass(1);
        assert_eq!(rig.take(), [format!("register {}", rig.attempt + 1)]);
    }
    rig.registered();
    rig.ended(1, Code::Unavailable);
    assert_eq!(
        rig.take().pop().unwrap(),
        "retrying 60",
        "a Listen that ends at once was no good one"
    );
    rig.pass(60_000);
    rig.registered();
    rig.pass(1_000);
    rig.ended(2, Code::Ok);
    assert_eq!(
        rig.take().pop().unwrap(),
        "retrying 1",
        "it lasted a second, and OK is an end too"
    );
    rig.pass(1_000);
    rig.failed();
    rig.pass(2_000);
    rig.registered();
    let message = Inbound::Listen(ListenResponse::default());
    rig.input(Input::Message {
        stream: StreamId(3),
        message,
    });
    rig.ended(3, Code::Unknown);
    assert_eq!(rig.take().pop().unwrap(), "retrying 1", "it gave a message");
}

// spec: HUB-5-2
#[test]
fn a_register_that_hangs_counts_as_failed() {
    let mut rig = Rig::new(|config| config);
    rig.take();
    rig.pass(10_000);
    assert_eq!(rig.take(), ["retrying 1"]);
    rig.registered();
    assert_eq!(rig.take(), Vec::<String>::new(), "too late");
    rig.pass(1_000);
    assert_eq!(rig.take(), ["register 2"]);
    rig.input(Input::Registered {
        attempt: 1,
        client_id: "old".into(),
    });
    assert_eq!(
        rig.take(),
        Vec::<String>::new(),
        "an answer to the first attempt"
    );
}

// spec: HUB-5-2, HUB-4-7
#[test]
fn sessions_survive_a_lost_listen_but_not_a_lost_stream() {
    let mut rig = Rig::running();
    rig.propose("accepted", test("t"));
    rig.take();
    rig.ended(1, Code::Unavailable);
    assert_eq!(rig.take(), ["over accepted", "retrying 1"]);
    rig.agent
        .status(rig.now, &"s".into(), State::Running, "still")
        .unwrap();
    rig.ended(2, Code::Aborted);
    assert_eq!(rig.take(), ["2: status 3 still", "stop s", "over s"]);
    rig.ended(2, Code::Aborted);
    assert_eq!(rig.take(), Vec::<String>::new());
}

#[test]
fn a_job_or_readiness_that_never_comes_frees_the_place() {
    let mut rig = Rig::listening();
    rig.propose("a", test("t"));
    rig.propose("b", test("t"));
    rig.ready("b");
    rig.take();
    rig.pass(30_000);
    assert_eq!(
        rig.take(),
        [
            "2: result the hub did not send the job in time",
            "half-close 2"
        ]
    );
    rig.pass(270_000);
    let mut said = rig.take();
    said.sort();
    assert_eq!(said, ["drop 2", "over a", "over b"]);
}

#[test]
fn leaving_lets_sessions_end_then_closes_listen() {
    let mut rig = Rig::running();
    rig.agent.shutdown(rig.now, Duration::from_secs(9));
    rig.propose("late", test("t"));
    assert_eq!(
        rig.take(),
        ["1: refuse late the agent is leaving", "refused late"]
    );
    rig.agent
        .finish(rig.now, &"s".into(), TestResult::completed("").into())
        .unwrap();
    rig.take();
    rig.ended(2, Code::Ok);
    assert_eq!(rig.take(), ["over s", "half-close 1"]);
    rig.ended(1, Code::Ok);
    assert_eq!(rig.take(), ["closed"]);
    assert_eq!(
        rig.agent.handle_input(
            rig.now,
            Input::Ended {
                stream: StreamId(1),
                status: Status::ok()
            }
        ),
        Err(InputError::Closed)
    );

    let mut rig = Rig::running();
    rig.agent.shutdown(rig.now, Duration::from_secs(9));
    rig.pass(9_000);
    assert_eq!(rig.take(), ["drop 2", "stop s", "over s", "half-close 1"]);
    rig.pass(5_000);
    assert_eq!(rig.take(), ["drop 1", "closed"]);

    let mut rig = Rig::new(|config| config);
    rig.agent.shutdown(rig.now, Duration::ZERO);
    assert_eq!(
        rig.take(),
        ["register 1", "closed"],
        "one that never listened just closes"
    );
}

#[test]
fn capabilities_that_a_hub_would_refuse_are_refused_here() {
    let config = Config::default().with_capabilities(vec![Skill::test("").into()]);
    assert!(FleetAgent::new(config, IdSource::seeded(0)).is_err());
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let zero = Duration::ZERO;
    let second = Duration::from_secs(1);
    for (config, what) in [
        (
            Config::default().with_first_retry(zero),
            "first_retry is 0,",
        ),
        (
            Config::default().with_register_timeout(zero),
            "register_timeout is 0,",
        ),
        (
            Config::default().with_ready_timeout(zero),
            "ready_timeout is 0,",
        ),
        (
            Config::default().with_init_timeout(zero),
            "init_timeout is 0,",
        ),
        (
            Config::default().with_resume_limit(zero),
            "resume_limit is 0,",
        ),
        (Config::default().with_linger(zero), "linger is 0,"),
        (
            Config::default().with_max_message_bytes(0),
            "max_message_bytes is 0,",
        ),
        (
            Config::default()
                .with_first_retry(second * 2)
                .with_longest_retry(second),
            "longest_retry is 1s, but must be at least 2s",
        ),
    ] {
        let config = config.with_jitter(true);
        let refused = FleetAgent::new(config, IdSource::seeded(0))
            .unwrap_err()
            .to_string();
        assert!(refused.starts_with(what), "{refused}");
    }
}

// spec: HUB-5-4, HUB-5-2
#[test]
fn a_resuming_agent_keeps_its_id_until_the_hub_forgets_it() {
    let mut rig = Rig::new(|config| config.with_resume(true));
    rig.registered();
    rig.propose("s", test("t"));
    rig.take();
    rig.ended(1, Code::Unavailable);
    assert_eq!(rig.take(), ["retrying 1"], "what was accepted is kept");
    rig.pass(1_000);
    assert_eq!(
        rig.take(),
        ["open 2 Listen id1", "2: ready", "listening as id1"]
    );
    rig.ended(2, Code::Unavailable);
    assert_eq!(rig.take(), ["retrying 2"], "pauses grow all the same");
    rig.pass(2_000);
    rig.take();
    rig.ended(3, Code::NotFound);
    assert_eq!(rig.take(), ["over s", "retrying 4"]);
    rig.pass(4_000);
    assert_eq!(rig.take(), ["register 2"]);
}
