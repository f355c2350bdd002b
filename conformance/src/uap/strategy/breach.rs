//! What strategies do wrong.

/// Where a strategy does otherwise than strategies do, and what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{script}, {run}: {breach}")]
#[non_exhaustive]
pub struct StrategyFault {
    /// The model's script.
    pub script: &'static str,
    /// Which run of it.
    pub run: String,
    /// What was wrong.
    #[source]
    pub breach: StrategyBreach,
}

/// What a strategy does otherwise than strategies do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyBreach {
    /// It panicked.
    #[error("the strategy panicked")]
    Panicked,
    /// It moves and moves, and nothing comes of it.
    #[error("more than {limit} moves without a question to the model")]
    EndlessMoves {
        /// Moves that it may make between two questions.
        limit: usize,
    },
    /// It asks and asks, where the script would let it end.
    #[error("more than {limit} questions to the model")]
    EndlessQuestions {
        /// Questions that a run of the checker may have.
        limit: usize,
    },
    /// It began a step, or finished, before it ended the last one.
    #[error("step {step} is not ended")]
    StepOpen {
        /// The step.
        step: u64,
    },
    /// It asked the model, reasoned or ended a step where no step had begun.
    #[error("{doing} outside of a step")]
    OutsideStep {
        /// What it did.
        doing: &'static str,
    },
    /// Steps do not count from 1.
    #[error("step {seen} where {wanted} is next")]
    StepNumber {
        /// The number that comes next.
        wanted: u64,
        /// The number that came.
        seen: u64,
    },
    /// It finished before the model had answered once: there is no turn to give.
    #[error("finished before the model answered")]
    NoAnswer,
    /// A state that it led to cannot be kept, or not be gone on from.
    #[error("a state is not valid: {why}")]
    InvalidState {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A state that was there before is not what it was.
    #[error("a state was changed in place")]
    StateChanged,
    /// The run went on where the stop condition had said stop.
    #[error("step {seen} after a stop at step {stopped}")]
    PastStop {
        /// The step whose end was the run's.
        stopped: u64,
        /// The step that the run came to.
        seen: u64,
    },
    /// A run that was aborted did not end as cancelled.
    #[error("an abort did not end the run as cancelled")]
    NotCancelled,
    /// Two runs of one script are not the same.
    #[error("two runs of one script differ at line {line} of what they do")]
    NotDeterministic {
        /// The first line that differs, from 0.
        line: usize,
    },
    /// The run neither ends nor asks for anything.
    #[error("the run neither ends nor asks for anything")]
    Stalled,
}
