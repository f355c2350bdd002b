//! Gives an engine the recorded results of its effects.

use std::collections::{BTreeMap, VecDeque};

use ubos_common::time::Now;
use upp::{ModelEvent, StreamEvent, StreamEventType, events_of};

use super::JournalError;
use super::answer::EffectResult;
use super::entry::{AnswerEntry, BeginEntry, EffectEntry, EndEntry, Entry, Kind};
use super::fingerprint::{self, Fingerprinter};
use crate::engine::{EffectId, Engine, EngineConfig, Input, Output};
use crate::event::AgentStreamEvent;
use crate::result::RunResult;
use crate::state::AgentState;

/// An engine that repeats a recorded run. None of its effects is performed.
pub(super) struct Playback {
    pub(super) engine: Engine,
    pub(super) fingerprinter: Fingerprinter,
    /// Recorded requests without a result.
    pub(super) pending: BTreeMap<EffectId, (Kind, Output)>,
    /// Requests of the engine that are not recorded yet.
    pub(super) fresh: VecDeque<(EffectEntry, Output)>,
    pub(super) result: Option<RunResult>,
    /// Whether the end is recorded.
    pub(super) has_ended: bool,
    keeps_events: bool,
    events: Vec<AgentStreamEvent>,
}

impl Playback {
    /// Starts the run.
    pub(super) fn new(
        config: &EngineConfig,
        begin: &BeginEntry,
        keeps_events: bool,
    ) -> Result<Self, JournalError> {
        config.check(begin)?;
        let mut playback = Self {
            engine: config.engine(begin),
            fingerprinter: Fingerprinter::of_version(begin.version),
            pending: BTreeMap::new(),
            fresh: VecDeque::new(),
            result: None,
            has_ended: false,
            keeps_events,
            events: Vec::new(),
        };
        playback.drain();
        Ok(playback)
    }

    pub(super) const fn state(&self) -> &AgentState {
        self.engine.state()
    }

    pub(super) fn finish(self) -> (Vec<AgentStreamEvent>, Option<RunResult>) {
        (self.events, self.result)
    }

    /// Takes the entry at a place in the journal.
    pub(super) fn take(&mut self, n: u64, entry: Entry) -> Result<(), JournalError> {
        match entry {
            Entry::Begin(_) | Entry::Lease(_) | Entry::Question(..) | Entry::Decision(..) => Ok(()),
            Entry::Effect(request) => self.request(&request),
            Entry::Answer(answer) => self.answer(n, answer),
            Entry::End(end) => self.end(&end),
        }
    }

    fn request(&mut self, recorded: &EffectEntry) -> Result<(), JournalError> {
        match self.fresh.pop_front() {
            Some((request, effect)) if request == *recorded => {
                self.pending.insert(request.id, (request.kind, effect));
                Ok(())
            }
            other => Err(differs(recorded, other.map(|(request, _)| request.kind))),
        }
    }

    fn answer(&mut self, entry: u64, answer: AnswerEntry) -> Result<(), JournalError> {
        // A recorder writes all requests before it takes the next result.
        if let Some((request, _)) = self.fresh.front() {
            let kind = request.kind;
            return Err(differs(request, Some(kind)));
        }
        let Some(id) = answer.id else {
            self.give(answer.at, answer.result.into_answer(0));
            return Ok(());
        };
        if self.pending.remove(&id).is_none() {
            let what = "the answer belongs to an effect that is not pending";
            return Err(JournalError::Order { entry, what });
        }
        let parts = match &answer.result {
            EffectResult::Response(response) if self.keeps_events => {
                events_of(response, usize::MAX)
            }
            // Whether a part was received decides whether the request is retried, so there must be one.
            EffectResult::Failed(_, true) | EffectResult::NoResponse(true) => {
                vec![StreamEvent::bare(StreamEventType::MessageStart, 0)]
            }
            _ => Vec::new(),
        };
        for part in parts {
            let part = Input::Model(id, Some(Ok(ModelEvent::Event(part))));
            self.give(answer.at, part);
        }
        self.give(answer.at, answer.result.into_answer(id));
        Ok(())
    }

    fn end(&mut self, end: &EndEntry) -> Result<(), JournalError> {
        let same = |result: &RunResult| {
            *end == EndEntry {
                success: result.is_ok(),
                fingerprint: fingerprint::end(result),
            }
        };
        self.has_ended = true;
        if self.result.as_ref().is_some_and(same) {
            return Ok(());
        }
        Err(JournalError::Differs {
            effect: 0,
            kind: "end",
            seen: self.result.as_ref().map(|_| "end"),
        })
    }

    fn give(&mut self, now: Now, answer: Input) {
        // An engine that has ended makes no more requests.
        let _ = self.engine.handle_input(now, answer);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(effect) = self.engine.poll_output() {
            if let Some(request) = self.fingerprinter.request(&effect) {
                self.fresh.push_back((request, effect));
                continue;
            }
            match effect {
                // The request is recorded: no result is taken before all requests are.
                Output::Cancel(id) => drop(self.pending.remove(&id)),
                Output::Event(event) if self.keeps_events => self.events.push(event),
                Output::Finished(result) => self.result = Some(result),
                _ => {}
            }
        }
    }
}

fn differs(recorded: &EffectEntry, seen: Option<Kind>) -> JournalError {
    JournalError::Differs {
        effect: recorded.id,
        kind: recorded.kind.as_str(),
        seen: seen.map(Kind::as_str),
    }
}
