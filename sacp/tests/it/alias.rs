//! Short and long names.

use proptest::prelude::*;
use sacp::{AliasError, AliasTable, AnyMessage};
use serde_json::{Value, json};

fn read(message: &Value) -> AnyMessage {
    AnyMessage::decode(message.to_string().as_bytes())
        .unwrap()
        .0
}

/// A message of 1.0 with this context and these steps: id, verb and parameters of each.
fn new(ctx: &Value, steps: &[(&str, &str, Value)]) -> Value {
    let step = |(id, verb, params): &(&str, &str, Value)| json!({"id": id, "verb": verb, "tool": "T", "params": params});
    let plan: Vec<Value> = steps.iter().map(step).collect();
    json!({"proto_ver": "1.0.0", "msg_id": "m", "ts": "2025-10-01T12:00:00Z", "sender": "bdg", "g": "loc", "plan": plan,
        "state": "PENDING", "ctx": ctx, "ext": {"x.bdg": {"bdg": 1}}})
}

fn value(message: &AnyMessage) -> Value {
    serde_json::from_slice(&message.encode()).unwrap()
}

// spec: SACP-1-1
#[test]
fn keys_are_respelled_at_every_depth_and_nothing_else() {
    let short = json!({"msg_id": "bdg", "g": "loc", "state": "PENDING", "ctx": {"bdg": 150, "deep": [{"am": ["am"]}], "in": "loc"},
        "plan": [["s", "bdg", {"c": "Paris", "p_max": 150}], ["r", "RANK", {"c": ["p"], "x": {"loc": 1}}],
            {"parallel": [["other", "T", {"c": 1, "subtask": {"g": "S", "ctx": {"loc": 2}, "plan": [["p", "T", {"n": 5}]]}, "bdg": 1}]]}],
        "subtask": {"g": "S", "plan": [["r", "T", {"c": 1}]]}, "bdg": {"bdg": 1}});
    let long = json!({"msg_id": "bdg", "g": "loc", "state": "PENDING", "ctx": {"budget": 150, "deep": [{"amenities": ["am"]}], "in": "loc"},
        "plan": [["s", "bdg", {"city": "Paris", "price_max": 150}], ["r", "RANK", {"criteria": ["p"], "x": {"location": 1}}],
            {"parallel": [["other", "T", {"c": 1, "subtask": {"g": "S", "ctx": {"location": 2}, "plan": [["p", "T", {"count": 5}]]}, "budget": 1}]]}],
        "subtask": {"g": "S", "plan": [["r", "T", {"criteria": 1}]]}, "bdg": {"bdg": 1}});
    let table = AliasTable::default();
    let expanded = table.expand(&read(&short)).unwrap();
    assert_eq!(value(&expanded), long);
    assert_eq!(value(&table.compact(&expanded).unwrap()), short);
    // A subtask stays in its place among the other parameters.
    let step = json!(["other", "T", {"opts": {"loc": 1}, "subtask": {"g": "S", "plan": []}}]);
    let text = json!({"g": "G", "state": "PENDING", "plan": [step]});
    let text = String::from_utf8(table.expand(&read(&text)).unwrap().encode()).unwrap();
    assert!(
        text.find("opts").unwrap() < text.find("subtask").unwrap(),
        "{text}"
    );
}

// spec: SACP-1-1
#[test]
fn a_message_of_1_0_is_respelled_by_the_verbs_of_its_steps() {
    // 1.0 has no subtasks, so that this one is a parameter like any other.
    let inner = |loc: &str| json!({"subtask": {"g": "S", "plan": [["s", "T", {"c": {loc: 1}}]]}});
    let short = new(
        &json!({"bdg": 150, "deep": [{"am": ["am"]}]}),
        &[
            ("c", "s", json!({"c": "Paris", "p_max": 150})),
            ("n", "r", json!({"c": ["p"]})),
            ("i", "other", inner("loc")),
        ],
    );
    let long = new(
        &json!({"budget": 150, "deep": [{"amenities": ["am"]}]}),
        &[
            ("c", "s", json!({"city": "Paris", "price_max": 150})),
            ("n", "r", json!({"criteria": ["p"]})),
            ("i", "other", inner("location")),
        ],
    );
    let table = AliasTable::default();
    let expanded = table.expand(&read(&short)).unwrap();
    assert_eq!(value(&expanded), long);
    assert_eq!(value(&table.compact(&expanded).unwrap()), short);
    let both = new(&json!({}), &[("a", "s", json!({"x": {"c": 1, "city": 2}}))]);
    let refused = table.expand(&read(&both)).unwrap_err();
    assert!(
        matches!(&refused, AliasError::BothSpellings { pointer, .. } if pointer == "/plan/0/params/x"),
        "{refused}"
    );
    let mut raw = short;
    raw["out_fmt"] = json!("raw");
    let compact = table.encode_compact(&read(&raw)).unwrap();
    assert!(!String::from_utf8(compact).unwrap().contains("out_fmt"));
}

// spec: SACP-1-1
#[test]
fn both_spellings_in_one_object_are_an_error() {
    let table = AliasTable::default();
    let both = read(&json!({"g": "G", "ctx": {"a": {"bdg": 1, "budget": 2}}, "plan": []}));
    let wanted = AliasError::BothSpellings {
        pointer: "/ctx/a".into(),
        short: "bdg".into(),
        long: "budget".into(),
    };
    assert_eq!(table.expand(&both).unwrap_err(), wanted);
    assert_eq!(table.compact(&both).unwrap_err(), wanted);
    // The table says which one is short, not their lengths.
    for (short, long) in [("ab", "cd"), ("abc", "d")] {
        let table = format!(r#"{{"version":"2","keys":{{"{short}":"{long}"}}}}"#);
        let table: AliasTable = table.parse().unwrap();
        let both = read(&json!({"g": "G", "ctx": {short: 1, long: 2}, "plan": []}));
        let wanted = AliasError::BothSpellings {
            pointer: "/ctx".into(),
            short: short.into(),
            long: long.into(),
        };
        assert_eq!(table.expand(&both).unwrap_err(), wanted);
        assert_eq!(table.compact(&both).unwrap_err(), wanted);
    }
}

// spec: SACP-1-1
#[test]
fn tables_are_read_written_and_refused_where_they_collide() {
    let table = AliasTable::default();
    assert_eq!(table.to_string().parse::<AliasTable>().unwrap(), table);
    let plain = r#"{"version":"2","keys":{"a":"alpha"}}"#;
    assert_eq!(plain.parse::<AliasTable>().unwrap().to_string(), plain);
    for bad in [
        r#"{"version":"2","keys":{"a":"alpha","b":"alpha"}}"#,
        r#"{"version":"2","keys":{"a":"b","b":"c"}}"#,
        r#"{"version":"2","keys":{"a":"a"}}"#,
        r#"{"version":"2","keys":{"":"a"}}"#,
        r#"{"version":"2","keys":{"a":"alpha"},"verbs":{"v":{"b":"alpha"}}}"#,
        r#"{"version":"2","keys":{"a":1}}"#,
        r#"{"keys":{}}"#,
    ] {
        assert!(bad.parse::<AliasTable>().is_err(), "{bad}");
    }
    let own = table.clone().with_verb("v", "bdg", "badge").unwrap();
    assert_ne!(own, table);
    let other = AliasTable::new("9").with("q", "quantity").unwrap();
    let agreed = table.agree(&other).unwrap();
    assert_eq!(
        (
            agreed.to_string().contains(r#""version":"1""#),
            agreed.agree(&other).unwrap() == agreed
        ),
        (true, true)
    );
    // Names for one verb are agreed on as well.
    let other = AliasTable::new("9").with_verb("v", "q", "quantity");
    let agreed = table.agree(&other.unwrap()).unwrap();
    let act = |name: &str| read(&json!({"g": "G", "plan": [["v", "T", {name: 1}]]}));
    assert_eq!(agreed.expand(&act("q")).unwrap(), act("quantity"));
    let clash = AliasTable::new("9").with("bdg", "badge").unwrap();
    assert!(matches!(
        table.agree(&clash),
        Err(AliasError::Collision { .. })
    ));
}

// spec: SACP-1-2
#[test]
fn the_compact_form_has_short_keys_and_no_raw() {
    let message = read(
        &json!({"g": "G", "ctx": {"budget": 1}, "plan": [["rank", "T", {"criteria": [1, 2]}]], "out_fmt": "raw"}),
    );
    let compact = AliasTable::default().encode_compact(&message).unwrap();
    assert_eq!(
        compact,
        br#"{"g":"G","ctx":{"bdg":1},"plan":[["rank","T",{"c":[1,2]}]]}"#
    );
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(1)), Just(json!("bdg")), Just(json!(null))];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let keys = prop::sample::select(vec![
            "bdg", "budget", "c", "city", "criteria", "n", "count", "loc", "x",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::vec((keys, inner), 0..4).prop_map(|members| Value::Object(
                members
                    .into_iter()
                    .map(|(k, v)| (k.to_owned(), v))
                    .collect()
            )),
        ]
    })
}

proptest! {
    // spec: SACP-1-1
    #[test]
    fn expanding_and_compacting_are_each_others_reverse(ctx in tree(), params in tree(), verb in "[srpx]") {
        let object = |v: Value| if v.is_object() { v } else { json!({"x": v}) };
        let (ctx, params) = (object(ctx), object(params));
        let old = json!({"g": "G", "ctx": ctx, "plan": [[verb, "T", params]]});
        let table = AliasTable::default();
        for message in [old, new(&ctx, &[("a", &verb, params)])] {
            let message = read(&message);
            let (Ok(long), Ok(short)) = (table.expand(&message), table.compact(&message)) else {
                prop_assert!(table.expand(&message).is_err() && table.compact(&message).is_err());
                continue;
            };
            prop_assert_eq!(&table.expand(&short).unwrap(), &long);
            prop_assert_eq!(&table.compact(&long).unwrap(), &short);
            prop_assert_eq!(&table.expand(&long).unwrap(), &long);
            prop_assert_eq!(&table.compact(&short).unwrap(), &short);
        }
    }
}
