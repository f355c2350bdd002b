//! The reports of an agent, for tests and translations alike.

use prost_types::Timestamp;

use crate::{
    capability::Kind,
    message::JobResult,
    wire::{
        Telemetry, TestResponse, TestStatus, TranslationResponse, TranslationStatus, test_response,
        translation_response,
    },
};

/// One report.
#[derive(Debug)]
pub(crate) enum Report {
    Status {
        kind: Kind,
        state: i32,
        message: String,
    },
    Telemetry(Kind, Telemetry),
    Result(JobResult),
}

impl Report {
    /// The time and the report of a message; no report where it has no event.
    // impl: HUB-4-2
    pub(crate) fn of_test(message: TestResponse) -> (Option<Timestamp>, Option<Self>) {
        let report = message.event.map(|event| match event {
            test_response::Event::Status(TestStatus { state, message }) => Self::Status {
                kind: Kind::Test,
                state,
                message,
            },
            test_response::Event::Telemetry(telemetry) => Self::Telemetry(Kind::Test, telemetry),
            test_response::Event::Result(result) => Self::Result(result.into()),
        });
        (message.timestamp, report)
    }

    /// As [`of_test`](Self::of_test).
    pub(crate) fn of_translation(
        message: TranslationResponse,
    ) -> (Option<Timestamp>, Option<Self>) {
        let report = message.event.map(|event| match event {
            translation_response::Event::Status(TranslationStatus { state, message }) => {
                Self::Status {
                    kind: Kind::Translation,
                    state,
                    message,
                }
            }
            translation_response::Event::Telemetry(telemetry) => {
                Self::Telemetry(Kind::Translation, telemetry)
            }
            translation_response::Event::Result(result) => Self::Result(result.into()),
        });
        (message.timestamp, report)
    }

    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Status { kind, .. } | Self::Telemetry(kind, _) => *kind,
            Self::Result(result) => result.kind(),
        }
    }
}
