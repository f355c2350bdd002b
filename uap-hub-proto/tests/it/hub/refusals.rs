//! What refusals do: pauses, other agents, and fewer offers.

use super::*;

// spec: HUB-3-1, HUB-3-6
#[test]
fn a_refused_job_goes_to_all_other_agents_first() {
    let mut rig = Rig::new();
    let (_, one) = rig.agent();
    let (_, two) = rig.agent();
    rig.submit();
    let (first, session) = rig.proposals().pop().unwrap();
    rig.answer(first, &session, false);
    assert!(words(rig.said.clone()).contains(&"declined no wish".to_owned()));
    let (second, session) = rig.proposals().pop().unwrap();
    assert!(first == one && second == two);
    rig.answer(second, &session, false);
    assert_eq!(rig.proposals(), [], "no hot loop");
    rig.seconds(1);
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(one, &session, false);
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(two, &session, false);
    rig.seconds(1);
    assert_eq!(rig.proposals(), [], "the pause doubles");
    rig.seconds(1);
    assert_eq!(rig.proposals().len(), 1);
}

// spec: HUB-3-1, HUB-3-6
#[test]
fn an_acceptance_ends_the_growth_of_the_pause() {
    let mut rig = Rig::with(Config::default().with_max_attempts(2));
    let (_, listen) = rig.agent();
    rig.submit();
    for seconds in [1, 2] {
        let (_, session) = rig.proposals().pop().unwrap();
        rig.answer(listen, &session, false);
        rig.seconds(seconds);
    }
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    rig.seconds(30);
    assert!(
        words(rig.said.clone())
            .iter()
            .any(|word| word.starts_with("requeued"))
    );
    rig.take();
    rig.seconds(1);
    assert_eq!(rig.proposals().len(), 1, "the first pause again");
}

/// An agent that takes one session at a time, whatever the hub would give it; how often it refused and the
/// streams of what it accepted.
fn refuse_all_but_one(rig: &mut Rig, running: &mut Option<StreamId>) -> usize {
    let mut refusals = 0;
    loop {
        let proposals = rig.proposals();
        if proposals.is_empty() {
            return refusals;
        }
        for (listen, session) in proposals {
            let accepts = running.is_none();
            rig.answer(listen, &session, accepts);
            refusals += usize::from(!accepts);
            if accepts {
                *running = Some(rig.open(Rpc::Execute, Some(&session)));
            }
        }
    }
}

// spec: HUB-3-6
#[test]
fn a_refusing_agent_gets_few_offers() {
    const JOBS: usize = 200;
    let mut rig = Rig::new();
    rig.agent();
    for _ in 0..JOBS {
        rig.submit();
    }
    let mut running = None;
    let first = refuse_all_but_one(&mut rig, &mut running);
    assert!(first <= 15, "{first} of what was on its way");
    let mut refusals = 0;
    for _ in 0..10 {
        rig.seconds(1);
        refusals += refuse_all_but_one(&mut rig, &mut running);
    }
    assert!(refusals <= 10, "{refusals} in ten pauses");
    for n in 0..JOBS {
        let stream = running.take().unwrap_or_else(|| panic!("after job {n}"));
        rig.result(stream, State::Completed);
        assert_eq!(refuse_all_but_one(&mut rig, &mut running), 0);
    }
    assert_eq!(
        (running, rig.hub.view().counts().jobs),
        (None, 0),
        "none is lost"
    );
}

// spec: HUB-3-6
#[test]
fn an_agent_that_refused_gets_back_to_its_bound() {
    let mut rig = Rig::with(Config::default().with_max_sessions_per_agent(4));
    let (_, listen) = rig.agent();
    let submit = |rig: &mut Rig| (0..4).map(|_| rig.submit()).count();
    submit(&mut rig);
    let offers = rig.proposals();
    rig.answer(listen, &offers[0].1, false);
    offers[1..]
        .iter()
        .for_each(|(_, id)| rig.answer(listen, id, true));
    assert_eq!(rig.proposals(), []);
    let taken = rig.hub.view().jobs().find(|job| job.agent.is_some());
    let taken = taken.unwrap().id;
    rig.hub.cancel(rig.now, taken).unwrap();
    rig.drain();
    assert_eq!(
        rig.proposals().len(),
        1,
        "it has room for the three that it took"
    );
    submit(&mut rig);
    assert_eq!(rig.proposals(), [], "and not for more");
    rig.seconds(1);
    assert_eq!(
        rig.proposals().len(),
        1,
        "until it was left alone for a while"
    );
    assert_eq!(rig.hub.view().agents().next().unwrap().load, 4);
}

// spec: HUB-3-6
#[test]
fn only_a_refusal_makes_a_pause() {
    let mut rig = Rig::new();
    let wait_limit = rig.now.mono.saturating_add(Duration::from_secs(600));
    // More than are searched at once.
    for _ in 0..40 {
        rig.submit();
    }
    assert_eq!(rig.hub.poll_timeout(), Some(wait_limit));
    other_leaves(&mut rig);
    rig.seconds(1);
    assert_eq!(rig.hub.poll_timeout(), Some(wait_limit));
}

/// An agent of another skill comes and goes.
fn other_leaves(rig: &mut Rig) {
    let other = rig.register(vec![Skill::test("other").into()]);
    let listen = rig.open(Rpc::Listen, Some(&other));
    rig.half_close(listen);
}

// spec: HUB-3-1
#[test]
fn a_job_does_not_wait_for_an_agent_that_left_while_others_were_searched() {
    let cooldown = Duration::from_millis(1);
    let config = Config::default().with_max_sessions_per_agent(1);
    let mut rig = Rig::with(config.with_refusal_cooldown(cooldown));
    let (_, busy) = rig.agent();
    rig.submit();
    rig.take();
    rig.agent();
    let refused = |rig: &Rig| rig.hub.view().jobs().filter(|job| job.refusals > 0).count();
    // More than are searched at once.
    for _ in 0..40 {
        rig.submit();
        let (listen, session) = rig.proposals().pop().unwrap();
        rig.answer(listen, &session, false);
        rig.pass(cooldown);
    }
    assert_eq!(refused(&rig), 40, "they wait for the one that has no room");
    other_leaves(&mut rig);
    rig.seconds(1);
    rig.half_close(busy);
    (0..3).for_each(|_| rig.seconds(1));
    assert_eq!(refused(&rig), 0, "the other may be asked again");
}

// spec: HUB-3-1
#[test]
fn an_offer_ends_the_pause() {
    let pause = Duration::from_secs(10);
    let mut rig = Rig::with(Config::default().with_refusal_pause(pause));
    let (_, first) = rig.agent();
    let job = rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(first, &session, false);
    let (_, second) = rig.agent();
    assert_eq!(rig.proposals().pop().unwrap().0, second);
    rig.pass(pause);
    let refusals = rig.hub.view().job(job).unwrap().refusals;
    assert_eq!(refusals, 1, "the first is not asked again yet");
}

// spec: HUB-3-6
#[test]
fn an_agent_that_gets_free_of_a_paused_hub_is_not_asked_again() {
    let pause = Duration::from_secs(60);
    let mut rig = Rig::with(Config::default().with_refusal_pause(pause));
    let (listen, _, _, stream) = rig.running();
    let job = rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, false);
    rig.hub.set_paused(rig.now, true);
    rig.result(stream, State::Completed);
    assert_eq!(rig.hub.view().job(job).unwrap().refusals, 1);
}

// spec: HUB-3-6
#[test]
fn a_refusal_of_an_agent_that_is_away_is_not_one_of_those_present() {
    let mut rig = Rig::with(Config::default().with_max_sessions_per_agent(1));
    rig.running();
    let (away, listen) = rig.agent();
    let job = rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, false);
    let away = ClientId::from(away);
    rig.hub.set_agent_paused(rig.now, &away, true).unwrap();
    // The other has no room and was not asked: the job waits for it without a pause of its own.
    rig.seconds(1);
    rig.seconds(1);
    assert_eq!(rig.hub.view().job(job).unwrap().refusals, 1);
}

// spec: HUB-5-1
#[test]
fn nothing_waits_for_an_agent_that_is_gone() {
    let cooldown = Duration::from_secs(60);
    let mut rig = Rig::with(Config::default().with_refusal_cooldown(cooldown));
    let (id, listen) = rig.agent();
    let pinned = Job::test("t", vec![]).with_agent(id.as_str().into());
    rig.hub.submit(rig.now, pinned).unwrap();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, false);
    rig.half_close(listen);
    let silent = ClientId::from(rig.register(vec![]));
    rig.hub.drain_agent(rig.now, &silent).unwrap();
    rig.drain();
    assert_eq!(rig.hub.view().counts().agents, 0);
    // Jobs that others refused are looked at once more.
    rig.seconds(1);
    assert_eq!(rig.hub.poll_timeout(), None);
}

// spec: HUB-3-6
#[test]
fn an_agent_that_gets_free_is_asked_again_for_one_job_alone() {
    let pause = Duration::from_secs(60);
    let config = Config::default()
        .with_refusal_pause(pause)
        .with_max_sessions_per_agent(4);
    let mut rig = Rig::with(config);
    let (listen, _, _, stream) = rig.running();
    for _ in 0..2 {
        rig.submit();
    }
    for (_, session) in rig.proposals() {
        rig.answer(listen, &session, false);
    }
    // It has room for both again.
    (0..3).for_each(|_| rig.seconds(1));
    assert_eq!(rig.proposals(), []);
    rig.result(stream, State::Completed);
    assert_eq!(rig.proposals().len(), 1);
}

// spec: HUB-3-6
#[test]
fn the_room_of_an_agent_that_refused_grows_again_and_again() {
    let mut rig = Rig::with(Config::default().with_max_sessions_per_agent(3));
    let (_, listen) = rig.agent();
    let one = rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, false);
    rig.hub.cancel(rig.now, one).unwrap();
    for _ in 0..3 {
        rig.submit();
    }
    for load in 0..=3 {
        assert_eq!(rig.hub.view().agents().next().unwrap().load, load);
        rig.seconds(1);
    }
}
