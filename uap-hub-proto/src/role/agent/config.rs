//! The agent's settings and limits.

use std::time::Duration;

use crate::{config::ConfigError, wire::Capability};

ubos_common::config! {
    /// How a [`FleetAgent`](super::FleetAgent) works.
    ///
    /// [`FleetAgent::new`](super::FleetAgent::new) checks the values.
    Config {
        /// Sets how many sessions the agent runs at the same time, accepted ones included: 16 by default. Beyond it
        /// proposals are refused; with 0 all are.
        with_max_sessions: max_sessions: usize = 16,
        /// Sets the first pause before the agent connects again: 1 s by default, doubled each time.
        with_first_retry: first_retry: Duration = Duration::from_secs(1),
        /// Sets the longest pause before the agent connects again: 60 s by default, and no shorter than the first.
        with_longest_retry: longest_retry: Duration = Duration::from_secs(60),
        /// Sets the longest pause before it tries again while a session's call is cut: 5 s by default, because the hub keeps what is
        /// cut for a while only.
        with_longest_cut_retry: longest_cut_retry: Duration = Duration::from_secs(5),
        /// Sets whether pauses are drawn from their upper half, so that the agents of a fleet do not come back at the
        /// same moment. Off by default.
        with_jitter: jitter: bool = false,
        /// Sets whether a control stream that ended is opened again with the same client id, for hubs that keep it for
        /// a while. Accepted sessions are kept over the pause, and running ones go on if the hub resumes sessions: their
        /// handlers are not stopped, and no report is lost or comes twice. The agent registers again with a hub that does
        /// not know the id any more. Off by default.
        with_resume: resume: bool = false,
        /// Sets how long a running session whose call was cut is opened again, if resuming is on: 5 minutes by default. Beyond
        /// it the session is lost. The hub's own grace may be shorter.
        with_resume_limit: resume_limit: Duration = Duration::from_secs(300),
        /// Sets the bytes of a session's reports that the hub has not acknowledged: 16 MiB by default, and one report. They are
        /// kept to be sent again; beyond it the session goes on, but cannot be resumed.
        with_max_unacknowledged_bytes: max_unacknowledged_bytes: usize = 16 << 20,
        /// Sets how long `Register` may take: 10 s by default.
        with_register_timeout: register_timeout: Duration = Duration::from_secs(10),
        /// Sets how long an accepted session waits for `SessionReady`: 5 minutes by default.
        with_ready_timeout: ready_timeout: Duration = Duration::from_secs(300),
        /// Sets how long an opened session waits for its job: 30 s by default.
        with_init_timeout: init_timeout: Duration = Duration::from_secs(30),
        /// Sets how long a call is kept after the half-close: 5 s by default.
        with_linger: linger: Duration = Duration::from_secs(5),
        /// Sets the bytes of one message: 64 MiB by default. Larger reports are refused.
        with_max_message_bytes: max_message_bytes: usize = 64 << 20,
    }
    into {
        /// Sets the display name: empty by default, which hubs accept.
        with_name: name: String = String::new(),
    }
    also {
        capabilities: Vec<Capability> = Vec::new(),
    }
}

impl Config {
    /// Adds what the agent can do.
    #[must_use]
    pub fn with_capabilities(mut self, added: impl IntoIterator<Item = Capability>) -> Self {
        self.capabilities.extend(added);
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for (field, time) in [
            ("first_retry", self.first_retry),
            ("longest_cut_retry", self.longest_cut_retry),
            ("register_timeout", self.register_timeout),
            ("ready_timeout", self.ready_timeout),
            ("init_timeout", self.init_timeout),
            ("linger", self.linger),
            ("resume_limit", self.resume_limit),
        ] {
            ConfigError::not_zero(field, time)?;
        }
        ConfigError::at_least("longest_retry", self.longest_retry, self.first_retry)?;
        ConfigError::at_least("max_message_bytes", self.max_message_bytes, 1)
    }
}
