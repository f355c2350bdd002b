//! Any bytes, any split.

use opensentience_wire::Limits;
use opensentience_wire::role::core::Config;
use opensentience_wire::role::{Input, agent, core};
use proptest::prelude::*;
use serde_json::json;
use ubos_common::machine::Machine;

use crate::kit::*;

fn all<M: Machine>(conn: &mut M) -> Vec<M::Output> {
    std::iter::from_fn(|| conn.poll_output()).collect()
}

fn core_after(cuts: &[usize], bytes: &[u8]) -> Vec<core::Output> {
    let mut conn = new_core(Config::default());
    let (mut out, mut from, mut cuts) = (Vec::new(), 0, cuts.iter().cycle());
    while from < bytes.len() && !conn.is_closed() {
        let to = (from + cuts.next().unwrap()).min(bytes.len());
        let _ = conn.handle_input(at(0), Input::Bytes(&bytes[from..to]));
        out.extend(all(&mut conn));
        from = to;
    }
    out
}

fn agent_after(bytes: &[u8]) -> Vec<agent::Output> {
    let mut conn = open_agent(Limits::default());
    let _ = conn.handle_input(at(0), Input::Bytes(bytes));
    all(&mut conn)
}

fn conversation(odd: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = frame(&hello());
    bytes.extend(frame(&message(
        "agent.tools.register",
        json!({"tools": [tool("echo"), 7]}),
    )));
    for body in odd {
        bytes.extend(raw_frame(body));
        bytes.extend(frame(&message("agent.later", json!({"x": [1]}))));
    }
    bytes
}

fn bodies() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let members = "(v|type|id|ts|payload|call_id)";
    let text =
        format!(r#"\{{"{members}":("agent.tool.result"|1|null|\{{\}})(,"{members}":(2|""))?\}}"#);
    let body = prop_oneof![
        proptest::string::string_regex(&text)
            .unwrap()
            .prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 1..20),
    ];
    prop::collection::vec(body, 0..4)
}

proptest! {
    // spec: OSW-2-2
    #[test]
    fn any_split_gives_the_same_outputs(odd in bodies(), cuts in prop::collection::vec(1usize..50, 1..20)) {
        let bytes = conversation(&odd);
        prop_assert_eq!(core_after(&cuts, &bytes), core_after(&[bytes.len()], &bytes));
    }

    // spec: OSW-2-9
    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), odd in bodies()) {
        core_after(&[7], &bytes);
        agent_after(&bytes);
        agent_after(&conversation(&odd));
    }
}
