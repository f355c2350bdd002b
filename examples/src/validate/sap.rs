//! `sap-task` and `sap-result`: the messages of SAP V2.0.

use sap::validate::{Options, contract_advice, decode_result, decode_task, findings};
use ubos_common::json::Limits;
use ubos_common::violation::{Profile, Report};

use super::kind::Kind;

/// A task.
pub const TASK: Kind = Kind {
    name: "sap-task",
    about: "a task of SAP V2.0",
    profiles: &[STRICT, LENIENT],
    max_bytes: MAX_BYTES,
    judge: task,
};

/// A result.
pub const RESULT: Kind = Kind {
    name: "sap-result",
    about: "a result of SAP V2.0",
    profiles: &[STRICT, LENIENT],
    max_bytes: MAX_BYTES,
    judge: |bytes, profile| findings(&decode_result(bytes, &options(profile))),
};

fn task(bytes: &[u8], profile: Option<&str>) -> Report {
    let outcome = decode_task(bytes, &options(profile));
    let mut report = findings(&outcome);
    if let Ok((task, _)) = &outcome {
        report.extend_under("", contract_advice(task));
    }
    report
}

fn options(profile: Option<&str>) -> Options {
    let profile = match profile {
        Some(LENIENT) => Profile::Lenient,
        _ => Profile::Strict,
    };
    Options::from(profile).with_limits(Limits::default().with_max_bytes(MAX_BYTES))
}

const STRICT: &str = "strict";
const LENIENT: &str = "lenient";
const MAX_BYTES: usize = 4 << 20;
