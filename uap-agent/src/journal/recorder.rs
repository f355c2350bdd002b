//! An engine that writes each request and each result to a journal.

use core::fmt;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ubos_common::json::RawObject;
use ubos_common::machine::Machine;
use ubos_common::time::{Mono, Now};
use upp::{ErrorCode, UppError};

use super::JournalError;
use super::answer::EffectResult;
use super::entry::{AnswerEntry, EndEntry, Entry};
use super::fingerprint::{self, Fingerprinter};
use super::playback::Playback;
use crate::engine::{self, Closed, EffectId, Engine, EngineConfig, RunStart};
use crate::trace_event::{debug, trace};

/// An engine whose requests are written before they are made, and whose results are written before it takes them.
///
/// Writing is an effect, too: the recorder requests it and waits. [`Agent::record`](crate::Agent::record) drives one.
///
/// ```text
/// result -> Write(result) -> Written -> engine -> Write(requests, end) -> Written -> requests, events -> world
/// ```
pub struct Recorder {
    engine: Engine,
    fingerprinter: Fingerprinter,
    /// Effects that were requested and have no result.
    pending: BTreeSet<EffectId>,
    /// Results that wait until the one before them is written: at most one for each effect.
    queue: VecDeque<(Now, engine::Input)>,
    /// The inference of which a part was received.
    partial: Option<EffectId>,
    out: VecDeque<Output>,
    writing: Writing,
    /// The place of the next entry.
    next: u64,
}

/// What is being written.
enum Writing {
    Nothing,
    /// A result, which the engine takes afterwards.
    Answer(Now, Box<engine::Input>),
    /// Requests, which are made afterwards, with the events between them.
    Requests(Vec<engine::Output>),
    /// Nothing: the journal has failed.
    Failed,
}

/// The input of a [`Recorder`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Input {
    /// An input for the engine.
    Engine(engine::Input),
    /// The outcome of the last [`Output::Write`].
    Written(Result<(), JournalError>),
}

/// The output of a [`Recorder`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Output {
    /// An output of the engine.
    Engine(Box<engine::Output>),
    /// Append these entries at this place ([`Journal::append`](super::Journal::append)). There is one write at a time.
    Write(u64, Vec<RawObject>),
}

impl Output {
    fn engine(output: engine::Output) -> Self {
        Self::Engine(Box::new(output))
    }
}

impl Recorder {
    /// Starts a run. `seed` is the seed of every id of the run.
    #[must_use]
    pub fn begin(now: Now, config: &EngineConfig, seed: u64, start: RunStart) -> Self {
        let begin = config.begin_entry(now, seed, start);
        let mut recorder = Self::over(config.engine(&begin), Fingerprinter::default(), 0);
        recorder.write_outputs(vec![Entry::Begin(Box::new(begin))]);
        recorder
    }

    /// Continues a run at the end of its recording.
    pub(super) fn resume(playback: Playback, next: u64) -> Self {
        let mut recorder = Self::over(playback.engine, playback.fingerprinter, next);
        let mut outputs: Vec<engine::Output> = Vec::new();
        let mut entries = Vec::new();
        // This entry makes the resumers of one run compete for the write: only one of them goes on to act.
        let repeats = playback.result.is_none() && !playback.pending.is_empty();
        entries.extend(repeats.then_some(Entry::Resumed));
        debug!(
            next,
            outstanding = playback.pending.len(),
            "recorded run resumed"
        );
        for (id, (_, effect)) in playback.pending {
            recorder.pending.insert(id);
            outputs.push(effect);
        }
        for (request, effect) in playback.fresh {
            recorder.pending.insert(request.id);
            entries.push(Entry::Effect(request));
            outputs.push(effect);
        }
        if let Some(result) = playback.result {
            let end = EndEntry {
                success: result.is_ok(),
                fingerprint: fingerprint::end(&result),
            };
            entries.extend((!playback.has_ended).then_some(Entry::End(end)));
            outputs.push(engine::Output::Finished(result));
        }
        recorder.write_requests(&entries, outputs);
        recorder
    }

    const fn over(engine: Engine, fingerprinter: Fingerprinter, next: u64) -> Self {
        Self {
            engine,
            fingerprinter,
            pending: BTreeSet::new(),
            queue: VecDeque::new(),
            partial: None,
            out: VecDeque::new(),
            writing: Writing::Nothing,
            next,
        }
    }

    /// Takes the result of an effect or of a write. The result of an effect that was cancelled is ignored.
    ///
    /// # Errors
    ///
    /// [`Closed`] after the run has ended, or after the journal has failed.
    pub fn handle_input(&mut self, now: Now, input: Input) -> Result<(), Closed> {
        if self.has_ended() {
            return Err(Closed);
        }
        match input {
            Input::Engine(input) => self.queue.push_back((now, input)),
            Input::Written(written) => self.on_written(written),
        }
        self.write_answers();
        Ok(())
    }

    /// Does nothing: a recorder has no timeouts.
    pub const fn handle_timeout(&mut self, _now: Now) {}

    /// The next output, or `None` when there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Always `None`: a recorder has no timeouts.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Mono> {
        None
    }

    /// Whether the recorder takes input: the run has not ended.
    #[must_use]
    pub fn accepts_input(&self) -> bool {
        !self.has_ended()
    }

    /// Whether the run has ended and every output was taken.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.has_ended() && self.out.is_empty()
    }

    fn has_ended(&self) -> bool {
        match self.writing {
            Writing::Failed => true,
            Writing::Nothing => self.engine.is_closed(),
            Writing::Answer(..) | Writing::Requests(_) => false,
        }
    }

    fn on_written(&mut self, written: Result<(), JournalError>) {
        trace!(next = self.next, "journal written");
        if written.is_err() {
            debug!(next = self.next, "journal failed");
        }
        match core::mem::replace(&mut self.writing, Writing::Nothing) {
            Writing::Failed => self.writing = Writing::Failed,
            Writing::Nothing => {}
            Writing::Answer(now, answer) => match written {
                Ok(()) => self.give(now, *answer),
                Err(error) => self.fail(&error),
            },
            Writing::Requests(outputs) => match written {
                // Where only the end could not be written, the entries before it still lead to the same end.
                Err(error) if outputs.iter().any(is_request) => self.fail(&error),
                _ => self.out.extend(outputs.into_iter().map(Output::engine)),
            },
        }
    }

    /// Gives queued results to the engine, up to the first that has to be written.
    fn write_answers(&mut self) {
        while matches!(self.writing, Writing::Nothing) {
            let Some((now, answer)) = self.queue.pop_front() else {
                return;
            };
            let inference = match answer {
                engine::Input::Model(id, _) => Some(id),
                _ => None,
            };
            let is_partial = inference.is_some() && inference == self.partial;
            // Only the whole response is recorded, so the engine takes a part of it at once.
            let Some((id, result)) = EffectResult::of(&answer, is_partial) else {
                self.partial = inference;
                self.give(now, answer);
                continue;
            };
            // The engine has cancelled the effect.
            if id.is_some_and(|id| !self.pending.remove(&id)) {
                continue;
            }
            let entry = Entry::Answer(AnswerEntry {
                at: now,
                id,
                result,
            });
            self.write(&[entry]);
            self.writing = Writing::Answer(now, Box::new(answer));
        }
    }

    fn give(&mut self, now: Now, answer: engine::Input) {
        // An engine that has ended takes no more input.
        if self.engine.handle_input(now, answer).is_ok() {
            self.write_outputs(Vec::new());
        }
    }

    /// Writes the engine's new requests behind these entries, and makes them afterwards.
    fn write_outputs(&mut self, mut entries: Vec<Entry>) {
        let mut outputs = Vec::new();
        while let Some(output) = self.engine.poll_output() {
            if let Some(request) = self.fingerprinter.request(&output) {
                self.pending.insert(request.id);
                entries.push(Entry::Effect(request));
            }
            match &output {
                engine::Output::Cancel(id) => drop(self.pending.remove(id)),
                engine::Output::Finished(result) => entries.push(Entry::End(EndEntry {
                    success: result.is_ok(),
                    fingerprint: fingerprint::end(result),
                })),
                _ => {}
            }
            outputs.push(output);
        }
        self.write_requests(&entries, outputs);
    }

    fn write_requests(&mut self, entries: &[Entry], outputs: Vec<engine::Output>) {
        if entries.is_empty() {
            self.out.extend(outputs.into_iter().map(Output::engine));
            return;
        }
        self.write(entries);
        self.writing = Writing::Requests(outputs);
    }

    fn write(&mut self, entries: &[Entry]) {
        trace!(first = self.next, entries = entries.len(), "journal write");
        let first = self.next;
        let written = (first..).zip(entries).map(|(n, entry)| entry.write_at(n));
        self.next += entries.len() as u64;
        self.out.push_back(Output::Write(first, written.collect()));
    }

    /// Ends a run that cannot be recorded any more, without the result that could not be written.
    fn fail(&mut self, error: &JournalError) {
        for id in core::mem::take(&mut self.pending) {
            self.out
                .push_back(Output::engine(engine::Output::Cancel(id)));
        }
        self.queue.clear();
        self.writing = Writing::Failed;
        let text = error.to_string();
        let error = UppError::new(ErrorCode::ProviderError, Arc::from("uap"), text)
            .with_cause(error.clone());
        let failure = self.engine.error(error);
        self.out
            .push_back(Output::engine(engine::Output::Finished(Err(failure))));
    }
}

/// Whether an output has an effect that must not happen unless it is recorded.
const fn is_request(output: &engine::Output) -> bool {
    !matches!(
        output,
        engine::Output::Event(_) | engine::Output::Cancel(_) | engine::Output::Finished(_)
    )
}

impl Machine for Recorder {
    type Input<'a> = Input;
    type Output = Output;
    type Error = Closed;

    fn handle_input(&mut self, now: Now, input: Input) -> Result<(), Closed> {
        self.handle_input(now, input)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.poll_output()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.poll_timeout()
    }

    fn accepts_input(&self) -> bool {
        self.accepts_input()
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("engine", &self.engine)
            .field("entries", &self.next)
            .finish_non_exhaustive()
    }
}
