//! The hub machine, one clause at a time, in virtual time.

mod bounds;
mod control;
mod durable;
mod execution;
mod identity;
mod leave;
mod loss;
mod placement;
mod places;
mod policy;
mod refusals;
mod resume;
mod rig;
mod table;
mod trace;

use std::time::Duration;

use uap_hub_proto::{
    capability::Skill,
    id::{ClientId, Identity, JobId, SessionId, StreamId},
    message::JobResult,
    role::{Resume, Rpc, hub::*},
    state::State,
    status::{Code, Status},
    wire::{
        AgentRegistration, Capability, ListenRequest, Payload, PayloadRequirement,
        SessionAcceptance, Severity, Telemetry, TestCapability, TestResponse, TestResult,
        TestStatus, TranslationResponse, TranslationResult, capability::Format, listen_request,
        listen_response, session_proposal, test_response, translation_response,
    },
};
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};

use rig::{Rig, ended, word, words};
