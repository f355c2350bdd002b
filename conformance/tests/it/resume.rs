//! The kit of resumed runs holds the agent of this repository, and each of its mutants.

use std::thread;
use std::time::Duration;

use ubos_conformance::Expectations;
use ubos_conformance::uap::{ResumeProgram, resume_kit};

fn built_in() -> ResumeProgram {
    ResumeProgram::new([env!("CARGO_BIN_EXE_conformance"), "uap-resume-agent"])
}

/// The names of the cases that fail, with what was seen.
fn failed(program: &ResumeProgram) -> Vec<String> {
    let report = resume_kit().run(&Expectations::new(), |_| Ok(Box::new(program.clone())));
    let cases = report.outcomes().iter();
    let failed = cases.filter(|case| case.verdict.is_fail());
    failed
        .map(|case| format!("{}: {:?}", case.name, case.verdict))
        .collect()
}

// spec: UAP-12-5
#[test]
fn our_agent_keeps_all_properties() {
    let failed = failed(&built_in());
    assert!(failed.is_empty(), "{failed:#?}");
}

// spec: UAP-12-5
#[test]
fn each_mutant_breaks_its_property_and_no_other() {
    let mutants = [
        ("prefix", "what was recorded before"),
        ("once", "what is recorded is not done again"),
        ("once-paid", "what is recorded is not done again"),
        ("fork", "two forks"),
        ("checkpoint", "a checkpoint that is loaded"),
        ("foreign", "a checkpoint of another session"),
        ("consume", "a question is answered once"),
        ("late", "a question is answered once"),
        ("recovery", "two resumptions"),
    ];
    // They wait more than they work.
    thread::scope(|scope| {
        for (mutant, name) in mutants {
            scope.spawn(move || {
                let failed = failed(&built_in().with_mutant(mutant));
                assert_eq!(failed.len(), 1, "{mutant}: {failed:#?}");
                assert!(failed[0].starts_with(name), "{mutant}: {failed:#?}");
            });
        }
    });
}

// spec: UAP-12-5
#[test]
fn damage_is_told_from_a_lost_race() {
    let failed = failed(&built_in().with_mutant("unreadable"));
    let of_checkpoints = failed
        .iter()
        .filter(|case| case.starts_with("a checkpoint"));
    assert_eq!(
        (of_checkpoints.count(), failed.len()),
        (2, 2),
        "{failed:#?}"
    );
}

/// A program in the shell instead of an agent.
#[cfg(unix)]
fn shell(script: &str) -> ResumeProgram {
    ResumeProgram::new(["sh", "-c", script])
}

#[cfg(unix)]
#[test]
fn a_program_that_lives_on_without_output_is_told() {
    let program = shell("exec >&-; exec sleep 1000").with_patience(Duration::from_millis(100));
    let failed = failed(&program);
    assert_eq!(failed.len(), 7, "{failed:#?}");
    // On a busy machine it closes its output too late.
    let is_told = |case: &String| case.contains("lives on") || case.contains("says nothing");
    let told = failed.iter().all(is_told);
    assert!(told, "{failed:#?}");
}

#[cfg(unix)]
#[test]
fn a_program_that_prints_without_end_is_told() {
    // It is told by how much it prints, however slowly that is read.
    let program = shell("exec yes $(head -c 60000 /dev/zero | tr '\\0' x)");
    let failed = failed(&program.with_patience(Duration::from_secs(600)));
    assert_eq!(failed.len(), 7, "{failed:#?}");
    let told = failed.iter().all(|case| case.contains("prints more than"));
    assert!(told, "{failed:#?}");
}

/// The built-in program, with its run in a database.
#[cfg(any(feature = "sqlite", feature = "external-tests"))]
fn stored_in(store: &str) -> ResumeProgram {
    let (program, store) = (
        env!("CARGO_BIN_EXE_conformance"),
        format!("UAP_RESUME_STORE={store}"),
    );
    ResumeProgram::new(["env", &store, program, "uap-resume-agent"])
}

#[cfg(any(feature = "sqlite", feature = "external-tests"))]
fn keeps_all(program: &ResumeProgram) {
    let broken = failed(program);
    assert!(broken.is_empty(), "{broken:#?}");
    // The same program, doing again what is recorded: its store does not hide it. Where several resume at once, such a program
    // may act twice, too: one goes on after the other's lease.
    let broken = failed(&program.clone().with_mutant("once"));
    let found = |case: &String| case.starts_with("what is recorded is not done again");
    assert!(broken.iter().any(found), "{broken:#?}");
}

// spec: UAP-12-5
#[cfg(all(unix, feature = "sqlite"))]
#[test]
fn our_agent_keeps_all_properties_in_sqlite() {
    keeps_all(&stored_in("sqlite"));
}

// spec: UAP-12-5
#[cfg(all(unix, feature = "external-tests"))]
#[test]
fn our_agent_keeps_all_properties_in_postgres() {
    let server = crate::server::Server::start();
    keeps_all(&stored_in(&format!("postgres {}", server.base())));
}
