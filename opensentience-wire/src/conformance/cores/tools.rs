//! Rules for cores: registrations.

use core::time::Duration;
use std::collections::BTreeSet;

use crate::conformance::course::{Course, Offer, Tool};
use crate::conformance::line::{Line, SLACK, Said};
use crate::conformance::rule::Tally;
use crate::error::ErrorCode;
use crate::limits::Limits;
use crate::message::{Message, Registered, Side, is_tool_name};

/// The answer to a registration, and what it answers.
pub(super) fn registered<'a>(
    course: &'a Course,
    line: &'a Line,
    me: Side,
) -> Option<(&'a Offer, &'a Registered)> {
    let said: &Said = line.said_by(me)?;
    let Some(Message::Registered(reply)) = &said.content else {
        return None;
    };
    let (_, offer) = course.answered_offer(said)?;
    Some((offer, reply))
}

/// The code that a tool is rejected with; `None` where it is not.
pub(super) fn rejection<'a>(reply: &'a Registered, id: &str) -> Option<&'a ErrorCode> {
    let rejected = reply.rejected.iter().flatten();
    let mut of_id = rejected.filter(|rejected| rejected.tool_id == id);
    of_id.next().map(|rejected| &rejected.error.code)
}

/// Each registration is answered, and each of its tools is in the answer.
pub(super) fn lists_all(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if let Some((offer, reply)) = registered(course, line, me) {
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
        tally.is(all && each, "/payload", || {
            "not every tool is listed once".to_owned()
        });
    }
    let patience = if line.is_end_of(me) {
        Duration::from_millis(200)
    } else {
        SLACK
    };
    let late = |offer: &Offer| line.at > offer.at.saturating_add(patience);
    let welcomed = course.welcome.is_some() && course.has_ended(me).is_none();
    if welcomed && course.offers.values().any(late) {
        tally.broken("registration", "no answer");
    }
}

/// A tool whose id is not the agent's, a slash and its name is rejected alone.
pub(super) fn tool_ids(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(launch) = &course.launch else { return };
    let Some((offer, reply)) = registered(course, line, me) else {
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
        tally.is(
            code == Some(&ErrorCode::ToolInvalidId),
            "/payload/rejected",
            || "a tool of a wrong id is not rejected as tool.invalid_id".to_owned(),
        );
    }
}

/// A tool that lacks a member, has no usable schema or a name that is taken is rejected alone.
pub(super) fn tool_members(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some((offer, reply)) = registered(course, line, me) else {
        return;
    };
    let mut seen = BTreeSet::new();
    for tool in &offer.tools {
        let rejected = rejection(reply, &tool.id);
        let Some(spec) = &tool.spec else {
            tally.is(rejected.is_some(), "/payload/rejected", || {
                "a tool without its members is not rejected".to_owned()
            });
            continue;
        };
        if crate::schema::check_schemas(spec, Limits::default().max_schema_bytes).is_err() {
            let right = rejected == Some(&ErrorCode::ToolInvalidSchema);
            tally.is(right, "/payload/rejected", || {
                "a schema that cannot be used is not rejected as tool.invalid_schema".to_owned()
            });
        } else if !seen.insert(&spec.tool_id) {
            let right = rejected == Some(&ErrorCode::ToolConflict);
            tally.is(right, "/payload/rejected", || {
                "a name that is taken is not rejected as tool.conflict".to_owned()
            });
        } else if rejected.is_none() {
            tally.held();
        }
    }
}

/// `replace` drops the tools that were there; without it they stay, and keep their names.
pub(super) fn replaces(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some((offer, reply)) = registered(course, line, me) else {
        return;
    };
    for tool in offer
        .tools
        .iter()
        .filter(|tool| course.tools.contains_key(&tool.id))
    {
        let taken = reply.registered.contains(&tool.id);
        tally.is(taken == offer.replace, "/payload", || {
            let how = if offer.replace { "with" } else { "without" };
            format!("a tool that was there, offered again {how} replace")
        });
    }
}

/// A withdrawn tool is gone; ids that were not there are passed over.
pub(super) fn unregisters(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let said = line.said_by(me);
    if let Some(said) = said
        && let Some(Message::Unregistered(reply)) = &said.content
        && let Some(ids) = course
            .withdrawals
            .get(said.in_reply_to.as_deref().unwrap_or_default())
    {
        let there = |id: &String| course.tools.contains_key(id) && ids.contains(id);
        let mut wanted: Vec<_> = ids
            .iter()
            .filter(|id| course.tools.contains_key(*id))
            .collect();
        wanted.dedup();
        let right = reply.tool_ids.iter().all(there) && reply.tool_ids.len() == wanted.len();
        tally.is(right, "/payload/tool_ids", || {
            "not the tools that were there and withdrawn".to_owned()
        });
    }
}
