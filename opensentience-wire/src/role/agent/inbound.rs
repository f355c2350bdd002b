//! What the core's messages do to the connection.

use core::time::Duration;
use std::borrow::Cow;

use ubos_common::ShortText;
use ubos_common::json::{RawObject, Read as _, Reader};
use ubos_common::time::Now;
use ubos_common::violation::{Profile, Report};

use super::calls::too_many_copies;
use super::state::{About, AgentConnection, Event, IncomingCall, OpenCall, Output, Timer};
use crate::envelope::{Correlation, Envelope, Head, VERSION};
use crate::error::{ConnectionError, DecodeError, ErrorCode, ErrorObject};
use crate::message::{
    AboutCall, Actor, CancelAck, Goodbye, MessageType, Registered, Side, ToolCall, ToolCancel,
    Unregistered, Welcome,
};
use crate::role::common::Phase;
use crate::role::idempotency::{Key, Turn, conflict};
use crate::role::{CallId, CloseReason};
use crate::trace::{debug, trace};

impl AgentConnection {
    pub(super) fn on_message_frame(
        &mut self,
        now: Now,
        frame: &[u8],
    ) -> Result<(), ConnectionError> {
        if self.common.phase != Phase::Handshake
            && let Some(envelope) = Envelope::<ToolCall>::decode_whole(
                frame,
                br#"{"v":1,"type":"core.tool.call","#,
                &self.config.limits.json,
            )
        {
            self.on_call(
                now,
                about(now, &envelope),
                envelope.actor.map(|actor| *actor),
                envelope.payload,
            );
            return Ok(());
        }
        match Envelope::decode(frame, &self.config.limits.json) {
            Ok((envelope, _)) if self.common.phase == Phase::Handshake => {
                self.on_welcome(now, &envelope)
            }
            Ok((envelope, _)) => {
                self.on_message(now, &envelope);
                Ok(())
            }
            Err(DecodeError::Invalid(_)) if self.common.phase != Phase::Handshake => {
                let rule = "an envelope that breaks the rules";
                self.reject(ErrorCode::InvalidMessage, rule);
                Ok(())
            }
            Err(error) => {
                self.fail(now, ErrorCode::from(&error));
                Err(error.into())
            }
        }
    }

    // impl: OSW-4.1-10
    fn on_welcome(&mut self, now: Now, envelope: &Envelope<'_>) -> Result<(), ConnectionError> {
        if let Some(error) = &envelope.error {
            let reason = "the core refused the agent";
            return Err(self.fail_handshake(error.code.clone(), Cow::Borrowed(reason)));
        }
        if envelope.message_type() != MessageType::Welcome {
            let reason = "something before the welcome";
            return Err(self.fail_handshake(ErrorCode::InvalidMessage, Cow::Borrowed(reason)));
        }
        let Ok((welcome, _)) = envelope.payload::<Welcome>(&self.config.limits.json) else {
            let reason = "a welcome that breaks the rules";
            return Err(self.fail_handshake(ErrorCode::InvalidMessage, Cow::Borrowed(reason)));
        };
        if welcome.accepted_version != VERSION {
            let reason = "a version that was not offered";
            return Err(self.fail_handshake(ErrorCode::UnsupportedVersion, Cow::Borrowed(reason)));
        }
        // impl: OSW-2-3, OSW-4.1-5
        let most = usize::try_from(welcome.max_frame_bytes).unwrap_or(usize::MAX);
        self.common.encoder.set_max_frame_bytes(most);
        // What the agent takes of a core is bounded by its own limit, too.
        let most = most.min(self.config.limits.max_frame_bytes);
        self.config.limits.max_frame_bytes = most;
        self.config.limits.json.max_bytes = most;
        self.heartbeat_interval = Duration::from_millis(welcome.heartbeat_interval_ms.max(1));
        self.session_id = welcome.session_id.into();
        self.common.phase = Phase::Open;
        debug!(session = %self.session_id, "session open");
        self.common.timers.clear(&Timer::Welcome);
        self.beat(now);
        let session_id = self.session_id.clone();
        self.event(Event::Welcomed { session_id });
        Ok(())
    }

    fn on_message(&mut self, now: Now, envelope: &Envelope<'_>) {
        let kind = envelope.message_type();
        let invalid = ErrorCode::InvalidMessage;
        if envelope.v != VERSION {
            return self.reject(invalid, "a message of another version");
        }
        match kind {
            MessageType::ToolCall => match envelope.payload(&self.config.limits.json) {
                Ok((call, _)) => {
                    let actor = envelope.actor.as_deref().cloned();
                    self.on_call(now, about(now, envelope), actor, call);
                }
                Err(error) => self.on_bad_call(now, envelope, &error),
            },
            MessageType::ToolCancel => match envelope.payload(&self.config.limits.json) {
                Ok((cancel, _)) => self.on_cancel(now, envelope, &cancel),
                Err(_) => self.reject(invalid, "a payload that breaks the rules"),
            },
            MessageType::Registered => match envelope.payload(&self.config.limits.json) {
                Ok((reply, _)) => self.on_registered(reply),
                Err(_) => self.reject(invalid, "a payload that breaks the rules"),
            },
            MessageType::Unregistered => {
                match envelope.payload::<Unregistered>(&self.config.limits.json) {
                    Ok((reply, _)) => self.event(Event::Unregistered(reply.tool_ids)),
                    Err(_) => self.reject(invalid, "a payload that breaks the rules"),
                }
            }
            MessageType::Goodbye => self.on_goodbye(now, envelope),
            // impl: OSW-4.5-4
            MessageType::Ping => {
                let ids = Correlation::from(envelope);
                let head = Head::new(MessageType::Pong).correlation(&ids);
                let head = head.in_reply_to(Some(&envelope.id));
                self.transmit(now, &head, &RawObject::empty());
            }
            MessageType::CoreError => self.reject(invalid, "the core reports an error"),
            MessageType::Welcome => self.reject(invalid, "a second welcome"),
            MessageType::Other(_) if kind.sender() != Some(Side::Agent) => {
                self.on_unknown(now, envelope);
            }
            // impl: OSW-4-1
            _ => self.reject(invalid, "a message that only an agent sends"),
        }
    }

    fn on_call(&mut self, now: Now, about: About, actor: Option<Actor>, call: ToolCall) {
        let call_id = CallId::from(call.call_id.as_str());
        if self.calls.contains_key(&call_id) {
            let code = ErrorCode::InvalidMessage;
            return self.answer_error(now, &about, code, "this call is running");
        }
        let bytes = held(&about, actor.as_ref(), &call);
        if let Some(error) = self.refusal(&call, bytes) {
            return self.send_result(now, &call.call_id, &about, Err(error));
        }
        let key = call.idempotency_key.as_deref();
        let key = key.map(|key| Key::new(call.caller.as_ref(), &call.tool_id, key));
        let turn = key
            .as_ref()
            .map(|key| self.memory.turn(key, &call.input, &call_id));
        let follows = matches!(turn, Some(Turn::Join));
        let ended = match turn {
            None | Some(Turn::Run | Turn::Join) => None,
            Some(Turn::Repeat(result)) if self.has_room_for(&result) => Some(result),
            Some(Turn::Repeat(_)) => Some(Err(too_many_copies())),
            Some(Turn::Conflict) => Some(Err(conflict().noticed_by(COMPONENT))),
            Some(Turn::Full) => {
                let message = "too many calls with one idempotency key";
                let error = ErrorObject::of(ErrorCode::ToolBusy, message);
                Some(Err(error.noticed_by(COMPONENT)))
            }
        };
        if let Some(result) = ended {
            return self.send_result(now, &call.call_id, &about, result);
        }
        let ids = about.ids.clone();
        self.held_bytes += bytes;
        let entry = OpenCall::new(
            about,
            bytes,
            call.timeout_ms.map(Duration::from_millis),
            key,
            follows,
        );
        if let Some(at) = entry.timeout() {
            self.common.timers.set(Timer::Call(call_id.clone()), at);
        }
        self.calls.insert(call_id.clone(), entry);
        trace!(call = %call_id, tool = %call.tool_id, bytes = call.input.as_str().len(), follows, "call taken");
        if !follows {
            self.common.out.push(Output::Call(Box::new(IncomingCall {
                call_id,
                call,
                actor,
                ids,
            })));
        }
    }

    /// Why a call is refused before its tool runs.
    // impl: OSW-2-6, OSW-2-7, OSW-4.3-4
    fn refusal(&self, call: &ToolCall, held: usize) -> Option<ErrorObject> {
        let limits = &self.config.limits;
        let bytes = call.input.as_str().len();
        let tool = self.tools.get(call.tool_id.as_str());
        let refusal = if self.common.phase != Phase::Open {
            Some((ErrorCode::AgentDisconnected, "the agent is closing"))
        } else if tool.is_none() {
            Some((ErrorCode::ToolNotFound, "no such tool"))
        } else if bytes > limits.max_tool_input_bytes {
            Some((ErrorCode::ToolInvalidInput, "the input is too large"))
        } else if self.calls.len() >= limits.max_inflight_requests {
            Some((ErrorCode::ToolBusy, "too many calls at once"))
        } else if self.held_bytes.saturating_add(held) > limits.max_inflight_bytes {
            Some((ErrorCode::ToolBusy, "the calls that run hold too much"))
        } else {
            None
        };
        let refusal = refusal.map(|(code, message)| ErrorObject::of(code, message));
        let checked = tool.filter(|_| !self.config.tools_check_inputs);
        let refusal = refusal.or_else(|| checked.and_then(|tool| tool.refusal(&call.input)));
        refusal.map(|error| error.noticed_by(COMPONENT))
    }

    /// A call that breaks the rules still gets its result, if it says which call it is.
    // impl: OSW-4.3-1
    fn on_bad_call(&mut self, now: Now, envelope: &Envelope<'_>, error: &DecodeError) {
        self.reject(ErrorCode::InvalidMessage, "a call that breaks the rules");
        let payload = envelope.payload.as_raw();
        let mut reader = Reader::of_raw(payload, &self.config.limits.json, Profile::Strict);
        let about_call = AboutCall::read(&mut reader).ok().and_then(|found| found.0);
        let runs = |id: &str| self.calls.contains_key(&CallId::from(id));
        let Some(call_id) = about_call.filter(|id| !runs(id)) else {
            return;
        };
        let of_input = |report: &Report| report.iter().all(|f| f.pointer == "/payload/input");
        let code = match error {
            DecodeError::Invalid(report) if of_input(report) => ErrorCode::ToolInvalidInput,
            _ => ErrorCode::InvalidMessage,
        };
        let error = ErrorObject::of(code, "the call breaks the rules").noticed_by(COMPONENT);
        self.send_result(now, &call_id, &about(now, envelope), Err(error));
    }

    // impl: OSW-4.4-1, OSW-4.4-2
    fn on_cancel(&mut self, now: Now, envelope: &Envelope<'_>, cancel: &ToolCancel) {
        let id = CallId::from(cancel.call_id.as_str());
        let live = self.calls.get(&id).filter(|call| !call.has_ended());
        let (ids, id) = match live {
            Some(call) => (call.about.ids.clone(), Some(id)),
            None => (Correlation::from(envelope), None),
        };
        let ack = CancelAck::new(cancel.call_id.clone(), id.is_some());
        let head = Head::new(MessageType::CancelAck).correlation(&ids);
        let head = head.in_reply_to(Some(&envelope.id));
        self.transmit(now, &head, &ack);
        let Some(id) = id else { return };
        if let Some(span) = cancel.deadline_ms {
            let at = now.mono.saturating_add(Duration::from_millis(span));
            self.common.timers.set_earlier(Timer::Call(id.clone()), at);
        }
        self.stop(now, &id);
        self.close_if_drained();
    }

    // impl: OSW-4.2-3
    fn on_registered(&mut self, reply: Registered) {
        for rejected in reply.rejected.iter().flatten() {
            // A name that was taken is still that of the tool that has it.
            if rejected.error.code != ErrorCode::ToolConflict {
                self.tools.remove(rejected.tool_id.as_str());
            }
        }
        self.event(Event::Registered(reply));
    }

    fn on_goodbye(&mut self, now: Now, envelope: &Envelope<'_>) {
        // A goodbye that breaks the rules is one all the same.
        let goodbye = envelope.payload::<Goodbye>(&self.config.limits.json);
        let goodbye = goodbye.map_or_else(|_| Goodbye::new(String::new()), |(payload, _)| payload);
        self.event(Event::Goodbye {
            reason: goodbye.reason,
            retry_after: goodbye.retry_after_ms.map(Duration::from_millis),
        });
        if self.common.phase == Phase::Open {
            self.drain(now, CloseReason::Goodbye);
        }
    }

    // impl: OSW-3-7
    fn on_unknown(&mut self, now: Now, envelope: &Envelope<'_>) {
        let live = |id: &str| {
            let mut calls = self.calls.values();
            calls.any(|call| call.about.ids.request_id.as_deref() == Some(id))
        };
        let request = envelope.request_id.as_deref();
        let wants_answer = envelope.in_reply_to.is_none()
            && envelope.error.is_none()
            && request.is_some_and(|id| !live(id));
        let code = ErrorCode::UnknownType;
        if wants_answer {
            let about = about(now, envelope);
            self.answer_error(now, &about, code, "a message of an unknown type");
        } else {
            self.reject(code, "a message of an unknown type");
        }
    }

    fn answer_error(&mut self, now: Now, about: &About, code: ErrorCode, rule: &'static str) {
        let error = ErrorObject::of(code.clone(), rule).noticed_by(COMPONENT);
        let head = Head::new(MessageType::AgentError).in_reply_to(Some(&about.message_id));
        let head = head.correlation(&about.ids).error(&error);
        self.transmit(now, &head, &RawObject::empty());
        self.reject(code, rule);
    }
}

fn about<P>(now: Now, envelope: &Envelope<'_, P>) -> About {
    About {
        ids: Correlation::from(envelope),
        message_id: ShortText::from(&*envelope.id),
        arrived: now,
    }
}

/// The bytes that a call holds until its tool is done with it.
fn held(about: &About, actor: Option<&Actor>, call: &ToolCall) -> usize {
    /// Where the id of a call stands beside the call: its entry, its timer, what is remembered, and the tables of a driver.
    const IDS: usize = 6;
    let ids = IDS * call.call_id.len() + about.ids.weight() + about.message_id.len();
    let actor = actor.map_or(0, Actor::weight);
    // What is remembered has its key twice, and the input once more.
    let key = call.idempotency_key.as_ref();
    let remembered = key.map_or(0, |key| 2 * key.len() + call.input.as_str().len());
    call.weight() + ids + actor + remembered
}

/// Who notices the errors of an agent's connection.
const COMPONENT: &str = "agent.runtime";

#[cfg(test)]
mod tests {
    use ubos_common::time::{Mono, Timestamp};

    use super::*;
    use crate::message::ActorType;

    #[test]
    fn a_call_holds_its_ids_its_caller_and_what_is_remembered() {
        let about = |message_id: &str| About {
            ids: Correlation::default(),
            message_id: message_id.into(),
            arrived: Now::new(Mono::ZERO, Timestamp::EPOCH),
        };
        let call = |id: &str| ToolCall::new(id.to_owned(), "a/t".to_owned(), RawObject::empty());
        let of = |id: &str, message_id: &str, actor: Option<&Actor>| {
            held(&about(message_id), actor, &call(id))
        };
        let least = of("c", "m", None);
        assert_eq!(of("ccc", "m", None), least + 2 * (1 + 6));
        assert_eq!(of("c", "mmm", None), least + 2);
        let mut asked = about("m");
        asked.ids.request_id = Some("r".into());
        asked.ids.correlation_id = Some("co".into());
        asked.ids.causation_id = Some("cau".into());
        assert_eq!(held(&asked, None, &call("c")), least + 1 + 2 + 3);
        let actor = Actor::new(ActorType::Human, "ada".to_owned());
        assert_eq!(of("c", "m", Some(&actor)), least + actor.weight());
        assert!(actor.weight() >= 5 + 3);
        let mut keyed = call("c");
        keyed.idempotency_key = Some("key".to_owned());
        // Beside the call itself twice, and the input.
        let remembered = 3 + 2 * 3 + keyed.input.as_str().len();
        assert_eq!(held(&about("m"), None, &keyed), least + remembered);
    }
}
