//! A connection of a core, as its driver and its callers work on it while they hold its lock.

use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use std::collections::BTreeMap;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use ubos_common::os::Clock;
use ubos_common::time::Mono;

use super::audit::Listeners;
use super::call::{CallDriver, Change, Piece};
use super::io::{Alarm, HIGH_WATER, Moved, Wire};
use super::rate::{LEAST, Rate};
use super::schemas;
use super::trace::{self, Span};
use crate::audit::AuditEvent;
use crate::error::CommandError;
use crate::ledger::{Charge, Share};
use crate::message::{SharedTools, ToolStream};
use crate::role::core::{CallRequest, CoreConnection, Event, Output, SchemaVerdicts};
use crate::role::{CallId, CloseReason, Input};
use crate::token::Grant;

/// A read of fewer bytes has a rate: no frame is as short.
const DRIP: usize = 64;

/// Moves of bytes in one turn: then readers are woken, and callers get the lock.
const MOVES: usize = 4;

/// How much is read of an agent that is gone, or takes nothing more: no socket keeps as much.
const MAX_LAST: usize = 8 << 20;

/// How long it is read. All is there, but for what the runtime has not looked at yet.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What a connection needs of its stream.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send + ?Sized> Duplex for S {}

/// What calls tell their connection without its lock.
#[derive(Default)]
pub(super) struct Counts {
    /// Calls with more output than their readers have room for: while there are any, nothing is read.
    full: AtomicUsize,
    /// Calls whose end has not come, or whose output is still to be taken.
    pending: AtomicUsize,
}

impl Counts {
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Counts what has become of a call; gives whether the agent may be read again.
    pub(super) fn count(&self, change: Change) -> bool {
        if change.is_settled {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
        if change.is_full {
            self.full.fetch_add(1, Ordering::Relaxed);
        }
        change.has_room && self.full.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

/// A connection and the calls on it.
pub(super) struct Connection {
    conn: CoreConnection,
    clock: Clock,
    wire: Wire<dyn Duplex>,
    slots: BTreeMap<CallId, Slot>,
    /// Nothing is read while output of some call waits for its reader, or there is no room for more.
    is_blocked: bool,
    /// Room for the output that one read may bring: only during a turn, because other connections of the agent have the same
    /// ledger, and may wait for it as long as this one waits for bytes.
    room: Charge,
    /// Bytes that wait to be sent and were provoked by the agent; at most [`HIGH_WATER`] and what one read provokes.
    answers: usize,
    listeners: Listeners,
    /// `None` once the connection has ended: whoever waits for a change is told so.
    tools: Option<watch::Sender<SharedTools>>,
    closed: Option<CloseReason>,
    has_rejected_tools: bool,
    /// The schemas that the machine waits for.
    checking: Option<Pin<Box<dyn Future<Output = SchemaVerdicts> + Send>>>,
    /// When the driver wakes by itself.
    alarm: Option<Mono>,
    /// Reads that brought a few bytes alone.
    drips: Rate,
    /// Nothing is read before, because there were too many of them.
    rests_until: Option<Mono>,
    /// What is still read of an agent that is gone, or takes nothing more. Nothing holds that up: results may be in it.
    last: Option<Last>,
    /// Nothing more comes, and nothing more is sent.
    is_at_end: bool,
    /// Readers of calls to wake once the lock is free.
    readers: Vec<Waker>,
}

/// A call that runs.
pub(super) struct Slot {
    pub(super) call: CallDriver,
    pub(super) span: Span,
}

/// The last that is read.
struct Last {
    bytes: usize,
    until: Mono,
}

/// What ends a turn of the driver.
pub(super) enum Turn {
    /// There is more to do: the alarm rang, or others are to get the lock first.
    Again,
    /// So many results wait for their readers that these are to run first.
    Crowded,
    /// The handshake is decided.
    Open,
    Closed(CloseReason),
}

impl Connection {
    pub(super) fn new(
        stream: Pin<Box<dyn Duplex>>,
        clock: Clock,
        mut conn: CoreConnection,
        listeners: Listeners,
        tools: watch::Sender<SharedTools>,
    ) -> Self {
        conn.check_schemas_apart();
        Self {
            clock,
            wire: Wire::new(stream),
            slots: BTreeMap::new(),
            is_blocked: false,
            room: Charge::on(conn.ledger(), Share::Output),
            conn,
            answers: 0,
            listeners,
            tools: Some(tools),
            closed: None,
            has_rejected_tools: false,
            checking: None,
            alarm: None,
            drips: Rate::default(),
            rests_until: None,
            last: None,
            is_at_end: false,
            readers: Vec::new(),
        }
    }

    /// Leaves the token out of a record that another made.
    pub(super) fn leave_out_token(&self, event: &mut AuditEvent) {
        self.conn.leave_out_token(event);
    }

    /// The span of a call that was taken.
    pub(super) fn span_of(&self, id: &CallId) -> Span {
        trace::call(&self.conn, id)
    }

    /// Whether a tool of the agent was rejected.
    pub(super) const fn has_rejected_tools(&self) -> bool {
        self.has_rejected_tools
    }

    pub(super) const fn readers_mut(&mut self) -> &mut Vec<Waker> {
        &mut self.readers
    }

    /// Whether calls are looked at: not too much waits to be sent, or nothing is sent any more.
    pub(super) fn has_room(&self) -> bool {
        self.wire.has_room() || self.conn.is_closed()
    }

    pub(super) fn call_tool(
        &mut self,
        counts: &Counts,
        request: CallRequest,
    ) -> Result<CallId, CommandError> {
        self.conn.record_calls(self.listeners.hear_of_calls());
        let taken = self.conn.call_tool(self.clock.now(), request);
        if taken.is_err() {
            // The record of the refusal.
            self.drain(counts);
        }
        taken
    }

    /// Refuses a call that found no room in its time.
    pub(super) fn refuse_call(
        &mut self,
        counts: &Counts,
        request: &CallRequest,
        why: &CommandError,
    ) {
        self.conn.refuse_call(self.clock.now(), request, why);
        self.drain(counts);
    }

    /// Records calls that were given up before they found room.
    pub(super) fn give_up<'a>(
        &mut self,
        counts: &Counts,
        requests: impl IntoIterator<Item = &'a CallRequest>,
    ) {
        for request in requests {
            self.conn.give_up_call(self.clock.now(), request);
            self.drain(counts);
        }
    }

    /// Adds a call that was taken.
    pub(super) fn add(&mut self, counts: &Counts, id: CallId, slot: Slot) {
        self.slots.insert(id, slot);
        counts.pending.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn cancel(&mut self, calls: &[CallId]) {
        for id in calls {
            // A call that has ended needs no cancel.
            let _ = self.conn.cancel(self.clock.now(), id, None);
        }
    }

    /// Sends what a call wants sent while nothing else waits; gives whether the driver has to see to the rest.
    pub(super) fn send_now(&mut self, counts: &Counts) -> bool {
        let is_alone = self.wire.waiting() == 0 && self.conn.pending_calls() == 1;
        self.drain(counts);
        if is_alone {
            // The driver sees to what is left, and finds out that the stream takes no more.
            let context = &mut Context::from_waker(Waker::noop());
            let _ = self.wire.poll_flush(context);
        }
        let is_earlier = match (self.conn.poll_timeout(), self.alarm) {
            (Some(wanted), Some(set)) => wanted < set,
            (wanted, _) => wanted.is_some(),
        };
        !self.wire.is_sent() || is_earlier || self.closed.is_some()
    }

    pub(super) fn poll_shutdown(
        &mut self,
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
        drop(self.conn.goodbye(self.clock.now(), reason, None));
    }

    /// Lets the machine do what is due; ready where that was something.
    pub(super) fn poll_alarm(&mut self, context: &mut Context<'_>, alarm: &mut Alarm) -> Poll<()> {
        self.alarm = self.conn.poll_timeout();
        let last = self.last.as_ref().filter(|_| !self.is_at_end);
        let ends = last.map(|last| last.until);
        let own = self.rests_until.into_iter().chain(ends);
        self.alarm = self.alarm.into_iter().chain(own).min();
        alarm
            .poll_ring(context, self.alarm)
            .map(|()| self.conn.handle_timeout(self.clock.now()))
    }

    /// Moves bytes, and carries out what comes of them.
    pub(super) fn poll_turn(
        &mut self,
        counts: &Counts,
        context: &mut Context<'_>,
        greeting: bool,
    ) -> Poll<Turn> {
        let turn = self.poll_moves(counts, context, greeting);
        self.room.shrink_to(0);
        turn
    }

    fn poll_moves(
        &mut self,
        counts: &Counts,
        context: &mut Context<'_>,
        greeting: bool,
    ) -> Poll<Turn> {
        self.conn.record_calls(self.listeners.hear_of_calls());
        self.drain(counts);
        for _ in 0..MOVES {
            self.poll_schemas(counts, context);
            if let Some(reason) = self.closed.take() {
                trace::closed(&reason, self.slots.len());
                return Poll::Ready(Turn::Closed(reason));
            }
            if greeting && self.conn.is_open() {
                return Poll::Ready(Turn::Open);
            }
            // Each of them is looked at: a rest that is over is over though somebody does not read.
            let (is_full, rests) = (counts.full.load(Ordering::Relaxed) > 0, self.rests());
            let has_room = self.has_output_room(context);
            let is_blocked = self.last.is_none() && (is_full || rests || !has_room);
            if mem::replace(&mut self.is_blocked, is_blocked) != is_blocked {
                self.conn.set_reading(self.clock.now(), !is_blocked);
            }
            // Calls that wait to be sent are no reason not to read: an agent whose results wait reads no calls.
            self.answers = self.answers.min(self.wire.waiting());
            // impl: OSW-4.3-11
            let reading = !is_blocked && self.conn.accepts_input() && self.answers < HIGH_WATER;
            if self.is_at_end {
                return Poll::Pending;
            }
            let moved = match self.last {
                Some(_) => ready!(self.poll_last(context)),
                None => ready!(self.wire.poll_move(context, reading)),
            };
            self.on_moved(counts, &moved);
            if self.conn.ledger().is_half_full(Share::Results) {
                return Poll::Ready(Turn::Crowded);
            }
        }
        Poll::Ready(Turn::Again)
    }

    /// Whether nothing is read for a while.
    fn rests(&mut self) -> bool {
        let clock = &self.clock;
        self.rests_until.take_if(|until| *until <= clock.mono());
        self.rests_until.is_some()
    }

    /// A frame that comes byte by byte costs as much for each of them.
    fn count_drip(&mut self, bytes: usize) {
        if bytes >= DRIP {
            return;
        }
        let now = self.clock.mono();
        let rest = self.drips.charge(now, LEAST);
        if !rest.is_zero() {
            self.rests_until = Some(now.saturating_add(rest));
        }
    }

    /// Whether there is room for the output that the next read may bring; without calls it brings none.
    fn has_output_room(&mut self, context: &Context<'_>) -> bool {
        self.slots.is_empty() || self.room.fill(self.conn.room_bytes(), context)
    }

    /// Lets the machine go on where its schemas are checked.
    fn poll_schemas(&mut self, counts: &Counts, context: &mut Context<'_>) {
        // What waited behind one registration may be the next.
        while let Some(checking) = &mut self.checking {
            let Poll::Ready(verdicts) = checking.as_mut().poll(context) else {
                return;
            };
            self.checking = None;
            let before = self.begin_answers();
            // A fault is among the outputs, too.
            let _ = self.conn.take_verdicts(self.clock.now(), verdicts);
            self.end_answers(counts, before);
        }
    }

    fn on_moved(&mut self, counts: &Counts, moved: &Moved) {
        let now = self.clock.now();
        let before = self.begin_answers();
        // A fault is among the outputs too: the farewell, the audit and the end.
        let _ = match moved {
            Moved::Read(0) => {
                // What came before may still wait for its turn.
                self.is_at_end = true;
                self.conn.handle_input(now, Input::Eof)
            }
            Moved::Read(count) => {
                self.count_drip(*count);
                let bytes = Input::Bytes(self.wire.received(*count));
                self.conn.handle_input(now, bytes)
            }
            Moved::Broken => return self.read_last(),
            Moved::Sent => return,
        };
        self.end_answers(counts, before);
    }

    /// The agent is gone, or takes nothing more: what it has sent is read, and then the connection ends.
    pub(super) fn read_last(&mut self) {
        if self.last.is_none() {
            let until = self.clock.mono().saturating_add(LAST_WORDS);
            let bytes = MAX_LAST;
            self.last = Some(Last { bytes, until });
            self.conn.lift_rate(self.clock.now());
        }
    }

    fn poll_last(&mut self, context: &mut Context<'_>) -> Poll<Moved> {
        let count = self.wire.poll_read(context);
        let Some(last) = &mut self.last else {
            return count.map(Moved::Read);
        };
        let count = match count {
            Poll::Ready(count) if count <= last.bytes => count,
            Poll::Pending if self.clock.mono() < last.until => return Poll::Pending,
            Poll::Ready(_) | Poll::Pending => 0,
        };
        last.bytes -= count;
        Poll::Ready(Moved::Read(count))
    }

    fn begin_answers(&mut self) -> usize {
        self.conn.take_routed_bytes();
        self.wire.waiting()
    }

    /// What the agent provokes counts, except for calls: they waited for the places of others and are not the agent's to
    /// choose.
    fn end_answers(&mut self, counts: &Counts, before: usize) {
        self.drain(counts);
        let added = self.wire.waiting().saturating_sub(before);
        self.answers += added.saturating_sub(self.conn.take_routed_bytes());
    }

    /// Carries out everything the machine wants done.
    fn drain(&mut self, counts: &Counts) {
        while let Some(output) = self.conn.poll_output() {
            match output {
                Output::Transmit(frame) => self.conn.reuse(self.wire.send(frame)),
                Output::Event(event) => self.on_event(counts, event),
                Output::CheckSchemas(check) => {
                    self.checking = Some(Box::pin(schemas::check(check)));
                }
                Output::Close(reason) => {
                    // Handles keep this, and nobody polls it any more: others wait behind it for their schemas.
                    self.checking = None;
                    self.closed = Some(reason);
                }
            }
        }
    }

    fn on_event(&mut self, counts: &Counts, event: Event) {
        self.listeners.observe(&event);
        match event {
            Event::Stream(id, chunk) => self.on_piece(counts, &id, chunk),
            Event::Ended(id, outcome) => {
                if let Some(slot) = self.slots.remove(&id) {
                    trace::ended(&slot.span, &outcome);
                    let (change, reader) = slot.call.end(outcome);
                    counts.count(change);
                    self.readers.extend(reader);
                }
            }
            Event::ToolsChanged => {
                if let Some(tools) = &self.tools {
                    tools.send_replace(self.conn.tools().cloned().collect());
                }
            }
            Event::ToolRejected(_) => self.has_rejected_tools = true,
            Event::Audit(event) => self.listeners.audit.take(*event),
            _ => {}
        }
    }

    /// Keeps a piece of output for its reader.
    fn on_piece(&mut self, counts: &Counts, id: &CallId, chunk: ToolStream) {
        let Some(slot) = self.slots.get(id) else {
            return;
        };
        // One read brings no more than there is room for, unless it is of members that take many times their length.
        let bytes = chunk.weight();
        let more = || self.conn.ledger().take(Share::Output, bytes);
        let Some(charge) = self.room.split(bytes).or_else(more) else {
            return self.conn.end_unkept(self.clock.now(), id);
        };
        let chunk = Box::new(chunk);
        let (change, reader) = slot.call.push(Piece { chunk, charge });
        counts.count(change);
        self.readers.extend(reader);
    }

    /// Sends the refusal of a handshake and closes; gives the grant back.
    pub(super) async fn refuse(mut self) -> Option<Grant> {
        self.wire.close().await;
        self.conn.into_grant()
    }

    /// Ends it: the stream, on which the rest may still be sent, is its driver's to close.
    pub(super) fn end(&mut self) -> Wire<dyn Duplex> {
        self.tools = None;
        self.conn.ledger().wake_waiting();
        let gone: Pin<Box<dyn Duplex>> = Box::pin(tokio::io::empty());
        mem::replace(&mut self.wire, Wire::new(gone))
    }

    /// Ends it without its driver.
    pub(super) fn abandon(&mut self, counts: &Counts) {
        if !self.conn.is_closed() {
            // Nobody is told of events by a task that was stopped, maybe by a panic of theirs.
            self.listeners = Listeners::default();
            self.conn.abandon(self.clock.now());
            self.drain(counts);
        }
        self.tools = None;
        self.conn.ledger().wake_waiting();
    }
}

#[cfg(test)]
mod tests;
