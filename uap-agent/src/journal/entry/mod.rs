//! The entries of a journal, and their JSON.

mod json;
mod types;

use std::sync::Arc;

use ubos_common::json::{DecodeError, Limits, RawObject, read_raw};
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::violation::Profile;

use super::answer::{Findings, object};
use super::lease::LeaseEntry;
use json::{Clocks, DecisionJson, EffectJson, EndJson, EntryJson, LeaseJson, QuestionJson};
pub(super) use types::{
    AnswerEntry, BeginEntry, EffectEntry, EndEntry, Entry, Fingerprint, HexDigest, Kind, VERSION,
};

impl Entry {
    /// The JSON of the entry at a place, from 0.
    pub(in crate::journal) fn write_at(&self, n: u64) -> RawObject {
        let mut json = EntryJson::new(n);
        json.at = self.at().map(Clocks);
        match self {
            Self::Begin(begin) => json.begin = Some(Box::new(begin.json())),
            Self::Effect(effect) => {
                let (whole, content) = (
                    HexDigest(effect.fingerprint.whole),
                    HexDigest(effect.fingerprint.content),
                );
                let kind = effect.kind.as_str().into();
                json.effect = Some(EffectJson::new(effect.id, kind, whole, content));
            }
            Self::Answer(answer) => json.answer = Some(answer.result.json(answer.id)),
            Self::Lease(lease) => json.lease = Some(LeaseJson::of(lease)),
            Self::Question(_, question) => {
                json.question = Some(Box::new(QuestionJson::of(question)))
            }
            Self::Decision(_, decision) => {
                json.decision = Some(Box::new(DecisionJson::of(decision)))
            }
            Self::End(end) => {
                let (whole, content) = (
                    HexDigest(end.fingerprint.whole),
                    HexDigest(end.fingerprint.content),
                );
                json.end = Some(EndJson::new(end.success, whole, content));
            }
        }
        object(&json)
    }

    /// Reads the entry at a place strictly. Pointers in findings are relative to the entry.
    pub(in crate::journal) fn read_at(
        n: u64,
        raw: &RawObject,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        let (json, _) = read_raw::<EntryJson>(raw.as_raw(), limits, Profile::Strict)?;
        let mut findings = Findings::new(limits);
        if json.n != n {
            findings.refuse("/n", format!("{n} wanted, {} seen", json.n));
        }
        let has_time = json.begin.is_some()
            || json.answer.is_some()
            || json.lease.is_some()
            || json.question.is_some()
            || json.decision.is_some();
        if json.at.is_some() != has_time {
            findings.refuse(
                "/at",
                "a time at all entries but effects and the end wanted",
            );
        }
        let entry = json.read(limits, &mut findings);
        match entry {
            Some(entry) if findings.report.is_valid() => Ok(entry),
            _ => Err(DecodeError::Invalid(findings.report)),
        }
    }

    /// When it was written; `None` for effects and the end.
    pub(in crate::journal) fn at(&self) -> Option<Now> {
        match self {
            Self::Begin(begin) => Some(begin.at),
            Self::Answer(answer) => Some(answer.at),
            Self::Lease(lease) => Some(lease.at),
            Self::Question(at, _) | Self::Decision(at, _) => Some(*at),
            Self::Effect(_) | Self::End(_) => None,
        }
    }
}

impl EntryJson {
    /// The one entry that is present.
    fn read(self, limits: &Limits, findings: &mut Findings<'_>) -> Option<Entry> {
        let kinds = [
            self.begin.is_some(),
            self.effect.is_some(),
            self.answer.is_some(),
            self.resumed == Some(true),
            self.lease.is_some(),
            self.question.is_some(),
            self.decision.is_some(),
            self.end.is_some(),
        ];
        if kinds.into_iter().filter(|is_there| *is_there).count() != 1 {
            let wanted =
                "exactly one of begin, effect, answer, lease, question, decision and end wanted";
            findings.refuse("", wanted);
            return None;
        }
        if let Some(effect) = self.effect {
            return effect.read(findings);
        }
        let at = self
            .at
            .map_or(Now::new(Mono::ZERO, Timestamp::EPOCH), |at| at.0);
        if let Some(answer) = self.answer {
            return match answer.read(limits) {
                Ok((id, result)) => Some(Entry::Answer(AnswerEntry { at, id, result })),
                Err(error) => {
                    findings.take("/answer", error);
                    None
                }
            };
        }
        self.begin
            .and_then(|begin| begin.read(at, findings))
            .or_else(|| self.lease.map(|lease| lease.read(at)))
            .or_else(|| self.question?.read(at, findings))
            .or_else(|| self.decision?.read(at, findings))
            .or_else(|| self.end.map(EndJson::read))
            .or_else(|| self.resumed.map(|_| resumed(at)))
    }
}

/// How version 1 wrote a lease: its epoch is counted by whoever reads the whole.
fn resumed(at: Now) -> Entry {
    Entry::Lease(LeaseEntry {
        at,
        epoch: 0,
        owner: Arc::default(),
        term: None,
        is_released: false,
    })
}
