//! Rules for cores: registrations.

use core::time::Duration;
use std::collections::BTreeSet;

use crate::osw::defaults::MAX_SCHEMA_BYTES;
use crate::osw::observed::{ObservedState, Registration, Tool};
use crate::osw::recording::{Line, RecordedMessage, SLACK};
use crate::osw::rule::RuleVerdict;
use opensentience_wire::ErrorCode;
use opensentience_wire::message::{Message, Registered, Side, is_tool_name};

/// The answer to a registration, and what it answers.
pub(super) fn registered<'a>(
    state: &'a ObservedState,
    line: &'a Line,
    me: Side,
) -> Option<(&'a Registration, &'a Registered)> {
    let message: &RecordedMessage = line.message_from(me)?;
    let Some(Message::Registered(reply)) = &message.content else {
        return None;
    };
    let (_, offer) = state.answered_registration(message)?;
    Some((offer, reply))
}

/// The code that a tool is rejected with; `None` where it is not.
pub(super) fn rejection<'a>(reply: &'a Registered, id: &str) -> Option<&'a ErrorCode> {
    let rejected = reply.rejected.iter().flatten();
    let mut of_id = rejected.filter(|rejected| rejected.tool_id == id);
    of_id.next().map(|rejected| &rejected.error.code)
}

/// Each registration is answered, and each of its tools is in the answer.
pub(super) fn lists_all(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if let Some((offer, reply)) = registered(state, line, me) {
        let rejected = reply.rejected.as_ref().map_or(0, Vec::len);
        let all = offer.tools.len() == reply.registered.len() + rejected;
        let known = |tool: &Tool| {
            reply.registered.contains(&tool.id) || rejection(reply, &tool.id).is_some()
        };
        let each = offer
            .tools
            .iter()
            .filter(|tool| !tool.id.is_empty())
            .all(known);
        verdict.check(all && each, "/payload", || {
            "not every tool is listed once".to_owned()
        });
    }
    let patience = if line.is_end_of(me) {
        Duration::from_millis(200)
    } else {
        SLACK
    };
    let late = |offer: &Registration| line.at > offer.at.saturating_add(patience);
    let welcomed = state.welcome.is_some() && state.has_ended(me).is_none();
    if welcomed && state.registrations.values().any(late) {
        verdict.broken("registration", "no answer");
    }
}

/// A tool whose id is not the agent's, a slash and its name is rejected alone.
pub(super) fn tool_ids(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some(launch) = &state.launch else { return };
    let Some((offer, reply)) = registered(state, line, me) else {
        return;
    };
    for tool in offer.tools.iter() {
        let Some(spec) = &tool.spec else { continue };
        let own = spec.tool_id.strip_prefix(launch.agent_id.as_str());
        let name = own.and_then(|rest| rest.strip_prefix('/'));
        if name == Some(spec.name.as_str()) && is_tool_name(&spec.name) {
            continue;
        }
        let code = rejection(reply, &tool.id);
        verdict.check(
            code == Some(&ErrorCode::ToolInvalidId),
            "/payload/rejected",
            || "a tool of a wrong id is not rejected as tool.invalid_id".to_owned(),
        );
    }
}

/// A tool that lacks a member, has no usable schema or a name that is taken is rejected alone.
pub(super) fn tool_members(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    let Some((offer, reply)) = registered(state, line, me) else {
        return;
    };
    let mut seen = BTreeSet::new();
    for tool in &offer.tools {
        let rejected = rejection(reply, &tool.id);
        let Some(spec) = &tool.spec else {
            verdict.check(rejected.is_some(), "/payload/rejected", || {
                "a tool without its members is not rejected".to_owned()
            });
            continue;
        };
        if opensentience_wire::check_schemas(spec, MAX_SCHEMA_BYTES).is_err() {
            let right = rejected == Some(&ErrorCode::ToolInvalidSchema);
            verdict.check(right, "/payload/rejected", || {
                "a schema that cannot be used is not rejected as tool.invalid_schema".to_owned()
            });
        } else if !seen.insert(&spec.tool_id) {
            let right = rejected == Some(&ErrorCode::ToolConflict);
            verdict.check(right, "/payload/rejected", || {
                "a name that is taken is not rejected as tool.conflict".to_owned()
            });
        } else if rejected.is_none() {
            verdict.kept();
        }
    }
}

/// `replace` drops the tools that were there; without it they stay, and keep their names.
pub(super) fn replaces(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some((offer, reply)) = registered(state, line, me) else {
        return;
    };
    for tool in offer
        .tools
        .iter()
        .filter(|tool| state.tools.contains_key(&tool.id))
    {
        let taken = reply.registered.contains(&tool.id);
        verdict.check(taken == offer.replace, "/payload", || {
            let how = if offer.replace { "with" } else { "without" };
            format!("a tool that was there, offered again {how} replace")
        });
    }
}

/// A withdrawn tool is gone; ids that were not there are passed over.
pub(super) fn unregisters(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let message = line.message_from(me);
    if let Some(message) = message
        && let Some(Message::Unregistered(reply)) = &message.content
        && let Some(ids) = state
            .unregistrations
            .get(message.in_reply_to.as_deref().unwrap_or_default())
    {
        let there = |id: &String| state.tools.contains_key(id) && ids.contains(id);
        let mut wanted: Vec<_> = ids
            .iter()
            .filter(|id| state.tools.contains_key(*id))
            .collect();
        wanted.dedup();
        let right = reply.tool_ids.iter().all(there) && reply.tool_ids.len() == wanted.len();
        verdict.check(right, "/payload/tool_ids", || {
            "not the tools that were there and withdrawn".to_owned()
        });
    }
}
