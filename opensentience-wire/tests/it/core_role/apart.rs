//! Registration whose schemas are compiled elsewhere.

use opensentience_wire::role::core::{
    Config, CoreConnection, Event, Output, SchemaCheck, SchemaVerdicts,
};
use opensentience_wire::role::{CloseReason, Input};
use serde_json::{Value, json};
use ubos_common::time::Now;

use crate::kit::*;

use super::{result, started};

fn apart() -> Config {
    Config::default().with_schemas_apart(true)
}

fn register(tools: &[Value]) -> Value {
    message("agent.tools.register", json!({ "tools": tools }))
}

fn with_schema(name: &str, schema: Value) -> Value {
    let mut tool = tool(name);
    tool["input_schema"] = schema;
    tool
}

/// Gives bytes; what is to be checked then.
fn tell(conn: &mut CoreConnection, messages: &[Value]) -> (Vec<Value>, Option<SchemaCheck>) {
    let bytes: Vec<u8> = messages.iter().flat_map(frame).collect();
    let _ = conn.handle_input(at(0), Input::Bytes(&bytes));
    take(conn)
}

fn take(conn: &mut CoreConnection) -> (Vec<Value>, Option<SchemaCheck>) {
    let (mut sent, mut check) = (Vec::new(), None);
    while let Some(output) = conn.poll_output() {
        match output {
            Output::Transmit(bytes) => sent.extend(parse(&bytes)),
            Output::CheckSchemas(asked) => check = Some(asked),
            _ => {}
        }
    }
    (sent, check)
}

/// One that waits for the schemas of `echo`, while a call of it runs already.
fn open() -> CoreConnection {
    let mut conn = new_core(apart());
    tell_core(&mut conn, 0, &hello());
    let (sent, check) = tell(&mut conn, &[register(&[tool("echo")])]);
    assert_eq!(sent, Vec::<Value>::new());
    assert!(!conn.accepts_input());
    let taken = conn.take_verdicts(at(0), check.unwrap().run());
    taken.unwrap();
    assert!(conn.accepts_input());
    assert_eq!(take(&mut conn).0[0]["type"], "core.tools.registered");
    conn
}

// spec: OSW-4.2-3
// spec: OSW-4.2-4
#[test]
fn what_comes_behind_a_registration_waits_for_its_schemas() {
    let mut conn = open();
    let id = started(&mut conn, 0);
    let ids = json!({"tool_ids": [format!("{AGENT}/more")]});
    let behind = [
        register(&[tool("more"), with_schema("bad", json!({"type": 7}))]),
        message("agent.tools.unregister", ids),
        result(&id, "succeeded"),
        register(&[tool("last")]),
        message("agent.pong", json!({})),
    ];
    let (sent, check) = tell(&mut conn, &behind);
    assert_eq!((sent.len(), conn.tools().count()), (0, 1));
    assert_eq!(conn.pending_calls(), 1);
    // A driver that does not ask whether input is accepted loses nothing of it.
    let _ = conn.handle_input(at(0), Input::Eof);
    assert!(!conn.is_closed());
    conn.take_verdicts(at(0), check.unwrap().run()).unwrap();
    let (sent, check) = take(&mut conn);
    let types: Vec<_> = sent.iter().map(|m| m["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["core.tools.registered", "core.tools.unregistered"]);
    let rejected = &sent[0]["payload"]["rejected"];
    assert_eq!(rejected[0]["error"]["code"], "tool.invalid_schema");
    assert_eq!(rejected.as_array().unwrap().len(), 1);
    assert_eq!((conn.pending_calls(), conn.is_closed()), (0, false));
    // The second one stopped it again: its end comes behind.
    conn.take_verdicts(at(0), check.unwrap().run()).unwrap();
    let mut ends = Vec::new();
    while let Some(output) = conn.poll_output() {
        match output {
            Output::Event(Event::Pong) => ends.push("pong"),
            Output::Close(CloseReason::Disconnected) => ends.push("closed"),
            _ => {}
        }
    }
    assert_eq!(ends, ["pong", "closed"]);
}

// spec: OSW-4.2-3
#[test]
fn schemas_that_stand_there_already_are_not_checked_and_those_without_a_verdict_are_rejected() {
    let mut conn = open();
    let mut described = tool("echo");
    described["description"] = json!("another text");
    let replace = |tools: Value| {
        message(
            "agent.tools.register",
            json!({"tools": tools, "replace": true}),
        )
    };
    let (sent, check) = tell(&mut conn, &[replace(json!([described, 7]))]);
    assert_eq!(check, None);
    let rejected = &sent[0]["payload"]["rejected"];
    assert_eq!(rejected.as_array().unwrap().len(), 1);
    assert_eq!(conn.tools().next().unwrap().description, "another text");

    let new = [
        tool("a"),
        with_schema("echo", json!({})),
        tool("b"),
        json!(7),
    ];
    let (_, check) = tell(&mut conn, &[register(&new)]);
    assert!(check.is_some());
    let taken = conn.take_verdicts(at(0), SchemaVerdicts::default());
    taken.unwrap();
    let (sent, _) = take(&mut conn);
    let codes = sent[0]["payload"]["rejected"].as_array().unwrap().iter();
    let codes = codes.map(|r| r["error"]["code"].as_str().unwrap());
    let schema = "tool.invalid_schema";
    assert_eq!(
        codes.collect::<Vec<_>>(),
        [schema, "tool.conflict", schema, schema]
    );
}

#[test]
fn verdicts_for_nobody_change_nothing() {
    let mut conn = open();
    let (_, check) = tell(&mut conn, &[register(&[tool("more")])]);
    let verdicts = check.unwrap().run();
    conn.goodbye(at(0), "enough", None).unwrap();
    assert!(conn.is_closed(), "no call runs");
    take(&mut conn);
    assert_eq!(conn.take_verdicts(at(0), verdicts.clone()), Ok(()));
    assert_eq!((take(&mut conn).0.len(), conn.tools().count()), (0, 0));

    let mut conn = open();
    assert_eq!(conn.take_verdicts(at(0), verdicts), Ok(()));
    assert_eq!((take(&mut conn).0.len(), conn.tools().count()), (0, 1));
}

// spec: OSW-4.5-2
#[test]
fn an_agent_is_not_unwell_for_what_is_not_read_of_it() {
    let mut conn = open();
    let (_, check) = tell(&mut conn, &[register(&[tool("more")])]);
    conn.handle_timeout(at(100_000));
    assert_eq!(conn.health(), &opensentience_wire::message::Health::Ok);
    let taken = conn.take_verdicts(at(100_000), check.unwrap().run());
    taken.unwrap();
    conn.handle_timeout(at(114_999));
    assert_eq!(conn.health(), &opensentience_wire::message::Health::Ok);
    conn.handle_timeout(at(115_000));
    assert_eq!(
        conn.health(),
        &opensentience_wire::message::Health::Unhealthy
    );
}

// Each registration costs by itself: what came behind one that cost too much waits its turn.
// spec: OSW-4.2-3
#[test]
fn what_comes_in_one_read_behind_too_much_waits_until_the_agent_may_speak_again() {
    let mut conn = open();
    let pongs = vec![message("agent.pong", json!({})); 9_000];
    let all = [
        vec![register(&[with_schema("one", json!({"title": "one"}))])],
        pongs,
        vec![register(&[with_schema("two", json!({"title": "two"}))])],
    ];
    let (_, check) = tell(&mut conn, &all.concat());
    conn.take_verdicts(at(0), check.unwrap().run()).unwrap();
    let (_, check) = take(&mut conn);
    assert!(check.is_none() && !conn.accepts_input());
    // An end behind it is not forgotten.
    conn.handle_input(at(0), Input::Eof).unwrap();
    let mut asked = None;
    for _ in 0..1_000 {
        let Some(due) = conn.poll_timeout() else {
            break;
        };
        conn.handle_timeout(Now::new(due, at(0).wall));
        let (_, check) = take(&mut conn);
        asked = asked.or(check);
        if let Some(check) = asked.take() {
            assert!(!conn.is_closed());
            conn.take_verdicts(Now::new(due, at(0).wall), check.run())
                .unwrap();
        }
        if conn.is_closed() {
            return;
        }
    }
    panic!("it did not end");
}

#[test]
fn who_takes_back_what_he_does_not_offer_changes_nothing() {
    let mut conn = open();
    let nothing = message("agent.tools.unregister", json!({"tool_ids": ["none"]}));
    let told = tell_core(&mut conn, 0, &nothing);
    assert_eq!(told.types(), ["core.tools.unregistered"]);
    assert!(
        !told
            .events
            .iter()
            .any(|event| matches!(event, Event::ToolsChanged))
    );
}
