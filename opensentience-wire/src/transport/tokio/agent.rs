//! Being an agent: tools, and the driver that runs them.

use core::fmt;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinSet};
use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use ubos_common::machine::Machine as _;
use ubos_common::os::{Clock, OsError};

use super::context::{BlockingContext, Piece, ToolContext, ToolError};
use super::io::{Alarm, Moved, Wire};
use crate::error::{EncodeError, ErrorCode, ErrorObject};
use crate::message::{SemVer, ToolSpec};
use crate::role::agent::{AgentConnection, Config, Event, IncomingCall, Output};
use crate::role::{CallId, CloseReason, Input};
use crate::token::SessionToken;

/// How long a cancelled asynchronous tool may tidy up before it is dropped.
const TIDY_UP: Duration = Duration::from_millis(500);

/// Pieces of output that wait for the driver, of all calls together.
const PIECES: usize = 64;

type ToolFuture = Pin<Box<dyn Future<Output = Result<RawObject, ToolError>> + Send>>;
type Handler = Arc<dyn Fn(ToolContext, RawObject) -> ToolFuture + Send + Sync>;

/// Why an agent does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The environment lacks what the core passes at a launch.
    #[error("{0} is not set: an agent is launched by a core")]
    Environment(&'static str),
    /// The core's socket cannot be reached.
    #[error("the core's socket cannot be reached")]
    Connect(#[source] std::io::Error),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] OsError),
    /// The hello is too long.
    #[error(transparent)]
    Hello(#[from] EncodeError),
    /// The core refused the agent, or broke the protocol.
    #[error("the connection ended with {0}")]
    Protocol(ErrorCode),
}

/// An agent: tools, ready to be served.
///
/// ```no_run
/// use opensentience_wire::message::{SemVer, ToolSpec};
/// use opensentience_wire::transport::tokio::{Agent, ToolError};
/// use ubos_common::json::{RawBuf, RawObject};
///
/// #[derive(serde::Deserialize)]
/// struct Greet { name: String }
/// #[derive(serde::Serialize)]
/// struct Greeting { text: String }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let schema = r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}"#;
/// let schema = RawObject::new(RawBuf::parse(schema)?).ok_or("no object")?;
/// Agent::builder(SemVer::parse("1.0.0").ok_or("no version")?)
///     .typed_tool(ToolSpec::local("greet", "says hello", schema), async |context, Greet { name }| {
///         context.log("somebody is greeted").await.map_err(|_| ToolError::canceled())?;
///         Ok(Greeting { text: format!("hello, {name}") })
///     })
///     .build()
///     .serve_from_env()
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct Agent {
    version: SemVer,
    tools: Vec<(ToolSpec, Handler)>,
}

/// Puts an [`Agent`] together.
pub struct AgentBuilder(Agent);

impl Agent {
    /// An agent of a version, without tools yet.
    #[must_use]
    pub fn builder(version: SemVer) -> AgentBuilder {
        AgentBuilder(Self {
            version,
            tools: Vec::new(),
        })
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
    /// # Errors
    ///
    /// See [`ServeError`].
    pub async fn serve<S>(self, stream: S, config: Config) -> Result<CloseReason, ServeError>
    where
        S: AsyncRead + AsyncWrite,
    {
        let clock = Clock::start();
        let wire = Wire::new(stream, clock);
        let conn = AgentConnection::new(wire.now(), config, IdSource::from_os()?)?;
        let (pieces, pieces_rx) = mpsc::channel(PIECES);
        let driver = Driver {
            wire,
            alarm: Alarm::new(clock),
            conn,
            specs: self.tools.iter().map(|(spec, _)| spec.clone()).collect(),
            handlers: self
                .tools
                .into_iter()
                .map(|(spec, run)| (spec.name, run))
                .collect(),
            running: JoinSet::new(),
            calls: HashMap::new(),
            cancels: HashMap::new(),
            pieces,
            closed: None,
        };
        match driver.run(pieces_rx).await {
            CloseReason::Protocol(code) => Err(ServeError::Protocol(code)),
            reason => Ok(reason),
        }
    }
}

impl AgentBuilder {
    /// Adds an asynchronous tool. Made with [`ToolSpec::local`], it gets the agent's id.
    ///
    /// The input is an object that fits the schema; what the schema cannot say is answered with
    /// [`ToolError::invalid_input`]. The tool begins on the task that reads from the core, and goes on there until it
    /// first waits: one that blocks holds up heartbeats and other calls, and belongs to
    /// [`AgentBuilder::blocking_tool`].
    #[must_use]
    pub fn tool<F, R>(mut self, spec: ToolSpec, run: F) -> Self
    where
        F: Fn(ToolContext, RawObject) -> R + Send + Sync + 'static,
        R: Future<Output = Result<RawObject, ToolError>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |context, input| Box::pin(run(context, input)));
        self.0.tools.push((spec, handler));
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

    /// Adds a tool that blocks: each call runs on a thread of its own.
    ///
    /// A thread cannot be stopped: ask [`BlockingContext::is_cancelled`]. Until it returns it takes one of
    /// the places for calls.
    #[must_use]
    pub fn blocking_tool<F>(self, spec: ToolSpec, run: F) -> Self
    where
        F: Fn(BlockingContext, RawObject) -> Result<RawObject, ToolError> + Send + Sync + 'static,
    {
        let run = Arc::new(run);
        self.tool(spec, move |context, input| {
            on_thread(Arc::clone(&run), BlockingContext(context), input)
        })
    }

    /// The agent.
    #[must_use]
    pub fn build(self) -> Agent {
        self.0
    }
}

async fn on_thread<F>(
    run: Arc<F>,
    context: BlockingContext,
    input: RawObject,
) -> Result<RawObject, ToolError>
where
    F: Fn(BlockingContext, RawObject) -> Result<RawObject, ToolError> + Send + Sync + 'static,
{
    let (tx, rx) = oneshot::channel();
    let started = std::thread::Builder::new()
        .name("tool".into())
        // Nobody may wait for the answer any more.
        .spawn(move || drop(tx.send(run(context, input))));
    if started.is_err() {
        return Err(ErrorObject::of(ErrorCode::ToolBusy, "no thread is to be had").into());
    }
    // A panic drops the sender.
    rx.await.unwrap_or_else(|_| Err(internal().into()))
}

// impl: OSW-7-4
fn internal() -> ErrorObject {
    ErrorObject::of(ErrorCode::ToolInternal, "the tool panicked").noticed_by("agent.runtime")
}

struct Driver<S> {
    wire: Wire<S>,
    alarm: Alarm,
    conn: AgentConnection,
    specs: Vec<ToolSpec>,
    handlers: HashMap<String, Handler>,
    running: JoinSet<Result<RawObject, ToolError>>,
    calls: HashMap<Id, CallId>,
    cancels: HashMap<CallId, watch::Sender<bool>>,
    pieces: mpsc::Sender<Piece>,
    closed: Option<CloseReason>,
}

impl<S: AsyncRead + AsyncWrite> Driver<S> {
    async fn run(mut self, mut pieces: mpsc::Receiver<Piece>) -> CloseReason {
        self.drain();
        let reason = loop {
            if let Some(reason) = self.closed.take() {
                break reason;
            }
            let room = self.wire.has_room();
            let reading = room && self.conn.accepts_input();
            let timer = self.alarm.ring(self.conn.poll_timeout());
            tokio::select! {
                moved = self.wire.move_bytes(reading) => self.on_moved(moved),
                Some(piece) = pieces.recv(), if room => {
                    let now = self.wire.now();
                    let result = self.conn.stream(now, &piece.id, piece.chunk);
                    // A tool that was dropped asks no more.
                    let _ = piece.reply.send(result);
                }
                Some(ended) = self.running.join_next_with_id() => self.on_ended(ended),
                () = timer => self.conn.handle_timeout(self.wire.now()),
            }
            self.drain();
        };
        self.wire.close().await;
        reason
    }

    fn on_moved(&mut self, moved: Moved) {
        let now = self.wire.now();
        // A fault is among the outputs too.
        let _ = match moved {
            Moved::Read(0) | Moved::Broken => self.conn.handle_input(now, Input::Eof),
            Moved::Read(count) => {
                let bytes = Input::Bytes(self.wire.received(count));
                self.conn.handle_input(now, bytes)
            }
            Moved::Sent => Ok(()),
        };
    }

    fn on_ended(
        &mut self,
        ended: Result<(Id, Result<RawObject, ToolError>), tokio::task::JoinError>,
    ) {
        let (task, result) = match ended {
            Ok((task, result)) => (task, result.map_err(ToolError::into_inner)),
            Err(error) => (error.id(), Err(internal())),
        };
        if let Some(id) = self.calls.remove(&task) {
            self.cancels.remove(&id);
            // The call may have had its result before.
            let _ = self.conn.finish(self.wire.now(), &id, result);
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.conn.poll_output() {
            match output {
                Output::Transmit(bytes) => self.wire.send(&bytes),
                Output::Call(call) => self.start(*call),
                Output::Cancel(id) => {
                    if let Some(cancel) = self.cancels.get(&id) {
                        cancel.send_replace(true);
                    }
                }
                Output::Event(Event::Welcomed { .. }) => {
                    let specs = core::mem::take(&mut self.specs);
                    if self.conn.register(self.wire.now(), specs, false).is_err() {
                        self.conn.shutdown(self.wire.now());
                    }
                }
                Output::Event(_) => {}
                Output::Close(reason) => self.closed = Some(reason),
            }
        }
    }

    fn start(&mut self, call: IncomingCall) {
        let id = call.call_id.clone();
        let name = call.call.tool_id.rsplit('/').next().unwrap_or_default();
        let Some(handler) = self.handlers.get(name).cloned() else {
            let error = ErrorObject::of(ErrorCode::ToolNotFound, "no such tool");
            let _ = self.conn.finish(self.wire.now(), &id, Err(error));
            return;
        };
        let (cancel, cancelled) = watch::channel(false);
        let input = call.call.input.clone();
        let span = call.call.timeout_ms.map(Duration::from_millis);
        let due = span.map(|span| self.wire.now().mono.saturating_add(span));
        let context = ToolContext {
            call: Arc::new(call),
            pieces: self.pieces.clone(),
            cancel: cancelled,
            clock: self.wire.clock(),
            due,
        };
        match begin(&handler, &context, input) {
            Begun::Ended(result) => {
                let result = result.map_err(ToolError::into_inner);
                // The call may have had its result before.
                let _ = self.conn.finish(self.wire.now(), &id, result);
            }
            Begun::Waits(tool) => {
                let task = self.running.spawn(go_on(tool, context)).id();
                self.calls.insert(task, id.clone());
                self.cancels.insert(id, cancel);
            }
        }
    }
}

/// What a tool did when it was run for the first time.
enum Begun {
    Ended(Result<RawObject, ToolError>),
    Waits(ToolFuture),
}

/// Runs a tool until it first waits: most never do, and a task costs more than they do.
fn begin(handler: &Handler, context: &ToolContext, input: RawObject) -> Begun {
    let first = AssertUnwindSafe(|| {
        let mut tool = handler(context.clone(), input);
        // Whoever it waits for learns of the task when that runs it again, at once.
        match tool.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Begun::Ended(result),
            Poll::Pending => Begun::Waits(tool),
        }
    });
    catch_unwind(first).unwrap_or_else(|_| Begun::Ended(Err(internal().into())))
}

/// Runs a tool to its end, or drops it a moment after it was cancelled.
async fn go_on(tool: ToolFuture, context: ToolContext) -> Result<RawObject, ToolError> {
    let late = async {
        context.cancelled().await;
        tokio::time::sleep(TIDY_UP).await;
    };
    tokio::select! {
        result = tool => result,
        () = late => Err(ToolError::canceled()),
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.tools.iter().map(|(spec, _)| &spec.name);
        f.debug_set().entries(names).finish()
    }
}

impl fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
