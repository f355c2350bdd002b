//! Messages for tests.

use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use ubos_common::time::Timestamp;

use crate::context::{ConstitutionalContext, PressureLevel};
#[cfg(feature = "driver")]
use crate::evidence::{Alignment, ConstitutionalEvidence};
#[cfg(feature = "driver")]
use crate::result::{Producer, ProducerKind, TaskResult};
#[cfg(feature = "driver")]
use crate::status::Status;
use crate::task::{AgentKind, Issuer, Target, Task};

/// A task of `a`, with an id that is the same each time.
pub(crate) fn task() -> Task {
    Task::draft(
        &mut IdSource::seeded(1),
        Timestamp::EPOCH,
        Issuer::new("a".parse().unwrap(), AgentKind::Agent),
        Target::new("a.b".parse().unwrap()),
        ConstitutionalContext::new(PressureLevel::Instant),
        RawObject::empty(),
    )
}

/// What `b` says of it.
#[cfg(feature = "driver")]
pub(crate) fn result(task: &Task, status: Status) -> TaskResult {
    TaskResult::of(
        task,
        Timestamp::EPOCH,
        Producer::new("b".parse().unwrap(), ProducerKind::Agent),
        status,
        ConstitutionalEvidence::new(Alignment::Valid),
    )
}
