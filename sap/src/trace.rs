//! Spans and counters; nothing of a payload is in them. Without the feature `tracing` they are nothing.

#[cfg(feature = "tracing")]
mod on {
    use core::future::Future;

    use tracing::field::{Empty, display};
    use tracing::{Instrument as _, Span, debug, info_span};

    use crate::ident::CorrelationId;
    use crate::processor::{Answer, ProcessError};
    use crate::task::Task;

    /// One task in a processor.
    pub(crate) fn task(task: &Task) -> Span {
        info_span!(
            "sap.task",
            task_id = %task.task_id,
            correlation_id = %task.correlation_id,
            capability = %task.target.capability,
            status = Empty,
            code = Empty,
            cache_hit = Empty,
        )
    }

    /// What a task came to, and how many run.
    pub(crate) fn ended(span: &Span, answer: &Result<Answer, ProcessError>, running: usize) {
        match answer {
            Ok(Answer::Nack(nack)) => {
                span.record("status", "NACK");
                span.record("code", display(&nack.code));
            }
            Ok(Answer::Result(result)) => {
                span.record("status", display(&result.status));
                if let Some(code) = result.error_code() {
                    span.record("code", display(code));
                }
                let cache = result.constitutional_evidence.cache.as_ref();
                if let Some(hit) = cache.and_then(|cache| cache.hit) {
                    span.record("cache_hit", hit);
                }
            }
            Ok(Answer::Ack(_)) => drop(span.record("status", "ACK")),
            Err(_) => drop(span.record("status", "not written down")),
        }
        span.in_scope(|| debug!(target: "sap::queue", running, "a task has its answer"));
    }

    /// One task on its way.
    pub(crate) fn carry(transport: &'static str, correlation_id: Option<&CorrelationId>) -> Span {
        let span = info_span!("sap.carry", transport, correlation_id = Empty);
        if let Some(id) = correlation_id {
            span.record("correlation_id", display(id));
        }
        span
    }

    /// How many wait somewhere, and how many may.
    pub(crate) fn queue(name: &'static str, waiting: usize, bound: usize) {
        debug!(target: "sap::queue", name, waiting, bound, "a queue has grown");
    }

    pub(crate) fn within<F: Future>(span: Span, future: F) -> impl Future<Output = F::Output> {
        future.instrument(span)
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use core::future::Future;

    use crate::ident::CorrelationId;
    use crate::processor::{Answer, ProcessError};
    use crate::task::Task;

    #[derive(Clone)]
    pub(crate) struct Span;

    pub(crate) const fn task(_: &Task) -> Span {
        Span
    }

    pub(crate) const fn ended(_: &Span, _: &Result<Answer, ProcessError>, _: usize) {}

    pub(crate) const fn carry(_: &'static str, _: Option<&CorrelationId>) -> Span {
        Span
    }

    pub(crate) const fn queue(_: &'static str, _: usize, _: usize) {}

    // No function that waits: it would hold the future twice.
    pub(crate) fn within<F: Future>(_: Span, future: F) -> F {
        future
    }
}

#[cfg(not(feature = "tracing"))]
pub(crate) use off::*;
#[cfg(feature = "tracing")]
pub(crate) use on::*;
