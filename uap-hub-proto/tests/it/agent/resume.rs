//! Sessions that outlive their calls.

use super::*;

/// Session `s` on stream 2 of an agent that resumes, at the stage of waiting for its job.
fn opened(change: impl FnOnce(Config) -> Config) -> Rig {
    let mut rig = Rig::new(|config| change(config.with_resume(true)));
    rig.registered();
    rig.propose("s", test("t"));
    rig.ready("s");
    rig
}

/// As [`opened`], and running.
fn running(change: impl FnOnce(Config) -> Config) -> Rig {
    let mut rig = opened(change);
    hub_has(&mut rig, 2, Some(0));
    rig.take();
    rig
}

fn hub_has(rig: &mut Rig, stream: u64, acknowledged: Option<u64>) {
    let init = TestInit {
        acknowledged,
        ..TestInit::default()
    };
    rig.input(Input::Message {
        stream: StreamId(stream),
        message: Inbound::Test(init),
    });
}

fn cut(rig: &mut Rig, stream: u64) {
    rig.input(Input::Broken {
        stream: StreamId(stream),
        status: Status::new(Code::Unavailable, "the connection was lost"),
    });
}

fn line(rig: &mut Rig, text: &str) {
    let session = SessionId::from("s");
    let telemetry = Telemetry::new(Severity::Info, text);
    rig.agent.telemetry(rig.now, &session, telemetry).unwrap();
}

fn finish(rig: &mut Rig) {
    let result = TestResult::completed("done");
    let session = SessionId::from("s");
    rig.agent.finish(rig.now, &session, result.into()).unwrap();
}

// spec: HUB-5-4
#[test]
fn reports_are_numbered_and_those_that_the_hub_may_not_have_come_again() {
    let mut rig = opened(|config| config);
    assert_eq!(
        rig.take()[5..],
        ["open 2 Execute s job 1", "2: #1 status 1 "]
    );
    hub_has(&mut rig, 2, Some(0));
    assert_eq!(rig.take(), ["2: #2 status 3 ", "run s test type \"t\" 0"]);
    line(&mut rig, "a");
    hub_has(&mut rig, 2, Some(2));
    cut(&mut rig, 2);
    assert_eq!(rig.take(), ["2: #3 a", "cut s"]);
    line(&mut rig, "b");
    rig.pass(0);
    assert_eq!(
        rig.take(),
        ["open 3 Execute s reports 2", "3: #3 a", "3: #4 b"]
    );
    hub_has(&mut rig, 3, Some(3));
    assert_eq!(rig.take(), ["resumed s"]);
    line(&mut rig, "c");
    cut(&mut rig, 3);
    rig.pass(0);
    assert_eq!(
        rig.take(),
        [
            "3: #5 c",
            "cut s",
            "open 4 Execute s reports 3",
            "4: #4 b",
            "4: #5 c"
        ]
    );
}

// spec: HUB-5-4
#[test]
fn a_result_that_may_be_lost_comes_again() {
    let mut rig = running(|config| config);
    hub_has(&mut rig, 2, Some(2));
    finish(&mut rig);
    cut(&mut rig, 2);
    rig.pass(0);
    assert_eq!(
        rig.take(),
        [
            "2: #3 result done",
            "half-close 2",
            "cut s",
            "open 3 Execute s reports 2",
            "3: #3 result done",
            "half-close 3"
        ]
    );
    rig.pass(60_000);
    assert_eq!(rig.take(), [""; 0], "a dead connection takes its time");
    rig.ended(3, Code::FailedPrecondition);
    assert_eq!(rig.take(), ["over s"], "the hub has it");
    let mut rig = running(|config| config);
    hub_has(&mut rig, 2, Some(2));
    cut(&mut rig, 2);
    finish(&mut rig);
    assert_eq!(rig.take(), ["cut s"]);
    rig.pass(0);
    assert_eq!(
        rig.take(),
        [
            "open 3 Execute s reports 2",
            "3: #3 result done",
            "half-close 3"
        ]
    );
}

// spec: HUB-5-4
#[test]
fn a_job_that_has_not_come_is_asked_for_again() {
    let mut rig = opened(|config| config);
    rig.take();
    cut(&mut rig, 2);
    rig.pass(0);
    assert_eq!(
        rig.take(),
        ["cut s", "open 3 Execute s job 2", "3: #1 status 1 "]
    );
    hub_has(&mut rig, 3, Some(1));
    assert_eq!(
        rig.take(),
        ["resumed s", "3: #2 status 3 ", "run s test type \"t\" 0"]
    );
    let mut rig = opened(|config| config);
    cut(&mut rig, 2);
    rig.pass(0);
    rig.take();
    rig.pass(30_000);
    assert_eq!(
        rig.take(),
        [
            "3: #2 result the hub did not send the job in time",
            "half-close 3"
        ]
    );
}

// spec: HUB-5-4
#[test]
fn a_call_that_cannot_be_opened_is_tried_again_for_a_while() {
    let mut rig = running(|config| config.with_resume_limit(Duration::from_secs(10)));
    hub_has(&mut rig, 2, Some(2));
    cut(&mut rig, 2);
    rig.take();
    for (stream, pause) in [(3, 0), (4, 1_000), (5, 2_000), (6, 4_000)] {
        rig.pass(pause);
        let opening = format!("open {stream} Execute s reports {}", stream - 1);
        assert_eq!(rig.take(), [opening]);
        cut(&mut rig, stream);
        assert_eq!(rig.take(), [""; 0], "it was cut already");
    }
    rig.pass(8_000);
    assert_eq!(rig.take(), ["stop s", "over s"]);
    // At the limit it is over.
    let mut rig = running(|config| config.with_resume_limit(Duration::from_secs(3)));
    hub_has(&mut rig, 2, Some(2));
    cut(&mut rig, 2);
    for (stream, pause) in [(3, 0), (4, 1_000)] {
        rig.pass(pause);
        cut(&mut rig, stream);
    }
    rig.take();
    rig.pass(2_000);
    assert_eq!(rig.take(), ["stop s", "over s"]);
}

// spec: HUB-5-4
#[test]
fn a_call_that_is_refused_for_now_is_tried_again() {
    for code in [
        Code::Unavailable,
        Code::DeadlineExceeded,
        Code::ResourceExhausted,
    ] {
        let mut rig = running(|config| config.with_resume_limit(Duration::from_secs(10)));
        hub_has(&mut rig, 2, Some(2));
        cut(&mut rig, 2);
        rig.pass(0);
        rig.take();
        rig.ended(3, code);
        assert_eq!(rig.take(), [""; 0], "{code:?}");
        rig.pass(1_000);
        assert_eq!(rig.take(), ["open 4 Execute s reports 3"], "{code:?}");
        rig.ended(4, code);
        rig.pass(2_000);
        hub_has(&mut rig, 5, Some(2));
        assert_eq!(rig.take(), ["open 5 Execute s reports 4", "resumed s"]);
        rig.ended(5, code);
        assert_eq!(rig.take(), ["stop s", "over s"], "the hub ended it");
    }
    let mut rig = running(|config| config.with_resume_limit(Duration::from_secs(2)));
    hub_has(&mut rig, 2, Some(2));
    cut(&mut rig, 2);
    for (stream, pause) in [(3, 0), (4, 1_000)] {
        rig.pass(pause);
        rig.ended(stream, Code::Unavailable);
    }
    rig.take();
    rig.pass(2_000);
    assert_eq!(rig.take(), ["stop s", "over s"], "the time is over");
    let mut rig = running(|config| config);
    cut(&mut rig, 2);
    rig.pass(0);
    rig.ended(3, Code::Unknown);
    assert_eq!(rig.take()[4..], ["stop s", "over s"], "for good");
}

// spec: HUB-5-4
#[test]
fn all_cut_calls_are_opened_when_the_hub_is_there_again() {
    let mut rig = running(|config| config);
    hub_has(&mut rig, 2, Some(2));
    for stream in [2, 3, 4] {
        cut(&mut rig, stream);
        rig.pass(if stream == 3 { 1_000 } else { 0 });
    }
    cut(&mut rig, 1);
    rig.take();
    rig.pass(1_000);
    assert_eq!(
        rig.take(),
        [
            "open 5 Listen id1",
            "5: ready",
            "listening as id1",
            "open 6 Execute s reports 4"
        ]
    );
    cut(&mut rig, 6);
    rig.pass(1_000);
    assert_eq!(
        rig.take(),
        ["open 7 Execute s reports 5"],
        "after the first pause again"
    );
}

// spec: HUB-5-4
#[test]
fn a_call_that_was_cut_ends_no_session_any_more() {
    let mut rig = running(|config| config);
    cut(&mut rig, 2);
    rig.take();
    rig.ended(2, Code::Cancelled);
    assert_eq!(rig.take(), [""; 0]);
}

// spec: HUB-5-4
#[test]
fn a_session_that_was_resumed_is_tried_again_after_the_first_pause() {
    let mut rig = running(|config| config);
    hub_has(&mut rig, 2, Some(2));
    for (stream, pause) in [(3, 0), (4, 1_000), (5, 2_000)] {
        cut(&mut rig, stream - 1);
        rig.pass(pause);
    }
    line(&mut rig, "news");
    hub_has(&mut rig, 5, Some(3));
    rig.take();
    for (stream, pause) in [(6, 0), (7, 1_000)] {
        cut(&mut rig, stream - 1);
        rig.take();
        rig.pass(pause);
        let opening = format!("open {stream} Execute s reports {}", stream - 1);
        assert_eq!(rig.take(), [opening]);
    }
}

// spec: HUB-5-4
#[test]
fn a_hub_that_resumes_a_session_and_cuts_it_is_called_ever_more_rarely_and_then_no_more() {
    let mut rig = running(|config| config.with_resume_limit(Duration::from_secs(10)));
    hub_has(&mut rig, 2, Some(2));
    cut(&mut rig, 2);
    rig.take();
    for (stream, pause) in [(3, 0), (4, 1_000), (5, 2_000), (6, 4_000)] {
        if pause > 0 {
            rig.pass(pause - 1);
            assert_eq!(rig.take(), [""; 0], "{stream}");
        }
        rig.pass(pause.min(1));
        let opening = format!("open {stream} Execute s reports {}", stream - 1);
        assert_eq!(rig.take(), [opening]);
        hub_has(&mut rig, stream, Some(2));
        cut(&mut rig, stream);
        assert_eq!(rig.take(), ["resumed s", "cut s"]);
    }
    rig.pass(5_000);
    assert_eq!(rig.take(), ["stop s", "over s"], "it was cut for 12 s");
}

// spec: HUB-5-4
#[test]
fn agents_whose_hub_was_lost_do_not_all_come_back_at_the_same_moment() {
    let mut rig = running(|config| config.with_jitter(true));
    hub_has(&mut rig, 2, Some(2));
    cut(&mut rig, 2);
    rig.pass(0);
    cut(&mut rig, 3);
    let due = rig.agent.poll_timeout().unwrap();
    let pause = due.saturating_since(rig.now.mono);
    let whole = Duration::from_secs(1);
    assert!(pause > Duration::ZERO && pause < whole, "{pause:?}");
}

// spec: HUB-5-4
#[test]
fn a_quiet_session_whose_call_lasted_is_resumed_at_once() {
    let mut rig = running(|config| config.with_resume_limit(Duration::from_secs(10)));
    hub_has(&mut rig, 2, Some(2));
    cut(&mut rig, 2);
    for (stream, pause) in [(3, 0), (4, 1_000), (5, 2_000)] {
        rig.pass(pause);
        if stream < 5 {
            cut(&mut rig, stream);
        }
    }
    for stream in [5, 6, 7, 8] {
        hub_has(&mut rig, stream, Some(2));
        rig.pass(5_000);
        cut(&mut rig, stream);
        rig.take();
        rig.pass(0);
        let opening = format!("open {} Execute s reports {stream}", stream + 1);
        assert_eq!(rig.take(), [opening]);
    }
    cut(&mut rig, 9);
    rig.pass(1_000);
    let opening = "open 10 Execute s reports 9";
    assert_eq!(rig.take(), [opening], "after the first pause again");
}

// spec: HUB-5-4
#[test]
fn an_agent_that_leaves_does_not_wait_for_a_session_that_it_lost() {
    let long = "x".repeat(4_000);
    for is_end in [false, true] {
        let mut rig = running(|config| config.with_max_unacknowledged_bytes(long.len()));
        line(&mut rig, &long);
        cut(&mut rig, 2);
        rig.agent.shutdown(rig.now, Duration::from_secs(60));
        rig.take();
        if is_end {
            let result = TestResult::completed(long.as_str());
            let session = SessionId::from("s");
            rig.agent.finish(rig.now, &session, result.into()).unwrap();
        } else {
            line(&mut rig, &long);
        }
        assert_eq!(rig.take(), ["stop s", "over s", "half-close 1"]);
    }
}

// spec: HUB-5-4
#[test]
fn an_agent_that_leaves_looks_for_its_hub_no_more() {
    let mut rig = running(|config| config);
    cut(&mut rig, 1);
    let drain = Duration::from_secs(60);
    rig.agent.shutdown(rig.now, drain);
    let end = rig.now.mono.saturating_add(drain);
    assert_eq!(rig.agent.poll_timeout(), Some(end));
}

// spec: HUB-5-4
#[test]
fn a_session_that_cannot_be_resumed_is_lost() {
    let mut plain = Rig::running();
    cut(&mut plain, 2);
    assert_eq!(plain.take(), ["stop s", "over s"], "nobody wanted it");

    let mut rig = opened(|config| config);
    hub_has(&mut rig, 2, None);
    rig.take();
    line(&mut rig, "a");
    cut(&mut rig, 2);
    assert_eq!(rig.take(), ["2: a", "stop s", "over s"], "the hub does not");

    let mut rig = running(|config| config);
    rig.ended(2, Code::Cancelled);
    assert_eq!(rig.take(), ["stop s", "over s"], "the hub ended it");

    let mut rig = running(|config| config);
    cut(&mut rig, 2);
    rig.pass(0);
    rig.ended(3, Code::NotFound);
    assert_eq!(rig.take()[4..], ["stop s", "over s"], "it is forgotten");

    let mut rig = running(|config| config);
    cut(&mut rig, 2);
    rig.agent.shutdown(rig.now, Duration::from_secs(5));
    rig.take();
    rig.pass(5_000);
    let said = rig.take();
    assert_eq!(
        said[said.len() - 4..][1..3],
        ["stop s", "over s"],
        "time is up"
    );
}

// spec: HUB-5-4
#[test]
fn more_reports_than_may_be_kept_end_the_hope_of_resuming() {
    let most = 4_000;
    let long = "x".repeat(most);
    let mut rig = running(|config| config.with_max_unacknowledged_bytes(most));
    hub_has(&mut rig, 2, Some(2));
    let result = TestResult::completed("x".repeat(4 * most));
    let session = SessionId::from("s");
    rig.agent.finish(rig.now, &session, result.into()).unwrap();
    cut(&mut rig, 2);
    rig.pass(0);
    let said = rig.take();
    let (last, opened) = (&said[said.len() - 2], &said[said.len() - 3]);
    assert_eq!(opened, "open 3 Execute s reports 2");
    assert!(last.starts_with("3: #3 result"), "one message is kept");

    let mut rig = running(|config| config.with_max_unacknowledged_bytes(most));
    line(&mut rig, &long);
    line(&mut rig, "a");
    assert_eq!(rig.take(), [format!("2: #3 {long}"), "2: a".to_owned()]);
    cut(&mut rig, 2);
    assert_eq!(rig.take(), ["stop s", "over s"]);

    let mut rig = running(|config| config.with_max_unacknowledged_bytes(most));
    cut(&mut rig, 2);
    line(&mut rig, &long);
    assert_eq!(rig.take(), ["cut s"]);
    line(&mut rig, "a");
    assert_eq!(rig.take(), ["stop s", "over s"]);
    assert_eq!(rig.agent.poll_timeout(), None);

    let mut rig = running(|config| config.with_max_unacknowledged_bytes(most));
    for number in 3..1_000 {
        line(&mut rig, "x");
        hub_has(&mut rig, 2, Some(number));
    }
    cut(&mut rig, 2);
    assert_eq!(
        rig.take().last().unwrap(),
        "cut s",
        "what it has is not kept"
    );
}

// spec: HUB-5-4
#[test]
fn while_a_session_is_cut_no_pause_is_longer_than_the_hub_may_wait() {
    let mut rig = running(|config| config);
    hub_has(&mut rig, 2, Some(2));
    // A control stream that lasted resets the pauses.
    rig.pass(10_000);
    cut(&mut rig, 2);
    rig.ended(1, Code::Unavailable);
    rig.take();
    let mut pauses = Vec::new();
    for _ in 0..200 {
        rig.pass(1_000);
        for word in rig.take() {
            let mut words = word.split(' ');
            match (words.next(), words.next()) {
                (Some("open"), Some(stream)) => {
                    rig.ended(stream.parse().unwrap(), Code::Unavailable)
                }
                (Some("retrying"), Some(after)) => pauses.push(after.parse::<u64>().unwrap()),
                _ => {}
            }
        }
    }
    assert_eq!(pauses.iter().max(), Some(&5), "{pauses:?}");
    assert!(pauses.len() > 20, "{pauses:?}");
}
