//! Registration: what a core takes, and what it costs the agent.

use opensentience_wire::Limits;
use opensentience_wire::role::core::{Config, Event};
use serde_json::{Value, json};

use crate::kit::*;

use super::{request, result, started};

// spec: OSW-4.2-1
// spec: OSW-4.2-2
// spec: OSW-4.2-3
#[test]
fn a_wrong_tool_is_rejected_alone() {
    let mut conn = open_core(Config::default());
    let with = |name: &str, member: &str, value: Value| {
        let mut tool = tool(name);
        tool[member] = value;
        tool
    };
    let large = json!({"x": "y".repeat(65_536)});
    let tools = json!([
        tool("fine"),
        with("a", "tool_id", json!("com.example.b/a")),
        with("b", "tool_id", json!(7)),
        with("c", "input_schema", json!([])),
        with("d", "input_schema", large),
        tool("echo"),
        with("e", "name", json!("f")),
        7,
        with("g/h", "name", json!("g/h")),
        with("i", "output_schema", json!(1)),
        with("j", "later", json!({})),
    ]);
    let said = tell_core(
        &mut conn,
        0,
        &message("agent.tools.register", json!({"tools": tools})),
    );
    let reply = &said.sent[0];
    assert_eq!(reply["in_reply_to"], "m-1");
    assert_eq!(
        reply["payload"]["registered"],
        json!([format!("{AGENT}/fine"), format!("{AGENT}/j")])
    );
    let codes: Vec<_> = reply["payload"]["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["error"]["code"].as_str().unwrap())
        .collect();
    let told = |event: &&Event| matches!(event, Event::ToolRejected(_));
    assert_eq!(said.events.iter().filter(told).count(), codes.len());
    let (id, schema) = ("tool.invalid_id", "tool.invalid_schema");
    assert_eq!(
        codes,
        [
            id,
            id,
            schema,
            schema,
            "tool.conflict",
            id,
            schema,
            id,
            schema
        ]
    );
}

// spec: OSW-4.2-3
#[test]
fn of_two_tools_with_one_name_the_first_counts_even_where_it_is_wrong() {
    let mut conn = open_core(Config::default());
    let with_schema = |name: &str, schema: Value| {
        let mut tool = tool(name);
        tool["input_schema"] = schema;
        tool
    };
    let tools = json!([
        with_schema("a", json!({"type": 7})),
        tool("a"),
        with_schema("b", json!(1)),
        tool("b"),
        tool("c"),
        tool("c"),
    ]);
    let register = message("agent.tools.register", json!({"tools": tools}));
    let reply = &tell_core(&mut conn, 0, &register).sent[0]["payload"];
    assert_eq!(reply["registered"], json!([format!("{AGENT}/c")]));
    let codes = reply["rejected"].as_array().unwrap().iter();
    let (schema, conflict) = ("tool.invalid_schema", "tool.conflict");
    assert_eq!(
        codes
            .map(|r| r["error"]["code"].as_str().unwrap())
            .collect::<Vec<_>>(),
        [schema, conflict, schema, conflict, conflict]
    );
}

// spec: OSW-4.2-3
#[test]
fn tools_ids_and_schemas_are_limited() {
    let mut conn = open_core(Config::default());
    let register = |tools: Vec<Value>| message("agent.tools.register", json!({"tools": tools}));
    let long = |bytes: usize| tool(&"n".repeat(bytes - AGENT.len() - 1));
    let sized = |bytes: usize| {
        let mut tool = tool(&format!("s{bytes}"));
        let empty = json!({"title": ""}).to_string().len();
        tool["input_schema"] = json!({"title": "x".repeat(bytes - empty)});
        tool
    };
    let tools = vec![long(512), long(513), sized(65_536), sized(65_537)];
    let said = tell_core(&mut conn, 0, &register(tools));
    let rejected = said.sent[0]["payload"]["rejected"].as_array().unwrap();
    let codes: Vec<_> = rejected
        .iter()
        .map(|r| r["error"]["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["tool.invalid_id", "tool.invalid_schema"]);
    // Four are there already.
    let many = |count: usize| {
        (0..count)
            .map(|n| tool(&format!("t{n}")))
            .collect::<Vec<_>>()
    };
    tell_core(&mut conn, 0, &register(many(1_024)));
    assert_eq!(conn.tools().count(), 1_024);
    let said = tell_core(&mut conn, 0, &register(many(1_025)));
    assert_eq!(said.sent[0]["type"], "core.error");
    let refusal = "protocol.message_rejected protocol.invalid_message";
    assert_eq!(said.audits(), [refusal]);
    assert_eq!(conn.tools().count(), 1_024);
}

// spec: OSW-4.2-2
#[test]
fn the_tools_of_a_session_have_a_bound_of_bytes_together() {
    let limits = Limits::default().with_max_agent_bytes(64 << 20);
    let mut conn = open_core(Config::default().with_limits(limits));
    // Members that nobody knows are kept, so they count.
    let described = |name: &str, bytes: usize| {
        let mut tool = tool(name);
        tool["description"] = json!("x".repeat(bytes / 2));
        tool["later"] = json!("x".repeat(bytes / 2));
        message("agent.tools.register", json!({"tools": [tool]}))
    };
    for n in 0..4 {
        tell_core(&mut conn, 0, &described(&format!("t{n}"), 1_000_000));
    }
    let said = tell_core(&mut conn, 0, &described("more", 1_000_000));
    let rejected = &said.sent[0]["payload"]["rejected"][0]["error"];
    assert_eq!(
        (&rejected["code"], conn.tools().count()),
        (&json!("tool.conflict"), 6)
    );
    // What goes gives its bytes back.
    let ids = json!({"tool_ids": [format!("{AGENT}/t0")]});
    tell_core(&mut conn, 0, &message("agent.tools.unregister", ids));
    tell_core(&mut conn, 0, &described("more", 1_000_000));
    assert_eq!(conn.tools().count(), 6);
    let mut all = described("all", 4_000_000);
    all["payload"]["replace"] = json!(true);
    tell_core(&mut conn, 0, &all);
    assert_eq!(conn.tools().count(), 1);
}

// spec: OSW-4.2-2
#[test]
fn two_tools_of_one_size_fit_into_twice_the_bytes_that_one_needs() {
    let taken = |names: &[&str], bytes: usize| {
        // A quarter of the share of tools, which is a quarter of all.
        let limits = Limits::default()
            .with_max_frame_bytes(1 << 20)
            .with_max_agent_bytes(16 * bytes);
        let mut conn = new_core(Config::default().with_limits(limits));
        tell_core(&mut conn, 0, &hello());
        let long = |name: &&str| {
            let mut tool = tool(name);
            tool["description"] = json!("x".repeat(450_000));
            tool
        };
        let tools: Vec<_> = names.iter().map(long).collect();
        tell_core(
            &mut conn,
            0,
            &message("agent.tools.register", json!({"tools": tools})),
        );
        conn.tools().count()
    };
    let needs = (450_000..)
        .find(|bytes| taken(&["a"], *bytes) == 1)
        .unwrap();
    assert_eq!(taken(&["a", "b"], 2 * needs), 2);
    assert_eq!(taken(&["a", "b"], 2 * needs - 1), 1);
}

#[test]
fn compiling_schemas_has_a_rate_and_the_same_tools_again_compile_nothing() {
    let with_schema = |n: usize| {
        let mut tool = tool("schemed");
        tool["input_schema"] = json!({"title": format!("{n:>60000}")});
        message(
            "agent.tools.register",
            json!({"tools": [tool], "replace": true}),
        )
    };
    let is_change = |event: &Event| matches!(event, Event::ToolsChanged);
    let mut conn = open_core(Config::default());
    for n in 0..100 {
        let said = tell_core(&mut conn, 0, &with_schema(0));
        assert_eq!(said.events.iter().any(is_change), n == 0, "time {n}");
        assert_eq!(
            said.sent[0]["payload"]["registered"],
            json!([format!("{AGENT}/schemed")])
        );
    }
    let mut conn = open_core(Config::default());
    let until_throttled = (0..100).take_while(|n| {
        let said = tell_core(&mut conn, 0, &with_schema(*n));
        assert!(said.events.iter().any(is_change));
        conn.accepts_input()
    });
    assert_eq!(
        until_throttled.count(),
        if cfg!(feature = "schema") { 13 } else { 15 },
        "60 KB and nine times that for the schema, of 8 MiB; eight times where nothing is compiled"
    );
}

/// A schema of a few hundred bytes whose pattern is read again for each of its classes.
#[cfg(feature = "schema")]
fn dear(name: &str, title: usize) -> Value {
    let mut tool = tool(name);
    tool["input_schema"] = json!({"title": title.to_string(), "pattern": "\\w".repeat(180)});
    tool
}

// spec: OSW-4.2-3
#[cfg(feature = "schema")]
#[test]
fn short_schemas_that_are_dear_to_compile_have_a_rate() {
    let mut conn = open_core(Config::default());
    let until_throttled = (0..1_000).take_while(|n| {
        let tools = json!({"tools": [dear("dear", *n)], "replace": true});
        tell_core(&mut conn, 0, &message("agent.tools.register", tools));
        assert_eq!(conn.tools().count(), 1);
        conn.accepts_input()
    });
    let count = until_throttled.count();
    assert!((8..24).contains(&count), "{count}");
}

// spec: OSW-4.2-2
#[cfg(feature = "schema")]
#[test]
fn a_registration_has_no_more_schemas_compiled_than_it_may() {
    let mut conn = open_core(Config::default());
    let tools: Vec<_> = (0..100).map(|n| dear(&format!("t{n:02}"), n)).collect();
    let register = message("agent.tools.register", json!({"tools": tools}));
    let said = tell_core(&mut conn, 0, &register);
    let registered = conn.tools().count() - 2;
    assert!((16..48).contains(&registered), "{registered}");
    let rejected = said.sent[0]["payload"]["rejected"].as_array().unwrap();
    assert_eq!(rejected.len(), 100 - registered);
    for rejected in rejected {
        let error = &rejected["error"];
        assert_eq!(error["code"], "tool.invalid_schema");
        let why = error["message"].as_str().unwrap();
        assert!(why.contains("cost as much"), "{why}");
    }
    // The agent pays for it, and may come back with the others.
    assert!(!conn.accepts_input());
    conn.handle_timeout(at(120_000));
    tell_core(&mut conn, 120_000, &register);
    assert!(conn.tools().count() - 2 > registered);
}

// spec: OSW-4.2-4
// spec: OSW-4.2-5
// spec: OSW-4.2-6
#[test]
fn tools_are_added_replaced_and_withdrawn_while_calls_go_on() {
    let mut conn = open_core(Config::default());
    let id = started(&mut conn, 0);
    let mut rich = tool("rich");
    rich["tags"] = json!(["x"]);
    rich["side_effects"] = json!(true);
    tell_core(
        &mut conn,
        0,
        &message("agent.tools.register", json!({"tools": [rich]})),
    );
    assert_eq!(conn.tools().count(), 3);
    let kept = conn.tools().find(|tool| tool.name == "rich").unwrap();
    assert_eq!(
        (kept.side_effects, kept.tags.as_deref()),
        (Some(true), Some(&["x".to_owned()][..]))
    );
    tell_core(
        &mut conn,
        0,
        &message(
            "agent.tools.register",
            json!({"tools": [7], "replace": true}),
        ),
    );
    assert_eq!(conn.tools().count(), 0);
    let missing = conn.call_tool(at(0), request("echo")).unwrap_err();
    assert!(
        missing.to_string().starts_with("no such tool: \""),
        "{missing}"
    );
    tell_core(
        &mut conn,
        0,
        &message("agent.tools.register", json!({"tools": [tool("z")]})),
    );
    let ids = json!({"tool_ids": [format!("{AGENT}/z"), "none"]});
    let said = tell_core(&mut conn, 0, &message("agent.tools.unregister", ids));
    assert_eq!(
        said.sent[0]["payload"],
        json!({"tool_ids": [format!("{AGENT}/z")]})
    );
    assert_eq!(said.events, [Event::ToolsChanged]);
    assert_eq!(
        tell_core(&mut conn, 0, &result(&id, "succeeded")).ended(),
        ["succeeded"]
    );
}
