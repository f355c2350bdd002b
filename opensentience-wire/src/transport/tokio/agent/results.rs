//! What tools came back with and cannot be sent yet.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use ubos_common::json::RawObject;

use crate::error::{ErrorCode, ErrorObject};

/// Room for results that wait until the core reads, in bytes: tools that run make their results whether it does or not.
#[derive(Clone)]
pub(super) struct Room(Arc<Semaphore>);

/// What a tool came back with, and its place.
pub(super) struct Returned {
    pub(super) result: Result<RawObject, ErrorObject>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    /// Keeps a result. One for which there is no room has failed.
    // impl: OSW-2-7
    pub(super) fn keep(&self, result: Result<RawObject, ErrorObject>) -> Returned {
        let bytes = match &result {
            Ok(output) => output.as_str().len(),
            Err(error) => error.weight(),
        };
        let place = u32::try_from(bytes).ok();
        let place = place.and_then(|bytes| Arc::clone(&self.0).try_acquire_many_owned(bytes).ok());
        if place.is_none() {
            let message = "the results that wait to be sent have as many bytes as they may";
            let error = ErrorObject::of(ErrorCode::ToolOutputTooLarge, message);
            return error.noticed_by("agent.runtime").into();
        }
        Returned {
            result,
            _place: place,
        }
    }
}

/// A failure of a few words, which takes no place.
impl From<ErrorObject> for Returned {
    fn from(error: ErrorObject) -> Self {
        Self {
            result: Err(error),
            _place: None,
        }
    }
}
