//! What is left of a launch when its process has ended.

use std::time::Duration;

use opensentience_wire::transport::tokio::Launcher;
use tokio::runtime::Handle;

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

// spec: OSW-5-3
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
