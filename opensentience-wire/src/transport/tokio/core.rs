//! The driver of a [`CoreConnection`]: the machine behind a lock that handles and one task share.
//!
//! A call goes into the machine on its caller's task, which writes the frame itself while nothing else waits to be sent. The
//! task reads, and does all the rest: one wake for an answer, one for its caller.

use core::future::poll_fn;
use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, watch};
use ubos_common::os::Clock;
use ubos_common::time::{Mono, Now};

use super::audit::{AuditSink, Observer};
use super::call::{CallDriver, Change, Link, RunningCall, wait};
use super::io::{Alarm, HIGH_WATER, Moved, Wire};
use super::trace::{self, Span};
use crate::error::CommandError;
use crate::message::SharedTools;
use crate::role::core::{CallRequest, CoreConnection, Event, Output};
use crate::role::{CallId, CloseReason, Input};
use crate::token::Grant;

/// What a connection needs of its stream.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send + ?Sized> Duplex for S {}

/// What handles and driver share.
pub(super) struct SharedConnection {
    clock: Clock,
    connection: Mutex<Connection>,
    /// The driver's task, where it waits. Apart from the connection, so that whoever is told of an event may drop a call.
    driver: Mutex<Option<Waker>>,
    /// At most one for each call that was taken.
    cancels: Mutex<Vec<CallId>>,
    /// Calls with more output than their readers have room for: while there are any, nothing is read.
    full: AtomicUsize,
    /// Calls whose end has not come, or whose output is still to be taken.
    pending: AtomicUsize,
    /// Notified when there is room for calls again, and at the end.
    room: Notify,
}

/// A connection and the calls on it.
struct Connection {
    conn: CoreConnection,
    wire: Wire<dyn Duplex>,
    slots: HashMap<CallId, Slot>,
    /// Nothing is read while output of some call waits for its reader.
    is_blocked: bool,
    /// Bytes that wait to be sent and were provoked by the agent; at most [`HIGH_WATER`] and what one read provokes.
    answers: usize,
    audit: AuditSink,
    observer: Observer,
    /// `None` once the connection has ended: whoever waits for a change is told so.
    tools: Option<watch::Sender<SharedTools>>,
    closed: Option<CloseReason>,
    /// When the driver wakes by itself.
    alarm: Option<Mono>,
    /// Readers of calls to wake once the lock is free.
    readers: Vec<Waker>,
}

struct Slot {
    call: CallDriver,
    span: Span,
}

/// What ends a turn of the driver.
enum Turn {
    /// The machine wants to be woken earlier than before, or was.
    Alarm,
    /// The handshake is decided.
    Open,
    Closed(CloseReason),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedConnection {
    pub(super) fn new(
        stream: impl Duplex + 'static,
        clock: Clock,
        mut conn: CoreConnection,
        (audit, observer): (AuditSink, Observer),
        tools: watch::Sender<SharedTools>,
    ) -> Arc<Self> {
        if !audit.listens() {
            conn.skip_call_records();
        }
        let stream: Pin<Box<dyn Duplex>> = Box::pin(stream);
        Arc::new(Self {
            clock,
            connection: Mutex::new(Connection {
                conn,
                wire: Wire::new(stream),
                slots: HashMap::new(),
                is_blocked: false,
                answers: 0,
                audit,
                observer,
                tools: Some(tools),
                closed: None,
                alarm: None,
                readers: Vec::new(),
            }),
            driver: Mutex::new(None),
            cancels: Mutex::default(),
            full: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            room: Notify::new(),
        })
    }

    pub(super) fn pending_calls(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Calls a tool. While too much waits to be sent, this waits.
    pub(super) async fn call(
        self: &Arc<Self>,
        mut request: CallRequest,
    ) -> Result<RunningCall, CommandError> {
        loop {
            // Made before the look, so that no room that comes in between is missed.
            let room = self.room.notified();
            match self.try_call(request) {
                Ok(taken) => return taken,
                Err(unsent) => request = *unsent,
            }
            room.await;
        }
    }

    /// Calls a tool, or gives the request back where too much waits to be sent.
    pub(super) fn try_call(
        self: &Arc<Self>,
        request: CallRequest,
    ) -> Result<Result<RunningCall, CommandError>, Box<CallRequest>> {
        let mut connection = lock(&self.connection);
        if !connection.wire.has_room() {
            return Err(Box::new(request));
        }
        let span = trace::call(&request);
        let now = self.clock.now();
        let id = match connection.conn.call_tool(now, request) {
            Ok(id) => id,
            Err(refused) => {
                connection.drain(self);
                return Ok(Err(refused));
            }
        };
        let conn = &connection.conn;
        trace::taken(&span, &id, conn.pending_calls(), conn.max_calls());
        let link: Arc<dyn Link<CallId>> = Arc::<Self>::clone(self);
        let (running, call) = RunningCall::new(id.clone(), link);
        connection.slots.insert(id, Slot { call, span });
        self.pending.fetch_add(1, Ordering::Relaxed);
        let must_wake = connection.send_now(self);
        connection.unlock_and_wake();
        if must_wake {
            self.wake_driver();
        }
        Ok(Ok(running))
    }

    fn wake_driver(&self) {
        let driver = lock(&self.driver).take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Drives until the handshake is decided; gives whether it succeeded.
    pub(super) async fn handshake(&self) -> bool {
        let span = trace::handshake();
        let open = trace::within(span.clone(), async {
            let mut alarm = Alarm::new(self.clock);
            loop {
                match self.turn(&mut alarm, None, true).await {
                    Turn::Alarm => {}
                    Turn::Open => return true,
                    Turn::Closed(_) => return false,
                }
            }
        });
        let open = open.await;
        trace::decided(&span, open);
        open
    }

    /// Sends the refusal and closes; gives the grant back.
    pub(super) async fn refuse(self: Arc<Self>) -> Option<Grant> {
        let connection = Arc::into_inner(self)?.connection.into_inner();
        let mut connection = connection.unwrap_or_else(PoisonError::into_inner);
        connection.wire.close().await;
        connection.conn.into_grant()
    }

    /// Drives until the connection ends. `shutdown` asks to end, or ends when all handles are gone.
    pub(super) async fn run(self: Arc<Self>, shutdown: mpsc::Receiver<()>) -> CloseReason {
        let driver = Driver(self);
        let shared = &driver.0;
        let mut alarm = Alarm::new(shared.clock);
        let mut shutdown = Some(shutdown);
        loop {
            if let Turn::Closed(reason) = shared.turn(&mut alarm, Some(&mut shutdown), false).await
            {
                shared.close().await;
                return reason;
            }
        }
    }

    /// Moves bytes and carries out what the machine wants, until something of it ends the turn.
    async fn turn(
        &self,
        alarm: &mut Alarm,
        mut shutdown: Option<&mut Option<mpsc::Receiver<()>>>,
        greeting: bool,
    ) -> Turn {
        poll_fn(|context| {
            wait(&mut lock(&self.driver), context);
            let cancels = mem::take(&mut *lock(&self.cancels));
            let mut connection = lock(&self.connection);
            for id in cancels {
                // A call that has ended needs no cancel.
                let _ = connection.conn.cancel(self.clock.now(), &id, None);
            }
            if let Some(shutdown) = &mut shutdown {
                connection.poll_shutdown(self.clock.now(), context, shutdown);
            }
            let mut turn = connection.poll_turn(self, context, greeting);
            if turn.is_pending() {
                let deadline = connection.conn.poll_timeout();
                connection.alarm = deadline;
                if alarm.poll_ring(context, deadline).is_ready() {
                    connection.conn.handle_timeout(self.clock.now());
                    turn = Poll::Ready(Turn::Alarm);
                }
            }
            connection.unlock_and_wake();
            turn
        })
        .await
    }

    /// Sends what waits and closes the stream. Handles and calls know the end already.
    async fn close(&self) {
        let wire = {
            let mut connection = lock(&self.connection);
            connection.tools = None;
            let gone: Pin<Box<dyn Duplex>> = Box::pin(tokio::io::empty());
            mem::replace(&mut connection.wire, Wire::new(gone))
        };
        let mut wire = wire;
        wire.close().await;
    }
}

impl Link<CallId> for SharedConnection {
    fn cancel(&self, id: &CallId) {
        lock(&self.cancels).push(id.clone());
        self.wake_driver();
    }

    fn on_change(&self, change: Change) {
        if self.count(change) {
            self.wake_driver();
        }
    }
}

impl SharedConnection {
    /// Counts what has become of a call; gives whether the agent may be read again.
    fn count(&self, change: Change) -> bool {
        if change.is_settled {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
        if change.is_full {
            self.full.fetch_add(1, Ordering::Relaxed);
        }
        change.has_room && self.full.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

/// The task that drives a connection. Without it the connection is gone.
struct Driver(Arc<SharedConnection>);

impl Drop for Driver {
    fn drop(&mut self) {
        let mut connection = lock(&self.0.connection);
        if !connection.conn.is_closed() {
            // Nobody is told of events by a task that was stopped, maybe by a panic of theirs.
            (connection.audit, connection.observer) = Default::default();
            let _ = connection.conn.handle_input(self.0.clock.now(), Input::Eof);
            connection.drain(&self.0);
        }
        connection.tools = None;
        connection.unlock_and_wake();
        self.0.room.notify_waiters();
    }
}

/// A connection whose lock is held.
trait Unlock {
    /// Frees the lock, and then wakes the readers of calls.
    fn unlock_and_wake(self);
}

impl Unlock for MutexGuard<'_, Connection> {
    fn unlock_and_wake(mut self) {
        if self.readers.is_empty() {
            return;
        }
        let readers = mem::take(&mut self.readers);
        drop(self);
        for reader in readers {
            reader.wake();
        }
    }
}

impl Connection {
    /// Sends what a call wants sent while nothing else waits; gives whether the driver has to see to the rest.
    fn send_now(&mut self, shared: &SharedConnection) -> bool {
        let is_alone = self.wire.waiting() == 0 && self.conn.pending_calls() == 1;
        self.drain(shared);
        let sent = is_alone && {
            let context = &mut Context::from_waker(Waker::noop());
            matches!(self.wire.poll_flush(context), Poll::Ready(Ok(())))
        };
        let is_earlier = match (self.conn.poll_timeout(), self.alarm) {
            (Some(wanted), Some(set)) => wanted < set,
            (wanted, _) => wanted.is_some(),
        };
        (!sent && self.wire.waiting() > 0) || is_earlier || self.closed.is_some()
    }

    fn poll_shutdown(
        &mut self,
        now: Now,
        context: &mut Context<'_>,
        shutdown: &mut Option<mpsc::Receiver<()>>,
    ) {
        let Some(requests) = shutdown else { return };
        let Poll::Ready(request) = requests.poll_recv(context) else {
            return;
        };
        let reason = match request {
            Some(()) => "shutdown",
            None => "the core has no more use for it",
        };
        // One is enough.
        *shutdown = None;
        // A connection that is closing has said so already.
        drop(self.conn.goodbye(now, reason, None));
    }

    fn poll_turn(
        &mut self,
        shared: &SharedConnection,
        context: &mut Context<'_>,
        greeting: bool,
    ) -> Poll<Turn> {
        let had_room = self.wire.has_room();
        self.drain(shared);
        let turn = loop {
            if let Some(reason) = self.closed.take() {
                trace::closed(&reason, self.slots.len());
                break Poll::Ready(Turn::Closed(reason));
            }
            if greeting && self.conn.is_open() {
                break Poll::Ready(Turn::Open);
            }
            let is_blocked = shared.full.load(Ordering::Relaxed) > 0;
            if mem::replace(&mut self.is_blocked, is_blocked) != is_blocked {
                self.conn.set_reading(shared.clock.now(), !is_blocked);
            }
            // Calls that wait to be sent are no reason not to read: an agent whose results wait reads no calls.
            self.answers = self.answers.min(self.wire.waiting());
            let reading = !is_blocked && self.conn.accepts_input() && self.answers < HIGH_WATER;
            match self.wire.poll_move(context, reading) {
                Poll::Ready(moved) => self.on_moved(shared, &moved),
                Poll::Pending => break Poll::Pending,
            }
        };
        if turn.is_ready() || !had_room && self.wire.has_room() {
            shared.room.notify_waiters();
        }
        turn
    }

    fn on_moved(&mut self, shared: &SharedConnection, moved: &Moved) {
        let now = shared.clock.now();
        let before = self.wire.waiting();
        // A fault is among the outputs too: the farewell, the audit and the end.
        let _ = match moved {
            Moved::Read(0) | Moved::Broken => self.conn.handle_input(now, Input::Eof),
            Moved::Read(count) => {
                let bytes = Input::Bytes(self.wire.received(*count));
                self.conn.handle_input(now, bytes)
            }
            Moved::Sent => return,
        };
        // What the agent provokes counts, except for calls: they waited for the places of others and are not the agent's to
        // choose.
        self.conn.take_routed_bytes();
        self.drain(shared);
        let added = self.wire.waiting().saturating_sub(before);
        self.answers += added.saturating_sub(self.conn.take_routed_bytes());
    }

    /// Carries out everything the machine wants done.
    fn drain(&mut self, shared: &SharedConnection) {
        while let Some(output) = self.conn.poll_output() {
            match output {
                Output::Transmit(frame) => self.wire.send(frame),
                Output::Event(event) => self.on_event(shared, event),
                Output::Close(reason) => self.closed = Some(reason),
            }
        }
    }

    fn on_event(&mut self, shared: &SharedConnection, event: Event) {
        self.observer.observe(&event);
        match event {
            Event::Stream(id, chunk) => {
                if let Some(slot) = self.slots.get(&id) {
                    let (change, reader) = slot.call.push(Box::new(chunk));
                    shared.count(change);
                    self.readers.extend(reader);
                }
            }
            Event::Ended(id, outcome) => {
                if let Some(slot) = self.slots.remove(&id) {
                    trace::ended(&slot.span, &outcome);
                    let (change, reader) = slot.call.end(*outcome);
                    shared.count(change);
                    self.readers.extend(reader);
                }
            }
            Event::ToolsChanged => {
                if let Some(tools) = &self.tools {
                    tools.send_replace(self.conn.tools().cloned().collect());
                }
            }
            Event::Audit(event) => self.audit.take(*event),
            _ => {}
        }
    }
}
