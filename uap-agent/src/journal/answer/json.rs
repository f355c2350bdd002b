//! The JSON of answers, read strictly.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::{DecodeError, Limits, RawBuf, RawObject, Write, to_string};
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::violation::{Level, Report, Violation};
use upp::{CycleUsage, ErrorCode, LlmResponse, Message, ToolExecution, Turn, UppError};

use super::result::EffectResult;
use crate::engine::EffectId;
use crate::hooks::HookAnswer;
use crate::middleware::MiddlewareContext;
use crate::result::GenerateResult;
use crate::state::{AgentState, StateError, SubagentExecutionTrace};

ubos_common::wire! {
    /// An answer: exactly one of its kinds.
    pub(in crate::journal) struct AnswerJson {
        /// The effect; an abort has none.
        nullable id: u64 = "id", "UAP-12-5";
        /// The response of the model.
        nullable model: ResponseJson = "model", "UAP-12-5";
        /// The model's failure.
        nullable failed: ErrorJson = "failed", "UAP-12-5";
        /// The model's stream ended without a response.
        nullable silent: bool = "silent", "UAP-12-5";
        /// Whether a part of the response was received before the failure.
        nullable heard: bool = "heard", "UAP-12-5";
        /// The request was not sent.
        nullable stopped: bool = "stopped", "UAP-12-5";
        /// The execution of a tool.
        nullable tool: ToolExecution = "tool", "UAP-12-5";
        /// The traces of sub-agents that the tool ran.
        nullable traces: Vec<SubagentExecutionTrace> = "traces", "UAP-12-5";
        /// The wait is over.
        nullable slept: bool = "slept", "UAP-12-5";
        /// The outcome of a hook.
        nullable hook: HookJson = "hook", "UAP-12-5";
        /// A save is done.
        nullable saved: bool = "saved", "UAP-12-5";
        /// Why a save failed.
        nullable unsaved: Box<str> = "unsaved", "UAP-12-5";
        /// The caller aborted the run.
        nullable abort: bool = "abort", "UAP-12-5";
        /// The time of the run was over.
        nullable expired: bool = "expired", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// A response of the model.
    pub(in crate::journal) struct ResponseJson {
        /// The assistant's message.
        required message: Message = "message", "UAP-12-5";
        /// Token counts.
        required usage: CycleUsage = "usage", "UAP-12-5";
        /// The vendor's stop reason.
        required stop_reason: Box<str> = "stopReason", "UAP-12-5";
        /// Structured output.
        nullable data: RawBuf = "data", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// An error: the members that `upp` writes, and the vendor's requested wait.
    pub(in crate::journal) struct ErrorJson {
        /// The message.
        required message: Box<str> = "message", "UAP-12-5";
        /// The code.
        required code: ErrorCode = "code", "UAP-12-5";
        /// The provider.
        required provider: Arc<str> = "provider", "UAP-12-5";
        /// The HTTP status.
        nullable status_code: u16 = "statusCode", "UAP-12-5";
        /// The text of the cause.
        nullable cause: Box<str> = "cause", "UAP-12-5";
        /// Milliseconds.
        nullable retry_after_ms: u64 = "retryAfterMs", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// The outcome of a hook: exactly one of these.
    pub(in crate::journal) struct HookJson {
        /// The hook has returned, and has no other outcome.
        nullable told: bool = "told", "UAP-12-5";
        /// Whether the run stops.
        nullable stop: bool = "stop", "UAP-12-5";
        /// If and when a request is sent.
        nullable ask: AskJson = "ask", "UAP-12-5";
        /// The result with which an error hook recovers.
        nullable recovered: ResultJson = "recovered", "UAP-12-5";
        /// A layer of middleware.
        nullable layer: LayerJson = "layer", "UAP-12-5";
        /// The hook failed.
        nullable error: ErrorJson = "error", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// If and when a request is sent.
    pub(in crate::journal) struct AskJson {
        /// Nanoseconds; absent where the request is not sent again.
        nullable wait: u64 = "wait", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// The outcome of a layer of middleware.
    pub(in crate::journal) struct LayerJson {
        /// The context after the layer.
        required context: ContextJson = "context", "UAP-12-5";
        /// The returned result.
        nullable result: ResultJson = "result", "UAP-12-5";
        /// The error.
        nullable error: ErrorJson = "error", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// A middleware's context, without the members that the engine sets for each layer.
    pub(in crate::journal) struct ContextJson {
        /// The agent's id.
        required agent_id: Arc<str> = "agentId", "UAP-12-5";
        /// The system prompt.
        nullable system: Arc<str> = "system", "UAP-12-5";
        /// The input.
        required input: Message = "input", "UAP-12-5";
        /// The state, without the input.
        required state: RawObject = "state", "UAP-12-5";
        /// The data that layers share.
        required metadata: BTreeMap<String, RawBuf> = "metadata", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// A result.
    pub(in crate::journal) struct ResultJson {
        /// The turn.
        required turn: Turn = "turn", "UAP-12-5";
        /// The state after the run.
        required state: RawObject = "state", "UAP-12-5";
    }
}

impl AnswerJson {
    /// Reads the answer. Pointers in findings are relative to the answer.
    pub(in crate::journal) fn read(
        self,
        limits: &Limits,
    ) -> Result<(Option<EffectId>, EffectResult), DecodeError> {
        let mut findings = Findings::new(limits);
        let said = self.said(&mut findings);
        let is_abort = matches!(said, Some(EffectResult::Abort | EffectResult::Expired));
        if said.is_some() && is_abort == self.id.is_some() {
            findings.refuse(
                "/id",
                "an answer to an effect, or an abort without one, wanted",
            );
        }
        match said {
            Some(said) if findings.report.is_valid() => Ok((self.id, said)),
            _ => Err(DecodeError::Invalid(findings.report)),
        }
    }

    fn said(&self, findings: &mut Findings<'_>) -> Option<EffectResult> {
        let was_heard = self.heard == Some(true);
        let yes = |told: Option<bool>, said| told.filter(|told| *told).map(|_| said);
        let kinds = [
            self.model.as_ref().and_then(|model| model.said(findings)),
            self.failed
                .as_ref()
                .map(|error| EffectResult::Failed(error.error(), was_heard)),
            yes(self.silent, EffectResult::NoResponse(was_heard)),
            yes(self.slept, EffectResult::Slept),
            yes(self.stopped, EffectResult::Stopped),
            self.tool
                .clone()
                .map(|tool| EffectResult::Tool(tool, self.traces.clone().unwrap_or_default())),
            self.hook.as_ref().and_then(|hook| hook.said(findings)),
            yes(self.saved, EffectResult::Saved),
            self.unsaved.clone().map(EffectResult::SaveFailed),
            yes(self.abort, EffectResult::Abort),
            yes(self.expired, EffectResult::Expired),
        ];
        one_of(kinds, "", findings)
    }
}

impl ResponseJson {
    pub(super) fn of(response: &LlmResponse) -> Self {
        let message = Message::Assistant(Arc::clone(&response.message));
        let stop_reason = response.stop_reason.clone();
        let mut json = Self::new(message, response.usage.clone(), stop_reason);
        json.data.clone_from(&response.data);
        json
    }

    fn said(&self, findings: &mut Findings<'_>) -> Option<EffectResult> {
        let Message::Assistant(message) = &self.message else {
            findings.refuse("/model/message/type", "an assistant's message wanted");
            return None;
        };
        let stop_reason = self.stop_reason.clone();
        let mut response = LlmResponse::new(Arc::clone(message), self.usage.clone(), stop_reason);
        response.data.clone_from(&self.data);
        Some(EffectResult::Response(Box::new(response)))
    }
}

/// The cause of a recorded error, as text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct CauseText(Box<str>);

impl ErrorJson {
    pub(in crate::journal) fn of(error: &UppError) -> Self {
        let (message, provider) = (error.message.clone(), Arc::clone(&error.provider));
        let mut json = Self::new(message, error.code.clone(), provider);
        json.status_code = error.status_code;
        json.cause = error.cause.as_ref().map(|cause| cause.to_string().into());
        let wait = error.retry_after.map(|wait| wait.as_millis());
        json.retry_after_ms = wait.map(|wait| u64::try_from(wait).unwrap_or(u64::MAX));
        json
    }

    fn error(&self) -> UppError {
        let (message, provider) = (self.message.clone(), Arc::clone(&self.provider));
        let mut error = UppError::new(self.code.clone(), provider, message);
        error.status_code = self.status_code;
        error.retry_after = self.retry_after_ms.map(Duration::from_millis);
        match &self.cause {
            Some(cause) => error.with_cause(CauseText(cause.clone())),
            None => error,
        }
    }
}

impl HookJson {
    pub(super) fn of(answer: &HookAnswer) -> Self {
        let mut json = Self::new();
        match answer {
            HookAnswer::Done => json.told = Some(true),
            HookAnswer::Stop(stop) => json.stop = Some(*stop),
            HookAnswer::Ask(wait) => {
                let mut ask = AskJson::new();
                let nanos = |wait: &Duration| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
                ask.wait = wait.as_ref().map(nanos);
                json.ask = Some(ask);
            }
            HookAnswer::Recovered(result) => json.recovered = Some(ResultJson::of(result)),
            HookAnswer::Layer(context, came_to) => {
                let mut layer = LayerJson::new(ContextJson::of(context));
                match came_to {
                    Ok(result) => layer.result = result.as_deref().map(ResultJson::of),
                    Err(error) => layer.error = Some(ErrorJson::of(error)),
                }
                json.layer = Some(layer);
            }
        }
        json
    }

    fn said(&self, findings: &mut Findings<'_>) -> Option<EffectResult> {
        let recovered = |json: &ResultJson, findings: &mut Findings<'_>| {
            let result = json.result("/hook/recovered", findings)?;
            Some(EffectResult::Hook(HookAnswer::Recovered(Box::new(result))))
        };
        let kinds = [
            self.told
                .filter(|told| *told)
                .map(|_| EffectResult::Hook(HookAnswer::Done)),
            self.stop
                .map(|stop| EffectResult::Hook(HookAnswer::Stop(stop))),
            self.ask
                .as_ref()
                .map(|ask| EffectResult::Hook(HookAnswer::Ask(ask.wait.map(Duration::from_nanos)))),
            self.recovered
                .as_ref()
                .and_then(|json| recovered(json, findings)),
            self.layer.as_ref().and_then(|layer| layer.said(findings)),
            self.error
                .as_ref()
                .map(|error| EffectResult::HookFailed(error.error())),
        ];
        one_of(kinds, "/hook", findings)
    }
}

impl LayerJson {
    fn said(&self, findings: &mut Findings<'_>) -> Option<EffectResult> {
        let context = self.context.context("/hook/layer/context", findings);
        let came_to = match (&self.result, &self.error) {
            (Some(_), Some(_)) => {
                findings.refuse("/hook/layer", "a result or an error wanted, not both");
                return None;
            }
            (_, Some(error)) => Err(error.error()),
            (None, None) => Ok(None),
            (Some(result), None) => Ok(Some(Box::new(
                result.result("/hook/layer/result", findings)?,
            ))),
        };
        Some(EffectResult::Hook(HookAnswer::Layer(
            Box::new(context?),
            came_to,
        )))
    }
}

impl ContextJson {
    pub(super) fn of(context: &MiddlewareContext) -> Self {
        let mut json = Self::new(
            Arc::clone(&context.agent_id),
            context.input.clone(),
            object(&context.state),
            context.metadata.clone(),
        );
        json.system.clone_from(&context.system);
        json
    }

    fn context(&self, at: &str, findings: &mut Findings<'_>) -> Option<MiddlewareContext> {
        Some(MiddlewareContext {
            agent_id: Arc::clone(&self.agent_id),
            system: self.system.clone(),
            input: self.input.clone(),
            state: findings.state(&format!("{at}/state"), &self.state)?,
            metadata: self.metadata.clone(),
            now: Now::new(Mono::ZERO, Timestamp::EPOCH),
            ids: IdSource::seeded(0),
        })
    }
}

impl ResultJson {
    pub(in crate::journal) fn of(result: &GenerateResult) -> Self {
        Self::new(result.turn.clone(), object(&result.state))
    }

    fn result(&self, at: &str, findings: &mut Findings<'_>) -> Option<GenerateResult> {
        let state = findings.state(&format!("{at}/state"), &self.state)?;
        Some(GenerateResult::new(self.turn.clone(), state))
    }
}

/// Findings, and the limits that apply while reading.
pub(in crate::journal) struct Findings<'a> {
    pub(in crate::journal) report: Report,
    limits: &'a Limits,
}

impl<'a> Findings<'a> {
    pub(in crate::journal) fn new(limits: &'a Limits) -> Self {
        Self {
            report: Report::default(),
            limits,
        }
    }

    pub(in crate::journal) fn refuse(&mut self, pointer: &str, message: impl Into<String>) {
        let message = message.into();
        let finding = Violation::new(pointer, "journal", "UAP-12-5", Level::Must, message);
        self.report.push(finding);
    }

    pub(in crate::journal) fn state(&mut self, at: &str, raw: &RawObject) -> Option<AgentState> {
        match AgentState::from_json(raw.as_str().as_bytes(), self.limits) {
            Ok(state) => Some(state),
            Err(StateError::Invalid(error)) => {
                self.take(at, error);
                None
            }
            Err(error) => {
                self.refuse(&format!("{at}/version"), error.to_string());
                None
            }
        }
    }

    pub(in crate::journal) fn take(&mut self, at: &str, error: DecodeError) {
        match error {
            DecodeError::Invalid(part) => self.report.extend_under(at, part),
            error => self.refuse(at, error.to_string()),
        }
    }
}

/// The one member that is present.
fn one_of<T, const N: usize>(
    kinds: [Option<T>; N],
    at: &str,
    findings: &mut Findings<'_>,
) -> Option<T> {
    let mut there = kinds.into_iter().flatten();
    let (first, second) = (there.next(), there.next());
    if findings.report.is_valid() && (first.is_none() || second.is_some()) {
        findings.refuse(at, "exactly one kind of answer wanted");
        return None;
    }
    first
}

/// The JSON object that a value writes.
pub(in crate::journal) fn object(value: &impl Write) -> RawObject {
    RawObject::new(RawBuf::assume_sound(to_string(value))).unwrap_or_default()
}
