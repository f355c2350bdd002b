//! `osw-core`: an OpenSentience core that launches an agent of ours.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use ubos_conformance::osw::{CoreUnderTest, core_kit, run_test_agent};
use ubos_conformance::{Expectations, Report};

use super::osw_agent::Time;
use super::{Proof, command, with_floor};

/// Cases that any core puts to the test, whatever it calls.
const FLOOR: usize = 14;

/// The word with which this program is the agent of a core under test.
const TEST_AGENT: &str = "osw-test-agent";

/// Judges a core that is a program.
pub(super) fn judge(program: &[OsString], expectations: &Expectations) -> Result<Report, String> {
    let told = |word: &OsString| word.to_string_lossy().contains("{}");
    if !program.iter().any(told) {
        return Err("the core's command needs {} where its agent stands".to_owned());
    }
    command::is_there(program)?;
    let own = std::env::current_exe().map_err(|err| format!("this program's own path: {err}"))?;
    let core = CoreUnderTest::new(program.to_vec(), vec![own.into(), TEST_AGENT.into()]);
    let mut time = Time::start();
    let expectations = with_floor(expectations, FLOOR);
    Ok(core_kit().run(&expectations, |_| {
        time.is_left()?;
        core.peer()
    }))
}

/// Is the agent that a core under test launches, where this program was started as such.
pub(super) fn test_agent() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().filter(|word| word == TEST_AGENT)?;
    let control = arguments.next()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let taken = runtime.and_then(|runtime| runtime.block_on(run_test_agent(Path::new(&control))));
    Some(match taken {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            note!("conformance: {err}");
            ExitCode::from(3)
        }
    })
}

pub(super) fn proof() -> Proof {
    super::proof_of(&core_kit())
}
