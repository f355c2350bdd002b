//! The messages of `vectors/`, with what a validator must say of each. `vectors/index.json` says the same for others.

use super::Vector;
use crate::Code;

macro_rules! vector {
    ($file:literal, $clause:literal, $code:expr) => {
        Vector {
            file: $file,
            clause: $clause,
            message: include_bytes!(concat!("../../vectors/", $file)),
            code: $code,
        }
    };
}

/// All of them.
pub const VECTORS: [Vector; 81] = [
    vector!("valid/sample-hotel.json", "SACP-6-1", None),
    vector!("valid/sample-feedback.json", "SACP-6-1", None),
    vector!("valid/sample-spawn.json", "SACP-6-1", None),
    vector!("valid/sample-join.json", "SACP-6-1", None),
    vector!("valid/least.json", "SACP-2-1", None),
    vector!("invalid/no-goal.json", "SACP-2-1", Some(Code::MissingField)),
    vector!("invalid/no-plan.json", "SACP-2-1", Some(Code::MissingField)),
    vector!(
        "invalid/empty-goal.json",
        "SACP-2-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/goal-number.json",
        "SACP-2-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/plan-object.json",
        "SACP-2-1",
        Some(Code::MalformedPlan)
    ),
    vector!(
        "invalid/act-two-parts.json",
        "SACP-2-2",
        Some(Code::MalformedPlan)
    ),
    vector!(
        "invalid/act-four-parts.json",
        "SACP-2-2",
        Some(Code::MalformedPlan)
    ),
    vector!(
        "invalid/act-empty-verb.json",
        "SACP-2-2",
        Some(Code::MalformedPlan)
    ),
    vector!(
        "invalid/act-tool-number.json",
        "SACP-2-2",
        Some(Code::MalformedPlan)
    ),
    vector!(
        "invalid/act-params-list.json",
        "SACP-2-2",
        Some(Code::MalformedPlan)
    ),
    vector!(
        "invalid/act-string.json",
        "SACP-2-2",
        Some(Code::MalformedPlan)
    ),
    vector!("valid/group-nested.json", "SACP-2-3", None),
    vector!("valid/group-without-join.json", "SACP-2-3", None),
    vector!(
        "invalid/join-alone.json",
        "SACP-2-3",
        Some(Code::MalformedPlan)
    ),
    vector!(
        "invalid/join-in-group.json",
        "SACP-2-3",
        Some(Code::MalformedPlan)
    ),
    vector!(
        "invalid/group-with-more.json",
        "SACP-2-3",
        Some(Code::MalformedPlan)
    ),
    vector!(
        "invalid/group-empty.json",
        "SACP-2-7",
        Some(Code::MalformedPlan)
    ),
    vector!("valid/plan-empty.json", "SACP-2-7", None),
    vector!(
        "invalid/msg-id-number.json",
        "SACP-2-4",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/msg-id-empty.json",
        "SACP-2-4",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/reply-to-null.json",
        "SACP-2-4",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/ctx-list.json",
        "SACP-2-4",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/test-mode-text.json",
        "SACP-2-4",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/test-mode-in-ctx.json",
        "SACP-2-4",
        Some(Code::MalformedMessage)
    ),
    vector!("valid/all-members.json", "SACP-2-4", None),
    vector!("valid/out-fmt-raw.json", "SACP-2-5", None),
    vector!(
        "invalid/out-fmt-other.json",
        "SACP-2-5",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/state-lower.json",
        "SACP-2-6",
        Some(Code::InvalidState)
    ),
    vector!(
        "invalid/state-of-1-0.json",
        "SACP-2-6",
        Some(Code::InvalidState)
    ),
    vector!("valid/state-done.json", "SACP-2-6", None),
    vector!(
        "invalid/version-0-2.json",
        "SACP-2-8",
        Some(Code::UnsupportedVersion)
    ),
    vector!(
        "invalid/version-number.json",
        "SACP-2-8",
        Some(Code::MalformedMessage)
    ),
    vector!("valid/version-0-1.json", "SACP-2-8", None),
    vector!("valid/subtask.json", "SACP-2-9", None),
    vector!("valid/subtask-text-param.json", "SACP-2-9", None),
    vector!(
        "invalid/subtask-broken.json",
        "SACP-2-9",
        Some(Code::MalformedPlan)
    ),
    vector!(
        "invalid/subtask-in-params-broken.json",
        "SACP-2-9",
        Some(Code::MissingField)
    ),
    vector!(
        "invalid/subtask-too-deep.json",
        "SACP-2-9",
        Some(Code::MalformedMessage)
    ),
    vector!("valid/unknown-member.json", "SACP-2-10", None),
    vector!(
        "invalid/prose.json",
        "SACP-8-3",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/other-json.json",
        "SACP-8-3",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/twice-one-member.json",
        "SACP-8-3",
        Some(Code::MalformedMessage)
    ),
    vector!("valid/v1-least.json", "SACP1-4-1", None),
    vector!("valid/v1-patch.json", "SACP1-4-1", None),
    vector!(
        "invalid/v1-minor.json",
        "SACP1-4-1",
        Some(Code::UnsupportedVersion)
    ),
    vector!(
        "invalid/v1-no-sender.json",
        "SACP1-4-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-offset.json",
        "SACP1-4-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-unknown-member.json",
        "SACP1-4-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-no-steps.json",
        "SACP1-4-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-id-space.json",
        "SACP1-4-2",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-id-long.json",
        "SACP1-4-2",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-verb-long.json",
        "SACP1-4-2",
        Some(Code::MalformedMessage)
    ),
    vector!("valid/v1-names.json", "SACP1-4-2", None),
    vector!("valid/v1-done.json", "SACP1-4-3", None),
    vector!(
        "invalid/v1-done-without-result.json",
        "SACP1-4-3",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-error-while-pending.json",
        "SACP1-4-3",
        Some(Code::MalformedMessage)
    ),
    vector!("valid/v1-ext.json", "SACP1-4-4", None),
    vector!(
        "invalid/v1-ext-name.json",
        "SACP1-4-4",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-attempt-zero.json",
        "SACP1-4-4",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-metrics-open.json",
        "SACP1-4-4",
        Some(Code::MalformedMessage)
    ),
    vector!("valid/v1-step.json", "SACP1-6-1", None),
    vector!(
        "invalid/v1-step-member.json",
        "SACP1-6-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-timeout-zero.json",
        "SACP1-6-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-retry-without-attempts.json",
        "SACP1-6-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-fallback-unnamed.json",
        "SACP1-6-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-tuple.json",
        "SACP1-15-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-same-id.json",
        "SACP1-6-2",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-unknown-dependency.json",
        "SACP1-6-2",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-self-dependency.json",
        "SACP1-6-2",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-cycle.json",
        "SACP1-6-2",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-cycle-over-fallback.json",
        "SACP1-6-2",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-same-output.json",
        "SACP1-6-2",
        Some(Code::MalformedMessage)
    ),
    vector!("valid/v1-output-of-fallback.json", "SACP1-6-2", None),
    vector!("valid/v1-failed.json", "SACP1-7-1", None),
    vector!(
        "invalid/v1-code-lower.json",
        "SACP1-7-1",
        Some(Code::MalformedMessage)
    ),
    vector!(
        "invalid/v1-result-without-outputs.json",
        "SACP1-7-1",
        Some(Code::MalformedMessage)
    ),
];
