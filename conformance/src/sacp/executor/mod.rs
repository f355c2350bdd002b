//! A kit for executors: whatever runs a plan, driven by lines of JSON in a time of its own.
//!
//! | told | what it means |
//! |---|---|
//! | `{"start": MESSAGE}` | run this message |
//! | `{"succeed": CALL, "output": VALUE}` | the tool of this call gave this |
//! | `{"fail": CALL, "message": TEXT, "retryable": BOOL}` | it failed |
//! | `{"time": MS}` | so many milliseconds have gone by since the beginning |
//! | `{"cancel": true}` | the run is called off |
//! | `{"heard": MESSAGE}` | a message about a message that is followed, with its state |
//!
//! | said | what it means |
//! |---|---|
//! | `{"call": CALL, "verb": .., "tool": .., "inputs": [..]}` | a tool is called, with the outputs of the steps that it waited for |
//! | `{"stop": CALL}` | a call is given up |
//! | `{"answer": REPLY}` | the answer |
//! | `{"state": WORD}` or `{"refused": CODE}` | what became of a state that was heard |
//!
//! A program that is tested ends what it says about a line with `{"ready": true}`, and says `{"unknown": true}` before it
//! about a line that it does not know. `CALL` is any JSON value that differs for each attempt.
//!
//! Cases about what the specification leaves to its readers stand at the level of advice: who reads it otherwise is told,
//! and does not fail.

mod cases;
mod cases_v10;
mod flaw;
mod reference;
mod script;

use crate::Kit;

pub use script::{Executor, ExecutorLine, Executors};

/// Cases of order, failures, retries, waits, timeouts, outputs, errors, traces and states, in both editions.
#[must_use]
pub fn executor_kit() -> Kit<Executors> {
    let mut cases = cases::of_0_1();
    cases.extend(cases_v10::of_1_0());
    Kit::new("sacp-executor", cases)
}

/// An executor that keeps every rule of the kit: that of the crate.
#[must_use]
pub fn reference() -> Box<dyn Executor> {
    Box::new(reference::Reference::new(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expectations;

    #[test]
    fn each_case_holds_for_the_reference_and_fails_for_its_mutant() {
        let kit = executor_kit();
        if let Err(errors) = kit.prove() {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            panic!("{}", errors.join("\n"));
        }
        let floor = Expectations::new().with_floor(kit.cases().len());
        let report = kit.run(&floor, |_| Ok(reference()));
        assert!(report.is_conformant(), "{report}");
    }
}
