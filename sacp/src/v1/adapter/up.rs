//! From 0.1 to 1.0.

use std::collections::BTreeMap;

use ubos_common::json::{self, MemberWriter, RawBuf, RawObject};
use ubos_common::violation::{Level, Report};

use super::super::code::Code;
use super::super::message::Message;
use super::super::names::{Goal, Id, Name, Ts, Word};
use super::super::outcome::{Failure, Outcome};
use super::super::state::State;
use super::super::step::Step;
use super::super::trace::Ext;
use super::{ConvertError, ext, lose};
use crate::graph::Graph;
use crate::limits::MAX_DEPENDENCIES;
use crate::message;
use crate::plan::Plan;
use crate::reply::{Clarify, ErrReply};

/// The members that 1.0 requires and 0.1 does not have.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Up {
    /// The sender.
    pub sender: Id,
    /// The time of sending.
    pub ts: Ts,
    /// The id for a message without one: a new one for each message.
    pub msg_id: Id,
    /// The recipient.
    pub recipient: Option<Id>,
}

impl Up {
    /// An envelope without a recipient.
    #[must_use]
    pub const fn new(sender: Id, ts: Ts, msg_id: Id) -> Self {
        Self {
            sender,
            ts,
            msg_id,
            recipient: None,
        }
    }
}

/// The same message in 1.0, and the findings about what 1.0 cannot express.
///
/// ```
/// use sacp::v1::{Id, Ts, Up, up};
/// use sacp::Message;
/// use sacp::ubos_common::time::Timestamp;
///
/// let old = Message::decode(br#"{"g":"TRIP","plan":[{"parallel":[["get","A",{}],["get","B",{}]]},["join","M",{}]]}"#)?;
/// let name = |text| Id::new(text).unwrap();
/// let config = Up::new(name("planner"), Ts::from(Timestamp::EPOCH), name("m-1"));
/// let (new, _) = up(&old, &config).unwrap();
/// let ids: Vec<_> = new.plan[2].depends_on.iter().flatten().map(|id| id.as_str()).collect();
/// assert_eq!(ids, ["s1", "s2"]);
/// # Ok::<(), ubos_common::json::DecodeError>(())
/// ```
///
/// # Errors
///
/// The plan is empty, or a name is too long for 1.0.
///
/// Spec: SACP 1.0, 15
// impl: SACP1-15-1
pub fn up(old: &message::Message, config: &Up) -> Result<(Message, Report), ConvertError> {
    let mut report = Report::default();
    let mut ext = Ext::default();
    let steps = steps(&old.plan, &mut report);
    if !report.is_valid() {
        return Err(ConvertError::Lossy(report));
    }
    let msg_id = match &old.msg_id {
        Some(id) => name(id, "/msg_id", ext::MSG_ID, &mut ext, &mut report),
        None => config.msg_id.clone(),
    };
    let g = goal(&old.g, &mut ext, &mut report);
    let made = Message::pending(msg_id, config.ts.clone(), config.sender.clone(), g, steps);
    let Some(mut new) = made else {
        let mut clarify = Clarify::new(["plan"], "the plan has no acts");
        clarify.reply_to = old.msg_id.as_deref().map(str::to_owned);
        return Err(ConvertError::Empty(clarify));
    };
    let reply_to = old.reply_to.as_ref();
    new.reply_to = reply_to.map(|id| name(id, "/reply_to", ext::REPLY_TO, &mut ext, &mut report));
    new.recipient.clone_from(&config.recipient);
    new.ctx.clone_from(&old.context);
    new.out_fmt.clone_from(&old.out_fmt);
    new.test_mode = old.is_test().then_some(true).or(old.test_mode);
    keep_rest(old, &mut ext, &mut report);
    if !ext.is_empty() {
        new.ext = Some(ext);
    }
    Ok((with_state(new, old), report))
}

/// The answer in 1.0 to a request of 1.0 that was answered in 0.1.
///
/// Spec: SACP 1.0, 15
#[must_use]
pub fn answer_up(request: &Message, error: &ErrReply, config: &Up) -> Message {
    let mut answer = request.clone();
    answer.reply_to = Some(request.msg_id.clone());
    answer.msg_id = config.msg_id.clone();
    answer.sender = config.sender.clone();
    answer.recipient = Some(request.sender.clone());
    answer.ts = config.ts.clone();
    let details = if error.details.is_empty() {
        error.code.text()
    } else {
        &error.details
    };
    let mut failure = Failure::of(Code::from(error.code), details);
    // The nearest code may say less than the one of 0.1 did.
    let mut reason = BTreeMap::from([("reason".to_owned(), error.code.as_str().to_owned())]);
    if let Some(pointer) = &error.pointer {
        reason.insert("pointer".to_owned(), pointer.clone());
    }
    if let Ok(Some(details)) = RawObject::from_serialize(&reason) {
        failure = failure.with_details(details);
    }
    answer.failed(failure)
}

/// The steps of a plan, called `s1`, `s2` and so on.
///
/// The error says what has no form in 1.0.
pub(crate) fn steps_of(plan: &Plan) -> Result<Vec<Step>, Report> {
    let mut report = Report::default();
    let steps = steps(plan, &mut report);
    if report.is_valid() {
        Ok(steps)
    } else {
        Err(report)
    }
}

fn steps(plan: &Plan, report: &mut Report) -> Vec<Step> {
    let id = |number: usize| Name::new(format!("s{number}"));
    let mut steps = Vec::new();
    let mut dependencies = 0;
    for step in Graph::from(plan).steps() {
        dependencies += step.after.len();
        if dependencies > MAX_DEPENDENCIES {
            // Two wide groups in a row are short in 0.1, but 1.0 lists the product of their sizes.
            let what = "more than 250000 dependencies";
            lose(report, step.pointer.clone(), Level::Must, what);
            break;
        }
        let words = (
            Word::new(step.act.verb.as_str()),
            Word::new(step.act.tool.as_str()),
        );
        let (Some(id_here), (Some(verb), Some(tool))) = (id(step.number), words) else {
            let what = "a verb or tool of more than 64 characters";
            lose(report, step.pointer.clone(), Level::Must, what);
            continue;
        };
        let new = Step::new(id_here, verb, tool, step.act.params.clone());
        let after: Vec<Name> = step.after.iter().filter_map(|n| id(*n)).collect();
        steps.push(if after.is_empty() {
            new
        } else {
            new.after(after)
        });
    }
    steps
}

/// A name in the alphabet of 1.0; the original is kept as an extension if they differ.
fn name(old: &str, pointer: &str, key: &str, ext: &mut Ext, report: &mut Report) -> Id {
    if let Some(id) = Id::new(old) {
        return id;
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    let characters = old.chars().take(128);
    let replaced: String = characters.map(|c| if fits(c) { c } else { '_' }).collect();
    let what = format!("written {replaced}, the old name is in ext {key}");
    lose(report, pointer, Level::Advice, what);
    keep_text(ext, key, old);
    // An empty name cannot occur here: 0.1 refuses it.
    Id::new(replaced).unwrap_or_else(Id::nameless)
}

fn goal(old: &str, ext: &mut Ext, report: &mut Report) -> Goal {
    if let Some(goal) = Goal::new(old) {
        return goal;
    }
    let what = "cut to 128 characters, the whole goal is in ext sacp.g";
    lose(report, "/g", Level::Advice, what);
    keep_text(ext, ext::GOAL, old);
    Goal::new(old.chars().take(128).collect::<String>()).unwrap_or_else(Goal::nameless)
}

fn keep_text(ext: &mut Ext, key: &str, text: &str) {
    if let Ok(value) = RawBuf::parse(&json::to_string(text)) {
        ext.insert(key, value);
    }
}

/// A subtask and unknown members become extensions.
fn keep_rest(old: &message::Message, ext: &mut Ext, report: &mut Report) {
    if let Some(subtask) = &old.subtask {
        let what = "1.0 runs no subtasks: it is kept in ext sacp.subtask";
        lose(report, "/subtask", Level::Advice, what);
        if let Ok(value) = RawBuf::parse(&json::to_string(subtask)) {
            ext.insert(ext::SUBTASK, value);
        }
    }
    if old.extra.is_empty() {
        return;
    }
    let mut text = Vec::new();
    let mut object = MemberWriter::begin(&mut text);
    for (name, value) in old.extra.iter() {
        object.member(name, &value);
    }
    object.end();
    let text = String::from_utf8(text).unwrap_or_default();
    if let Ok(value) = RawBuf::parse(&text) {
        ext.insert(ext::EXTRA, value);
    }
}

fn with_state(mut new: Message, old: &message::Message) -> Message {
    match old.state() {
        message::State::Done => new.done(outcome(old)),
        message::State::Failed => {
            let failure = Failure::of(Code::InternalError, "failed, and 0.1 does not say why");
            new.failed(failure)
        }
        message::State::InProgress => {
            new.state = State::InProgress;
            new
        }
        _ => new,
    }
}

/// The result in `ctx.result`: one that came from 1.0 is kept as it is, any other becomes the only output.
fn outcome(old: &message::Message) -> Outcome {
    let result = old.context.as_ref().and_then(|ctx| ctx.get("result"));
    let Some(result) = result else {
        return Outcome::new(BTreeMap::new());
    };
    let limits = json::Limits::default();
    let profile = ubos_common::violation::Profile::Strict;
    match json::read_raw::<Outcome>(result.as_raw(), &limits, profile) {
        Ok((outcome, _)) => outcome,
        Err(_) => Outcome::new(BTreeMap::from([("result".to_owned(), result.clone())])),
    }
}
