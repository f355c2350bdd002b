//! A core in memory, with calls to make and a clock of its own.

use core::time::Duration;

use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};

use crate::osw::mutation::{MutatingTransport, Mutation};
use crate::osw::recording::Launch;
use crate::osw::test_peer::object;
use crate::osw::{Peer, Received};
use opensentience_wire::role::core::{CallRequest, Config, CoreConnection, Event, Output};
use opensentience_wire::role::{CallId, Input};
use opensentience_wire::{Grant, SessionToken};

/// The id of the agent that it launches.
const AGENT: &str = "com.example.reference";

/// Between two steps of its work.
const STEP: Duration = Duration::from_millis(100);

/// How a core differs from the reference. The default is the reference.
#[derive(Clone)]
pub(super) struct Variant {
    mutation: Mutation,
    config: fn() -> Config,
    /// Calls that it makes at once before the others.
    parallel_calls: usize,
    launch: fn(&mut Launch),
}

impl Default for Variant {
    fn default() -> Self {
        Self {
            mutation: Mutation::default(),
            config: Config::default,
            parallel_calls: 0,
            launch: |_| {},
        }
    }
}

impl Variant {
    /// A core with other settings, which makes some calls at once before the others.
    pub(super) fn with_config(config: fn() -> Config, parallel_calls: usize) -> Self {
        Self {
            config,
            parallel_calls,
            ..Self::default()
        }
    }

    /// A core that launches its agent in another way.
    pub(super) fn launching(launch: fn(&mut Launch)) -> Self {
        Self {
            launch,
            ..Self::default()
        }
    }
}

impl From<Mutation> for Variant {
    fn from(mutation: Mutation) -> Self {
        Self {
            mutation,
            ..Self::default()
        }
    }
}

pub(super) struct ReferenceCore {
    now: Now,
    variant: Variant,
    transport: MutatingTransport,
    conn: Option<CoreConnection>,
    launches: u8,
    /// How many steps of its work are done, and when it looks again.
    step: usize,
    next_step: Mono,
    /// Calls that have not ended, and when each is cancelled.
    running: Vec<(CallId, Option<Mono>)>,
    closed: bool,
}

impl ReferenceCore {
    pub(super) fn boxed(variant: Variant) -> Box<dyn Peer> {
        Box::new(Self {
            now: Now::new(Mono::ZERO, Timestamp::EPOCH),
            transport: MutatingTransport::new(variant.mutation.clone()),
            variant,
            conn: None,
            launches: 0,
            step: 0,
            next_step: Mono::ZERO,
            running: Vec::new(),
            closed: false,
        })
    }

    fn token(&self) -> SessionToken {
        SessionToken::from_random([self.launches; 32])
    }

    fn connect(&mut self, grant: Option<Grant>) {
        let ids = IdSource::seeded(u64::from(self.launches) + 200);
        self.conn = CoreConnection::new(self.now, (self.variant.config)(), ids, grant).ok();
        self.transport.reset();
        self.running.clear();
        self.step = 0;
        self.next_step = self.now.mono;
        self.closed = false;
    }

    fn drain(&mut self) {
        while let Some(output) = self.conn.as_mut().and_then(|conn| conn.poll_output()) {
            match output {
                Output::Transmit(bytes) => self.transport.send(&bytes),
                Output::Event(Event::Ended(id, _)) => self.running.retain(|(call, _)| *call != id),
                Output::Close(_) => self.closed = true,
                _ => {}
            }
        }
    }

    /// Cancels what is to be cancelled, makes the next call when none runs, and says goodbye in the end.
    fn work(&mut self) {
        let now = self.now;
        let Some(conn) = self.conn.as_mut().filter(|conn| conn.is_open()) else {
            return;
        };
        for (id, cancel) in &mut self.running {
            if cancel.take_if(|at| *at <= now.mono).is_some() {
                // It may have ended in between.
                let _ = conn.cancel(now, id, Some("no more use for it"));
            }
        }
        if !self.running.is_empty() || conn.tools().next().is_none() {
            return;
        }
        self.step += 1;
        if self.step == 1 {
            for _ in 0..self.variant.parallel_calls {
                let request = request("sleep", r#"{"ms":1000}"#);
                if let Ok(id) = conn.call_tool(now, request) {
                    self.running.push((id, None));
                }
            }
            return;
        }
        let (name, input, timeout, cancel) = match self.step {
            2 => ("hello_world", "{}", None, None),
            3 => ("stream_counter", r#"{"count":3}"#, None, None),
            4 => (
                "sleep",
                r#"{"ms":60000}"#,
                None,
                Some(Duration::from_millis(200)),
            ),
            5 => (
                "sleep",
                r#"{"ms":60000}"#,
                Some(Duration::from_millis(200)),
                None,
            ),
            _ => {
                // It is open.
                let _ = conn.goodbye(now, "all is done", None);
                return;
            }
        };
        let mut request = request(name, input);
        request.correlation_id = Some("run-1".into());
        request.timeout = timeout;
        if let Ok(id) = conn.call_tool(now, request) {
            let cancel = cancel.map(|span| now.mono.saturating_add(span));
            self.running.push((id, cancel));
        }
    }

    fn advance(&mut self, end: Mono) -> bool {
        let timer = self.conn.as_ref().and_then(|conn| conn.poll_timeout());
        let next = timer.into_iter().chain([self.next_step]).min();
        let Some(next) = next.filter(|next| *next <= end && !self.closed) else {
            return false;
        };
        self.pass(next);
        let now = self.now;
        if let Some(conn) = &mut self.conn {
            conn.handle_timeout(now);
        }
        if self.next_step <= now.mono {
            self.next_step = now.mono.saturating_add(STEP);
            self.work();
        }
        self.drain();
        true
    }

    fn pass(&mut self, to: Mono) {
        let span = to.saturating_since(self.now.mono);
        self.now = self.now.plus(span);
    }
}

fn request(name: &str, input: &str) -> CallRequest {
    CallRequest::new(format!("{AGENT}/{name}"), object(input))
}

impl Peer for ReferenceCore {
    fn launch(&mut self) -> Option<Launch> {
        self.launches += 1;
        let grant = Grant::new(self.now.mono, self.token(), AGENT);
        self.connect(Some(grant));
        let mut launch = Launch::new(AGENT, self.token());
        launch.modes = Some((0o700, 0o600));
        let names = [
            "SOCKET_PATH",
            "SESSION_TOKEN",
            "AGENT_ID",
            "RUN_ID",
            "HOME",
            "INSTALL_PATH",
        ];
        let mut names: Vec<String> = names
            .iter()
            .map(|name| format!("OPENSENTIENCE_{name}"))
            .collect();
        names.push("PATH".into());
        launch.variables = Some(names);
        (self.variant.launch)(&mut launch);
        Some(launch)
    }

    fn reconnect(&mut self) -> bool {
        self.connect(None);
        true
    }

    fn now(&mut self) -> Now {
        self.now
    }

    fn send(&mut self, bytes: &[u8]) {
        let bytes = self.transport.receive(bytes);
        let now = self.now;
        if let Some(conn) = &mut self.conn {
            // A fault is among the outputs, too.
            let _ = conn.handle_input(now, Input::Bytes(&bytes));
        }
        self.drain();
    }

    fn receive(&mut self, within: Duration) -> Received {
        let end = self.now.mono.saturating_add(within);
        loop {
            if let Some(bytes) = self.transport.next() {
                return Received::Bytes(bytes);
            }
            if self.closed {
                return Received::End;
            }
            if !self.advance(end) {
                self.pass(end);
                return Received::Nothing;
            }
        }
    }

    fn close(&mut self) {
        let now = self.now;
        if let Some(conn) = &mut self.conn {
            let _ = conn.handle_input(now, Input::Eof);
        }
        self.drain();
    }
}
