//! Session streams: what is reported, and how sessions end.

use prost::Message as _;

use super::*;

// spec: HUB-6-1
#[test]
fn the_words_of_a_result_are_not_kept_twice() {
    let long = "w".repeat(2_000);
    let result = TestResult::new(State::Failed, long.clone());
    for is_said_before in [false, true] {
        let mut rig = Rig::new();
        let (.., stream) = rig.running();
        if is_said_before {
            let status = result.status.clone().unwrap();
            rig.say(stream, test_response::Event::Status(status));
        }
        rig.say(stream, test_response::Event::Result(result.clone()));
        let ended = rig.take().into_iter().find_map(|output| match output {
            Output::Event(Event::Job {
                event: JobEvent::Ended(outcome),
                ..
            }) => Some(outcome),
            _ => None,
        });
        let ended = ended.unwrap();
        assert_eq!(ended.message, long[..1_024]);
        assert_eq!(ended.result, Some(result.clone().into()));
    }
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
        assert_eq!(rig.hub.view().counts().jobs, 0);
    }
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
fn the_size_of_an_init_message_is_exact() {
    for size in [0, 1, 120, 200, 20_000] {
        let payloads = vec![Payload::file("p", "n", "m", vec![7; size]); 3];
        let init = uap_hub_proto::wire::TestInit {
            test_type: "t".into(),
            payloads,
            acknowledged: None,
        };
        let mut rig = Rig::with(Config::default().with_max_message_bytes(1));
        let refused = rig
            .hub
            .submit(rig.now, Job::test("t", init.payloads.clone()));
        let seen = init.encoded_len();
        assert_eq!(refused, Err(CommandError::TooLarge { seen, most: 1 }));
    }
}

#[test]
fn ended_sessions_are_remembered_up_to_the_bound() {
    let mut rig = Rig::with(Config::default().with_max_remembered(1));
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

/// The only end of a job.
fn outcome(rig: &mut Rig) -> Outcome {
    let said = rig.take().into_iter();
    let mut ends = said.filter_map(|output| match output {
        Output::Event(Event::Job {
            event: JobEvent::Ended(outcome),
            ..
        }) => Some(outcome),
        _ => None,
    });
    ends.next().unwrap()
}

// spec: HUB-4-1
#[test]
fn an_end_names_the_agent_that_ran_the_job_and_weighs_its_result() {
    let mut rig = Rig::new();
    let (_, _, _, stream) = rig.running();
    rig.result(stream, State::Completed);
    let ran = outcome(&mut rig);
    let agent = rig.hub.view().agents().next().unwrap().client_id;
    assert_eq!(ran.agent, Some(agent));
    let Some(JobResult::Test(result)) = &ran.result else {
        panic!("{ran:?}")
    };
    let bytes = result.encoded_len() + ran.message.len();
    assert_eq!(JobEvent::Ended(ran).weight(), bytes);
    let job = rig.submit();
    rig.hub.cancel(rig.now, job).unwrap();
    let offered = outcome(&mut rig);
    assert_eq!(offered.agent, None);
    let words = offered.message.len();
    assert_eq!(JobEvent::Ended(offered).weight(), words);
}
