//! Giving an engine the answers that are recorded.

use std::collections::{BTreeMap, VecDeque};

use ubos_common::time::Now;
use upp::{ModelEvent, StreamEvent, StreamEventType, events_of};

use super::JournalError;
use super::answer::Said;
use super::entry::{Asked, Begin, Ended, Entry, Kind, Told};
use super::print::{self, Printer};
use super::program::Program;
use crate::engine::{Answer, Effect, EffectId, Engine};
use crate::event::AgentStreamEvent;
use crate::result::{AgentError, GenerateResult};
use crate::state::AgentState;

type RunResult = Result<GenerateResult, Box<AgentError>>;

/// An engine on its way through a recording. Nothing that it asks for is done.
pub(super) struct Feed {
    pub(super) engine: Engine,
    pub(super) printer: Printer,
    /// What is recorded as asked for, and has no answer yet.
    pub(super) asked: BTreeMap<EffectId, (Kind, Effect)>,
    /// What the engine asks for and no entry has told of yet.
    pub(super) fresh: VecDeque<(Asked, Effect)>,
    pub(super) result: Option<RunResult>,
    /// Whether the end is recorded.
    pub(super) has_ended: bool,
    tells: bool,
    events: Vec<AgentStreamEvent>,
}

impl Feed {
    /// The engine at its beginning; events are kept where somebody wants them told.
    pub(super) fn new(program: &Program, begin: &Begin, tells: bool) -> Result<Self, JournalError> {
        program.check(begin)?;
        let mut feed = Self {
            engine: program.engine(begin),
            printer: Printer::default(),
            asked: BTreeMap::new(),
            fresh: VecDeque::new(),
            result: None,
            has_ended: false,
            tells,
            events: Vec::new(),
        };
        feed.drain();
        Ok(feed)
    }

    pub(super) const fn state(&self) -> &AgentState {
        self.engine.state()
    }

    pub(super) fn finish(self) -> (Vec<AgentStreamEvent>, Option<RunResult>) {
        (self.events, self.result)
    }

    /// Takes the entry at a place.
    pub(super) fn take(&mut self, n: u64, entry: &Entry) -> Result<(), JournalError> {
        match entry {
            Entry::Begin(_) | Entry::Resumed => Ok(()),
            Entry::Effect(effect) => self.ask(effect),
            Entry::Answer(told) => self.answer(n, told),
            Entry::End(ended) => self.end(ended),
        }
    }

    fn ask(&mut self, recorded: &Asked) -> Result<(), JournalError> {
        match self.fresh.pop_front() {
            Some((asked, effect)) if asked == *recorded => {
                self.asked.insert(asked.id, (asked.kind, effect));
                Ok(())
            }
            _ => Err(differs(recorded)),
        }
    }

    fn answer(&mut self, entry: u64, told: &Told) -> Result<(), JournalError> {
        // The run recorded all that it asked for before it took the next answer.
        if let Some((asked, _)) = self.fresh.front() {
            return Err(differs(asked));
        }
        let Some(id) = told.id else {
            self.give(told.at, Answer::Abort);
            return Ok(());
        };
        if self.asked.remove(&id).is_none() {
            let what = "an answer to an effect that nobody waits for";
            return Err(JournalError::Order { entry, what });
        }
        let pieces = match &told.said {
            Said::Response(response) if self.tells => events_of(response, usize::MAX),
            // That something was heard decides whether the question is asked again.
            Said::Failed(_, true) | Said::Silent(true) => {
                vec![StreamEvent::bare(StreamEventType::MessageStart, 0)]
            }
            _ => Vec::new(),
        };
        for piece in pieces {
            let piece = Answer::Model(id, Some(Ok(ModelEvent::Event(piece))));
            self.give(told.at, piece);
        }
        self.give(told.at, told.said.answer(id));
        Ok(())
    }

    fn end(&mut self, ended: &Ended) -> Result<(), JournalError> {
        let same = |result: &RunResult| {
            let print = print::end(result);
            Ended {
                success: result.is_ok(),
                print,
            } == *ended
        };
        self.has_ended = true;
        if self.result.as_ref().is_some_and(same) {
            return Ok(());
        }
        Err(JournalError::Differs {
            effect: 0,
            kind: "end",
        })
    }

    fn give(&mut self, now: Now, answer: Answer) {
        // An engine that has ended wants nothing more, and asks for nothing that could have an answer.
        let _ = self.engine.handle_answer(now, answer);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            if let Some(asked) = self.printer.print(&effect) {
                self.fresh.push_back((asked, effect));
                continue;
            }
            match effect {
                Effect::Cancel(id) => {
                    self.asked.remove(&id);
                    self.fresh.retain(|(asked, _)| asked.id != id);
                }
                Effect::Event(event) if self.tells => self.events.push(event),
                Effect::Finished(result) => self.result = Some(result),
                _ => {}
            }
        }
    }
}

const fn differs(asked: &Asked) -> JournalError {
    JournalError::Differs {
        effect: asked.id,
        kind: asked.kind.as_str(),
    }
}
