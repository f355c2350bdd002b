//! Sessions that outlive their streams.

use std::sync::Arc;

use bytes::Bytes;

use super::*;

const GRACE: Duration = Duration::from_secs(60);

/// A hub that resumes sessions, with one that runs.
fn resumable(change: impl FnOnce(Config) -> Config) -> (Rig, JobId, String, StreamId) {
    let mut rig = Rig::with(change(Config::default().with_resume_grace(GRACE)));
    rig.agent();
    let (job, session, stream) = started(&mut rig);
    rig.number = Some(1);
    (rig, job, session, stream)
}

/// A job that was accepted, and whose stream was opened for the first time.
fn started(rig: &mut Rig) -> (JobId, String, StreamId) {
    let job = rig.submit();
    let (session, stream) = begun(rig);
    (job, session, stream)
}

fn begun(rig: &mut Rig) -> (String, StreamId) {
    let (listen, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    let stream = rig.open_as(Rpc::Execute, Some(&session), Some(Resume::Job(1)));
    rig.take();
    (session, stream)
}

fn reopen(rig: &mut Rig, session: &str, resume: Resume) -> StreamId {
    rig.open_as(Rpc::Execute, Some(session), Some(resume))
}

fn line(rig: &mut Rig, stream: StreamId, text: &str) {
    let telemetry = Telemetry::new(Severity::Info, text);
    rig.say(stream, test_response::Event::Telemetry(telemetry));
}

fn said(rig: &mut Rig) -> Vec<String> {
    words(rig.take())
}

/// Whether the init of a session says that it can be resumed.
fn offers_resumption(config: Config, resume: Option<Resume>) -> bool {
    let mut rig = Rig::with(config);
    rig.agent();
    rig.submit();
    let (listen, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    rig.open_as(Rpc::Execute, Some(&session), resume);
    rig.take().into_iter().any(|output| match output {
        Output::Send {
            message: Outbound::Test(init),
            ..
        } => init.acknowledged == Some(0),
        _ => false,
    })
}

// spec: HUB-5-4
#[test]
fn both_sides_have_to_want_it() {
    let wanted = Some(Resume::Job(1));
    let graceful = || Config::default().with_resume_grace(GRACE);
    assert!(offers_resumption(graceful(), wanted));
    assert!(!offers_resumption(graceful(), None));
    assert!(!offers_resumption(Config::default(), wanted));
    let mut rig = Rig::with(graceful());
    let (_, _, _, stream) = rig.running();
    rig.lose(stream);
    assert_eq!(said(&mut rig), ["ended Failed Agent disconnected"]);
}

// spec: HUB-5-4
#[test]
fn reports_come_once_on_whichever_stream() {
    let (mut rig, _, session, first) = resumable(|config| config);
    rig.status(first, 1);
    rig.status(first, 3);
    line(&mut rig, first, "one");
    rig.lose(first);
    assert_eq!(
        said(&mut rig),
        [
            "status Acknowledged",
            "status Running",
            "telemetry one",
            "cut"
        ]
    );
    let second = reopen(&mut rig, &session, Resume::Reports(2));
    assert_eq!(said(&mut rig), ["resumed", "acknowledge 3"]);
    rig.number = Some(3);
    line(&mut rig, second, "one");
    line(&mut rig, second, "two");
    line(&mut rig, first, "from a stream that is gone");
    rig.number = Some(5);
    rig.result(second, State::Completed);
    assert_eq!(
        said(&mut rig),
        ["telemetry two", "ended Completed r with data"]
    );
    rig.lose(second);
    reopen(&mut rig, &session, Resume::Reports(3));
    assert_eq!(
        said(&mut rig),
        ["end FailedPrecondition the session has ended"],
        "an agent that missed the end learns it"
    );
}

// spec: HUB-5-4
#[test]
fn the_agent_is_told_what_it_need_not_keep() {
    let (mut rig, _, _, stream) = resumable(|config| config);
    let lines = |rig: &mut Rig, count, bytes| {
        (0..count).for_each(|_| line(rig, stream, &"x".repeat(bytes)));
        let told = said(rig).into_iter();
        told.filter(|word| word.starts_with("acknowledge"))
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(&mut rig, 15, 1), [""; 0]);
    assert_eq!(lines(&mut rig, 1, 1), ["acknowledge 16"]);
    assert_eq!(lines(&mut rig, 1, 65_000), [""; 0]);
    assert_eq!(lines(&mut rig, 1, 1_000), ["acknowledge 18"]);
    let blocked = Input::Blocked { stream };
    rig.hub.handle_input(rig.now, blocked).unwrap();
    assert_eq!(lines(&mut rig, 1_000, 1), [""; 0], "it does not read");
    let writable = Input::Writable { stream };
    rig.hub.handle_input(rig.now, writable).unwrap();
    assert_eq!(lines(&mut rig, 1, 1), ["acknowledge 1019"]);
}

// spec: HUB-5-4
#[test]
fn a_job_that_was_cut_off_is_sent_again() {
    let (mut rig, _, session, first) = resumable(|config| config);
    rig.status(first, 1);
    rig.lose(first);
    assert_eq!(rig.hub.view().counts().payload_bytes, 8, "it may be needed");
    let second = reopen(&mut rig, &session, Resume::Job(2));
    assert_eq!(
        said(&mut rig),
        ["status Acknowledged", "cut", "resumed", "init t"]
    );
    rig.status(second, 3);
    // It has the job, and they are kept no more; they count until it ends.
    assert_eq!(rig.hub.view().counts().payload_bytes, 8);
    rig.lose(second);
    reopen(&mut rig, &session, Resume::Job(3));
    assert_eq!(
        said(&mut rig)[2..],
        ["end FailedPrecondition the session has its job"]
    );
}

#[test]
fn payloads_are_kept_until_the_agent_has_shown_that_it_has_them() {
    let mut rig = Rig::with(Config::default().with_resume_grace(GRACE));
    rig.agent();
    let data: Arc<[u8]> = Arc::from([0; 8]);
    let file = Payload::file("p", "", "", Bytes::from_owner(data.clone()));
    let job = Job::test("t", vec![file]);
    rig.hub.submit(rig.now, job).unwrap();
    let (_, stream) = begun(&mut rig);
    rig.number = Some(1);
    for (state, is_kept) in [(1, true), (3, false)] {
        rig.status(stream, state);
        assert_eq!(Arc::strong_count(&data) > 1, is_kept);
    }
}

// spec: HUB-5-4, HUB-2-2
#[test]
fn only_a_newer_opening_of_the_same_kind_takes_a_session_over() {
    let (mut rig, _, session, first) = resumable(|config| config);
    reopen(&mut rig, &session, Resume::Reports(3));
    assert_eq!(
        said(&mut rig),
        [
            "end Aborted the session was resumed on another stream",
            "resumed",
            "acknowledge 0"
        ]
    );
    for stale in [Resume::Reports(3), Resume::Reports(2), Resume::Job(1)] {
        reopen(&mut rig, &session, stale);
        assert_eq!(
            said(&mut rig),
            ["end FailedPrecondition the session has a newer stream"]
        );
    }
    rig.open(Rpc::Execute, Some(&session));
    assert_eq!(
        said(&mut rig),
        ["end FailedPrecondition the session has a stream"]
    );
    rig.open_as(Rpc::Translate, Some(&session), Some(Resume::Reports(4)));
    assert_eq!(
        said(&mut rig),
        ["end FailedPrecondition the session is of the other kind"]
    );
    rig.lose(first);
    assert_eq!(said(&mut rig), [""; 0], "that stream is past");
}

// spec: HUB-5-4, HUB-5-1
#[test]
fn a_session_whose_agent_does_not_come_back_is_lost() {
    for (attempts, terminal, words) in [
        (1, false, "ended Failed Agent disconnected"),
        (2, false, "requeued Agent disconnected"),
        (2, true, "ended Completed s4"),
    ] {
        let (mut rig, job, _, stream) = resumable(|config| config.with_max_attempts(attempts));
        rig.status(stream, 1);
        rig.status(stream, 3);
        if terminal {
            rig.status(stream, 4);
        }
        rig.lose(stream);
        rig.seconds(59);
        let stage = rig.hub.view().job(job).unwrap().stage;
        assert_eq!(stage, JobStage::Cut);
        rig.take();
        rig.seconds(1);
        assert_eq!(said(&mut rig)[0], words);
    }
}

// spec: HUB-5-4
#[test]
fn what_ends_meanwhile_is_not_resumed() {
    let (mut rig, job, session, stream) = resumable(|config| config);
    rig.lose(stream);
    rig.hub.cancel(rig.now, job).unwrap();
    reopen(&mut rig, &session, Resume::Reports(2));
    assert_eq!(
        said(&mut rig),
        [
            "cut",
            "ended Cancelled cancelled by the caller",
            "end FailedPrecondition the session has ended"
        ]
    );
}

// spec: HUB-5-4, HUB-5-3
#[test]
fn a_session_that_is_cut_while_the_hub_drains_is_awaited_until_the_drain_ends() {
    for comes_back in [true, false] {
        for durable in [true, false] {
            let (mut rig, id, job) = draining(durable);
            if comes_back {
                let session = job.1;
                rig.open(Rpc::Listen, Some(&id));
                let stream = reopen(&mut rig, &session, Resume::Reports(2));
                assert_eq!(said(&mut rig), ["available", "resumed", "acknowledge 0"]);
                rig.result(stream, State::Completed);
                if durable {
                    assert_eq!(said(&mut rig), ["store Completed"]);
                    rig.hub.stored(rig.now, job.0, Ok(())).unwrap();
                }
                assert_eq!(said(&mut rig), ["ended Completed r with data"]);
                continue;
            }
            rig.seconds(29);
            assert_eq!(said(&mut rig), [""; 0]);
            rig.seconds(1);
            let verdict = if durable { "Kept" } else { "Cancelled" };
            let end = format!("ended {verdict} the hub is shutting down");
            assert_eq!(said(&mut rig), [&end, "closed"]);
        }
    }
}

/// A hub that drains for 30 s and whose only agent was cut off, with the agent's id, its job and its session.
fn draining(durable: bool) -> (Rig, String, (JobId, String)) {
    let config = Config::default().with_resume_grace(GRACE);
    let mut rig = Rig::with(config.with_durable(durable));
    let (id, listen) = rig.agent();
    let job = rig.submit();
    if durable {
        rig.hub.stored(rig.now, job, Ok(())).unwrap();
    }
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    let stream = rig.open_as(Rpc::Execute, Some(&session), Some(Resume::Job(1)));
    rig.number = Some(1);
    rig.take();
    rig.hub.shutdown(rig.now, Duration::from_secs(30));
    rig.lose(stream);
    rig.lose(listen);
    assert_eq!(said(&mut rig), ["cut", "away"]);
    (rig, id, (job, session))
}

// spec: HUB-6-1, HUB-5-1, HUB-5-3
#[test]
fn a_job_that_may_begin_again_is_kept_when_its_agent_is_lost_in_the_drain() {
    for (durable, attempts, wanted) in [
        (true, 2, "ended Kept the hub is shutting down"),
        (true, 1, "store Failed"),
        (false, 2, "ended Failed Agent disconnected"),
    ] {
        let config = Config::default().with_max_attempts(attempts);
        let mut rig = Rig::with(config.with_durable(durable));
        let (_, listen) = rig.agent();
        let job = rig.submit();
        if durable {
            rig.hub.stored(rig.now, job, Ok(())).unwrap();
        }
        let (_, session) = rig.proposals().pop().unwrap();
        rig.answer(listen, &session, true);
        let stream = rig.open(Rpc::Execute, Some(&session));
        rig.hub.shutdown(rig.now, GRACE);
        rig.take();
        rig.lose(stream);
        assert_eq!(said(&mut rig)[0], wanted);
    }
}

// spec: HUB-5-4
#[test]
fn a_session_whose_reports_have_no_numbers_any_more_is_not_awaited() {
    let (mut rig, _, _, stream) = resumable(|config| config);
    rig.status(stream, 1);
    rig.number = None;
    line(&mut rig, stream, "more than the agent keeps");
    rig.take();
    rig.lose(stream);
    assert_eq!(said(&mut rig), ["ended Failed Agent disconnected"]);
}

// spec: HUB-5-4
#[test]
fn reports_of_a_translation_come_once_too() {
    let mut rig = Rig::with(Config::default().with_resume_grace(GRACE));
    let id = rig.register(vec![Skill::translation("f").into()]);
    let listen = rig.open(Rpc::Listen, Some(&id));
    let job = Job::translation("f", vec![]);
    rig.hub.submit(rig.now, job).unwrap();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    let first = rig.open_as(Rpc::Translate, Some(&session), Some(Resume::Job(1)));
    let report = |number, text: &str| {
        let event = translation_response::Event::Telemetry(Telemetry::new(Severity::Info, text));
        Inbound::Translation(TranslationResponse {
            timestamp: None,
            event: Some(event),
            number,
        })
    };
    rig.message(first, report(1, "one"));
    rig.lose(first);
    let second = rig.open_as(Rpc::Translate, Some(&session), Some(Resume::Reports(2)));
    rig.take();
    rig.message(second, report(1, "one"));
    rig.message(second, report(2, "two"));
    assert_eq!(said(&mut rig), ["telemetry two"]);
}

// spec: HUB-5-4
#[test]
fn missing_reports_are_audited_and_unnumbered_ones_are_taken() {
    let (mut rig, _, _, stream) = resumable(|config| config);
    rig.number = Some(3);
    line(&mut rig, stream, "three");
    assert_eq!(said(&mut rig), ["audit MissingReports", "telemetry three"]);
    rig.number = None;
    line(&mut rig, stream, "none");
    line(&mut rig, stream, "none");
    assert_eq!(said(&mut rig), ["telemetry none", "telemetry none"]);
}

// spec: HUB-5-4, HUB-4-4
#[test]
fn a_reader_that_is_behind_pauses_the_new_stream_too() {
    let (mut rig, job, session, first) = resumable(|config| config.with_max_unread_events(8));
    rig.hub.events_read(rig.now, job, 100, 0);
    (0..8).for_each(|_| line(&mut rig, first, "x"));
    assert!(said(&mut rig).contains(&"pause".to_owned()));
    rig.lose(first);
    reopen(&mut rig, &session, Resume::Reports(2));
    assert_eq!(
        said(&mut rig),
        ["acknowledge 8", "pause"],
        "not even of the cut"
    );
    rig.hub.events_read(rig.now, job, 100, 0);
    assert_eq!(said(&mut rig), ["resume"]);
}

// spec: HUB-5-4, HUB-3-6
#[test]
fn a_stalled_session_is_told_from_one_that_is_cut() {
    let second = Duration::from_secs(1);
    let (mut rig, _, session, first) =
        resumable(|config| config.with_stall_limit(Some(10 * second)));
    rig.status(first, 1);
    rig.lose(first);
    rig.seconds(30);
    assert_eq!(said(&mut rig), ["status Acknowledged", "cut"]);
    reopen(&mut rig, &session, Resume::Reports(2));
    rig.take();
    rig.seconds(10);
    assert_eq!(
        said(&mut rig)[0],
        "ended Failed the session stood still for too long"
    );
}

// spec: HUB-5-4
#[test]
fn a_resumed_session_has_the_time_of_its_state() {
    for (state, wanted) in [(3, None), (4, Some("ended Completed s4"))] {
        let (mut rig, _, session, first) = resumable(|config| config);
        rig.status(first, state);
        rig.lose(first);
        reopen(&mut rig, &session, Resume::Reports(2));
        rig.take();
        rig.seconds(5);
        assert_eq!(ended(&mut rig).pop().as_deref(), wanted);
    }
}
