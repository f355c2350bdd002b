//! The kit of runs that are resumed: a program is killed, resumed, asked and forked.
//!
//! The program under test gets a verb, a folder and sometimes an argument behind its own arguments. Everything that it keeps
//! is in the folder. It prints lines that begin with [`MARK`]; other lines are ignored.
//!
//! | verb | what it does | lines |
//! |---|---|---|
//! | `start F` | begins a run, and goes on until it ends or waits for a person | `effect KEY`, `done KEY`; `question ID`; `result TEXT` |
//! | `resume F` | goes on with the run | as `start` |
//! | `changed F` | resumes with a program that asks its model something else | `differs WHAT`, and nothing is done |
//! | `answer F ID` | approves what a question asks | |
//! | `record F` | tells what is recorded, in order, without what only says who resumed | `entry TEXT`; `asked KIND` before an effect, `answered KEY` behind it |
//! | `states F` | tells the states that the recorded run was in | `state TEXT` |
//! | `checkpoint F` | loads the last checkpoint | `state TEXT`, where there is one |
//! | `other F` | as `start`, in another session and with another input, up to the first pause; a program without it is not asked about checkpoints of other sessions | as `start` |
//! | `fork F G N` | copies the run up to the Nth `answered`, from 1, into the folder G | |
//!
//! Before it performs an effect (a request to the model, a tool), the program prints `effect KEY` and waits for a line on its
//! standard input; behind it, before the result is recorded, it prints `done KEY` and waits again. At the end of the input it
//! goes on without waiting. The key of an effect is the same whenever the effect is performed again.
//!
//! | exit code | |
//! |---|---|
//! | 0 | done |
//! | 10 | the run waits for a person |
//! | 11 | too late, with the line `refused WHY`: another process owns the run, or the question was answered |
//! | 12 | the program is not the one that was recorded, with the line `differs WHAT` |
//! | 13 | what is kept cannot be read, with the line `refused WHY`: a file is damaged, or belongs to another session |
//! | 127 | the verb is unknown |
//!
//! The run calls two tools or more, one of which needs the approval of a person before it runs. Ids come from a seed, and
//! times are always the same, so that two runs with the same answers are the same.

mod cases;
mod program;
mod properties;

pub use cases::{Resuming, resume_kit};
pub use program::{MARK, ResumeProgram};
