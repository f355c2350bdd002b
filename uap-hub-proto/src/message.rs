//! Constructors of wire messages, and results of either kind.

use bytes::Bytes;

use crate::{
    capability::{Kind, Skill},
    state::State,
    wire::{
        Attachment, Capability, Payload, PayloadRequirement, Severity, StepReport, StepStatus,
        Summary, Telemetry, TestCapability, TestResult, TestStatus, TranslationCapability,
        TranslationResult, TranslationStatus, capability::Format,
    },
};

impl Payload {
    /// An empty payload of a type.
    pub fn new(kind: impl Into<String>) -> Self {
        Self {
            r#type: kind.into(),
            attachment: None,
            metadata: None,
        }
    }

    /// A payload that is a file.
    pub fn file(
        kind: impl Into<String>,
        name: impl Into<String>,
        mime_type: impl Into<String>,
        data: impl Into<Bytes>,
    ) -> Self {
        Self {
            attachment: Some(Attachment::new(name, mime_type, data)),
            ..Self::new(kind)
        }
    }

    /// Sets the metadata; [`convert`](crate::convert) makes it from JSON.
    #[must_use]
    pub fn with_metadata(mut self, metadata: prost_types::Struct) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// The attached bytes, empty where there are none.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.attachment
            .as_ref()
            .map_or(&[], |attachment| &attachment.data)
    }
}

impl Attachment {
    /// A named file.
    pub fn new(
        name: impl Into<String>,
        mime_type: impl Into<String>,
        data: impl Into<Bytes>,
    ) -> Self {
        Self {
            name: name.into(),
            mime_type: mime_type.into(),
            data: data.into(),
        }
    }
}

impl Telemetry {
    /// A log line, without attachments, time or source.
    pub fn new(severity: Severity, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            severity: severity.into(),
            ..Self::default()
        }
    }
}

impl TestResult {
    /// A result in `state`, with a description.
    pub fn new(state: State, message: impl Into<String>) -> Self {
        let status = TestStatus {
            state: state.to_wire(Kind::Test),
            message: message.into(),
        };
        Self {
            status: Some(status),
            ..Self::default()
        }
    }

    /// The result of a completed test.
    pub fn completed(message: impl Into<String>) -> Self {
        Self::new(State::Completed, message)
    }

    /// The result of a failed test.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(State::Failed, message)
    }

    /// Sets the status: a state, with a description.
    #[must_use]
    pub fn with_status(self, state: State, message: impl Into<String>) -> Self {
        Self {
            status: Self::new(state, message).status,
            ..self
        }
    }

    /// Adds a step report.
    #[must_use]
    pub fn with_report(mut self, report: StepReport) -> Self {
        self.reports.push(report);
        self
    }

    /// Adds a file.
    #[must_use]
    pub fn with_attachment(mut self, attachment: Attachment) -> Self {
        self.attachments.push(attachment);
        self
    }

    /// Sets the summary.
    #[must_use]
    pub fn with_summary(mut self, summary: Summary) -> Self {
        self.summary = Some(summary);
        self
    }
}

impl PayloadRequirement {
    /// Payloads of a type: at most one, of any MIME type, and none if need be.
    pub fn new(kind: impl Into<String>) -> Self {
        Self {
            r#type: kind.into(),
            ..Self::default()
        }
    }

    /// A job must have one.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// A job may have several.
    #[must_use]
    pub const fn repeatable(mut self) -> Self {
        self.is_repeatable = true;
        self
    }

    /// Accepts a MIME type; without any, all are accepted.
    #[must_use]
    pub fn with_mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.accepted_mime_types.push(mime_type.into());
        self
    }
}

impl TestCapability {
    /// Adds a payload that it takes.
    #[must_use]
    pub fn with_payload(mut self, payload: PayloadRequirement) -> Self {
        self.payloads.push(payload);
        self
    }
}

impl TranslationCapability {
    /// Adds a payload that it takes.
    #[must_use]
    pub fn with_source(mut self, payload: PayloadRequirement) -> Self {
        self.source_payloads.push(payload);
        self
    }

    /// Adds a payload that it makes.
    #[must_use]
    pub fn with_target(mut self, payload: PayloadRequirement) -> Self {
        self.target_payloads.push(payload);
        self
    }
}

impl TranslationResult {
    /// A result in `state`, with a description.
    pub fn new(state: State, message: impl Into<String>) -> Self {
        let status = TranslationStatus {
            state: state.to_wire(Kind::Translation),
            message: message.into(),
        };
        Self {
            status: Some(status),
            ..Self::default()
        }
    }

    /// The result of a translation that made `payloads`.
    #[must_use]
    pub fn completed(payloads: Vec<Payload>) -> Self {
        Self {
            payloads,
            ..Self::new(State::Completed, "")
        }
    }

    /// Sets the status: a state, with a description.
    #[must_use]
    pub fn with_status(self, state: State, message: impl Into<String>) -> Self {
        Self {
            status: Self::new(state, message).status,
            ..self
        }
    }

    /// Sets the summary.
    #[must_use]
    pub fn with_summary(mut self, summary: Summary) -> Self {
        self.summary = Some(summary);
        self
    }
}

impl StepReport {
    /// A step without children.
    pub fn new(name: impl Into<String>, status: StepStatus) -> Self {
        Self {
            name: name.into(),
            status: status.into(),
            ..Self::default()
        }
    }
}

impl Summary {
    /// A summary with metadata alone.
    #[must_use]
    pub const fn of(metadata: prost_types::Struct) -> Self {
        Self {
            total_duration: None,
            start_time: None,
            metadata: Some(metadata),
        }
    }
}

impl From<Skill> for Capability {
    /// The capability without requirements.
    fn from(skill: Skill) -> Self {
        let format = match skill.kind() {
            Kind::Test => Format::Test(skill.name().into()),
            Kind::Translation => Format::Translation(skill.name().into()),
        };
        Self {
            format: Some(format),
        }
    }
}

/// Tests of a type, without requirements.
impl From<&str> for TestCapability {
    fn from(name: &str) -> Self {
        Self {
            r#type: name.to_owned(),
            payloads: Vec::new(),
        }
    }
}

/// Translations to a format, without requirements.
impl From<&str> for TranslationCapability {
    fn from(name: &str) -> Self {
        Self {
            r#type: name.to_owned(),
            ..Self::default()
        }
    }
}

/// The result of a session, as the agent sent it.
#[derive(Clone, Debug, PartialEq)]
// exhaustive: one for each kind
pub enum JobResult {
    /// Of a test.
    Test(TestResult),
    /// Of a translation.
    Translation(TranslationResult),
}

impl JobResult {
    /// A result of `kind` with a state and a description alone.
    pub fn bare(kind: Kind, state: State, message: impl Into<String>) -> Self {
        match kind {
            Kind::Test => Self::Test(TestResult::new(state, message)),
            Kind::Translation => Self::Translation(TranslationResult::new(state, message)),
        }
    }

    /// Test or translation.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Test(_) => Kind::Test,
            Self::Translation(_) => Kind::Translation,
        }
    }

    /// Its state; `None` if the status is missing, unspecified or unknown.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        let number = match self {
            Self::Test(result) => result.status.as_ref()?.state,
            Self::Translation(result) => result.status.as_ref()?.state,
        };
        State::from_wire(self.kind(), number)
    }

    /// The message of its status; may be empty.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Test(result) => result.status.as_ref().map_or("", |status| &status.message),
            Self::Translation(result) => {
                result.status.as_ref().map_or("", |status| &status.message)
            }
        }
    }
}

impl From<TestResult> for JobResult {
    fn from(result: TestResult) -> Self {
        Self::Test(result)
    }
}

impl From<TranslationResult> for JobResult {
    fn from(result: TranslationResult) -> Self {
        Self::Translation(result)
    }
}
