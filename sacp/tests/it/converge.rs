//! Judges a plan that was mended: by the texts of the two messages alone, without the check that made the repairs.

use std::collections::BTreeSet;

use sacp::AnyMessage;
use sacp::check::{Config, check_plan, mend, repair};
use sacp::registry::{AgentRecord, MemoryRegistry, Registry, ToolDef, VerbDef};
use serde_json::{Map, Value, json};
use ubos_common::json::{self as wire, Limits};
use ubos_common::violation::Profile;

/// Applies the first repair until there is none, and [`mend`]s the message, and judges what comes of it.
///
/// `words` are the verbs and tools of the registry. A message of more than `most` findings is only mended.
///
/// # Errors
///
/// A rule that does not hold, in words.
pub(crate) fn judge(
    before: &AnyMessage,
    registry: Option<&dyn Registry>,
    words: &[&str],
    config: &Config,
    most: usize,
) -> Result<(), String> {
    let check = |message: &AnyMessage| check_plan(message, registry, config);
    let mut findings = check(before);
    let (rounds, mut after, mut applied) = (findings.len(), before.clone(), Vec::new());
    let first = |findings: &[sacp::check::Finding]| {
        let mut repairs = findings.iter().flat_map(|finding| finding.repairs.first());
        repairs.next().cloned()
    };
    while let Some(change) = first(&findings).filter(|_| rounds <= most) {
        applied.push(change.to_string());
        if applied.len() > rounds {
            return Err(format!("{rounds} findings, and still repairs: {applied:?}"));
        }
        after = repair(&after, &change).map_err(|err| format!("{change}: {err}"))?;
        findings = check(&after);
    }
    let mended = mend(before.clone(), registry, config);
    if rounds <= most && first(&mended.findings).is_some() {
        return Err(format!("mended, and still repairs: {:?}", mended.repairs));
    }
    let again = |message, change| repair(&message, change);
    let again = mended.repairs.iter().try_fold(before.clone(), again);
    if again.as_ref() != Ok(&mended.message) {
        return Err(format!("others mend it: {:?}", mended.repairs));
    }
    for after in [&after, &mended.message] {
        let [old, new] = [before, after].map(|message| parsed(&message.encode()));
        nothing_is_made_up(&old, &new, words)
            .and_then(|()| nothing_is_widened(&old, &new, words))
            .map_err(|what| format!("{what}: {applied:?} made {new} of {old}"))?;
    }
    Ok(())
}

fn parsed(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_default()
}

/// Every text and number of a message, what stands in quotes as both.
fn values(value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| values(item, out)),
        Value::Object(members) => members.values().for_each(|member| values(member, out)),
        Value::String(text) => {
            let inner = serde_json::from_str(text).ok();
            inner
                .filter(|inner: &Value| !inner.is_string())
                .iter()
                .for_each(|inner| values(inner, out));
            out.insert(text.clone());
        }
        other => drop(out.insert(other.to_string())),
    }
}

/// What the message says after its repairs, it or the registry said before: names of outputs alone are new.
fn nothing_is_made_up(old: &Value, new: &Value, words: &[&str]) -> Result<(), String> {
    let (mut given, mut made) = (BTreeSet::new(), BTreeSet::new());
    values(old, &mut given);
    values(new, &mut made);
    given.extend(words.iter().map(|&word| word.to_owned()));
    given.extend(["join", "MERGE", "raw"].map(str::to_owned));
    let mut made_up = made
        .difference(&given)
        .filter(|text| !text.starts_with("out"));
    made_up
        .next()
        .map_or(Ok(()), |value| Err(format!("{value:?} is made up")))
}

/// What a message allows, and those around it.
#[derive(Clone, Default, Debug)]
struct Allowed {
    budget: Option<f64>,
    forbidden: BTreeSet<String>,
}

impl Allowed {
    fn within(mut self, context: Option<&Value>) -> Self {
        let member = |name: &&str| context.and_then(|context| context.get(*name));
        for value in ["budget", "bdg"].iter().filter_map(member) {
            let own = number(value);
            self.budget = self.budget.into_iter().chain(own).reduce(f64::min);
        }
        let names = ["forbidden_tools", "forbidden_verbs", "forbidden", "forbid"];
        for value in names.iter().filter_map(member) {
            let texts = match value {
                Value::Array(texts) => texts.iter().collect(),
                text => vec![text],
            };
            let texts = texts.into_iter().filter_map(Value::as_str);
            self.forbidden.extend(texts.map(str::to_owned));
        }
        self
    }
}

/// A number, or one in quotes.
fn number(value: &Value) -> Option<f64> {
    let quoted = value
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    value.as_f64().or_else(|| quoted?.as_f64())
}

/// A message as it stands in the document, with its acts and what holds for them.
struct Place<'a> {
    of: &'a Value,
    allowed: Allowed,
    acts: Vec<&'a Value>,
}

/// A message and those inside it, each behind the act that holds it.
fn places<'a>(message: &'a Value, above: &Allowed, out: &mut Vec<Place<'a>>) {
    let allowed = above.clone().within(message.get("ctx"));
    let (place, mut acts) = (out.len(), Vec::new());
    out.push(Place {
        of: message,
        allowed: allowed.clone(),
        acts: Vec::new(),
    });
    let is_old = message.get("sender").is_none();
    let mut open: Vec<&Value> = listed(&message["plan"]).rev().collect();
    while let Some(item) = open.pop() {
        if let Some(members) = item.get("parallel") {
            open.extend(listed(members).rev());
            continue;
        }
        acts.push(item);
        let inner = params(item).and_then(|params| params.get("subtask"));
        if let Some(inner) = inner.filter(|inner| is_old && inner.is_object()) {
            places(inner, &allowed, out);
        }
    }
    if let Some(inner) = message.get("subtask") {
        places(inner, &allowed, out);
    }
    out[place].acts = acts;
}

fn listed(list: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn params(act: &Value) -> Option<&Map<String, Value>> {
    act.get(2).or_else(|| act.get("params"))?.as_object()
}

fn nothing_is_widened(old: &Value, new: &Value, words: &[&str]) -> Result<(), String> {
    let [old, new] = [old, new].map(|message| {
        let mut messages = Vec::new();
        places(message, &Allowed::default(), &mut messages);
        messages
    });
    if new.len() != old.len() {
        return Err(format!("{} messages are {}", old.len(), new.len()));
    }
    for (old, new) in old.iter().zip(&new) {
        message_is_kept(old, new)?;
        let mut acts = old.acts.iter().peekable();
        for now in &new.acts {
            let is_joined = acts.peek().is_some_and(|act| is_join(act));
            if !is_joined && is_join(now) && params(now).is_some_and(Map::is_empty) {
                // A repair put it behind a group that had none.
                continue;
            }
            let act = acts.next().ok_or("an act is put in")?;
            act_is_kept(act, now, &new.allowed, words)?;
        }
        if acts.next().is_some() {
            return Err("an act is lost".into());
        }
    }
    Ok(())
}

fn is_join(act: &Value) -> bool {
    act.get(0).is_some_and(|verb| verb == "join")
}

fn message_is_kept(old: &Place<'_>, new: &Place<'_>) -> Result<(), String> {
    let spends = |allowed: &Allowed| allowed.budget.unwrap_or(f64::INFINITY);
    if spends(&new.allowed) > spends(&old.allowed) {
        return Err("a budget is raised".into());
    }
    if !new.allowed.forbidden.is_superset(&old.allowed.forbidden) {
        return Err("what was forbidden is not".into());
    }
    for name in ["g", "test_mode", "msg_id", "state", "sender", "recipient"] {
        if old.of.get(name) != new.of.get(name) {
            return Err(format!("{name} is changed"));
        }
    }
    let [old, new] = [old, new].map(|place| place.of.get("out_fmt"));
    if old != new && new.is_none_or(|form| form != "raw") {
        return Err("out_fmt is not as it was, nor raw".into());
    }
    Ok(())
}

fn act_is_kept(old: &Value, new: &Value, allowed: &Allowed, words: &[&str]) -> Result<(), String> {
    for (place, name) in [(0, "verb"), (1, "tool")] {
        let [old, now] = [old, new].map(|it| it.get(place).or_else(|| it.get(name)));
        let now = now.and_then(Value::as_str).unwrap_or_default();
        let is_same = old.and_then(Value::as_str) == Some(now);
        if !is_same && (!words.contains(&now) || allowed.forbidden.contains(now)) {
            return Err(format!("{name} {now:?} is put in"));
        }
    }
    for name in ["id", "timeout_ms", "retry", "on_error", "fallback_step"] {
        if old.get(name) != new.get(name) {
            return Err(format!("{name} of a step is changed"));
        }
    }
    let none = Map::new();
    let [before, after] = [old, new].map(|act| params(act).unwrap_or(&none));
    // What asks for prose in the middle of a plan may go; else a parameter may get another name.
    let count = |params: &Map<String, Value>| params.keys().filter(|it| *it != "out_fmt").count();
    if count(after) < count(before) {
        return Err("a parameter is lost".into());
    }
    for name in ["budget", "bdg"] {
        let spends = after.get(name).and_then(number);
        let is_over = spends
            .zip(allowed.budget)
            .is_some_and(|(own, most)| own > most);
        if after.get(name) != before.get(name) && is_over {
            return Err(format!("{name} of an act is above that of ctx"));
        }
    }
    Ok(())
}

/// The verbs and tools of the [`library`].
pub(crate) const WORDS: [&str; 13] = [
    "search", "s", "count", "rank", "show", "merge", "idle", "H_API", "H_API2", "RANK", "PRES",
    "MERGE", "NOBODY",
];

/// Verbs with inputs of many sorts, their tools, and one agent that serves most of them.
pub(crate) fn library() -> MemoryRegistry {
    let mut registry = MemoryRegistry::default();
    for verb in [
        json!({"name": "search", "description": "d", "aliases": ["s"], "outputs": {"hotels": "array"},
            "inputs": [{"name": "city", "type": "string"}, {"name": "p_max", "type": "number", "required": false}]}),
        json!({"name": "count", "description": "d", "outputs": {"hotels": "number"}, "inputs": ["of"]}),
        json!({"name": "rank", "description": "d", "outputs": "array", "inputs": [{"name": "hotels", "type": "array"}]}),
        json!({"name": "show", "description": "d", "outputs": "string", "inputs": [{"name": "items", "type": "array"}]}),
        json!({"name": "merge", "description": "d", "outputs": "any", "inputs": ["ctx.lang"]}),
        json!({"name": "idle", "description": "d", "outputs": "any", "inputs": []}),
    ] {
        registry.add_verb(read::<VerbDef>(&verb)).unwrap();
    }
    for (tool, verbs) in [
        ("H_API", json!(["search"])),
        ("H_API2", json!(["search", "count"])),
        ("RANK", json!(["rank"])),
        ("PRES", json!(["show"])),
        ("MERGE", json!(["join", "merge"])),
        ("NOBODY", json!(["idle"])),
    ] {
        let tool = json!({"id": tool, "description": "d", "supported_verbs": verbs});
        registry.add_tool(read::<ToolDef>(&tool)).unwrap();
    }
    let agent = json!({"agent_name": "ALL", "supported_verbs": ["search", "count", "rank", "show", "merge", "join"],
        "supported_tools": ["H_API", "H_API2", "RANK", "PRES", "MERGE"], "inputs": [], "outputs": [], "description": "d"});
    registry.add_agent(read::<AgentRecord>(&agent)).unwrap();
    registry
}

pub(crate) fn read<T: for<'a> wire::Read<'a>>(value: &Value) -> T {
    let text = value.to_string();
    wire::decode(text.as_bytes(), &Limits::default(), Profile::Strict)
        .unwrap()
        .0
}
