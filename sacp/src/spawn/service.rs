//! The spawner's side, and the reading of its answer.

use ubos_common::json::{RawBuf, to_string};
use ubos_common::time::Now;

use super::{SPAWN_GOAL, Spawner};
use crate::any::MessageRef;
use crate::error::Code;
use crate::graph::Graph;
use crate::message::{Message, NonEmpty, OutFmt, State};
use crate::registry::{AgentRecord, Registry, ToolDef, VerbDef};
use crate::reply::{ErrReply, Reply};
use crate::role::Author;
use crate::v1;

/// The agent that a `SPAWN_AGENT` message defines, as a record.
///
/// Definition and instance are acts of the plan; missing parts come from the context.
///
/// # Errors
///
/// [`Code::MalformedPlan`]: the message does not request an agent.
///
/// Spec: SACP 14
pub fn definition<'a>(request: impl Into<MessageRef<'a>>) -> Result<Definition, ErrReply> {
    let request = request.into();
    let refuse = |what: &str| {
        ErrReply::new(Code::MalformedPlan, what)
            .at("/plan")
            .to(request)
    };
    if request.goal() != SPAWN_GOAL {
        return Err(refuse("no request for an agent"));
    }
    let graph = Graph::from(request);
    let step = |verb: &str| {
        let mut steps = graph.steps().iter();
        steps
            .find(|step| step.act.verb == verb)
            .map(|step| &step.act)
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

/// An agent to create: its record, verb and tool, and the prompt that makes a model act as it.
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

/// A spawner whose agents are models: it registers the requested agents and keeps their prompts for the host.
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
/// let at = sacp::ubos_common::time::Timestamp::EPOCH;
/// assert_eq!(spawn_missing(at, &message, &mut registry, &mut spawner)?, ["VISA_AGENT"]);
/// assert!(gaps(&message, &registry).is_empty());
/// assert!(spawner.prompts["VISA_AGENT"].contains("VISA"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 14
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PromptSpawner {
    /// The prompt of each spawned agent, by name.
    pub prompts: std::collections::BTreeMap<String, String>,
}

impl Spawner for PromptSpawner {
    fn spawn(
        &mut self,
        request: MessageRef<'_>,
        registry: &mut dyn Registry,
    ) -> Result<String, String> {
        let made = definition(request).map_err(|error| error.details)?;
        let name = made.agent.agent_name.clone();
        register(&made, registry).map_err(|err| err.to_string())?;
        self.prompts.insert(name.clone(), made.prompt);
        Ok(name)
    }
}

/// Registers verb, tool and agent. A known verb or tool is unchanged but for the new pair.
///
/// # Errors
///
/// The registry refuses an entry.
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

/// The spawner's answer to a request, in its edition: `DONE` with the agent's record in `ctx.agent`, or in the output
/// `agent` of 1.0; else `SPAWN_FAILED`.
///
/// Spec: SACP 14
#[must_use]
pub fn serve<'a>(
    now: Now,
    request: impl Into<MessageRef<'a>>,
    registry: &mut dyn Registry,
    spawner: &mut dyn Spawner,
    msg_id: &str,
) -> Reply {
    let request = request.into();
    let author = Author {
        at: now.wall,
        sender: None,
        msg_id: msg_id.to_owned(),
    };
    let made = match definition(request) {
        Ok(made) => made,
        Err(error) => return author.of_error(request, error),
    };
    // In test mode nothing is registered: the answer shows what would be.
    let made = if request.is_test() {
        Ok(made.agent)
    } else {
        spawner.spawn(request, registry).and_then(|name| {
            let record = registry
                .agent(&name)
                .ok_or_else(|| format!("{name} was made and is not registered"))?;
            Ok(AgentRecord::clone(&record))
        })
    };
    let record = match made.map(|record| RawBuf::parse(&to_string(&record))) {
        Ok(Ok(record)) => record,
        Ok(Err(why)) => {
            return author.of_error(request, ErrReply::new(Code::SpawnFailed, why.to_string()));
        }
        Err(why) => return author.of_error(request, ErrReply::new(Code::SpawnFailed, why)),
    };
    match request {
        MessageRef::V01(request) => {
            let mut confirmation = Message::new(SPAWN_GOAL, request.plan.clone());
            confirmation.msg_id = NonEmpty::new(msg_id);
            confirmation.reply_to.clone_from(&request.msg_id);
            confirmation.state = Some(State::Done);
            confirmation.out_fmt = Some(OutFmt::Raw);
            confirmation.set_context("agent", record);
            Reply::Message(Box::new(confirmation))
        }
        MessageRef::V10(request) => {
            let outputs = [("agent".to_owned(), record)].into();
            author.of_result(request, v1::Outcome::new(outputs))
        }
    }
}

/// Reads the spawner's answer: the record of the new agent.
///
/// The error is [`Code::SpawnFailed`] if the answer has no agent with the requested verb and tool.
///
/// Spec: SACP 14
pub(crate) fn confirmed(request: MessageRef<'_>, reply: &Reply) -> Result<AgentRecord, ErrReply> {
    let refuse = |why: String| ErrReply::new(Code::SpawnFailed, why).to(request);
    let wanted = definition(request)?;
    let answer = match reply {
        Reply::Message(answer) => MessageRef::V01(answer),
        Reply::V10(answer) => MessageRef::V10(answer),
        Reply::Err(error) => return Err(refuse(error.details.clone())),
        _ => return Err(refuse("an answer that is no confirmation".to_owned())),
    };
    if let MessageRef::V10(v1::Message {
        error: Some(error), ..
    }) = answer
    {
        return Err(refuse(error.message.to_string()));
    }
    if answer.goal() != SPAWN_GOAL || answer.ended() != Some("DONE") {
        return Err(refuse("an answer that is no confirmation".to_owned()));
    }
    if answer.reply_to() != request.msg_id() {
        return Err(refuse("a confirmation of another request".to_owned()));
    }
    let record = match answer {
        MessageRef::V01(answer) => answer.context.as_ref().and_then(|ctx| ctx.get("agent")),
        MessageRef::V10(answer) => {
            let result = answer.result.as_ref();
            result.and_then(|result| result.outputs.get("agent"))
        }
    };
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

/// Registers the agent of a confirmation, with verb and tool if they are new.
///
/// # Errors
///
/// [`Code::SpawnFailed`]: the registry refuses it.
pub(crate) fn take_in(
    request: MessageRef<'_>,
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
