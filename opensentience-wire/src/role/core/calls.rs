//! Calls, from request to their one end.

use core::time::Duration;

use ubos_common::json::{MemberWriter, Write};
use ubos_common::time::{Now, Timestamp};

use super::request::{CallIds, CallRequest, Outcome, PendingCall};
use super::state::{CoreConnection, Event, Output, Timer, millis};
use crate::audit::{AuditEvent, AuditName};
use crate::envelope::{Head, Ids};
use crate::error::{CommandError, EncodeError, ErrorCode, ErrorObject, named};
use crate::ledger::{Charge, Share};
use crate::limits::{CALL_GRACE, CANCEL_DEADLINE};
use crate::message::{ActorType, Caller, Health, MessageType, ToolCancel};
use crate::role::CallId;
use crate::role::common::Phase;
use crate::role::rate::Bucket;
use crate::trace::{debug, trace};

impl CoreConnection {
    /// Calls a tool. Its end, whatever happens, is exactly one [`Event::Ended`].
    ///
    /// When as many calls run as may, it waits for a place.
    ///
    /// # Errors
    ///
    /// See [`CommandError`]; nothing was sent then.
    ///
    /// Spec: OpenSentience 4.3.1
    // impl: OSW-3-3
    pub fn call_tool(
        &mut self,
        now: Now,
        mut request: CallRequest,
    ) -> Result<CallId, CommandError> {
        if let Err(refused) = self.admit(now, &request) {
            self.refuse_call(now, &request, &refused);
            return Err(refused);
        }
        request.timeout = (request.timeout.into_iter())
            .chain(self.config.call_timeout)
            .min();
        let id = CallId::new(self.common.encoder.next_id());
        let request_id = match request.request_id.take() {
            Some(id) => id,
            None => self.common.encoder.next_id().to_string(),
        };
        let mut call = PendingCall::of(now.mono, request_id, &mut request);
        let waits = self.inflight() >= self.config.limits.max_inflight_requests;
        if !self.enter(&mut call, waits.then_some(&request)) {
            return Err(self.refuse_unsent(now, request, call.ids, CommandError::Busy));
        }
        // What waits is written again when it is sent, where its time stamp may be longer.
        let wall = if waits { Timestamp::MAX } else { now.wall };
        let written = self.write_call(Now::new(now.mono, wall), &id, &call, &request);
        let frame = match written {
            Ok(frame) => frame,
            Err(error) => return Err(self.refuse_unsent(now, request, call.ids, error.into())),
        };
        for (bucket, rate) in self.called.iter_mut().zip(self.config.rates()) {
            if let Some(rate) = rate {
                bucket.take(now.mono, rate);
            }
        }
        if let Some(span) = request.timeout {
            let span = span.saturating_add(CALL_GRACE);
            let end = now.mono.saturating_add(span);
            self.common.timers.set(Timer::Call(id.clone()), end);
        }
        trace!(call = %id, tool = %request.tool_id, bytes = frame.len(), "call taken");
        if waits {
            call.waiting = Some(Box::new(request));
            self.calls.insert(id.clone(), call);
            self.queue.push_back(id.clone());
        } else {
            self.calls.insert(id.clone(), call);
            self.send_call(now, &id, frame);
        }
        Ok(id)
    }

    /// Enters what a call keeps, beside what is to be sent where that waits. What a router entered is in the same ledger.
    fn enter(&self, call: &mut PendingCall, waiting: Option<&CallRequest>) -> bool {
        if !call.charge.is_entered() {
            call.charge = Charge::on(&self.ledger, Share::Calls);
        }
        let bytes = call.own_bytes() + waiting.map_or(0, CallRequest::weight);
        call.charge.shrink_to(bytes);
        call.charge.grow(bytes - call.charge.bytes())
    }

    /// Asks the agent to stop a call. It ends when the agent says so, or after the deadline by itself; one
    /// that was not sent yet ends at once. Cancelling again changes nothing.
    ///
    /// # Errors
    ///
    /// No such call is running.
    ///
    /// Spec: OpenSentience 4.4.1
    // impl: OSW-4.4-1
    pub fn cancel(
        &mut self,
        now: Now,
        id: &CallId,
        reason: Option<&str>,
    ) -> Result<(), CommandError> {
        let call = self.calls.get_mut(id).ok_or(CommandError::NoSuchCall)?;
        if !call.is_sent() {
            self.queue.retain(|other| other != id);
            self.end_call(now, id, Outcome::canceled("canceled before it was sent"));
        } else if !core::mem::replace(&mut call.canceled, true) {
            let deadline = CANCEL_DEADLINE;
            let at = now.mono.saturating_add(deadline);
            self.common.timers.set_earlier(Timer::Call(id.clone()), at);
            trace!(call = %id, "cancel sent");
            self.send_cancel(now, id, reason, Some(deadline));
        }
        Ok(())
    }

    /// Calls that were sent: those that wait are in the queue.
    fn inflight(&self) -> usize {
        self.calls.len().saturating_sub(self.queue.len())
    }

    /// What must hold before a call is taken.
    // impl: OSW-4.3-4
    fn admit(&self, now: Now, request: &CallRequest) -> Result<(), CommandError> {
        self.common.check_open()?;
        let tool = self.tools.get(request.tool_id.as_str());
        let missing = || CommandError::ToolNotFound {
            tool: named(&request.tool_id),
        };
        let tool = tool.ok_or_else(missing)?;
        let limits = &self.config.limits;
        let bytes = request.input.as_str().len();
        let full = self.inflight() >= limits.max_inflight_requests
            && self.queue.len() >= limits.max_queued_calls;
        // A kind that is not known is trusted no more than an agent.
        let trusted = |caller: &Caller| matches!(caller.kind, ActorType::Human | ActorType::System);
        let stranger = request.caller.as_ref().is_some_and(|c| !trusted(c));
        let directive = self.config.directives && tool.requires_directive == Some(true);
        if stranger && !self.config.agents_may_call(&request.tool_id) {
            Err(CommandError::PermissionDenied)
        } else if directive && request.causation_id.is_none() {
            Err(CommandError::DirectiveRequired)
        } else if self.health == Health::Unhealthy {
            Err(CommandError::Unhealthy)
        } else if bytes > limits.max_tool_input_bytes {
            let limit = limits.max_tool_input_bytes;
            Err(CommandError::InputTooLarge { bytes, limit })
        } else if full {
            Err(CommandError::Busy)
        } else {
            let full = |(bucket, rate): (&Bucket, _)| bucket.check(now.mono, rate).err();
            let waits = self.called.iter().zip(self.config.rates());
            let waits = waits.filter_map(|(bucket, rate)| full((bucket, rate?)));
            match waits.max() {
                Some(retry_after) => Err(CommandError::RateExceeded { retry_after }),
                None => Ok(()),
            }
        }
    }

    /// Audits a call that is not kept or cannot be written, with the ids that it would have gone out with.
    fn refuse_unsent(
        &mut self,
        now: Now,
        mut request: CallRequest,
        ids: CallIds,
        refused: CommandError,
    ) -> CommandError {
        request.request_id = Some(ids.request_id);
        request.correlation_id = ids.correlation_id;
        request.causation_id = ids.causation_id;
        self.refuse_call(now, &request, &refused);
        refused
    }

    /// Audits a refusal, but none of a connection that has not begun.
    // impl: OSW-8-1
    pub(crate) fn refuse_call(&mut self, now: Now, request: &CallRequest, refused: &CommandError) {
        if self.common.phase == Phase::Handshake {
            return;
        }
        let (name, detail) = match refused {
            CommandError::PermissionDenied => (AuditName::Denied, "tool:invoke"),
            CommandError::DirectiveRequired => (AuditName::Denied, "a directive"),
            CommandError::ToolNotFound { .. } => (AuditName::CallRefused, "no such tool"),
            CommandError::Unhealthy => (AuditName::CallRefused, "the agent is unhealthy"),
            CommandError::InputTooLarge { .. } => {
                (AuditName::CallRefused, "the input is too large")
            }
            CommandError::Busy => (AuditName::CallRefused, "no room for a call"),
            CommandError::Late => (AuditName::CallRefused, "no room for the call in its time"),
            CommandError::NoRoom { .. } => (AuditName::CallRefused, "no room for the call in time"),
            CommandError::RateExceeded { .. } => {
                (AuditName::CallRefused, "too many calls in a span of time")
            }
            CommandError::Encode(EncodeError::HoldsToken) => {
                (AuditName::Denied, "the call holds the session token")
            }
            CommandError::Encode(EncodeError::TooLarge { .. }) => {
                (AuditName::CallRefused, "the call is too long")
            }
            _ => (AuditName::CallRefused, "there is no session"),
        };
        self.audit_refused(now, request, name, refused.into(), detail);
    }

    /// Audits that a call was cancelled before it was taken.
    // impl: OSW-8-1
    #[cfg(feature = "tokio")]
    pub(crate) fn give_up_call(&mut self, now: Now, request: &CallRequest) {
        let (name, code) = (AuditName::CallRefused, ErrorCode::ToolCanceled);
        self.audit_refused(now, request, name, code, "cancelled before it was sent");
    }

    fn audit_refused(
        &mut self,
        now: Now,
        request: &CallRequest,
        name: AuditName,
        code: ErrorCode,
        detail: &'static str,
    ) {
        let event = AuditEvent::of(name, now.wall);
        let mut event = event.with_code(code).with_detail(detail);
        event.tool_id = Some(request.tool_id.clone());
        event.caller.clone_from(&request.caller);
        event.request_id.clone_from(&request.request_id);
        event.correlation_id.clone_from(&request.correlation_id);
        event.causation_id.clone_from(&request.causation_id);
        self.audit(event);
    }

    fn write_call(
        &mut self,
        now: Now,
        id: &CallId,
        call: &PendingCall,
        request: &CallRequest,
    ) -> Result<Vec<u8>, EncodeError> {
        let waited = now.mono.saturating_since(call.asked);
        let timeout = request.timeout.map(|span| span.saturating_sub(waited));
        let payload = LentCall {
            id,
            request,
            timeout_ms: timeout.map(millis),
        };
        let head = Head::new(MessageType::ToolCall)
            .correlation(&call.ids)
            .actor(request.actor.as_ref());
        self.common.encoder.encode(now.wall, &head, &payload)
    }

    fn send_call(&mut self, now: Now, id: &CallId, frame: Vec<u8>) {
        let bytes = frame.len();
        self.routed_bytes = self.routed_bytes.saturating_add(bytes);
        self.common.out.push(Output::Transmit(frame));
        if self.records_calls {
            let event = AuditEvent::of(AuditName::CallRouted, now.wall);
            let mut event = event.with_bytes(bytes);
            if let Some(call) = self.calls.get(id) {
                describe(id, call, &mut event);
            }
            self.audit(event);
        }
    }

    /// Gives free places to calls that wait.
    // impl: OSW-2-6
    fn send_waiting(&mut self, now: Now) {
        let places = self.config.limits.max_inflight_requests;
        while self.common.phase == Phase::Open && self.inflight() < places {
            let Some(id) = self.queue.pop_front() else {
                return;
            };
            let Some(mut call) = self.calls.remove(&id) else {
                continue;
            };
            let request = call.waiting.take();
            let frame = request.map(|request| self.write_call(now, &id, &call, &request));
            call.charge.shrink_to(call.own_bytes());
            self.calls.insert(id.clone(), call);
            if let Some(Ok(frame)) = frame {
                self.send_call(now, &id, frame);
            } else {
                // What waits could be written with the longest time stamp, so this is a fault of ours.
                let text = "the call cannot be written";
                let unwritten = Outcome::failed(ErrorObject::of(ErrorCode::ToolInternal, text));
                self.finish(now, &id, unwritten);
            }
        }
    }

    fn send_cancel(
        &mut self,
        now: Now,
        id: &CallId,
        reason: Option<&str>,
        deadline: Option<Duration>,
    ) {
        let mut cancel = ToolCancel::new(id.as_str().into());
        cancel.reason = reason.map(str::to_owned);
        cancel.deadline_ms = deadline.map(millis);
        let ids = self.calls.get(id).map(|call| call.ids.clone());
        let ids = ids.as_ref().map(Ids::from).unwrap_or_default();
        let head = Head::new(MessageType::ToolCancel).correlation(ids);
        self.transmit(now, &head, &cancel);
    }

    // impl: OSW-4.3-9, OSW-4.4-2
    pub(super) fn on_call_deadline(&mut self, now: Now, id: &CallId) {
        let Some(call) = self.calls.get(id) else {
            return;
        };
        if call.canceled {
            let outcome = Outcome::canceled("canceled, and the agent did not answer");
            return self.end_call(now, id, outcome);
        }
        if call.is_sent() {
            self.send_cancel(now, id, Some("timeout"), None);
        } else {
            self.queue.retain(|other| other != id);
        }
        let error = ErrorObject::of(ErrorCode::ToolTimeout, "no result in time");
        self.end_call(now, id, Outcome::failed(error.noticed_by("core.router")));
    }

    /// Ends a call whose output cannot be kept.
    // impl: OSW-2-7
    #[cfg(feature = "tokio")]
    pub(crate) fn end_unkept(&mut self, now: Now, id: &CallId) {
        self.send_cancel(now, id, Some("there is no room for the output"), None);
        let message = "the output that nobody has taken has as many bytes as it may";
        let error = ErrorObject::of(ErrorCode::ToolOutputTooLarge, message);
        self.end_call(now, id, Outcome::failed(error.noticed_by("core.router")));
    }

    /// Ends a call and gives its place to the next.
    pub(super) fn end_call(&mut self, now: Now, id: &CallId, outcome: impl Into<Box<Outcome>>) {
        self.finish(now, id, outcome);
        self.send_waiting(now);
        self.close_if_drained(now);
    }

    /// Ends a call. It leaves the table here, so that nothing can end it twice.
    // impl: OSW-4.3-7
    pub(super) fn finish(&mut self, now: Now, id: &CallId, outcome: impl Into<Box<Outcome>>) {
        let mut outcome = outcome.into();
        let Some(call) = self.calls.remove(id) else {
            return;
        };
        if call.is_timed || call.canceled {
            self.common.timers.clear(&Timer::Call(id.clone()));
        }
        outcome.duration = now.mono.saturating_since(call.asked);
        debug!(call = %id, status = %outcome.status, took = ?outcome.duration, "call ended");
        if self.records_calls {
            let mut event = AuditEvent::of(AuditName::CallCompleted, now.wall);
            describe(id, &call, &mut event);
            event.status = Some(outcome.status.clone());
            event.code = outcome.error.as_ref().map(|error| error.code.recorded());
            event.bytes = outcome.output.as_ref().map(|o| o.as_str().len());
            event.duration_ms = Some(millis(outcome.duration));
            self.audit(event);
        }
        self.event(Event::Ended(id.clone(), outcome));
    }
}

/// A [`ToolCall`](crate::message::ToolCall), written from the request.
struct LentCall<'a> {
    id: &'a CallId,
    request: &'a CallRequest,
    timeout_ms: Option<u64>,
}

impl Write for LentCall<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let request = self.request;
        let mut object = MemberWriter::begin(out);
        object.known("\"call_id\":", self.id.as_str());
        object.known("\"tool_id\":", &request.tool_id);
        object.known("\"input\":", &request.input);
        object.optional("timeout_ms", self.timeout_ms.as_ref());
        object.optional("idempotency_key", request.idempotency_key.as_ref());
        object.optional("caller", request.caller.as_ref());
        object.optional("context", request.context.as_ref());
        object.end();
    }
}

/// Says of an audit record which call it is about.
fn describe(id: &CallId, call: &PendingCall, event: &mut AuditEvent) {
    event.call_id = Some(id.to_string());
    event.tool_id = Some(call.tool_id.clone());
    event.request_id = Some(call.ids.request_id.clone());
    event.correlation_id.clone_from(&call.ids.correlation_id);
    event.causation_id.clone_from(&call.ids.causation_id);
    event.caller.clone_from(&call.caller);
}
