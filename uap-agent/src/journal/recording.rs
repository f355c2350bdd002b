//! A run as it was recorded, and what can be done with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::{Limits, RawObject};
use ubos_common::time::Now;
use upp::{LlmInstance, Message};

use super::answer::Said;
use super::diff::{Diff, diff};
use super::entry::{Begin, Entry, Hex, Kind, Told};
use super::feed::Feed;
use super::recorder::Recorder;
use super::{Journal, JournalError, print};
use crate::engine::{Answer, EffectId, Engine, EngineConfig};
use crate::event::AgentStreamEvent;
use crate::repair::RepairPolicy;
use crate::result::{AgentError, GenerateResult};
use crate::state::AgentState;
use crate::strategy::ExecutionStrategy;

/// What a program brings to a run: all that decides which questions it asks. An agent makes its own
/// ([`Agent::record`](crate::Agent::record)); it is here for who drives [`Recorder`] otherwise.
#[derive(Clone)]
#[non_exhaustive]
pub struct Program {
    /// The model's options.
    pub llm: LlmInstance,
    /// How the agent works.
    pub execution: Arc<dyn ExecutionStrategy>,
    /// Whether there are hooks to call.
    pub has_hooks: bool,
    /// Names of the middleware, outermost first.
    pub layers: Vec<String>,
    /// Whether somebody says how failed questions are asked again.
    pub retries: bool,
    /// What is done about calls and outputs that are wrong.
    pub repair: Option<Arc<dyn RepairPolicy>>,
    /// Whether plans are told in events of their own.
    pub plan_events: bool,
    /// Whether states are to be kept.
    pub saves: bool,
}

impl Program {
    /// A model's options and a strategy, without hooks, middleware or saves.
    #[must_use]
    pub fn new(llm: LlmInstance, execution: Arc<dyn ExecutionStrategy>) -> Self {
        Self {
            llm,
            execution,
            has_hooks: false,
            layers: Vec::new(),
            retries: false,
            repair: None,
            plan_events: false,
            saves: false,
        }
    }

    pub(super) fn begin(&self, now: Now, run: RunStart) -> Begin {
        let hex = |(name, digest): (&str, _)| (name.to_owned(), Hex(digest));
        Begin {
            at: now,
            agent_id: run.agent_id,
            session_id: run.session_id,
            strategy: self.execution.name().into(),
            has_hooks: self.has_hooks,
            layers: self.layers.clone(),
            retries: self.retries,
            repairs: self.repair.is_some(),
            plan_events: self.plan_events,
            saves: self.saves,
            seed: run.seed,
            program: print::program(&self.llm).into_iter().map(hex).collect(),
            input: run.input,
            state: run.state,
        }
    }

    pub(super) fn engine(&self, begin: &Begin) -> Engine {
        let ids = IdSource::seeded(begin.seed);
        let mut config = EngineConfig::new(self.llm.clone(), Arc::clone(&begin.agent_id), ids);
        config.has_hooks = self.has_hooks;
        config.layers = self.layers.len();
        config.retries = self.retries;
        config.repair.clone_from(&self.repair);
        config.plan_events = self.plan_events;
        config.saves = self.saves;
        config.session_id.clone_from(&begin.session_id);
        let (strategy, input) = (self.execution.begin(), begin.input.clone());
        Engine::new(begin.at, config, strategy, &begin.state, input)
    }

    /// Whether this is what the run was recorded with.
    pub(super) fn check(&self, begin: &Begin) -> Result<(), JournalError> {
        let refuse = |what: &str| Err(JournalError::Program { what: what.into() });
        if *self.execution.name() != *begin.strategy {
            return refuse("strategy");
        }
        let now = print::program(&self.llm);
        let differs = now
            .iter()
            .find(|(name, digest)| begin.program.get(*name).map(|hex| hex.0) != Some(*digest));
        if let Some((name, _)) = differs {
            return refuse(name);
        }
        let parts = [
            ("middleware", self.layers == begin.layers),
            ("hooks", self.has_hooks == begin.has_hooks),
            ("retries", self.retries == begin.retries),
            ("repair", self.repair.is_some() == begin.repairs),
            ("plan events", self.plan_events == begin.plan_events),
            ("checkpoints", self.saves == begin.saves),
        ];
        match parts.iter().find(|(_, same)| !same) {
            Some((name, _)) => refuse(name),
            None => Ok(()),
        }
    }
}

impl core::fmt::Debug for Program {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Program")
            .field("llm", &self.llm)
            .field("execution", &self.execution.name())
            .field("layers", &self.layers)
            .finish_non_exhaustive()
    }
}

/// What one run begins with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunStart {
    /// Whose run it is.
    pub agent_id: Arc<str>,
    /// Under which session states are kept.
    pub session_id: Option<Arc<str>>,
    /// Of all ids that the run makes: whoever knows it knows them.
    pub seed: u64,
    /// What is asked.
    pub input: Message,
    /// The state, without the input.
    pub state: AgentState,
}

impl RunStart {
    /// A run without a session.
    #[must_use]
    pub const fn new(agent_id: Arc<str>, seed: u64, input: Message, state: AgentState) -> Self {
        Self {
            agent_id,
            session_id: None,
            seed,
            input,
            state,
        }
    }
}

/// A run as it was recorded: its beginning, what it asked, what it was answered, and how it ended, if it has.
///
/// See the [module](super) for what it is good for.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(super) begin: Box<Begin>,
    /// All that follows.
    pub(super) entries: Vec<Entry>,
}

/// What a run asked for, without an answer in the journal: when it is resumed, it is asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outstanding {
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
        let mut order = Order::default();
        let mut read = Vec::with_capacity(entries.len());
        for (n, raw) in (0..).zip(entries) {
            let entry = Entry::read_at(n, raw, &limits);
            let entry = entry.map_err(|error| JournalError::Entry { entry: n, error })?;
            let order = order.check(n, &entry);
            order.map_err(|what| JournalError::Order { entry: n, what })?;
            read.push(entry);
        }
        let mut read = read.into_iter();
        match read.next() {
            Some(Entry::Begin(begin)) => Ok(Self {
                begin,
                entries: read.collect(),
            }),
            _ => Err(JournalError::Empty),
        }
    }

    /// The entries, as a journal keeps them: [`Journal::append`] at 0 makes another journal of them.
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

    /// What was asked for and has no answer. A tool among them may have run.
    #[must_use]
    pub fn outstanding(&self) -> Vec<Outstanding> {
        let mut asked = BTreeMap::new();
        for entry in &self.entries {
            match entry {
                Entry::Effect(effect) => drop(asked.insert(effect.id, effect.kind)),
                Entry::Answer(told) => match told.id {
                    Some(id) => drop(asked.remove(&id)),
                    // An abort ends what is under way.
                    None => asked.clear(),
                },
                Entry::End(_) => asked.clear(),
                Entry::Begin(_) => {}
            }
        }
        let outstanding = |(effect, kind): (EffectId, Kind)| Outstanding {
            effect,
            kind: kind.as_str(),
        };
        asked.into_iter().map(outstanding).collect()
    }

    /// The run up to an answer, and another answer in its place: resumed, it takes another turn there. What was recorded
    /// behind is cut off.
    ///
    /// # Errors
    ///
    /// No answer to this effect is recorded, or one of another kind.
    pub fn fork(&self, answer: &Answer) -> Result<Self, JournalError> {
        let refuse = |entry: usize, what| {
            let entry = entry as u64;
            Err(JournalError::Order { entry, what })
        };
        let Some((Some(id), said)) = Said::of(answer, false) else {
            return refuse(0, "a whole answer to an effect wanted in its place");
        };
        let is_it = |entry: &Entry| matches!(entry, Entry::Answer(told) if told.id == Some(id));
        let Some(place) = self.entries.iter().position(is_it) else {
            return refuse(self.entries.len(), "no answer to this effect is recorded");
        };
        let mut entries: Vec<Entry> = self.entries.iter().take(place).cloned().collect();
        if let Some(Entry::Answer(old)) = self.entries.get(place) {
            if old.said.kind() != said.kind() {
                return refuse(place + 1, "an answer to an effect of this kind wanted");
            }
            let (at, id) = (old.at, Some(id));
            entries.push(Entry::Answer(Told { at, id, said }));
        }
        Ok(Self {
            begin: self.begin.clone(),
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
        let mut feed = Feed::new(program, &self.begin, true)?;
        let mut states = vec![self.begin.state.clone()];
        for (n, entry) in (1..).zip(&self.entries) {
            feed.take(n, entry)?;
            let state = feed.state();
            if states.last().map(AgentState::id) != Some(state.id()) {
                states.push(state.clone());
            }
        }
        let (events, result) = feed.finish();
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
        let mut feed = Feed::new(program, &self.begin, false)?;
        for (n, entry) in (1..).zip(&self.entries) {
            feed.take(n, entry)?;
        }
        Ok(Recorder::resume(feed, self.entries.len() as u64 + 1))
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
struct Order {
    asked: BTreeMap<EffectId, Option<Kind>>,
    ended: bool,
}

impl Order {
    fn check(&mut self, n: u64, entry: &Entry) -> Result<(), &'static str> {
        if self.ended {
            return Err("an entry behind the end");
        }
        if (n == 0) != matches!(entry, Entry::Begin(_)) {
            return Err("the beginning as the first entry, and nowhere else, wanted");
        }
        match entry {
            Entry::Begin(_) => {}
            Entry::Effect(effect) => {
                if self.asked.insert(effect.id, Some(effect.kind)).is_some() {
                    return Err("a second effect of this id");
                }
            }
            Entry::Answer(told) => {
                let Some(id) = told.id else { return Ok(()) };
                let kind = self.asked.get_mut(&id).and_then(Option::take);
                if kind.map(Kind::as_str) != told.said.kind() {
                    return Err("an answer that nothing before it asks for");
                }
            }
            Entry::End(_) => self.ended = true,
        }
        Ok(())
    }
}
