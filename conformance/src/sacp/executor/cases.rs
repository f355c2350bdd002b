//! The cases of both editions: what the executor is told, and what has to come of it.

use serde_json::{Value, json};
use ubos_common::violation::Level;

use super::flaw::Flaw;
use super::reference::Reference;
use super::script::Move::{Cancel, Fail, Heard, Start, Succeed, Time};
use super::script::{Executor, Executors, Found, Move, Rounds, Rule, play};
use crate::{Case, Reach};

/// A case before it has its peers.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) clause: &'static str,
    pub(super) name: &'static str,
    pub(super) moves: fn() -> Vec<Move>,
    pub(super) holds: fn(&Rounds) -> Found,
    pub(super) flaw: Flaw,
    /// Clauses that this breach drags along.
    pub(super) drags: &'static [&'static str],
}

impl Row {
    pub(super) fn case(&self) -> Case<Executors> {
        let (moves, holds, flaw) = (self.moves, self.holds, self.flaw);
        Case::new(
            Reach::Drive,
            (self.clause, self.name),
            move |peer: &mut (dyn Executor + 'static), recorder| play(peer, recorder, moves()),
            move || Rule::new(holds),
            || peer(None),
            move || peer(Some(flaw)),
        )
        .also_breaks(self.drags)
    }

    /// A case whose clause the specification does not say in so many words: who reads it otherwise does not fail.
    pub(super) fn reading(&self) -> Case<Executors> {
        self.case().at_level(Level::Advice)
    }
}

fn peer(flaw: Option<Flaw>) -> Box<dyn Executor> {
    Box::new(Reference::new(flaw))
}

/// A message of 0.1 with this plan and these further members.
fn old(plan: &str, more: &str) -> Move {
    Start(format!(r#"{{"msg_id":"m","g":"G","plan":{plan}{more}}}"#))
}

fn one_fails(fails: &str) -> Found {
    Err(format!("{fails}, seen"))
}

/// The answer is the error with this code.
fn is_refused(rounds: &Rounds, code: &str) -> Found {
    rounds.has("/status", &json!("ERR"))?;
    rounds.has("/code", &json!(code))
}

const TWO: &str = r#"[["do","A",{}],["do","B",{}]]"#;

/// The cases of 0.1.
pub(super) fn of_0_1() -> Vec<Case<Executors>> {
    let mut cases: Vec<Case<Executors>> = ORDER.iter().map(Row::case).collect();
    cases.extend(MESSAGES.iter().map(Row::case));
    cases.extend(READINGS.iter().map(Row::reading));
    cases
}

const ORDER: &[Row] = &[
    Row {
        clause: "SACP-3-1",
        name: "runs the acts of a plan one after another",
        moves: || vec![old(TWO, ""), Succeed("A", "1"), Succeed("B", "2")],
        holds: |rounds| rounds.called(&[&["A"], &["B"]]),
        flaw: Flaw::AllAtOnce,
        drags: &["SACP-3-3", "SACP-2-9", "SACP-3-8"],
    },
    Row {
        clause: "SACP-3-1",
        name: "runs the members of a group together, and what follows behind all of them",
        moves: || {
            let plan = r#"[{"parallel":[["do","A",{}],["do","B",{}]]},["do","C",{}]]"#;
            vec![
                old(plan, ""),
                Succeed("B", "2"),
                Succeed("A", "1"),
                Succeed("C", "3"),
            ]
        },
        holds: |rounds| rounds.called(&[&["A", "B"], &[], &["C"]]),
        flaw: Flaw::OneByOne,
        drags: &["SACP-2-3"],
    },
    Row {
        clause: "SACP-3-1",
        name: "gives a join the outputs of its group in the order of the plan",
        moves: || {
            let plan = r#"[{"parallel":[["do","A",{}],["do","B",{}]]},["join","C",{}]]"#;
            vec![old(plan, ""), Succeed("B", "2"), Succeed("A", "1")]
        },
        holds: |rounds| match rounds.inputs("C") {
            Some(inputs) if *inputs == json!([1, 2]) => Ok(()),
            other => Err(format!("the inputs of the join are {other:?}, not [1,2]")),
        },
        flaw: Flaw::InputsReversed,
        drags: &[],
    },
    Row {
        clause: "SACP-3-3",
        name: "runs no later act when one has failed",
        moves: || vec![old(TWO, ""), Fail("A")],
        holds: |rounds| {
            rounds.called(&[&["A"]])?;
            is_refused(rounds, "STEP_FAILED")
        },
        flaw: Flaw::FailuresPass,
        drags: &["SACP-3-5"],
    },
    Row {
        clause: "SACP-3-3",
        name: "names the act that failed",
        moves: || vec![old(TWO, ""), Succeed("A", "1"), Fail("B")],
        holds: |rounds| {
            let answer = rounds.answer()?;
            let details = answer["details"].to_string();
            if answer["pointer"] == "/plan/1" || details.contains('2') || details.contains('B') {
                return Ok(());
            }
            Err(format!("nothing of act 2 in {answer}"))
        },
        flaw: Flaw::NamesNoAct,
        drags: &[],
    },
    Row {
        clause: "SACP-2-9",
        name: "runs a message in the parameters of an act, whose answer is the act's output",
        moves: || {
            let plan = r#"[["do","A",{"subtask":{"g":"S","plan":[["do","B",{}]]}}],["do","C",{}]]"#;
            vec![old(plan, ""), Succeed("B", "2"), Succeed("C", "3")]
        },
        holds: |rounds| rounds.called(&[&["B"], &["C"]]),
        flaw: Flaw::SubtaskIsAParameter,
        drags: &[],
    },
    Row {
        clause: "SACP-2-9",
        name: "runs a message inside the message behind its plan",
        moves: || {
            let inner = r#","subtask":{"g":"S","plan":[["do","B",{}]]}"#;
            vec![
                old(r#"[["do","A",{}]]"#, inner),
                Succeed("A", "1"),
                Succeed("B", "2"),
            ]
        },
        holds: |rounds| rounds.called(&[&["A"], &["B"]]),
        flaw: Flaw::NoSubtask,
        drags: &[],
    },
];

const MESSAGES: &[Row] = &[
    Row {
        clause: "SACP-3-2",
        name: "answers with a message that says what it answers, and that it is done",
        moves: || vec![old(r#"[["do","A",{}]]"#, ""), Succeed("A", "1")],
        holds: |rounds| {
            rounds.has("/reply_to", &json!("m"))?;
            rounds.has("/state", &json!("DONE"))
        },
        flaw: Flaw::NoReplyTo,
        drags: &["SACP1-4-1"],
    },
    Row {
        clause: "SACP-4-3",
        name: "answers in JSON where a summary is asked for",
        moves: || {
            let plan = r#"[["do","A",{}]]"#;
            vec![old(plan, r#","out_fmt":"summary""#), Succeed("A", "1")]
        },
        holds: |rounds| match rounds.answer()? {
            Value::Object(_) => Ok(()),
            other => Err(format!("the answer is {other}")),
        },
        flaw: Flaw::Prose,
        drags: &[],
    },
    Row {
        clause: "SACP-3-4",
        name: "calls no tool in test mode",
        moves: || vec![old(TWO, r#","test_mode":true"#), Succeed("A", "1")],
        holds: |rounds| {
            rounds.called(&[])?;
            rounds.has("/state", &json!("DONE"))
        },
        flaw: Flaw::TestModeIgnored,
        drags: &[],
    },
    Row {
        clause: "SACP-3-7",
        name: "calls nothing of a message that is not valid as a whole",
        moves: || vec![old(r#"[["do","A",{}],["do","B"]]"#, "")],
        holds: |rounds| {
            rounds.called(&[])?;
            is_refused(rounds, "MALFORMED_PLAN")
        },
        flaw: Flaw::RunsTheRest,
        drags: &[],
    },
    Row {
        clause: "SACP-2-3",
        name: "refuses a join that stands behind no group",
        moves: || vec![old(r#"[["do","A",{}],["join","B",{}]]"#, "")],
        holds: |rounds| {
            rounds.called(&[])?;
            is_refused(rounds, "MALFORMED_PLAN")
        },
        flaw: Flaw::LoneJoins,
        drags: &[],
    },
    Row {
        clause: "SACP-2-3",
        name: "refuses a group without members",
        moves: || vec![old(r#"[["do","A",{}],{"parallel":[]}]"#, "")],
        holds: |rounds| {
            rounds.called(&[])?;
            is_refused(rounds, "MALFORMED_PLAN")
        },
        flaw: Flaw::EmptyGroups,
        drags: &[],
    },
    Row {
        clause: "SACP-2-7",
        name: "asks back where the plan is empty",
        moves: || vec![old("[]", "")],
        holds: |rounds| rounds.has("/status", &json!("REQ_CLARIFY")),
        flaw: Flaw::EmptyIsDone,
        drags: &[],
    },
    Row {
        clause: "SACP-2-6",
        name: "does not run a message that has ended",
        moves: || vec![old(TWO, r#","state":"DONE""#)],
        holds: |rounds| {
            rounds.called(&[])?;
            is_refused(rounds, "INVALID_STATE")
        },
        flaw: Flaw::EndedRuns,
        drags: &[],
    },
    Row {
        clause: "SACP-1-3",
        name: "answers a message that comes again as before, and runs nothing",
        moves: || {
            let again = || old(r#"[["do","A",{}]]"#, "");
            vec![again(), Succeed("A", "1"), again()]
        },
        holds: |rounds| {
            rounds.called(&[&["A"]])?;
            match rounds.answers()[..] {
                [first, second] if first == second => Ok(()),
                ref others => one_fails(&format!("answers {others:?}")),
            }
        },
        flaw: Flaw::Forgetful,
        drags: &[],
    },
];

const READINGS: &[Row] = &[
    Row {
        clause: "SACP-3-8",
        name: "gives the last output and all outputs by act number",
        moves: || vec![old(TWO, ""), Succeed("A", "1"), Succeed("B", "2")],
        holds: |rounds| {
            rounds.has("/ctx/result", &json!(2))?;
            rounds.has("/ctx/results", &json!({"1": 1, "2": 2}))
        },
        flaw: Flaw::NoResults,
        drags: &[],
    },
    Row {
        clause: "SACP-3-5",
        name: "stops what runs when a run is called off",
        moves: || vec![old(TWO, ""), Cancel],
        holds: |rounds| {
            if !rounds.is_stopped("A") {
                return one_fails("a call that goes on");
            }
            is_refused(rounds, "STEP_FAILED")
        },
        flaw: Flaw::NoCancel,
        drags: &["SACP1-5-1"],
    },
];

/// The states that others say a message of 0.1 is in.
pub(super) fn heard_old(states: &[&str]) -> Vec<Move> {
    let message = |state: &&str| {
        Heard(format!(
            r#"{{"msg_id":"f","g":"G","plan":{TWO},"state":"{state}"}}"#
        ))
    };
    states.iter().map(message).collect()
}

/// Time goes by, in steps.
pub(super) fn times(ms: &[u64]) -> impl Iterator<Item = Move> {
    ms.iter().copied().map(Time).collect::<Vec<_>>().into_iter()
}
