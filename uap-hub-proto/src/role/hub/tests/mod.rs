//! The model check, which compares the private state of hubs.

mod model;
mod placement;
#[path = "../../../../tests/it/hub/rig.rs"]
#[allow(dead_code, reason = "the integration tests use all of it")]
mod rig;

use std::time::Duration;

use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};

use super::*;
use crate::{
    capability::Skill,
    id::StreamId,
    state::State,
    wire::{
        Capability, ListenRequest, SessionAcceptance, Severity, Telemetry, TestResponse,
        TestResult, TestStatus, listen_request, listen_response, test_response,
    },
};
use rig::Rig;
