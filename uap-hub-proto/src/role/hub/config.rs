//! The hub's settings and bounds.

use std::{sync::Arc, time::Duration};

use ubos_common::id::IdSource;

use super::policy::{LeastLoaded, Placement};
use crate::role::settings::settings;

settings! {
    /// Settings of a [`Hub`](super::Hub); the defaults suit a hub of some thousand agents.
    Config {
        /// Where ids come from. The default is seeded and only fit for tests: give a hub
        /// `IdSource::from_os()`, because whoever knows a client id can listen in its place.
        ids: IdSource = IdSource::seeded(0),
        /// How long an agent may think about a proposal; 30 s.
        proposal_timeout: Duration = Duration::from_secs(30),
        /// How long an agent that was told `SessionReady` may take to open the stream; 30 s.
        open_timeout: Duration = Duration::from_secs(30),
        /// How long a registered agent may take to open `Listen`; 60 s.
        listen_timeout: Duration = Duration::from_secs(60),
        /// How long a job may wait for an agent that takes it; 10 minutes.
        wait_limit: Duration = Duration::from_secs(600),
        /// How long a job that all agents refused rests before it is offered again; 1 s, doubled each
        /// round up to 60 s.
        refusal_pause: Duration = Duration::from_secs(1),
        /// How long an agent that refused, or did not answer, is offered no more than it has accepted; 1 s.
        /// From then on it may have one more each time that this passes, up to `max_sessions_per_agent`.
        refusal_cooldown: Duration = Duration::from_secs(1),
        /// How long a result is taken after a terminal status, and a stream kept after its end; 5 s.
        linger: Duration = Duration::from_secs(5),
        /// Whether the caller prepares each session ([`Output::Prepare`](super::Output::Prepare)) before
        /// the agent is told that it is ready; no.
        prepare: bool = false,
        /// Which of the agents that can take a job is asked first; [`LeastLoaded`].
        placement: Arc<dyn Placement> = Arc::new(LeastLoaded),
        /// How often a job may be begun: beyond 1 it waits again when its agent or stream is lost. 1, because
        /// running a job twice may do harm.
        max_attempts: u32 = 1,
        /// How long an agent whose `Listen` broke keeps its client id and its sessions; 0, so that it is gone
        /// at once.
        resume_grace: Duration = Duration::ZERO,
        /// How long a session may say nothing before it counts as stuck and its stream is ended `CANCELLED`;
        /// `None`, because agents may be silent for good reason.
        stall_limit: Option<Duration> = None,
        /// Whether a job that no registered agent can run is refused rather than queued; no.
        fail_fast: bool = false,
        /// Whether jobs and their ends are stored ([`Output::Store`](super::Output::Store)) before they are
        /// accepted and told; no.
        durable: bool = false,
        /// News of one job that its reader has not taken ([`Hub::taken`](super::Hub::taken)) before its stream
        /// is not read any more; 256.
        max_unread_events: usize = 256,
        /// Bytes of such news, one message more at most; 8 MiB.
        max_unread_bytes: usize = 8 << 20,
        /// Messages that wait for a control stream to be writable; beyond it the stream is ended
        /// `RESOURCE_EXHAUSTED`. 256.
        max_unsent: usize = 256,
        /// Agents registered at once; beyond it `Register` is `RESOURCE_EXHAUSTED`. 10,000.
        max_agents: usize = 10_000,
        /// Jobs waiting and running at once; beyond it `submit` is refused. 10,000.
        max_jobs: usize = 10_000,
        /// Bytes of payloads of jobs not yet handed to an agent; beyond it `submit` is refused. 256 MiB.
        max_queued_bytes: usize = 256 << 20,
        /// Bytes of one job's init message; beyond it `submit` is refused. 64 MiB.
        max_message_bytes: usize = 64 << 20,
        /// Proposals and sessions of one agent at once; beyond it the agent is offered no more. 16.
        max_sessions_per_agent: usize = 16,
        /// Ended sessions remembered, so that a stream opened late learns that its session is over rather
        /// than unknown. 4,096.
        max_remembered: usize = 4096,
    }
}
