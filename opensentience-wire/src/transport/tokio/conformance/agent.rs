//! An agent that is a program: launched as a core launches it, and driven.

use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;

use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use ubos_common::os::Clock;
use ubos_common::time::Now;

use super::{STOPPING, Wire, runtime};
use crate::conformance::{Launch, Peer, Received};
use crate::token::SessionToken;
use crate::transport::tokio::launch::{Launcher, Process, socket};

/// An agent under test.
///
/// ```no_run
/// use opensentience_wire::conformance::AGENTS;
/// use opensentience_wire::transport::tokio::{AgentUnderTest, Launcher};
/// use ubos_common::conformance::run;
///
/// let agent = AgentUnderTest::new("com.example.a", Launcher::new("com.example.a", "./my-agent"));
/// let report = run(AGENTS, 12, |_| agent.peer());
/// println!("{report}");
/// ```
#[derive(Debug)]
pub struct AgentUnderTest {
    agent_id: String,
    launcher: Rc<Launcher>,
    /// It was given all the time there is for a first word, and said none.
    silent: Rc<Cell<bool>>,
}

impl AgentUnderTest {
    /// The agent that a launcher launches, under that id.
    #[must_use]
    pub fn new(agent_id: impl Into<String>, launcher: Launcher) -> Self {
        Self {
            agent_id: agent_id.into(),
            launcher: Rc::new(launcher),
            silent: Rc::default(),
        }
    }

    /// A peer for one case.
    ///
    /// # Errors
    ///
    /// The agent said nothing at all before; waiting again would take long and show nothing.
    pub fn peer(&self) -> Result<Box<dyn Peer>, String> {
        if self.silent.get() {
            return Err("the agent said nothing at its launches before".to_owned());
        }
        Ok(Box::new(AgentPeer {
            runtime: runtime().map_err(|error| error.to_string())?,
            clock: Clock::start(),
            agent_id: self.agent_id.clone(),
            launcher: Rc::clone(&self.launcher),
            silent: Rc::clone(&self.silent),
            launched: None,
            wire: Wire::default(),
            waited: None,
        }))
    }
}

/// How long an agent may stay away before it is taken for silent.
const FIRST_WORD: Duration = Duration::from_secs(8);

struct AgentPeer {
    runtime: Runtime,
    clock: Clock,
    agent_id: String,
    launcher: Rc<Launcher>,
    silent: Rc<Cell<bool>>,
    launched: Option<Launched>,
    wire: Wire,
    /// How long this launch was waited for, until its first word.
    waited: Option<Duration>,
}

struct Launched {
    process: Process,
    listener: UnixListener,
    _folder: tempfile::TempDir,
}

impl AgentPeer {
    fn stop(&mut self) {
        self.wire = Wire::default();
        if let Some(mut launched) = self.launched.take() {
            let Self { runtime, .. } = self;
            runtime.block_on(launched.process.stop(STOPPING));
        }
    }

    fn start(&self) -> Option<(Launched, SessionToken)> {
        let _guard = self.runtime.enter();
        let (folder, path, listener) = socket().ok()?;
        let token = SessionToken::generate().ok()?;
        self.launcher.output().guard(&token);
        let process = Process::start(&self.launcher, &path, &token).ok()?;
        let launched = Launched {
            process,
            listener,
            _folder: folder,
        };
        Some((launched, token))
    }

    /// Waits for the agent to connect.
    fn accept(&mut self, within: Duration) -> Received {
        let Some(launched) = &mut self.launched else {
            return Received::End;
        };
        let Launched {
            process, listener, ..
        } = launched;
        let connected = async {
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let (stream, _) = accepted.ok()?;
                        if process.owns(&stream) {
                            return Some(stream);
                        }
                    }
                    _ = process.child.wait() => return None,
                }
            }
        };
        let connected = async { tokio::time::timeout(within, connected).await };
        match self.runtime.block_on(connected) {
            Ok(Some(stream)) => self.wire = Wire::new(stream),
            Ok(None) => return Received::End,
            Err(_) => {}
        }
        Received::Nothing
    }

    /// Notes an agent that says nothing at all.
    fn note_silence(&mut self, received: &Received, span: Duration) {
        match received {
            Received::Nothing => {
                self.waited = self.waited.map(|waited| waited.saturating_add(span));
                let silent = self.waited.is_some_and(|waited| waited >= FIRST_WORD);
                self.silent.set(self.silent.get() || silent);
            }
            _ => self.waited = None,
        }
    }
}

impl Peer for AgentPeer {
    fn launch(&mut self) -> Option<Launch> {
        self.stop();
        self.waited = Some(Duration::ZERO);
        let (launched, token) = self.start()?;
        self.launched = Some(launched);
        Some(Launch::new(self.agent_id.clone(), token))
    }

    fn again(&mut self) -> bool {
        false
    }

    fn now(&mut self) -> Now {
        self.clock.now()
    }

    fn send(&mut self, bytes: &[u8]) {
        let Self { runtime, wire, .. } = self;
        runtime.block_on(wire.send(bytes));
    }

    fn receive(&mut self, within: Duration) -> Received {
        let asked = self.clock.now().mono;
        let received = if self.wire.stream.is_none() {
            self.accept(within)
        } else {
            let Self { runtime, wire, .. } = self;
            runtime.block_on(wire.receive(within))
        };
        let waited = self.clock.now().mono.saturating_since(asked);
        self.note_silence(&received, waited);
        received
    }

    fn close(&mut self) {
        let Self { runtime, wire, .. } = self;
        runtime.block_on(wire.close());
    }
}

impl Drop for AgentPeer {
    fn drop(&mut self) {
        self.stop();
    }
}
