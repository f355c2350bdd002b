//! Moves of strategies that ours do not make.

use std::sync::Arc;

use futures::FutureExt;
use futures::executor::block_on;
use uap_agent::strategy::{Command, ExecutionContext, Inference, Outcome, StrategyRun};
use uap_agent::{ExecutionStrategy, agent};
use upp::{ErrorCode, Reply};

use super::roles;
use crate::support::{Noting, options, script};

/// Makes these moves, and then finishes.
struct Moves(Vec<Command>);

impl ExecutionStrategy for Moves {
    fn name(&self) -> &str {
        "moves"
    }
    fn begin(&self) -> Box<dyn StrategyRun> {
        Box::new(MovesRun(self.0.clone().into_iter()))
    }
}

struct MovesRun(std::vec::IntoIter<Command>);

impl StrategyRun for MovesRun {
    fn next(&mut self, outcome: Outcome, _: &mut ExecutionContext<'_>) -> Command {
        match outcome {
            Outcome::Failed(error) => Command::Fail(error),
            _ => self.0.next().unwrap_or(Command::Finish),
        }
    }
}

// spec: UAP-4-2, UAP-5-5
#[test]
fn a_question_outside_of_a_step_has_the_input() {
    let model = script([Reply::text("first"), Reply::text("second")]);
    let moves = Moves(vec![Command::Infer(Inference::action()); 2]);
    let agent = agent(options(&model).with_execution(Arc::new(moves))).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
    let requests = model.requests();
    assert_eq!(roles(&requests[0]), ["user:go"]);
    assert_eq!(roles(&requests[1]), ["user:go", "assistant:first"]);
    assert_eq!((result.state.messages().len(), result.state.step()), (3, 0));
}

// spec: UAP-5-5
#[test]
fn a_run_that_finishes_before_an_answer_fails() {
    let hooks = Arc::new(Noting::default());
    let options = options(&script([])).with_strategy(hooks.clone());
    let agent = agent(options.with_execution(Arc::new(Moves(Vec::new())))).unwrap();
    let state = agent.initial_state();
    let ended = agent.generate("go", &state).now_or_never();
    let error = ended.expect("nothing is waited for").unwrap_err();
    assert_eq!(
        (&error.error.code, &*error.error.message),
        (
            &ErrorCode::InvalidRequest,
            "the strategy finished before the model answered"
        )
    );
    assert_eq!(hooks.take(), ["error INVALID_REQUEST"]);
}
