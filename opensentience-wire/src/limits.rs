//! How much of everything a connection takes.

use core::time::Duration;

/// Bounds of one connection.
///
/// | limit | unit | default | spec |
/// |---|---|---|---|
/// | `max_frame_bytes` | bytes of one message, prefix not counted | 4,194,304 | 2.2 |
/// | `max_inflight_requests` | calls from call to result | 256 | 2.2 |
/// | `max_queued_calls` | calls that wait for one of those places; past it `tool.busy` | 1,024 | 2.2 |
/// | `max_tool_input_bytes` | bytes of one input | 1,048,576 | 2.2 |
/// | `max_tool_output_bytes` | bytes of one output | 2,097,152 | 2.2 |
/// | `max_tools` | tools of one session, and of one registration | 1,024 | 4.2 |
/// | `max_tool_id_bytes` | bytes of one tool id | 512 | 4.2 |
/// | `max_schema_bytes` | bytes of one schema | 65,536 | 4.2 |
/// | `max_remembered_calls` | ended calls with an idempotency key whose results are kept; the oldest go | 256 | 4.3 |
/// | `max_remembered_bytes` | bytes of their inputs and results; the oldest go | 4,194,304 | 4.3 |
/// | `max_waiting_outputs` | outputs of a machine that nobody has taken; past it no input is read | 1,024 | – |
///
/// A connection holds at most a frame that is being received, the outputs that wait, and its calls: their
/// inputs while they wait for a place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one message.
    pub max_frame_bytes: usize,
    /// Calls at once, from call to result.
    pub max_inflight_requests: usize,
    /// Calls that wait for a place; 0 refuses instead of queueing.
    pub max_queued_calls: usize,
    /// Bytes of one tool input.
    pub max_tool_input_bytes: usize,
    /// Bytes of one tool output.
    pub max_tool_output_bytes: usize,
    /// Tools of one session.
    pub max_tools: usize,
    /// Bytes of one tool id.
    pub max_tool_id_bytes: usize,
    /// Bytes of one schema.
    pub max_schema_bytes: usize,
    /// Ended calls with an idempotency key whose results are kept.
    pub max_remembered_calls: usize,
    /// Bytes of their inputs and results.
    pub max_remembered_bytes: usize,
    /// Outputs that wait before no input is read.
    pub max_waiting_outputs: usize,
    /// Depth, members and lengths inside one message; its `max_bytes` does not matter here.
    pub json: ubos_common::json::Limits,
}

impl Limits {
    /// Sets the bytes of one message, at most what the prefix can say.
    #[must_use]
    pub fn with_max_frame_bytes(mut self, bytes: usize) -> Self {
        self.max_frame_bytes = bytes.min(u32::MAX as usize);
        self
    }

    /// Sets the calls at once.
    #[must_use]
    pub const fn with_max_inflight_requests(mut self, calls: usize) -> Self {
        self.max_inflight_requests = calls;
        self
    }

    /// Sets the calls that wait for a place; 0 refuses instead of queueing.
    #[must_use]
    pub const fn with_max_queued_calls(mut self, calls: usize) -> Self {
        self.max_queued_calls = calls;
        self
    }

    /// Sets the bytes of one tool input.
    #[must_use]
    pub const fn with_max_tool_input_bytes(mut self, bytes: usize) -> Self {
        self.max_tool_input_bytes = bytes;
        self
    }

    /// Sets the bytes of one tool output.
    #[must_use]
    pub const fn with_max_tool_output_bytes(mut self, bytes: usize) -> Self {
        self.max_tool_output_bytes = bytes;
        self
    }

    /// Sets how many results of calls with an idempotency key are kept, and how many bytes of them.
    #[must_use]
    pub const fn with_remembered(mut self, calls: usize, bytes: usize) -> Self {
        self.max_remembered_calls = calls;
        self.max_remembered_bytes = bytes;
        self
    }

    /// Sets the outputs that wait before no input is read.
    #[must_use]
    pub const fn with_max_waiting_outputs(mut self, outputs: usize) -> Self {
        self.max_waiting_outputs = outputs;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_frame_bytes: MAX_FRAME_BYTES,
            max_inflight_requests: 256,
            max_queued_calls: 1_024,
            max_tool_input_bytes: 1 << 20,
            max_tool_output_bytes: 2 << 20,
            max_tools: 1_024,
            max_tool_id_bytes: 512,
            max_schema_bytes: 64 << 10,
            max_remembered_calls: 256,
            max_remembered_bytes: 4 << 20,
            max_waiting_outputs: 1_024,
            json: ubos_common::json::Limits::default(),
        }
    }
}

/// Bytes of one message until the welcome says otherwise.
///
/// Spec: OpenSentience 2.2
pub const MAX_FRAME_BYTES: usize = 4_194_304;

/// How often an agent says that it lives.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// How long a core waits for the hello, and an agent for the welcome.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a token opens a connection.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(300);

/// How much longer than `timeout_ms` a core waits for the result.
pub const CALL_GRACE: Duration = Duration::from_secs(1);

/// How long a core waits for a cancelled call to end.
pub const CANCEL_DEADLINE: Duration = Duration::from_secs(5);

/// How long an agent finishes calls after a goodbye.
pub const DRAIN_TIME: Duration = Duration::from_secs(5);
