//! Recorded runs: replayed, resumed, forked and compared.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::{Limits, RawObject};
use ubos_common::time::Now;

use super::answer::EffectResult;
use super::entry::{AnswerEntry, BeginEntry, Entry, Kind};
use super::held::Questions;
use super::lease::{Lease, LeaseEntry, LeaseState, Ownership};
use super::order::EntryOrder;
use super::playback::Playback;
use super::question::{Decision, DecisionError, Question};
use super::recorder::{Recorder, Takeover};
use super::{Journal, JournalError};
use crate::engine::{EffectId, EngineConfig, Input};
use crate::event::AgentStreamEvent;
use crate::middleware::RecordedSpending;
use crate::result::{AgentError, GenerateResult};
use crate::state::AgentState;

/// A recorded run: its start, its requests, their results, and its end, if it has ended.
///
/// See the [module](super) for its uses.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(super) begin: Box<BeginEntry>,
    /// The entries after the start, without those that renew or release a lease. Each has the time for which the run was
    /// under way up to it.
    pub(super) entries: Vec<Entry>,
    times: Vec<Duration>,
    lease: LeaseState,
    /// How long the run was under way.
    time: Duration,
    /// The number of entries in the journal.
    written: u64,
}

/// An effect that a run requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedEffect {
    /// The id of the effect.
    pub effect: EffectId,
    /// `infer`, `tool`, `hook`, `sleep` or `save`.
    pub kind: &'static str,
}

/// The result of a replay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replay {
    /// The events of the run. Each response of the model is one event.
    pub events: Vec<AgentStreamEvent>,
    /// The states of the run, from the one that it started with.
    pub states: Vec<AgentState>,
    /// The result; `None` where the recording ends before the run.
    pub result: Option<Result<GenerateResult, Box<AgentError>>>,
}

impl Recording {
    /// Reads the recording in a journal.
    ///
    /// # Errors
    ///
    /// The journal is empty or failed, or an entry is not valid.
    pub async fn load(journal: &dyn Journal) -> Result<Self, JournalError> {
        Self::from_entries(&journal.read().await?)
    }

    /// Reads a recording from its entries, strictly.
    ///
    /// # Errors
    ///
    /// An entry is not valid, or out of order.
    pub fn from_entries(entries: &[RawObject]) -> Result<Self, JournalError> {
        let limits = limits();
        let mut order = EntryOrder::default();
        let mut questions = Questions::default();
        let (mut begin, mut read, mut times) = (None, Vec::new(), Vec::new());
        for (n, raw) in (0..).zip(entries) {
            let entry = Entry::read_at(n, raw, &limits);
            let mut entry = entry.map_err(|error| JournalError::Entry { entry: n, error })?;
            let (epoch, counted) = (order.epoch(), order.counted());
            let checked = order.check(n, &mut entry);
            checked.map_err(|what| JournalError::Order { entry: n, what })?;
            // A lease that begins a life with another clock divides the time; one behind an approval says that the call may
            // have started.
            let is_other_clock = epoch != order.epoch() && counted != order.counted();
            let says_more = is_other_clock || questions.has_approved();
            match entry {
                Entry::Begin(entry) => begin = Some(entry),
                Entry::Lease(_) if !says_more => {}
                entry => {
                    questions.take(&entry);
                    read.push(entry);
                    times.push(order.time());
                }
            }
        }
        let time = order.time();
        match (begin, order.into_lease()) {
            (Some(begin), Some(lease)) => Ok(Self {
                begin,
                entries: read,
                times,
                lease,
                time,
                written: entries.len() as u64,
            }),
            _ => Err(JournalError::Empty),
        }
    }

    /// The lease of the run: who writes it, and until when nobody else does.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease.lease()
    }

    /// The questions that nobody has decided. One that has expired is among them until the run is resumed.
    #[must_use]
    pub fn questions(&self) -> Vec<Question> {
        Questions::of(&self.entries).open().cloned().collect()
    }

    /// Records a person's decision in a journal, once. The run need not be under way: it reads the decision when it is
    /// resumed. A run that is under way goes on with it when it next writes an entry.
    ///
    /// # Errors
    ///
    /// The question is not open, or not one for this person, or another than the person has seen; or the journal failed.
    pub async fn decide(
        journal: &dyn Journal,
        now: Now,
        decision: &Decision,
    ) -> Result<(), DecisionError> {
        let mut conflict = JournalError::Empty;
        for _ in 0..DECIDE_TRIES {
            let recording = Self::load(journal).await?;
            let was_asked = recording.effects().any(|it| it.effect == decision.effect);
            let questions = Questions::of(&recording.entries);
            questions.check(now.wall, decision, was_asked)?;
            let entry = Entry::Decision(now, Box::new(decision.clone()));
            let place = recording.written;
            match journal.append(place, vec![entry.write_at(place)]).await {
                // The run or another person has written: what they wrote decides.
                Err(error @ JournalError::Conflict { .. }) => conflict = error,
                written => return written.map_err(DecisionError::Journal),
            }
        }
        Err(DecisionError::Journal(conflict))
    }

    /// The entries, without those that renew or release a lease. [`Journal::append`] at place 0 copies them to another
    /// journal, in which nobody has a lease with a term.
    #[must_use]
    pub fn to_entries(&self) -> Vec<RawObject> {
        let mut begin = self.begin.clone();
        begin.term = None;
        let without_term = |entry: &Entry| match entry {
            Entry::Lease(lease) => Entry::Lease(LeaseEntry {
                term: None,
                ..lease.clone()
            }),
            entry => entry.clone(),
        };
        let all =
            core::iter::once(Entry::Begin(begin)).chain(self.entries.iter().map(without_term));
        (0..).zip(all).map(|(n, entry)| entry.write_at(n)).collect()
    }

    /// The agent's id.
    #[must_use]
    pub fn agent_id(&self) -> &str {
        &self.begin.agent_id
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.entries.last(), Some(Entry::End(_)))
    }

    /// What the run has spent.
    #[must_use]
    pub fn spending(&self) -> RecordedSpending {
        let usage = |entry: &Entry| match entry {
            Entry::Answer(AnswerEntry {
                id: Some(id),
                result: EffectResult::Response(response),
                ..
            }) => Some((*id, response.usage.clone())),
            _ => None,
        };
        let traced = |entry: &Entry| match entry {
            Entry::Answer(AnswerEntry {
                id: Some(id),
                result: EffectResult::Tool(_, traces),
                ..
            }) => traces
                .iter()
                .filter_map(|trace| {
                    Some((*id, Arc::clone(&trace.subagent_type), trace.usage.clone()?))
                })
                .collect(),
            _ => Vec::new(),
        };
        RecordedSpending {
            run: self.begin.seed,
            subagents: self.entries.iter().flat_map(traced).collect(),
            responses: self.entries.iter().filter_map(usage).collect(),
            time: self.time,
            goes_on: false,
        }
    }

    /// The requested effects, in order.
    pub fn effects(&self) -> impl Iterator<Item = RecordedEffect> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Effect(asked) => Some(RecordedEffect {
                effect: asked.id,
                kind: asked.kind.as_str(),
            }),
            _ => None,
        })
    }

    /// The recorded result of an effect.
    #[must_use]
    pub fn answer(&self, effect: EffectId) -> Option<Input> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Answer(answer) if answer.id == Some(effect) => {
                Some(answer.result.clone().into_answer(effect))
            }
            _ => None,
        })
    }

    /// The effects without a recorded result. A resumed run requests them again. A tool among them may have run.
    #[must_use]
    pub fn outstanding(&self) -> Vec<RecordedEffect> {
        let mut asked = BTreeMap::new();
        for entry in &self.entries {
            match entry {
                Entry::Effect(effect) => drop(asked.insert(effect.id, effect.kind)),
                Entry::Answer(answer) => match answer.id {
                    Some(id) => drop(asked.remove(&id)),
                    // An abort ends what is under way.
                    None => asked.clear(),
                },
                Entry::End(_) => asked.clear(),
                Entry::Begin(_) | Entry::Lease(_) | Entry::Question(..) | Entry::Decision(..) => {}
            }
        }
        let outstanding = |(effect, kind): (EffectId, Kind)| RecordedEffect {
            effect,
            kind: kind.as_str(),
        };
        asked.into_iter().map(outstanding).collect()
    }

    /// The run up to a result, with another result in its place. When it is resumed, it continues from that result. Later
    /// entries are removed from the returned recording; the journal is not changed.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use uap_agent::engine::Input;
    /// use uap_agent::journal::{Journal, MemoryJournal, Recording};
    /// use uap_agent::{AgentOptions, agent};
    /// use upp::{FnTool, Message, Reply, ScriptedModel, Tool, json_text, object};
    ///
    /// # futures::executor::block_on(async {
    /// // Calls a tool, and repeats its result.
    /// let model = ScriptedModel::with(|request| match request.messages.last() {
    ///     Some(Message::ToolResult(said)) => Some(Reply::text(said.results.first()?.text().to_string())),
    ///     _ => Some(Reply::default().calling("c1", "weather", object("{}").ok()?)),
    /// });
    /// let weather = FnTool::new("weather", "", object("{}")?, |_, _| async { Ok(json_text("rain")) });
    /// let options = AgentOptions::new(Arc::new(model)).with_tools([Arc::new(weather) as Arc<dyn Tool>]);
    /// let agent = agent(options)?;
    /// let journal = Arc::new(MemoryJournal::default());
    /// let state = agent.initial_state();
    /// agent.record(journal.clone(), "How is the weather?", &state).result().await?;
    ///
    /// let recording = Recording::load(journal.as_ref()).await?;
    /// let call = recording.effects().find(|effect| effect.kind == "tool").expect("a tool was called");
    /// let Some(Input::Tool(id, mut execution, traces)) = recording.answer(call.effect) else { panic!() };
    /// execution.result = json_text("sun");
    /// let forked = recording.fork(&Input::Tool(id, execution, traces))?;
    ///
    /// let other = Arc::new(MemoryJournal::default());
    /// other.append(0, forked.to_entries()).await?;
    /// let result = agent.resume(other).await?.result().await?;
    /// assert_eq!(result.turn.response.text(), "sun");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// No result of this effect is recorded, or one of another kind.
    pub fn fork(&self, answer: &Input) -> Result<Self, JournalError> {
        let refuse = |entry: usize, what| {
            let entry = entry as u64;
            Err(JournalError::Order { entry, what })
        };
        let Some((Some(id), result)) = EffectResult::of(answer, false) else {
            return refuse(0, "a whole answer to an effect wanted in its place");
        };
        let is_it = |entry: &Entry| matches!(entry, Entry::Answer(answer) if answer.id == Some(id));
        let Some(place) = self.entries.iter().position(is_it) else {
            return refuse(self.entries.len(), "no answer to this effect is recorded");
        };
        let mut entries: Vec<Entry> = self.entries.iter().take(place).cloned().collect();
        let times: Vec<_> = self.times.iter().take(place + 1).copied().collect();
        if let Some(Entry::Answer(old)) = self.entries.get(place) {
            if old.result.kind() != result.kind() {
                return refuse(place + 1, "an answer to an effect of this kind wanted");
            }
            let (at, id) = (old.at, Some(id));
            entries.push(Entry::Answer(AnswerEntry { at, id, result }));
        }
        let mut begin = self.begin.clone();
        begin.term = None;
        let mut lease = self.lease.clone();
        lease.last.term = None;
        Ok(Self {
            begin,
            lease,
            time: times.last().copied().unwrap_or_default(),
            times,
            written: entries.len() as u64 + 1,
            entries,
        })
    }

    /// Repeats the run. No effect is performed.
    ///
    /// # Errors
    ///
    /// The run was recorded with another configuration or strategy, or they make other requests.
    pub fn replay(&self, config: &EngineConfig) -> Result<Replay, JournalError> {
        let mut playback = Playback::new(config, &self.begin, true)?;
        let mut states = vec![self.begin.state.clone()];
        for (n, entry) in (1..).zip(&self.entries) {
            playback.take(n, entry.clone())?;
            let state = playback.state();
            if states.last().map(AgentState::id) != Some(state.id()) {
                states.push(state.clone());
            }
        }
        let (events, result) = playback.finish();
        Ok(Replay {
            events,
            states,
            result,
        })
    }

    /// A recorder that takes the run over and continues it at the end of the recording.
    ///
    /// # Errors
    ///
    /// The run was recorded with another configuration or strategy, or they make other requests; another process has a
    /// lease that has not ended; the run waits for decisions, and can do nothing else.
    pub fn resume(
        &self,
        now: Now,
        config: &EngineConfig,
        owner: &Ownership,
    ) -> Result<Recorder, JournalError> {
        self.clone().into_recorder(now, config, owner)
    }

    /// As [`Recording::resume`]. The engine gets the recorded results themselves, not copies.
    pub(crate) fn into_recorder(
        self,
        now: Now,
        config: &EngineConfig,
        owner: &Ownership,
    ) -> Result<Recorder, JournalError> {
        let lease = self.lease();
        if !self.has_ended() && !owner.may_take(now.wall, &lease) {
            return Err(JournalError::Leased { lease });
        }
        let mut playback = Playback::new(config, &self.begin, false)?;
        let questions = Questions::of(&self.entries);
        for (n, entry) in (1..).zip(self.entries) {
            playback.take(n, entry)?;
        }
        let takeover = Takeover {
            now,
            playback,
            next: self.written,
            epoch: lease.epoch + 1,
            questions,
        };
        Recorder::resume(takeover, config.approvals.clone(), owner)
    }
}

/// How often a decision is tried while others write.
const DECIDE_TRIES: u32 = 64;

/// The limits for reading an entry: it holds what a run held in memory.
pub(super) fn limits() -> Limits {
    const BYTES: usize = 256 << 20;
    Limits::default()
        .with_max_depth(Limits::DEEPEST)
        .with_max_bytes(BYTES)
        .with_max_string_bytes(BYTES)
        .with_max_array_len(BYTES)
        .with_max_members(BYTES)
}
