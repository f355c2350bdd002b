//! How the steps of a mission are known: by the ids that their protocols give them.
//!
//! The tree that a mission draws and the one that is built again from its stores agree because both make ids here.

use std::fmt::Display;

/// The mission itself, by the correlation id that all its messages share.
#[must_use]
pub fn mission(run: impl Display) -> String {
    format!("mission {run}")
}

/// A part of a mission that is no message, such as `survey`.
#[must_use]
pub fn part(name: &str, run: impl Display) -> String {
    format!("{name} {run}")
}

/// A step of the plan: the message's id, which is the correlation id, and the step's number.
#[must_use]
pub fn act(run: impl Display, step: impl Display) -> String {
    format!("act {run}/{step}")
}

/// A task.
#[must_use]
pub fn task(id: impl Display) -> String {
    format!("task {id}")
}

/// A call of a tool.
#[must_use]
pub fn call(id: impl Display) -> String {
    format!("call {id}")
}

/// What the tool process did in a call.
#[must_use]
pub fn pass(call: impl Display) -> String {
    format!("pass {call}")
}

/// A job of the hub.
#[must_use]
pub fn job(id: impl Display) -> String {
    format!("job {id}")
}

/// A session of the hub.
#[must_use]
pub fn session(id: impl Display) -> String {
    format!("session {id}")
}

/// The run of an agent, which runs once.
#[must_use]
pub fn run(agent: impl Display) -> String {
    format!("run {agent}")
}

/// A step of an agent's run.
#[must_use]
pub fn step(agent: impl Display, step: impl Display) -> String {
    format!("step {agent}/{step}")
}

/// What a step is done for: a task of a mission.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The mission's correlation id.
    pub run: String,
    /// The task's id.
    pub task: String,
}

impl Cause {
    /// A task of a mission.
    pub fn new(run: impl Display, task: impl Display) -> Self {
        Self {
            run: run.to_string(),
            task: task.to_string(),
        }
    }
}
