//! Whose an id is: the task's that was begun first.

use ubos_common::canon::Digest;

use super::{BODY, Queue, QueueError, is_of};

/// Who has an id.
pub(super) enum Holder {
    /// The task that asks, or nobody.
    This(Claim),
    /// A task with another body, and whether a processor has taken it.
    Another { is_taken: bool },
}

/// How often the task was begun that has an id.
///
/// Who begins it, or gives the id back, says so in the place of what was said last, so that one of two workers comes
/// first. It names the task and no worker: where one dies, the next that gets the same task goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Claim {
    /// Without an end.
    pub(super) begun: u32,
    /// The number of the message that says so; 0 where there is none.
    pub(super) place: u64,
    /// The number, in the stream of tasks, of the delivery that began it last; 0 where that is not said.
    pub(super) by: u64,
    /// A processor has written the task down: it will have its end, and no other task of the id begins before it.
    pub(super) is_taken: bool,
}

impl Queue {
    /// Who has an id, by what was last said of attempts.
    pub(super) async fn holder(&self, subject: &str, body: &Digest) -> Result<Holder, QueueError> {
        let Some(said) = self.last_stored(subject).await? else {
            return Ok(Holder::This(Claim::default()));
        };
        let number = core::str::from_utf8(&said.payload).ok();
        let begun = number.and_then(|text| text.parse().ok()).unwrap_or(0);
        let place = said.sequence;
        let is_taken = said.headers.get(TAKEN).is_some();
        if is_of(&said.headers, body) {
            let by = said.headers.get(BY).map(|by| by.as_str().parse());
            return Ok(Holder::This(Claim {
                begun,
                place,
                by: by.and_then(Result::ok).unwrap_or(0),
                is_taken,
            }));
        }
        match said.headers.get(BODY) {
            Some(_) if begun > 0 => Ok(Holder::Another { is_taken }),
            // It gave the id back.
            _ => Ok(Holder::This(Claim {
                place,
                ..Claim::default()
            })),
        }
    }
}

/// The header by which a claim says which delivery began the task.
pub(super) const BY: &str = "Sap-Delivery";
/// The header by which a claim says that its task is taken.
pub(super) const TAKEN: &str = "Sap-Taken";
