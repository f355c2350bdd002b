//! What is left of a launch when its process has ended.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use opensentience_wire::transport::tokio::Launcher;
use rustix::process::{getpgid, getppid, setpgid};
use tokio::runtime::Handle;

use super::PATIENCE;
use crate::kit::AGENT;

/// A process, or one that it starts outside of its group, goes on writing for ever.
fn noisy(script: &str) -> Launcher {
    Launcher::new(AGENT, "/bin/sh").args(["-c", script])
}

async fn until_no_task_is_left() {
    let none = async {
        while Handle::current().metrics().num_alive_tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), none)
        .await
        .expect("nobody reads the pipes any more");
}

/// Whether a process runs: one that nobody has reaped does not.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next();
    state.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_leader_that_exits_well_leaves_no_process_of_its_group() {
    // What it leaves behind holds no pipe, and heeds no request to end.
    let launcher = noisy("trap '' TERM; sleep 600 >/dev/null 2>&1 & echo $!; exit 0");
    let process = launcher.spawn().unwrap();
    let pid: u32 = loop {
        if let Ok(pid) = launcher.output().text().trim().parse() {
            break pid;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(is_alive(pid));
    // However busy the machine is, the leader ends by itself.
    let status = process.stop(Duration::from_secs(300)).await;
    assert!(status.is_some_and(|status| status.success()));
    let gone = async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .expect("its group is killed with it");
}

#[tokio::test]
async fn a_process_that_ends_by_itself_is_not_asked_to() {
    let process = noisy("sleep 1; exit 3").spawn().unwrap();
    let status = process.stop(Duration::from_secs(300)).await;
    assert_eq!(status.unwrap().code(), Some(3));
}

// spec: OSW-7-2
#[tokio::test]
async fn what_a_process_writes_of_its_token_is_not_kept() {
    let launcher = noisy("echo \"<$OPENSENTIENCE_SESSION_TOKEN>\"");
    let process = launcher.spawn().unwrap();
    let token = process.token().expose().to_owned();
    while launcher.output().text().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    process.stop(Duration::from_secs(300)).await;
    let said = launcher.output().text();
    assert!(said.starts_with('<') && said.ends_with(">\n"), "{said}");
    assert!(!said.contains(&token));
}

#[tokio::test]
async fn nothing_is_left_of_a_launch_whose_pipe_somebody_holds_open() {
    // It ends when nobody reads it any more.
    let outside = "setsid sh -c 'while echo noise; do sleep 0.05; done' & wait";
    for is_stopped in [true, false] {
        let launcher = noisy(outside);
        let process = launcher.spawn().unwrap();
        while launcher.output().text().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        match is_stopped {
            true => drop(process.stop(Duration::ZERO).await),
            false => drop(process),
        }
        until_no_task_is_left().await;
    }
}

/// No test of its own: a process that joins the group of the one that launched it.
#[test]
fn joins_another_group() {
    if std::env::var_os("JOINS_ANOTHER_GROUP").is_some() {
        setpgid(None, Some(getpgid(getppid()).unwrap())).unwrap();
        eprintln!("joined");
        std::thread::sleep(Duration::from_secs(600));
    }
}

#[tokio::test]
async fn a_process_that_has_left_its_group_is_ended_all_the_same() {
    let heeding = "exec \"$0\" \"$@\"";
    let deaf = format!("trap '' TERM; {heeding}");
    // The first is asked to end, and has the time to do so.
    for (script, patience, signal) in [(heeding, PATIENCE, 15), (&*deaf, Duration::ZERO, 9)] {
        let launcher = noisy(script)
            .args([std::env::current_exe().unwrap()])
            .args([
                "transport::process::joins_another_group",
                "--exact",
                "--nocapture",
            ])
            .env("JOINS_ANOTHER_GROUP", "1");
        let process = launcher.spawn().unwrap();
        while !launcher.output().text().contains("joined") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let stopped = tokio::time::timeout(3 * PATIENCE, process.stop(patience)).await;
        let status = stopped.expect("it ends").unwrap();
        assert_eq!(status.signal(), Some(signal), "{script}");
    }
}
