//! Spawning missing agents: the `SPAWN_AGENT` message, its answer, and the registration of the new agent.
//!
//! Guards: a message spawns at most 8 agents, and one for each gap; a chain of spawns is at most
//! 4 deep and never requests its own capability; a name that looks like a registered one is
//! refused.
//!
//! Spec: SACP 14

mod service;

use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::Timestamp;

use crate::any::{AnyMessage, MessageRef};
use crate::check::{Gap, gaps};
use crate::error::Code;
use crate::graph::Graph;
use crate::limits::{MAX_SPAWN_DEPTH, MAX_SPAWNS};
use crate::message::{Message, NonEmpty, OutFmt};
use crate::plan::{Act, Plan};
use crate::registry::Registry;
use crate::reply::ErrReply;
use crate::v1;

pub use service::{Definition, PromptSpawner, definition, serve};
pub(crate) use service::{confirmed, take_in};

/// The goal of a message that asks for an agent.
pub(crate) const SPAWN_GOAL: &str = "SPAWN_AGENT";

/// Spawns agents: adds verb, tool and agent to the registry.
///
/// Spec: SACP 14
pub trait Spawner {
    /// Creates and registers the agent that a `SPAWN_AGENT` message describes.
    ///
    /// Returns the agent's name.
    ///
    /// # Errors
    ///
    /// The reason for which it cannot be created.
    fn spawn(
        &mut self,
        request: MessageRef<'_>,
        registry: &mut dyn Registry,
    ) -> Result<String, String>;
}

/// The message that requests an agent for a gap, in the edition of the message that has it. One of 1.0 also registers the
/// agent, and is written at `at`.
///
/// `None` if a name of the gap is not valid in a request of 1.0.
///
/// Spec: SACP 14; SACP 1.0, 14
#[must_use]
pub fn spawn_request<'a>(
    gap: &Gap,
    message: impl Into<MessageRef<'a>>,
    at: Timestamp,
) -> Option<AnyMessage> {
    request_as(gap, message.into(), at, format!("{}_AGENT", gap.tool))
}

/// The message that requests an agent with this name.
// impl: SACP-14-1, SACP1-14-1
fn request_as(
    gap: &Gap,
    message: MessageRef<'_>,
    at: Timestamp,
    agent: String,
) -> Option<AnyMessage> {
    let wanted = Wanted::of(gap, message, agent);
    let context = wanted.context(message);
    let acts = wanted.acts();
    let id = |id: &str| format!("{id}.spawn.{}", gap.number);
    match message {
        MessageRef::V01(message) => {
            let mut plan = Plan::default();
            for (verb, on, params) in acts.iter().take(2) {
                plan.push(Act::new(verb, on).with_object(object(params)));
            }
            let mut request = Message::new(SPAWN_GOAL, plan);
            for (name, value) in context {
                request.set_context(name, value);
            }
            request.out_fmt = Some(OutFmt::Raw);
            let own = message.msg_id.as_deref().map(id);
            request.msg_id = own.and_then(NonEmpty::new);
            if message.is_test() {
                request.test_mode = Some(true);
            }
            Some(request.into())
        }
        MessageRef::V10(message) => {
            let step = |(verb, on, params): &(&'static str, &str, serde_json::Value)| {
                let (verb, on) = (v1::Word::new(*verb)?, v1::Word::new(*on)?);
                let name = v1::Name::new(verb.as_str())?;
                Some(v1::Step::new(name, verb, on, object(params)))
            };
            let [define, instantiate, register] = &acts;
            let plan = vec![
                step(define)?,
                step(instantiate)?.after(v1::Name::new("define")),
                step(register)?.after(v1::Name::new("instantiate")),
            ];
            let own = message.recipient.clone().unwrap_or_else(v1::Id::nameless);
            // An id that is full already is shortened at its end.
            let base: String = message.msg_id.chars().take(96).collect();
            let mut request = v1::Message::pending(
                v1::Id::new(id(&base))?,
                v1::Ts::from(at),
                own,
                v1::Goal::new(SPAWN_GOAL)?,
                plan,
            )?;
            request.test_mode = message.test_mode.filter(|test| *test);
            request.out_fmt = Some(OutFmt::Raw);
            let named = |(name, value): (&str, RawBuf)| (name.to_owned(), value);
            request.ctx = Some(context.into_iter().map(named).collect());
            Some(request.into())
        }
    }
}

/// The agent to request for a gap.
struct Wanted {
    verb: String,
    tool: String,
    agent: String,
    description: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Wanted {
    fn of(gap: &Gap, message: MessageRef<'_>, agent: String) -> Self {
        let graph = Graph::from(message);
        let step = graph.step(gap.number);
        let params = step.and_then(|step| {
            let params = step.act.params.deserialize();
            params.ok()
        });
        let params: serde_json::Map<String, serde_json::Value> = params.unwrap_or_default();
        let output = step.and_then(|step| step.policy.output_key.clone());
        Self {
            verb: gap.verb.clone(),
            tool: gap.tool.clone(),
            agent,
            description: format!(
                "Carries out {} with {} for {}",
                gap.verb,
                gap.tool,
                message.goal()
            ),
            inputs: params.into_iter().map(|(name, _)| name).collect(),
            outputs: vec![output.unwrap_or_else(|| "result".to_owned())],
        }
    }

    /// The acts of the request: verb, tool and parameters of each. Version 0.1 has the first two.
    fn acts(&self) -> [(&'static str, &str, serde_json::Value); 3] {
        let define = serde_json::json!({
            "description": self.description,
            "inputs": self.inputs,
            "outputs": self.outputs,
        });
        let instantiate = serde_json::json!({ "tool": self.tool, "verb": self.verb });
        let register = serde_json::json!({
            "agent_name": self.agent,
            "supported_verbs": [self.verb],
            "supported_tools": [self.tool],
            "inputs": self.inputs,
            "outputs": self.outputs,
            "version": "1.0.0",
            "description": self.description,
        });
        [
            ("define", &self.tool, define),
            ("instantiate", &self.agent, instantiate),
            ("register", &self.agent, register),
        ]
    }

    fn capability(&self) -> String {
        format!("{}/{}", self.verb, self.tool)
    }

    fn context(&self, message: MessageRef<'_>) -> Vec<(&'static str, RawBuf)> {
        let mut path = spawn_path(message);
        path.push(self.capability());
        let members = [
            ("missing_capability", serde_json::json!(self.capability())),
            ("input_hints", serde_json::json!(self.inputs)),
            (
                "output_expectation",
                serde_json::json!(self.outputs.join(", ")),
            ),
            ("spawn_path", serde_json::json!(path)),
        ];
        let raw = |(name, value)| Some((name, RawBuf::from_serialize(&value).ok()?));
        members.into_iter().filter_map(raw).collect()
    }
}

/// The capabilities that a message was spawned for, outermost first.
fn spawn_path(message: MessageRef<'_>) -> Vec<String> {
    let path = message.context().and_then(|ctx| ctx.get("spawn_path"));
    path.and_then(|path| path.deserialize().ok())
        .unwrap_or_default()
}

/// Whether an agent may be spawned for a gap: the names are plain and not mistakable, and the chain is short and without a loop.
///
/// The error is [`Code::SpawnFailed`] with the reason.
// impl: SACP-14-1
pub(crate) fn may_spawn(
    gap: &Gap,
    message: MessageRef<'_>,
    registry: &dyn Registry,
) -> Result<(), ErrReply> {
    let refuse = |why: String| {
        let what = format!("act {}: {} with {}: {why}", gap.number, gap.verb, gap.tool);
        Err(ErrReply::new(Code::SpawnFailed, what)
            .at(&gap.pointer)
            .to(message))
    };
    let path = spawn_path(message);
    if path.len() >= MAX_SPAWN_DEPTH {
        return refuse(format!("spawned {} deep already", path.len()));
    }
    if path.contains(&format!("{}/{}", gap.verb, gap.tool)) {
        return refuse("it is asked for while it is being made".to_owned());
    }
    for name in [&gap.verb, &gap.tool] {
        if !is_plain(name) {
            return refuse(format!(
                "{name:?} is no name of letters, digits and . _ : -"
            ));
        }
    }
    if let Some(other) = registry.look_alike(&gap.tool) {
        return refuse(format!("{:?} looks like {other:?}", gap.tool));
    }
    Ok(())
}

/// Whether a name has only characters that cannot be mistaken for those of another script.
fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

/// Spawns an agent for each gap of a plan, at most once each; returns their names. Requests of 1.0 are written at `at`.
///
/// # Errors
///
/// A gap cannot be closed by a spawn, a spawn failed ([`Code::SpawnFailed`]), or there are more than 8 gaps.
///
/// Spec: SACP 14
pub fn spawn_missing<'a>(
    at: Timestamp,
    message: impl Into<MessageRef<'a>>,
    registry: &mut dyn Registry,
    spawner: &mut dyn Spawner,
) -> Result<Vec<String>, ErrReply> {
    let message = message.into();
    let mut made = Vec::new();
    let mut before: Option<(Gap, String)> = None;
    while let Some(gap) = gaps(message, registry).into_iter().next() {
        let request = next_request(at, message, registry, &gap, before.as_ref(), made.len())?;
        let name = spawner
            .spawn(MessageRef::from(&request), registry)
            .map_err(|why| failed(&gap, message, &why))?;
        before = Some((gap, name.clone()));
        made.push(name);
    }
    Ok(made)
}

/// The request for a gap, if it may be spawned.
///
/// `before` is the gap that was closed last, and by which agent: if it is still open, the spawner did not keep its promise.
///
/// # Errors
///
/// The reason for which it may not be spawned.
pub(crate) fn next_request(
    at: Timestamp,
    message: MessageRef<'_>,
    registry: &dyn Registry,
    gap: &Gap,
    before: Option<&(Gap, String)>,
    made: usize,
) -> Result<AnyMessage, ErrReply> {
    if !gap.can_be_spawned() {
        let what = format!("act {}: {} with {}", gap.number, gap.verb, gap.tool);
        return Err(ErrReply::new(gap.code, what).at(&gap.pointer).to(message));
    }
    // A spawner that confirms and registers nothing must not be asked forever.
    if let Some((_, name)) = before.filter(|(closed, _)| closed == gap) {
        return Err(failed(
            gap,
            message,
            &format!("{name} was spawned and does not serve it"),
        ));
    }
    if made >= MAX_SPAWNS {
        return Err(failed(
            gap,
            message,
            &format!("{MAX_SPAWNS} agents were spawned already"),
        ));
    }
    may_spawn(gap, message, registry)?;
    let agent = free_name(gap, registry)
        .ok_or_else(|| failed(gap, message, "every name for its agent is taken"))?;
    let request = request_as(gap, message, at, agent);
    request.ok_or_else(|| failed(gap, message, "its names do not fit a request of 1.0"))
}

/// A free agent name: registering a name that is taken would replace an agent that serves something else.
fn free_name(gap: &Gap, registry: &dyn Registry) -> Option<String> {
    let (verb, tool) = (&gap.verb, &gap.tool);
    let names = [format!("{tool}_AGENT"), format!("{tool}_{verb}_AGENT")];
    let free = |name: &String| registry.agent(name).is_none();
    names.into_iter().find(free)
}

fn failed(gap: &Gap, message: MessageRef<'_>, why: &str) -> ErrReply {
    let what = format!("act {}: {} with {}: {why}", gap.number, gap.verb, gap.tool);
    ErrReply::new(Code::SpawnFailed, what)
        .at(&gap.pointer)
        .to(message)
}

fn object(value: &serde_json::Value) -> RawObject {
    RawObject::from_serialize(value)
        .ok()
        .flatten()
        .unwrap_or_default()
}
