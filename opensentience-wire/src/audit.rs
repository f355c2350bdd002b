//! What an auditor hears of a connection: names, ids, sizes, codes; never a payload.

use ubos_common::time::Timestamp;

use crate::error::ErrorCode;
use crate::message::{Caller, Status};

ubos_common::words! {
    /// What happened.
    ///
    /// Spec: OpenSentience 2.2, 4
    open pub enum AuditName {
        /// A launched process runs.
        RunStarted = "agent.run_started",
        /// It was asked to end.
        RunStopRequested = "agent.run_stop_requested",
        /// It ended as asked, or by itself with success.
        RunStopped = "agent.run_stopped",
        /// It ended otherwise.
        RunCrashed = "agent.run_crashed",
        /// A handshake succeeded.
        Connected = "agent.connected",
        /// A handshake failed.
        HandshakeFailed = "agent.handshake_failed",
        /// The hello names another manifest than the one enabled.
        ManifestDrift = "agent.manifest_drift_detected",
        /// No heartbeat for an interval and more.
        HeartbeatMissed = "agent.heartbeat_missed",
        /// The agent sends more beside its calls than it may, and is not read for a while.
        Throttled = "agent.throttled",
        /// The agent gets no new calls.
        MarkedUnhealthy = "agent.marked_unhealthy",
        /// The agent gets calls again.
        Recovered = "agent.recovered",
        /// The connection has ended.
        Disconnected = "agent.disconnected",
        /// A call was sent.
        CallRouted = "tool.call_routed",
        /// A call has ended.
        CallCompleted = "tool.call_completed",
        /// A call was refused before anything was sent.
        CallRefused = "tool.call_refused",
        /// A caller may not use a tool.
        Denied = "security.denied",
        /// A frame was refused, and the connection with it.
        FrameRejected = "protocol.frame_rejected",
        /// A message was dropped, or a part of it did not count.
        MessageRejected = "protocol.message_rejected",
    }
}

ubos_common::words! {
    /// How much it matters.
    closed pub enum Severity {
        /// As it should be.
        Info = "info",
        /// Somebody may want to look.
        Warn = "warn",
        /// Something failed.
        Error = "error",
        /// Somebody tried what they may not.
        Security = "security",
    }
}

ubos_common::wire! {
    /// One record for an audit.
    pub struct AuditEvent {
        /// What happened.
        required name: AuditName = "event_type", "OSW-8-1";
        /// When, by the core's clock.
        required at: Timestamp = "at", "OSW-8-1";
        /// How much it matters.
        required severity: Severity = "severity", "OSW-8-1";
        /// The agent that the token was issued for.
        nullable agent_id: String = "agent_id", "OSW-8-1";
        /// The session.
        nullable session_id: String = "session_id", "OSW-8-1";
        /// The call.
        nullable call_id: String = "call_id", "OSW-8-1";
        /// Its tool.
        nullable tool_id: String = "tool_id", "OSW-8-1";
        /// Its chain of requests.
        nullable request_id: String = "request_id", "OSW-8-1";
        /// Its conversation, mission or run.
        nullable correlation_id: String = "correlation_id", "OSW-8-1";
        /// Its cause.
        nullable causation_id: String = "causation_id", "OSW-8-1";
        /// The caller.
        nullable caller: Caller = "caller", "OSW-8-1";
        /// How the call ended.
        nullable status: Status = "status", "OSW-8-1";
        /// What went wrong.
        nullable code: ErrorCode = "error_code", "OSW-8-1";
        /// Bytes of the frame, input or output.
        nullable bytes: usize = "bytes", "OSW-8-1";
        /// Milliseconds from call to end.
        nullable duration_ms: u64 = "duration_ms", "OSW-8-1";
        /// The rule, in words of this library.
        nullable detail: String = "detail", "OSW-8-1";
    }
}

impl AuditEvent {
    /// A record of a name, with the severity that goes with it.
    pub(crate) fn of(name: AuditName, at: Timestamp) -> Self {
        let severity = match name {
            AuditName::Denied | AuditName::HandshakeFailed | AuditName::ManifestDrift => {
                Severity::Security
            }
            AuditName::RunCrashed | AuditName::FrameRejected => Severity::Error,
            AuditName::HeartbeatMissed
            | AuditName::MarkedUnhealthy
            | AuditName::MessageRejected
            | AuditName::CallRefused
            | AuditName::Throttled
            | AuditName::Disconnected => Severity::Warn,
            _ => Severity::Info,
        };
        Self::new(name, at, severity)
    }

    /// Adds the code of what went wrong.
    pub(crate) fn with_code(mut self, code: ErrorCode) -> Self {
        self.code = Some(code);
        self
    }

    /// Adds a rule, in words of this library: never a text of the peer's.
    pub(crate) fn with_detail(mut self, detail: &'static str) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a size.
    pub(crate) const fn with_bytes(mut self, bytes: usize) -> Self {
        self.bytes = Some(bytes);
        self
    }
}
