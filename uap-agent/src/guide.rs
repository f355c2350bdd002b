//! From the first agent to a strategy of your own. Every example runs, on a model that says what it was told to say.
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
//! # }).map_err(|e| e.error)?;
//! # Ok::<(), upp::UppError>(())
//! ```
//!
//! In place of the scripted model stands one of `upp`'s adapters (features `openai`, `anthropic`, `google`), or any type
//! that implements [`upp::LlmModel`]. The agent keeps nothing: a conversation goes on with the state that comes back,
//! and asking twice from one state makes two conversations.
//!
//! # Tools
//!
//! A tool is a name, a description, a schema and a function. With `upp`'s feature `schemars` the schema comes from a
//! Rust type. Calls of one answer run side by side, unless their metadata say otherwise.
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::{AgentOptions, agent};
//! use upp::{FnTool, Metadata, Reply, ScriptedModel, Tool, json_text, object};
//!
//! let schema = r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#;
//! let weather = FnTool::new("weather", "The weather of a city", object(schema)?, |_arguments, context| async move {
//!     // `context.cancel` is told when the run is ended; dropping the future ends it in any case.
//!     println!("call {}", context.tool_call_id);
//!     Ok(json_text("rain"))
//! });
//! // `write` waits for every call of `weather` in the same answer.
//! let mut order = Metadata::new();
//! order.set("uap", object(r#"{"dependsOn":["weather"]}"#)?);
//! let write = FnTool::new("write", "Writes a note", object("{}")?, |_, _| async { Ok(json_text("written")) })
//!     .with_metadata(order);
//!
//! let model = ScriptedModel::new([
//!     Reply::silent().calling("2", "write", object("{}")?).calling("1", "weather", object(r#"{"city":"Ulm"}"#)?),
//!     Reply::text("Noted: rain."),
//! ]);
//! let tools = [Arc::new(weather) as Arc<dyn Tool>, Arc::new(write)];
//! let agent = agent(AgentOptions::new(Arc::new(model)).with_tools(tools))?;
//! let turn = futures::executor::block_on(agent.query("Note the weather in Ulm"))?;
//! assert_eq!(turn.tool_executions.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a tool fails with, a panic included, is a result that the model reads. Arguments are not checked, unless
//! [`repair`](crate::repair::repair) with feature `schema` is asked to.
//!
//! # Strategies
//!
//! | strategy | a step is |
//! |---|---|
//! | [`tool_loop`](crate::tool_loop) | one answer and its tools |
//! | [`react`](crate::react()) | reasoning without tools, then an answer and its tools |
//! | [`plan`](crate::plan()) | the plan, then one step of it until no tool is called |
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
//! let result = result.map_err(|e| e.error)?;
//! let plan = result.state.plan().expect("the strategy makes one");
//! assert!(plan.iter().all(|step| step.status == PlanStepStatus::Completed));
//! # Ok::<(), upp::UppError>(())
//! ```
//!
//! # Watching a run
//!
//! [`Agent::stream`](crate::Agent::stream) is the same run in events; [`Agent::generate`](crate::Agent::generate) is
//! that stream, drained. Dropping it ends everything that it has started.
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
//! let result = run.result().await.map_err(|e| e.error)?;
//! assert_eq!(result.turn.response.text(), said);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Ends
//!
//! Nothing limits a run by default. What ends one that would go on: a stop condition of [`AgentStrategy`], a limit of
//! the strategy, a [`Budget`], or [`abort`].
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
//! let model = ScriptedModel::with(|_| Some(Reply::silent().calling("c", "more", object("{}").ok()?)));
//! # let tool = upp::FnTool::new("more", "", object("{}")?, |_, _| async { Ok(upp::json_text("more")) });
//! # let tools = [Arc::new(tool) as Arc<dyn upp::Tool>];
//! let options = AgentOptions::new(Arc::new(model)).with_tools(tools).with_strategy(Arc::new(Enough(5)));
//! let turn = futures::executor::block_on(agent(options)?.query("go on"))?;
//! assert_eq!(turn.cycles, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layers around a run
//!
//! [`Middleware`] sees the request before the run and the result after it. [`logging`], [`retry`] and [`Budget`] come
//! with the crate.
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
//! A [`SubagentTool`](crate::SubagentTool) is an agent with a tool's name and schema. Its events come through the
//! parent's stream, its trace is in the parent's state, and it ends with its parent. See its page for an example.
//!
//! # Keeping states
//!
//! With a [`CheckpointStore`](crate::CheckpointStore) the state is saved after each step, in order. Going on after a
//! crash is loading it and asking again.
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
//! Conversations that branch are a [`ThreadTree`](crate::ThreadTree) of states.
//!
//! # Looking at a run
//!
//! A [`Trace`] takes the events as they come and draws them on one page, which needs no network and runs no script:
//! steps, answers, tools side by side, agents inside of them, tokens, failures.
//!
//! ```
//! use std::sync::Arc;
//! use futures::StreamExt;
//! use uap_agent::{Trace, TraceLimits};
//! use uap_agent::{AgentOptions, agent};
//! use upp::{Reply, ScriptedModel};
//!
//! # futures::executor::block_on(async {
//! let agent = agent(AgentOptions::new(Arc::new(ScriptedModel::new([Reply::text("hello")]))))?;
//! let clock = ubos_common::os::Clock::start();
//! let mut trace = Trace::new(TraceLimits::default());
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
//! # Going on after a kill
//!
//! A checkpoint keeps a state; a journal (feature `canon`, in files with `log`) keeps the run itself. With
//! `agent.record(journal, …).result()` every question is written before it is asked and every answer before the run goes
//! on from it. When the process is gone, `agent.resume(journal)` in another one goes on: what was answered is not done
//! again, no tool and no model is called for it, and the ids are those of the first process. `agent.replay(…)` shows a
//! recorded run again without a world, `Recording::fork` gives it another answer somewhere, `Recording::diff` finds where
//! two runs part. A program that asks something else than the recorded one is refused before it does anything.
//!
//! # A strategy of your own
//!
//! A strategy says what is next and does nothing itself: streaming, hooks, checkpoints, tools and abort are the
//! engine's. This one asks a second time for a better answer.
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
//! [`Trace`]: crate::trace::Trace
//! [`Middleware`]: crate::Middleware
//! [`Budget`]: crate::middleware::Budget
//! [`logging`]: crate::middleware::logging
//! [`retry`]: crate::middleware::retry
//! [`abort`]: crate::AgentStreamResult::abort
