//! An engine whose answers are written before it takes them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ubos_common::json::RawObject;
use ubos_common::machine::Machine;
use ubos_common::time::{Mono, Now};
use upp::{ErrorCode, UppError};

use super::JournalError;
use super::answer::Said;
use super::entry::{Ended, Entry, Told};
use super::feed::Feed;
use super::print::{self, Printer};
use super::program::{Program, RunStart};
use crate::engine::{Answer, Closed, Effect, EffectId, Engine};

/// An engine whose every question is written before it is asked, and every answer before it is taken.
///
/// It does no IO either: where something is to be written, it asks for it and waits. It is a [`Machine`] like the
/// engine, for a driver of any kind; [`Agent::record`](crate::Agent::record) is one.
///
/// ```text
/// answer -> Write(answer) -> Written -> engine -> Write(questions, end) -> Written -> questions, events -> world
/// ```
pub struct Recorder {
    engine: Engine,
    printer: Printer,
    /// What the world is asked for.
    asked: BTreeSet<EffectId>,
    /// Answers that wait for the one before them: at most one for each question.
    queue: VecDeque<(Now, Answer)>,
    /// The question of whose answer a piece has come.
    heard: Option<EffectId>,
    out: VecDeque<RecorderOutput>,
    writing: Writing,
    /// The place of the next entry.
    next: u64,
}

/// What is being written.
enum Writing {
    Nothing,
    /// An answer, to be taken then.
    Answer(Now, Box<Answer>),
    /// Questions, to be asked then, with the events between them.
    Questions(Vec<Effect>),
    /// Nothing any more: the journal has failed.
    Failed,
}

/// What a [`Recorder`] is told.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecorderInput {
    /// The world's answer.
    Answer(Answer),
    /// What was to be written is written, or is not.
    Written(Result<(), JournalError>),
}

/// What a [`Recorder`] asks for.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecorderOutput {
    /// An effect of the engine.
    Effect(Box<Effect>),
    /// Write these entries ([`Journal::append`](super::Journal::append)), and say when it is done.
    Write(u64, Vec<RawObject>),
}

impl RecorderOutput {
    fn of(effect: Effect) -> Self {
        Self::Effect(Box::new(effect))
    }
}

impl Recorder {
    /// A run from its beginning.
    #[must_use]
    pub fn begin(now: Now, program: &Program, run: RunStart) -> Self {
        let begin = program.begin(now, run);
        let mut recorder = Self::over(program.engine(&begin), Printer::default(), 0);
        recorder.ask(vec![Entry::Begin(Box::new(begin))]);
        recorder
    }

    /// A run that has come to the end of its recording.
    pub(super) fn resume(feed: Feed, next: u64) -> Self {
        let mut recorder = Self::over(feed.engine, feed.printer, next);
        let mut effects: Vec<Effect> = Vec::new();
        let mut entries = Vec::new();
        // Of several who resume the run at once, one gets to write; the others have done nothing then.
        let asks_again = feed.result.is_none() && !feed.asked.is_empty();
        entries.extend(asks_again.then_some(Entry::Resumed));
        for (id, (_, effect)) in feed.asked {
            recorder.asked.insert(id);
            effects.push(effect);
        }
        for (asked, effect) in feed.fresh {
            recorder.asked.insert(asked.id);
            entries.push(Entry::Effect(asked));
            effects.push(effect);
        }
        if let Some(result) = feed.result {
            let print = print::end(&result);
            let ended = Ended {
                success: result.is_ok(),
                print,
            };
            entries.extend((!feed.has_ended).then_some(Entry::End(ended)));
            effects.push(Effect::Finished(result));
        }
        recorder.write_questions(&entries, effects);
        recorder
    }

    const fn over(engine: Engine, printer: Printer, next: u64) -> Self {
        Self {
            engine,
            printer,
            asked: BTreeSet::new(),
            queue: VecDeque::new(),
            heard: None,
            out: VecDeque::new(),
            writing: Writing::Nothing,
            next,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.writing, Writing::Failed)
            || matches!(self.writing, Writing::Nothing) && self.engine.is_closed()
    }

    fn on_written(&mut self, written: Result<(), JournalError>) {
        match core::mem::replace(&mut self.writing, Writing::Nothing) {
            Writing::Failed => self.writing = Writing::Failed,
            Writing::Nothing => {}
            Writing::Answer(now, answer) => match written {
                Ok(()) => self.give(now, *answer),
                Err(error) => self.fail(&error),
            },
            Writing::Questions(effects) => {
                // Where only the end could not be written, all that it follows from is: it holds.
                let asks = |effect: &Effect| {
                    !matches!(
                        effect,
                        Effect::Event(_) | Effect::Cancel(_) | Effect::Finished(_)
                    )
                };
                match written {
                    Err(error) if effects.iter().any(asks) => self.fail(&error),
                    _ => self.out.extend(effects.into_iter().map(RecorderOutput::of)),
                }
            }
        }
    }

    /// Takes answers, up to the first that is to be written.
    fn pump(&mut self) {
        while matches!(self.writing, Writing::Nothing) {
            let Some((now, answer)) = self.queue.pop_front() else {
                return;
            };
            let of = match answer {
                Answer::Model(id, _) => Some(id),
                _ => None,
            };
            let was_heard = of.is_some() && of == self.heard;
            let Some((id, said)) = Said::of(&answer, was_heard) else {
                self.heard = of;
                self.give(now, answer);
                continue;
            };
            // The engine has cancelled it: the answer is void.
            if id.is_some_and(|id| !self.asked.remove(&id)) {
                continue;
            }
            let entry = Entry::Answer(Told { at: now, id, said });
            self.write(&[entry]);
            self.writing = Writing::Answer(now, Box::new(answer));
        }
    }

    fn give(&mut self, now: Now, answer: Answer) {
        // One that has ended takes nothing more.
        if self.engine.handle_answer(now, answer).is_ok() {
            self.ask(Vec::new());
        }
    }

    /// Hands on what the engine wants, behind these entries.
    fn ask(&mut self, mut entries: Vec<Entry>) {
        let mut effects = Vec::new();
        while let Some(effect) = self.engine.poll_effect() {
            if let Some(asked) = self.printer.print(&effect) {
                self.asked.insert(asked.id);
                entries.push(Entry::Effect(asked));
            }
            match &effect {
                Effect::Cancel(id) => drop(self.asked.remove(id)),
                Effect::Finished(result) => {
                    let print = print::end(result);
                    entries.push(Entry::End(Ended {
                        success: result.is_ok(),
                        print,
                    }));
                }
                _ => {}
            }
            effects.push(effect);
        }
        self.write_questions(&entries, effects);
    }

    fn write_questions(&mut self, entries: &[Entry], effects: Vec<Effect>) {
        if entries.is_empty() {
            self.out.extend(effects.into_iter().map(RecorderOutput::of));
            return;
        }
        self.write(entries);
        self.writing = Writing::Questions(effects);
    }

    fn write(&mut self, entries: &[Entry]) {
        let first = self.next;
        let written = (first..).zip(entries).map(|(n, entry)| entry.write_at(n));
        self.next += entries.len() as u64;
        self.out
            .push_back(RecorderOutput::Write(first, written.collect()));
    }

    /// A run that cannot be recorded any more ends, without the answer that could not be written.
    fn fail(&mut self, error: &JournalError) {
        for id in core::mem::take(&mut self.asked) {
            self.out.push_back(RecorderOutput::of(Effect::Cancel(id)));
        }
        self.queue.clear();
        self.writing = Writing::Failed;
        let text = error.to_string();
        let error = UppError::new(ErrorCode::ProviderError, Arc::from("uap"), text)
            .with_cause(error.clone());
        let failure = self.engine.abandon(error);
        self.out
            .push_back(RecorderOutput::of(Effect::Finished(Err(failure))));
    }
}

impl Machine for Recorder {
    type Input<'a> = RecorderInput;
    type Output = RecorderOutput;
    type Error = Closed;

    fn handle_input(&mut self, now: Now, input: RecorderInput) -> Result<(), Closed> {
        if self.is_over() {
            return Err(Closed);
        }
        match input {
            RecorderInput::Answer(answer) => self.queue.push_back((now, answer)),
            RecorderInput::Written(written) => self.on_written(written),
        }
        self.pump();
        Ok(())
    }

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll_output(&mut self) -> Option<RecorderOutput> {
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }

    fn accepts_input(&self) -> bool {
        !self.is_over()
    }

    fn is_closed(&self) -> bool {
        self.is_over() && self.out.is_empty()
    }
}

impl core::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Recorder")
            .field("engine", &self.engine)
            .field("entries", &self.next)
            .finish_non_exhaustive()
    }
}
