//! From 1.0 to 0.1.

use std::collections::{BTreeMap, BTreeSet};

use ubos_common::json::{self, Limits, RawBuf, Read as _, Reader};
use ubos_common::violation::{Level, Profile, Report};

use super::super::code::Code;
use super::super::message::Message;
use super::super::outcome::Outcome;
use super::super::state::State;
use super::super::step::Step;
use super::super::trace::Ext;
use super::{ConvertError, ext, lose};
use crate::graph::{Graph, OnError};
use crate::message::{self, NonEmpty};
use crate::plan::{Act, Item, Plan};
use crate::reply::ErrReply;

/// A message of 1.0, converted to 0.1.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Down {
    /// The message; for an error, in state FAILED.
    pub message: message::Message,
    /// The error, if the message has failed.
    pub error: Option<ErrReply>,
    /// What was dropped.
    pub losses: Report,
}

/// The same message in 0.1.
///
/// # Errors
///
/// Something that 0.1 cannot express, with the strict profile; with either profile, a join without a step before it.
///
/// Spec: SACP 1.0, 15
// impl: SACP1-15-1
pub fn down(new: &Message, profile: Profile) -> Result<Down, ConvertError> {
    let mut losses = Report::default();
    let level = match profile {
        Profile::Lenient => Level::Advice,
        _ => Level::Must,
    };
    for (n, step) in new.plan.iter().enumerate() {
        lose_policy(&mut losses, n, step, level);
    }
    let plan = plan(&Graph::from(new), level, &mut losses);
    lose_envelope(&mut losses, new);
    if !losses.is_valid() {
        return Err(ConvertError::Lossy(losses));
    }
    let none = Ext::default();
    let ext = new.ext.as_ref().unwrap_or(&none);
    let goal = text(ext, ext::GOAL).filter(|goal| !goal.is_empty());
    let goal = goal.unwrap_or_else(|| new.g.to_string());
    let mut old = message::Message::new(goal, plan);
    let restored = |key, id: &str| text(ext, key).or_else(|| Some(id.to_owned()));
    old.msg_id = restored(ext::MSG_ID, &new.msg_id).and_then(NonEmpty::new);
    let reply_to = new.reply_to.as_ref();
    old.reply_to = reply_to
        .and_then(|id| restored(ext::REPLY_TO, id))
        .and_then(NonEmpty::new);
    old.context.clone_from(&new.ctx);
    old.out_fmt.clone_from(&new.out_fmt);
    old.state = Some(state(&new.state));
    if new.test_mode == Some(true) {
        old.set_context("test_mode", yes());
    }
    if let Some(result) = &new.result {
        old.set_context("result", result_of(result));
    }
    restore(&mut old, ext);
    let error = new.error.as_ref().map(|error| {
        let mut reply = ErrReply::new(code_of(&error.code), &*error.message);
        reply.reply_to = old.reply_to.as_deref().map(str::to_owned);
        reply
    });
    Ok(Down {
        message: old,
        error,
        losses,
    })
}

/// The members of a step that 0.1 cannot express.
fn lose_policy(losses: &mut Report, n: usize, step: &Step, level: Level) {
    use super::super::step::OnError as Written;
    let retried = step.retry.as_ref();
    let members = [
        ("timeout_ms", step.timeout_ms.is_some()),
        (
            "retry",
            retried.is_some_and(|r| u64::from(r.max_attempts) > 1),
        ),
        (
            "on_error",
            matches!(step.on_error, Some(Written::Continue | Written::Fallback)),
        ),
        ("output_key", step.output_key.is_some()),
    ];
    for (member, is_there) in members {
        if is_there {
            let pointer = format!("/plan/{n}/{member}");
            lose(losses, pointer, level, "0.1 has no word for it");
        }
    }
}

fn lose_envelope(losses: &mut Report, new: &Message) {
    let foreign = |ext: &Ext| ext.into_iter().any(|(name, _)| !name.starts_with("sacp."));
    let members = [
        ("recipient", new.recipient.is_some()),
        ("trace", new.trace.is_some()),
        ("ext", new.ext.as_ref().is_some_and(foreign)),
        (
            "state",
            matches!(
                new.state,
                State::Accepted | State::Waiting | State::Cancelled
            ),
        ),
    ];
    for (member, is_there) in members {
        if is_there {
            let pointer = format!("/{member}");
            lose(losses, pointer, Level::Advice, "0.1 has no place for it");
        }
    }
}

/// The steps as acts and groups if they form layers, else as a sequence.
fn plan(graph: &Graph, level: Level, losses: &mut Report) -> Plan {
    // Fallback steps are not part of a plan of 0.1.
    let runs: BTreeSet<usize> = graph
        .steps()
        .iter()
        .filter(|step| step.policy.replaces.is_none())
        .map(|step| step.number)
        .collect();
    for step in graph.steps() {
        if let (Some(OnError::Fallback(_)), Some(pointer)) =
            (step.policy.on_error, Some(&step.pointer))
        {
            let what = "the step that takes its place is dropped";
            lose(losses, format!("{pointer}/fallback_step"), level, what);
        }
    }
    let after: BTreeMap<usize, Vec<usize>> = runs
        .iter()
        .filter_map(|n| graph.step(*n))
        .map(|step| {
            let known = step.after.iter().copied().filter(|n| runs.contains(n));
            (step.number, known.collect())
        })
        .collect();
    let layers = layers(&after);
    if stand_in_layers(&layers, &after) {
        return from_layers(graph, &layers, losses);
    }
    let what = "steps that 0.1 can only say as a sequence";
    lose(losses, "/plan", level, what);
    let sequence: Vec<Vec<usize>> = layers.into_iter().flatten().map(|n| vec![n]).collect();
    from_layers(graph, &sequence, losses)
}

/// The steps by the length of the longest path to them, each layer in document order.
fn layers(after: &BTreeMap<usize, Vec<usize>>) -> Vec<Vec<usize>> {
    let mut waiting: BTreeMap<usize, usize> =
        after.iter().map(|(n, list)| (*n, list.len())).collect();
    let mut followers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (n, list) in after {
        for before in list {
            followers.entry(*before).or_default().push(*n);
        }
    }
    let mut layer: Vec<usize> = waiting
        .iter()
        .filter(|(_, count)| **count == 0)
        .map(|(n, _)| *n)
        .collect();
    let mut layers = Vec::new();
    while !layer.is_empty() {
        let mut next = Vec::new();
        for follower in layer.iter().filter_map(|n| followers.get(n)).flatten() {
            let Some(count) = waiting.get_mut(follower) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                next.push(*follower);
            }
        }
        next.sort_unstable();
        layers.push(core::mem::replace(&mut layer, next));
    }
    layers
}

/// Whether each step waits for all of the layer before its own.
fn stand_in_layers(layers: &[Vec<usize>], after: &BTreeMap<usize, Vec<usize>>) -> bool {
    layers.windows(2).all(|pair| {
        let [before, layer] = pair else { return true };
        layer.iter().all(|n| {
            let known: BTreeSet<&usize> = after.get(n).into_iter().flatten().collect();
            before.iter().all(|b| known.contains(b))
        })
    })
}

fn from_layers(graph: &Graph, layers: &[Vec<usize>], losses: &mut Report) -> Plan {
    let mut plan = Plan::default();
    for (n, layer) in layers.iter().enumerate() {
        let acts: Vec<Act> = layer
            .iter()
            .filter_map(|number| graph.step(*number))
            .map(|step| step.act.clone())
            .collect();
        // A join needs a group before it, also if the group has one member.
        let lone = acts.iter().any(Act::is_join) && (n == 0 || acts.len() > 1);
        if lone {
            let first = layer.first().and_then(|number| graph.step(*number));
            let pointer = first.map(|step| step.pointer.clone()).unwrap_or_default();
            lose(
                losses,
                pointer,
                Level::Must,
                "a join that no group can stand before",
            );
        }
        let next = layers.get(n + 1);
        let join_follows = next.is_some_and(|next| {
            let mut steps = next.iter().filter_map(|number| graph.step(*number));
            steps.any(|step| step.act.is_join())
        });
        let is_join = acts.first().is_some_and(Act::is_join);
        match acts.as_slice() {
            [one] if !join_follows || is_join => plan.push(one.clone()),
            _ => plan.push(Item::group(acts)),
        }
        if is_join && join_follows {
            lose(
                losses,
                "/plan",
                Level::Must,
                "a join that directly follows a join",
            );
        }
    }
    plan
}

const fn state(new: &State) -> message::State {
    match new {
        State::InProgress | State::Waiting => message::State::InProgress,
        State::Done => message::State::Done,
        State::Failed | State::Cancelled => message::State::Failed,
        _ => message::State::Pending,
    }
}

fn code_of(code: &Code) -> crate::Code {
    use crate::Code as Old;
    match code {
        Code::UnsupportedVersion => Old::UnsupportedVersion,
        Code::MalformedMessage => Old::MalformedMessage,
        Code::InvalidStateTransition => Old::InvalidState,
        Code::UnknownVerb => Old::UnknownVerb,
        Code::UnknownTool => Old::UnknownTool,
        Code::ToolInvocationFailed
        | Code::Timeout
        | Code::DependencyFailed
        | Code::Cancelled
        | Code::RateLimited
        | Code::AuthzDenied => Old::StepFailed,
        Code::InternalError | Code::Other(_) => Old::InternalError,
    }
}

/// A result with the only output `result` becomes that output; any other is kept whole.
fn result_of(result: &Outcome) -> RawBuf {
    let alone =
        result.summary.is_none() && result.step_results.is_none() && result.extra.is_empty();
    let one = result
        .outputs
        .get("result")
        .filter(|_| alone && result.outputs.len() == 1);
    // An output that looks like a whole result would be read as one on the way back.
    let limits = Limits::default();
    let plain = one.filter(|value| {
        json::read_raw::<Outcome>(value.as_raw(), &limits, Profile::Strict).is_err()
    });
    match plain {
        Some(value) => value.clone(),
        None => {
            RawBuf::parse(&json::to_string(result)).unwrap_or_else(|_| json::Raw::NULL.to_owned())
        }
    }
}

fn yes() -> RawBuf {
    RawBuf::parse("true").unwrap_or_else(|_| json::Raw::NULL.to_owned())
}

fn text(ext: &Ext, key: &str) -> Option<String> {
    ext.value(key)?.deserialize().ok()
}

/// Puts back what [`up`](super::up) kept in extensions.
fn restore(old: &mut message::Message, ext: &Ext) {
    let limits = Limits::default();
    if let Some(value) = ext.value(ext::SUBTASK)
        && let Ok((nested, _)) =
            json::read_raw::<message::Message>(value.as_raw(), &limits, Profile::Strict)
    {
        old.subtask = Some(Box::new(nested));
    }
    let Some(value) = ext.value(ext::EXTRA) else {
        return;
    };
    let mut reader = Reader::of_raw(value.as_raw(), &limits, Profile::Strict);
    // `up` writes objects only: anything else stays an extension.
    let _ = reader.object(|reader, name| {
        let value = RawBuf::read(reader)?;
        if !KNOWN.contains(&name.as_ref()) {
            old.extra.insert(name.clone().into_owned(), value);
        }
        Ok(())
    });
}

/// Members of 0.1: an extension must not duplicate one.
const KNOWN: [&str; 10] = [
    "msg_id",
    "reply_to",
    "g",
    "ctx",
    "plan",
    "out_fmt",
    "state",
    "proto_ver",
    "subtask",
    "test_mode",
];
