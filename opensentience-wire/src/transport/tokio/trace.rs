//! Spans, audit records and counters for `tracing`: ids and sizes, nothing of a payload. Without the feature they are nothing.

#[cfg(feature = "tracing")]
mod on {
    use core::future::Future;

    use tracing::field::{Empty, display};
    use tracing::{Instrument as _, Span, debug, error, info, info_span, warn};

    use crate::audit::{AuditEvent, Severity};
    use crate::role::agent::IncomingCall;
    use crate::role::core::{CoreConnection, Outcome};
    use crate::role::{CallId, CloseReason};

    /// Somebody panicked who is told of records or events.
    pub(crate) fn sink_panicked() {
        error!("an audit sink or an observer panicked");
    }

    /// A connection until it is decided whether it is one.
    pub(crate) fn handshake() -> Span {
        info_span!("protocol.handshake", open = Empty)
    }

    /// Whether the agent was taken in.
    pub(crate) fn decided(span: &Span, open: bool) {
        span.record("open", open);
    }

    /// A call at the core, from when it was taken to its end: only then is it known that the session token is not in its ids.
    pub(crate) fn call(core: &CoreConnection, id: &CallId) -> Span {
        let span = info_span!(
            "tool_router.call",
            tool_id = Empty,
            call_id = %id,
            request_id = Empty,
            correlation_id = Empty,
            causation_id = Empty,
            status = Empty,
            code = Empty,
        );
        if let Some((tool, ids)) = core.call_ids(id) {
            span.record("tool_id", display(tool));
            record_ids(
                &span,
                [ids.request_id, ids.correlation_id, ids.causation_id],
            );
        }
        let (waiting, bound) = (core.pending_calls(), core.max_calls());
        debug!(target: "osw::queue", name = "calls", waiting, bound, "a call was taken");
        span
    }

    fn record_ids(span: &Span, ids: [Option<&str>; 3]) {
        let names = ["request_id", "correlation_id", "causation_id"];
        for (name, id) in names.into_iter().zip(ids) {
            if let Some(id) = id {
                span.record(name, display(id));
            }
        }
    }

    /// How a call ended.
    pub(crate) fn ended(span: &Span, outcome: &Outcome) {
        span.record("status", display(&outcome.status));
        if let Some(error) = &outcome.error {
            span.record("code", display(error.code.recorded()));
        }
    }

    /// A call at the agent.
    pub(crate) fn execute(call: &IncomingCall) -> Span {
        let span = info_span!(
            "tool.execute",
            tool_id = %call.call.tool_id,
            call_id = %call.call_id,
            request_id = Empty,
            correlation_id = Empty,
            causation_id = Empty,
        );
        let ids = &call.ids;
        record_ids(
            &span,
            [&ids.request_id, &ids.correlation_id, &ids.causation_id].map(Option::as_deref),
        );
        span
    }

    /// How many tools run.
    pub(crate) fn running(count: usize) {
        debug!(target: "osw::queue", name = "tools", count, "a tool waits");
    }

    /// A connection that has ended, with what still waited.
    pub(crate) fn closed(reason: &CloseReason, calls: usize) {
        info!(target: "osw::connection", ?reason, calls, "a connection has ended");
    }

    /// Whether anybody takes what the audit says of calls, at the moment.
    pub(crate) fn hears_of_calls() -> bool {
        tracing::enabled!(target: "osw::audit", tracing::Level::DEBUG)
    }

    /// A record of the audit.
    pub(crate) fn audit(event: &AuditEvent) {
        let name = &event.name;
        let (agent, code) = (event.agent_id.as_deref(), event.code.as_ref().map(display));
        let detail = event.detail.as_deref();
        let (call, correlation) = (event.call_id.as_deref(), event.correlation_id.as_deref());
        match event.severity {
            Severity::Info => {
                debug!(target: "osw::audit", %name, agent, call, correlation, code, detail);
            }
            Severity::Warn => {
                warn!(target: "osw::audit", %name, agent, call, correlation, code, detail);
            }
            _ => {
                error!(target: "osw::audit", %name, agent, call, correlation, code, detail);
            }
        }
    }

    pub(crate) fn inside<T>(span: &Span, work: impl FnOnce() -> T) -> T {
        span.in_scope(work)
    }

    pub(crate) fn within<F: Future>(span: Span, future: F) -> impl Future<Output = F::Output> {
        future.instrument(span)
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use core::future::Future;

    use crate::audit::AuditEvent;
    use crate::role::agent::IncomingCall;
    use crate::role::core::{CoreConnection, Outcome};
    use crate::role::{CallId, CloseReason};

    #[derive(Clone)]
    pub(crate) struct Span;

    pub(crate) const fn sink_panicked() {}

    pub(crate) const fn handshake() -> Span {
        Span
    }

    pub(crate) const fn decided(_: &Span, _: bool) {}

    pub(crate) const fn call(_: &CoreConnection, _: &CallId) -> Span {
        Span
    }

    pub(crate) const fn ended(_: &Span, _: &Outcome) {}

    pub(crate) const fn execute(_: &IncomingCall) -> Span {
        Span
    }

    pub(crate) const fn running(_: usize) {}

    pub(crate) const fn closed(_: &CloseReason, _: usize) {}

    pub(crate) const fn hears_of_calls() -> bool {
        false
    }

    pub(crate) const fn audit(_: &AuditEvent) {}

    pub(crate) fn inside<T>(_: &Span, work: impl FnOnce() -> T) -> T {
        work()
    }

    // No function that waits: it would hold the future twice.
    pub(crate) fn within<F: Future>(_: Span, future: F) -> F {
        future
    }
}

#[cfg(not(feature = "tracing"))]
pub(super) use off::*;
#[cfg(feature = "tracing")]
pub(super) use on::*;
#[cfg(feature = "tracing")]
pub(super) use tracing::Span;
