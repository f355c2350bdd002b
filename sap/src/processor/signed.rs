//! Tasks that their issuer has signed.

use std::sync::Arc;

use super::hooks::Authorize;
use super::peer::Peer;
use crate::future::{BoxFuture, ready};
use crate::role::consumer::Access;
use crate::sign::{Keys, SignatureError};
use crate::task::Task;

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
        let signature = peer.signature.as_ref();
        let checked = signature
            .ok_or(SignatureError::Missing)
            .and_then(|signature| self.keys.check_task(task, signature));
        match checked {
            Ok(()) => self.then.authorize(peer, task),
            Err(SignatureError::OtherAgent) => ready(Access::Forbidden),
            Err(_) => ready(Access::Unknown),
        }
    }
}
