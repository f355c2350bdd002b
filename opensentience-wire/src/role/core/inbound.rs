//! What an agent's messages do to the connection.

use ubos_common::json::{RawObject, Read as _, Reader};
use ubos_common::time::Now;
use ubos_common::violation::Profile;

use super::request::Outcome;
use super::state::{CoreConnection, Event, Timer, millis, public_message};
use super::throttle::Throttle;
use crate::audit::{AuditEvent, AuditName};
use crate::envelope::{Correlation, Envelope, Head, VERSION};
use crate::error::{ConnectionError, DecodeError, ErrorCode, ErrorObject};
use crate::limits::MAX_BESIDE_OUTPUT;
use crate::message::{
    AboutCall, CancelAck, Heartbeat, Hello, MessageType, Server, Side, ToolOutcome, ToolStream,
    Welcome,
};
use crate::role::CallId;
use crate::role::common::{Connection as _, Phase};
use crate::trace::debug;

impl CoreConnection {
    /// Counts what does not belong to a call; beyond the rate the connection is not read for a while.
    pub(super) fn charge(&mut self, now: Now, bytes: usize) {
        if self.throttle.is_lifted {
            return;
        }
        let Some(until) = Throttle::charge(&self.ledger, now.mono, bytes) else {
            return;
        };
        self.common.timers.set(Timer::Throttle, until);
        if core::mem::replace(&mut self.throttle.is_active, true) {
            return;
        }
        debug!(agent = %self.agent_id, session = %self.session_id, "agent throttled");
        self.common.is_throttled = true;
        self.watch_silence(now);
        self.audit(AuditEvent::of(AuditName::Throttled, now.wall));
    }

    /// What is said of calls is bounded by the calls, where there are such calls.
    fn charge_unknown(&mut self, now: Now, is_known: bool, bytes: usize) {
        if !is_known {
            self.charge(now, bytes);
        }
    }

    /// Reads the connection again, and what has come behind that which cost too much.
    pub(super) fn unthrottle(&mut self, now: Now) {
        self.throttle.is_active = false;
        self.common.is_throttled = false;
        if self.registration.is_none() {
            // A fault is among the outputs, too.
            let _ = self.resume(now);
        }
        if self.session().is_some() {
            self.watch_silence(now);
        }
    }

    // impl: OSW-2-1, OSW-3-1
    pub(super) fn on_message_frame(
        &mut self,
        now: Now,
        frame: &[u8],
    ) -> Result<(), ConnectionError> {
        if self.common.phase != Phase::Handshake
            && let Some(envelope) = Envelope::<ToolOutcome>::decode_whole(
                frame,
                br#"{"v":1,"type":"agent.tool.result","#,
                &self.config.limits.json,
            )
        {
            let is_known = self.on_result(now, envelope.error.as_deref(), envelope.payload);
            self.charge_unknown(now, is_known, frame.len());
            return Ok(());
        }
        let rule = "an envelope that breaks the rules";
        let code = ErrorCode::InvalidMessage;
        match Envelope::decode(frame, &self.config.limits.json) {
            Ok((envelope, _)) if self.common.phase == Phase::Handshake => {
                self.on_hello(now, &envelope)
            }
            Ok((envelope, _)) => {
                if !envelope.message_type().is_about_call() {
                    self.charge(now, frame.len());
                }
                self.on_message(now, &envelope, frame.len())
            }
            Err(DecodeError::Invalid(_)) if self.common.phase == Phase::Handshake => {
                Err(self.refuse(now, code, rule))
            }
            Err(DecodeError::Invalid(_)) => {
                self.charge(now, frame.len());
                self.reject(now, code, rule);
                Ok(())
            }
            Err(error) => {
                self.fail(now, ErrorCode::from(&error), Some(frame.len()));
                Err(error.into())
            }
        }
    }

    // impl: OSW-4.1-1, OSW-4.1-4, OSW-4.1-6, OSW-4.1-9
    fn on_hello(&mut self, now: Now, envelope: &Envelope<'_>) -> Result<(), ConnectionError> {
        if envelope.message_type() != MessageType::Hello {
            let rule = "something before the hello";
            return Err(self.refuse(now, ErrorCode::HandshakeRequired, rule));
        }
        let hello = match envelope.payload::<Hello>(&self.config.limits.json) {
            Ok((hello, _)) => hello,
            Err(DecodeError::Invalid(report))
                if report.iter().any(|f| f.pointer == "/payload/session_token") =>
            {
                return Err(self.refuse(now, ErrorCode::Unauthorized, "no token"));
            }
            Err(_) => {
                let rule = "a hello that breaks the rules";
                return Err(self.refuse(now, ErrorCode::InvalidMessage, rule));
            }
        };
        if let Err(rule) = self.authenticate(now, &hello) {
            return Err(self.refuse(now, ErrorCode::Unauthorized, rule));
        }
        if envelope.v != VERSION || !hello.protocol.supported_versions.contains(&VERSION) {
            let rule = "no version in common";
            return Err(self.refuse(now, ErrorCode::UnsupportedVersion, rule));
        }
        let hash = hello.manifest_hash.as_deref();
        let grant = self.grant.as_ref();
        if !grant.is_some_and(|grant| grant.takes_manifest(hash)) {
            return Err(self.refuse(now, ErrorCode::ManifestMismatch, "another manifest"));
        }
        self.welcome(now, envelope, &hello);
        Ok(())
    }

    /// All the checks are made, whatever the first says: how long it takes tells nothing.
    // impl: OSW-4.1-3
    fn authenticate(&self, now: Now, hello: &Hello) -> Result<(), &'static str> {
        let grant = self.grant.as_ref().ok_or("a token that was used")?;
        let token = grant.token.matches(&hello.session_token);
        let agent = *grant.agent_id == *hello.agent_id;
        let fresh = now.mono < grant.expires;
        match (token, agent, fresh) {
            (true, true, true) => Ok(()),
            (false, _, _) => Err("a wrong token"),
            (_, false, _) => Err("the token of another agent"),
            (_, _, false) => Err("a token that has expired"),
        }
    }

    // impl: OSW-4.1-5
    fn welcome(&mut self, now: Now, envelope: &Envelope<'_>, hello: &Hello) {
        self.grant = None;
        self.session_id = self.common.encoder.next_id().to_string().into();
        let config = &self.config;
        let max_frame_bytes = config.limits.max_frame_bytes;
        let welcome = Welcome::new(
            VERSION,
            self.session_id.to_string(),
            millis(config.heartbeat_interval),
            max_frame_bytes as u64,
            Server::new(config.core_version.clone(), config.instance_id.clone()),
        );
        let head = Head::new(MessageType::Welcome).in_reply_to(Some(&envelope.id));
        self.transmit(now, &head, &welcome);
        self.common.encoder.set_max_frame_bytes(max_frame_bytes);
        self.common.phase = Phase::Open;
        debug!(agent = %self.agent_id, session = %self.session_id, "session open");
        self.common.timers.clear(&Timer::Handshake);
        self.watch_silence(now);
        self.audit(AuditEvent::of(AuditName::Connected, now.wall));
        self.event(Event::Connected {
            session_id: self.session_id.clone(),
            agent_version: hello.agent_version.as_ref().into(),
        });
    }

    fn on_message(
        &mut self,
        now: Now,
        envelope: &Envelope<'_>,
        bytes: usize,
    ) -> Result<(), ConnectionError> {
        let kind = envelope.message_type();
        let invalid = ErrorCode::InvalidMessage;
        if envelope.v != VERSION {
            // What is about no call has been charged for.
            self.charge_unknown(now, !kind.is_about_call(), bytes);
            self.reject(now, invalid, "a message of another version");
            return Ok(());
        }
        macro_rules! payload {
            ($type:ty) => {
                match envelope.payload::<$type>(&self.config.limits.json) {
                    Ok((payload, _)) => payload,
                    Err(_) => {
                        self.on_bad_payload(now, envelope, bytes);
                        return Ok(());
                    }
                }
            };
        }
        match kind {
            MessageType::Register => {
                let register = payload!(crate::message::Register);
                self.on_register(now, envelope, &register);
            }
            MessageType::Unregister => {
                let gone = payload!(crate::message::Unregister);
                self.on_unregister(now, envelope, &gone);
            }
            _ if kind.is_about_call() => {
                let is_known = match &kind {
                    MessageType::ToolStream => self.on_stream(now, payload!(ToolStream)),
                    MessageType::ToolResult => {
                        self.on_result(now, envelope.error.as_deref(), payload!(ToolOutcome))
                    }
                    _ => self.on_cancel_ack(now, &payload!(CancelAck)),
                };
                self.charge_unknown(now, is_known, bytes);
            }
            MessageType::Heartbeat => {
                let beat = payload!(Heartbeat);
                self.on_heartbeat(now, beat);
            }
            MessageType::Pong => self.event(Event::Pong),
            MessageType::AgentError => self.reject(now, invalid, "the agent reports an error"),
            MessageType::Hello => self.reject(now, invalid, "a second hello"),
            MessageType::Other(_) if kind.sender() != Some(Side::Core) => {
                return self.on_unknown(now, envelope);
            }
            // impl: OSW-4-1
            _ => self.reject(now, invalid, "a message that only a core sends"),
        }
        Ok(())
    }

    fn on_bad_payload(&mut self, now: Now, envelope: &Envelope<'_>, bytes: usize) {
        let is_known = self.ends_call(now, envelope);
        // What is about no call has been charged for.
        let is_charged = !envelope.message_type().is_about_call();
        self.charge_unknown(now, is_known || is_charged, bytes);
    }

    /// A payload that breaks the rules is dropped; a result among them still ends its call, and gives whether it did.
    // impl: OSW-4.3-12
    fn ends_call(&mut self, now: Now, envelope: &Envelope<'_>) -> bool {
        let code = ErrorCode::InvalidMessage;
        self.reject(now, code.clone(), "a payload that breaks the rules");
        if envelope.message_type() != MessageType::ToolResult {
            return false;
        }
        let payload = envelope.payload.as_raw();
        let mut reader = Reader::of_raw(payload, &self.config.limits.json, Profile::Strict);
        let about = AboutCall::read(&mut reader).ok().and_then(|about| about.0);
        let Some(id) = about.and_then(|id| self.sent_call(&id)) else {
            return false;
        };
        let error = ErrorObject::of(code, "the agent's result breaks the rules");
        let error = error.noticed_by("core.router");
        self.end_call(now, &id, Outcome::failed(error));
        true
    }

    /// The call of an id, if it was sent and has not ended.
    fn sent_call(&self, id: &str) -> Option<CallId> {
        let id = CallId::from(id);
        self.calls.get(&id)?.is_sent().then_some(id)
    }

    // impl: OSW-3-7
    fn on_unknown(&mut self, now: Now, envelope: &Envelope<'_>) -> Result<(), ConnectionError> {
        let live = |id: &str| {
            let mut calls = self.calls.values();
            calls.any(|call| call.ids.request_id == id)
        };
        let request = envelope.request_id.as_deref();
        let wants_answer = envelope.in_reply_to.is_none()
            && envelope.error.is_none()
            && request.is_some_and(|id| !live(id));
        let code = ErrorCode::UnknownType;
        self.reject(now, code.clone(), "a message of an unknown type");
        if wants_answer {
            let error = ErrorObject::of(code.clone(), public_message(&code));
            let ids = Correlation::from(envelope);
            let head = Head::new(MessageType::CoreError).in_reply_to(Some(&envelope.id));
            let head = head.correlation(&ids).error(&error);
            self.transmit(now, &head, &RawObject::empty());
        } else if self.config.closing_on_unknown_types {
            self.fail(now, code, None);
            return Err(ConnectionError::UnknownType);
        }
        Ok(())
    }

    /// Gives whether it is output that counts.
    // impl: OSW-4.3-5, OSW-4.3-6
    fn on_stream(&mut self, now: Now, chunk: ToolStream) -> bool {
        let code = ErrorCode::InvalidMessage;
        let id = self.sent_call(&chunk.call_id);
        let Some((id, call)) = id.and_then(|id| {
            let call = self.calls.get_mut(&id)?;
            Some((id, call))
        }) else {
            self.reject(now, code, "output of a call that is not running");
            return false;
        };
        let rule = if call.stream_done {
            Some("output behind the end of the stream")
        } else if call.last_seq == 0 && chunk.seq != 1 {
            Some("a stream that does not begin with 1")
        } else if chunk.seq <= call.last_seq {
            Some("a sequence number that does not increase")
        } else if !chunk.fits_channel() {
            Some("data of another shape than the channel's")
        } else {
            None
        };
        if let Some(rule) = rule {
            self.reject(now, code, rule);
            return false;
        }
        let gap = chunk.seq != call.last_seq + 1;
        call.last_seq = chunk.seq;
        call.stream_done = chunk.done == Some(true);
        if gap {
            let rule = "a gap in the sequence numbers; the output counts";
            self.reject(now, code, rule);
            // Readers bound the output, but nobody bounds the records.
            self.charge(now, 0);
        }
        self.event(Event::Stream(id, chunk));
        true
    }

    /// Gives whether it ends a call.
    // impl: OSW-2-7, OSW-3-11, OSW-2-8
    fn on_result(
        &mut self,
        now: Now,
        error: Option<&ErrorObject>,
        mut result: ToolOutcome,
    ) -> bool {
        let code = ErrorCode::InvalidMessage;
        let Some(id) = self.sent_call(&result.call_id) else {
            self.reject(now, code, "a result of a call that is not running");
            return false;
        };
        if result.settle(error) {
            self.reject(now, code, "a result whose members contradict its status");
        }
        let own = self.calls.get(&id).and_then(|call| call.max_output_bytes);
        let limit = self.config.limits.max_tool_output_bytes;
        let limit = own.map_or(limit, |own| own.min(limit));
        let bytes = result.output.as_ref().map_or(0, |o| o.as_str().len());
        // From here to its reader it stays in its place.
        let mut outcome = Box::new(Outcome::reported(result));
        let beside = outcome.weight() - bytes;
        if bytes > limit {
            let error = crate::role::output_too_large(bytes, limit);
            *outcome = Outcome::failed(error.noticed_by("core.router"));
        } else if beside > MAX_BESIDE_OUTPUT {
            let message = format!(
                "{beside} bytes of metrics and error where {MAX_BESIDE_OUTPUT} are allowed"
            );
            let error = ErrorObject::of(ErrorCode::ToolOutputTooLarge, message);
            *outcome = Outcome::failed(error.noticed_by("core.router"));
        } else {
            outcome.enter(&self.ledger);
        }
        self.end_call(now, &id, outcome);
        true
    }

    /// Gives whether it answers a cancel, as the first.
    fn on_cancel_ack(&mut self, now: Now, ack: &CancelAck) -> bool {
        let call_id = self.sent_call(&ack.call_id);
        let call = call_id.as_ref().and_then(|id| self.calls.get_mut(id));
        let rule = match &call {
            None => Some("a cancel_ack of a call that is not running"),
            Some(call) if !call.canceled => Some("a cancel_ack of a call that was not cancelled"),
            Some(call) if call.acknowledged => Some("a second cancel_ack"),
            Some(_) => None,
        };
        if let Some(rule) = rule {
            self.reject(now, ErrorCode::InvalidMessage, rule);
            return false;
        }
        let (Some(call_id), Some(call)) = (call_id, call) else {
            return false;
        };
        call.acknowledged = true;
        self.event(Event::CancelAck {
            call_id,
            accepted: ack.accepted,
        });
        true
    }

    // impl: OSW-4.5-1, OSW-4.5-2
    fn on_heartbeat(&mut self, now: Now, beat: Heartbeat) {
        if *beat.session_id != *self.session_id {
            let rule = "a heartbeat of another session";
            return self.reject(now, ErrorCode::SessionMismatch, rule);
        }
        self.watch_silence(now);
        self.set_health(now, beat.status);
    }
}
