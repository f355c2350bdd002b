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
use super::fingerprint::Fingerprint;
use crate::engine::EffectId;
use crate::state::AgentState;

/// What is written.
const VERSION: u64 = 1;

/// One entry.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// The first one, and no other.
    Begin(Box<BeginEntry>),
    /// Something was asked of the world.
    Effect(EffectEntry),
    /// The world answered.
    Answer(AnswerEntry),
    /// Somebody goes on with the run, and asks again what has no answer.
    Resumed,
    /// The run has ended.
    End(EndEntry),
}

/// How a run began: what it takes to begin it again.
#[derive(Clone, Debug)]
pub(super) struct BeginEntry {
    pub(super) at: Now,
    pub(super) agent_id: Arc<str>,
    pub(super) session_id: Option<Arc<str>>,
    pub(super) strategy: Box<str>,
    pub(super) has_hooks: bool,
    /// Names of the middleware, outermost first.
    pub(super) layers: Vec<String>,
    /// Whether somebody says how failed questions are asked again.
    pub(super) retries: bool,
    /// Whether wrong calls and outputs are repaired.
    pub(super) repairs: bool,
    pub(super) plan_events: bool,
    pub(super) saves: bool,
    /// Of all ids that the run makes.
    pub(super) seed: u64,
    /// Fingerprints of what the program gives to every question.
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
    /// None for an abort.
    pub(super) id: Option<EffectId>,
    pub(super) result: EffectResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndEntry {
    pub(super) success: bool,
    pub(super) fingerprint: Fingerprint,
}

/// What an effect asks for.
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
    /// The entry as a journal keeps it, at its place from 0.
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

    /// The entry at a place, read strictly: pointers begin at the entry.
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
        /// Its place in the journal, from 0.
        required n: u64 = "n", "UAP-12-5";
        /// When; of the beginning and of answers.
        nullable at: Clocks = "at", "UAP-12-5";
        /// The first entry.
        nullable begin: BeginJson = "begin", "UAP-12-5";
        /// A question.
        nullable effect: EffectJson = "effect", "UAP-12-5";
        /// An answer.
        nullable answer: AnswerJson = "answer", "UAP-12-5";
        /// What has no answer is asked for again from here on.
        nullable resumed: bool = "resumed", "UAP-12-5";
        /// The last entry.
        nullable end: EndJson = "end", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// How a run began.
    struct BeginJson {
        /// Of this format.
        required version: u64 = "version", "UAP-12-5";
        /// Whose run it is.
        required agent_id: Arc<str> = "agentId", "UAP-12-5";
        /// Under which states are kept.
        nullable session_id: Arc<str> = "sessionId", "UAP-12-5";
        /// How the agent works.
        required strategy: Box<str> = "strategy", "UAP-12-5";
        /// Whether there are hooks.
        required hooks: bool = "hooks", "UAP-12-5";
        /// Middleware, by name.
        required layers: Vec<String> = "layers", "UAP-12-5";
        /// Whether failed questions may be asked again.
        required retries: bool = "retries", "UAP-12-5";
        /// Whether calls and outputs are repaired.
        required repairs: bool = "repairs", "UAP-12-5";
        /// Whether plans have events.
        required plan_events: bool = "planEvents", "UAP-12-5";
        /// Whether states are kept.
        required saves: bool = "saves", "UAP-12-5";
        /// Of all ids, 16 hexadecimal digits.
        required seed: String = "seed", "UAP-12-5";
        /// Fingerprints of model, tools and texts.
        required program: BTreeMap<String, HexDigest> = "program", "UAP-12-5";
        /// What was asked.
        required input: Message = "input", "UAP-12-5";
        /// Without the input.
        required state: RawObject = "state", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// A question.
    struct EffectJson {
        /// Its id in the run.
        required id: u64 = "id", "UAP-12-5";
        /// infer, tool, hook, sleep or save.
        required kind: Box<str> = "kind", "UAP-12-5";
        /// Of all of it.
        required print: HexDigest = "print", "UAP-12-5";
        /// Without ids and times.
        required content: HexDigest = "content", "UAP-12-5";
    }
}

ubos_common::wire! {
    /// How a run ended.
    struct EndJson {
        /// Whether it came to a result.
        required success: bool = "success", "UAP-12-5";
        /// Of all of it.
        required print: HexDigest = "print", "UAP-12-5";
        /// Without ids and times.
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

/// Both clocks: nanoseconds of the monotonic one, and the calendar's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clocks(Now);

ubos_common::wire! {
    /// Both clocks.
    struct ClocksJson {
        /// Nanoseconds.
        required mono: u64 = "mono", "UAP-12-5";
        /// To the second.
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
