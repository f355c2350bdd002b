//! Who is offered what, and what answers do.

use super::*;

// spec: HUB-3-1, HUB-4-9, HUB-4-1
#[test]
fn a_job_is_proposed_made_ready_and_sent() {
    for prepare in [false, true] {
        let mut rig = Rig::with(Config::default().with_prepare(prepare));
        let (_, listen) = rig.agent();
        rig.take();
        let payloads: Vec<_> = (0..9)
            .map(|n| Payload::file("p", format!("{n}"), "x/y", vec![n; 3]))
            .collect();
        rig.hub
            .submit(rig.now, Job::test("t", payloads.clone()))
            .unwrap();
        let said = rig.take();
        let Some(Output::Send {
            message: Outbound::Listen(message),
            ..
        }) = said.last()
        else {
            panic!("{said:?}")
        };
        let Some(listen_response::Event::SessionProposal(proposal)) = &message.event else {
            panic!("{said:?}")
        };
        let Some(session_proposal::Details::Test(details)) = &proposal.details else {
            panic!("{said:?}")
        };
        assert_eq!(details.r#type, "t");
        let session = SessionId::from(proposal.session_id.as_str());
        let uuid = session.as_str().strip_prefix("JOB-").unwrap();
        assert!(ubos_common::id::parse_hyphenated(uuid).is_ok());
        rig.answer(listen, session.as_str(), true);
        if prepare {
            assert_eq!(words(rig.take()), ["accepted", "prepare"]);
            assert_eq!(rig.hub.poll_timeout(), None, "it may take its time");
            rig.open(Rpc::Execute, Some(session.as_str()));
            assert!(
                words(rig.take())[0].starts_with("end FailedPrecondition"),
                "not before it is prepared"
            );
            rig.hub.prepared(rig.now, &session, Ok(())).unwrap();
            assert_eq!(
                rig.hub.prepared(rig.now, &session, Ok(())),
                Err(CommandError::NotPreparing)
            );
        }
        let mut said = words(rig.take());
        if !prepare {
            assert_eq!(said.remove(0), "accepted");
        }
        assert_eq!(said, ["told ready", "ready"]);
        rig.answer(listen, session.as_str(), true);
        assert_eq!(
            words(rig.take()),
            ["audit StrayAcceptance"],
            "ready is said once"
        );
        rig.open(Rpc::Execute, Some(session.as_str()));
        let said = rig.take();
        let init = uap_hub_proto::wire::TestInit {
            test_type: "t".into(),
            payloads,
            acknowledged: None,
        };
        assert!(
            matches!(&said[1], Output::Send { message: Outbound::Test(sent), .. } if *sent == init),
            "{said:?}"
        );
        assert_eq!(said.len(), 2);
    }
}

// spec: HUB-3-1
#[test]
fn a_translation_has_its_own_prefix_and_details() {
    let mut rig = Rig::new();
    let id = rig.register(vec![Skill::translation("f").into()]);
    let listen = rig.open(Rpc::Listen, Some(&id));
    rig.take();
    rig.hub
        .submit(rig.now, Job::translation("f", vec![]))
        .unwrap();
    let (_, session) = rig.proposals().pop().unwrap();
    assert!(session.starts_with("TRN-"));
    rig.answer(listen, &session, true);
    let stream = rig.open(Rpc::Translate, Some(&session));
    assert_eq!(
        words(rig.take()),
        ["accepted", "told ready", "ready", "started", "init f"]
    );
    let event = Some(translation_response::Event::Result(
        TranslationResult::completed(vec![Payload::new("made")]),
    ));
    rig.message(
        stream,
        Inbound::Translation(TranslationResponse {
            timestamp: None,
            event,
            number: 0,
        }),
    );
    let said = rig.take();
    let Some(Output::Event(Event::Job {
        event: JobEvent::Ended(outcome),
        ..
    })) = said.first()
    else {
        panic!("{said:?}")
    };
    let Some(JobResult::Translation(result)) = &outcome.result else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        (outcome.verdict, result.payloads.len()),
        (Verdict::Completed, 1)
    );
}

// spec: HUB-3-2
#[test]
fn only_a_capable_listening_agent_is_asked() {
    let mut rig = Rig::new();
    let requirement = PayloadRequirement {
        r#type: "need".into(),
        is_required: true,
        ..PayloadRequirement::default()
    };
    // More than the job has types.
    let optional = ["hint", "more"].map(|name| PayloadRequirement {
        r#type: name.into(),
        ..PayloadRequirement::default()
    });
    let strict = TestCapability {
        r#type: "t".into(),
        payloads: [requirement].into_iter().chain(optional).collect(),
    };
    let strict = rig.register(vec![Capability {
        format: Some(Format::Test(strict)),
    }]);
    rig.open(Rpc::Listen, Some(&strict));
    let other = rig.register(vec![
        Skill::translation("t").into(),
        Skill::test("T").into(),
    ]);
    rig.open(Rpc::Listen, Some(&other));
    let deaf = rig.register(vec![Skill::test("t").into()]);
    rig.submit();
    assert_eq!(rig.proposals(), []);
    let stream = rig.open(Rpc::Listen, Some(&deaf));
    assert_eq!(rig.proposals()[0].0, stream, "without waiting for ready");
    let job = Job::test("t", vec![Payload::new("need"), Payload::new("whatever")]);
    rig.hub.submit(rig.now, job).unwrap();
    assert_eq!(
        rig.proposals().len(),
        1,
        "the strict one is free and is asked"
    );
}

// spec: HUB-3-3, HUB-3-4, HUB-3-1
#[test]
fn an_unanswered_proposal_goes_elsewhere_under_a_new_name() {
    let mut rig = Rig::new();
    let (_, one) = rig.agent();
    let (_, two) = rig.agent();
    rig.submit();
    let (first, old) = rig.proposals().pop().unwrap();
    rig.pass(Duration::from_millis(29_999));
    assert_eq!(rig.proposals(), []);
    rig.pass(Duration::from_millis(1));
    let (second, new) = rig.proposals().pop().unwrap();
    assert!(first == one && second == two && old != new);
    for (stream, session, kind) in [
        (one, old.as_str(), "audit StrayAcceptance"),
        (one, new.as_str(), "audit ForeignAcceptance"),
        (one, "JOB-unknown", "audit StrayAcceptance"),
    ] {
        rig.answer(stream, session, true);
        assert_eq!(words(rig.take()), [kind]);
    }
    rig.answer(two, &new, true);
    rig.answer(two, &new, true);
    assert_eq!(
        words(rig.take()),
        ["accepted", "told ready", "ready", "audit StrayAcceptance"]
    );
}

/// A capability with one payload.
fn with_payload(payload: PayloadRequirement) -> Capability {
    Capability {
        format: Some(Format::Test(TestCapability {
            r#type: "picky".into(),
            payloads: vec![payload],
        })),
    }
}

// spec: HUB-3-6
#[test]
fn of_many_reasons_three_are_told_and_the_others_counted() {
    let mut rig = Rig::new();
    let needs = ["a", "b", "c", "d", "e"];
    for (n, need) in needs.iter().enumerate() {
        for _ in n..needs.len() {
            let payload = PayloadRequirement {
                r#type: (*need).into(),
                is_required: true,
                ..PayloadRequirement::default()
            };
            let agent = rig.register(vec![with_payload(payload)]);
            rig.open(Rpc::Listen, Some(&agent));
        }
    }
    let job = Job::test("picky", vec![]).with_wait_limit(Duration::from_secs(10));
    rig.hub.submit(rig.now, job).unwrap();
    rig.seconds(10);
    let [end] = &ended(&mut rig)[..] else {
        panic!("one job has ended");
    };
    let parts: Vec<_> = end.split("; ").collect();
    assert_eq!(parts.len(), 4, "{end}");
    assert!(parts[0].contains(r#"0 take these payloads: 5: "#) && parts[0].contains(r#""a""#));
    assert!(parts[2].starts_with("3: "), "{end}");
    assert_eq!(parts[3], "3: other reasons");
}

// spec: HUB-3-6
#[test]
fn a_job_that_nobody_takes_ends_with_the_reason() {
    let mut rig = Rig::new();
    let job = |name| Job::test(name, vec![]).with_wait_limit(Duration::from_secs(10));
    rig.hub.submit(rig.now, job("t")).unwrap();
    rig.seconds(9);
    assert_eq!(ended(&mut rig), Vec::<String>::new());
    rig.seconds(1);
    assert_eq!(
        ended(&mut rig),
        ["ended Unplaced no agent offers test type \"t\""]
    );
    let picky = rig.register(vec![with_payload(PayloadRequirement {
        r#type: "image".into(),
        accepted_mime_types: vec!["Image/PNG".into()],
        ..PayloadRequirement::default()
    })]);
    rig.open(Rpc::Listen, Some(&picky));
    for (mime, end) in [
        (
            "image/webp",
            r#"0 take these payloads: payload type "image" does not take "image/webp""#,
        ),
        ("image/png", "1 take these payloads: 1 paused"),
    ] {
        let image = Payload::file("image", "i", mime, "x");
        let job = Job::test("picky", vec![image]).with_wait_limit(Duration::from_secs(10));
        if mime == "image/png" {
            rig.hub
                .set_agent_paused(rig.now, &picky.as_str().into(), true)
                .unwrap();
        }
        rig.hub.submit(rig.now, job).unwrap();
        rig.seconds(10);
        let wanted =
            format!(r#"ended Unplaced agents that offer test type "picky": 1, of which {end}"#);
        assert_eq!(ended(&mut rig), [wanted]);
    }
    let (id, listen) = rig.agent();
    rig.hub.submit(rig.now, job("t")).unwrap();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, false);
    rig.seconds(10);
    assert_eq!(
        ended(&mut rig),
        ["ended Unplaced no agent took the job in time; the last one asked said: no wish"]
    );
    // It refuses, and is paused: the refusal does not hide what is missing now.
    let waits = rig.hub.submit(rig.now, job("t")).unwrap();
    let (_, session) = rig.proposals().pop().unwrap();
    assert_eq!(rig.hub.why_waiting(waits), None, "it is offered");
    rig.answer(listen, &session, false);
    rig.hub
        .set_agent_paused(rig.now, &id.as_str().into(), true)
        .unwrap();
    let why = r#"agents that offer test type "t": 1, of which 1 take these payloads: 1 paused; the last one asked said: no wish"#;
    assert_eq!(rig.hub.why_waiting(waits).as_deref(), Some(why));
    rig.seconds(10);
    assert_eq!(ended(&mut rig), [format!("ended Unplaced {why}")]);
    rig.hub
        .set_agent_paused(rig.now, &id.as_str().into(), false)
        .unwrap();
    rig.hub
        .submit(rig.now, job("t").with_agent(id.as_str().into()))
        .unwrap();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, false);
    assert_eq!(ended(&mut rig), ["ended Refused no wish"]);
    let incapable = job("other").with_agent(id.as_str().into());
    assert_eq!(
        rig.hub.submit(rig.now, incapable),
        Err(CommandError::IncapableAgent {
            unmet: r#"it does not offer test type "other""#.to_owned()
        })
    );
    assert_eq!(
        rig.hub.submit(rig.now, job("t").with_agent("x".into())),
        Err(CommandError::UnknownAgent)
    );
    assert_eq!(rig.hub.view().counts().jobs, 0);
}

// spec: HUB-3-6, HUB-4-5
#[test]
fn load_spreads_and_stops_at_the_agents_bound() {
    let mut rig = Rig::with(Config::default().with_max_sessions_per_agent(2));
    let (_, one) = rig.agent();
    rig.seconds(1);
    let (_, two) = rig.agent();
    for _ in 0..5 {
        rig.submit();
    }
    let asked = rig.proposals();
    let order: Vec<_> = asked.iter().map(|(stream, _)| *stream).collect();
    assert_eq!(order, [one, two, one, two]);
    rig.answer(one, &asked[0].1, true);
    let stream = rig.open(Rpc::Execute, Some(&asked[0].1));
    rig.take();
    rig.result(stream, State::Completed);
    assert_eq!(
        rig.proposals()[0].0,
        one,
        "the fifth takes the place that got free"
    );
}

// spec: HUB-3-6
#[test]
fn an_agent_that_gets_free_is_asked_again_at_once() {
    let mut rig = Rig::new();
    let (listen, _, _, stream) = rig.running();
    rig.submit();
    rig.submit();
    for (_, session) in rig.proposals() {
        rig.answer(listen, &session, false);
    }
    assert_eq!(rig.proposals(), [], "both rest");
    rig.result(stream, State::Completed);
    assert_eq!(
        rig.proposals().len(),
        1,
        "one place got free, one job is asked for"
    );
    rig.seconds(1);
    assert_eq!(rig.proposals().len(), 1, "the other after its pause");
}

// spec: HUB-3-6
#[test]
fn an_accepted_job_waits_no_more() {
    let mut rig = Rig::new();
    let (_, job, _, stream) = rig.running();
    rig.status(stream, 1);
    rig.seconds(3600);
    assert_eq!(ended(&mut rig), Vec::<String>::new());
    assert!(rig.hub.cancel(rig.now, job).is_ok());
}

// spec: HUB-3-6
#[test]
fn a_job_that_waits_for_somebody_who_goes_is_offered_again() {
    for goes in ["leaves", "breaks", "is paused", "is drained"] {
        let grace = Duration::from_secs(3600);
        let mut rig = Rig::with(
            Config::default()
                .with_max_sessions_per_agent(1)
                .with_resume_grace(grace),
        );
        let (_, one) = rig.agent();
        rig.seconds(1);
        let (busy, two) = rig.agent();
        let busy = ClientId::from(busy.as_str());
        rig.hub
            .submit(rig.now, Job::test("t", vec![]).with_agent(busy.clone()))
            .unwrap();
        let (_, session) = rig.proposals().pop().unwrap();
        rig.answer(two, &session, true);
        rig.open(Rpc::Execute, Some(&session));
        rig.submit();
        let (listen, session) = rig.proposals().pop().unwrap();
        assert_eq!(listen, one);
        rig.answer(one, &session, false);
        rig.seconds(100);
        assert_eq!(rig.proposals(), [], "the other has not refused");
        match goes {
            "leaves" => rig.half_close(two),
            "breaks" => rig.reset(two),
            "is paused" => rig.hub.set_agent_paused(rig.now, &busy, true).unwrap(),
            _ => rig.hub.drain_agent(rig.now, &busy).unwrap(),
        }
        rig.seconds(1);
        rig.seconds(1);
        let asked = rig.proposals();
        assert_eq!(asked.len(), 1, "the other {goes}");
        assert_eq!(asked[0].0, one);
    }
}

/// An agent for tests `picky`, whose image has one of these types.
fn picky(rig: &mut Rig, mime_types: &[&str]) -> (String, StreamId) {
    let image = PayloadRequirement {
        r#type: "image".into(),
        is_required: true,
        accepted_mime_types: mime_types.iter().map(|mime| (*mime).into()).collect(),
        ..PayloadRequirement::default()
    };
    let format = Some(Format::Test(TestCapability {
        r#type: "picky".into(),
        payloads: vec![image],
    }));
    let id = rig.register(vec![Capability { format }]);
    let listen = rig.open(Rpc::Listen, Some(&id));
    (id, listen)
}

fn png() -> Job {
    let image = Payload::file("image", "i", "image/png", "x");
    Job::test("picky", vec![image]).with_wait_limit(Duration::from_secs(10))
}

// spec: HUB-3-6
#[test]
fn faults_are_counted_and_named() {
    let mut rig = Rig::with(Config::default().with_fail_fast(true));
    for _ in 0..2 {
        picky(&mut rig, &["image/webp"]);
    }
    let other = Job::test("picky", vec![]);
    let refused = rig.hub.submit(rig.now, other).unwrap_err().to_string();
    assert_eq!(
        refused,
        r#"no agent that listened offers test type "picky" and takes these payloads: a payload of type "image" is missing"#
    );
    let needs = PayloadRequirement {
        r#type: "mask".into(),
        is_required: true,
        ..PayloadRequirement::default()
    };
    let format = Some(Format::Test(TestCapability {
        r#type: "picky".into(),
        payloads: vec![needs],
    }));
    let id = rig.register(vec![Capability { format }]);
    rig.open(Rpc::Listen, Some(&id));
    let refused = rig.hub.submit(rig.now, png()).unwrap_err();
    let unmet = r#"2: payload type "image" does not take "image/png"; 1: a payload of type "mask" is missing"#;
    let skill = Skill::test("picky");
    let unmet = unmet.to_owned();
    assert_eq!(refused, CommandError::NoCapableAgent { skill, unmet });
    let refused = rig
        .hub
        .submit(rig.now, png().with_agent(id.as_str().into()));
    let unmet = r#"a payload of type "mask" is missing"#.to_owned();
    assert_eq!(refused, Err(CommandError::IncapableAgent { unmet }));
}

// spec: HUB-3-6
#[test]
fn agents_that_could_are_told_apart_by_what_keeps_them() {
    let config = Config::default()
        .with_max_sessions_per_agent(1)
        .with_resume_grace(Duration::from_secs(600));
    let mut rig = Rig::with(config);
    let agents: Vec<_> = (0..4).map(|_| picky(&mut rig, &["image/png"])).collect();
    picky(&mut rig, &["image/webp"]);
    let pause = |rig: &mut Rig, at: usize| {
        let agent = agents[at].0.as_str().into();
        rig.hub.set_agent_paused(rig.now, &agent, true).unwrap();
    };
    pause(&mut rig, 0);
    pause(&mut rig, 1);
    rig.reset(agents[2].1);
    rig.hub.submit(rig.now, png()).unwrap();
    let (listen, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    rig.take();
    rig.hub.submit(rig.now, png()).unwrap();
    let pinned = |at: usize| png().with_agent(agents[at].0.as_str().into());
    for at in [0, 2, 3] {
        rig.hub.submit(rig.now, pinned(at)).unwrap();
    }
    rig.seconds(10);
    let mut told = ended(&mut rig);
    told.sort();
    assert_eq!(
        told,
        [
            r#"ended Unplaced agents that offer test type "picky": 5, of which 4 take these payloads: 1 away, 2 paused, 1 without room"#,
            "ended Unplaced the agent that the job is for has no room",
            "ended Unplaced the agent that the job is for is away",
            "ended Unplaced the agent that the job is for is paused",
        ]
    );
}

// spec: HUB-3-6
#[test]
fn a_job_that_a_paused_hub_kept_is_told_so() {
    let mut rig = Rig::with(Config::default());
    picky(&mut rig, &["image/png"]);
    rig.hub.set_paused(rig.now, true);
    rig.hub.submit(rig.now, png()).unwrap();
    rig.seconds(10);
    assert_eq!(ended(&mut rig), ["ended Unplaced the hub is paused"]);
}

#[test]
fn a_view_has_the_jobs_in_the_order_of_their_ids() {
    let mut rig = Rig::new();
    let mut ids: Vec<_> = (0..20).map(|_| rig.submit()).collect();
    ids.sort_unstable();
    assert!(rig.hub.view().jobs().map(|job| job.id).eq(ids));
}
