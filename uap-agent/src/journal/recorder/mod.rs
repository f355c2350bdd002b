//! An engine that writes each request and each result to a journal.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ubos_common::json::RawObject;
use ubos_common::time::{Mono, Now};
use upp::{ErrorCode, UppError};

mod people;
mod takeover;

use super::JournalError;
use super::answer::EffectResult;
use super::entry::{AnswerEntry, EndEntry, Entry, VERSION};
use super::fingerprint::{self, Fingerprinter};
use super::lease::{Ownership, Tenure};
use super::question::Question;
use crate::approval::ApprovalPolicy;
use crate::engine::{self, Closed, EffectId, Engine, EngineConfig, GRACE, RunStart};
use crate::trace_event::{debug, trace};
pub(super) use takeover::Takeover;

/// An engine whose requests are written before they are made, and whose results are written before it takes them.
///
/// Writing is an effect, too: the recorder requests it and waits. [`Agent::record`](crate::Agent::record) drives one.
///
/// ```text
/// result -> Write(result) -> Written -> engine -> Write(requests, end) -> Written -> requests, events -> world
/// ```
///
/// A call that needs a person's approval is not requested: the recorder writes the question. When the run can do nothing but
/// wait for decisions, the recorder gives its lease up and ends with the error [`Paused`](super::Paused).
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
    /// The entries that are being written.
    unwritten: Vec<Entry>,
    /// The place of the next entry.
    next: u64,
    tenure: Tenure,
    /// The last reading of the clock.
    seen: Mono,
    /// How the run ends, once it was aborted or its time is over.
    ends: Option<ErrorCode>,
    /// When the present write is not waited for any more.
    gives_up_at: Option<Mono>,
    approvals: Option<Arc<dyn ApprovalPolicy>>,
    /// Calls that wait for a decision.
    held: BTreeMap<EffectId, (Question, engine::Output)>,
    /// Calls that were approved, and are requested once that is written.
    approved: Vec<engine::Output>,
}

/// What is being written.
enum Writing {
    Nothing,
    /// A result, which the engine takes afterwards.
    Answer(Now, Box<engine::Input>),
    /// Requests, which are made afterwards, with the events between them.
    Requests(Vec<engine::Output>),
    /// That the lease is given up. Then the run ends, and waits for persons.
    Pause,
    /// Nothing: the journal has failed, or the run has paused.
    Ended,
}

/// The input of a [`Recorder`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Input {
    /// An input for the engine.
    Engine(engine::Input),
    /// The outcome of the last [`Output::Write`].
    Written(Result<(), JournalError>),
    /// The last [`Output::Write`] conflicts: these entries stand at its place. Where all of them are decisions of persons,
    /// the recorder takes them and writes its own behind them.
    Behind(Vec<RawObject>),
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
    pub fn begin(
        now: Now,
        config: &EngineConfig,
        seed: u64,
        start: RunStart,
        owner: &Ownership,
    ) -> Self {
        let begin = config.begin_entry(now, seed, start, owner);
        let fingerprinter = Fingerprinter::of_version(VERSION);
        let mut recorder = Self::over(config.engine(&begin), fingerprinter, 0, owner.tenure(1));
        recorder.approvals.clone_from(&config.approvals);
        recorder.write_outputs(now, vec![Entry::Begin(Box::new(begin))]);
        recorder
    }

    const fn over(engine: Engine, fingerprinter: Fingerprinter, next: u64, tenure: Tenure) -> Self {
        Self {
            engine,
            fingerprinter,
            pending: BTreeSet::new(),
            queue: VecDeque::new(),
            partial: None,
            out: VecDeque::new(),
            writing: Writing::Nothing,
            unwritten: Vec::new(),
            next,
            tenure,
            seen: Mono::ZERO,
            ends: None,
            gives_up_at: None,
            approvals: None,
            held: BTreeMap::new(),
            approved: Vec::new(),
        }
    }

    /// Takes the result of an effect or of a write. The result of an effect that was cancelled is ignored.
    ///
    /// # Errors
    ///
    /// [`Closed`] after the run has ended, or after the journal has failed.
    // impl: UAP-12-5
    pub fn handle_input(&mut self, now: Now, input: Input) -> Result<(), Closed> {
        if self.has_ended() {
            return Err(Closed);
        }
        self.seen = now.mono;
        match input {
            Input::Engine(input) => {
                self.note_end(&input);
                self.queue.push_back((now, input));
            }
            Input::Written(written) => self.on_written(written),
            Input::Behind(entries) => self.on_behind(now, &entries),
        }
        self.go_on(now);
        Ok(())
    }

    /// Renews the lease where it is time. Ends a run that was aborted and whose journal has not answered for 10 seconds:
    /// nobody knows whether the last entries were written.
    pub fn handle_timeout(&mut self, now: Now) {
        self.seen = now.mono;
        if self.poll_timeout().is_none_or(|at| at > now.mono) {
            return;
        }
        if !matches!(self.writing, Writing::Nothing) {
            self.fail(&JournalError::NoAnswer);
            return;
        }
        let lease = Entry::Lease(self.tenure.entry(now));
        self.write(now, vec![lease]);
        self.writing = Writing::Requests(Vec::new());
    }

    /// From an abort on, no write is waited for without end.
    fn note_end(&mut self, input: &engine::Input) {
        let code = match input {
            engine::Input::Abort => ErrorCode::Cancelled,
            engine::Input::Expire => ErrorCode::Timeout,
            _ => return,
        };
        self.ends.get_or_insert(code);
        if !matches!(self.writing, Writing::Nothing) {
            self.gives_up_at = Some(self.seen.saturating_add(GRACE));
        }
    }

    /// The epoch of the lease that the recorder holds.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.tenure.epoch
    }

    /// The next output, or `None` when there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When the lease is to be renewed, or a write of a run that was aborted is given up.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        match self.writing {
            Writing::Nothing if !self.has_ended() => self.tenure.renew_at,
            Writing::Nothing | Writing::Ended => None,
            Writing::Answer(..) | Writing::Requests(_) | Writing::Pause => self.gives_up_at,
        }
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
            Writing::Ended => true,
            Writing::Nothing => self.engine.is_closed(),
            Writing::Answer(..) | Writing::Requests(_) | Writing::Pause => false,
        }
    }

    fn on_written(&mut self, written: Result<(), JournalError>) {
        if written.is_ok() {
            trace!(next = self.next, "journal written");
        } else {
            debug!(next = self.next, "journal failed");
        }
        self.unwritten.clear();
        self.gives_up_at = None;
        match core::mem::replace(&mut self.writing, Writing::Nothing) {
            Writing::Ended => self.writing = Writing::Ended,
            Writing::Nothing => {}
            Writing::Pause => match written {
                Ok(()) => self.pause(),
                Err(error) => self.fail(&error),
            },
            Writing::Answer(now, answer) => match written {
                Ok(()) => self.give(now, *answer),
                Err(error) => self.fail(&error),
            },
            Writing::Requests(outputs) => match written {
                // Where only the end could not be written, the entries before it still lead to the same end.
                Err(error) if outputs.is_empty() || outputs.iter().any(is_request) => {
                    self.fail(&error);
                }
                _ => self.out.extend(outputs.into_iter().map(Output::engine)),
            },
        }
    }

    /// Does what can be done until something has to be written.
    fn go_on(&mut self, now: Now) {
        self.write_answers(now);
        self.request_approved(now);
        self.wait_for_people(now);
    }

    /// Gives queued results to the engine, up to the first that has to be written.
    fn write_answers(&mut self, now: Now) {
        if self.engine.is_closed() {
            // Nothing stands behind the end, also not an abort that came while it was written.
            self.queue.clear();
        }
        while matches!(self.writing, Writing::Nothing) {
            let Some((at, answer)) = self.queue.pop_front() else {
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
                self.give(at, answer);
                continue;
            };
            // The engine has cancelled the effect.
            if id.is_some_and(|id| !self.pending.remove(&id)) {
                continue;
            }
            let entry = Entry::Answer(AnswerEntry { at, id, result });
            self.write(now, vec![entry]);
            self.writing = Writing::Answer(at, Box::new(answer));
        }
    }

    fn give(&mut self, now: Now, answer: engine::Input) {
        // An engine that has ended takes no more input.
        if self.engine.handle_input(now, answer).is_ok() {
            self.write_outputs(now, Vec::new());
        }
    }

    /// Writes the engine's new requests behind these entries, and makes them afterwards.
    fn write_outputs(&mut self, now: Now, mut entries: Vec<Entry>) {
        let mut outputs = Vec::new();
        while let Some(output) = self.engine.poll_output() {
            if let Some(request) = self.fingerprinter.request(&output) {
                self.pending.insert(request.id);
                entries.push(Entry::Effect(request));
            }
            match &output {
                engine::Output::Cancel(id) => {
                    self.pending.remove(id);
                    self.held.remove(id);
                }
                engine::Output::Finished(result) => entries.push(Entry::End(EndEntry {
                    success: result.is_ok(),
                    fingerprint: fingerprint::end(result),
                })),
                _ => {}
            }
            outputs.extend(self.ask_people(now, output, &mut entries));
        }
        self.write_requests(now, entries, outputs);
    }

    fn write_requests(&mut self, now: Now, entries: Vec<Entry>, outputs: Vec<engine::Output>) {
        if entries.is_empty() {
            self.out.extend(outputs.into_iter().map(Output::engine));
            return;
        }
        self.write(now, entries);
        self.writing = Writing::Requests(outputs);
    }

    fn write(&mut self, now: Now, entries: Vec<Entry>) {
        trace!(first = self.next, entries = entries.len(), "journal write");
        self.tenure.written(now);
        self.gives_up_at = self.ends.as_ref().map(|_| self.seen.saturating_add(GRACE));
        let first = self.next;
        let written = (first..).zip(&entries).map(|(n, entry)| entry.write_at(n));
        self.next += entries.len() as u64;
        self.out.push_back(Output::Write(first, written.collect()));
        self.unwritten = entries;
    }

    /// Ends a run that cannot be recorded any more, without the result that could not be written.
    fn fail(&mut self, error: &JournalError) {
        for id in core::mem::take(&mut self.pending) {
            self.out
                .push_back(Output::engine(engine::Output::Cancel(id)));
        }
        let text = error.to_string();
        let code = match error {
            JournalError::NoAnswer => self.ends.clone(),
            _ => None,
        };
        let code = code.unwrap_or(ErrorCode::ProviderError);
        let error = UppError::new(code, Arc::from("uap"), text).with_cause(error.clone());
        self.end(error);
    }

    /// Ends the run with an error that its journal does not hold.
    fn end(&mut self, error: UppError) {
        self.writing = Writing::Ended;
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

ubos_common::forward_machine! { [] Recorder: Input => Output, Closed }

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("engine", &self.engine)
            .field("entries", &self.next)
            .finish_non_exhaustive()
    }
}
