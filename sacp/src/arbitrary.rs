//! Generators: messages that are always valid, from whatever bytes.
//!
//! A message is drawn as a tree of words from a small dictionary, among them those that mean something to
//! the protocol, and read by the one parser.

use ::arbitrary::{Arbitrary, Error, Result, Unstructured};
use ubos_common::json;

use crate::any::AnyMessage;
use crate::message::{Message, OutFmt};
use crate::tree::Node;
use crate::v1;

/// Words that mean something somewhere, and some that are hard to write.
const WORDS: [&str; 24] = [
    "g",
    "ctx",
    "plan",
    "parallel",
    "subtask",
    "test_mode",
    "bdg",
    "budget",
    "c",
    "city",
    "search",
    "s",
    "fetch",
    "join",
    "MERGE",
    "H_API",
    "human",
    "150",
    "true",
    "",
    "a b",
    "\"\\",
    "\n|",
    "é\u{2028}🦀",
];

impl<'a> Arbitrary<'a> for Message {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let tree = message(u, 0)?;
        Self::decode(&json::to_vec(&tree)).map_err(|_| Error::IncorrectFormat)
    }
}

impl<'a> Arbitrary<'a> for v1::Message {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let tree = message_v1(u)?;
        Self::decode(&json::to_vec(&tree)).map_err(|_| Error::IncorrectFormat)
    }
}

impl<'a> Arbitrary<'a> for AnyMessage {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(if u.arbitrary()? {
            Message::arbitrary(u)?.into()
        } else {
            v1::Message::arbitrary(u)?.into()
        })
    }
}

fn word(u: &mut Unstructured<'_>) -> Result<&'static str> {
    u.choose(&WORDS).copied()
}

fn filled(u: &mut Unstructured<'_>) -> Result<Node> {
    let word = word(u)?;
    Ok(Node::text(if word.is_empty() { "x" } else { word }))
}

fn value(u: &mut Unstructured<'_>, depth: usize) -> Result<Node> {
    Ok(match u.int_in_range(0..=6)? {
        0 if depth < 3 => object(u, depth + 1)?,
        1 if depth < 3 => {
            let items = (0..u.int_in_range(0..=3)?).map(|_| value(u, depth + 1));
            Node::List(items.collect::<Result<_>>()?)
        }
        2 => Node::Plain(u.arbitrary::<i64>()?.to_string().into()),
        3 => Node::Plain((*u.choose(&["null", "true", "false", "1e3", "-0.5"])?).into()),
        _ => Node::text(word(u)?),
    })
}

/// An object of few members; one that would be a message is an ordinary one here.
fn object(u: &mut Unstructured<'_>, depth: usize) -> Result<Node> {
    let mut object = Node::Object(Vec::new());
    for _ in 0..u.int_in_range(0..=3)? {
        let name = word(u)?;
        if !matches!(name, "subtask" | "test_mode") {
            object.set(name, value(u, depth)?);
        }
    }
    Ok(object)
}

fn message(u: &mut Unstructured<'_>, depth: usize) -> Result<Node> {
    let mut message = Node::Object(Vec::new());
    message.set("g", filled(u)?);
    for name in ["msg_id", "reply_to"] {
        if u.arbitrary()? {
            message.set(name, filled(u)?);
        }
    }
    if u.arbitrary()? {
        message.set("ctx", object(u, 0)?);
    }
    let words: [(&str, &[&str]); 3] = [
        ("out_fmt", &["human", "raw", "summary"]),
        ("state", &["PENDING", "IN_PROGRESS", "DONE", "FAILED"]),
        ("proto_ver", &["0.1"]),
    ];
    for (name, words) in words {
        if u.arbitrary()? {
            message.set(name, Node::text(u.choose(words)?));
        }
    }
    if u.arbitrary()? {
        let test = if u.arbitrary()? { "true" } else { "false" };
        message.set("test_mode", Node::Plain(test.into()));
    }
    let mut items = Vec::new();
    for _ in 0..u.int_in_range(0..=4)? {
        let item = item(u, depth, 0)?;
        let is_group = item.member("parallel").is_some();
        items.push(item);
        if is_group && u.arbitrary()? {
            let join = [Node::text("join"), filled(u)?, object(u, 0)?];
            items.push(Node::List(join.into()));
        }
    }
    message.set("plan", Node::List(items));
    if depth < 2 && u.ratio(1, 8)? {
        message.set("subtask", self::message(u, depth + 1)?);
    }
    Ok(message)
}

fn item(u: &mut Unstructured<'_>, depth: usize, groups: usize) -> Result<Node> {
    if groups < 3 && u.ratio(1, 4)? {
        let members = (0..u.int_in_range(1..=3)?).map(|_| item(u, depth, groups + 1));
        let members = members.collect::<Result<_>>()?;
        return Ok(Node::Object(vec![(
            "parallel".to_owned(),
            Node::List(members),
        )]));
    }
    let verb = match filled(u)? {
        Node::Text(verb) if verb != "join" => verb,
        _ => "fetch".to_owned(),
    };
    let mut params = object(u, 0)?;
    if depth < 2 && u.ratio(1, 8)? {
        params.set("subtask", message(u, depth + 1)?);
    }
    Ok(Node::List(vec![Node::Text(verb), filled(u)?, params]))
}

fn message_v1(u: &mut Unstructured<'_>) -> Result<Node> {
    let mut message = Node::Object(Vec::new());
    let patch: u8 = u.arbitrary()?;
    message.set("proto_ver", Node::Text(format!("1.0.{patch}")));
    for name in ["msg_id", "sender"] {
        message.set(name, Node::Text(format!("{name}-{}", u.arbitrary::<u8>()?)));
    }
    message.set("ts", Node::text("2025-10-01T12:00:00Z"));
    for name in ["recipient", "reply_to"] {
        if u.arbitrary()? {
            message.set(name, Node::Text(format!("{name}-{}", u.arbitrary::<u8>()?)));
        }
    }
    message.set("g", filled(u)?);
    if u.arbitrary()? {
        message.set("ctx", object(u, 0)?);
    }
    if u.arbitrary()? {
        let test = if u.arbitrary()? { "true" } else { "false" };
        message.set("test_mode", Node::Plain(test.into()));
    }
    if u.arbitrary()? {
        message.set("out_fmt", Node::text(u.choose(OutFmt::WORDS)?));
    }
    if u.arbitrary()? {
        message.set("trace", trace(u)?);
    }
    message.set("plan", Node::List(steps(u)?));
    let state = *u.choose(v1::State::WORDS)?;
    message.set("state", Node::text(state));
    match state {
        "DONE" => {
            let outputs = object(u, 0)?;
            message.set(
                "result",
                Node::Object(vec![("outputs".to_owned(), outputs)]),
            );
        }
        "FAILED" => {
            let error = [("code", *u.choose(v1::Code::WORDS)?), ("message", "why")];
            let error = error.map(|(name, text)| (name.to_owned(), Node::text(text)));
            message.set("error", Node::Object(error.into()));
        }
        _ => {}
    }
    if u.arbitrary()? {
        let value = value(u, 0)?;
        message.set("ext", Node::Object(vec![("acme.x".to_owned(), value)]));
    }
    Ok(message)
}

fn trace(u: &mut Unstructured<'_>) -> Result<Node> {
    let mut trace = Node::Object(Vec::new());
    for name in ["trace_id", "span_id", "parent_span_id"] {
        if u.arbitrary()? {
            trace.set(name, Node::Text(format!("{}", u.arbitrary::<u8>()?)));
        }
    }
    if u.arbitrary()? {
        let tokens = Node::Plain(u.arbitrary::<u32>()?.to_string().into());
        trace.set(
            "metrics",
            Node::Object(vec![("tokens_in".to_owned(), tokens)]),
        );
    }
    Ok(trace)
}

/// At most six steps; a further one may stand for one of them that fails.
fn steps(u: &mut Unstructured<'_>) -> Result<Vec<Node>> {
    let count = u.int_in_range(1..=6)?;
    let steps = (0..count).map(|n| step(u, n));
    let mut steps: Vec<Node> = steps.collect::<Result<_>>()?;
    if u.ratio(1, 4)? {
        let falls = u.choose_index(count)?;
        if let Some(step) = steps.get_mut(falls) {
            step.set("on_error", Node::text("fallback"));
            step.set("fallback_step", Node::text("spare"));
        }
        let mut spare = step(u, 0)?;
        spare.set("id", Node::text("spare"));
        spare.set("output_key", Node::text("spare"));
        steps.push(spare);
    }
    Ok(steps)
}

/// A step that waits for earlier ones only.
fn step(u: &mut Unstructured<'_>, n: usize) -> Result<Node> {
    let mut step = Node::Object(Vec::new());
    step.set("id", Node::Text(format!("s{n}")));
    step.set("verb", filled(u)?);
    step.set("tool", filled(u)?);
    step.set("params", object(u, 0)?);
    let mut before = Vec::new();
    for earlier in 0..n {
        if u.arbitrary()? {
            before.push(Node::Text(format!("s{earlier}")));
        }
    }
    if !before.is_empty() {
        step.set("depends_on", Node::List(before));
    }
    if u.arbitrary()? {
        let millis: u16 = u.int_in_range(1..=60_000)?;
        step.set("timeout_ms", Node::Plain(millis.to_string().into()));
    }
    if u.arbitrary()? {
        let attempts = Node::Plain(u.int_in_range(1..=10)?.to_string().into());
        let mut retry = Node::Object(vec![("max_attempts".to_owned(), attempts)]);
        if u.arbitrary()? {
            let millis: u16 = u.arbitrary()?;
            retry.set("backoff_ms", Node::Plain(millis.to_string().into()));
            retry.set("strategy", Node::text(u.choose(&["fixed", "exponential"])?));
        }
        step.set("retry", retry);
    }
    if u.arbitrary()? {
        step.set(
            "on_error",
            Node::text(u.choose(&["fail_fast", "continue"])?),
        );
    }
    if u.arbitrary()? {
        step.set("output_key", Node::Text(format!("k{n}")));
    }
    Ok(step)
}
