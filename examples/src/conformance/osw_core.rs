//! `osw-core`: an OpenSentience core that launches an agent of ours.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use opensentience_wire::conformance::CORES;
use opensentience_wire::transport::tokio::{CoreUnderTest, take_seat};
use ubos_common::conformance::{ConformanceReport, prove, run};

use super::osw_agent::Time;
use super::{Proof, command};

/// Cases that any core puts to the test, whatever it calls.
const FLOOR: usize = 14;

/// The word with which this program is an agent's seat.
const SEAT: &str = "osw-seat";

/// Judges a core that is a program.
pub(super) fn judge(program: &[OsString]) -> Result<ConformanceReport, String> {
    let told = |word: &OsString| word.to_string_lossy().contains("{}");
    if !program.iter().any(told) {
        return Err("the core's command needs {} where its agent stands".to_owned());
    }
    command::is_there(program)?;
    let own = std::env::current_exe().map_err(|err| format!("this program's own path: {err}"))?;
    let core = CoreUnderTest::new(program.to_vec(), vec![own.into(), SEAT.into()]);
    let mut time = Time::start();
    Ok(run(CORES, FLOOR, |_| {
        time.is_left()?;
        core.peer()
    }))
}

/// Is the agent that a core under test launches, where this program was started as such.
pub(super) fn seat() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().filter(|word| word == SEAT)?;
    let control = arguments.next()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let taken = runtime.and_then(|runtime| runtime.block_on(take_seat(Path::new(&control))));
    Some(match taken {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("conformance: {err}");
            ExitCode::from(3)
        }
    })
}

pub(super) fn proof() -> Proof {
    (
        "osw-core",
        CORES.len(),
        prove(CORES).map_err(super::in_words),
    )
}
