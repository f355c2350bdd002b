//! Being an agent: its tools, put together and served.

mod control;
mod driver;
mod pool;
mod results;
mod state;
mod tool;

use core::fmt;
use std::future::Future;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use ubos_common::json::RawObject;

use super::context::{ToolContext, ToolError};
use crate::error::{ErrorCode, ErrorObject, require};
use crate::message::{SemVer, ToolSpec};
use crate::role::CloseReason;
use crate::role::agent::Config;
use crate::token::SessionToken;
pub use control::AgentControl;
use driver::AgentDriver;
use pool::Pool;
pub use state::{Agent, ServeError};
pub use tool::Tool;

impl Agent {
    /// An agent of a version, without tools yet.
    #[must_use]
    pub fn new(version: SemVer) -> Self {
        let (control, asked) = control::channel();
        Self {
            version,
            tools: Vec::new(),
            tools_check_inputs: false,
            pool: Pool::default(),
            control,
            asked,
        }
    }

    /// A handle that offers other tools, or ends the agent, while it serves.
    #[must_use]
    pub fn control(&self) -> AgentControl {
        self.control.clone()
    }

    /// Serves the core that launched this process, as [`serve_from_env`](Self::serve_from_env), on a runtime of its own on this
    /// thread: for a program that is an agent and nothing else.
    ///
    /// # Errors
    ///
    /// See [`ServeError`].
    ///
    /// # Panics
    ///
    /// On a task of tokio.
    #[cfg(unix)]
    pub fn run(self) -> Result<CloseReason, ServeError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServeError::Runtime)?;
        runtime.block_on(self.serve_from_env())
    }

    /// Serves the core that launched this process, until it says goodbye or vanishes.
    ///
    /// # Errors
    ///
    /// See [`ServeError`].
    ///
    /// Spec: OpenSentience 5.2
    // impl: OSW-5-3
    #[cfg(unix)]
    pub async fn serve_from_env(self) -> Result<CloseReason, ServeError> {
        let var =
            |name: &'static str| std::env::var(name).map_err(|_| ServeError::Environment(name));
        let path = var("OPENSENTIENCE_SOCKET_PATH")
            .or_else(|missing| std::env::var("OPENSENTIENCE_SOCKET").map_err(|_| missing))?;
        let token = SessionToken::from(var("OPENSENTIENCE_SESSION_TOKEN")?);
        let agent_id = var("OPENSENTIENCE_AGENT_ID")?;
        let stream = tokio::net::UnixStream::connect(path).await;
        let stream = stream.map_err(ServeError::Connect)?;
        let config = Config::new(agent_id, self.version.clone(), token);
        self.serve(stream, config).await
    }

    /// Serves a core over any stream.
    ///
    /// While more than 1 MiB waits to be sent, nothing is read, no tool begins, and what tools come back with waits: together at
    /// most [`Limits::max_inflight_bytes`](crate::Limits). A result beyond that ends its call with `tool.output_too_large`.
    ///
    /// # Errors
    ///
    /// See [`ServeError`].
    pub async fn serve<S>(self, stream: S, config: Config) -> Result<CloseReason, ServeError>
    where
        S: AsyncRead + AsyncWrite,
    {
        let threads = self.pool.max_threads();
        let wanted = "blocking tools need at least 1 thread";
        require(threads > 0, "blocking_threads", threads, wanted)?;
        let config = match self.tools_check_inputs {
            true => config.with_tools_checking_inputs(),
            false => config,
        };
        let ended = AgentDriver::new(self, stream, config)?.run().await;
        match ended.map_err(ServeError::Tools)? {
            CloseReason::Protocol(code) => Err(ServeError::Protocol(code)),
            reason => Ok(reason),
        }
    }

    /// Adds an asynchronous tool. Made with [`ToolSpec::local`], it gets the agent's id.
    ///
    /// The input is an object that fits the schema; what the schema cannot say is answered with
    /// [`ToolError::invalid_input`]. The tool begins on the task that reads from the core, and goes on there until it
    /// first waits: one that blocks holds up heartbeats and other calls, and belongs to
    /// [`Agent::blocking_tool`].
    #[must_use]
    pub fn tool<F, R>(self, spec: ToolSpec, run: F) -> Self
    where
        F: Fn(ToolContext, RawObject) -> R + Send + Sync + 'static,
        R: Future<Output = Result<RawObject, ToolError>> + Send + 'static,
    {
        self.offer(Tool::new(spec, run))
    }

    /// Adds a tool that is put together elsewhere.
    pub(crate) fn offer(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds an asynchronous tool whose input and output are types of its own.
    ///
    /// An input that the type refuses ends the call `tool.invalid_input` without running the tool; the type may demand
    /// what a schema cannot say. The output must be written as an object.
    #[must_use]
    pub fn typed_tool<I, O, F, R>(self, spec: ToolSpec, run: F) -> Self
    where
        I: DeserializeOwned,
        O: Serialize,
        F: Fn(ToolContext, I) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, ToolError>> + Send + 'static,
    {
        self.tool(spec, move |context, input| {
            let begun = input.deserialize().map(|input| run(context, input));
            async move {
                // What it was told to refuse may be in the text of the error.
                let unfit = |_| ToolError::invalid_input("the input does not fit the tool's type");
                let output = begun.map_err(unfit)?.await?;
                let output = RawObject::from_serialize(&output).ok().flatten();
                output.ok_or_else(|| {
                    let message = "the output cannot be written as an object";
                    ErrorObject::of(ErrorCode::ToolInternal, message).into()
                })
            }
        })
    }

    /// Adds an asynchronous tool that is declared by its types: as [`typed_tool`](Self::typed_tool), with
    /// [`ToolSpec::of_types`].
    ///
    /// ```no_run
    /// use opensentience_wire::transport::tokio::{Agent, ToolContext, ToolError};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Greet { name: String }
    /// #[derive(serde::Serialize, schemars::JsonSchema)]
    /// struct Greeting { text: String }
    ///
    /// async fn greet(_: ToolContext, input: Greet) -> Result<Greeting, ToolError> {
    ///     Ok(Greeting { text: format!("hello, {}", input.name) })
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// Agent::new("1.0.0".parse()?).declared_tool("greet", "says hello", greet).run()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "schemars")]
    #[must_use]
    pub fn declared_tool<I, O, F, R>(self, name: &str, description: &str, run: F) -> Self
    where
        I: DeserializeOwned + schemars::JsonSchema,
        O: Serialize + schemars::JsonSchema,
        F: Fn(ToolContext, I) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, ToolError>> + Send + 'static,
    {
        self.typed_tool(ToolSpec::of_types::<I, O>(name, description), run)
    }

    /// Adds a tool that blocks: its calls run on threads beside the task that reads from the core, at most
    /// [`Agent::with_blocking_threads`] at once; others wait for a thread, and their time runs.
    ///
    /// A thread cannot be stopped: ask [`ToolContext::is_cancelled`]. It is taken until the tool returns.
    #[must_use]
    pub fn blocking_tool<F>(self, spec: ToolSpec, run: F) -> Self
    where
        F: Fn(ToolContext, RawObject) -> Result<RawObject, ToolError> + Send + Sync + 'static,
    {
        let run = Arc::new(run);
        let pool = self.pool.clone();
        self.tool(spec, move |context, input| {
            let (run, pool) = (Arc::clone(&run), pool.clone());
            async move {
                pool.run(move || {
                    if context.is_cancelled() {
                        return Err(ToolError::canceled());
                    }
                    run(context, input)
                })
                .await
            }
        })
    }

    /// Says that the tools check their inputs by themselves, or take any: without the feature `schema` an agent that does not
    /// say so registers none.
    #[must_use]
    pub const fn with_tools_checking_inputs(mut self) -> Self {
        self.tools_check_inputs = true;
        self
    }

    /// Sets how many calls of blocking tools run at once; at least 1, which is checked when the agent serves.
    /// Default: 32.
    #[must_use]
    pub fn with_blocking_threads(self, threads: usize) -> Self {
        self.pool.set_threads(threads);
        self
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.tools.iter().map(|tool| &tool.spec.name);
        f.debug_set().entries(names).finish()
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tool").field(&self.spec.name).finish()
    }
}
