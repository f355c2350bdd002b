//! Agents that are called as tools.

use core::fmt;
use std::sync::Arc;

use futures::StreamExt;
use futures_core::future::BoxFuture;
use ubos_common::id::Uuid;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::Now;
use ubos_common::trace_context::TraceContext;
use upp::{Metadata, Tool, ToolContext, ToolError, ToolExecution, ToolResult, json_text};

use crate::agent::{Agent, AgentInput, RunScope};
use crate::event::{SubagentData, SubagentEnd, SubagentEvent};
use crate::state::{SubagentExecutionTrace, ToolExecutionTrace};

type BuildPrompt = dyn Fn(&RawObject) -> Result<String, ToolError> + Send + Sync;

/// An agent as a tool of another agent. The developer provides the schema, and the function that makes a prompt of arguments.
///
/// Each call is a separate run from an initial state. Its events are part of the parent's stream, and its trace is part of the
/// parent's state. Its place in a distributed trace is below that of the call ([`ToolContext::trace`]): the span is the last
/// half of the `subagentId` that events and trace have. The end of the parent ends it. The parent's stop condition, limits and budget do not apply to it.
///
/// The run is not recorded, also where the parent's is. A parent that is resumed calls an agent without a recorded result again,
/// and the agent's run begins anew. As far as its tools are called with the same arguments again, they have the same
/// `RunScope::idempotency_key` (feature `canon`). All of its calls are marked as repeated
/// ([`CallScope::is_repeated`](crate::engine::CallScope::is_repeated)).
///
/// The parent's policies for tool calls hold inside of the run as well, however deep, beside those of the agent itself. A run
/// inside of a call cannot wait for a person: a call that would wait gets an error result.
///
/// | policy of the parent | for a call inside of the run |
/// |---|---|
/// | [`ApprovalPolicy`](crate::ApprovalPolicy) | one that needs an approval is refused, also where the call of the agent was approved |
/// | `Ownership::with_unknown_of` the tool | `Fail` and `Wait` refuse it where the call of the agent is repeated |
/// | `Ownership::with_unknown` | decides about the call of the agent alone. The agent's own `with_unknown` decides about its calls |
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Arc;
/// use uap_agent::{AgentOptions, SubagentTool, agent};
/// use upp::{Reply, ScriptedModel, Tool, object};
///
/// let explorer = agent(AgentOptions::new(Arc::new(ScriptedModel::new([Reply::text("in src/lib.rs")]))))?;
/// let schema = object(r#"{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}"#)?;
/// let explore = SubagentTool::new(explorer, "explore", "Looks through the code", schema, |arguments| {
///     let given: BTreeMap<String, String> = arguments.as_raw().deserialize().map_err(|e| e.to_string())?;
///     Ok(format!("Find {}", given.get("query").ok_or("no query")?))
/// });
/// let lead = ScriptedModel::new([
///     Reply::default().calling("c1", "explore", object(r#"{"query":"main"}"#)?),
///     Reply::text("It is in src/lib.rs."),
/// ]);
/// let lead = agent(AgentOptions::new(Arc::new(lead)).with_tools([Arc::new(explore) as Arc<dyn Tool>]))?;
/// let state = lead.initial_state();
/// let result = futures::executor::block_on(lead.generate("where is main?", &state))?;
/// let trace = &result.state.subagent_traces().iter().next().expect("one agent was called");
/// assert_eq!(trace.result.as_deref(), Some("in src/lib.rs"));
/// assert_eq!(&*trace.parent_tool_call_id, "c1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: UAP-1.1 8
pub struct SubagentTool {
    agent: Agent,
    name: Box<str>,
    description: Box<str>,
    parameters: RawObject,
    subagent_type: Arc<str>,
    tells_events: bool,
    metadata: Option<Metadata>,
    build_prompt: Box<BuildPrompt>,
}

impl SubagentTool {
    /// An agent with the name, description and schema of a tool, and the function that makes a prompt of arguments.
    pub fn new(
        agent: Agent,
        name: impl Into<Box<str>>,
        description: impl Into<Box<str>>,
        parameters: RawObject,
        build_prompt: impl Fn(&RawObject) -> Result<String, ToolError> + Send + Sync + 'static,
    ) -> Self {
        let name = name.into();
        agent.serves(&name);
        Self {
            agent,
            subagent_type: name.as_ref().into(),
            name,
            description: description.into(),
            parameters,
            tells_events: true,
            metadata: None,
            build_prompt: Box::new(build_prompt),
        }
    }

    /// An agent whose arguments are a Rust type. The calling model receives the schema of the type, and arguments that do not
    /// fit it give an error result, so that the model can try again.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    /// use uap_agent::{AgentOptions, SubagentTool, agent};
    /// use upp::{Reply, ScriptedModel, Tool};
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Search {
    ///     /// What to look for.
    ///     query: String,
    /// }
    ///
    /// let explorer = agent(AgentOptions::new(Arc::new(ScriptedModel::new([Reply::text("in src/lib.rs")]))))?;
    /// let explore = SubagentTool::typed(explorer, "explore", "Looks through the code", |search: Search| {
    ///     Ok(format!("Find {}", search.query))
    /// })?;
    /// assert!(explore.parameters().as_str().contains("What to look for."));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The schema of the type is not an object.
    #[cfg(feature = "schemars")]
    pub fn typed<A>(
        agent: Agent,
        name: impl Into<Box<str>>,
        description: impl Into<Box<str>>,
        build_prompt: impl Fn(A) -> Result<String, ToolError> + Send + Sync + 'static,
    ) -> Result<Self, ToolError>
    where
        A: serde::de::DeserializeOwned + schemars::JsonSchema,
    {
        let (name, description) = (name.into(), description.into());
        // A tool of the same arguments has their schema.
        let tool = upp::FnTool::typed(&*name, &*description, |_: A, _| async { Ok(()) })?;
        let parameters = tool.parameters().clone();
        Ok(Self::new(
            agent,
            name,
            description,
            parameters,
            move |arguments| {
                let read = arguments.deserialize::<A>();
                build_prompt(read.map_err(|error| format!("arguments that do not fit: {error}"))?)
            },
        ))
    }

    /// Sets the type of the sub-agent in events and traces: the tool's name by default.
    #[must_use]
    pub fn with_subagent_type(mut self, subagent_type: impl Into<Arc<str>>) -> Self {
        self.subagent_type = subagent_type.into();
        self.agent.serves(&self.subagent_type);
        self
    }

    /// Sets what vendors and protocols read beside the tool.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Sets whether the events inside its run are reported, besides its start and its end: true by default.
    #[must_use]
    pub const fn with_events(mut self, tells: bool) -> Self {
        self.tells_events = tells;
        self
    }

    async fn call(
        &self,
        arguments: &RawObject,
        context: &ToolContext,
    ) -> Result<RawBuf, ToolError> {
        let prompt: Arc<str> = (self.build_prompt)(arguments)?.into();
        let id = self.agent.fresh_uuid();
        let call = SubagentCall {
            subagent_id: id.to_string().into(),
            subagent_type: Arc::clone(&self.subagent_type),
            parent_tool_call_id: Arc::clone(&context.tool_call_id),
            scope: context.extensions.get::<RunScope>(),
        };
        let began = self.agent.now();
        let timestamp = millis(began);
        call.tell(SubagentEvent::Start {
            prompt: Arc::clone(&prompt),
            timestamp,
        })
        .await;
        let trace = context.trace.as_ref().map(|place| below(place, id));
        let input = AgentInput::from(&*prompt).or_trace(trace.as_ref());
        let mut run = self.agent.run_separately(input, call.scope);
        while let Some(event) = run.next().await {
            if self.tells_events {
                call.tell(SubagentEvent::Event(Box::new(event))).await;
            }
        }
        let result = run.result().await;
        let took = self.agent.now().mono.saturating_since(began.mono);
        let took = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
        let end = timestamp.saturating_add(took);
        let mut trace = call.trace(prompt, timestamp, end, result.is_ok());
        let turn = match &result {
            Ok(result) => {
                trace.result = Some(result.turn.response.text().into());
                Some(&result.turn)
            }
            Err(error) => {
                trace.error = Some(error.error.to_string().into());
                error.turn.as_ref()
            }
        };
        if let Some(turn) = turn {
            trace.tool_executions = Some(turn.tool_executions.iter().map(told).collect());
            trace.usage = Some(turn.usage.clone());
        }
        if let Some(scope) = call.scope {
            scope.add_trace(trace.clone());
        }
        let end = SubagentEnd::from(&trace);
        let answer = match (&trace.result, &trace.error) {
            (Some(text), _) => Ok(json_text(text)),
            (None, Some(error)) => Err(ToolError((**error).into())),
            (None, None) => Err("the agent gave nothing".into()),
        };
        call.tell(SubagentEvent::End(Box::new(end))).await;
        answer
    }
}

impl Tool for SubagentTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> &RawObject {
        &self.parameters
    }

    fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    fn run<'a>(
        &'a self,
        arguments: &'a RawObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<RawBuf, ToolError>> {
        Box::pin(self.call(arguments, context))
    }
}

impl fmt::Debug for SubagentTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubagentTool")
            .field("name", &self.name)
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}

/// One call. Without a scope (outside of an agent) nothing is reported.
struct SubagentCall<'a> {
    subagent_id: Arc<str>,
    subagent_type: Arc<str>,
    parent_tool_call_id: Arc<str>,
    scope: Option<&'a RunScope>,
}

impl SubagentCall<'_> {
    async fn tell(&self, told: SubagentEvent) {
        if let Some(scope) = self.scope {
            let data = SubagentData::new(
                Arc::clone(&self.subagent_id),
                Arc::clone(&self.subagent_type),
                Arc::clone(&self.parent_tool_call_id),
                told,
            );
            scope.emit(data).await;
        }
    }

    fn trace(
        &self,
        prompt: Arc<str>,
        start: i64,
        end: i64,
        success: bool,
    ) -> SubagentExecutionTrace {
        SubagentExecutionTrace::new(
            Arc::clone(&self.subagent_id),
            Arc::clone(&self.subagent_type),
            Arc::clone(&self.parent_tool_call_id),
            prompt,
            start,
            end,
            success,
        )
    }
}

/// The place of a sub-agent below that of its call.
// choice: UAP-8-5
fn below(place: &TraceContext, id: Uuid) -> TraceContext {
    let [.., a, b, c, d, e, f, g, h] = id.into_bytes();
    let child = place.child([a, b, c, d, e, f, g, h]);
    child.unwrap_or_else(|| place.clone())
}

fn told(execution: &ToolExecution) -> ToolExecutionTrace {
    let result = ToolResult::from(execution);
    let mut trace = ToolExecutionTrace::new(
        Arc::clone(&execution.tool_name),
        execution.arguments.clone(),
        result.text().into(),
    );
    trace.tool_call_id = Some(Arc::clone(&execution.tool_call_id));
    trace.is_error = Some(execution.is_error);
    trace.duration = Some(execution.duration);
    trace
}

/// Milliseconds since 1970.
fn millis(now: Now) -> i64 {
    now.wall.unix_millis()
}
