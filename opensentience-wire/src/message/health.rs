//! Heartbeats.

use ubos_common::json::RawObject;

ubos_common::words! {
    /// How an agent feels.
    closed pub enum Health {
        /// Well.
        Ok = "ok",
        /// Slow or short of something; still takes calls.
        Degraded = "degraded",
        /// Takes no new calls.
        Unhealthy = "unhealthy",
    }
}

ubos_common::wire! {
    /// The agent is alive.
    ///
    /// Spec: OpenSentience 4.5.1
    pub struct Heartbeat {
        /// The session that the welcome named.
        required session_id: String = "session_id", "OSW-4.5-1";
        /// Milliseconds since the agent started.
        required uptime_ms: u64 = "uptime_ms", "OSW-4.5-1";
        /// Calls that run.
        required inflight_calls: u64 = "inflight_calls", "OSW-4.5-1";
        /// How it feels.
        required status: Health = "status", "OSW-4.5-1";
        /// More about it.
        nullable details: RawObject = "details", "OSW-4.5-1";
    }
}
