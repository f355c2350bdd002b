//! SACP: first repairs end within as many rounds as there were findings, make up no value and widen nothing.

use arbitrary::{Result, Unstructured};
use sacp::AnyMessage;
use sacp::check::Config;
use serde_json::{Value, json};

#[path = "../../sacp/tests/it/converge.rs"]
mod converge;

/// The bytes choose a message of faults that a check can find, and whether there is a registry.
pub fn check(bytes: &[u8]) {
    /// Findings of a plan whose repairs are applied one by one.
    const MOST: usize = 64;
    let mut source = Unstructured::new(bytes);
    let Ok((message, with_registry)) = drawn(&mut source) else {
        return;
    };
    // Some of what is drawn is no message: a cycle, or a step of that name twice.
    let Ok((message, _)) = AnyMessage::decode(message.to_string().as_bytes()) else {
        return;
    };
    let library = converge::library();
    let (registry, words): (Option<&dyn sacp::registry::Registry>, &[&str]) = if with_registry {
        (Some(&library), &converge::WORDS)
    } else {
        (None, &[])
    };
    let config = Config::default().with_max_fan_out(3);
    if let Err(what) = converge::judge(&message, registry, words, &config, MOST) {
        panic!("{what}");
    }
}

fn drawn(u: &mut Unstructured<'_>) -> Result<(Value, bool)> {
    let is_new: bool = u.arbitrary()?;
    let message = if is_new { new(u)? } else { old(u, 0)? };
    Ok((message, u.ratio(7, 8)?))
}

const VERBS: [&str; 11] = [
    "search",
    "s",
    "count",
    "rank",
    "show",
    "merge",
    "idle",
    "serch",
    "join",
    "define",
    "s\u{435}arch",
];
const TOOLS: [&str; 9] = [
    "H_API",
    "H_API2",
    "RANK",
    "PRES",
    "MERGE",
    "NOBODY",
    "H_APJ",
    "R\u{410}NK",
    "A",
];
const NAMES: [&str; 15] = [
    "city",
    "citi",
    "p_max",
    "budget",
    "bdg",
    "hotels",
    "hotel",
    "items",
    "of",
    "out_fmt",
    "tool",
    "verbs",
    "lang",
    "forbidden",
    "forbidden_tools",
];

fn value(u: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match u.int_in_range(0..=9)? {
        0 => json!(u.int_in_range(-9..=400)?),
        1 => json!(u.int_in_range(0..=400)?.to_string()),
        2 => json!(null),
        3 => json!([]),
        4 => json!({}),
        5 => json!("human"),
        6 => json!([*u.choose(&TOOLS)?, *u.choose(&VERBS)?]),
        7 => json!([*u.choose(&VERBS)?, 7]),
        8 => json!(*u.choose(&TOOLS)?),
        _ => json!(*u.choose(&["P", "1e2", "[7]", "{}", "true", " 5 ", "", "\"x\"", "100.5"])?),
    })
}

fn object(u: &mut Unstructured<'_>) -> Result<Value> {
    let mut object = json!({});
    for _ in 0..u.int_in_range(0..=4)? {
        object[*u.choose(&NAMES)?] = value(u)?;
    }
    Ok(object)
}

fn old(u: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    let mut message = json!({"g": "G", "ctx": object(u)?});
    let mut plan = Vec::new();
    for _ in 0..u.int_in_range(0..=5)? {
        let item = item(u, depth, 0)?;
        let joined = item.is_object() && u.arbitrary()?;
        plan.push(item);
        if joined {
            plan.push(json!(["join", *u.choose(&TOOLS)?, {}]));
        }
    }
    message["plan"] = plan.into();
    if u.ratio(1, 3)? {
        message["out_fmt"] = json!(*u.choose(&["human", "raw", "summary"])?);
    }
    if depth < 2 && u.ratio(1, 6)? {
        message["subtask"] = old(u, depth + 1)?;
    }
    Ok(message)
}

fn item(u: &mut Unstructured<'_>, depth: usize, groups: usize) -> Result<Value> {
    if groups < 3 && u.ratio(1, 4)? {
        let members = (0..u.int_in_range(1..=5)?).map(|_| item(u, depth, groups + 1));
        return Ok(json!({"parallel": members.collect::<Result<Vec<_>>>()?}));
    }
    let mut params = object(u)?;
    if depth < 2 && u.ratio(1, 8)? {
        params["subtask"] = old(u, depth + 1)?;
    }
    Ok(json!([*u.choose(&VERBS)?, *u.choose(&TOOLS)?, params]))
}

fn new(u: &mut Unstructured<'_>) -> Result<Value> {
    let count = u.int_in_range(1..=8_usize)?;
    let mut steps = Vec::new();
    for n in 0..count {
        let (verb, tool) = (*u.choose(&VERBS)?, *u.choose(&TOOLS)?);
        let mut after: Vec<usize> = Vec::new();
        for _ in 0..u.int_in_range(0..=2)? {
            let one = u.int_in_range(0..=count)?;
            if one < n && !after.contains(&one) {
                after.push(one);
            }
        }
        let after: Vec<String> = after.iter().map(|n| format!("s{n}")).collect();
        let mut step =
            json!({"id": format!("s{n}"), "verb": verb, "tool": tool, "params": object(u)?});
        if !after.is_empty() {
            step["depends_on"] = json!(after);
        }
        if u.ratio(1, 3)? {
            step["output_key"] = json!(*u.choose(&["k", "s0", "s2", "out1_1", "hotels", "out"])?);
        }
        if u.ratio(1, 4)? {
            step["on_error"] = json!("fallback");
            step["fallback_step"] = json!(format!("s{}", u.int_in_range(0..=count)?));
        }
        steps.push(step);
    }
    let mut message = json!({"proto_ver": "1.0.0", "msg_id": "m", "ts": "2025-10-01T12:00:00Z",
        "sender": "p", "g": "G", "state": "PENDING", "plan": steps, "ctx": object(u)?});
    if u.ratio(1, 3)? {
        message["out_fmt"] = json!(*u.choose(&["human", "raw", "summary"])?);
    }
    Ok(message)
}
