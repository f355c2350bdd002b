//! The entries of a journal, and their JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::canon::Digest;
use ubos_common::json::{
    DecodeError, Fault, Limits, MemberWriter, RawObject, Read, Reader, Write, escape_into, read_raw,
};
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::violation::Profile;
use upp::Message;

use super::answer::{AnswerJson, EffectResult, Findings, object};
use crate::engine::EffectId;
use crate::state::AgentState;

/// The version of the format.
const VERSION: u64 = 1;

/// One entry.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// The start of the run: the first entry, and no other.
    Begin(Box<BeginEntry>),
    /// An effect was requested.
    Effect(EffectEntry),
    /// An effect has a result.
    Answer(AnswerEntry),
    /// The run is resumed: effects without a result are requested again.
    Resumed,
    /// The run has ended.
    End(EndEntry),
}

/// The start of a run: everything that is needed to repeat it.
#[derive(Clone, Debug)]
pub(super) struct BeginEntry {
    pub(super) at: Now,
    pub(super) agent_id: Arc<str>,
    pub(super) session_id: Option<Arc<str>>,
    pub(super) strategy: Box<str>,
    pub(super) has_hooks: bool,
    /// Names of the middleware, outermost first.
    pub(super) layers: Vec<String>,
    /// Whether there is a retry strategy.
    pub(super) retries: bool,
    /// Whether there is a repair policy.
    pub(super) repairs: bool,
    pub(super) plan_events: bool,
    pub(super) saves: bool,
    /// The seed of all ids of the run.
    pub(super) seed: u64,
    /// Fingerprints of the options of the model.
    pub(super) program: BTreeMap<String, HexDigest>,
    pub(super) input: Message,
    pub(super) state: AgentState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EffectEntry {
    pub(super) id: EffectId,
    pub(super) kind: Kind,
    pub(super) fingerprint: Fingerprint,
}

#[derive(Clone, Debug)]
pub(super) struct AnswerEntry {
    pub(super) at: Now,
    /// `None` for an abort.
    pub(super) id: Option<EffectId>,
    pub(super) result: EffectResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndEntry {
    pub(super) success: bool,
    pub(super) fingerprint: Fingerprint,
}

/// The fingerprint of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// Of the whole request.
    pub(super) whole: Digest,
    /// Of its content without ids and times: equal in two runs that make the same request.
    pub(super) content: Digest,
}

/// The kind of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Infer,
    Tool,
    Hook,
    Sleep,
    Save,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::Tool => "tool",
            Self::Hook => "hook",
            Self::Sleep => "sleep",
            Self::Save => "save",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::Infer, Self::Tool, Self::Hook, Self::Sleep, Self::Save]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

impl Entry {
    /// The JSON of the entry at a place, from 0.
    pub(super) fn write_at(&self, n: u64) -> RawObject {
        let mut json = EntryJson::new(n);
        match self {
            Self::Begin(begin) => {
                json.at = Some(Clocks(begin.at));
                json.begin = Some(begin.json());
            }
            Self::Effect(effect) => {
                let (whole, content) = (
                    HexDigest(effect.fingerprint.whole),
                    HexDigest(effect.fingerprint.content),
                );
                let kind = effect.kind.as_str().into();
                json.effect = Some(EffectJson::new(effect.id, kind, whole, content));
            }
            Self::Answer(answer) => {
                json.at = Some(Clocks(answer.at));
                json.answer = Some(answer.result.json(answer.id));
            }
            Self::Resumed => json.resumed = Some(true),
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
    pub(super) fn read_at(n: u64, raw: &RawObject, limits: &Limits) -> Result<Self, DecodeError> {
        let (json, _) = read_raw::<EntryJson>(raw.as_raw(), limits, Profile::Strict)?;
        let mut findings = Findings::new(limits);
        if json.n != n {
            findings.refuse("/n", format!("{n} wanted, {} seen", json.n));
        }
        if json.at.is_some() != (json.begin.is_some() || json.answer.is_some()) {
            findings.refuse("/at", "a time at the beginning and at answers alone wanted");
        }
        let at = json
            .at
            .map_or(Now::new(Mono::ZERO, Timestamp::EPOCH), |at| at.0);
        let resumed = json.resumed.filter(|resumed| *resumed);
        let entry = match (json.begin, json.effect, json.answer, resumed, json.end) {
            (Some(begin), None, None, None, None) => begin.read(at, &mut findings),
            (None, Some(effect), None, None, None) => effect.read(&mut findings),
            (None, None, Some(answer), None, None) => match answer.read(limits) {
                Ok((id, result)) => Some(Self::Answer(AnswerEntry { at, id, result })),
                Err(error) => {
                    findings.take("/answer", error);
                    None
                }
            },
            (None, None, None, Some(_), None) => Some(Self::Resumed),
            (None, None, None, None, Some(end)) => Some(Self::End(EndEntry {
                success: end.success,
                fingerprint: Fingerprint {
                    whole: end.print.0,
                    content: end.content.0,
                },
            })),
            _ => {
                let wanted = "exactly one of begin, effect, answer, resumed and end wanted";
                findings.refuse("", wanted);
                None
            }
        };
        match entry {
            Some(entry) if findings.report.is_valid() => Ok(entry),
            _ => Err(DecodeError::Invalid(findings.report)),
        }
    }
}

impl BeginEntry {
    fn json(&self) -> BeginJson {
        let mut json = BeginJson::new(
            VERSION,
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
        json
    }
}

impl BeginJson {
    fn read(self, at: Now, findings: &mut Findings<'_>) -> Option<Entry> {
        if self.version != VERSION {
            let text = format!("version {VERSION} wanted, {} seen", self.version);
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
    fn read(self, findings: &mut Findings<'_>) -> Option<Entry> {
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
    struct EntryJson {
        /// The place in the journal, from 0.
        required n: u64 = "n", "UAP-12-5";
        /// The time of a start or of a result.
        nullable at: Clocks = "at", "UAP-12-5";
        /// The first entry.
        nullable begin: BeginJson = "begin", "UAP-12-5";
        /// A request.
        nullable effect: EffectJson = "effect", "UAP-12-5";
        /// A result.
        nullable answer: AnswerJson = "answer", "UAP-12-5";
        /// The run is resumed here.
        nullable resumed: bool = "resumed", "UAP-12-5";
        /// The last entry.
        nullable end: EndJson = "end", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// The start of a run.
    struct BeginJson {
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
    }
}

ubos_common::wire! {
    /// A request.
    struct EffectJson {
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
    struct EndJson {
        /// Whether the run ended with a result.
        required success: bool = "success", "UAP-12-5";
        /// The fingerprint of the whole.
        required print: HexDigest = "print", "UAP-12-5";
        /// The fingerprint without ids and times.
        required content: HexDigest = "content", "UAP-12-5";
    }
}

/// A digest as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HexDigest(pub(super) Digest);

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
struct Clocks(Now);

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
