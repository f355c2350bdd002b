//! A core in memory, with calls to make and a clock of its own.

use core::time::Duration;

use ubos_common::id::IdSource;
use ubos_common::machine::Machine as _;
use ubos_common::time::{Mono, Now, Timestamp};

use crate::conformance::fault::{Fault, Mouth};
use crate::conformance::line::Launch;
use crate::conformance::session::object;
use crate::conformance::{Peer, Received};
use crate::role::core::{CallRequest, Config, CoreConnection, Event, Output};
use crate::role::{CallId, Input};
use crate::token::{Grant, SessionToken};

/// The id of the agent that it launches.
const AGENT: &str = "com.example.twin";

/// Between two looks at what is to be done.
const TICK: Duration = Duration::from_millis(100);

pub(super) struct Twin {
    now: Now,
    fault: Fault,
    config: fn() -> Config,
    calls: usize,
    launching: fn(&mut Launch),
    mouth: Mouth,
    conn: Option<CoreConnection>,
    launches: u8,
    /// What it does next, and when.
    next: usize,
    tick: Mono,
    running: Vec<(CallId, Option<Mono>)>,
    closed: bool,
}

impl Twin {
    pub(super) fn boxed(fault: Fault) -> Box<dyn Peer> {
        Self::with(fault, Config::default, 0)
    }

    /// A core with other settings, that makes so many calls at once before the others.
    pub(super) fn with(fault: Fault, config: fn() -> Config, calls: usize) -> Box<dyn Peer> {
        let twin = Self::new(fault, config, calls, |_| {});
        Box::new(twin)
    }

    /// A core that launches in another way.
    pub(super) fn launching(launching: fn(&mut Launch)) -> Box<dyn Peer> {
        let twin = Self::new(Fault::NONE, Config::default, 0, launching);
        Box::new(twin)
    }

    fn new(fault: Fault, config: fn() -> Config, calls: usize, launching: fn(&mut Launch)) -> Self {
        Self {
            now: Now::new(Mono::ZERO, Timestamp::EPOCH),
            fault,
            config,
            calls,
            launching,
            mouth: Mouth::new(fault),
            conn: None,
            launches: 0,
            next: 0,
            tick: Mono::ZERO,
            running: Vec::new(),
            closed: false,
        }
    }

    fn token(&self) -> SessionToken {
        SessionToken::from_random([self.launches; 32])
    }

    fn connect(&mut self, grant: Option<Grant>) {
        let ids = IdSource::seeded(u64::from(self.launches) + 200);
        self.conn = Some(CoreConnection::new(self.now, (self.config)(), ids, grant));
        self.mouth = Mouth::new(self.fault);
        self.running.clear();
        self.next = 0;
        self.tick = self.now.mono;
        self.closed = false;
    }

    fn drain(&mut self) {
        while let Some(output) = self.conn.as_mut().and_then(|conn| conn.poll_output()) {
            match output {
                Output::Transmit(bytes) => self.mouth.say(&bytes),
                Output::Event(Event::Ended(id, _)) => self.running.retain(|(call, _)| *call != id),
                Output::Event(_) => {}
                Output::Close(_) => self.closed = true,
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
        self.next += 1;
        if self.next == 1 {
            for _ in 0..self.calls {
                let request = request("sleep", r#"{"ms":1000}"#);
                if let Ok(id) = conn.call_tool(now, request) {
                    self.running.push((id, None));
                }
            }
            return;
        }
        let (name, input, timeout, cancel) = match self.next {
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
        let mut request = request(name, input).with_correlation_id("run-1");
        request.timeout = timeout;
        if let Ok(id) = conn.call_tool(now, request) {
            let cancel = cancel.map(|span| now.mono.saturating_add(span));
            self.running.push((id, cancel));
        }
    }

    fn step(&mut self, end: Mono) -> bool {
        let timer = self.conn.as_ref().and_then(|conn| conn.poll_timeout());
        let next = timer.into_iter().chain([self.tick]).min();
        let Some(next) = next.filter(|next| *next <= end && !self.closed) else {
            return false;
        };
        self.pass(next);
        let now = self.now;
        if let Some(conn) = &mut self.conn {
            conn.handle_timeout(now);
        }
        if self.tick <= now.mono {
            self.tick = now.mono.saturating_add(TICK);
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

impl Peer for Twin {
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
        (self.launching)(&mut launch);
        Some(launch)
    }

    fn again(&mut self) -> bool {
        self.connect(None);
        true
    }

    fn now(&mut self) -> Now {
        self.now
    }

    fn send(&mut self, bytes: &[u8]) {
        let bytes = self.mouth.hear(bytes);
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
            if let Some(bytes) = self.mouth.next() {
                return Received::Bytes(bytes);
            }
            if self.closed {
                return Received::End;
            }
            if !self.step(end) {
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
