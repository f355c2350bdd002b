//! Making what is missing: the `SPAWN_AGENT` message, who answers it, and what is made of the answer.
//!
//! Guards: a message spawns at most [`MAX_SPAWNS`] agents, each gap is spawned for once, a chain of spawns is at most
//! [`MAX_SPAWN_DEPTH`] deep and never asks for what it is itself made for, and a name that looks like one that is taken is
//! refused.
//!
//! Spec: SACP 14

use ubos_common::json::{RawBuf, RawObject, to_string};
use ubos_common::time::Timestamp;

use crate::check::{Gap, gaps};
use crate::error::Code;
use crate::graph::Graph;
use crate::limits::{MAX_SPAWN_DEPTH, MAX_SPAWNS};
use crate::message::{Message, NonEmpty, OutFmt, State};
use crate::plan::{Act, Plan};
use crate::registry::{AgentRecord, Registry, ToolDef, VerbDef};
use crate::reply::{ErrReply, Reply};
use crate::v1;

/// The goal of a message that asks for an agent.
pub const SPAWN_GOAL: &str = "SPAWN_AGENT";

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

/// The message that asks for the agent that a gap lacks. Its name is `msg_id`.
///
/// Spec: SACP 14
// impl: SACP-14-1
#[must_use]
pub fn spawn_request(gap: &Gap, message: &Message) -> Message {
    request_as(gap, message, format!("{}_AGENT", gap.tool))
}

/// The message that asks for an agent of that name.
fn request_as(gap: &Gap, message: &Message, agent: String) -> Message {
    let wanted = Wanted::of(gap, message, agent);
    let mut plan = Plan::default();
    plan.push(
        Act::new("define", &wanted.tool).with_params(object(&serde_json::json!({
            "description": wanted.description,
            "inputs": wanted.inputs,
            "outputs": wanted.outputs,
        }))),
    );
    plan.push(
        Act::new("instantiate", &wanted.agent).with_params(object(&serde_json::json!({
            "tool": wanted.tool,
            "verb": wanted.verb,
        }))),
    );
    let mut request = Message::with_goal(SPAWN_GOAL, plan);
    for (name, value) in wanted.context(message) {
        request.set_context(name, value);
    }
    request.out_fmt = Some(OutFmt::Raw);
    request.msg_id = message
        .msg_id
        .as_deref()
        .and_then(|id| NonEmpty::new(format!("{id}.spawn.{}", gap.number)));
    if message.is_test() {
        request.test_mode = Some(true);
    }
    request
}

/// The agent that a gap lacks.
struct Wanted {
    verb: String,
    tool: String,
    agent: String,
    description: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Wanted {
    fn of(gap: &Gap, message: &Message, agent: String) -> Self {
        let graph = Graph::of_message(message);
        let params = graph.step(gap.number).and_then(|step| {
            step.act
                .params
                .deserialize::<serde_json::Map<_, serde_json::Value>>()
                .ok()
        });
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
            inputs: params
                .unwrap_or_default()
                .into_iter()
                .map(|(name, _)| name)
                .collect(),
            outputs: vec!["result".to_owned()],
        }
    }

    fn capability(&self) -> String {
        format!("{}/{}", self.verb, self.tool)
    }

    fn context(&self, message: &Message) -> Vec<(&'static str, RawBuf)> {
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

/// The request for the agent that a step of 1.0 lacks: three steps, the last of which registers it.
///
/// `None` where a name of the step is none that 1.0 lets a request have.
///
/// Spec: SACP 1.0, 14
// impl: SACP1-14-1
#[must_use]
pub fn spawn_request_v1(
    step: &crate::graph::Step,
    message: &v1::Message,
    at: Timestamp,
    sender: v1::Id,
    msg_id: v1::Id,
) -> Option<v1::Message> {
    let (verb, tool) = (&step.act.verb, &step.act.tool);
    let params = step
        .act
        .params
        .deserialize::<serde_json::Map<_, serde_json::Value>>();
    let inputs: Vec<String> = params
        .unwrap_or_default()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let agent = format!("{tool}_AGENT");
    let description = format!("Carries out {verb} with {tool} for {}", message.g.as_str());
    let make = |id: &str, verb: &str, tool: &str, params: serde_json::Value| {
        let step = v1::Step::new(
            v1::Name::new(id)?,
            v1::Word::new(verb)?,
            v1::Word::new(tool)?,
        );
        Some(step.with_params(object(&params)))
    };
    let outputs = [step.policy.output_key.as_deref().unwrap_or("result")];
    let define =
        serde_json::json!({ "description": description, "inputs": inputs, "outputs": outputs });
    let instantiate = serde_json::json!({ "tool": tool, "verb": verb });
    let entry = serde_json::json!({
        "agent_name": agent,
        "supported_verbs": [verb],
        "supported_tools": [tool],
        "inputs": inputs,
        "outputs": outputs,
        "version": "1.0.0",
        "description": description,
    });
    let plan = vec![
        make("define", "define", tool, define)?,
        make("instantiate", "instantiate", &agent, instantiate)?.after(v1::Name::new("define")),
        make("register", "register", &agent, entry)?.after(v1::Name::new("instantiate")),
    ];
    let mut request = v1::Message::new(
        msg_id,
        v1::Ts::from(at),
        sender,
        v1::Goal::new(SPAWN_GOAL)?,
        plan,
    )?;
    request.test_mode = message.test_mode.filter(|test| *test);
    request.out_fmt = Some(OutFmt::Raw);
    let capability = RawBuf::from_serialize(&format!("{verb}/{tool}")).ok()?;
    request.ctx = Some([("missing_capability".to_owned(), capability)].into());
    Some(request)
}

/// What a message was itself spawned for, outermost first.
fn spawn_path(message: &Message) -> Vec<String> {
    let path = message
        .context
        .as_ref()
        .and_then(|ctx| ctx.get("spawn_path"));
    path.and_then(|path| path.deserialize().ok())
        .unwrap_or_default()
}

/// Whether an agent may be spawned for a gap: names that are new and look like no other, no loop, not too deep.
///
/// # Errors
///
/// [`Code::SpawnFailed`] and why.
pub fn may_spawn(gap: &Gap, message: &Message, registry: &dyn Registry) -> Result<(), ErrReply> {
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

/// Whether a name has only characters that nobody mistakes for others of another script.
fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

/// What a name looks like: names with equal looks are mistaken for one another.
#[must_use]
pub fn looks(name: &str) -> String {
    let look = |c: char| match c.to_ascii_lowercase() {
        '0' => Some('o'),
        '1' | 'i' | '|' => Some('l'),
        '5' => Some('s'),
        '.' | '_' | ':' | '-' => None,
        other => Some(other),
    };
    name.chars().filter_map(look).collect()
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
    let mut made = Vec::new();
    let mut before: Option<(Gap, String)> = None;
    while let Some(gap) = gaps(message, registry).into_iter().next() {
        let request = next_request(message, registry, &gap, before.as_ref(), made.len())?;
        let name = spawner
            .spawn(&request, registry)
            .map_err(|why| failed(&gap, message, &why))?;
        before = Some((gap, name.clone()));
        made.push(name);
    }
    Ok(made)
}

/// The request for a gap, unless it must not or need not be asked.
///
/// `before` is the gap that was closed last, and by whom: one that is still open was promised and not made.
///
/// # Errors
///
/// Why not.
pub(crate) fn next_request(
    message: &Message,
    registry: &dyn Registry,
    gap: &Gap,
    before: Option<&(Gap, String)>,
    made: usize,
) -> Result<Message, ErrReply> {
    if !gap.can_be_spawned() {
        let what = format!("act {}: {} with {}", gap.number, gap.verb, gap.tool);
        return Err(ErrReply::new(gap.code, what).at(&gap.pointer).to(message));
    }
    // A spawner that says yes and registers nothing must not be asked for ever.
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
    Ok(request_as(gap, message, agent))
}

/// A name that no agent has: registering one that is taken would replace its agent, which serves something else.
fn free_name(gap: &Gap, registry: &dyn Registry) -> Option<String> {
    let (verb, tool) = (&gap.verb, &gap.tool);
    let names = [format!("{tool}_AGENT"), format!("{tool}_{verb}_AGENT")];
    let free = |name: &String| registry.agent(name).is_none();
    names.into_iter().find(free)
}

fn failed(gap: &Gap, message: &Message, why: &str) -> ErrReply {
    let what = format!("act {}: {} with {}: {why}", gap.number, gap.verb, gap.tool);
    ErrReply::new(Code::SpawnFailed, what)
        .at(&gap.pointer)
        .to(message)
}

/// The spawning service's side: what a `SPAWN_AGENT` message defines, as a record to be registered.
///
/// The definition and the instance stand in the plan; what they leave out comes from the context.
///
/// # Errors
///
/// [`Code::MalformedPlan`] for a message that asks for no agent.
///
/// Spec: SACP 14
pub fn definition(request: &Message) -> Result<Definition, ErrReply> {
    let refuse = |what: &str| {
        ErrReply::new(Code::MalformedPlan, what)
            .at("/plan")
            .to(request)
    };
    if request.goal() != SPAWN_GOAL {
        return Err(refuse("no request for an agent"));
    }
    let steps = request.plan.steps();
    let step = |verb: &str| {
        steps
            .iter()
            .find(|step| step.act.verb == verb)
            .map(|step| step.act)
    };
    let define = step("define").ok_or_else(|| refuse("no act that defines a tool"))?;
    let instance = step("instantiate").ok_or_else(|| refuse("no act that makes an agent"))?;
    let defined: serde_json::Value = define.params.deserialize().unwrap_or_default();
    let made: serde_json::Value = instance.params.deserialize().unwrap_or_default();
    let text = |value: &serde_json::Value, name: &str| value.get(name)?.as_str().map(str::to_owned);
    let texts = |name: &str| -> Vec<String> {
        let list = defined.get(name).and_then(serde_json::Value::as_array);
        list.into_iter()
            .flatten()
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect()
    };
    let verb = text(&made, "verb").ok_or_else(|| refuse("an agent without a verb"))?;
    let tool = text(&made, "tool").unwrap_or_else(|| define.tool.clone());
    let description =
        text(&defined, "description").unwrap_or_else(|| format!("Carries out {verb} with {tool}"));
    let inputs: Vec<RawBuf> = texts("inputs")
        .iter()
        .filter_map(|name| RawBuf::from_serialize(name).ok())
        .collect();
    let outputs = texts("outputs");
    let gives =
        RawBuf::from_serialize(&outputs).map_err(|_| refuse("outputs that cannot be written"))?;
    let record = AgentRecord::new(
        instance.tool.clone(),
        vec![verb.clone()],
        vec![tool.clone()],
        texts("inputs"),
        outputs,
        description.clone(),
    );
    Ok(Definition {
        verb: VerbDef::new(verb.clone(), description.clone(), inputs, gives),
        tool: ToolDef::new(tool, description, vec![verb]),
        prompt: crate::prompt::agent_prompt(&crate::prompt::AgentRole::from(&record), request),
        agent: record,
    })
}

/// An agent to be made: its record, what it does, and the prompt that makes a model act as it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Definition {
    /// Its verb.
    pub verb: VerbDef,
    /// Its tool.
    pub tool: ToolDef,
    /// Its record.
    pub agent: AgentRecord,
    /// The prompt template, filled in for its role.
    pub prompt: String,
}

/// A spawner whose agents are models: it registers what is asked for and keeps the prompt of each for the host.
///
/// ```
/// use sacp::check::gaps;
/// use sacp::registry::MemoryRegistry;
/// use sacp::spawn::{PromptSpawner, spawn_missing};
/// use sacp::Message;
///
/// let message = Message::decode(br#"{"g":"TRIP","plan":[["check","VISA",{"citizenship":"PT"}]]}"#)?;
/// let mut registry = MemoryRegistry::default();
/// let mut spawner = PromptSpawner::default();
/// assert_eq!(spawn_missing(&message, &mut registry, &mut spawner)?, ["VISA_AGENT"]);
/// assert!(gaps(&message, &registry).is_empty());
/// assert!(spawner.prompts["VISA_AGENT"].contains("VISA"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 14
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PromptSpawner {
    /// The prompt of each agent that was made, by name.
    pub prompts: std::collections::BTreeMap<String, String>,
}

impl Spawner for PromptSpawner {
    fn spawn(&mut self, request: &Message, registry: &mut dyn Registry) -> Result<String, String> {
        let made = definition(request).map_err(|error| error.details)?;
        let name = made.agent.agent_name.clone();
        register(&made, registry).map_err(|err| err.to_string())?;
        self.prompts.insert(name.clone(), made.prompt);
        Ok(name)
    }
}

/// Registers verb, tool and agent. A verb or tool that is known stays as it is, but for the new pair.
///
/// # Errors
///
/// The registry refuses one of them.
fn register(
    made: &Definition,
    registry: &mut dyn Registry,
) -> Result<(), crate::registry::RegistryError> {
    if registry.verb(&made.verb.name).is_none() {
        registry.add_verb(made.verb.clone())?;
    }
    let tool = match registry.tool(&made.tool.id) {
        Some(known) if known.supported_verbs.contains(&made.verb.name) => None,
        Some(known) => {
            let mut tool = ToolDef::clone(&known);
            tool.supported_verbs.push(made.verb.name.clone());
            Some(tool)
        }
        None => Some(made.tool.clone()),
    };
    if let Some(tool) = tool {
        registry.add_tool(tool)?;
    }
    registry.add_agent(made.agent.clone())
}

/// What the spawning service answers to a request: the agent's record in `ctx.agent`, `DONE`; or `SPAWN_FAILED`.
///
/// Spec: SACP 14
#[must_use]
pub fn serve(
    request: &Message,
    registry: &mut dyn Registry,
    spawner: &mut dyn Spawner,
    msg_id: &str,
) -> Reply {
    if let Err(error) = definition(request) {
        return Reply::Err(error);
    }
    let failed = |why: String| Reply::Err(ErrReply::new(Code::SpawnFailed, why).to(request));
    // In test mode nothing is registered: the answer says what would be.
    let made = if request.is_test() {
        definition(request)
            .map(|made| made.agent)
            .map_err(|error| error.details)
    } else {
        spawner.spawn(request, registry).and_then(|name| {
            let record = registry
                .agent(&name)
                .ok_or_else(|| format!("{name} was made and is not registered"))?;
            Ok(AgentRecord::clone(&record))
        })
    };
    let record = match made {
        Ok(record) => record,
        Err(why) => return failed(why),
    };
    let mut confirmation = Message::with_goal(SPAWN_GOAL, request.plan.clone());
    confirmation.msg_id = NonEmpty::new(msg_id);
    confirmation.reply_to.clone_from(&request.msg_id);
    confirmation.state = Some(State::Done);
    confirmation.out_fmt = Some(OutFmt::Raw);
    if let Ok(record) = RawBuf::parse(&to_string(&record)) {
        confirmation.set_context("agent", record);
    }
    Reply::Message(Box::new(confirmation))
}

/// Reads the spawning service's answer: the record of the agent that was made.
///
/// # Errors
///
/// [`Code::SpawnFailed`] for any answer that names no agent with the verb and tool that were asked for.
///
/// Spec: SACP 14
pub fn confirmed(request: &Message, reply: &Reply) -> Result<AgentRecord, ErrReply> {
    let refuse = |why: String| ErrReply::new(Code::SpawnFailed, why).to(request);
    let wanted = definition(request)?;
    let answer = match reply {
        Reply::Message(answer) => answer,
        Reply::Err(error) => return Err(refuse(error.details.clone())),
        _ => return Err(refuse("an answer that is no confirmation".to_owned())),
    };
    if answer.goal() != SPAWN_GOAL || answer.state() != State::Done {
        return Err(refuse("an answer that is no confirmation".to_owned()));
    }
    if answer.reply_to.as_deref() != request.msg_id.as_deref() {
        return Err(refuse("a confirmation of another request".to_owned()));
    }
    let record = answer.context.as_ref().and_then(|ctx| ctx.get("agent"));
    let record = record.ok_or_else(|| refuse("a confirmation without an agent".to_owned()))?;
    let record: AgentRecord =
        crate::reply::read(record).map_err(|why| refuse(format!("the agent's record: {why}")))?;
    let serves = record.supported_verbs.contains(&wanted.verb.name)
        && record.supported_tools.contains(&wanted.tool.id);
    if record.agent_name == wanted.agent.agent_name && serves {
        Ok(record)
    } else {
        Err(refuse(format!(
            "{:?} was made, which is not what was asked for",
            record.agent_name
        )))
    }
}

/// Registers the agent of a confirmation, with verb and tool where they are new.
///
/// # Errors
///
/// [`Code::SpawnFailed`]: the registry refuses it.
pub(crate) fn take_in(
    request: &Message,
    record: AgentRecord,
    registry: &mut dyn Registry,
) -> Result<String, ErrReply> {
    let mut made = definition(request)?;
    let name = record.agent_name.clone();
    made.agent = record;
    register(&made, registry)
        .map_err(|err| ErrReply::new(Code::SpawnFailed, err.to_string()).to(request))?;
    Ok(name)
}

fn object(value: &serde_json::Value) -> RawObject {
    RawObject::from_serialize(value)
        .ok()
        .flatten()
        .unwrap_or_default()
}
