//! Recorders, driven by hand, and by an agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::executor::block_on;
use futures::{FutureExt as _, StreamExt as _};
use uap_agent::engine;
use uap_agent::journal::recorder::{Input, Output};
use uap_agent::journal::{JournalError, MemoryJournal, Ownership, Recorder, Recording};
use uap_agent::{
    AgentError, AgentStrategy, GenerateResult, HookAnswer, HookCall, HookFuture, agent,
};
use ubos_common::json::RawObject;
use upp::{ErrorCode, FnTool, Reply};

use crate::lab::{NOW, config, start};
use crate::support::{options, script};

/// A recorder and its journal.
struct Driven {
    recorder: Recorder,
    entries: Vec<RawObject>,
}

impl Driven {
    fn begin() -> Self {
        Self {
            recorder: Recorder::begin(NOW, &config(), 3, start(), &Ownership::default()),
            entries: Vec::new(),
        }
    }

    /// Writes what is to be written; gives the outputs of the engine.
    fn outputs(&mut self) -> Vec<engine::Output> {
        let mut outputs = Vec::new();
        while let Some(output) = self.recorder.poll_output() {
            match output {
                Output::Write(first, entries) => {
                    assert_eq!(first, self.entries.len() as u64);
                    self.entries.extend(entries);
                    let written = Input::Written(Ok(()));
                    self.recorder.handle_input(NOW, written).unwrap();
                }
                Output::Engine(output) => outputs.push(*output),
                _ => {}
            }
        }
        outputs
    }

    fn take(&mut self, input: engine::Input) {
        let taken = self.recorder.handle_input(NOW, Input::Engine(input));
        taken.unwrap();
    }

    /// The hook that is called.
    fn hook(&mut self) -> u64 {
        let outputs = self.outputs();
        let mut hooks = outputs.iter().filter_map(|output| match output {
            engine::Output::Hook(id, _) => Some(*id),
            _ => None,
        });
        hooks.next_back().unwrap()
    }
}

// spec: UAP-12-5
#[test]
fn a_result_that_comes_after_its_cancellation_is_not_written() {
    let mut run = Driven::begin();
    let hook = run.hook();
    run.take(engine::Input::Hook(hook, Ok(HookAnswer::Done)));
    let outputs = run.outputs();
    let Some(engine::Output::Infer(asked, _)) = outputs.last() else {
        panic!("{outputs:?}");
    };
    run.take(engine::Input::Abort);
    let outputs = run.outputs();
    let [
        engine::Output::Cancel(cancelled),
        engine::Output::Hook(hook, HookCall::Error(_)),
    ] = &outputs[..]
    else {
        panic!("{outputs:?}");
    };
    assert_eq!(cancelled, asked);
    let before = run.entries.len();
    run.take(engine::Input::Model(*asked, None));
    assert!(run.outputs().is_empty());
    assert_eq!(run.entries.len(), before);
    assert!(run.recorder.accepts_input() && !run.recorder.is_closed());

    run.take(engine::Input::Hook(*hook, Ok(HookAnswer::Done)));
    let outputs = run.outputs();
    let [engine::Output::Finished(Err(error))] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    assert_eq!(error.error.code, ErrorCode::Cancelled);
    assert!(!run.recorder.accepts_input() && run.recorder.is_closed());
    let late = Input::Engine(engine::Input::Abort);
    assert!(run.recorder.handle_input(NOW, late).is_err());
    assert!(Recording::from_entries(&run.entries).unwrap().has_ended());
}

// spec: UAP-12-5
#[test]
fn a_request_that_could_not_be_written_is_not_made() {
    let full = JournalError::Full {
        limit: 1,
        unit: "bytes",
    };
    // The first write begins the run, the second asks the model.
    for writes in 0..2 {
        let mut run = Driven::begin();
        if writes == 1 {
            let hook = run.hook();
            run.take(engine::Input::Hook(hook, Ok(HookAnswer::Done)));
        }
        let written = std::iter::from_fn(|| run.recorder.poll_output())
            .any(|output| matches!(output, Output::Write(..)));
        assert!(written);
        let failed = Input::Written(Err(full.clone()));
        run.recorder.handle_input(NOW, failed).unwrap();
        let outputs = std::iter::from_fn(|| run.recorder.poll_output());
        let asked = outputs.filter(|output| match output {
            Output::Engine(output) => matches!(
                **output,
                engine::Output::Hook(..) | engine::Output::Infer(..) | engine::Output::Tool(..)
            ),
            _ => false,
        });
        assert_eq!(asked.count(), 0, "after {writes} writes");
        assert!(run.recorder.is_closed());
    }
}

// spec: UAP-12-5
#[test]
fn a_conflict_tells_how_far_the_journal_is() {
    for others in 0..3 {
        let mut run = Driven::begin();
        let hook = run.hook();
        run.take(engine::Input::Hook(hook, Ok(HookAnswer::Done)));
        let Some(Output::Write(wanted, entries)) = run.recorder.poll_output() else {
            panic!("a result is written");
        };
        // Another has written there, and no decisions.
        let entries = vec![entries[0].clone(); others];
        let seen = wanted + others as u64;
        let behind = Input::Behind(entries);
        run.recorder.handle_input(NOW, behind).unwrap();
        let outputs = run.outputs();
        let Some(engine::Output::Finished(Err(error))) = outputs.last() else {
            panic!("{outputs:?}");
        };
        let cause = error.error.cause.as_ref().unwrap();
        assert_eq!(
            cause.downcast_ref::<JournalError>(),
            Some(&JournalError::Conflict { wanted, seen })
        );
        assert!(!run.recorder.accepts_input());
    }
}

// spec: UAP-11-1, UAP-12-5
#[test]
fn a_recorded_run_that_is_aborted_before_its_first_request_ends() {
    let model = script([]);
    let agent = agent(options(&model)).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let run = agent.record(journal.clone(), "go", &agent.initial_state());
    run.abort();
    let error = block_on(run.result()).unwrap_err();
    assert_eq!(error.error.code, ErrorCode::Cancelled);
    assert!(model.requests().is_empty());
    let recording = block_on(Recording::load(journal.as_ref())).unwrap();
    assert!(recording.has_ended());
}

/// Counts at an error how many hold something.
struct Holders(Arc<()>, AtomicUsize);

impl AgentStrategy for Holders {
    fn on_error<'a>(&'a self, _: &'a AgentError) -> HookFuture<'a, Option<GenerateResult>> {
        self.1.store(Arc::strong_count(&self.0), Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(None)))
    }
}

// spec: UAP-11-1, UAP-12-5
#[test]
fn an_abort_of_a_recorded_run_ends_its_tool_before_the_error_hook() {
    let held = Arc::new(());
    let holders = Arc::new(Holders(Arc::clone(&held), AtomicUsize::new(0)));
    let tool = FnTool::new("hang", "", RawObject::empty(), move |_, _| {
        let held = Arc::clone(&held);
        async move {
            let _held = held;
            std::future::pending().await
        }
    });
    let model = script([Reply::default().calling("c1", "hang", RawObject::empty())]);
    let options = options(&model)
        .with_tool(tool)
        .with_strategy(holders.clone());
    let agent = agent(options).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let mut run = agent.record(journal, "go", &agent.initial_state());
    while run.next().now_or_never().flatten().is_some() {}
    assert_eq!(Arc::strong_count(&holders.0), 3, "the tool runs");
    run.abort();
    block_on(run.result()).unwrap_err();
    assert_eq!(holders.1.load(Ordering::SeqCst), 2);
}
