//! Whose client ids and sessions are whose, and which streams end together.

use super::*;

const CALLERS: [Option<&str>; 2] = [None, Some("somebody else")];

fn open_as(rig: &mut Rig, rpc: Rpc, key: &str, identity: Option<&str>) -> StreamId {
    rig.streams += 1;
    let (stream, identity) = (StreamId(rig.streams), identity.map(Identity::from));
    let opened = Input::Opened {
        stream,
        rpc,
        key: Some(key),
        identity: identity.as_ref(),
        resume: None,
    };
    rig.hub.handle_input(rig.now, opened).unwrap();
    stream
}

fn owned(rig: &mut Rig) -> String {
    let registration = AgentRegistration {
        display_name: "a".into(),
        capabilities: vec![Skill::test("t").into()],
    };
    let owner = Some(Identity::from("owner"));
    let answer = rig
        .hub
        .register_as(rig.now, owner, None, registration.try_into().unwrap())
        .unwrap();
    rig.take();
    answer.client_id
}

// spec: HUB-2-2
#[test]
fn a_client_id_is_unknown_to_other_identities() {
    let mut rig = Rig::new();
    let client = owned(&mut rig);
    for caller in CALLERS {
        open_as(&mut rig, Rpc::Listen, &client, caller);
        let wanted = ["audit ForeignIdentity", "end NotFound Invalid Client ID"];
        assert_eq!(words(rig.take()), wanted, "{caller:?}");
    }
    open_as(&mut rig, Rpc::Listen, &client, Some("owner"));
    assert_eq!(words(rig.take()), ["available"]);
}

// spec: HUB-2-2
#[test]
fn a_session_id_is_unknown_to_other_identities() {
    let mut rig = Rig::new();
    let client = owned(&mut rig);
    let listen = open_as(&mut rig, Rpc::Listen, &client, Some("owner"));
    rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    rig.take();
    for caller in CALLERS {
        open_as(&mut rig, Rpc::Execute, &session, caller);
        let wanted = [
            "audit ForeignIdentity",
            "end NotFound no session has that id",
        ];
        assert_eq!(words(rig.take()), wanted, "{caller:?}");
    }
    open_as(&mut rig, Rpc::Execute, &session, Some("owner"));
    assert_eq!(words(rig.take()), ["started", "init t"]);
}

// spec: HUB-2-2
#[test]
fn an_ended_session_is_unknown_to_other_identities() {
    let mut rig = Rig::new();
    let client = owned(&mut rig);
    let listen = open_as(&mut rig, Rpc::Listen, &client, Some("owner"));
    rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    let stream = open_as(&mut rig, Rpc::Execute, &session, Some("owner"));
    rig.result(stream, State::Completed);
    rig.half_close(stream);
    for agent_left in [false, true] {
        if agent_left {
            rig.half_close(listen);
        }
        rig.take();
        for caller in CALLERS {
            open_as(&mut rig, Rpc::Execute, &session, caller);
            let wanted = [
                "audit ForeignIdentity",
                "end NotFound no session has that id",
            ];
            assert_eq!(words(rig.take()), wanted, "{caller:?}");
        }
        open_as(&mut rig, Rpc::Execute, &session, Some("owner"));
        let ended = "end FailedPrecondition the session has ended";
        assert_eq!(words(rig.take()), [ended]);
    }
}

// spec: HUB-2-2
#[test]
fn an_identity_is_no_use_where_none_registered() {
    let mut rig = Rig::new();
    let client = rig.register(vec![]);
    rig.take();
    open_as(&mut rig, Rpc::Listen, &client, Some("somebody"));
    let wanted = ["audit ForeignIdentity", "end NotFound Invalid Client ID"];
    assert_eq!(words(rig.take()), wanted);
}

// spec: HUB-5-1, HUB-4-7
#[test]
fn a_session_that_ends_with_its_connection_ends_with_its_agent() {
    for (is_lost, wanted) in [
        (true, "ended Failed Agent disconnected"),
        (false, "ended Failed Stream error: gone"),
    ] {
        let mut rig = Rig::new();
        let (_, _, _, stream) = rig.running();
        rig.take();
        let reason = "gone".to_owned();
        let input = match is_lost {
            true => Input::Lost { stream, reason },
            false => Input::Reset { stream, reason },
        };
        rig.hub.handle_input(rig.now, input).unwrap();
        assert_eq!(words(rig.take()), [wanted]);
    }
}
