//! What moves bytes for an agent's connection and runs its tools.

use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};
use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use ubos_common::os::Clock;

use super::super::context::{Piece, RunningTool, ToolContext, ToolError};
use super::super::io::{Alarm, Moved, Wire};
use super::super::trace;
use super::control::{AgentControl, Asked, Update};
use super::results::{Returned, Room};
use super::state::{Agent, ServeError};
use super::tool::{Handler, Tool, ToolFuture, internal};
use crate::error::{CommandError, ErrorCode, ErrorObject};
use crate::message::ToolSpec;
use crate::role::agent::{AgentConnection, Config, Event, IncomingCall, Output};
use crate::role::{CallId, CloseReason, Input};

/// How long a cancelled asynchronous tool may tidy up before it is dropped.
const TIDY_UP: Duration = Duration::from_millis(500);

/// Pieces of output that wait for the driver, of all calls together.
const WAITING_CHUNKS: usize = 64;

/// Drives an [`AgentConnection`]: one task, and one for each tool that waits.
pub(super) struct AgentDriver<S> {
    clock: Clock,
    wire: Wire<S>,
    alarm: Alarm,
    conn: AgentConnection,
    specs: Vec<ToolSpec>,
    handlers: HashMap<String, Handler>,
    /// Calls whose tools have not begun: there is no room for what they come back with.
    unbegun: VecDeque<Box<IncomingCall>>,
    running: JoinSet<Returned>,
    /// For what the running tools come back with.
    room: Room,
    calls: HashMap<Id, CallId>,
    tools: HashMap<CallId, RunningTool>,
    chunks_tx: mpsc::Sender<Piece>,
    chunks: mpsc::Receiver<Piece>,
    asked: Asked,
    /// Held so that the updates never end.
    _control: AgentControl,
    welcomed: bool,
    /// Why the tools could not be registered.
    unregistered: Option<CommandError>,
    closed: Option<CloseReason>,
}

impl<S: AsyncRead + AsyncWrite> AgentDriver<S> {
    pub(super) fn new(agent: Agent, stream: S, config: Config) -> Result<Self, ServeError> {
        let clock = Clock::start();
        let wire = Wire::new(Box::pin(stream));
        let room = Room::new(config.limits.max_inflight_bytes);
        let conn = AgentConnection::new(clock.now(), config, IdSource::from_os()?)?;
        let (chunks_tx, chunks) = mpsc::channel(WAITING_CHUNKS);
        let mut driver = Self {
            clock,
            wire,
            alarm: Alarm::new(clock),
            conn,
            specs: Vec::new(),
            handlers: HashMap::new(),
            unbegun: VecDeque::new(),
            running: JoinSet::new(),
            room,
            calls: HashMap::new(),
            tools: HashMap::new(),
            chunks_tx,
            chunks,
            asked: agent.asked,
            _control: agent.control,
            welcomed: false,
            unregistered: None,
            closed: None,
        };
        driver.take_tools(agent.tools);
        Ok(driver)
    }

    fn take_tools(&mut self, tools: Vec<Tool>) {
        self.specs = tools.iter().map(|tool| tool.spec.clone()).collect();
        self.handlers.clear();
        for tool in tools {
            // Of two with one name a core takes the first.
            self.handlers.entry(tool.spec.name).or_insert(tool.run);
        }
    }

    /// Drives until the connection ends.
    ///
    /// # Errors
    ///
    /// The tools could not be registered.
    pub(super) async fn run(mut self) -> Result<CloseReason, CommandError> {
        self.drain();
        let reason = loop {
            if let Some(reason) = self.closed.take() {
                break reason;
            }
            let room = self.wire.has_room();
            self.conn.set_writing(room);
            // impl: OSW-4.3-11
            let reading = room && self.conn.accepts_input();
            let timer = self.alarm.ring(self.conn.poll_timeout());
            tokio::select! {
                moved = self.wire.move_bytes(reading) => self.on_moved(moved),
                Some(piece) = self.chunks.recv(), if room => self.on_pieces(piece),
                Some(update) = self.asked.updates.recv(), if room => self.on_update(update),
                () = self.asked.shutdown.notified() => self.conn.shutdown(self.clock.now()),
                Some(ended) = self.running.join_next_with_id(), if room => self.on_ended(ended),
                () = timer => self.conn.handle_timeout(self.clock.now()),
            }
            self.drain();
        };
        self.wire.close().await;
        self.unregistered.map_or(Ok(reason), Err)
    }

    fn on_moved(&mut self, moved: Moved) {
        let now = self.clock.now();
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

    /// Takes a piece and those that wait behind it, as far as there is room: one write sends them all.
    fn on_pieces(&mut self, first: Piece) {
        let mut next = Some(first);
        while let Some(piece) = next {
            let result = self.conn.stream(self.clock.now(), &piece.id, piece.chunk);
            // A tool that was dropped asks no more.
            let _ = piece.reply.send(result);
            self.drain();
            let more = self.wire.has_room() && self.closed.is_none();
            next = if more {
                self.chunks.try_recv().ok()
            } else {
                None
            };
        }
    }

    fn on_update(&mut self, update: Update) {
        let (tools, reply) = update;
        let done = if self.welcomed {
            let specs = tools.iter().map(|tool| tool.spec.clone()).collect();
            self.conn.register(self.clock.now(), specs, true)
        } else {
            Ok(())
        };
        if done.is_ok() {
            self.take_tools(tools);
        }
        // Who asked may be gone.
        let _ = reply.send(done);
    }

    fn on_ended(&mut self, ended: Result<(Id, Returned), tokio::task::JoinError>) {
        let (task, returned) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), Returned::from(internal())),
        };
        if let Some(id) = self.calls.remove(&task) {
            self.tools.remove(&id);
            self.finish(&id, returned.result);
        }
    }

    fn finish(&mut self, id: &CallId, result: Result<RawObject, ErrorObject>) {
        // The call may have had its result before.
        let _ = self.conn.finish(self.clock.now(), id, result);
    }

    /// Carries out what the machine wants, and begins the tools of calls as long as there is room for results: a core that
    /// reads nothing gets no more of them made.
    fn drain(&mut self) {
        self.drain_outputs();
        while self.closed.is_none()
            && self.wire.has_room()
            && let Some(call) = self.unbegun.pop_front()
        {
            self.start(call);
            self.drain_outputs();
        }
    }

    fn drain_outputs(&mut self) {
        while let Some(output) = self.conn.poll_output() {
            match output {
                Output::Transmit(frame) => self.conn.reuse(self.wire.send(frame)),
                Output::Call(call) => self.unbegun.push_back(call),
                Output::Cancel(id) => self.cancel(&id),
                Output::Event(Event::Welcomed { .. }) => {
                    self.welcomed = true;
                    let specs = core::mem::take(&mut self.specs);
                    if let Err(error) = self.conn.register(self.clock.now(), specs, false) {
                        self.unregistered = Some(error);
                        self.conn.shutdown(self.clock.now());
                    }
                }
                Output::Event(_) => {}
                Output::Close(reason) => self.closed = Some(reason),
            }
        }
    }

    fn cancel(&mut self, id: &CallId) {
        if let Some(tool) = self.tools.get(id) {
            return tool.cancel();
        }
        let place = self.unbegun.iter().position(|call| call.call_id == *id);
        if place.and_then(|place| self.unbegun.remove(place)).is_some() {
            self.finish(id, Err(ToolError::canceled().into_inner()));
        }
    }

    fn start(&mut self, mut call: Box<IncomingCall>) {
        let id = call.call_id.clone();
        let name = call.call.tool_id.rsplit('/').next().unwrap_or_default();
        let Some(handler) = self.handlers.get(name).cloned() else {
            let error = ErrorObject::of(ErrorCode::ToolNotFound, "no such tool");
            return self.finish(&id, Err(error));
        };
        let input = core::mem::take(&mut call.call.input);
        let timeout = call.call.timeout_ms.map(Duration::from_millis);
        let due = timeout.map(|span| self.clock.mono().saturating_add(span));
        let span = trace::execute(&call);
        let running = RunningTool::new(call);
        let context = ToolContext {
            running: running.share(),
            chunks_tx: self.chunks_tx.clone(),
            clock: self.clock,
            due,
        };
        match trace::inside(&span, || begin(&handler, &context, input)) {
            Begun::Ended(result) => self.finish(&id, result.map_err(ToolError::into_inner)),
            Begun::Waits(tool) => {
                let going = trace::within(span, go_on(tool, context, self.room.clone()));
                let task = self.running.spawn(going).id();
                trace::running(self.running.len());
                self.calls.insert(task, id.clone());
                self.tools.insert(id, running);
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
async fn go_on(tool: ToolFuture, context: ToolContext, room: Room) -> Returned {
    let late = async {
        context.cancelled().await;
        tokio::time::sleep(TIDY_UP).await;
    };
    let result = tokio::select! {
        result = tool => result,
        () = late => Err(ToolError::canceled()),
    };
    room.keep(result.map_err(ToolError::into_inner))
}
