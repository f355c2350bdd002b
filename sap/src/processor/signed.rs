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
            // A stranger may have made any part of it long.
            let bytes = task.encode().len();
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

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use ubos_common::id::IdSource;
    use ubos_common::json::RawObject;
    use ubos_common::secret::Secret;
    use ubos_common::time::Timestamp;

    use super::super::AllowAll;
    use super::*;
    use crate::context::{ConstitutionalContext, PressureLevel};
    use crate::sign::SigningKey;
    use crate::task::{AgentKind, Issuer, Target};

    // spec: SAP-11-2
    #[test]
    fn a_signature_is_checked_on_another_thread_whatever_part_of_its_task_is_long() {
        let issuer: crate::AgentId = "A-prime".parse().unwrap();
        let key = SigningKey::from_seed("desk", &Secret::new([1; 32])).unwrap();
        let keys = Keys::default().trust("desk", key.public_key(), issuer.clone());
        let signed = Signed::new(Arc::new(keys), Arc::new(AllowAll));
        for (bytes, threads) in [(1, 0), (work::HEAVY, 1)] {
            let mut task = Task::draft(
                &mut IdSource::seeded(1),
                Timestamp::EPOCH,
                Issuer::new(issuer.clone(), AgentKind::Agent),
                Target::new("a.b".parse().unwrap()),
                ConstitutionalContext::new(PressureLevel::Instant),
                RawObject::empty(),
            );
            task.tags = Some(vec!["x".repeat(bytes)]);
            let peer = Peer {
                signature: Some(key.sign_task(&task).unwrap()),
                ..Peer::default()
            };
            let authorize = || block_on(signed.authorize(&peer, &task));
            let (access, handed_over) = work::handed_over(authorize);
            assert_eq!((access, handed_over), (Access::Allowed, threads));
        }
    }
}
