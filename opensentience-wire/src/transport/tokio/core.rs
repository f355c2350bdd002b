//! The driver of a [`CoreConnection`]: one task a connection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use ubos_common::os::Clock;

use super::audit::{AuditSink, Observer};
use super::call::{Command, RunningCall, Started};
use super::io::{Alarm, HIGH_WATER, Moved, Wire};
use super::trace::{self, Span};
use crate::audit::AuditName;
use crate::message::{SharedTools, ToolStream};
use crate::role::core::{CoreConnection, Event, Outcome, Output};
use crate::role::{CallId, CloseReason, Input};
use crate::token::Grant;

/// Pieces of output of one call that wait for their reader. When they are this many nothing more is read
/// from the agent.
pub(super) const CHUNKS: usize = 64;

/// Commands that are taken before what they want sent is sent.
const BATCH: usize = 64;

struct Slot {
    chunks: mpsc::Sender<Box<ToolStream>>,
    outcome: Option<oneshot::Sender<Outcome>>,
    pending: VecDeque<Box<ToolStream>>,
    span: Span,
}

pub(super) struct CoreDriver<S> {
    wire: Wire<S>,
    alarm: Alarm,
    pub(super) conn: CoreConnection,
    slots: HashMap<CallId, Slot>,
    /// Some slot holds output that its reader has no room for.
    blocked: bool,
    /// Bytes that wait to be sent and were provoked by the agent; at most [`HIGH_WATER`] and what one read provokes.
    answers: usize,
    /// Bytes of calls among what was drained last.
    released: usize,
    audit: AuditSink,
    pub(super) observer: Observer,
    /// `None` once the connection has ended: whoever waits for a change is told so.
    tools: Option<watch::Sender<SharedTools>>,
    closed: Option<CloseReason>,
    /// All handles are gone.
    abandoned: bool,
}

/// Where commands come from.
pub(super) struct Inbox {
    pub(super) commands: mpsc::Receiver<Command>,
    /// Asks to end, or ends when all handles are gone. Heard when nothing else is: an agent that reads nothing more fills up
    /// the rest.
    pub(super) shutdown: mpsc::Receiver<()>,
    /// At most one for each call that was taken.
    pub(super) cancels: mpsc::UnboundedReceiver<CallId>,
    pub(super) capacity_freed: Arc<Notify>,
    pub(super) pending: Arc<AtomicUsize>,
}

impl<S: AsyncRead + AsyncWrite> CoreDriver<S> {
    pub(super) fn new(
        stream: S,
        clock: Clock,
        conn: CoreConnection,
        audit: AuditSink,
        tools: watch::Sender<SharedTools>,
    ) -> Self {
        Self {
            wire: Wire::new(stream, clock),
            alarm: Alarm::new(clock),
            conn,
            slots: HashMap::new(),
            blocked: false,
            answers: 0,
            released: 0,
            audit,
            observer: Observer::default(),
            tools: Some(tools),
            closed: None,
            abandoned: false,
        }
    }

    /// Drives until the handshake is decided; gives whether it succeeded.
    pub(super) async fn handshake(&mut self) -> bool {
        let span = trace::handshake();
        let open = trace::within(span.clone(), self.greet()).await;
        trace::decided(&span, open);
        open
    }

    async fn greet(&mut self) -> bool {
        while !self.conn.is_open() && self.closed.is_none() {
            let timer = self.alarm.ring(self.conn.poll_timeout());
            tokio::select! {
                moved = self.wire.move_bytes(true) => self.on_moved(moved),
                () = timer => self.conn.handle_timeout(self.wire.now()),
            }
            self.drain();
        }
        self.conn.is_open()
    }

    /// Sends the refusal and closes; gives the grant back.
    pub(super) async fn refuse(mut self) -> Option<Grant> {
        self.drain();
        self.wire.close().await;
        self.conn.into_grant()
    }

    /// Drives until the connection ends.
    pub(super) async fn run(&mut self, inbox: &mut Inbox) -> CloseReason {
        self.drain();
        let reason = loop {
            if let Some(reason) = self.closed.take() {
                trace::closed(&reason, self.slots.len());
                break reason;
            }
            self.step(inbox).await;
            self.drain();
            inbox.pending.store(self.slots.len(), Ordering::Relaxed);
        };
        self.tools = None;
        self.wire.close().await;
        reason
    }

    /// Hands out the output that is still to be taken, until it is or nobody wants it.
    pub(super) async fn deliver(mut self, inbox: Inbox) {
        // Who still asks for something learns at once that the connection has ended.
        let Inbox {
            capacity_freed,
            pending,
            ..
        } = inbox;
        while !self.slots.is_empty() {
            capacity_freed.notified().await;
            self.slots.retain(|_, slot| !flush(slot));
            pending.store(self.slots.len(), Ordering::Relaxed);
        }
    }

    async fn step(&mut self, inbox: &mut Inbox) {
        let now = self.wire.now();
        self.conn.set_reading(now, !self.blocked);
        // Calls that wait to be sent are no reason not to read: an agent whose results wait reads no calls.
        self.answers = self.answers.min(self.wire.waiting());
        let reading = !self.blocked && self.conn.accepts_input() && self.answers < HIGH_WATER;
        let commanding = self.wire.has_room() && !self.abandoned;
        let timer = self.alarm.ring(self.conn.poll_timeout());
        tokio::select! {
            moved = self.wire.move_bytes(reading) => self.on_answered(moved),
            Some(command) = inbox.commands.recv(), if commanding => {
                self.on_command(command);
                self.on_more_commands(inbox);
            }
            request = inbox.shutdown.recv(), if !self.abandoned => self.on_shutdown(request),
            Some(id) = inbox.cancels.recv() => {
                // A call that has ended needs no cancel.
                let _ = self.conn.cancel(self.wire.now(), &id, None);
            }
            () = inbox.capacity_freed.notified() => {}
            () = timer => self.conn.handle_timeout(self.wire.now()),
        }
    }

    fn on_moved(&mut self, moved: Moved) {
        let now = self.wire.now();
        // A fault is among the outputs too: the farewell, the audit and the end.
        let _ = match moved {
            Moved::Read(0) | Moved::Broken => self.conn.handle_input(now, Input::Eof),
            Moved::Read(count) => {
                let bytes = Input::Bytes(self.wire.received(count));
                self.conn.handle_input(now, bytes)
            }
            Moved::Sent => Ok(()),
        };
    }

    /// Counts what the agent provokes, except for calls: they waited for the places of others and are not the agent's to choose.
    fn on_answered(&mut self, moved: Moved) {
        let before = self.wire.waiting();
        self.on_moved(moved);
        self.released = 0;
        self.drain();
        let added = self.wire.waiting().saturating_sub(before);
        self.answers += added.saturating_sub(self.released);
    }

    /// What else waits goes out in the same write.
    fn on_more_commands(&mut self, inbox: &mut Inbox) {
        for _ in 1..BATCH {
            self.drain();
            if !self.wire.has_room() {
                return;
            }
            let Ok(command) = inbox.commands.try_recv() else {
                return;
            };
            self.on_command(command);
        }
    }

    fn on_command(&mut self, command: Command) {
        let now = self.wire.now();
        let Command::Call(request, waiter) = command;
        let span = trace::call(&request);
        let started = self.conn.call_tool(now, *request);
        let call = started.map(|id| {
            RunningCall::new(
                self.slot(id, span),
                waiter.cancels,
                Some(waiter.capacity_freed),
            )
        });
        // The caller may be gone; then the call is dropped, which cancels it.
        drop(waiter.reply.send(call));
    }

    fn on_shutdown(&mut self, request: Option<()>) {
        self.abandoned = request.is_none();
        let reason = match request {
            Some(()) => "shutdown",
            None => "the core has no more use for it",
        };
        // A connection that is closing has said so already.
        drop(self.conn.goodbye(self.wire.now(), reason, None));
    }

    fn slot(&mut self, id: CallId, span: Span) -> Started<CallId> {
        trace::taken(&span, &id, self.conn.pending_calls(), self.conn.max_calls());
        let (chunks_tx, chunks) = mpsc::channel(CHUNKS);
        let (outcome_tx, outcome) = oneshot::channel();
        let slot = Slot {
            chunks: chunks_tx,
            outcome: Some(outcome_tx),
            pending: VecDeque::new(),
            span,
        };
        self.slots.insert(id.clone(), slot);
        Started {
            id,
            chunks,
            outcome,
        }
    }

    /// Carries out everything the machine wants done.
    fn drain(&mut self) {
        while let Some(output) = self.conn.poll_output() {
            match output {
                Output::Transmit(bytes) => self.wire.send(&bytes),
                Output::Event(event) => self.on_event(event),
                Output::Close(reason) => self.closed = Some(reason),
            }
        }
        if self.blocked {
            self.slots.retain(|_, slot| !flush(slot));
            self.blocked = self.slots.values().any(|slot| !slot.pending.is_empty());
        }
    }

    fn on_event(&mut self, event: Event) {
        self.observer.observe(&event);
        match event {
            Event::Stream(id, chunk) => {
                if let Some(slot) = self.slots.get_mut(&id) {
                    slot.pending.push_back(Box::new(chunk));
                    flush(slot);
                    self.blocked |= !slot.pending.is_empty();
                }
            }
            Event::Ended(id, outcome) => {
                let Some(slot) = self.slots.get_mut(&id) else {
                    return;
                };
                if let Some(tx) = slot.outcome.take() {
                    trace::ended(&slot.span, &outcome);
                    // A dropped call has no receiver.
                    let _ = tx.send(*outcome);
                }
                if flush(slot) {
                    self.slots.remove(&id);
                }
            }
            Event::ToolsChanged => {
                if let Some(tools) = &self.tools {
                    tools.send_replace(self.conn.tools().cloned().collect());
                }
            }
            Event::Audit(event) => {
                if event.name == AuditName::CallRouted {
                    self.released += event.bytes.unwrap_or_default();
                }
                self.audit.take(*event);
            }
            _ => {}
        }
    }
}

/// Hands over what the reader has room for; gives whether the call needs nothing more.
fn flush(slot: &mut Slot) -> bool {
    while let Some(chunk) = slot.pending.pop_front() {
        match slot.chunks.try_send(chunk) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(chunk)) => {
                slot.pending.push_front(chunk);
                return false;
            }
            Err(mpsc::error::TrySendError::Closed(_)) => slot.pending.clear(),
        }
    }
    slot.outcome.is_none()
}
