//! The judges of both kits at live traffic.

use core::fmt;

use super::recording::LineReader;
use super::{Agents, Cores, Launch, Line, LineKind, agent_kit, core_kit};
use crate::{Expectations, Report, Tap as KitTap};
use opensentience_wire::message::Side;
use ubos_common::time::Mono;

/// Reads what a core and an agent send to each other, and judges both.
///
/// ```
/// use opensentience_wire::SessionToken;
/// use opensentience_wire::message::Side;
/// use opensentience_wire::ubos_common::time::Mono;
/// use ubos_conformance::osw::{Launch, Tap};
///
/// let mut tap = Tap::new();
/// tap.begin(Mono::ZERO, Launch::new("com.example.a", SessionToken::from_random([7; 32])));
/// tap.bytes(Mono::ZERO, Side::Agent, b"\0\0\0\x02[]");
/// tap.end(Mono::ZERO, Side::Agent);
/// let reports = tap.finish(Mono::ZERO);
/// assert!(reports.agent.to_string().contains("OSW-4.1-1"));
/// assert!(!reports.agent.is_conformant());
/// ```
///
/// It judges the first [`Tap::LINES`] messages and ignores what comes after them.
pub struct Tap {
    reader: LineReader,
    agents: KitTap<Agents>,
    cores: KitTap<Cores>,
    lines: usize,
}

/// The reports of a tap.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TapReports {
    /// About the agent.
    pub agent: Report,
    /// About the core.
    pub core: Report,
}

impl TapReports {
    /// Whether nothing was found against either, and a session was really seen.
    #[must_use]
    pub fn are_conformant(&self) -> bool {
        self.agent.is_conformant() && self.core.is_conformant()
    }
}

/// Cases that a handshake and a registration test; fewer mean that there was no session.
const FLOOR: usize = 6;

impl Tap {
    /// Messages that are judged: each judge remembers what it saw of them.
    pub const LINES: usize = 10_000;

    /// A tap that has read nothing.
    #[must_use]
    pub fn new() -> Self {
        let expectations = Expectations::new().with_floor(FLOOR);
        Self {
            reader: LineReader::new(),
            agents: agent_kit().tap(&expectations),
            cores: core_kit().tap(&expectations),
            lines: 0,
        }
    }

    /// A connection begins.
    pub fn begin(&mut self, at: Mono, launch: Launch) {
        let line = self.reader.begin(at, launch, false);
        self.see(&line);
    }

    /// A side sent bytes, however they were split.
    pub fn bytes(&mut self, at: Mono, from: Side, bytes: &[u8]) {
        if self.lines >= Self::LINES {
            return;
        }
        let mut lines = Vec::new();
        self.reader.read(at, from, bytes, |line| lines.push(line));
        for line in lines {
            self.see(&line);
        }
    }

    /// A side sends nothing more.
    pub fn end(&mut self, at: Mono, from: Side) {
        let line = self.reader.end(at, from);
        self.see(&line);
    }

    fn see(&mut self, line: &Line) {
        if self.lines < Self::LINES {
            self.lines += 1;
            self.agents.see(line);
            self.cores.see(line);
        }
    }

    /// Ends the traffic and gives the reports.
    #[must_use]
    pub fn finish(mut self, at: Mono) -> TapReports {
        let (from, kind) = (Side::Core, LineKind::Silence);
        self.see(&Line { at, from, kind });
        TapReports {
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
