//! One task on the consumer's side, from its arrival to its end. The `processor` (feature `driver`) runs it.
//!
//! ```text
//! authorize -> enter -> record task -> Ack -> assess -> look up (-> assess) -> join
//!   -> record RUNNING -> tell -> run (-> assess -> record part -> tell)*
//!   -> check -> assess -> keep -> record last result -> close
//! ```
//!
//! Each word but the last is a [`Request`] with an id, answered by a [`Reply`]. At most one is open, beside the
//! handler. Records and what is kept in the cache are durable; nothing is told before it is recorded.
//!
//! | what happens | up to the Ack | after it |
//! |---|---|---|
//! | somebody else's code panics | Nack `INTERNAL` | FAILED `INTERNAL` |
//! | the time is over, or a cancel | after the task is recorded | the open request is dropped; FAILED `TIMEOUT`, CANCELLED |
//! | a record fails | the task was never here | the end is recorded as FAILED `INTERNAL`; nothing is told |
//! | shutdown | the same | FAILED `INTERNAL` is recorded, unless the end is being recorded |

mod limits;
mod machine;
mod message;
mod results;
mod work;

pub use machine::ReceivedTask;
pub use message::{
    Admission, Config, End, Error, Input, Message, Output, Proposed, Record, Reply, Request, Stage,
    Written,
};
pub use work::{
    Access, ContractFinding, Ended, HandlerError, NotEnforced, Outcome, Progress, StopReason,
};
