//! Tasks that their issuer has signed.

use std::sync::Arc;

use super::hooks::Authorize;
use super::peer::Peer;
use crate::future::BoxFuture;
use crate::role::consumer::Access;
use crate::sign::{Keys, SignatureError};
use crate::task::Task;
use crate::work::{self, For};

/// Lets those tasks through that their issuer has signed, before another hook decides what it may have done. One
/// that is signed with the key of another agent is refused; the issuer of any other is unknown.
#[derive(Clone, Debug)]
pub struct Signed {
    keys: Arc<Keys>,
    then: Arc<dyn Authorize>,
}

impl Signed {
    /// Trusts these keys; `then` decides about tasks that are signed.
    #[must_use]
    pub fn new(keys: Arc<Keys>, then: Arc<dyn Authorize>) -> Self {
        Self { keys, then }
    }
}

impl Authorize for Signed {
    // impl: SAP-11-2
    fn authorize<'a>(&'a self, peer: &'a Peer, task: &'a Task) -> BoxFuture<'a, Access> {
        Box::pin(async move {
            let Some(signature) = peer.signature.clone() else {
                return Access::Unknown;
            };
            let (keys, signed) = (Arc::clone(&self.keys), task.clone());
            let bytes = task.payload.as_str().len();
            let checked = work::done(For::Stranger, bytes, move || {
                keys.check_task(&signed, &signature)
            });
            match checked.await {
                Ok(()) => self.then.authorize(peer, task).await,
                Err(SignatureError::OtherAgent) => Access::Forbidden,
                Err(_) => Access::Unknown,
            }
        })
    }
}
