//! From the first agent to a strategy of your own. Every example runs, with a scripted model.
//!
//! # The first agent
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::{AgentOptions, agent};
//! use upp::{Reply, ScriptedModel};
//!
//! let model = Arc::new(ScriptedModel::new([Reply::text("Paris."), Reply::text("About two million.")]));
//! let agent = agent(AgentOptions::new(model).with_system("Input briefly."))?;
//! # futures::executor::block_on(async {
//! let start = agent.initial_state();
//! let first = agent.ask("What is the capital of France?", &start).await?;
//! let second = agent.ask("How many people live there?", &first.state).await?;
//! println!("{}", second.turn.response.text());
//! # assert_eq!(second.state.messages().len(), 4);
//! # Ok::<(), Box<uap_agent::AgentError>>(())
//! # })?;
//! # Ok::<(), upp::UppError>(())
//! ```
//!
//! Use an adapter of `upp` (features `openai`, `anthropic`, `google`) in place of the scripted model, or any type that
//! implements [`upp::LlmModel`]. The agent keeps no state: a conversation continues from the state that a call returns, and
//! two calls with the same state make two conversations.
//!
//! # Tools
//!
//! A tool is a name, a description, a schema and a function. With `upp`'s feature `schemars` the schema comes from a
//! Rust type. The calls of one response run concurrently, unless the metadata of the tools set an order.
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::{AgentOptions, agent};
//! use upp::{FnTool, Metadata, Reply, ScriptedModel, Tool, json_text, object};
//!
//! let schema = r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#;
//! let weather = FnTool::new("weather", "The weather of a city", object(schema)?, |_arguments, context| async move {
//!     // `context.cancel` is cancelled when the run ends. The future is dropped at the same time.
//!     println!("call {}", context.tool_call_id);
//!     Ok(json_text("rain"))
//! });
//! // `write` waits for every call of `weather` in the same response.
//! let mut order = Metadata::default();
//! order.set("uap", object(r#"{"dependsOn":["weather"]}"#)?);
//! let write = FnTool::new("write", "Writes a note", object("{}")?, |_, _| async { Ok(json_text("written")) })
//!     .with_metadata(order);
//!
//! let model = ScriptedModel::new([
//!     Reply::default().calling("2", "write", object("{}")?).calling("1", "weather", object(r#"{"city":"Ulm"}"#)?),
//!     Reply::text("Noted: rain."),
//! ]);
//! let tools = [Arc::new(weather) as Arc<dyn Tool>, Arc::new(write)];
//! let agent = agent(AgentOptions::new(Arc::new(model)).with_tools(tools))?;
//! let turn = futures::executor::block_on(agent.query("Note the weather in Ulm"))?;
//! assert_eq!(turn.tool_executions.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! If a tool fails or panics, the model gets the error as the result. Arguments are checked only by the policy
//! [`repair`](crate::repair()), with feature `schema`.
//!
//! # Strategies
//!
//! | strategy | a step is |
//! |---|---|
//! | [`tool_loop`](crate::tool_loop) | one response and its tools |
//! | [`react`](crate::react()) | reasoning without tools, then a response and its tools |
//! | [`plan`](crate::plan()) | the plan; after that, one step of it until the model calls no tool |
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::{AgentOptions, PlanOptions, PlanStepStatus, agent, plan};
//! use upp::{Reply, ScriptedModel};
//!
//! let model = ScriptedModel::new([
//!     Reply::text(r#"{"steps":[{"id":"1","description":"look","dependsOn":[]},{"id":"2","description":"tell","dependsOn":["1"]}]}"#),
//!     Reply::text("I have looked."),
//!     Reply::text("It rains."),
//! ]);
//! let options = AgentOptions::new(Arc::new(model)).with_execution(plan(PlanOptions::default())?);
//! let agent = agent(options)?;
//! let result = futures::executor::block_on(agent.generate("Tell the weather", &agent.initial_state()));
//! let result = result?;
//! let plan = result.state.plan().expect("the strategy makes one");
//! assert!(plan.iter().all(|step| step.status == PlanStepStatus::Completed));
//! # Ok::<(), upp::UppError>(())
//! ```
//!
//! # Watching a run
//!
//! [`Agent::stream`](crate::Agent::stream) gives a run as events. [`Agent::generate`](crate::Agent::generate) reads that
//! stream to its end. Dropping the stream ends the run: model, tools and hooks.
//!
//! ```
//! use std::sync::Arc;
//! use futures::StreamExt;
//! use uap_agent::{AgentOptions, AgentStreamEvent, agent};
//! use upp::{Reply, ScriptedModel, StreamEventType};
//!
//! # futures::executor::block_on(async {
//! let model = ScriptedModel::new([Reply::text("It rains in Ulm.").in_pieces_of(4)]);
//! let agent = agent(AgentOptions::new(Arc::new(model))).map_err(Box::new)?;
//! let mut run = agent.stream("How is the weather?", &agent.initial_state());
//! let mut said = String::new();
//! while let Some(event) = run.next().await {
//!     match event {
//!         AgentStreamEvent::Upp(event) if event.event_type == StreamEventType::TextDelta => {
//!             said.push_str(event.delta.text.as_deref().unwrap_or_default());
//!         }
//!         AgentStreamEvent::Uap(event) => println!("step {}: {}", event.step, event.event_type),
//!         _ => {}
//!     }
//! }
//! assert_eq!(said, "It rains in Ulm.");
//! let result = run.result().await?;
//! assert_eq!(result.turn.response.text(), said);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Limits
//!
//! A run has no limit by default. A stop condition of [`AgentStrategy`], a limit of the strategy, a [`Budget`] or [`abort`]
//! ends it.
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::HookFuture;
//! use uap_agent::{AgentOptions, AgentState, AgentStrategy, agent};
//! use upp::{Reply, ScriptedModel, object};
//!
//! struct Enough(u64);
//!
//! impl AgentStrategy for Enough {
//!     fn stop_condition<'a>(&'a self, state: &'a AgentState) -> HookFuture<'a, bool> {
//!         Box::pin(async move { Ok(state.step() >= self.0) })
//!     }
//! }
//!
//! let model = ScriptedModel::with(|_| Some(Reply::default().calling("c", "more", object("{}").ok()?)));
//! # let tool = upp::FnTool::new("more", "", object("{}")?, |_, _| async { Ok(upp::json_text("more")) });
//! # let tools = [Arc::new(tool) as Arc<dyn upp::Tool>];
//! let options = AgentOptions::new(Arc::new(model)).with_tools(tools).with_strategy(Arc::new(Enough(5)));
//! let turn = futures::executor::block_on(agent(options)?.query("go on"))?;
//! assert_eq!(turn.cycles, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Middleware
//!
//! [`Middleware`] is called with the request before a run and with the result after it. The crate has [`logging`],
//! [`retry`] and [`Budget`].
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::middleware::{Budget, LoggingOptions, logging, retry};
//! use uap_agent::{AgentOptions, Middleware, agent};
//! use upp::{ExponentialBackoff, Reply, ScriptedModel};
//!
//! let budget = Budget::default().with_max_tokens(50_000);
//! let model = Arc::new(ScriptedModel::new([Reply::text("done")]));
//! let agent = agent(AgentOptions::new(model).with_middleware([
//!     logging(LoggingOptions::default()),
//!     retry(Arc::new(ExponentialBackoff::default())),
//!     Arc::new(budget.clone()) as Arc<dyn Middleware>,
//! ]))?;
//! futures::executor::block_on(agent.query("do it"))?;
//! println!("{} tokens spent", budget.tokens());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Agents as tools
//!
//! A [`SubagentTool`](crate::SubagentTool) is an agent with the name and the schema of a tool. Its events are part of the
//! parent's stream, its trace is part of the parent's state, and the end of the parent ends it. The parent's approvals hold
//! inside of it; its table says what becomes of the calls of its tools.
//!
//! # Distributed traces
//!
//! A program that is itself called within a trace gives a run its place there ([`AgentInput::with_trace`](crate::AgentInput::with_trace),
//! or for a session [`AgentSession::with_trace`](crate::AgentSession::with_trace)). Adapters put it into the headers of the
//! requests to the model, tools find it in their context ([`ToolContext::trace`](upp::ToolContext::trace)) and MCP servers in
//! `_meta`. The vendor sees the ids. The place stands in the metadata of the states of the run: checkpoints and journals keep it,
//! and a later run that is given no place goes on from there.
//!
//! # Checkpoints
//!
//! With a [`CheckpointStore`](crate::CheckpointStore) the state is saved after each step. After a crash, load it and ask
//! again.
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::{AgentOptions, CheckpointStore, FileCheckpoints, agent};
//! use upp::{Reply, ScriptedModel};
//!
//! # futures::executor::block_on(async {
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! let store = Arc::new(FileCheckpoints::open(dir)?);
//! let model = Arc::new(ScriptedModel::new([Reply::text("Paris."), Reply::text("Two million.")]));
//! let options = AgentOptions::new(model).with_checkpoints(store.clone()).with_session_id("geography");
//! let agent = agent(options)?;
//! agent.ask("What is the capital of France?", &agent.initial_state()).await?;
//!
//! // Another day, another process:
//! let state = store.load("geography").await?.unwrap_or_else(|| agent.initial_state());
//! let result = agent.ask("How many people live there?", &state).await?;
//! assert_eq!(result.state.messages().len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! A [`ThreadTree`](crate::ThreadTree) holds the states of a conversation with branches.
//!
//! # Traces
//!
//! A [`Trace`] collects the events of a run and writes them as one HTML page without scripts and without network access. The
//! page shows steps, responses, concurrent tools, sub-agents, tokens and failures.
//!
//! ```
//! use std::sync::Arc;
//! use futures::StreamExt;
//! use uap_agent::Trace;
//! use uap_agent::{AgentOptions, agent};
//! use upp::{Reply, ScriptedModel};
//!
//! # futures::executor::block_on(async {
//! let agent = agent(AgentOptions::new(Arc::new(ScriptedModel::new([Reply::text("hello")]))))?;
//! let clock = uap_agent::ubos_common::os::Clock::start();
//! let mut trace = Trace::default();
//! let mut run = agent.stream("hi", &agent.initial_state());
//! while let Some(event) = run.next().await {
//!     trace.push(clock.now(), &event);
//! }
//! trace.end(clock.now(), &run.result().await);
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! std::fs::write(folder.join("run.html"), trace.to_html())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Journals
//!
//! A checkpoint holds a state. A journal (feature `canon`, in files with `log`) holds the whole run. `agent.record(journal, …)`
//! writes each request before it is sent, and each result before the run continues. After a crash,
//! `agent.resume(journal)` continues the run in another process: recorded results are used again, no model or tool is called
//! for them, and the ids are the same. `agent.replay(…)` repeats a recorded run without side effects, `Recording::fork`
//! replaces a result, and `Recording::diff` finds the first difference of two runs. A recording of another program is
//! refused before anything is done.
//!
//! # Approval by a person
//!
//! A call that needs an approval pauses a recorded run. The question is in the journal, and the process may end. Another
//! process records the decision, and any agent of the same program resumes the run.
//!
//! ```
//! # #[cfg(feature = "canon")]
//! # fn main() {
//! use std::sync::Arc;
//! use uap_agent::journal::{Decision, MemoryJournal, Paused, Recording, Verdict};
//! use uap_agent::{AgentOptions, ApprovalPolicy, ApprovalRequest, agent};
//! use uap_agent::ubos_common::os::Clock;
//! use upp::{FnTool, Reply, ScriptedModel, ToolCall, json_text, object};
//!
//! struct All;
//!
//! impl ApprovalPolicy for All {
//!     fn request(&self, _call: &ToolCall) -> Option<ApprovalRequest> {
//!         Some(ApprovalRequest::default().with_persons(["ann"]))
//!     }
//! }
//!
//! # futures::executor::block_on(async {
//! let model = ScriptedModel::new([
//!     Reply::default().calling("c1", "delete", object(r#"{"file":"a.txt"}"#)?),
//!     Reply::text("It is gone."),
//! ]);
//! let delete = FnTool::new("delete", "", object("{}")?, |_, _| async { Ok(json_text("deleted")) });
//! let options = AgentOptions::new(Arc::new(model)).with_tool(delete).with_approvals(Arc::new(All));
//! let agent = agent(options)?;
//! let journal = Arc::new(MemoryJournal::default());
//! let run = agent.record(journal.clone(), "Delete it.", &agent.initial_state());
//! let error = run.result().await.expect_err("it waits for Ann");
//! assert!(Paused::of(&error.error).is_some());
//!
//! // Elsewhere, later:
//! let question = Recording::load(journal.as_ref()).await?.questions().remove(0);
//! let decision = Decision::new(&question, "ann", Verdict::Approve);
//! Recording::decide(journal.as_ref(), Clock::start().now(), &decision).await?;
//! let result = agent.resume(journal).await?.result().await?;
//! assert_eq!(result.turn.response.text(), "It is gone.");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! # }
//! # #[cfg(not(feature = "canon"))]
//! # fn main() {}
//! ```
//!
//! # A strategy of your own
//!
//! A strategy returns the next command and performs nothing itself: streaming, hooks, checkpoints, tools and abort are the
//! engine's work. This strategy asks a second time for a better response.
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::strategy::{Inference, Command, Outcome, StrategyRun};
//! use uap_agent::{AgentOptions, EventData, ExecutionContext, ExecutionStrategy, agent};
//! use upp::{Reply, ScriptedModel};
//!
//! struct Twice;
//!
//! impl ExecutionStrategy for Twice {
//!     fn name(&self) -> &str {
//!         "twice"
//!     }
//!     fn begin(&self) -> Box<dyn StrategyRun> {
//!         Box::new(Twice)
//!     }
//! }
//!
//! impl StrategyRun for Twice {
//!     fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command {
//!         match outcome {
//!             Outcome::Started => Command::StartStep(EventData::phase("draft")),
//!             Outcome::StepStarted if context.step == 1 => Command::Infer(Inference::action()),
//!             Outcome::StepStarted => Command::Infer(Inference::action().with_prompt("Now say it better.")),
//!             Outcome::Inferred { .. } => Command::EndStep(EventData::phase("said")),
//!             Outcome::StepEnded if context.step == 1 => Command::StartStep(EventData::phase("final")),
//!             Outcome::Failed(error) => Command::Fail(error),
//!             _ => Command::Finish,
//!         }
//!     }
//! }
//!
//! let model = Arc::new(ScriptedModel::new([Reply::text("Rain, I guess."), Reply::text("It rains.")]));
//! let agent = agent(AgentOptions::new(model).with_execution(Arc::new(Twice)))?;
//! let turn = futures::executor::block_on(agent.query("How is the weather?"))?;
//! assert_eq!(turn.response.text(), "It rains.");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`AgentStrategy`]: crate::AgentStrategy
//! [`Trace`]: crate::Trace
//! [`Middleware`]: crate::Middleware
//! [`Budget`]: crate::middleware::Budget
//! [`logging`]: crate::middleware::logging
//! [`retry`]: crate::middleware::retry
//! [`abort`]: crate::AgentStreamResult::abort
