//! What a durable hub stores, and when it reports.

use super::*;

fn durable() -> Rig {
    Rig::with(Config::default().with_durable(true))
}

fn stored(rig: &mut Rig, job: JobId) {
    rig.hub.stored(rig.now, job, Ok(())).unwrap();
    rig.drain();
}

// spec: HUB-6-1
#[test]
fn jobs_and_ends_are_stored_first() {
    let mut rig = durable();
    let (_, listen) = rig.agent();
    rig.take();
    let job = rig.submit();
    assert_eq!(words(rig.take()), ["store job"]);
    stored(&mut rig, job);
    assert_eq!(
        rig.hub.stored(rig.now, job, Ok(())),
        Err(CommandError::NotStoring)
    );
    assert_eq!(words(rig.said.clone()), ["stored", "offered", "propose"]);
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    let stream = rig.open(Rpc::Execute, Some(&session));
    rig.take();
    rig.result(stream, State::Completed);
    assert_eq!(words(rig.take()), ["store Completed"]);
    assert_eq!(
        rig.hub.cancel(rig.now, job),
        Err(CommandError::UnknownJob),
        "it has ended"
    );
    stored(&mut rig, job);
    assert_eq!(words(rig.take()), ["ended Completed r with data"]);
    assert_eq!(
        rig.hub.stored(rig.now, job, Ok(())),
        Err(CommandError::NotStoring)
    );
}

// spec: HUB-6-1
#[test]
fn failures_of_the_store_are_reported() {
    let mut rig = durable();
    let job = rig.submit();
    rig.take();
    let full = || Err("disk full".to_owned());
    rig.hub.stored(rig.now, job, full()).unwrap();
    let said = rig.take();
    assert!(
        matches!(&said[..], [Output::Event(Event::Job { event: JobEvent::Ended(outcome), .. })]
        if outcome.verdict == Verdict::Failed && outcome.store_error.is_some())
    );
    let job = rig.submit();
    stored(&mut rig, job);
    rig.hub.cancel(rig.now, job).unwrap();
    rig.take();
    rig.hub.stored(rig.now, job, full()).unwrap();
    let said = rig.take();
    assert!(
        matches!(&said[..], [Output::Event(Event::Job { event: JobEvent::Ended(outcome), .. })]
        if outcome.verdict == Verdict::Cancelled && outcome.store_error.is_some())
    );
}

// spec: HUB-6-1
#[test]
fn a_job_cancelled_while_it_is_stored_has_two_records() {
    let mut rig = durable();
    let job = rig.submit();
    rig.hub.cancel(rig.now, job).unwrap();
    assert_eq!(words(rig.take()), ["store job", "store Cancelled"]);
    stored(&mut rig, job);
    assert_eq!(rig.take(), []);
    stored(&mut rig, job);
    assert_eq!(ended(&mut rig), ["ended Cancelled cancelled by the caller"]);
    assert_eq!(rig.hub.view().counts().jobs, 0);
}

// spec: HUB-6-1, HUB-5-3
#[test]
fn a_durable_hub_keeps_what_it_does_not_end() {
    let mut rig = durable();
    let (_, listen) = rig.agent();
    let runs = rig.submit();
    stored(&mut rig, runs);
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    rig.open(Rpc::Execute, Some(&session));
    let waits = Job::test("other", vec![]);
    let waits = rig.hub.submit(rig.now, waits).unwrap();
    stored(&mut rig, waits);
    let new = rig.submit();
    rig.take();
    rig.hub.shutdown(rig.now, Duration::from_secs(1));
    assert_eq!(words(rig.take()), ["ended Kept the hub is shutting down"]);
    rig.seconds(1);
    let kept = "ended Kept the hub is shutting down";
    assert_eq!(
        words(rig.take()),
        [kept, "end Unavailable the hub is shutting down"],
        "it waits for the store"
    );
    stored(&mut rig, new);
    assert_eq!(
        words(rig.take()),
        [
            "stored",
            kept,
            "end Unavailable the hub is shutting down",
            "closed"
        ]
    );
}

#[test]
fn a_hub_that_leaves_gives_its_store_so_much_time_and_no_more() {
    let mut rig = durable();
    let ended = rig.submit();
    stored(&mut rig, ended);
    rig.hub.cancel(rig.now, ended).unwrap();
    let new = rig.submit();
    rig.take();
    rig.hub.shutdown(rig.now, Duration::from_secs(1));
    rig.seconds(1);
    rig.seconds(9);
    assert_eq!(words(rig.take()), [""; 0], "it waits for the store");
    // Told to leave once more, it waits for no longer.
    rig.hub.shutdown(rig.now, Duration::ZERO);
    rig.seconds(1);
    let said = rig.take();
    let unstored = |output: &Output| match output {
        Output::Event(Event::Job {
            job,
            event: JobEvent::Ended(outcome),
        }) => Some((*job, outcome.verdict, outcome.store_error.is_some())),
        _ => None,
    };
    let mut ends: Vec<_> = said.iter().filter_map(unstored).collect();
    ends.sort_unstable_by_key(|(job, ..)| *job != ended);
    assert_eq!(
        ends,
        [
            (ended, Verdict::Cancelled, true),
            (new, Verdict::Failed, true)
        ]
    );
    assert_eq!(words(said).last().unwrap(), "closed");
    let late = rig.hub.stored(rig.now, new, Ok(()));
    assert_eq!(late, Err(CommandError::NotStoring));
}

// spec: HUB-6-1
#[test]
fn a_restored_job_keeps_its_id() {
    let mut rig = durable();
    let id = rig.submit();
    let mut next = durable();
    let job = Job::test("t", vec![]).with_agent("gone".into());
    next.hub.restore(next.now, id, job.clone()).unwrap();
    assert_eq!(
        next.hub.restore(next.now, id, job),
        Err(CommandError::DuplicateJob)
    );
    next.agent();
    assert_eq!(
        next.proposals().len(),
        1,
        "the agent that it was for is no more"
    );
    next.hub.cancel(next.now, id).unwrap();
    assert_eq!(words(next.take()), ["store Cancelled"]);
}

// spec: HUB-6-1
#[test]
fn a_job_that_has_ended_keeps_no_payloads_while_its_end_is_stored() {
    let mut rig = durable();
    let job = rig.submit();
    stored(&mut rig, job);
    assert!(rig.hub.view().counts().payload_bytes > 0);
    rig.hub.cancel(rig.now, job).unwrap();
    assert_eq!(rig.hub.view().counts().payload_bytes, 0);
}

// spec: HUB-6-1, HUB-5-3
#[test]
fn nothing_waits_for_a_job_that_is_kept() {
    let mut rig = durable();
    let (_, listen) = rig.agent();
    let runs = rig.submit();
    stored(&mut rig, runs);
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    rig.open(Rpc::Execute, Some(&session));
    let waits = Job::test("other", vec![]).with_wait_limit(Duration::from_secs(1));
    let waits = rig.hub.submit(rig.now, waits).unwrap();
    stored(&mut rig, waits);
    let drain = Duration::from_secs(60);
    rig.hub.shutdown(rig.now, drain);
    let end = rig.now.mono.saturating_add(drain);
    assert_eq!(rig.hub.poll_timeout(), Some(end));
}
