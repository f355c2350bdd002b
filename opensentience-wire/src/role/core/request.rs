//! A call of a core's application, and how it ended.

use core::time::Duration;

use ubos_common::json::RawObject;
use ubos_common::time::{Mono, Rfc3339};
use ubos_common::trace_context::TraceContext;

use crate::envelope::Ids;
use crate::error::{ErrorCode, ErrorObject};
use crate::ledger::{Charge, Ledger, Share};
use crate::message::{Actor, CallContext, Caller, Status, ToolOutcome};

/// A call that a core's application wants made.
///
/// Spec: OpenSentience 4.3.1
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallRequest {
    /// The tool.
    pub tool_id: String,
    /// Its arguments.
    pub input: RawObject,
    /// How long it may take, the wait for a place counted; absent is without end.
    pub timeout: Option<Duration>,
    /// Calls with one key have one effect; carried to the agent.
    pub idempotency_key: Option<String>,
    /// The caller.
    pub caller: Option<Caller>,
    /// Where.
    pub context: Option<CallContext>,
    /// Who stands behind it; never a reason to permit it.
    pub actor: Option<Actor>,
    /// The chain that it belongs to; a fresh one when absent.
    pub request_id: Option<String>,
    /// The conversation, mission or run that it belongs to. One that is a `traceparent` is a place in a distributed trace
    /// ([`CallRequest::with_trace`]).
    pub correlation_id: Option<String>,
    /// Its immediate cause, such as a directive.
    pub causation_id: Option<String>,
    /// The most bytes of output that a router's quotas let it have.
    pub(crate) max_output_bytes: Option<usize>,
    /// What a router has entered for it.
    pub(crate) charge: Charge,
}

impl CallRequest {
    /// A call without anything optional.
    #[must_use]
    pub fn new(tool_id: impl Into<String>, input: RawObject) -> Self {
        Self {
            tool_id: tool_id.into(),
            input,
            timeout: None,
            idempotency_key: None,
            caller: None,
            context: None,
            actor: None,
            request_id: None,
            correlation_id: None,
            causation_id: None,
            max_output_bytes: None,
            charge: Charge::default(),
        }
    }

    /// Sets how long it may take.
    #[must_use]
    pub const fn with_timeout(mut self, span: Duration) -> Self {
        self.timeout = Some(span);
        self
    }

    /// Sets the place in a distributed trace that the call is made from, as its `correlation_id`: messages have no member of
    /// their own for it, and nothing takes the place's `tracestate`. The agent reads it ([`IncomingCall::trace`]).
    ///
    /// A call that has to keep another correlation id is placed where it leaves the protocol, as by the MCP bridge
    /// (`Bridge::with_trace_of`).
    ///
    /// ```
    /// use opensentience_wire::role::core::CallRequest;
    /// use opensentience_wire::ubos_common::{json::RawObject, trace_context::TraceContext};
    ///
    /// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let place = TraceContext::read(parent, []).ok_or("no place in a trace")?;
    /// let request = CallRequest::new("a.b/weather", RawObject::empty()).with_trace(&place);
    /// assert_eq!(request.correlation_id.as_deref(), Some(parent));
    /// # Ok::<(), &str>(())
    /// ```
    ///
    /// [`IncomingCall::trace`]: crate::role::agent::IncomingCall::trace
    ///
    /// Spec: OpenSentience 3.1
    // choice: OSW-3-2
    #[must_use]
    pub fn with_trace(mut self, place: &TraceContext) -> Self {
        self.correlation_id = Some(place.traceparent());
        self
    }

    /// The bytes that it holds.
    pub(crate) fn weight(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let ids = [
            &self.idempotency_key,
            &self.request_id,
            &self.correlation_id,
            &self.causation_id,
        ];
        self.tool_id.len()
            + self.input.as_str().len()
            + ids.into_iter().map(text).sum::<usize>()
            + self.caller.as_ref().map_or(0, Caller::weight)
            + self.context.as_ref().map_or(0, CallContext::weight)
            + self.actor.as_ref().map_or(0, Actor::weight)
    }
}

/// How a call ended.
///
/// What a machine gives counts against the ledger of its agent until it is dropped; a clone does not.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// How.
    pub status: Status,
    /// What came of it; only where it succeeded.
    pub output: Option<RawObject>,
    /// Why not; always where it did not succeed.
    pub error: Option<ErrorObject>,
    /// When the tool began, by the agent's clock.
    pub started_at: Option<Rfc3339>,
    /// When it ended, by the agent's clock.
    pub finished_at: Option<Rfc3339>,
    /// The tool's figures.
    pub metrics: Option<RawObject>,
    /// From request to end, by this core's clock.
    pub duration: Duration,
    /// Whether the agent sent this end; else the core made it, for a timeout, a cancel or a connection that is gone.
    pub by_agent: bool,
    /// Ends that the core makes hold a sentence, and are entered nowhere.
    pub(crate) charge: Charge,
}

/// Its status, and the output or the error.
impl core::fmt::Display for Outcome {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.status)?;
        if let Some(output) = &self.output {
            write!(f, " {}", output.as_str())?;
        }
        if let Some(error) = &self.error {
            write!(f, " {error}")?;
        }
        Ok(())
    }
}

impl Outcome {
    /// The output, or why there is none.
    ///
    /// # Errors
    ///
    /// The call failed or was canceled.
    pub fn into_result(self) -> Result<RawObject, Box<ErrorObject>> {
        match self.error {
            Some(error) => Err(Box::new(error)),
            None => Ok(self.output.unwrap_or_default()),
        }
    }

    /// The bytes that it holds.
    pub(crate) fn weight(&self) -> usize {
        let raw = |raw: &Option<RawObject>| raw.as_ref().map_or(0, |raw| raw.as_str().len());
        let error = self.error.as_ref().map_or(0, ErrorObject::weight);
        raw(&self.output) + raw(&self.metrics) + error
    }

    /// Enters it among the results of its agent. Where there is no room for it, the call has failed.
    // impl: OSW-2-7
    pub(crate) fn enter(&mut self, ledger: &Ledger) {
        let bytes = RESULT_BYTES + self.weight();
        if let Some(charge) = ledger.take(Share::Results, bytes) {
            self.charge = charge;
            return;
        }
        let message = format!(
            "a result of {bytes} bytes where those that nobody has taken have as many as they may"
        );
        let error = ErrorObject::of(ErrorCode::ToolOutputTooLarge, message);
        *self = Self::failed(error.noticed_by("core.router"));
    }

    pub(crate) fn failed(error: ErrorObject) -> Self {
        Self {
            status: Status::Failed,
            output: None,
            error: Some(error),
            started_at: None,
            finished_at: None,
            metrics: None,
            duration: Duration::ZERO,
            by_agent: false,
            charge: Charge::default(),
        }
    }

    pub(crate) fn canceled(message: &str) -> Self {
        let error = ErrorObject::of(ErrorCode::ToolCanceled, message);
        Self {
            status: Status::Canceled,
            ..Self::failed(error)
        }
    }

    pub(super) fn reported(result: ToolOutcome) -> Self {
        Self {
            status: result.status,
            output: result.output,
            error: result.error,
            started_at: result.started_at,
            finished_at: result.finished_at,
            metrics: result.metrics,
            duration: Duration::ZERO,
            by_agent: true,
            charge: Charge::default(),
        }
    }
}

/// Bytes that a result takes beside its texts.
pub(super) const RESULT_BYTES: usize = 256;

/// A call that has not ended.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) tool_id: String,
    pub(super) ids: CallIds,
    pub(super) caller: Option<Caller>,
    pub(super) asked: Mono,
    /// What is still to be sent; `None` when it was.
    pub(super) waiting: Option<Box<CallRequest>>,
    /// What it keeps: less once it is sent.
    pub(super) charge: Charge,
    pub(super) max_output_bytes: Option<usize>,
    pub(super) canceled: bool,
    /// The agent acknowledged the cancel.
    pub(super) acknowledged: bool,
    /// It has a time of its own: see the timers.
    pub(super) is_timed: bool,
    pub(super) last_seq: u64,
    pub(super) stream_done: bool,
}

/// The ids that a call goes out with.
#[derive(Clone, Debug)]
pub(super) struct CallIds {
    pub(super) request_id: String,
    pub(super) correlation_id: Option<String>,
    pub(super) causation_id: Option<String>,
}

impl<'a> From<&'a CallIds> for Ids<'a> {
    fn from(ids: &'a CallIds) -> Self {
        Self {
            request_id: Some(&ids.request_id),
            correlation_id: ids.correlation_id.as_deref(),
            causation_id: ids.causation_id.as_deref(),
        }
    }
}

/// Bytes that a call takes beside its texts.
const CALL_BYTES: usize = 512;

impl PendingCall {
    /// A call that is asked for, with the other ids of its request, and what was entered for it.
    pub(super) fn of(asked: Mono, request_id: String, request: &mut CallRequest) -> Self {
        Self {
            // The name alone: a declaration that is gone is not kept for its calls.
            tool_id: request.tool_id.clone(),
            ids: CallIds {
                request_id,
                correlation_id: request.correlation_id.take(),
                causation_id: request.causation_id.take(),
            },
            caller: request.caller.clone(),
            asked,
            waiting: None,
            charge: core::mem::take(&mut request.charge),
            max_output_bytes: request.max_output_bytes,
            canceled: false,
            acknowledged: false,
            is_timed: request.timeout.is_some(),
            last_seq: 0,
            stream_done: false,
        }
    }

    /// The bytes that it holds, without what waits.
    pub(super) fn own_bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let ids = [&self.ids.correlation_id, &self.ids.causation_id];
        let caller = self.caller.as_ref().map_or(0, Caller::weight);
        let texts = [&self.tool_id, &self.ids.request_id].map(String::len);
        CALL_BYTES + texts.iter().sum::<usize>() + ids.into_iter().map(text).sum::<usize>() + caller
    }

    pub(super) const fn is_sent(&self) -> bool {
        self.waiting.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn a_call_weighs_its_ids() {
        let mut request = CallRequest::new("a/t", RawObject::empty());
        request.correlation_id = Some("c".repeat(20));
        request.causation_id = Some("c".repeat(300));
        let call = PendingCall::of(Mono::default(), "r".repeat(7), &mut request);
        assert_eq!(call.own_bytes(), CALL_BYTES + 330);
    }

    #[test]
    fn an_outcome_prints_what_it_holds() {
        let failed = Outcome::failed(ErrorObject::of(ErrorCode::ToolFailed, "no luck"));
        assert_eq!(failed.to_string(), "failed tool.failed: no luck");
        let mut good = failed;
        good.status = Status::Succeeded;
        good.error = None;
        good.output = RawObject::parse(r#"{"hits": 3}"#).ok();
        assert_eq!(good.to_string(), r#"succeeded {"hits": 3}"#);
    }
}
