//! Making what is missing: the `SPAWN_AGENT` message, and who answers it.

use ubos_common::json::{RawBuf, RawObject};

use crate::check::{Gap, gaps};
use crate::error::Code;
use crate::limits::MAX_SPAWNS;
use crate::message::{Message, OutFmt};
use crate::plan::{Act, Plan};
use crate::registry::Registry;
use crate::reply::ErrReply;

/// Makes agents on request: it adds verb, tool and agent to the registry.
///
/// Spec: SACP 14
pub trait Spawner {
    /// Makes the agent that a `SPAWN_AGENT` message describes, and registers it.
    ///
    /// Gives the agent's name.
    ///
    /// # Errors
    ///
    /// Why it cannot be made.
    fn spawn(&mut self, request: &Message, registry: &mut dyn Registry) -> Result<String, String>;
}

/// The message that asks for the agent that a gap lacks.
///
/// Spec: SACP 14
#[must_use]
pub fn spawn_request(gap: &Gap, message: &Message) -> Message {
    let agent = format!("{}_AGENT", gap.tool);
    let define = object(&serde_json::json!({
        "description": format!("Carries out {} with {} for {}", gap.verb, gap.tool, message.goal()),
        "inputs": [],
        "outputs": ["result"],
    }));
    let instantiate = object(&serde_json::json!({ "tool": gap.tool, "verb": gap.verb }));
    let mut plan = Plan::default();
    plan.push(Act::new("define", &gap.tool).with_params(define));
    plan.push(Act::new("instantiate", &agent).with_params(instantiate));
    let mut request = Message::with_goal("SPAWN_AGENT", plan);
    let text = |value: &serde_json::Value| RawBuf::from_serialize(value).ok();
    for (name, value) in [
        (
            "missing_capability",
            serde_json::json!(format!("{}/{}", gap.verb, gap.tool)),
        ),
        ("input_hints", serde_json::json!([])),
        ("output_expectation", serde_json::json!("result")),
    ] {
        if let Some(value) = text(&value) {
            request.set_context(name, value);
        }
    }
    request.out_fmt = Some(OutFmt::Raw);
    if message.is_test() {
        request.test_mode = Some(true);
    }
    request
}

/// Closes the gaps of a plan by spawning, each at most once; gives the names of the agents made.
///
/// # Errors
///
/// The gap that no spawn can close, [`Code::SpawnFailed`], or more gaps than [`MAX_SPAWNS`].
///
/// Spec: SACP 14
pub fn spawn_missing(
    message: &Message,
    registry: &mut dyn Registry,
    spawner: &mut dyn Spawner,
) -> Result<Vec<String>, ErrReply> {
    let refuse =
        |gap: &Gap, code, why: String| ErrReply::new(code, why).at(&gap.pointer).to(message);
    let mut made = Vec::new();
    while let Some(gap) = gaps(message, registry).into_iter().next() {
        let what = format!("act {}: {} with {}", gap.number, gap.verb, gap.tool);
        if !gap.can_be_spawned() {
            return Err(refuse(&gap, gap.code, what));
        }
        if made.len() >= MAX_SPAWNS {
            return Err(refuse(
                &gap,
                Code::SpawnFailed,
                format!("{what}: {MAX_SPAWNS} agents were spawned already"),
            ));
        }
        let request = spawn_request(&gap, message);
        let name = spawner
            .spawn(&request, registry)
            .map_err(|why| refuse(&gap, Code::SpawnFailed, format!("{what}: {why}")))?;
        // A spawner that says yes and registers nothing must not be asked for ever.
        if gaps(message, registry).first() == Some(&gap) {
            return Err(refuse(
                &gap,
                Code::SpawnFailed,
                format!("{what}: {name} was spawned and does not serve it"),
            ));
        }
        made.push(name);
    }
    Ok(made)
}

fn object(value: &serde_json::Value) -> RawObject {
    RawObject::from_serialize(value)
        .ok()
        .flatten()
        .unwrap_or_default()
}
