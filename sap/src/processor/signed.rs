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
            let known = self.keys.is_of(&signature, &task.issuer.agent_id);
            let checked = match known {
                Ok(()) => {
                    let (keys, signed) = (Arc::clone(&self.keys), task.clone());
                    // Of a task, each member may be as long as it is, and the check itself takes a tenth of a millisecond.
                    let check = move || keys.check_task(&signed, &signature);
                    work::apart(For::Stranger, check).await
                }
                Err(why) => Err(why),
            };
            match checked {
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
    fn a_signature_is_checked_on_another_thread_where_its_key_is_known() {
        let issuer: crate::AgentId = "A-prime".parse().unwrap();
        let key = |name: &str| SigningKey::from_seed(name, &Secret::new([1; 32])).unwrap();
        let (known, other) = (key("desk"), key("unknown"));
        let keys = Keys::default().trust("desk", known.public_key(), issuer.clone());
        let signed = Signed::new(Arc::new(keys), Arc::new(AllowAll));
        let mut task = Task::draft(
            &mut IdSource::seeded(1),
            Timestamp::EPOCH,
            Issuer::new(issuer, AgentKind::Agent),
            Target::new("a.b".parse().unwrap()),
            ConstitutionalContext::new(PressureLevel::Instant),
            RawObject::empty(),
        );
        task.tags = Some(vec!["x".repeat(work::HEAVY)]);
        for (key, access, threads) in [(known, Access::Allowed, 1), (other, Access::Unknown, 0)] {
            let peer = Peer {
                signature: Some(key.sign_task(&task).unwrap()),
                ..Peer::default()
            };
            let authorize = || block_on(signed.authorize(&peer, &task));
            assert_eq!(work::handed_over(authorize), (access, threads));
        }
    }
}
