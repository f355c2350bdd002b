//! Sends a task and takes its result, on no runtime.

use sap::role::producer::{Config, Input, Output, SentTasks};
use sap::ubos_common::id::IdSource;
use sap::ubos_common::json::RawObject;
use sap::ubos_common::time::{Mono, Now, Timestamp};
use sap::{
    AgentKind, Alignment, ConstitutionalContext, ConstitutionalEvidence, Issuer, PressureLevel,
    Producer, ProducerKind, Status, Target, Task, TaskResult,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let task = Task::draft(
        &mut IdSource::seeded(1),
        now.wall,
        Issuer::new("planner".parse()?, AgentKind::Agent),
        Target::new("notes.write".parse()?),
        ConstitutionalContext::new(PressureLevel::Instant),
        RawObject::empty(),
    );
    let mut tasks = SentTasks::new(Config::default())?;
    tasks.handle_input(now, Input::Dispatch(&task))?;
    assert_eq!(tasks.poll_output(), Some(Output::Transmit(task.task_id)));
    let result = TaskResult::of(
        &task,
        now.wall,
        Producer::new("writer".parse()?, ProducerKind::Agent),
        Status::Succeeded,
        ConstitutionalEvidence::new(Alignment::Valid),
    );
    tasks.handle_input(now, Input::Result(&result))?;
    assert!(matches!(tasks.poll_output(), Some(Output::Result(_))));
    Ok(())
}
