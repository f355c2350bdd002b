//! Bounds of a connection, and the default durations.

use core::time::Duration;

use ubos_common::json::Limits as JsonLimits;

use crate::error::{ConfigError, require};

ubos_common::config! {
    /// Bounds of one connection.
    ///
    /// | limit | unit | default | spec |
    /// |---|---|---|---|
    /// | `max_frame_bytes` | bytes of one message, prefix not counted | 4,194,304 | 2.2 |
    /// | `max_inflight_requests` | calls from call to result | 256 | 2.2 |
    /// | `max_inflight_bytes` | bytes of all that the calls hold that an agent runs; past it `tool.busy`. As many of its results may wait to be sent; past it `tool.output_too_large`, or `tool.busy` for what another call was run for | 67,108,864 | 2.2 |
    /// | `max_queued_calls` | calls that wait for one of those places; past it `tool.busy` | 1,024 | 2.2 |
    /// | `max_agent_bytes` | bytes of everything that a core keeps for its agent: see [`Ledger`](crate::Ledger) | 83,886,080 | – |
    /// | `max_tool_input_bytes` | bytes of one input | 1,048,576 | 2.2 |
    /// | `max_tool_output_bytes` | bytes of one output | 2,097,152 | 2.2 |
    /// | `max_remembered_calls` | ended calls with an idempotency key whose results an agent keeps; the oldest go | 256 | 4.3 |
    /// | `max_remembered_bytes` | bytes of everything that is kept of them; the oldest go | 4,194,304 | 4.3 |
    /// | `max_waiting_outputs` | outputs of a machine that nobody has taken; past it no input is read | 1,024 | – |
    /// | `json` | depth, members and lengths inside one message | those of `ubos_common::json::Limits` | – |
    ///
    /// These limits are fixed:
    ///
    /// | limit | value | spec |
    /// |---|---|---|
    /// | tools of one session, and of one registration | 1,024 | 4.2 |
    /// | bytes of one tool id | 512 | 4.2 |
    /// | bytes of one schema | 65,536 | 4.2 |
    /// | bytes of metrics and error beside an output | 262,144 | 4.3 |
    ///
    /// A connection holds at most one frame that is being received, the outputs that wait, and what the ledger of its agent
    /// counts. A connection checks its limits when it is made.
    #[derive(PartialEq, Eq)]
    Limits {
        /// Sets the bytes of one message. The range is 1 to `u32::MAX`, which is what the length prefix can say.
        with_max_frame_bytes: max_frame_bytes: usize = MAX_FRAME_BYTES,
        /// Sets the calls that run at once, from call to result; at least 1.
        with_max_inflight_requests: max_inflight_requests: usize = MAX_INFLIGHT_REQUESTS,
        /// Sets the bytes of all that the calls hold together that an agent runs, and those of results that wait to be sent.
        with_max_inflight_bytes: max_inflight_bytes: usize = 64 << 20,
        /// Sets the calls that wait for a place; 0 refuses them instead.
        with_max_queued_calls: max_queued_calls: usize = 1_024,
        /// Sets the bytes of everything that a core keeps for its agent, where no router keeps its ledger.
        with_max_agent_bytes: max_agent_bytes: usize = MAX_AGENT_BYTES,
        /// Sets the bytes of one tool input.
        with_max_tool_input_bytes: max_tool_input_bytes: usize = 1 << 20,
        /// Sets the bytes of one tool output.
        with_max_tool_output_bytes: max_tool_output_bytes: usize = MAX_TOOL_OUTPUT_BYTES,
        /// Sets how many ended calls with an idempotency key keep their results; 0 keeps none.
        with_max_remembered_calls: max_remembered_calls: usize = 256,
        /// Sets the bytes of the inputs and results that are kept for idempotency keys.
        with_max_remembered_bytes: max_remembered_bytes: usize = 4 << 20,
        /// Sets how many outputs may wait before no input is read; at least 1.
        with_max_waiting_outputs: max_waiting_outputs: usize = 1_024,
        /// Sets depth, members and lengths inside one message; `max_bytes` is ignored.
        with_json: json: JsonLimits = JsonLimits::default(),
    }
}

impl Limits {
    /// Refuses values with which a connection would wait for ever.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        require(
            (1..=u32::MAX as usize).contains(&self.max_frame_bytes),
            "max_frame_bytes",
            self.max_frame_bytes,
            "a frame has 1 to 4294967295 bytes",
        )?;
        require(
            self.max_inflight_requests > 0,
            "max_inflight_requests",
            self.max_inflight_requests,
            "a connection needs room for at least 1 call",
        )?;
        require(
            self.max_waiting_outputs > 0,
            "max_waiting_outputs",
            self.max_waiting_outputs,
            "a connection that takes input needs room for at least 1 output",
        )
    }
}

/// Bytes of one message until the welcome says otherwise.
///
/// Spec: OpenSentience 2.2
pub const MAX_FRAME_BYTES: usize = 4_194_304;

/// Calls of one connection that run at once.
///
/// Spec: OpenSentience 2.2
pub(crate) const MAX_INFLIGHT_REQUESTS: usize = 256;

/// Bytes of everything that a core keeps for one agent.
pub(crate) const MAX_AGENT_BYTES: usize = 80 << 20;

/// Room that a core has for output beside a whole frame before it reads: what short pieces take that come in one read.
pub(crate) const SHORT_PIECES: usize = 256 << 10;

/// Bytes of one tool output.
///
/// Spec: OpenSentience 2.2
pub(crate) const MAX_TOOL_OUTPUT_BYTES: usize = 2 << 20;

/// Bytes of what a result says beside its output.
pub(crate) const MAX_BESIDE_OUTPUT: usize = 256 << 10;

/// Tools of one session, and of one registration.
pub(crate) const MAX_TOOLS: usize = 1_024;

/// Bytes of one tool id.
pub(crate) const MAX_TOOL_ID_BYTES: usize = 512;

/// Bytes of one schema.
///
/// Spec: OpenSentience 4.2
pub(crate) const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// How often an agent sends a heartbeat.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// How long a core waits for the hello, and an agent for the welcome.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a token opens a connection.
pub(crate) const TOKEN_LIFETIME: Duration = Duration::from_secs(300);

/// How much longer than `timeout_ms` a core waits for the result.
pub(crate) const CALL_GRACE: Duration = Duration::from_secs(1);

/// How long a core waits for a cancelled call to end.
pub(crate) const CANCEL_DEADLINE: Duration = Duration::from_secs(5);

/// How long an agent finishes calls after a goodbye.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(5);
