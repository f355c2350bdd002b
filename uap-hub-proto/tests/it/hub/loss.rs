//! Lost agents and streams: who gets the job, and who may come back.

use super::*;

fn requeueing() -> Rig {
    Rig::with(Config::default().with_max_attempts(2))
}

// spec: HUB-5-1
#[test]
fn a_lost_agents_job_is_started_again_max_attempts_times() {
    let mut rig = requeueing();
    let (listen, _, _, stream) = rig.running();
    rig.status(stream, 3);
    let (_, other) = rig.agent();
    rig.take();
    rig.reset(listen);
    assert_eq!(
        words(rig.said.clone()),
        ["gone", "requeued Agent disconnected", "offered", "propose"]
    );
    let (asked, session) = rig.proposals().pop().unwrap();
    assert_eq!(asked, other);
    rig.result(stream, State::Completed);
    assert_eq!(
        words(rig.take()),
        ["audit SecondResult"],
        "what still comes is ignored"
    );
    rig.answer(other, &session, true);
    let second = rig.open(Rpc::Execute, Some(&session));
    let said = rig.take();
    assert!(
        said.iter().any(
            |output| matches!(output, Output::Send { message: Outbound::Test(init), .. }
            if init.payloads == [Payload::new("p")])
        ),
        "it is sent whole again: {said:?}"
    );
    rig.reset(second);
    assert_eq!(ended(&mut rig), ["ended Failed Stream error: gone"]);
    assert_eq!(rig.hub.view().counts().payload_bytes, 0);
}

// spec: HUB-5-1
#[test]
fn a_job_asks_for_its_own_number_of_attempts() {
    let mut rig = Rig::new();
    let (id, listen) = rig.agent();
    let job = Job::test("t", vec![])
        .with_max_attempts(3)
        .with_agent(id.as_str().into());
    rig.hub.submit(rig.now, job).unwrap();
    for _ in 0..2 {
        let (_, session) = rig.proposals().pop().unwrap();
        rig.answer(listen, &session, true);
        let stream = rig.open(Rpc::Execute, Some(&session));
        rig.reset(stream);
        rig.seconds(1);
    }
    rig.drain();
    assert_eq!(
        rig.said
            .iter()
            .filter(|output| word((*output).clone()).starts_with("requeued"))
            .count(),
        1,
        "the agent that it is for gets it again, after a pause"
    );
    rig.half_close(listen);
    assert_eq!(
        ended(&mut rig),
        ["ended Unplaced the agent that the job is for is gone"]
    );
}

// spec: HUB-5-1, HUB-4-3
#[test]
fn a_terminal_state_outlives_its_agent() {
    let mut rig = requeueing();
    let (listen, _, _, stream) = rig.running();
    rig.status(stream, 4);
    rig.reset(listen);
    assert_eq!(ended(&mut rig), ["ended Completed s4"]);
}

#[test]
fn others_are_asked_before_the_agent_that_broke_the_stream() {
    let mut rig = requeueing();
    let (listen, _, _, stream) = rig.running();
    let (_, other) = rig.agent();
    rig.take();
    rig.reset(stream);
    assert_eq!(rig.proposals()[0].0, other);
    let mut rig = requeueing();
    let (_, _, _, stream) = rig.running();
    rig.reset(stream);
    assert_eq!(rig.proposals(), []);
    rig.seconds(1);
    assert_eq!(rig.proposals()[0].0, listen, "where there is no other");
}

#[test]
fn a_session_that_stands_still_is_stopped() {
    let mut rig = Rig::with(Config::default().with_stall_limit(Duration::from_secs(60)));
    let (_, _, _, stream) = rig.running();
    rig.seconds(59);
    rig.say(
        stream,
        test_response::Event::Telemetry(Telemetry::default()),
    );
    rig.take();
    rig.seconds(59);
    assert_eq!(rig.take(), [], "it said something");
    rig.seconds(1);
    assert_eq!(
        words(rig.take()),
        [
            "ended Failed the session stood still for too long",
            "end Cancelled the session stood still for too long"
        ]
    );
    let (_, _, _, stream) = rig.running();
    rig.status(stream, 4);
    rig.take();
    rig.seconds(5);
    assert_eq!(
        words(rig.take())[0],
        "ended Completed s4",
        "that is no stall"
    );
}

// spec: HUB-5-4
#[test]
fn a_lost_agent_may_come_back_to_its_sessions() {
    let grace = Duration::from_secs(60);
    let mut rig = Rig::with(Config::default().with_resume_grace(grace));
    let (id, listen) = rig.agent();
    let jobs: Vec<_> = (0..3).map(|_| rig.submit()).collect();
    let offers: Vec<_> = rig.proposals().into_iter().map(|(_, id)| id).collect();
    rig.answer(listen, &offers[0], true);
    let stream = rig.open(Rpc::Execute, Some(&offers[0]));
    rig.answer(listen, &offers[1], true);
    rig.take();
    rig.reset(listen);
    assert_eq!(
        words(rig.take()),
        ["away", "declined the agent disconnected"],
        "what it had not accepted is offered to others"
    );
    rig.submit();
    assert_eq!(rig.proposals(), [], "it is not available");
    rig.status(stream, 3);
    assert_eq!(words(rig.take()), ["status Running"], "its session lives");
    rig.seconds(59);
    let back = rig.open(Rpc::Listen, Some(&id));
    let said = rig.take();
    let words_said = words(said.clone());
    assert_eq!(
        words_said[..2],
        ["available", "ready"],
        "it may not have heard"
    );
    assert_eq!(
        words_said.iter().filter(|word| *word == "propose").count(),
        2
    );
    assert!(said.iter().all(|output| match output {
        Output::Send { stream, .. } => *stream == back,
        _ => true,
    }));
    rig.seconds(60);
    assert_eq!(
        rig.hub.view().agents().count(),
        1,
        "the grace is over and forgotten"
    );
    rig.result(stream, State::Completed);
    assert!(ended(&mut rig).contains(&"ended Completed r with data".to_owned()));
    assert_eq!(jobs.len(), 3);
}

// spec: HUB-5-4
#[test]
fn an_agent_that_stays_away_is_gone() {
    let grace = Duration::from_secs(60);
    let mut rig = Rig::with(Config::default().with_resume_grace(grace));
    let (listen, _, _, stream) = rig.running();
    rig.reset(listen);
    rig.seconds(60);
    assert_eq!(
        words(rig.take()),
        ["away", "gone", "ended Failed Agent disconnected"]
    );
    rig.half_close(stream);
    assert_eq!(words(rig.take()), ["end Ok"]);
    let mut rig = Rig::with(Config::default().with_resume_grace(grace));
    let (_, listen) = rig.agent();
    rig.half_close(listen);
    assert_eq!(
        rig.hub.view().agents().count(),
        0,
        "it left of its own will"
    );
}

// spec: HUB-5-1
#[test]
fn a_session_says_its_first_word_in_time() {
    let second = Duration::from_secs(1);
    for (stall, most) in [(None, 5), (Some(3), 3), (Some(60), 5)] {
        let config = Config::default()
            .with_first_message_timeout(5 * second)
            .with_stall_limit(stall.map(|stall| stall * second));
        let mut rig = Rig::with(config.clone());
        rig.running();
        rig.seconds(most - 1);
        assert_eq!(words(rig.take()), [""; 0], "{stall:?}");
        rig.seconds(1);
        assert_eq!(
            words(rig.take()),
            [
                "ended Failed the session stood still for too long",
                "end Cancelled the session stood still for too long"
            ]
        );
        let mut rig = Rig::with(config);
        let (.., stream) = rig.running();
        rig.status(stream, 1);
        rig.take();
        rig.seconds(stall.map_or(100, u64::from) - 1);
        assert_eq!(words(rig.take()), [""; 0], "it has spoken: {stall:?}");
    }
}

// spec: HUB-5-4
#[test]
fn an_offer_to_an_agent_whose_connection_was_lost_goes_to_another() {
    let mut rig = Rig::with(Config::default().with_resume_grace(Duration::from_secs(60)));
    let (_, first) = rig.agent();
    rig.submit();
    assert_eq!(rig.proposals().pop().unwrap().0, first);
    let (_, second) = rig.agent();
    rig.lose(first);
    assert_eq!(rig.proposals().pop().unwrap().0, second);
}

// spec: HUB-5-1
#[test]
fn an_agent_that_lost_a_stream_is_offered_another_job() {
    let mut rig = Rig::with(
        Config::default()
            .with_max_attempts(2)
            .with_max_sessions_per_agent(1),
    );
    let (_, _, _, stream) = rig.running();
    let other = rig.submit();
    rig.reset(stream);
    let offered = rig.hub.view().jobs().find(|job| job.agent.is_some());
    assert_eq!(offered.map(|job| job.id), Some(other));
}
