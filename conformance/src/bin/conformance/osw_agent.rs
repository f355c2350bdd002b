//! `osw-agent`: an OpenSentience agent, launched and driven.

use std::ffi::OsString;
use std::time::Duration;

use opensentience_wire::transport::tokio::Launcher;
use ubos_common::violation::OneLine;
use ubos_conformance::osw::{AgentUnderTest, agent_kit};
use ubos_conformance::{ConnectError, Expectations, Report};

use super::{Proof, command, with_floor};

/// Under which the agent is launched.
const AGENT_ID: &str = "com.example.agent";

/// Cases that any agent puts to the test, whatever its tools.
const FLOOR: usize = 14;

/// Judges an agent that is a program.
pub(super) fn judge(program: &[OsString], expectations: &Expectations) -> Result<Report, String> {
    command::is_there(program)?;
    let name = program.first().ok_or("no command")?;
    let launcher = Launcher::new(AGENT_ID, name);
    let launcher = launcher.args(program.iter().skip(1));
    let agent = AgentUnderTest::new(AGENT_ID, launcher);
    let mut time = Time::start();
    let expectations = with_floor(expectations, FLOOR);
    let report = agent_kit().run(&expectations, |_| {
        time.is_left()?;
        agent.peer()
    });
    if !report.is_conformant() {
        told(&agent.output());
    }
    Ok(report)
}

/// Shows the end of what the agent wrote: it may say why it does not come.
fn told(output: &str) {
    /// Lines of it.
    const SHOWN: usize = 10;
    let mut lines: Vec<&str> = output.lines().collect();
    // Each launch may say the same.
    lines.dedup();
    for line in lines.iter().skip(lines.len().saturating_sub(SHOWN)) {
        note!("agent: {}", OneLine(line));
    }
}

pub(super) fn proof() -> Proof {
    super::proof_of(&agent_kit())
}

/// What a run may take: one that is this long has found that hardly anything comes in time.
pub(super) struct Time(ubos_common::os::Clock);

impl Time {
    const MOST: Duration = Duration::from_secs(900);

    pub(super) fn start() -> Self {
        Self(ubos_common::os::Clock::start())
    }

    pub(super) fn is_left(&mut self) -> Result<(), ConnectError> {
        let spent = self
            .0
            .now()
            .mono
            .saturating_since(ubos_common::time::Mono::ZERO);
        if spent < Self::MOST {
            Ok(())
        } else {
            let why = format!("the {} seconds of a run are over", Self::MOST.as_secs());
            Err(ConnectError::Unreachable(why))
        }
    }
}
