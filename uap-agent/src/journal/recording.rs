//! A run as it was recorded, and what can be done with it.

use std::collections::BTreeMap;

use ubos_common::json::{Limits, RawObject};

use super::answer::EffectResult;
use super::diff::{Diff, diff};
use super::entry::{AnswerEntry, BeginEntry, Entry, Kind};
use super::playback::Playback;
use super::program::Program;
use super::recorder::Recorder;
use super::{Journal, JournalError};
use crate::engine::{EffectId, Input};
use crate::event::AgentStreamEvent;
use crate::result::{AgentError, GenerateResult};
use crate::state::AgentState;

/// A run as it was recorded: its beginning, what it asked, what it was answered, and how it ended, if it has.
///
/// See the [module](super) for what it is good for.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(super) begin: Box<BeginEntry>,
    /// All that follows. That the run was resumed is left aside.
    pub(super) entries: Vec<Entry>,
    /// Entries of the journal.
    written: u64,
}

/// What a run asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedEffect {
    /// The effect.
    pub effect: EffectId,
    /// `infer`, `tool`, `hook`, `sleep` or `save`.
    pub kind: &'static str,
}

/// What a replay gives.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replay {
    /// The events of the run, each answer of the model in one piece.
    pub events: Vec<AgentStreamEvent>,
    /// The states that the run went through, the one it began with first.
    pub states: Vec<AgentState>,
    /// How it ended; none where the recording ends before.
    pub result: Option<Result<GenerateResult, Box<AgentError>>>,
}

impl Recording {
    /// What is in a journal.
    ///
    /// # Errors
    ///
    /// Nothing is; the journal failed; an entry is none.
    pub async fn load(journal: &dyn Journal) -> Result<Self, JournalError> {
        Self::from_entries(&journal.read().await?)
    }

    /// A recording of its entries, read strictly.
    ///
    /// # Errors
    ///
    /// An entry is none, or cannot stand where it stands.
    pub fn from_entries(entries: &[RawObject]) -> Result<Self, JournalError> {
        let limits = limits();
        let mut order = EntryOrder::default();
        let mut read = Vec::with_capacity(entries.len());
        for (n, raw) in (0..).zip(entries) {
            let entry = Entry::read_at(n, raw, &limits);
            let entry = entry.map_err(|error| JournalError::Entry { entry: n, error })?;
            let order = order.check(n, &entry);
            order.map_err(|what| JournalError::Order { entry: n, what })?;
            if !matches!(entry, Entry::Resumed) {
                read.push(entry);
            }
        }
        let mut read = read.into_iter();
        match read.next() {
            Some(Entry::Begin(begin)) => Ok(Self {
                begin,
                entries: read.collect(),
                written: entries.len() as u64,
            }),
            _ => Err(JournalError::Empty),
        }
    }

    /// The entries, as a journal keeps them, but for those that tell of a resumption: [`Journal::append`] at 0 makes
    /// another journal of them.
    #[must_use]
    pub fn to_entries(&self) -> Vec<RawObject> {
        let begin = Entry::Begin(self.begin.clone());
        let all = core::iter::once(&begin).chain(&self.entries);
        (0..).zip(all).map(|(n, entry)| entry.write_at(n)).collect()
    }

    /// Whose run it is.
    #[must_use]
    pub fn agent_id(&self) -> &str {
        &self.begin.agent_id
    }

    /// The session under which its states are kept.
    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        self.begin.session_id.as_deref()
    }

    /// How many answers are recorded, an abort included.
    #[must_use]
    pub fn answers(&self) -> usize {
        let is_answer = |entry: &&Entry| matches!(entry, Entry::Answer(_));
        self.entries.iter().filter(is_answer).count()
    }

    /// Whether the run came to its end.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.entries.last(), Some(Entry::End(_)))
    }

    /// All that was asked for, in order.
    pub fn effects(&self) -> impl Iterator<Item = RecordedEffect> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Effect(asked) => Some(RecordedEffect {
                effect: asked.id,
                kind: asked.kind.as_str(),
            }),
            _ => None,
        })
    }

    /// The answer that is recorded to a question.
    #[must_use]
    pub fn answer(&self, effect: EffectId) -> Option<Input> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Answer(answer) if answer.id == Some(effect) => {
                Some(answer.result.answer(effect))
            }
            _ => None,
        })
    }

    /// What was asked for and has no answer: when the run is resumed, it is asked for again. A tool among it may have run.
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
                Entry::Begin(_) | Entry::Resumed => {}
            }
        }
        let outstanding = |(effect, kind): (EffectId, Kind)| RecordedEffect {
            effect,
            kind: kind.as_str(),
        };
        asked.into_iter().map(outstanding).collect()
    }

    /// The run up to an answer, and another answer in its place: resumed, it takes another turn there. What was recorded
    /// behind is cut off, in this recording and not in its journal.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use uap_agent::engine::Input;
    /// use uap_agent::journal::{Journal, MemoryJournal, Recording};
    /// use uap_agent::{AgentOptions, agent};
    /// use upp::{FnTool, Message, Reply, ScriptedModel, Tool, json_text, object};
    ///
    /// # futures::executor::block_on(async {
    /// // Calls a tool, and repeats what the tool says.
    /// let model = ScriptedModel::with(|request| match request.messages.last() {
    ///     Some(Message::ToolResult(said)) => Some(Reply::text(said.results.first()?.text().to_string())),
    ///     _ => Some(Reply::silent().calling("c1", "weather", object("{}").ok()?)),
    /// });
    /// let weather = FnTool::new("weather", "", object("{}")?, |_, _| async { Ok(json_text("rain")) });
    /// let options = AgentOptions::new(Arc::new(model)).with_tools([Arc::new(weather) as Arc<dyn Tool>]);
    /// let agent = agent(options)?;
    /// let journal = Arc::new(MemoryJournal::default());
    /// let state = agent.initial_state();
    /// agent.record(journal.clone()).generate("How is the weather?", &state).await.map_err(|e| e.error)?;
    ///
    /// let recording = Recording::load(journal.as_ref()).await?;
    /// let call = recording.questions().find(|asked| asked.kind == "tool").expect("a tool was called");
    /// let Some(Input::Tool(id, mut execution, traces)) = recording.answer(call.effect) else { panic!() };
    /// execution.result = json_text("sun");
    /// let forked = recording.fork(&Input::Tool(id, execution, traces))?;
    ///
    /// let other = Arc::new(MemoryJournal::default());
    /// other.append(0, forked.to_entries()).await?;
    /// let result = agent.resume(other).await?.result().await.map_err(|e| e.error)?;
    /// assert_eq!(result.turn.response.text(), "sun");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// No answer to this effect is recorded, or one of another kind.
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
        if let Some(Entry::Answer(old)) = self.entries.get(place) {
            if old.result.kind() != result.kind() {
                return refuse(place + 1, "an answer to an effect of this kind wanted");
            }
            let (at, id) = (old.at, Some(id));
            entries.push(Entry::Answer(AnswerEntry { at, id, result }));
        }
        Ok(Self {
            begin: self.begin.clone(),
            written: entries.len() as u64 + 1,
            entries,
        })
    }

    /// Where two runs part, ids and times left aside.
    #[must_use]
    pub fn diff(&self, other: &Self) -> Diff {
        diff(self, other)
    }

    /// The run again, without a world.
    ///
    /// # Errors
    ///
    /// The program is not the one whose run it is, or asks for something else than it did.
    pub fn replay(&self, program: &Program) -> Result<Replay, JournalError> {
        let mut playback = Playback::new(program, &self.begin, true)?;
        let mut states = vec![self.begin.state.clone()];
        for (n, entry) in (1..).zip(&self.entries) {
            playback.take(n, entry)?;
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

    /// The run at the end of what is recorded, ready to go on.
    ///
    /// # Errors
    ///
    /// As [`Recording::replay`]. Nothing has been done then.
    pub fn resume(&self, program: &Program) -> Result<Recorder, JournalError> {
        let mut playback = Playback::new(program, &self.begin, false)?;
        for (n, entry) in (1..).zip(&self.entries) {
            playback.take(n, entry)?;
        }
        Ok(Recorder::resume(playback, self.written))
    }
}

/// What an entry is read with: it holds what a run held in memory.
pub(super) fn limits() -> Limits {
    const BYTES: usize = 256 << 20;
    Limits::default()
        .with_max_depth(Limits::DEEPEST)
        .with_max_bytes(BYTES)
        .with_max_string_bytes(BYTES)
        .with_max_array_len(BYTES)
        .with_max_members(BYTES)
}

/// Whether entries stand in an order that a run writes.
#[derive(Default)]
struct EntryOrder {
    asked: BTreeMap<EffectId, Option<Kind>>,
    ended: bool,
}

impl EntryOrder {
    fn check(&mut self, n: u64, entry: &Entry) -> Result<(), &'static str> {
        if self.ended {
            return Err("an entry behind the end");
        }
        if (n == 0) != matches!(entry, Entry::Begin(_)) {
            return Err("the beginning as the first entry, and nowhere else, wanted");
        }
        match entry {
            Entry::Begin(_) | Entry::Resumed => {}
            Entry::Effect(effect) => {
                if self.asked.insert(effect.id, Some(effect.kind)).is_some() {
                    return Err("a second effect of this id");
                }
            }
            Entry::Answer(answer) => {
                let Some(id) = answer.id else { return Ok(()) };
                let kind = self.asked.get_mut(&id).and_then(Option::take);
                if kind.map(Kind::as_str) != answer.result.kind() {
                    return Err("an answer that nothing before it asks for");
                }
            }
            Entry::End(_) => self.ended = true,
        }
        Ok(())
    }
}
