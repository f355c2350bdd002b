//! Spans and counters, without payloads, client ids and tokens. Without the feature
//! `tracing` they are nothing.

#[cfg(feature = "tracing")]
mod on {
    use tracing::debug;
    #[cfg(feature = "client")]
    use tracing::{Instrument as _, Span, field::Empty, info_span};

    #[cfg(feature = "client")]
    use crate::{capability::Skill, id::SessionId};
    use crate::{id::StreamId, role::Rpc, status::Code};

    /// One session at an agent.
    #[cfg(feature = "client")]
    pub(crate) fn session(session: &SessionId, skill: &Skill) -> Span {
        info_span!("hub.session", session_id = %session, %skill, state = Empty)
    }

    /// The result of a session.
    #[cfg(feature = "client")]
    pub(crate) fn finished(span: &Span, state: Option<crate::state::State>) {
        if let Some(state) = state {
            span.record("state", tracing::field::debug(state));
        }
    }

    #[cfg(feature = "client")]
    pub(crate) fn within<F: Future>(span: Span, future: F) -> impl Future<Output = F::Output> {
        future.instrument(span)
    }

    /// A call was opened.
    pub(crate) fn opened(side: &'static str, rpc: Rpc, stream: StreamId) {
        debug!(target: "uap_hub::call", side, ?rpc, stream = stream.0, "opened");
    }

    /// A call ended.
    pub(crate) fn ended(side: &'static str, stream: StreamId, code: Code) {
        debug!(target: "uap_hub::call", side, stream = stream.0, ?code, "ended");
    }

    /// The length of a queue, and its limit.
    #[cfg(feature = "client")]
    pub(crate) fn queue(name: &'static str, waiting: usize, bound: usize) {
        debug!(target: "uap_hub::queue", name, waiting, bound, "a queue has grown");
    }

    /// The last reported counts of a hub's jobs.
    #[cfg(feature = "server")]
    #[derive(Debug)]
    pub(crate) struct Jobs {
        counted: (usize, usize),
        bound: usize,
    }

    #[cfg(feature = "server")]
    impl Jobs {
        pub(crate) fn new(bound: usize) -> Self {
            let counted = (0, 0);
            Self { counted, bound }
        }

        /// Reports changed counts of waiting and running jobs, and their limit.
        pub(crate) fn count(&mut self, hub: &crate::role::hub::Hub) {
            let counts = hub.view().counts();
            let waiting = counts.waiting_jobs;
            let counted = (waiting, counts.jobs.saturating_sub(waiting));
            if counted != self.counted {
                self.counted = counted;
                let (running, bound) = (counted.1, self.bound);
                debug!(target: "uap_hub::queue", name = "jobs", waiting, running, bound, "jobs came or went");
            }
        }
    }

    /// The agent looks for its hub.
    #[cfg(feature = "client")]
    pub(crate) fn agent(event: &crate::role::agent::Event) {
        use crate::role::agent::Event;
        match event {
            Event::Listening { .. } => debug!(target: "uap_hub::agent", "listening"),
            Event::Retrying { after, reason } => {
                debug!(target: "uap_hub::agent", ?after, %reason, "retrying");
            }
            Event::Refused { session, reason } => {
                debug!(target: "uap_hub::agent", session_id = %session, reason, "refused");
            }
            Event::SessionCut { session, reason } => {
                debug!(target: "uap_hub::agent", session_id = %session, %reason, "cut");
            }
            Event::SessionResumed { session } => {
                debug!(target: "uap_hub::agent", session_id = %session, "resumed");
            }
            Event::SessionOver { session, .. } => {
                debug!(target: "uap_hub::agent", session_id = %session, "over");
            }
            Event::Closed => debug!(target: "uap_hub::agent", "closed"),
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use crate::{id::StreamId, role::Rpc, status::Code};

    #[cfg(feature = "client")]
    #[derive(Clone)]
    pub(crate) struct Span;

    #[cfg(feature = "client")]
    pub(crate) fn session(_: &crate::id::SessionId, _: &crate::capability::Skill) -> Span {
        Span
    }

    #[cfg(feature = "client")]
    pub(crate) fn finished(_: &Span, _: Option<crate::state::State>) {}

    #[cfg(feature = "client")]
    // No function that waits: it would hold the future twice.
    pub(crate) fn within<F: Future>(_: Span, future: F) -> F {
        future
    }

    pub(crate) fn opened(_: &'static str, _: Rpc, _: StreamId) {}

    pub(crate) fn ended(_: &'static str, _: StreamId, _: Code) {}

    #[cfg(feature = "client")]
    pub(crate) fn queue(_: &'static str, _: usize, _: usize) {}

    #[cfg(feature = "server")]
    #[derive(Debug)]
    pub(crate) struct Jobs;

    #[cfg(feature = "server")]
    impl Jobs {
        pub(crate) const fn new(_: usize) -> Self {
            Self
        }

        pub(crate) const fn count(&mut self, _: &crate::role::hub::Hub) {}
    }

    #[cfg(feature = "client")]
    pub(crate) fn agent(_: &crate::role::agent::Event) {}
}

#[cfg(not(feature = "tracing"))]
pub(crate) use off::*;
#[cfg(feature = "tracing")]
pub(crate) use on::*;

#[cfg(test)]
#[cfg(all(feature = "client", feature = "tracing"))]
mod tests {
    use std::time::Duration;

    use ubos_common::testing::Traces;

    use super::*;
    use crate::role::agent::Event;

    #[test]
    fn every_event_of_an_agent_is_traced_without_its_client_id() {
        let (session, reason) = (|| "JOB-1".into(), || "why".to_owned());
        let after = Duration::from_secs(7);
        let events = [
            (
                Event::Listening {
                    client_id: "secret".into(),
                },
                "message=listening",
            ),
            (
                Event::Retrying {
                    after,
                    reason: reason(),
                },
                "message=retrying\nafter=7s\nreason=why",
            ),
            (
                Event::Refused {
                    session: session(),
                    reason: "full",
                },
                "message=refused\nsession_id=JOB-1\nreason=\"full\"",
            ),
            (
                Event::SessionCut {
                    session: session(),
                    reason: reason(),
                },
                "message=cut\nsession_id=JOB-1\nreason=why",
            ),
            (
                Event::SessionResumed { session: session() },
                "message=resumed\nsession_id=JOB-1",
            ),
            (
                Event::SessionOver {
                    session: session(),
                    status: None,
                },
                "message=over\nsession_id=JOB-1",
            ),
            (Event::Closed, "message=closed"),
        ];
        for (event, wanted) in events {
            let traces = Traces::of("uap_hub::agent");
            agent(&event);
            assert_eq!(traces.text(), wanted);
        }
    }
}
