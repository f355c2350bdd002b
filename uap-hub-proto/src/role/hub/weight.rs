//! What records and events weigh: their bytes, with those that their lists take in memory.

use prost::Message as _;
use prost_types::{Struct, Value, value::Kind};

use super::{JobEvent, Outcome, Record};
use crate::{
    message::JobResult,
    wire::{Payload, StepReport, Summary},
};

impl Record {
    /// The approximate bytes of payloads and results in the record.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Accepted(job) => super::init_bytes(job.skill.name(), &job.payloads),
            Self::Ended(outcome) => outcome.weight(),
        }
    }
}

impl Outcome {
    fn weight(&self) -> usize {
        let result = match &self.result {
            Some(JobResult::Test(result)) => {
                let files = size_of_val(&*result.attachments);
                let summary = summary(result.summary.as_ref());
                result.encoded_len() + files + steps(&result.reports) + summary
            }
            Some(JobResult::Translation(result)) => {
                let summary = summary(result.summary.as_ref());
                result.encoded_len() + payloads(&result.payloads) + summary
            }
            None => 0,
        };
        self.message.len() + result
    }
}

impl JobEvent {
    /// The approximate bytes of an agent's texts and data in the event.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Status { message, .. } => message.len(),
            Self::Telemetry { telemetry, .. } => {
                telemetry.encoded_len() + size_of_val(&*telemetry.attachments)
            }
            Self::Ended(outcome) => outcome.weight(),
            _ => 0,
        }
    }
}

fn steps(reports: &[StepReport]) -> usize {
    let inner = |report: &StepReport| steps(&report.steps) + summary(report.summary.as_ref());
    size_of_val(reports) + reports.iter().map(inner).sum::<usize>()
}

fn summary(summary: Option<&Summary>) -> usize {
    let metadata = summary.and_then(|summary| summary.metadata.as_ref());
    metadata.map_or(0, object)
}

fn payloads(payloads: &[Payload]) -> usize {
    let metadata = payloads.iter().filter_map(|one| one.metadata.as_ref());
    size_of_val(payloads) + metadata.map(object).sum::<usize>()
}

fn object(object: &Struct) -> usize {
    let member = |value| size_of::<(String, Value)>() + inner(value);
    object.fields.values().map(member).sum()
}

/// What a value takes beside itself.
fn inner(value: &Value) -> usize {
    match &value.kind {
        Some(Kind::StructValue(members)) => object(members),
        Some(Kind::ListValue(list)) => {
            size_of_val(&*list.values) + list.values.iter().map(inner).sum::<usize>()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        role::hub::Verdict,
        wire::{Attachment, Severity, Telemetry, TestResult, TranslationResult},
    };

    const MANY: usize = 1_000;

    fn ended(result: impl Into<JobResult>) -> usize {
        let mut outcome = Outcome::new(Verdict::Completed, "");
        outcome.result = Some(result.into());
        JobEvent::Ended(outcome).weight()
    }

    fn with(change: impl FnOnce(&mut TestResult)) -> usize {
        let mut result = TestResult::completed("");
        change(&mut result);
        ended(result)
    }

    /// A list in a list in an object in an object.
    fn list() -> Struct {
        let of = |values| Kind::ListValue(prost_types::ListValue { values });
        let kind = Some(of(vec![Value { kind: None }; MANY]));
        let list = of(vec![Value { kind }]);
        let object = |kind| Struct {
            fields: [("a".to_owned(), Value { kind: Some(kind) })].into(),
        };
        object(Kind::StructValue(object(list)))
    }

    // spec: HUB-4-4
    #[test]
    fn the_words_of_an_end_weigh_what_they_take() {
        let outcome = Outcome::new(Verdict::Failed, "w".repeat(MANY));
        assert_eq!(Record::Ended(outcome.clone()).weight(), MANY);
        assert_eq!(JobEvent::Ended(outcome).weight(), MANY);
    }

    // spec: HUB-4-4
    #[test]
    fn empty_parts_weigh_what_they_take() {
        let value = MANY * size_of::<Value>();
        let attachments = vec![Attachment::default(); MANY];
        let files = MANY * size_of::<Attachment>();
        let mut telemetry = Telemetry::new(Severity::Info, "");
        telemetry.attachments.clone_from(&attachments);
        let at = None;
        assert!(JobEvent::Telemetry { telemetry, at }.weight() > files);
        assert!(with(|_| ()) < 1_000);
        assert!(with(|result| result.attachments = attachments) > files);
        let step = StepReport {
            steps: vec![StepReport::default(); MANY],
            ..StepReport::default()
        };
        let steps = MANY * size_of::<StepReport>();
        assert!(with(|result| result.reports = vec![step]) > steps);
        let summary = Some(Summary {
            metadata: Some(list()),
            ..Summary::default()
        });
        assert!(with(|result| result.summary.clone_from(&summary)) > value);
        let step = StepReport {
            summary: summary.clone(),
            ..StepReport::default()
        };
        assert!(with(|result| result.reports = vec![step]) > value);
        let payloads = vec![Payload::new("p").with_metadata(list()); 3];
        let made = TranslationResult {
            payloads,
            summary,
            ..TranslationResult::default()
        };
        assert!(ended(made) > 4 * value);
    }
}
