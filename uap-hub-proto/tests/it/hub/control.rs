//! Agents coming and going, cancelling and leaving.

use super::*;

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let zero = Duration::ZERO;
    for (config, field) in [
        (
            Config::default().with_proposal_timeout(zero),
            "proposal_timeout",
        ),
        (Config::default().with_open_timeout(zero), "open_timeout"),
        (
            Config::default().with_listen_timeout(zero),
            "listen_timeout",
        ),
        (Config::default().with_wait_limit(zero), "wait_limit"),
        (Config::default().with_refusal_pause(zero), "refusal_pause"),
        (
            Config::default().with_refusal_cooldown(zero),
            "refusal_cooldown",
        ),
        (Config::default().with_stall_limit(zero), "stall_limit"),
        (Config::default().with_max_attempts(0), "max_attempts"),
        (
            Config::default().with_max_unread_events(0),
            "max_unread_events",
        ),
        (
            Config::default().with_max_unread_bytes(0),
            "max_unread_bytes",
        ),
        (Config::default().with_max_unsent(0), "max_unsent"),
        (Config::default().with_max_agents(0), "max_agents"),
        (Config::default().with_max_jobs(0), "max_jobs"),
        (
            Config::default().with_max_queued_bytes(0),
            "max_queued_bytes",
        ),
        (
            Config::default().with_max_message_bytes(0),
            "max_message_bytes",
        ),
        (
            Config::default().with_max_sessions_per_agent(0),
            "max_sessions_per_agent",
        ),
    ] {
        let refused = Hub::new(config, IdSource::seeded(1))
            .unwrap_err()
            .to_string();
        assert!(
            refused.starts_with(&format!("{field} is 0, but must be ")),
            "{refused}"
        );
    }
    // A session whose stream stays open may be forgotten at once.
    let config = Config::default().with_linger(zero).with_max_remembered(0);
    assert!(Hub::new(config, IdSource::seeded(1)).is_ok());
}

// spec: HUB-2-1
#[test]
fn every_registration_is_a_new_agent_up_to_the_bound() {
    let mut rig = Rig::with(Config::default().with_max_agents(2));
    let (one, two) = (rig.register(vec![]), rig.register(vec![]));
    assert_ne!(one, two);
    for agent in [&one, &two] {
        rig.open(Rpc::Listen, Some(agent));
    }
    let third = rig
        .hub
        .register(rig.now, AgentRegistration::default())
        .unwrap_err();
    assert_eq!(
        (third.status().code, rig.hub.view().agents().count()),
        (Code::ResourceExhausted, 2)
    );
    rig.submit();
    assert_eq!(rig.proposals(), [], "an agent without capabilities");
}

// spec: HUB-2-4
#[test]
fn an_agent_that_does_not_listen_is_dropped() {
    let mut rig = Rig::new();
    let (late, early) = (rig.register(vec![]), rig.register(vec![]));
    rig.open(Rpc::Listen, Some(&early));
    rig.pass(Duration::from_millis(59_999));
    assert_eq!(rig.hub.view().agents().count(), 2);
    rig.pass(Duration::from_millis(1));
    rig.take();
    rig.open(Rpc::Listen, Some(&late));
    assert_eq!(
        (words(rig.take()), rig.hub.view().agents().count()),
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
    rig.drain();
    assert!(rig.said.contains(&wanted));
    // The offer, or its answer, may have been lost with the first.
    assert_eq!(rig.proposals(), [(second, session.clone())]);
    rig.reset(first);
    rig.answer(first, &session, true);
    assert_eq!(rig.take(), [], "the old stream is nobody's");
    rig.answer(second, &session, true);
    assert_eq!(words(rig.take()), ["accepted", "told ready", "ready"]);
    // And so may have been that it is ready.
    let third = rig.open(Rpc::Listen, Some(&id));
    let again = words(rig.take());
    assert!(again.contains(&"ready".to_owned()), "{again:?}");
    rig.reset(third);
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

// spec: HUB-5-1
#[test]
fn sessions_fail_with_their_agent() {
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
    assert_eq!(rig.hub.view().agents().count(), 0);
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

// spec: HUB-5-3
#[test]
fn a_hub_that_leaves_closes_when_its_last_job_is_cancelled() {
    let mut rig = Rig::new();
    let (_, job, _, _) = rig.running();
    rig.hub.shutdown(rig.now, Duration::from_secs(60));
    rig.hub.cancel(rig.now, job).unwrap();
    assert_eq!(words(rig.take()).last().unwrap(), "closed");
}

// spec: HUB-5-1
#[test]
fn nothing_is_remembered_of_an_agent_that_is_gone() {
    let mut rig = Rig::new();
    let job = rig.submit();
    for _ in 0..10 {
        let (_, listen) = rig.agent();
        let (_, session) = rig.proposals().pop().unwrap();
        rig.answer(listen, &session, false);
        rig.half_close(listen);
        assert!(rig.hub.view().job(job).unwrap().refusals <= 1);
    }
}

// spec: HUB-5-1
#[test]
fn a_job_for_an_agent_that_goes_ends() {
    let mut rig = Rig::with(Config::default().with_max_sessions_per_agent(1));
    let (id, listen) = rig.agent();
    let pinned = || Job::test("t", vec![]).with_agent(id.as_str().into());
    rig.hub.submit(rig.now, pinned()).unwrap();
    rig.hub.submit(rig.now, pinned()).unwrap();
    assert_eq!(rig.proposals().len(), 1, "it has no room for two");
    rig.half_close(listen);
    assert_eq!(
        ended(&mut rig),
        ["ended Unplaced the agent that the job is for is gone"; 2]
    );
}
