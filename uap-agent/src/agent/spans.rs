//! Spans by OpenTelemetry's conventions for generative AI: `invoke_agent` around a run, `plan` around a request for a plan.
//!
//! The requests and the tools inside them have those of `upp`. A run has its span from the first effect on that is performed:
//! what is replayed opens none, and neither does a run all of which was recorded.

use futures::stream::StreamExt as _;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, info_span};
use ubos_common::driver::Step;
use upp::otel::names as n;
use upp::{LlmRequest, ModelStream};

use super::parts::AgentParts;
use crate::result::RunResult;

/// The span of a run, once it has performed an effect.
#[derive(Default)]
pub(super) struct RunSpan(Option<Span>);

impl RunSpan {
    /// Performs an effect inside the span.
    pub(super) fn around<T: 'static>(
        &mut self,
        parts: &AgentParts,
        perform: impl FnOnce() -> Step<T>,
    ) -> Step<T> {
        let span = self.0.get_or_insert_with(|| invoke_agent(parts));
        match span.in_scope(perform) {
            Step::Start(id, effect) => Step::start(id, effect.instrument(span.clone())),
            step => step,
        }
    }

    /// Notes how the run has ended.
    pub(super) fn end(&mut self, result: &RunResult) {
        let Some(span) = self.0.take() else { return };
        let turn = match result {
            Ok(result) => Some(&result.turn),
            Err(error) => {
                span.record(n::STATUS, "ERROR");
                span.record(n::ERROR_TYPE, error.error.code.as_str());
                error.turn.as_ref()
            }
        };
        if let Some(turn) = turn {
            span.record(n::USAGE_INPUT, turn.usage.input_tokens);
            span.record(n::USAGE_OUTPUT, turn.usage.output_tokens);
        }
    }
}

fn invoke_agent(parts: &AgentParts) -> Span {
    let model = parts.model.model_id();
    info_span!(
        "invoke_agent",
        { n::SPAN_NAME } = named("invoke_agent", parts),
        { n::SPAN_KIND } = "internal",
        { n::OPERATION } = "invoke_agent",
        { n::PROVIDER } = n::provider(parts.model.provider()),
        { n::REQUEST_MODEL } = model,
        { n::AGENT_NAME } = parts.name.as_deref(),
        { n::CONVERSATION } = parts.session_id.as_deref(),
        { n::USAGE_INPUT } = Empty,
        { n::USAGE_OUTPUT } = Empty,
        { n::STATUS } = Empty,
        { n::ERROR_TYPE } = Empty,
    )
}

/// The response to a request; one for a plan is in a span, which is open until the response is read.
pub(super) fn in_plan(
    parts: &AgentParts,
    request: LlmRequest,
    send: impl FnOnce(LlmRequest) -> ModelStream,
) -> ModelStream {
    if !asks_for_plan(&request) {
        return send(request);
    }
    let span = info_span!(
        "plan",
        { n::SPAN_NAME } = named("plan", parts),
        { n::SPAN_KIND } = "internal",
        { n::OPERATION } = "plan",
        { n::AGENT_NAME } = parts.name.as_deref(),
        { n::STATUS } = Empty,
        { n::ERROR_TYPE } = Empty,
    );
    let stream = span.in_scope(|| send(request));
    let told = move |event: Result<_, upp::UppError>| {
        event.inspect_err(|error| {
            span.record(n::STATUS, "ERROR");
            span.record(n::ERROR_TYPE, error.code.as_str());
        })
    };
    stream.map(told).boxed()
}

ubos_common::wire! {
    /// The mark on a message that a strategy has added.
    struct PhaseMark {
        /// What the request is for.
        nullable phase: String = "phase", "UAP-5-8";
    }
}

fn asks_for_plan(request: &LlmRequest) -> bool {
    let last = request.messages.last();
    let metadata = last.and_then(|last| last.metadata());
    let mark = metadata.and_then(|metadata| metadata.get("uap"));
    mark.is_some_and(|mark| {
        let limits = ubos_common::json::Limits::default();
        let profile = ubos_common::violation::Profile::Strict;
        let read = ubos_common::json::read_raw::<PhaseMark>(mark, &limits, profile);
        read.is_ok_and(|(mark, _)| mark.phase.as_deref() == Some("planning"))
    })
}

fn named(operation: &str, parts: &AgentParts) -> String {
    match &parts.name {
        Some(name) => format!("{operation} {name}"),
        None => operation.to_owned(),
    }
}
