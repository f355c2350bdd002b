//! Pausing, draining, limits of time, and news and messages that nobody takes.

use super::*;

#[test]
fn a_paused_hub_takes_everything_and_offers_nothing() {
    let mut rig = Rig::new();
    let (_, _, _, stream) = rig.running();
    rig.hub.set_paused(rig.now, true);
    rig.agent();
    let low = rig.submit();
    let high = Job::test("t", vec![]).with_priority(1);
    let high = rig.hub.submit(rig.now, high).unwrap();
    rig.take();
    assert_eq!(rig.hub.view().phase(), Phase::Paused);
    rig.result(stream, State::Completed);
    assert_eq!(words(rig.take()), ["ended Completed r with data"]);
    rig.hub.set_paused(rig.now, false);
    let offered: Vec<_> = rig
        .take()
        .into_iter()
        .filter_map(|output| match output {
            Output::Event(Event::Job { job, .. }) => Some(job),
            _ => None,
        })
        .collect();
    assert_eq!(offered, [high, low]);
}

#[test]
fn a_drained_agent_goes_when_it_is_done() {
    let mut rig = Rig::new();
    let (_, _, _, stream) = rig.running();
    let id = rig.hub.view().agents().next().unwrap().client_id;
    rig.hub.drain_agent(rig.now, &id).unwrap();
    rig.submit();
    assert_eq!(rig.proposals(), []);
    let info = rig.hub.view().agent(&id).unwrap();
    assert!(info.is_draining && info.is_available);
    rig.result(stream, State::Completed);
    assert_eq!(
        words(rig.take()),
        [
            "ended Completed r with data",
            "gone",
            "end Unavailable the agent was drained"
        ]
    );
    assert_eq!(
        rig.hub.drain_agent(rig.now, &id),
        Err(CommandError::UnknownAgent)
    );
}

#[test]
fn a_drained_agent_that_refuses_its_last_offer_goes() {
    let mut rig = Rig::new();
    let (id, listen) = rig.agent();
    rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.hub.drain_agent(rig.now, &id.as_str().into()).unwrap();
    assert_eq!(rig.take(), [], "it has an offer to answer");
    rig.answer(listen, &session, false);
    assert_eq!(
        words(rig.take()),
        [
            "declined no wish",
            "gone",
            "end Unavailable the agent was drained"
        ]
    );
}

// spec: HUB-5-3
#[test]
fn a_hub_that_leaves_closes_when_the_last_preparation_fails() {
    let mut rig = Rig::with(Config::default().with_prepare(true));
    let (_, listen) = rig.agent();
    rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    rig.hub.shutdown(rig.now, Duration::from_secs(60));
    rig.take();
    let failed = Err("no room".to_owned());
    rig.hub
        .prepared(rig.now, &session.as_str().into(), failed)
        .unwrap();
    let said = words(rig.take());
    assert_eq!(said[0], "ended Failed preparation failed: no room");
    assert_eq!(said.last().unwrap(), "closed");
}

// spec: HUB-5-3
#[test]
fn sessions_that_are_broken_off_end_in_the_order_of_their_jobs() {
    let mut rig = Rig::with(Config::default().with_resume_grace(Duration::from_secs(60)));
    let run = |rig: &mut Rig| {
        let job = rig.submit();
        let (listen, session) = rig.proposals().pop().unwrap();
        rig.answer(listen, &session, true);
        (job, rig.open(Rpc::Execute, Some(&session)))
    };
    rig.agent();
    let (_, first) = run(&mut rig);
    let (second, _) = run(&mut rig);
    rig.result(first, State::Completed);
    rig.half_close(first);
    // It takes the place of the first in the table.
    let (third, _) = run(&mut rig);
    rig.hub.shutdown(rig.now, Duration::from_secs(1));
    rig.take();
    rig.seconds(1);
    let ended = rig.take().into_iter().filter_map(|output| match output {
        Output::Event(Event::Job { job, .. }) => Some(job),
        _ => None,
    });
    assert_eq!(ended.collect::<Vec<_>>(), [second, third]);
}

#[test]
fn a_paused_agent_is_passed_over_until_it_is_resumed() {
    let mut rig = Rig::new();
    let (id, listen) = rig.agent();
    let id = ClientId::from(id);
    rig.hub.set_agent_paused(rig.now, &id, true).unwrap();
    assert!(!rig.hub.view().agent(&id).unwrap().is_draining);
    rig.submit();
    assert_eq!(rig.proposals(), []);
    rig.hub.set_agent_paused(rig.now, &id, false).unwrap();
    assert_eq!(rig.proposals()[0].0, listen);
    for unknown in [
        rig.hub.set_agent_paused(rig.now, &"x".into(), true),
        rig.hub.set_agent_paused(rig.now, &"x".into(), false),
    ] {
        assert_eq!(unknown, Err(CommandError::UnknownAgent));
    }
}

#[test]
fn a_job_that_takes_too_long_is_stopped_wherever_it_is() {
    let limit = Duration::from_secs(10);
    let mut rig = Rig::new();
    let job = || Job::test("t", vec![]).with_time_limit(limit);
    rig.hub.submit(rig.now, job()).unwrap();
    rig.seconds(10);
    assert_eq!(ended(&mut rig), ["ended TimedOut the job took too long"]);
    let (_, listen) = rig.agent();
    rig.hub.submit(rig.now, job()).unwrap();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.seconds(9);
    rig.answer(listen, &session, true);
    rig.open(Rpc::Execute, Some(&session));
    rig.take();
    rig.seconds(1);
    assert_eq!(
        words(rig.take()),
        [
            "ended TimedOut the job took too long",
            "end Cancelled the job took too long"
        ]
    );
}

#[test]
fn a_hub_may_refuse_what_nobody_can_do() {
    let mut rig = Rig::with(Config::default().with_fail_fast(true));
    let job = || Job::test("t", vec![]);
    let refused = rig.hub.submit(rig.now, job()).unwrap_err();
    assert!(matches!(refused, CommandError::NoCapableAgent { .. }));
    let agent = rig.register(vec![Skill::test("t").into()]);
    assert!(
        rig.hub.submit(rig.now, job()).is_err(),
        "it only registered"
    );
    let stream = rig.open(Rpc::Listen, Some(&agent));
    assert!(rig.hub.submit(rig.now, job()).is_ok());
    rig.half_close(stream);
    assert!(rig.hub.submit(rig.now, job()).is_err());
}

// spec: HUB-3-2
#[test]
fn an_agent_that_is_gone_is_not_counted_among_the_capable() {
    let mut rig = Rig::with(Config::default().with_fail_fast(true));
    let job = || Job::test("t", vec![]);
    let (_, able) = rig.agent();
    let needs = PayloadRequirement::new("p").required();
    let needs = TestCapability::from("t").with_payload(needs);
    let format = Some(Format::Test(needs));
    let left = rig.register(vec![Capability { format }]);
    rig.open(Rpc::Listen, Some(&left));
    rig.hub.submit(rig.now, job()).unwrap();
    rig.half_close(able);
    let refused = rig.hub.submit(rig.now, job());
    assert!(
        matches!(refused, Err(CommandError::NoCapableAgent { .. })),
        "the one that is left needs a payload: {refused:?}"
    );
}

// spec: HUB-4-4
#[test]
fn a_reader_that_stops_stops_its_own_stream() {
    let config = Config::default()
        .with_max_unread_events(8)
        .with_stall_limit(Duration::from_secs(60));
    let mut rig = Rig::with(config);
    let (_, job, _, stream) = rig.running();
    let unread = |rig: &Rig| rig.hub.view().job(job).unwrap().unread_events;
    let line = || test_response::Event::Telemetry(Telemetry::default());
    while unread(&rig) < 7 {
        rig.say(stream, line());
    }
    assert!(!words(rig.take()).contains(&"pause".to_owned()));
    rig.say(stream, line());
    assert_eq!(words(rig.take()), ["pause", "telemetry "]);
    rig.seconds(600);
    assert_eq!(
        rig.take(),
        [],
        "nobody listens to it, so it does not stand still"
    );
    rig.hub.events_read(rig.now, job, 3, 0);
    assert_eq!(rig.take(), [], "not before half of it is taken");
    rig.hub.events_read(rig.now, job, 1, 0);
    assert_eq!(words(rig.take()), ["resume"]);
    (0..4).for_each(|_| rig.say(stream, line()));
    assert!(words(rig.take()).contains(&"pause".to_owned()));
    rig.hub.mute(rig.now, job).unwrap();
    assert_eq!(words(rig.take()), ["resume"]);
    (0..20).for_each(|_| rig.say(stream, line()));
    assert_eq!(rig.take(), [], "nobody is there to be told");
    rig.seconds(60);
    assert!(words(rig.take())[0].starts_with("ended Failed the session stood still"));
}

// spec: HUB-4-4
#[test]
fn what_comes_on_a_paused_stream_does_not_start_its_stall_limit() {
    let stall = Duration::from_secs(60);
    let config = Config::default()
        .with_max_unread_events(8)
        .with_stall_limit(stall);
    let mut rig = Rig::with(config);
    let (_, job, _, stream) = rig.running();
    let line = || test_response::Event::Telemetry(Telemetry::default());
    let is_held_up = |rig: &Rig| rig.hub.view().job(job).unwrap().is_held_up;
    while !is_held_up(&rig) {
        rig.say(stream, line());
        assert!(rig.hub.view().job(job).unwrap().unread_events <= 8);
    }
    // It was on its way when the stream was paused.
    rig.say(stream, line());
    rig.take();
    rig.pass(10 * stall);
    assert_eq!(rig.take(), [], "the agent may be sending, and is not read");
    rig.hub.events_read(rig.now, job, 9, 0);
    assert_eq!(words(rig.take()), ["resume"]);
    assert!(!is_held_up(&rig));
    rig.pass(stall);
    assert!(words(rig.take())[0].starts_with("ended Failed the session stood still"));
}

// spec: HUB-4-4
#[test]
fn bytes_are_counted_too_and_an_end_is_read_to() {
    let mut rig = Rig::with(Config::default().with_max_unread_bytes(1000));
    let (_, _, _, stream) = rig.running();
    let line = Telemetry::new(Severity::Info, "x".repeat(1000));
    rig.say(stream, test_response::Event::Telemetry(line));
    assert_eq!(words(rig.take())[0], "pause");
    rig.result(stream, State::Completed);
    let said = words(rig.take());
    assert_eq!(
        said,
        ["resume", "ended Completed r with data"],
        "so that the agent's half-close is seen"
    );
}

// spec: HUB-4-4
#[test]
fn a_stream_is_paused_at_the_bound_of_bytes_and_goes_on_at_half_of_it() {
    let telemetry = Telemetry::new(Severity::Info, "x".repeat(990));
    let line = test_response::Event::Telemetry(telemetry.clone());
    let at = None;
    let bytes = JobEvent::Telemetry { telemetry, at }.weight();
    let mut rig = Rig::with(Config::default().with_max_unread_bytes(bytes));
    let (_, job, _, stream) = rig.running();
    rig.say(stream, line);
    assert_eq!(words(rig.take())[0], "pause");
    let half = bytes - bytes / 2;
    rig.hub.events_read(rig.now, job, 5, half - 1);
    assert_eq!(rig.take(), []);
    rig.hub.events_read(rig.now, job, 0, 1);
    assert_eq!(words(rig.take()), ["resume"]);
}

// spec: HUB-4-4
#[test]
fn an_agent_that_does_not_read_is_let_go_at_the_bound() {
    let config = Config::default()
        .with_max_unsent(2)
        .with_max_sessions_per_agent(9);
    let mut rig = Rig::with(config);
    let (_, listen) = rig.agent();
    let tell = |rig: &mut Rig, input| {
        rig.hub.handle_input(rig.now, input).unwrap();
        rig.drain();
    };
    tell(&mut rig, Input::Blocked { stream: listen });
    rig.submit();
    rig.submit();
    assert_eq!(words(rig.take()), ["available", "offered", "offered"]);
    tell(&mut rig, Input::Writable { stream: listen });
    assert_eq!(words(rig.take()), ["propose", "propose"], "in order");
    tell(&mut rig, Input::Blocked { stream: listen });
    rig.submit();
    rig.submit();
    rig.take();
    rig.submit();
    let said = words(rig.take());
    assert_eq!(said[..3], ["offered", "audit SlowReader", "gone"]);
    assert_eq!(
        said.last().unwrap(),
        "end ResourceExhausted the agent does not read"
    );
    assert_eq!(rig.hub.view().counts().waiting_jobs, 5, "none is lost");
}

// spec: HUB-4-4
#[test]
fn offers_that_are_too_many_end_their_stream_in_the_same_call() {
    for offered in ["by the hub", "to the agent", "of an earlier process"] {
        let mut rig = Rig::with(Config::default().with_max_unsent(1));
        let (id, listen) = rig.agent();
        let id = ClientId::from(id);
        rig.hub.set_paused(rig.now, offered == "by the hub");
        let paused = offered == "to the agent";
        rig.hub.set_agent_paused(rig.now, &id, paused).unwrap();
        let blocked = Input::Blocked { stream: listen };
        rig.hub.handle_input(rig.now, blocked).unwrap();
        let jobs = match offered {
            "of an earlier process" => 0,
            _ => 2,
        };
        for _ in 0..jobs {
            rig.submit();
        }
        rig.take();
        match offered {
            "by the hub" => rig.hub.set_paused(rig.now, false),
            "to the agent" => rig.hub.set_agent_paused(rig.now, &id, false).unwrap(),
            _ => {
                for job in [1, 2].map(|seed| IdSource::seeded(seed).next_id()) {
                    let restored = Job::test("t", vec![]);
                    rig.hub.restore(rig.now, job, restored).unwrap();
                }
            }
        }
        let said = words(rig.take());
        assert!(said.contains(&"audit SlowReader".to_owned()), "{offered}");
    }
}

// spec: HUB-5-3
#[test]
fn a_hub_that_leaves_may_be_told_to_leave_earlier_and_no_later() {
    let mut rig = Rig::new();
    rig.running();
    let ends_in = |rig: &mut Rig, drain: u64| {
        rig.hub.shutdown(rig.now, Duration::from_secs(drain));
        rig.take()
    };
    for drain in [10, 60, 3] {
        assert_eq!(ends_in(&mut rig, drain), []);
    }
    rig.seconds(2);
    assert_eq!(rig.take(), []);
    rig.seconds(1);
    assert_eq!(words(rig.take()).last().unwrap(), "closed");
    assert_eq!(ends_in(&mut rig, 0), []);
    assert_eq!(rig.hub.poll_timeout(), None);
}

#[test]
fn streams_end_in_the_order_in_which_they_were_opened() {
    let mut rig = Rig::new();
    let opened: Vec<_> = (0..20).map(|_| rig.agent().1).collect();
    rig.hub.shutdown(rig.now, Duration::ZERO);
    let ended = rig.take().into_iter().filter_map(|output| match output {
        Output::End { stream, .. } => Some(stream),
        _ => None,
    });
    assert_eq!(ended.collect::<Vec<_>>(), opened);
}

// spec: HUB-5-3, HUB-5-1
#[test]
fn a_hub_that_is_shut_down_has_nobody_available() {
    let mut rig = Rig::new();
    rig.running();
    rig.hub.shutdown(rig.now, Duration::from_secs(1));
    assert_eq!(
        rig.hub.view().counts().available_agents,
        1,
        "as long as Listen is open"
    );
    rig.seconds(1);
    assert!(rig.hub.is_closed());
    assert!(
        rig.hub
            .view()
            .agents()
            .all(|agent| !agent.is_available && agent.load == 0)
    );
    assert_eq!(rig.hub.view().counts().available_agents, 0);
}
