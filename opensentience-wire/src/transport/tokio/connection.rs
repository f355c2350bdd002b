//! A connection of a core, as its driver and its callers work on it while they hold its lock.

use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
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
        if let Some(until) = self.rests_until {
            self.alarm = Some(self.alarm.map_or(until, |alarm| alarm.min(until)));
        }
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
            let is_blocked = is_full || rests || !self.has_output_room(context);
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
            match self.wire.poll_move(context, reading) {
                Poll::Ready(moved) => self.on_moved(counts, &moved),
                Poll::Pending => return Poll::Pending,
            }
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
            Moved::Read(0) | Moved::Broken => {
                // What came before may still wait for its turn.
                self.is_at_end = true;
                self.conn.handle_input(now, Input::Eof)
            }
            Moved::Read(count) => {
                self.count_drip(*count);
                let bytes = Input::Bytes(self.wire.received(*count));
                self.conn.handle_input(now, bytes)
            }
            Moved::Sent => return,
        };
        self.end_answers(counts, before);
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::AuditName;
    use crate::error::ErrorCode;
    use crate::frame::encode_frame;
    use crate::message::{Channel, ChunkData, Health};
    use crate::role::core::Config;
    use crate::token::SessionToken;
    use crate::transport::tokio::call::{Link, RunningCall};
    use core::future::poll_fn;
    use serde_json::json;
    use std::sync::Arc;
    use tokio::io::AsyncReadExt as _;
    use ubos_common::id::IdSource;
    use ubos_common::json::RawObject;

    fn tell(conn: &mut CoreConnection, clock: &Clock, kind: &str, payload: serde_json::Value) {
        let text = json!({"v": 1, "type": kind, "id": "m", "ts": "2026-01-16T12:00:00Z", "payload": payload});
        let (text, mut frame) = (text.to_string(), Vec::new());
        encode_frame(&mut frame, usize::MAX, |out| out.extend(text.bytes())).unwrap();
        conn.handle_input(clock.now(), Input::Bytes(&frame))
            .unwrap();
    }

    struct NoLink;

    impl Link<CallId> for NoLink {
        fn cancel(&self, _: &CallId) {}

        fn on_change(&self, _: Change) {}
    }

    #[tokio::test]
    async fn short_reads_alone_have_a_rate() {
        let mut made = connection(Listeners::default());
        for _ in 0..100_000 {
            made.count_drip(DRIP);
        }
        assert!(!made.rests());
        for _ in 0..100_000 {
            made.count_drip(DRIP - 1);
        }
        assert!(made.rests());
    }

    // What an agent says while nobody reads is not heard, so its silence says nothing.
    // spec: OSW-4.5-2
    #[tokio::test]
    async fn silence_is_watched_while_the_agent_is_read() {
        let (mut made, counts) = (connection(Listeners::default()), Counts::default());
        let (near, _far) = tokio::io::duplex(64);
        made.wire = Wire::new(Box::pin(near));
        let mut turn = || {
            let context = &mut Context::from_waker(Waker::noop());
            let _ = made.poll_turn(&counts, context, false);
            made.conn.poll_timeout().is_some()
        };
        assert!(turn());
        counts.full.store(1, Ordering::Relaxed);
        assert!(!turn());
        counts.full.store(0, Ordering::Relaxed);
        assert!(turn());
    }

    // spec: OSW-2-7
    #[tokio::test]
    async fn a_call_ends_whose_output_finds_no_room() {
        let (mut made, counts) = (connection(Listeners::default()), Counts::default());
        let (near, mut far) = tokio::io::duplex(1 << 16);
        made.wire = Wire::new(Box::pin(near));
        let request = || CallRequest::new("a/t", RawObject::empty());
        let begin = |made: &mut Connection| {
            let id = made.call_tool(&counts, request()).unwrap();
            let (running, call) = RunningCall::new(id.clone(), Arc::new(NoLink));
            let span = made.span_of(&id);
            made.add(&counts, id.clone(), Slot { call, span });
            (id, running)
        };
        let piece = |made: &mut Connection, id: &CallId| {
            let mut data = ChunkData::new();
            data.text = Some("x".repeat(1_000));
            let chunk = ToolStream::new(id.to_string(), 1, Channel::Stdout, data);
            made.on_event(&counts, Event::Stream(id.clone(), chunk));
            made.drain(&counts);
        };
        let ledger = made.conn.ledger().clone();
        let (id, mut kept) = begin(&mut made);
        piece(&mut made, &id);
        assert!(kept.next_chunk().await.is_some(), "there is room");
        let all = ledger.take(Share::Output, ledger.max_bytes_of(Share::Output));
        let (id, mut unkept) = begin(&mut made);
        piece(&mut made, &id);
        assert!(unkept.next_chunk().await.is_none(), "it has ended");
        let error = unkept.result().await.error.unwrap();
        assert_eq!(error.code, ErrorCode::ToolOutputTooLarge);
        assert_eq!(made.conn.pending_calls(), 1);
        // The agent is told to stop.
        made.drain(&counts);
        poll_fn(|context| made.wire.poll_flush(context).map(|sent| sent.is_ok())).await;
        made.wire.close().await;
        let mut sent = Vec::new();
        far.read_to_end(&mut sent).await.unwrap();
        let sent = String::from_utf8_lossy(&sent).into_owned();
        let cancels: Vec<_> = sent.matches("core.tool.cancel").collect();
        assert_eq!(cancels.len(), 1, "{sent}");
        drop(all);
        assert_eq!(ledger.held_bytes_of(Share::Output), 0);
    }

    #[tokio::test]
    async fn records_of_calls_are_made_for_somebody_alone() {
        let mut made = connection(Listeners {
            health: Some(watch::channel(Health::Ok).0),
            ..Listeners::default()
        });
        let request = CallRequest::new("a/t", RawObject::empty());
        made.call_tool(&Counts::default(), request).unwrap();
        let is_record = |output| match output {
            Output::Event(Event::Audit(record)) => record.name == AuditName::CallRouted,
            _ => false,
        };
        let mut outputs = core::iter::from_fn(|| made.conn.poll_output());
        assert!(!outputs.any(is_record));
    }

    /// A connection of the agent `a`, which offers `a/t`.
    fn connection(listeners: Listeners) -> Connection {
        let (clock, token) = (Clock::start(), SessionToken::from_random([9; 32]));
        let hello = json!({"session_token": token.expose(), "agent_id": "a", "agent_version": "1.0.0",
            "protocol": {"supported_versions": [1], "capabilities": ["tools"]}});
        let tool = json!({"tool_id": "a/t", "name": "t", "description": "d", "input_schema": {"type": "object"}});
        let grant = Grant::new(clock.mono(), token, "a");
        let ids = IdSource::seeded(1);
        let mut conn =
            CoreConnection::new(clock.now(), Config::default(), ids, Some(grant)).unwrap();
        tell(&mut conn, &clock, "agent.hello", hello);
        tell(
            &mut conn,
            &clock,
            "agent.tools.register",
            json!({"tools": [tool]}),
        );
        let (tools, _) = watch::channel(SharedTools::from(Vec::new()));
        let stream = Box::pin(tokio::io::empty());
        Connection::new(stream, clock, conn, listeners, tools)
    }
}
