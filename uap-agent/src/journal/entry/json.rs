//! The JSON of entries, read strictly.

use std::collections::BTreeMap;
use std::sync::Arc;

use core::time::Duration;
use ubos_common::json::{Fault, MemberWriter, RawBuf, RawObject, Read, Reader, Write, escape_into};
use ubos_common::time::{Mono, Now, Timestamp};
use upp::Message;

use super::super::answer::{AnswerJson, Findings, object};
use super::super::lease::LeaseEntry;
use super::super::question::{Decision, Question, QuestionKind, Verdict, call_digest};
use super::types::{
    BeginEntry, EffectEntry, EndEntry, Entry, Fingerprint, HexDigest, Kind, VERSION,
};

impl BeginEntry {
    pub(super) fn json(&self) -> BeginJson {
        let mut json = BeginJson::new(
            self.version,
            Arc::clone(&self.agent_id),
            self.strategy.clone(),
            self.has_hooks,
            self.layers.clone(),
            self.retries,
            self.repairs,
            self.plan_events,
            self.saves,
            format!("{:016x}", self.seed),
            self.program.clone(),
            self.input.clone(),
            object(&self.state),
        );
        json.session_id.clone_from(&self.session_id);
        json.approvals = self.approvals.then_some(true);
        if self.version > 1 {
            json.owner = Some(Arc::clone(&self.owner));
        }
        json.term_ms = self.term.map(millis);
        json
    }
}

/// A term in milliseconds.
fn millis(term: Duration) -> u64 {
    u64::try_from(term.as_millis()).unwrap_or(u64::MAX)
}

impl BeginJson {
    pub(super) fn read(self, at: Now, findings: &mut Findings<'_>) -> Option<Entry> {
        if !(1..=VERSION).contains(&self.version) {
            let text = format!("version 1 to {VERSION} wanted, {} seen", self.version);
            findings.refuse("/begin/version", text);
        }
        let is_hex = self.seed.len() == 16 && self.seed.bytes().all(|b| b.is_ascii_hexdigit());
        let seed = u64::from_str_radix(&self.seed, 16).ok().filter(|_| is_hex);
        if seed.is_none() {
            findings.refuse("/begin/seed", "16 hexadecimal digits wanted");
        }
        let state = findings.state("/begin/state", &self.state);
        Some(Entry::Begin(Box::new(BeginEntry {
            at,
            version: self.version,
            owner: self.owner.unwrap_or_default(),
            term: self.term_ms.map(Duration::from_millis),
            approvals: self.approvals == Some(true),
            agent_id: self.agent_id,
            session_id: self.session_id,
            strategy: self.strategy,
            has_hooks: self.hooks,
            layers: self.layers,
            retries: self.retries,
            repairs: self.repairs,
            plan_events: self.plan_events,
            saves: self.saves,
            seed: seed?,
            program: self.program,
            input: self.input,
            state: state?,
        })))
    }
}

impl EffectJson {
    pub(super) fn read(self, findings: &mut Findings<'_>) -> Option<Entry> {
        let kind = Kind::of(&self.kind);
        if kind.is_none() {
            findings.refuse("/effect/kind", "infer, tool, hook, sleep or save wanted");
        }
        Some(Entry::Effect(EffectEntry {
            id: self.id,
            kind: kind?,
            fingerprint: Fingerprint {
                whole: self.print.0,
                content: self.content.0,
            },
        }))
    }
}

ubos_common::wire! {
    /// An entry: exactly one of its kinds.
    pub(super) struct EntryJson {
        /// The place in the journal, from 0.
        required n: u64 = "n", "UAP-12-5";
        /// The time of a start, a result, a lease, a question or a decision.
        nullable at: Clocks = "at", "UAP-12-5";
        /// The first entry.
        nullable begin: Box<BeginJson> = "begin", "UAP-12-5";
        /// A request.
        nullable effect: EffectJson = "effect", "UAP-12-5";
        /// A result.
        nullable answer: AnswerJson = "answer", "UAP-12-5";
        /// The run is resumed here: so version 1 wrote it.
        nullable resumed: bool = "resumed", "UAP-12-5";
        /// The run is taken over, or its lease is renewed or released.
        nullable lease: LeaseJson = "lease", "UAP-12-5";
        /// A person is asked.
        nullable question: Box<QuestionJson> = "question", "UAP-12-5";
        /// A person has decided.
        nullable decision: Box<DecisionJson> = "decision", "UAP-12-5";
        /// The last entry.
        nullable end: EndJson = "end", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// The start of a run.
    pub(super) struct BeginJson {
        /// The version of this format.
        required version: u64 = "version", "UAP-12-5";
        /// The agent's id.
        required agent_id: Arc<str> = "agentId", "UAP-12-5";
        /// The session under which states are saved.
        nullable session_id: Arc<str> = "sessionId", "UAP-12-5";
        /// The name of the strategy.
        required strategy: Box<str> = "strategy", "UAP-12-5";
        /// Whether hooks are called.
        required hooks: bool = "hooks", "UAP-12-5";
        /// The names of the middleware.
        required layers: Vec<String> = "layers", "UAP-12-5";
        /// Whether there is a retry strategy.
        required retries: bool = "retries", "UAP-12-5";
        /// Whether there is a repair policy.
        required repairs: bool = "repairs", "UAP-12-5";
        /// Whether plans have events of their own.
        required plan_events: bool = "planEvents", "UAP-12-5";
        /// Whether states are saved.
        required saves: bool = "saves", "UAP-12-5";
        /// The seed of all ids, as 16 hexadecimal digits.
        required seed: String = "seed", "UAP-12-5";
        /// Fingerprints of model, tools and texts.
        required program: BTreeMap<String, HexDigest> = "program", "UAP-12-5";
        /// The input.
        required input: Message = "input", "UAP-12-5";
        /// The state, without the input.
        required state: RawObject = "state", "UAP-12-5";
        /// Whether calls may need approval.
        nullable approvals: bool = "approvals", "UAP-12-5";
        /// The owner of the first lease.
        nullable owner: Arc<str> = "owner", "UAP-12-5";
        /// Its term, in milliseconds.
        nullable term_ms: u64 = "termMs", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// A lease.
    pub(super) struct LeaseJson {
        /// The epoch.
        required epoch: u64 = "epoch", "UAP-12-5";
        /// The owner.
        required owner: Arc<str> = "owner", "UAP-12-5";
        /// The term, in milliseconds.
        nullable term_ms: u64 = "termMs", "UAP-12-5";
        /// Whether the lease is given up.
        nullable released: bool = "released", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// A question to a person.
    pub(super) struct QuestionJson {
        /// The effect of the call.
        required effect: u64 = "effect", "UAP-12-5";
        /// The kind: approval or outcome.
        required kind: Box<str> = "kind", "UAP-12-5";
        /// The tool.
        required tool: Arc<str> = "tool", "UAP-12-5";
        /// The id of the call.
        required call_id: Arc<str> = "callId", "UAP-12-5";
        /// The arguments.
        required arguments: RawObject = "arguments", "UAP-12-5";
        /// The digest of tool, call and arguments.
        required digest: HexDigest = "digest", "UAP-12-5";
        /// From when on nobody may answer.
        nullable expires: Timestamp = "expires", "UAP-12-5";
        /// Who may answer.
        nullable may_answer: Vec<String> = "mayAnswer", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// A person's decision: exactly one of approved, rejected and result.
    pub(super) struct DecisionJson {
        /// The effect of the call.
        required effect: u64 = "effect", "UAP-12-5";
        /// The digest of the question.
        required digest: HexDigest = "digest", "UAP-12-5";
        /// Who decided.
        required by: Box<str> = "by", "UAP-12-5";
        /// The tool is called.
        nullable approved: bool = "approved", "UAP-12-5";
        /// The reason for which the tool is not called.
        nullable rejected: Box<str> = "rejected", "UAP-12-5";
        /// The result in place of the tool's.
        nullable result: RawBuf = "result", "UAP-12-5";
    }
}

impl LeaseJson {
    pub(super) fn of(lease: &LeaseEntry) -> Self {
        let mut json = Self::new(lease.epoch, Arc::clone(&lease.owner));
        json.term_ms = lease.term.map(millis);
        json.released = lease.is_released.then_some(true);
        json
    }

    pub(super) fn read(self, at: Now) -> Entry {
        Entry::Lease(LeaseEntry {
            at,
            epoch: self.epoch,
            owner: self.owner,
            term: self.term_ms.map(Duration::from_millis),
            is_released: self.released == Some(true),
        })
    }
}

impl QuestionJson {
    pub(super) fn of(question: &Question) -> Self {
        let mut json = Self::new(
            question.effect,
            question.kind.as_str().into(),
            Arc::clone(&question.tool),
            Arc::clone(&question.call_id),
            question.arguments.clone(),
            HexDigest(question.digest),
        );
        json.expires = question.expires;
        json.may_answer = Some(question.may_answer.clone()).filter(|names| !names.is_empty());
        json
    }

    pub(super) fn read(self, at: Now, findings: &mut Findings<'_>) -> Option<Entry> {
        let kind = QuestionKind::of(&self.kind);
        if kind.is_none() {
            findings.refuse("/question/kind", "approval or outcome wanted");
        }
        let digest = call_digest(&self.tool, &self.call_id, &self.arguments);
        if digest != self.digest.0 {
            findings.refuse("/question/digest", "the digest of the call wanted");
        }
        Some(Entry::Question(
            at,
            Box::new(Question {
                effect: self.effect,
                kind: kind?,
                tool: self.tool,
                call_id: self.call_id,
                arguments: self.arguments,
                digest,
                asked: at.wall,
                expires: self.expires,
                may_answer: self.may_answer.unwrap_or_default(),
            }),
        ))
    }
}

impl DecisionJson {
    pub(super) fn of(decision: &Decision) -> Self {
        let digest = HexDigest(decision.digest);
        let mut json = Self::new(decision.effect, digest, decision.by.clone());
        match &decision.verdict {
            Verdict::Approve => json.approved = Some(true),
            Verdict::Reject(reason) => json.rejected = Some(reason.clone()),
            Verdict::Answer(result) => json.result = Some(result.clone()),
        }
        json
    }

    pub(super) fn read(self, at: Now, findings: &mut Findings<'_>) -> Option<Entry> {
        let approved = self.approved.filter(|approved| *approved);
        let verdict = match (approved, self.rejected, self.result) {
            (Some(_), None, None) => Verdict::Approve,
            (None, Some(reason), None) => Verdict::Reject(reason),
            (None, None, Some(result)) => Verdict::Answer(result),
            _ => {
                let wanted = "exactly one of approved, rejected and result wanted";
                findings.refuse("/decision", wanted);
                return None;
            }
        };
        Some(Entry::Decision(
            at,
            Box::new(Decision {
                effect: self.effect,
                digest: self.digest.0,
                by: self.by,
                verdict,
            }),
        ))
    }
}

ubos_common::wire! {
    /// A request.
    pub(super) struct EffectJson {
        /// The id of the effect.
        required id: u64 = "id", "UAP-12-5";
        /// The kind: infer, tool, hook, sleep or save.
        required kind: Box<str> = "kind", "UAP-12-5";
        /// The fingerprint of the whole.
        required print: HexDigest = "print", "UAP-12-5";
        /// The fingerprint without ids and times.
        required content: HexDigest = "content", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// How a run ended.
    pub(super) struct EndJson {
        /// Whether the run ended with a result.
        required success: bool = "success", "UAP-12-5";
        /// The fingerprint of the whole.
        required print: HexDigest = "print", "UAP-12-5";
        /// The fingerprint without ids and times.
        required content: HexDigest = "content", "UAP-12-5";
    }
}

impl EndJson {
    pub(super) fn read(self) -> Entry {
        Entry::End(EndEntry {
            success: self.success,
            fingerprint: Fingerprint {
                whole: self.print.0,
                content: self.content.0,
            },
        })
    }
}

impl<'a> Read<'a> for HexDigest {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.str()?;
        let digest = text.parse().map(Self);
        digest.map_err(|_| reader.bad_value(at, "64 lower-case hexadecimal digits"))
    }
}

impl Write for HexDigest {
    fn write(&self, out: &mut Vec<u8>) {
        escape_into(out, &self.0.to_string());
    }
}

/// The monotonic clock and the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clocks(pub(super) Now);

ubos_common::wire! {
    /// The monotonic clock and the wall clock.
    struct ClocksJson {
        /// The monotonic clock, in nanoseconds.
        required mono: u64 = "mono", "UAP-12-5";
        /// The wall clock.
        required wall: Timestamp = "wall", "UAP-12-5";
    }
}

impl<'a> Read<'a> for Clocks {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let at = ClocksJson::read(reader)?;
        Ok(Self(Now::new(Mono::from_nanos(at.mono), at.wall)))
    }
}

impl Write for Clocks {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("mono", &self.0.mono.as_nanos());
        object.member("wall", &self.0.wall);
        object.end();
    }
}
