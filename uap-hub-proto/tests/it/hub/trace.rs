//! The place of a job in a trace, from its caller to the calls of its sessions.

use ubos_common::trace_context::TraceContext;

use super::*;

fn place() -> TraceContext {
    TraceContext::new([0xab; 16], [0xcd; 8]).unwrap()
}

fn submit(rig: &mut Rig) {
    let job = Job::test("t", vec![Payload::new("p")]).with_trace(place());
    rig.hub.submit(rig.now, job).unwrap();
    rig.drain();
}

/// The stream of a session that an agent has accepted.
fn open(rig: &mut Rig, resume: Option<Resume>) -> (String, StreamId) {
    let (listen, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    rig.take();
    let stream = rig.open_as(Rpc::Execute, Some(&session), resume);
    (session, stream)
}

fn trace_on(stream: StreamId) -> String {
    format!("trace {} on {}", place(), stream.0)
}

#[test]
fn a_call_is_answered_with_the_place_of_its_job_before_the_job() {
    let mut rig = Rig::new();
    rig.agent();
    submit(&mut rig);
    let (_, stream) = open(&mut rig, None);
    let said = words(rig.take());
    assert_eq!(said, ["started", &trace_on(stream), "init t"]);
    rig.status(stream, 1);
    rig.result(stream, State::Completed);
    let said = words(rig.take());
    assert!(said.iter().all(|word| !word.contains("trace")), "{said:?}");
}

#[test]
fn a_job_without_a_place_has_none() {
    let mut rig = Rig::new();
    rig.agent();
    rig.submit();
    open(&mut rig, None);
    assert_eq!(words(rig.take()), ["started", "init t"]);
}

#[test]
fn a_job_that_begins_again_has_its_place_again() {
    let mut rig = Rig::with(Config::default().with_max_attempts(2));
    rig.agent();
    submit(&mut rig);
    let (_, first) = open(&mut rig, None);
    rig.take();
    rig.reset(first);
    rig.seconds(1);
    let (_, second) = open(&mut rig, None);
    assert_eq!(words(rig.take()), ["started", &trace_on(second), "init t"]);
}

// spec: HUB-5-4
#[test]
fn an_agent_that_has_its_job_is_not_told_twice() {
    let grace = Duration::from_secs(60);
    let mut rig = Rig::with(Config::default().with_resume_grace(grace));
    rig.agent();
    submit(&mut rig);
    let (session, first) = open(&mut rig, Some(Resume::Job(1)));
    let init = |stream| ["started", &trace_on(stream), "init t"].map(str::to_owned);
    assert_eq!(words(rig.take()), init(first));
    rig.lose(first);
    let second = rig.open_as(Rpc::Execute, Some(&session), Some(Resume::Job(2)));
    let said = words(rig.take());
    assert_eq!(said, ["cut", "resumed", &trace_on(second), "init t"]);
    rig.number = Some(1);
    rig.status(second, 1);
    rig.status(second, 3);
    rig.lose(second);
    rig.take();
    rig.open_as(Rpc::Execute, Some(&session), Some(Resume::Reports(3)));
    assert_eq!(words(rig.take()), ["resumed", "acknowledge 2"]);
}
