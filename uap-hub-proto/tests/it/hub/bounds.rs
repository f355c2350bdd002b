//! The bounds of registrations and of the queue, and what is left of a job that has ended.

use super::*;

/// Registers an agent with a name of so many bytes.
fn named(rig: &mut Rig, bytes: usize) -> Result<String, RegisterError> {
    let registration = AgentRegistration {
        display_name: "n".repeat(bytes),
        capabilities: vec![],
    };
    let answer = rig.hub.register(rig.now, registration)?;
    Ok(answer.client_id)
}

// spec: HUB-2-4
#[test]
fn registrations_have_bounded_bytes() {
    let config = Config::default().with_max_registered_bytes(4_000);
    let mut rig = Rig::with(config);
    let first = named(&mut rig, 397).unwrap();
    named(&mut rig, 397).unwrap();
    assert_eq!(rig.hub.view().counts().agents, 2);
    named(&mut rig, 397).unwrap();
    assert_eq!(
        rig.hub.view().counts().agents,
        2,
        "those that do not listen have 1,000 bytes"
    );
    rig.open(Rpc::Listen, Some(&first));
    assert_eq!(
        rig.hub.view().counts().available_agents,
        0,
        "the first was the oldest"
    );
    for _ in 0..4 {
        let large = named(&mut rig, 997).unwrap();
        rig.open(Rpc::Listen, Some(&large));
    }
    let refused = named(&mut rig, 1).unwrap_err();
    assert_eq!(refused, RegisterError::FullOfBytes { most: 4_000 });
    assert_eq!(refused.status().code, Code::ResourceExhausted);
}

// spec: HUB-2-4
#[test]
fn registrations_that_just_fit_displace_nobody() {
    let mut rig = Rig::with(Config::default().with_max_registered_bytes(4_000));
    for bytes in [597, 397] {
        named(&mut rig, bytes).unwrap();
    }
    assert_eq!(rig.hub.view().counts().agents, 2);
}

// spec: HUB-2-4
#[test]
fn agents_that_listen_take_no_bytes_of_those_that_do_not() {
    let mut rig = Rig::with(Config::default().with_max_registered_bytes(4_000));
    for _ in 0..2 {
        let listens = named(&mut rig, 997).unwrap();
        rig.open(Rpc::Listen, Some(&listens));
    }
    for _ in 0..2 {
        named(&mut rig, 97).unwrap();
    }
    assert_eq!(rig.hub.view().counts().agents, 4);
}

// spec: HUB-2-4
#[test]
fn agents_that_do_not_listen_have_what_those_that_do_leave() {
    for (bytes, left) in [(397, 2), (398, 1)] {
        let mut rig = Rig::with(Config::default().with_max_registered_bytes(4_000));
        for _ in 0..4 {
            let listens = named(&mut rig, 797).unwrap();
            rig.open(Rpc::Listen, Some(&listens));
        }
        for _ in 0..2 {
            named(&mut rig, bytes).unwrap();
        }
        assert_eq!(rig.hub.view().counts().agents, 4 + left, "{bytes}");
    }
}

#[test]
fn bounds_of_the_queue_hold_and_refusals_change_nothing() {
    let mut rig = Rig::with(
        Config::default()
            .with_max_jobs(2)
            .with_max_message_bytes(100)
            .with_max_queued_bytes(150),
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
    assert_eq!(
        (rig.hub.view().counts().jobs, ended(&mut rig).len()),
        (1, 1)
    );
}

// spec: HUB-3-6
#[test]
fn a_job_that_just_fits_is_taken() {
    let job = || Job::test("t", vec![Payload::file("p", "", "", vec![0; 80])]);
    let mut rig = Rig::new();
    rig.hub.submit(rig.now, job()).unwrap();
    let bytes = rig.hub.view().counts().payload_bytes;
    let config = Config::default()
        .with_max_message_bytes(bytes)
        .with_max_queued_bytes(2 * bytes);
    let mut rig = Rig::with(config);
    let mut submit = |job| rig.hub.submit(rig.now, job).map(drop);
    assert_eq!(submit(job().with_group(&"g".repeat(1024))), Ok(()));
    let (seen, most) = (1025, 1024);
    assert_eq!(
        submit(job().with_group(&"g".repeat(seen))),
        Err(CommandError::LongGroup { seen, most })
    );
    assert_eq!(submit(job()), Ok(()));
    let (seen, most) = (3 * bytes, 2 * bytes);
    assert_eq!(submit(job()), Err(CommandError::QueueFull { seen, most }));
}

// spec: HUB-3-6
#[test]
fn a_job_that_ends_makes_room() {
    let mut rig = Rig::with(Config::default().with_max_queued_bytes(100));
    let job = || Job::test("t", vec![Payload::file("p", "", "", vec![0; 80])]);
    let first = rig.hub.submit(rig.now, job()).unwrap();
    rig.hub.cancel(rig.now, first).unwrap();
    rig.hub.submit(rig.now, job()).unwrap();
    let (_, listen) = rig.agent();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    assert!(
        rig.hub.submit(rig.now, job()).is_err(),
        "its payloads still wait"
    );
    let stream = rig.open(Rpc::Execute, Some(&session));
    rig.status(
        stream,
        State::Running.to_wire(uap_hub_proto::capability::Kind::Test),
    );
    assert!(
        rig.hub.submit(rig.now, job()).is_err(),
        "nobody knows whether they were read"
    );
    rig.result(stream, State::Completed);
    assert!(rig.hub.submit(rig.now, job()).is_ok());
}

// spec: HUB-4-5
#[test]
fn nothing_waits_for_a_job_that_has_ended() {
    let minute = Duration::from_secs(60);
    let mut rig = Rig::new();
    rig.agent();
    let job = Job::test("t", vec![])
        .with_time_limit(minute)
        .with_wait_limit(minute);
    rig.hub.submit(rig.now, job).unwrap();
    let (listen, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    let stream = rig.open(Rpc::Execute, Some(&session));
    rig.result(stream, State::Completed);
    rig.half_close(stream);
    assert_eq!(rig.hub.poll_timeout(), None);
    let waits_for_another = Job::test("u", vec![]).with_wait_limit(minute);
    let waits = rig.hub.submit(rig.now, waits_for_another).unwrap();
    assert!(rig.hub.poll_timeout().is_some());
    rig.hub.cancel(rig.now, waits).unwrap();
    assert_eq!(rig.hub.poll_timeout(), None);
}

// spec: HUB-4-5
#[test]
fn a_refused_job_that_ends_is_not_offered_again() {
    let config = Config::default()
        .with_max_sessions_per_agent(1)
        .with_refusal_pause(Duration::from_secs(60));
    let mut rig = Rig::with(config);
    let (_, listen) = rig.agent();
    let job = rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, false);
    // The agent's own timer is over; those of the job are left.
    rig.seconds(1);
    assert!(rig.hub.poll_timeout().is_some());
    rig.hub.cancel(rig.now, job).unwrap();
    assert_eq!(rig.hub.poll_timeout(), None);
}

// spec: HUB-4-5
#[test]
fn the_stream_of_a_cancelled_job_ends_once() {
    let mut rig = Rig::new();
    let (_, job, _, _) = rig.running();
    rig.hub.cancel(rig.now, job).unwrap();
    assert_eq!(
        words(rig.take()),
        [
            "ended Cancelled cancelled by the caller",
            "end Cancelled cancelled"
        ]
    );
    assert_eq!(rig.hub.poll_timeout(), None);
    rig.seconds(60);
    assert_eq!(rig.take(), []);
}
