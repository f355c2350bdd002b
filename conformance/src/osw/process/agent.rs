//! An agent that is a program: launched as a core launches it, and driven.

use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;

use tokio::runtime::Runtime;

use super::{STOPPING, Wire, runtime};
use crate::ConnectError;
use crate::osw::recording::START;
use crate::osw::{Launch, Peer, Received};
use opensentience_wire::transport::tokio::{AgentProcess, Launcher};
use ubos_common::os::Clock;
use ubos_common::time::Now;

/// An agent under test.
///
/// ```no_run
/// use opensentience_wire::transport::tokio::Launcher;
/// use ubos_conformance::Expectations;
/// use ubos_conformance::osw::{AgentUnderTest, agent_kit};
///
/// let agent = AgentUnderTest::new("com.example.a", Launcher::new("com.example.a", "./my-agent"));
/// let report = agent_kit().run(&Expectations::new().with_floor(12), |_| agent.peer());
/// println!("{report}");
/// ```
#[derive(Debug)]
pub struct AgentUnderTest {
    agent_id: String,
    launcher: Rc<Launcher>,
    /// It was given all the time there is for a first word, and message none.
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

    /// What its processes have written to standard output and error, without what looks like a secret; of many lines the last.
    #[must_use]
    pub fn output(&self) -> String {
        self.launcher.output().text()
    }

    /// A peer for one case.
    ///
    /// # Errors
    ///
    /// The agent sent nothing at all before; waiting again would take long and show nothing.
    pub fn peer(&self) -> Result<Box<dyn Peer>, ConnectError> {
        if self.silent.get() {
            let why = "the agent sent nothing at earlier launches";
            return Err(ConnectError::Unreachable(why.to_owned()));
        }
        Ok(Box::new(AgentPeer {
            runtime: runtime().map_err(|error| ConnectError::Unreachable(error.to_string()))?,
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

struct AgentPeer {
    runtime: Runtime,
    clock: Clock,
    agent_id: String,
    launcher: Rc<Launcher>,
    silent: Rc<Cell<bool>>,
    launched: Option<AgentProcess>,
    wire: Wire,
    /// How long this launch was waited for, until its first word.
    waited: Option<Duration>,
}

impl AgentPeer {
    fn stop(&mut self) {
        self.wire = Wire::default();
        if let Some(agent) = self.launched.take() {
            self.runtime.block_on(agent.stop(STOPPING));
        }
    }

    fn start(&self) -> Option<AgentProcess> {
        let _guard = self.runtime.enter();
        self.launcher.spawn().ok()
    }

    /// Waits for the agent to connect.
    fn accept(&mut self, within: Duration) -> Received {
        let Some(agent) = &mut self.launched else {
            return Received::End;
        };
        let connected = async { tokio::time::timeout(within, agent.accept()).await };
        match self.runtime.block_on(connected) {
            Ok(Ok(stream)) => self.wire = Wire::new(stream),
            Ok(Err(_)) => return Received::End,
            Err(_) => {}
        }
        Received::Nothing
    }

    /// Notes an agent that says nothing at all.
    fn note_silence(&mut self, received: &Received, span: Duration) {
        match received {
            Received::Nothing => {
                self.waited = self.waited.map(|waited| waited.saturating_add(span));
                let silent = self.waited.is_some_and(|waited| waited >= START);
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
        let agent = self.start()?;
        let token = agent.token().clone();
        self.launched = Some(agent);
        Some(Launch::new(self.agent_id.clone(), token))
    }

    fn reconnect(&mut self) -> bool {
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
