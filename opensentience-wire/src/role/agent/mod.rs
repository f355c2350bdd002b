//! The agent's side of its connection.
//!
//! ```text
//! Handshake ──welcome──> Open ──core.goodbye, shutdown()──> Draining ──last call ends──> Closed
//!      │ refused, late     │ fatal fault, end of stream       │ drain time over            ▲
//!      └───────────────────┴──────────────────────────────────┴────────────────────────────┘
//! ```

mod calls;
mod config;
mod inbound;
mod state;

use std::borrow::Cow;
use std::collections::BTreeMap;

use ubos_common::id::IdSource;
use ubos_common::json::{MemberWriter, RawObject, Write};
use ubos_common::time::{Mono, Now};

pub use calls::Chunk;
pub use config::Config;
pub use state::{AgentConnection, Event, IncomingCall, Output};

use super::common::{CommonState, Connection, Phase, impl_machine};
use super::idempotency::Memory;
use super::table::Table;
use super::{CloseReason, Input};
use crate::envelope::{Head, VERSION};
use crate::error::{
    CommandError, ConfigError, ConnectionError, ErrorCode, ErrorObject, FrameError,
};
use crate::limits::{DRAIN_TIME, HANDSHAKE_TIMEOUT, MAX_SCHEMA_BYTES};
use crate::message::{Health, Heartbeat, Hello, MessageType, ProtocolOffer, ToolSpec, Unregister};
use crate::schema::InputSchema;
use crate::trace::{debug, trace};
use state::Timer;

impl AgentConnection {
    /// A connection that has just been made; the hello is its first output.
    ///
    /// # Errors
    ///
    /// A setting is out of its range, or the hello does not fit into a frame.
    ///
    /// Spec: OpenSentience 4.1.1
    pub fn new(now: Now, config: Config, ids: IdSource) -> Result<Self, ConfigError> {
        config.check()?;
        let limits = &config.limits;
        let mut common = CommonState::new(ids, limits);
        common.encoder.guard(&config.token);
        let capabilities = ["tools", "streaming", "cancellation"].map(str::to_owned);
        // impl: OSW-4.1-2
        let mut hello = Hello::new(
            config.token.clone(),
            config.agent_id.clone(),
            config.agent_version.clone(),
            ProtocolOffer::new(vec![VERSION], capabilities.into()),
        );
        hello.manifest_hash.clone_from(&config.manifest_hash);
        hello.sdk.clone_from(&config.sdk);
        let frame = common
            .encoder
            .encode(now.wall, &Head::new(MessageType::Hello), &hello)?;
        common.out.push(Output::Transmit(frame));
        let deadline = now.mono.saturating_add(HANDSHAKE_TIMEOUT);
        common.timers.set(Timer::Welcome, deadline);
        Ok(Self {
            common,
            started: now.mono,
            session_id: Box::default(),
            heartbeat_interval: crate::limits::HEARTBEAT_INTERVAL,
            health: Health::Ok,
            end: CloseReason::Shutdown,
            tools: BTreeMap::new(),
            calls: Table::new(),
            held_bytes: 0,
            unsent_bytes: 0,
            writing: true,
            memory: Memory::new(limits.max_remembered_calls, limits.max_remembered_bytes),
            config,
        })
    }

    /// Whether the core took the agent in and neither side is closing.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.common.phase == Phase::Open
    }

    /// Says whether there is room for what is sent. While there is none, heartbeats are left out.
    pub const fn set_writing(&mut self, writing: bool) {
        self.writing = writing;
    }

    /// Calls whose result is not sent.
    #[must_use]
    pub fn running_calls(&self) -> usize {
        self.calls.values().filter(|call| !call.has_ended()).count()
    }

    /// Offers tools; an id that is empty is completed with the agent's. The answer is
    /// [`Event::Registered`].
    ///
    /// # Errors
    ///
    /// There is no session, or the message is too long. Without the feature `schema`: nobody would check inputs, unless
    /// [`Config::with_tools_checking_inputs`] says that the tools do.
    ///
    /// Spec: OpenSentience 4.2.1
    // impl: OSW-4.2-4
    pub fn register(
        &mut self,
        now: Now,
        mut tools: Vec<ToolSpec>,
        replace: bool,
    ) -> Result<(), CommandError> {
        self.common.check_open()?;
        #[cfg(not(feature = "schema"))]
        if !self.config.tools_check_inputs {
            return Err(CommandError::InputsUnchecked);
        }
        for tool in &mut tools {
            if tool.tool_id.is_empty() {
                tool.tool_id = format!("{}/{}", self.config.agent_id, tool.name);
            }
        }
        let payload = Offer {
            tools: &tools,
            replace,
        };
        let head = Head::new(MessageType::Register);
        let frame = self.common.encoder.encode(now.wall, &head, &payload)?;
        self.common.out.push(Output::Transmit(frame));
        if replace {
            self.tools.clear();
        }
        for tool in tools {
            // Of two with one name a core takes the first.
            self.tools
                .entry(tool.tool_id.as_str().into())
                .or_insert_with(|| InputSchema::compile(&tool, MAX_SCHEMA_BYTES));
        }
        Ok(())
    }

    /// Withdraws tools. Calls that run go on.
    ///
    /// # Errors
    ///
    /// There is no session, or the message is too long.
    ///
    /// Spec: OpenSentience 4.2.3
    pub fn unregister(&mut self, now: Now, tool_ids: Vec<String>) -> Result<(), CommandError> {
        self.common.check_open()?;
        for id in &tool_ids {
            self.tools.remove(id.as_str());
        }
        let head = Head::new(MessageType::Unregister);
        let payload = Unregister::new(tool_ids);
        let frame = self.common.encoder.encode(now.wall, &head, &payload)?;
        self.common.out.push(Output::Transmit(frame));
        Ok(())
    }

    /// Says how the agent feels, at once and with every heartbeat.
    pub fn set_health(&mut self, now: Now, health: Health) {
        self.health = health;
        if self.common.has_session() {
            self.beat(now);
        }
    }

    /// Takes no more calls, and closes when the running ones have ended or the drain time is over.
    pub fn shutdown(&mut self, now: Now) {
        match self.common.phase {
            Phase::Handshake => self.close(CloseReason::Shutdown),
            Phase::Open => self.drain(now, CloseReason::Shutdown),
            Phase::Draining | Phase::Closed => {}
        }
    }

    // impl: OSW-4.1-7
    fn drain(&mut self, now: Now, end: CloseReason) {
        self.common.phase = Phase::Draining;
        trace!(phase = ?self.common.phase, "transition");
        self.end = end;
        let at = now.mono.saturating_add(DRAIN_TIME);
        self.common.timers.set(Timer::Drain, at);
        self.close_if_drained();
    }

    fn close_if_drained(&mut self) {
        if self.common.phase == Phase::Draining && self.running_calls() == 0 {
            self.close(self.end.clone());
        }
    }

    // impl: OSW-4.5-1
    fn beat(&mut self, now: Now) {
        let uptime = now.mono.saturating_since(self.started);
        let beat = Heartbeat::new(
            self.session_id.to_string(),
            u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            self.running_calls() as u64,
            self.health.clone(),
        );
        self.transmit(now, &Head::new(MessageType::Heartbeat), &beat);
        self.next_beat(now);
    }

    fn next_beat(&mut self, now: Now) {
        let next = now.mono.saturating_add(self.heartbeat_interval);
        self.common.timers.set(Timer::Heartbeat, next);
    }

    /// Sends what is short by its nature; what is too long all the same is not sent, and reported.
    fn transmit<P: Write + ?Sized>(&mut self, now: Now, head: &Head<'_>, payload: &P) {
        match self.common.encoder.encode(now.wall, head, payload) {
            Ok(frame) => self.common.out.push(Output::Transmit(frame)),
            Err(_) => self.reject(ErrorCode::FrameTooLarge, "an answer that cannot be written"),
        }
    }

    fn event(&mut self, event: Event) {
        self.common.out.push(Output::Event(event));
    }

    fn reject(&mut self, code: ErrorCode, rule: &'static str) {
        debug!(session = %self.session_id, %code, rule, "message rejected");
        self.event(Event::Rejected { code, rule });
    }

    /// Ends the connection: every tool that runs is stopped.
    fn close(&mut self, reason: CloseReason) {
        debug!(session = %self.session_id, ?reason, calls = self.calls.len(), "connection ends");
        self.common.phase = Phase::Closed;
        self.held_bytes = 0;
        for (id, call) in self.calls.drain() {
            if call.must_be_stopped() {
                self.common.out.push(Output::Cancel(id));
            }
        }
        self.common.timers.clear_all();
        self.common.out.push(Output::Close(reason));
    }

    /// Ends the connection for a fault that it does not survive; tells the core after the handshake.
    fn fail(&mut self, now: Now, code: ErrorCode) {
        if self.common.phase != Phase::Handshake {
            let error = ErrorObject::of(code.clone(), "the stream cannot be read on");
            let error = error.noticed_by("agent.runtime");
            let head = Head::new(MessageType::AgentError).error(&error);
            self.transmit(now, &head, &RawObject::empty());
        }
        self.close(CloseReason::Protocol(code));
    }

    fn fail_handshake(&mut self, code: ErrorCode, reason: Cow<'static, str>) -> ConnectionError {
        self.close(CloseReason::Protocol(code.clone()));
        ConnectionError::Handshake { code, reason }
    }
}

impl Connection for AgentConnection {
    type Timer = Timer;
    type Output = Output;

    fn common(&mut self) -> &mut CommonState<Timer, Output> {
        &mut self.common
    }

    fn max_frame_bytes(&self) -> usize {
        self.config.limits.max_frame_bytes
    }

    fn on_frame(&mut self, now: Now, frame: &[u8]) -> Result<(), ConnectionError> {
        self.on_message_frame(now, frame)
    }

    fn on_bad_frame(&mut self, now: Now, error: FrameError) -> ConnectionError {
        self.fail(now, ErrorCode::from(&error));
        error.into()
    }

    fn on_disconnect(&mut self, _: Now) {
        self.close(CloseReason::Disconnected);
    }

    fn on_timer(&mut self, now: Now, timer: &Timer) {
        match timer {
            Timer::Welcome => {
                let code = ErrorCode::HandshakeTimeout;
                self.close(CloseReason::Protocol(code));
            }
            Timer::Heartbeat if self.writing => self.beat(now),
            // A core that reads nothing hears no beat either: each would only wait behind the others.
            Timer::Heartbeat => self.next_beat(now),
            Timer::Drain => {
                self.cancel_all(now);
                self.close(self.end.clone());
            }
            Timer::Call(id) => self.on_call_deadline(now, id),
        }
    }
}

impl_machine!(AgentConnection);

/// The payload of a registration, written from typed tools.
struct Offer<'a> {
    tools: &'a [ToolSpec],
    replace: bool,
}

impl Write for Offer<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("tools", self.tools);
        object.optional("replace", self.replace.then_some(&true));
        object.end();
    }
}
