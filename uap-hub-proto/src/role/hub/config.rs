//! The hub's settings and limits.

use std::{sync::Arc, time::Duration};

use super::policy::{Placement, Spread};
use crate::config::ConfigError;

ubos_common::config! {
    /// How a [`Hub`](super::Hub) works; the defaults suit a hub of some thousand agents.
    ///
    /// [`Hub::new`](super::Hub::new) checks the values.
    Config {
        /// Sets how long an agent may take to answer a proposal: 30 s by default.
        with_proposal_timeout: proposal_timeout: Duration = Duration::from_secs(30),
        /// Sets how long an agent may take to open the stream after `SessionReady`: 30 s by default.
        with_open_timeout: open_timeout: Duration = Duration::from_secs(30),
        /// Sets how long an agent may be silent on the stream of a session before its first message: 5 minutes by default.
        /// Beyond it the session is lost and its stream ended with `CANCELLED`.
        with_first_message_timeout: first_message_timeout: Duration = Duration::from_secs(300),
        /// Sets how long a registered agent may take to open `Listen`: 60 s by default.
        with_listen_timeout: listen_timeout: Duration = Duration::from_secs(60),
        /// Sets how long a job may wait for an agent that accepts it: 10 minutes by default.
        with_wait_limit: wait_limit: Duration = Duration::from_secs(600),
        /// Sets how long a job that all agents refused waits before it is offered again: 1 s by default, doubled
        /// in each round up to 60 s.
        with_refusal_pause: refusal_pause: Duration = Duration::from_secs(1),
        /// Sets how long an agent that refused, or did not answer, is offered no more sessions than it has accepted:
        /// 1 s by default. It may have one more each time that this passes, up to `max_sessions_per_agent`.
        with_refusal_cooldown: refusal_cooldown: Duration = Duration::from_secs(1),
        /// Sets how long a result is accepted after a terminal status, and how long a stream is kept after its end:
        /// 5 s by default.
        with_linger: linger: Duration = Duration::from_secs(5),
        /// Sets whether the caller prepares each session ([`Output::Prepare`](super::Output::Prepare)) before the
        /// agent is told that it is ready. Off by default.
        with_prepare: prepare: bool = false,
        /// Sets how often a job may be started: 1 by default, because running a job twice may do harm. Beyond 1 it
        /// waits again when its agent or stream is lost.
        with_max_attempts: max_attempts: u32 = 1,
        /// Sets how long an agent whose `Listen` broke keeps its client id and its sessions: 0 by default, so that it
        /// is gone at once.
        with_resume_grace: resume_grace: Duration = Duration::ZERO,
        /// Sets whether a job that no agent can run is refused, and not queued. An agent that has not listened yet is none. Off
        /// by default.
        with_fail_fast: fail_fast: bool = false,
        /// Sets whether jobs and their ends are stored ([`Output::Store`](super::Output::Store)) before they are
        /// accepted and reported. Off by default.
        with_durable: durable: bool = false,
        /// Sets how many events of one job may be unread ([`Hub::events_read`](super::Hub::events_read)) before its
        /// stream is paused: 256 by default.
        with_max_unread_events: max_unread_events: usize = 256,
        /// Sets how many bytes of such events may be unread, plus one message: 8 MiB by default.
        with_max_unread_bytes: max_unread_bytes: usize = 8 << 20,
        /// Sets how many messages may wait for a control stream to be writable: 256 by default. Beyond it the stream
        /// is ended with `RESOURCE_EXHAUSTED`.
        with_max_unsent: max_unsent: usize = 256,
        /// Sets how many agents may be registered: 10,000 by default. Beyond it `Register` is `RESOURCE_EXHAUSTED`.
        with_max_agents: max_agents: usize = 10_000,
        /// Sets how many registered agents may not have `Listen` open: those that have not opened it yet, and those that are away
        /// and have no session. 1,000 by default. Beyond it the oldest of them goes, so that registrations of strangers lock
        /// nobody out; the oldest goes as well where there are too many agents.
        with_max_pending_agents: max_pending_agents: usize = 1_000,
        /// Sets the bytes of all registrations together, as they are kept: 256 MiB by default. Beyond it `Register` is
        /// `RESOURCE_EXHAUSTED`. Agents that do not have `Listen` open have a quarter of it; then the oldest of them goes.
        with_max_registered_bytes: max_registered_bytes: usize = 256 << 20,
        /// Sets the bytes of all registrations of one peer: 32 MiB by default, an eighth of what all may have. Beyond it the oldest
        /// of the peer's agents that do not have `Listen` open goes; if that makes too little room, `Register` is
        /// `RESOURCE_EXHAUSTED`.
        with_max_registered_bytes_per_peer: max_registered_bytes_per_peer: usize = 32 << 20,
        /// Sets how many agents one peer may have registered: 1,000 by default. Beyond it the oldest of them that does not have
        /// `Listen` open goes; if all have, `Register` is `RESOURCE_EXHAUSTED`. A peer is an identity or, where there is none,
        /// an address ([`Hub::register_as`](super::Hub::register_as)): raise it for a larger fleet behind one address or token.
        with_max_agents_per_peer: max_agents_per_peer: usize = 1_000,
        /// Sets how many registered agents of one peer may not have `Listen` open: 256 by default. Beyond it the oldest of
        /// them goes.
        with_max_pending_agents_per_peer: max_pending_agents_per_peer: usize = 256,
        /// Sets how many jobs may wait and run: 10,000 by default. Beyond it `submit` is refused.
        with_max_jobs: max_jobs: usize = 10_000,
        /// Sets the payload bytes of jobs that wait and run: 256 MiB by default. Beyond it `submit` is refused. They count until
        /// the job ends, for an agent need not read what it is sent.
        with_max_queued_bytes: max_queued_bytes: usize = 256 << 20,
        /// Sets the bytes of one job's init message: 64 MiB by default. Beyond it `submit` is refused.
        with_max_message_bytes: max_message_bytes: usize = 64 << 20,
        /// Sets how many proposals and sessions one agent may have: 16 by default. Beyond it the agent is offered no
        /// more.
        with_max_sessions_per_agent: max_sessions_per_agent: usize = 16,
        /// Sets how many ended sessions are remembered, so that a stream that is opened late is told that its session
        /// has ended, and not that it is unknown: 4,096 by default.
        with_max_remembered: max_remembered: usize = 4096,
    }
    into {
        /// Sets how long a session may send nothing before it counts as stuck and its stream is ended with `CANCELLED`.
        /// No limit by default, because agents may be silent for good reason.
        with_stall_limit: stall_limit: Option<Duration> = None,
    }
    also {
        placement: Arc<dyn Placement> = Arc::new(Spread::default()),
    }
}

impl Config {
    /// Sets which of the capable agents is asked first: [`Spread::LeastLoaded`] by default.
    #[must_use]
    pub fn with_placement(mut self, placement: impl Placement + 'static) -> Self {
        self.placement = Arc::new(placement);
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for (field, time) in [
            ("proposal_timeout", self.proposal_timeout),
            ("open_timeout", self.open_timeout),
            ("first_message_timeout", self.first_message_timeout),
            ("listen_timeout", self.listen_timeout),
            ("wait_limit", self.wait_limit),
            ("refusal_pause", self.refusal_pause),
            ("refusal_cooldown", self.refusal_cooldown),
        ] {
            ConfigError::not_zero(field, time)?;
        }
        if let Some(limit) = self.stall_limit {
            ConfigError::not_zero("stall_limit", limit)?;
        }
        ConfigError::at_least("max_attempts", self.max_attempts, 1)?;
        for (field, most) in [
            ("max_unread_events", self.max_unread_events),
            ("max_unread_bytes", self.max_unread_bytes),
            ("max_unsent", self.max_unsent),
            ("max_agents", self.max_agents),
            ("max_pending_agents", self.max_pending_agents),
            ("max_registered_bytes", self.max_registered_bytes),
            (
                "max_registered_bytes_per_peer",
                self.max_registered_bytes_per_peer,
            ),
            ("max_agents_per_peer", self.max_agents_per_peer),
            (
                "max_pending_agents_per_peer",
                self.max_pending_agents_per_peer,
            ),
            ("max_jobs", self.max_jobs),
            ("max_queued_bytes", self.max_queued_bytes),
            ("max_message_bytes", self.max_message_bytes),
            ("max_sessions_per_agent", self.max_sessions_per_agent),
        ] {
            ConfigError::at_least(field, most, 1)?;
        }
        Ok(())
    }
}
