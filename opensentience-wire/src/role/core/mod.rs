//! The core's side of one agent's connection.
//!
//! ```text
//! Handshake ──hello──>  Open ──goodbye()──> Draining ──last call ends──> Closed
//!      │ refused, late     │ fatal fault, end of stream │ drain time over    ▲
//!      └───────────────────┴────────────────────────────┴────────────────────┘
//! ```

mod calls;
mod config;
#[cfg(test)]
mod counted;
mod inbound;
mod request;
mod schemas;
mod state;
mod throttle;
mod tools;

use core::time::Duration;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::{RawObject, Write};
use ubos_common::time::{Mono, Now};

pub use config::Config;
pub(crate) use config::permits;
pub use request::{CallRequest, Outcome};
#[cfg(feature = "tokio")]
pub(crate) use schemas::{Budget, Verdict, verdict};
pub use schemas::{SchemaCheck, SchemaVerdicts};
pub use state::{CoreConnection, Event, Output};
use throttle::Throttle;

use super::common::{CommonState, Connection, Phase, impl_machine};
use super::rate::Bucket;
use super::table::Table;
use super::{CallId, CloseReason, Input};
use crate::audit::{AuditEvent, AuditName};
use crate::envelope::Head;
#[cfg(all(feature = "tokio", feature = "tracing"))]
use crate::envelope::Ids;
use crate::error::{
    CommandError, ConfigError, ConnectionError, ErrorCode, ErrorObject, FrameError,
};
use crate::ledger::{Charge, Ledger, Share};
use crate::limits::DRAIN_TIME;
use crate::message::{Goodbye, Health, MessageType, ToolSpec};
use crate::token::Grant;
use crate::trace::{debug, trace};
use state::{Timer, millis, public_message};

impl CoreConnection {
    /// A connection that has just been accepted, and the grant that its hello may use.
    ///
    /// Without a grant every hello is refused: the token was used.
    ///
    /// # Errors
    ///
    /// A setting is out of its range.
    pub fn new(
        now: Now,
        config: Config,
        ids: IdSource,
        grant: Option<Grant>,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let ledger = Ledger::new(config.limits.max_agent_bytes);
        config.check_ledger(&ledger)?;
        let mut common = CommonState::new(ids, &config.limits);
        let deadline = now.mono.saturating_add(config.handshake_timeout);
        common.timers.set(Timer::Handshake, deadline);
        if let Some(grant) = &grant {
            common.encoder.guard(&grant.token);
        }
        let agent_id = grant.as_ref().map(|grant| grant.agent_id.clone());
        Ok(Self {
            common,
            grant,
            session_id: Box::default(),
            agent_id: agent_id.unwrap_or_default(),
            tools: BTreeMap::new(),
            tool_charge: Charge::on(&ledger, Share::Tools),
            ledger,
            registration: None,
            calls: Table::new(),
            queue: VecDeque::new(),
            called: [Bucket::default(); 2],
            health: Health::Ok,
            reading: true,
            throttle: Throttle::default(),
            records_calls: true,
            routed_bytes: 0,
            config,
        })
    }

    /// Counts what is kept for the agent in a ledger that others count in, too, such as that of a router, and what the agent sends
    /// beside its calls with that of its other connections, which have the same clock. Only before anything came or was called.
    ///
    /// # Errors
    ///
    /// The bound of the ledger is too small for this connection.
    pub fn with_ledger(mut self, ledger: Ledger) -> Result<Self, ConfigError> {
        self.config.check_ledger(&ledger)?;
        self.tool_charge = Charge::on(&ledger, Share::Tools);
        self.ledger = ledger;
        Ok(self)
    }

    /// What is kept for the agent.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Room for output that the agent may send before anybody has looked at it.
    #[cfg(feature = "tokio")]
    pub(crate) const fn room_bytes(&self) -> usize {
        self.config.room_bytes()
    }

    /// Whether the handshake succeeded and calls are taken.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.common.phase == Phase::Open
    }

    /// The grant, if no handshake used it up: for the next connection.
    #[must_use]
    pub fn into_grant(self) -> Option<Grant> {
        self.grant
    }

    /// The session's tools, by id.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        self.tools.values()
    }

    /// The agent's health, as it said or as its silence does.
    #[must_use]
    pub const fn health(&self) -> &Health {
        &self.health
    }

    /// Calls that have not ended, waiting ones too.
    #[must_use]
    pub fn pending_calls(&self) -> usize {
        self.calls.len()
    }

    /// Calls that may be pending at once, waiting ones too.
    #[cfg(all(feature = "tokio", feature = "tracing"))]
    pub(crate) const fn max_calls(&self) -> usize {
        let limits = &self.config.limits;
        limits
            .max_inflight_requests
            .saturating_add(limits.max_queued_calls)
    }

    /// The tool of a call that has not ended, and the ids that it goes out with.
    #[cfg(all(feature = "tokio", feature = "tracing"))]
    pub(crate) fn call_ids(&self, id: &CallId) -> Option<(&str, Ids<'_>)> {
        let call = self.calls.get(id)?;
        Some((&call.tool_id, Ids::from(&call.ids)))
    }

    /// Sets whether anybody takes records of calls that are routed and completed: else none are made.
    #[cfg(feature = "tokio")]
    pub(crate) const fn record_calls(&mut self, records: bool) {
        self.records_calls = records;
    }

    /// Has schemas compiled elsewhere: see [`Output::CheckSchemas`].
    #[cfg(feature = "tokio")]
    pub(crate) const fn check_schemas_apart(&mut self) {
        self.config.schemas_apart = true;
    }

    /// The longest time that a call may take.
    #[cfg(feature = "tokio")]
    pub(crate) const fn call_timeout(&self) -> Option<Duration> {
        self.config.call_timeout
    }

    /// How long a call waits for room.
    #[cfg(feature = "tokio")]
    pub(crate) const fn room_timeout(&self) -> Duration {
        self.config.room_timeout
    }

    /// Ends a connection that has not ended at once, whatever it waits for.
    #[cfg(feature = "tokio")]
    pub(crate) fn abandon(&mut self, now: Now) {
        self.close(now, CloseReason::Disconnected);
    }

    /// Bytes of calls that were handed out to be sent since the last look.
    #[cfg(feature = "tokio")]
    pub(crate) const fn take_routed_bytes(&mut self) -> usize {
        core::mem::replace(&mut self.routed_bytes, 0)
    }

    /// Asks whether the agent lives; the answer is [`Event::Pong`].
    ///
    /// # Errors
    ///
    /// There is no session.
    ///
    /// Spec: OpenSentience 4.5.2
    pub fn ping(&mut self, now: Now) -> Result<(), CommandError> {
        self.common.check_open()?;
        self.transmit(now, &Head::new(MessageType::Ping), &RawObject::empty());
        Ok(())
    }

    /// Takes no more calls, tells the agent, and closes when the running calls have ended or the drain
    /// time is over. Calls that still wait for a place end at once.
    ///
    /// # Errors
    ///
    /// There is no session.
    ///
    /// Spec: OpenSentience 4.1.3
    // impl: OSW-4.1-7
    pub fn goodbye(
        &mut self,
        now: Now,
        reason: &str,
        retry_after: Option<Duration>,
    ) -> Result<(), CommandError> {
        self.common.check_open()?;
        let mut goodbye = Goodbye::new(reason.into());
        goodbye.retry_after_ms = retry_after.map(millis);
        self.transmit(now, &Head::new(MessageType::Goodbye), &goodbye);
        self.common.phase = Phase::Draining;
        trace!(phase = ?self.common.phase, "transition");
        let end = now.mono.saturating_add(DRAIN_TIME);
        self.common.timers.set(Timer::Drain, end);
        for id in core::mem::take(&mut self.queue) {
            let error = ErrorObject::of(ErrorCode::AgentDisconnected, "the core is closing");
            self.finish(now, &id, Outcome::failed(error));
        }
        self.close_if_drained(now);
        Ok(())
    }

    /// Says whether the driver reads. While it does not, silence is no sign of bad health.
    pub fn set_reading(&mut self, now: Now, reading: bool) {
        if core::mem::replace(&mut self.reading, reading) != reading && self.session().is_some() {
            self.watch_silence(now);
        }
    }

    /// Says that the agent is gone: it sends nothing more, so that what has come has no rate. Without this, an agent that had said
    /// too much is found to be gone when its connection may be read again.
    pub fn lift_rate(&mut self, now: Now) {
        self.throttle.is_lifted = true;
        if self.throttle.is_active {
            self.common.timers.clear(&Timer::Throttle);
            self.unthrottle(now);
        }
    }

    /// Waits for the next sign of life from now on, where the connection is read.
    fn watch_silence(&mut self, now: Now) {
        let is_read = self.reading && !self.throttle.is_active && self.registration.is_none();
        if is_read {
            let at = self.silence_ends(now.mono);
            self.common.timers.set(Timer::Health, at);
        } else {
            self.common.timers.clear(&Timer::Health);
        }
    }

    fn session(&self) -> Option<&str> {
        self.common.has_session().then_some(&*self.session_id)
    }

    fn silence_ends(&self, now: Mono) -> Mono {
        let span = self.config.heartbeat_interval;
        now.saturating_add(span.saturating_mul(self.config.missed_heartbeats))
    }

    /// Sends what is short by its nature; what is too long all the same is not sent, and audited.
    fn transmit<P: Write + ?Sized>(&mut self, now: Now, head: &Head<'_>, payload: &P) {
        match self.common.encoder.encode(now.wall, head, payload) {
            Ok(frame) => self.common.out.push(Output::Transmit(frame)),
            Err(_) => self.reject(
                now,
                ErrorCode::FrameTooLarge,
                "an answer that cannot be written",
            ),
        }
    }

    fn event(&mut self, event: Event) {
        self.common.out.push(Output::Event(event));
    }

    // impl: OSW-8-1
    fn audit(&mut self, mut event: AuditEvent) {
        event.agent_id = (!self.agent_id.is_empty()).then(|| self.agent_id.to_string());
        event.session_id = self.session().map(str::to_owned);
        self.leave_out_token(&mut event);
        self.event(Event::Audit(Box::new(event)));
    }

    /// What a caller chose may hold the session token: it is in no record.
    // impl: OSW-7-1
    pub(crate) fn leave_out_token(&self, event: &mut AuditEvent) {
        let holds = |text: &str| self.common.encoder.guards(text);
        for text in [
            &mut event.tool_id,
            &mut event.request_id,
            &mut event.correlation_id,
            &mut event.causation_id,
        ] {
            text.take_if(|text| holds(text));
        }
        event.caller.take_if(|caller| holds(&caller.id));
    }

    /// Audits a message, or a part of one, that has no effect.
    fn reject(&mut self, now: Now, code: ErrorCode, rule: &'static str) {
        debug!(agent = %self.agent_id, %code, rule, "message rejected");
        let event = AuditEvent::of(AuditName::MessageRejected, now.wall);
        self.audit(event.with_code(code).with_detail(rule));
    }

    /// Ends the connection: every call ends, exactly once.
    // impl: OSW-4.5-5
    fn close(&mut self, now: Now, reason: CloseReason) {
        debug!(agent = %self.agent_id, session = %self.session_id, ?reason, calls = self.calls.len(), "connection ends");
        let was_open = self.session().is_some();
        let ids: Vec<CallId> = self.calls.keys().cloned().collect();
        for id in ids {
            let error = ErrorObject::of(ErrorCode::AgentDisconnected, "the connection has ended");
            self.finish(now, &id, Outcome::failed(error));
        }
        if was_open {
            self.audit(AuditEvent::of(AuditName::Disconnected, now.wall));
        }
        self.common.phase = Phase::Closed;
        self.common.timers.clear_all();
        self.tools.clear();
        self.tool_charge.shrink_to(0);
        self.registration = None;
        self.common.out.push(Output::Close(reason));
    }

    /// Refuses the hello: tells the agent, audits the true reason, closes.
    fn refuse(&mut self, now: Now, code: ErrorCode, rule: &'static str) -> ConnectionError {
        debug!(agent = %self.agent_id, %code, rule, "handshake refused");
        let error = ErrorObject::of(code.clone(), public_message(&code)).noticed_by("core.session");
        let head = Head::new(MessageType::Welcome).error(&error);
        self.transmit(now, &head, &RawObject::empty());
        let name = match code {
            ErrorCode::ManifestMismatch => AuditName::ManifestDrift,
            _ => AuditName::HandshakeFailed,
        };
        let event = AuditEvent::of(name, now.wall).with_code(code.clone());
        self.audit(event.with_detail(rule));
        self.close(now, CloseReason::Protocol(code.clone()));
        ConnectionError::Handshake {
            code,
            reason: Cow::Borrowed(rule),
        }
    }

    /// Ends the connection for a fault that it does not survive.
    fn fail(&mut self, now: Now, code: ErrorCode, bytes: Option<usize>) {
        let mut event = AuditEvent::of(AuditName::FrameRejected, now.wall).with_code(code.clone());
        event.bytes = bytes;
        self.audit(event);
        if self.common.phase == Phase::Handshake {
            self.refuse(now, code, "no message");
            return;
        }
        let error = ErrorObject::of(code.clone(), public_message(&code)).noticed_by("core.session");
        let goodbye = Goodbye::new(code.as_str().into());
        let head = Head::new(MessageType::Goodbye).error(&error);
        self.transmit(now, &head, &goodbye);
        self.close(now, CloseReason::Protocol(code));
    }

    fn close_if_drained(&mut self, now: Now) {
        if self.common.phase == Phase::Draining && self.calls.is_empty() {
            self.close(now, CloseReason::Goodbye);
        }
    }

    // impl: OSW-4.5-2
    fn set_health(&mut self, now: Now, health: Health) {
        if self.health == health {
            return;
        }
        if health == Health::Unhealthy {
            self.audit(AuditEvent::of(AuditName::MarkedUnhealthy, now.wall));
        } else if self.health == Health::Unhealthy {
            self.audit(AuditEvent::of(AuditName::Recovered, now.wall));
        }
        debug!(agent = %self.agent_id, ?health, "health changed");
        self.health = health.clone();
        self.event(Event::Health(health));
    }
}

impl Connection for CoreConnection {
    type Timer = Timer;
    type Output = Output;

    fn common(&mut self) -> &mut CommonState<Timer, Output> {
        &mut self.common
    }

    fn max_frame_bytes(&self) -> usize {
        self.config.limits.max_frame_bytes
    }

    fn on_frame(&mut self, now: Now, frame: &[u8]) -> Result<(), ConnectionError> {
        self.on_message_frame(now, frame)
    }

    fn on_bad_frame(&mut self, now: Now, error: FrameError) -> ConnectionError {
        let bytes = match error {
            FrameError::TooLarge { length, .. } => length,
            FrameError::Truncated { received } => received,
            FrameError::Empty => 0,
        };
        self.fail(now, ErrorCode::from(&error), Some(bytes));
        error.into()
    }

    fn on_disconnect(&mut self, now: Now) {
        self.close(now, CloseReason::Disconnected);
    }

    fn on_timer(&mut self, now: Now, timer: &Timer) {
        match timer {
            // impl: OSW-4.1-8
            Timer::Handshake => {
                self.refuse(now, ErrorCode::HandshakeTimeout, "no hello in time");
            }
            Timer::Health => {
                self.audit(AuditEvent::of(AuditName::HeartbeatMissed, now.wall));
                self.set_health(now, Health::Unhealthy);
            }
            Timer::Throttle => self.unthrottle(now),
            Timer::Drain => self.close(now, CloseReason::Goodbye),
            Timer::Call(id) => self.on_call_deadline(now, id),
        }
    }
}

impl_machine!(CoreConnection);
