//! The places of agents: quotas, and who makes room for whom.

use super::*;

fn register_from(rig: &mut Rig, address: &str) -> Result<String, RegisterError> {
    named_from(rig, address, 0)
}

/// Registers an agent with a name of so many bytes, which takes three more where it is long.
fn named_from(rig: &mut Rig, address: &str, bytes: usize) -> Result<String, RegisterError> {
    let address = Some(address.parse().unwrap());
    let registration = AgentRegistration {
        display_name: "n".repeat(bytes),
        capabilities: vec![],
    };
    let answer = (rig.hub).register_as(rig.now, None, address, registration.try_into()?);
    Ok(answer?.client_id)
}

#[test]
fn an_agent_that_listens_is_found_by_its_id_or_its_name() {
    let mut rig = Rig::new();
    let silent = named_from(&mut rig, "10.0.0.1", 3).unwrap();
    let listens = named_from(&mut rig, "10.0.0.1", 5).unwrap();
    rig.open(Rpc::Listen, Some(&listens));
    let find = |name: &str| {
        let found = rig.hub.view().listening_agent(name);
        found.map(|id| id.as_str().to_owned())
    };
    for name in [listens.as_str(), "nnnnn"] {
        assert_eq!(find(name), Some(listens.clone()));
    }
    for name in [silent.as_str(), "nnn", "nobody"] {
        assert_eq!(find(name), None);
    }
}

// spec: HUB-2-4
#[test]
fn a_peer_does_not_lock_the_others_out_with_bytes() {
    let config = Config::default()
        .with_max_registered_bytes(8_000)
        .with_max_registered_bytes_per_peer(2_000);
    let mut rig = Rig::with(config);
    for _ in 0..2 {
        let listens = named_from(&mut rig, "10.0.0.2", 997).unwrap();
        rig.open(Rpc::Listen, Some(&listens));
    }
    let refused = named_from(&mut rig, "10.0.0.2", 1).unwrap_err();
    assert_eq!(refused, RegisterError::PeerFullOfBytes { most: 2_000 });
    assert_eq!(refused.status().code, Code::ResourceExhausted);
    named_from(&mut rig, "10.0.0.1", 997).unwrap();
    assert_eq!(rig.hub.view().counts().agents, 3);
}

// spec: HUB-2-4
#[test]
fn bytes_of_a_peer_make_room_for_its_own() {
    let config = Config::default().with_max_registered_bytes_per_peer(2_000);
    let mut rig = Rig::with(config);
    let honest = named_from(&mut rig, "10.0.0.1", 997).unwrap();
    let listens = named_from(&mut rig, "10.0.0.2", 997).unwrap();
    rig.open(Rpc::Listen, Some(&listens));
    for _ in 0..2 {
        named_from(&mut rig, "10.0.0.2", 497).unwrap();
    }
    assert_eq!(rig.hub.view().counts().agents, 4, "all that just fit");
    let refused = named_from(&mut rig, "10.0.0.2", 998).unwrap_err();
    assert_eq!(refused, RegisterError::PeerFullOfBytes { most: 2_000 });
    assert_eq!(rig.hub.view().counts().agents, 4, "nobody made room");
    let late = named_from(&mut rig, "10.0.0.2", 997).unwrap();
    assert_eq!(rig.hub.view().counts().agents, 3, "both made room");
    for agent in [&honest, &late] {
        rig.open(Rpc::Listen, Some(agent));
    }
    assert_eq!(rig.hub.view().counts().available_agents, 3);
}

// spec: HUB-2-4
#[test]
fn a_peer_displaces_its_own_agents_first() {
    let config = Config::default()
        .with_max_agents_per_peer(4)
        .with_max_pending_agents_per_peer(2);
    let mut rig = Rig::with(config);
    let honest = register_from(&mut rig, "10.0.0.1").unwrap();
    let flood: Vec<_> = (0..9)
        .map(|_| register_from(&mut rig, "10.0.0.2").unwrap())
        .collect();
    assert_eq!(rig.hub.view().counts().agents, 3);
    rig.open(Rpc::Listen, Some(&honest));
    for agent in &flood[7..] {
        rig.open(Rpc::Listen, Some(agent));
    }
    assert_eq!(rig.hub.view().counts().available_agents, 3);
    // Those that listen count for the quota of the peer, and for that of nobody else.
    let more: Vec<_> = (0..3)
        .map(|_| register_from(&mut rig, "10.0.0.2").unwrap())
        .collect();
    assert_eq!(rig.hub.view().counts().agents, 5, "one made room for one");
    for agent in &more[1..] {
        rig.open(Rpc::Listen, Some(agent));
    }
    let refused = register_from(&mut rig, "10.0.0.2").unwrap_err();
    assert_eq!(refused, RegisterError::PeerFull { most: 4 });
    assert_eq!(refused.status().code, Code::ResourceExhausted);
    assert_eq!(rig.hub.view().counts().available_agents, 5);
    assert!(register_from(&mut rig, "10.0.0.1").is_ok());
}

// spec: HUB-2-4
#[test]
fn an_agent_that_listens_is_not_displaced_by_its_peer() {
    let mut rig = Rig::with(Config::default().with_max_pending_agents_per_peer(1));
    let listens = register_from(&mut rig, "10.0.0.1").unwrap();
    rig.open(Rpc::Listen, Some(&listens));
    register_from(&mut rig, "10.0.0.1").unwrap();
    assert_eq!(rig.hub.view().counts().agents, 2);
}

// spec: HUB-2-4
#[test]
fn strangers_that_do_not_listen_displace_each_other_alone() {
    let config = Config::default()
        .with_max_agents(4)
        .with_max_pending_agents(2);
    let mut rig = Rig::with(config);
    let honest = rig.register(vec![]);
    rig.open(Rpc::Listen, Some(&honest));
    let strangers: Vec<_> = (0..2).map(|_| rig.register(vec![])).collect();
    rig.take();
    let answer = rig.hub.register(rig.now, AgentRegistration::default());
    let late = answer.unwrap().client_id;
    let gone: Vec<_> = rig
        .take()
        .into_iter()
        .filter_map(|output| match output {
            Output::Event(Event::AgentGone { agent, .. }) => Some(agent.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(gone, strangers[..1]);
    for agent in [&strangers[1], &late] {
        rig.open(Rpc::Listen, Some(agent));
    }
    assert_eq!(
        rig.hub.view().counts().available_agents,
        3,
        "the others listen"
    );
}

// spec: HUB-2-4
#[test]
fn a_full_hub_takes_an_agent_in_for_one_that_does_not_listen() {
    let config = Config::default().with_max_agents(3);
    let mut rig = Rig::with(config);
    let listens = register_from(&mut rig, "10.0.0.1").unwrap();
    rig.open(Rpc::Listen, Some(&listens));
    for _ in 0..2 {
        register_from(&mut rig, "10.0.0.2").unwrap();
    }
    let late = register_from(&mut rig, "10.0.0.3").unwrap();
    rig.open(Rpc::Listen, Some(&late));
    let last = register_from(&mut rig, "10.0.0.3").unwrap();
    rig.open(Rpc::Listen, Some(&last));
    assert_eq!(rig.hub.view().counts().available_agents, 3);
    let refused = register_from(&mut rig, "10.0.0.4").unwrap_err();
    assert_eq!(refused, RegisterError::Full { most: 3 });
}

// spec: HUB-2-4
#[test]
fn bytes_of_agents_that_do_not_listen_make_room_for_others() {
    let named = |rig: &mut Rig, bytes: usize| {
        let registration = AgentRegistration {
            display_name: "n".repeat(bytes),
            capabilities: vec![],
        };
        let answer = rig.hub.register(rig.now, registration)?;
        Ok::<_, RegisterError>(answer.client_id)
    };
    let mut rig = Rig::with(Config::default().with_max_registered_bytes(3_900));
    for _ in 0..3 {
        let listens = named(&mut rig, 997).unwrap();
        rig.open(Rpc::Listen, Some(&listens));
    }
    let pending = named(&mut rig, 597).unwrap();
    assert_eq!(
        named(&mut rig, 997).unwrap_err(),
        RegisterError::FullOfBytes { most: 3_900 }
    );
    assert_eq!(rig.hub.view().counts().agents, 4, "it made room for nobody");
    let late = named(&mut rig, 797).unwrap();
    rig.open(Rpc::Listen, Some(&pending));
    rig.open(Rpc::Listen, Some(&late));
    assert_eq!(rig.hub.view().counts().available_agents, 4);
}

/// A hub whose agents may come back.
fn forgiving(config: Config) -> Rig {
    Rig::with(config.with_resume_grace(Duration::from_secs(600)))
}

/// An agent whose control stream broke.
fn away(rig: &mut Rig, address: &str) -> String {
    let id = register_from(rig, address).unwrap();
    let listen = rig.open(Rpc::Listen, Some(&id));
    rig.reset(listen);
    id
}

// spec: HUB-2-4, HUB-5-4
#[test]
fn agents_that_went_away_without_a_session_make_room() {
    let mut rig = forgiving(Config::default().with_max_pending_agents_per_peer(3));
    let honest = away(&mut rig, "10.0.0.1");
    for _ in 0..9 {
        away(&mut rig, "10.0.0.2");
    }
    assert_eq!(rig.hub.view().counts().agents, 4);
    rig.open(Rpc::Listen, Some(&honest));
    assert_eq!(rig.hub.view().counts().available_agents, 1);
    let mut rig = forgiving(Config::default().with_max_agents(3));
    for _ in 0..9 {
        away(&mut rig, "10.0.0.2");
    }
    let late = register_from(&mut rig, "10.0.0.3").unwrap();
    rig.open(Rpc::Listen, Some(&late));
    assert_eq!(rig.hub.view().counts().available_agents, 1);
}

// spec: HUB-2-4, HUB-5-4
#[test]
fn an_agent_that_is_away_keeps_its_place_while_it_has_a_session() {
    let mut rig = forgiving(Config::default().with_max_pending_agents(1));
    let (id, listen) = rig.agent();
    rig.submit();
    let (_, session) = rig.proposals().pop().unwrap();
    rig.answer(listen, &session, true);
    let stream = rig.open(Rpc::Execute, Some(&session));
    rig.reset(listen);
    for _ in 0..2 {
        register_from(&mut rig, "10.0.0.1").unwrap();
    }
    assert_eq!(rig.hub.view().counts().agents, 2);
    rig.result(stream, State::Completed);
    for _ in 0..2 {
        register_from(&mut rig, "10.0.0.1").unwrap();
    }
    assert_eq!(rig.hub.view().counts().agents, 1);
    rig.open(Rpc::Listen, Some(&id));
    assert_eq!(rig.hub.view().counts().available_agents, 0, "it had gone");
}
