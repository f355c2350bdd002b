//! The judges of both kits at live traffic.

use core::fmt;

use ubos_common::conformance::{ConformanceReport, Tap as Judges};
use ubos_common::time::Mono;

use super::line::Ear;
use super::{AGENTS, Agents, CORES, Cores, Launch, Line, What};
use crate::message::Side;

/// Listens to what a core and an agent say to each other, and judges both.
///
/// ```
/// use opensentience_wire::SessionToken;
/// use opensentience_wire::conformance::{Launch, Tap};
/// use opensentience_wire::message::Side;
/// use ubos_common::time::Mono;
///
/// let mut tap = Tap::new();
/// tap.begin(Mono::ZERO, Launch::new("com.example.a", SessionToken::from_random([7; 32])));
/// tap.hear(Mono::ZERO, Side::Agent, b"\0\0\0\x02[]");
/// tap.end(Mono::ZERO, Side::Agent);
/// let verdicts = tap.finish(Mono::ZERO);
/// assert!(verdicts.agent.to_string().contains("OSW-4.1-1"));
/// assert!(verdicts.agent.failed() > 0);
/// ```
///
/// It judges the first [`Tap::LINES`] messages; what comes after them it does not hold against anybody.
pub struct Tap {
    ear: Ear,
    agents: Judges<Agents>,
    cores: Judges<Cores>,
    lines: usize,
}

/// What a tap came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verdicts {
    /// Of the agent.
    pub agent: ConformanceReport,
    /// Of the core.
    pub core: ConformanceReport,
}

impl Verdicts {
    /// Whether nothing was found against either, and a session was really seen.
    #[must_use]
    pub fn are_good(&self) -> bool {
        self.agent.is_conformant() && self.core.is_conformant()
    }
}

/// Cases that a handshake and a registration put to the test; fewer mean that there was no session.
const FLOOR: usize = 6;

impl Tap {
    /// Messages that are judged: each judge remembers what it saw of them.
    pub const LINES: usize = 10_000;

    /// A tap that has heard nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            ear: Ear::new(),
            agents: Judges::new(AGENTS, FLOOR),
            cores: Judges::new(CORES, FLOOR),
            lines: 0,
        }
    }

    /// A connection begins.
    pub fn begin(&mut self, at: Mono, launch: Launch) {
        let line = self.ear.begin(at, launch, false);
        self.see(&line);
    }

    /// A side sent bytes, however they were cut.
    pub fn hear(&mut self, at: Mono, from: Side, bytes: &[u8]) {
        if self.lines >= Self::LINES {
            return;
        }
        let mut lines = Vec::new();
        self.ear.hear(at, from, bytes, |line| lines.push(line));
        for line in lines {
            self.see(&line);
        }
    }

    /// A side sends nothing more.
    pub fn end(&mut self, at: Mono, from: Side) {
        let line = self.ear.end(at, from);
        self.see(&line);
    }

    fn see(&mut self, line: &Line) {
        if self.lines < Self::LINES {
            self.lines += 1;
            self.agents.see(line);
            self.cores.see(line);
        }
    }

    /// The traffic is over.
    #[must_use]
    pub fn finish(mut self, at: Mono) -> Verdicts {
        let (from, what) = (Side::Core, What::Silence);
        self.see(&Line { at, from, what });
        Verdicts {
            agent: self.agents.finish(),
            core: self.cores.finish(),
        }
    }
}

impl Default for Tap {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}
