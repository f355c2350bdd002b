//! Tasks that their issuer has signed.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use ubos_common::driver::Sleep;
use ubos_common::time::Timestamp;

use super::hooks::Authorize;
use super::peer::Peer;
use crate::future::BoxFuture;
use crate::ident::AgentId;
use crate::role::consumer::Access;
use crate::sign::{Keys, SignatureError};
use crate::task::Task;
use crate::work::{self, For};

/// Lets those tasks through that their issuer has signed, before another hook decides what it may have done. One
/// that is signed with the key of another agent is refused; the issuer of any other is unknown.
///
/// Whoever has seen a signed task can bring it again. So a task is refused that does not name this agent as its target, and one
/// that has no deadline and was issued more than an hour ago, or as much ahead. Within its time a copy of a task is
/// answered and does not run again, for as long as the processor knows the task: so many
/// [ended ones](crate#bounds) it does, and [`resume`](super::Processor::resume) reads the last of them from the transcript. A copy
/// that comes after as many newer ends runs again, so the deadline of a signed task is best near. Who asks about a task is
/// held to the same: one without a deadline is unknown when its hour is over.
///
/// It shows no peer which capabilities are here: nobody signs a request for a list.
#[derive(Clone)]
pub struct Signed {
    keys: Arc<Keys>,
    agent: AgentId,
    clock: Arc<dyn Sleep + Send + Sync>,
    then: Arc<dyn Authorize>,
    needs_target: bool,
    max_age: Option<Duration>,
}

impl Signed {
    /// Trusts these keys for tasks of this agent, by the time of this clock; `then` decides about tasks that are signed.
    #[must_use]
    pub fn new(
        keys: Arc<Keys>,
        agent: AgentId,
        clock: Arc<dyn Sleep + Send + Sync>,
        then: Arc<dyn Authorize>,
    ) -> Self {
        Self {
            keys,
            agent,
            clock,
            then,
            needs_target: true,
            max_age: Some(MAX_AGE),
        }
    }

    /// Sets how long ago, and how far ahead, a task without a deadline may have been issued; 1 h by default.
    #[must_use]
    pub const fn with_max_age(mut self, max_age: Duration) -> Self {
        self.max_age = Some(max_age);
        self
    }

    /// Takes tasks that name no agent, too. Whoever has seen such a task can bring it to each agent that trusts its
    /// key, and each runs it.
    #[must_use]
    pub const fn without_target(mut self) -> Self {
        self.needs_target = false;
        self
    }

    /// Takes tasks without a deadline whenever they were issued. Whoever has seen such a task can have it run again at any time
    /// after this agent has forgotten it.
    #[must_use]
    pub const fn without_max_age(mut self) -> Self {
        self.max_age = None;
        self
    }

    /// Whether a signature is meant for this agent and this time.
    fn is_meant(&self, now: Timestamp, task: &Task) -> bool {
        let is_here = match &task.target.agent_id {
            Some(agent) => agent == self.agent.as_str(),
            None => !self.needs_target,
        };
        let issued = Timestamp::from(task.issued_at);
        let away = now.saturating_since(issued) + issued.saturating_since(now);
        let is_recent = self.max_age.is_none_or(|max_age| away <= max_age);
        is_here && (is_recent || task.deadline().is_some())
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
                Ok(()) if !self.is_meant(self.clock.now().wall, task) => return Access::Forbidden,
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

impl fmt::Debug for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signed")
            .field("keys", &self.keys)
            .field("agent", &self.agent)
            .field("then", &self.then)
            .field("needs_target", &self.needs_target)
            .field("max_age", &self.max_age)
            .finish_non_exhaustive()
    }
}

/// How far away the time may be at which a task without a deadline was issued.
const MAX_AGE: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use ubos_common::secret::Secret;

    use super::super::AllowAll;
    use super::super::fixture::Still;
    use super::*;
    use crate::samples;
    use crate::sign::SigningKey;
    use crate::task::Telemetry;

    fn key(name: &str) -> SigningKey {
        SigningKey::from_seed(name, &Secret::new([1; 32])).unwrap()
    }

    fn issuer() -> AgentId {
        "A-prime".parse().unwrap()
    }

    /// The hook of an agent whose clock stands at the epoch.
    fn hook() -> Signed {
        let keys = Keys::default().trust("desk", key("desk").public_key(), issuer());
        let (agent, clock) = ("A-1".parse().unwrap(), Arc::new(Still));
        Signed::new(Arc::new(keys), agent, clock, Arc::new(AllowAll))
    }

    /// A task for an agent, issued so many seconds after the epoch.
    fn task(agent: Option<&str>, issued: i64) -> Task {
        let mut task = samples::task();
        task.issuer.agent_id = issuer();
        task.target.agent_id = agent.map(str::to_owned);
        task.issued_at = at(issued);
        task
    }

    fn at(seconds: i64) -> ubos_common::time::WholeSecond {
        Timestamp::from_unix(seconds).unwrap().into()
    }

    fn asked(signed: &Signed, task: &Task, key: &SigningKey) -> Access {
        let peer = Peer {
            signature: Some(key.sign_task(task).unwrap()),
            ..Peer::default()
        };
        block_on(signed.authorize(&peer, task))
    }

    // spec: SAP-11-2
    #[test]
    fn a_signature_is_checked_on_another_thread_where_its_key_is_known() {
        let mut task = task(Some("A-1"), 0);
        task.tags = Some(vec!["x".repeat(work::HEAVY)]);
        for (key, access, threads) in [
            (key("desk"), Access::Allowed, 1),
            (key("unknown"), Access::Unknown, 0),
        ] {
            let authorize = || asked(&hook(), &task, &key);
            assert_eq!(work::handed_over(authorize), (access, threads));
        }
    }

    // spec: SAP-11-2
    #[test]
    fn a_signed_task_is_for_the_agent_that_it_names() {
        let may = |signed: &Signed, agent| asked(signed, &task(agent, 0), &key("desk"));
        let (strict, loose) = (hook(), hook().without_target());
        for (agent, wanted, wanted_loose) in [
            (Some("A-1"), Access::Allowed, Access::Allowed),
            (None, Access::Forbidden, Access::Allowed),
            (Some("A-2"), Access::Forbidden, Access::Forbidden),
        ] {
            assert_eq!(may(&strict, agent), wanted, "{agent:?}");
            assert_eq!(may(&loose, agent), wanted_loose, "{agent:?}");
        }
    }

    // spec: SAP-11-2
    #[test]
    fn a_signed_task_without_a_deadline_is_for_its_hour() {
        let may = |signed: &Signed, issued| asked(signed, &task(Some("A-1"), issued), &key("desk"));
        let (hour, minute, always) = (
            hook(),
            hook().with_max_age(Duration::from_secs(60)),
            hook().without_max_age(),
        );
        for (issued, in_hour, in_minute) in [
            (-60, true, true),
            (61, true, false),
            (-3600, true, false),
            (-3601, false, false),
            (3601, false, false),
        ] {
            let access = |is_allowed| match is_allowed {
                true => Access::Allowed,
                false => Access::Forbidden,
            };
            assert_eq!(may(&hour, issued), access(in_hour), "{issued}");
            assert_eq!(may(&minute, issued), access(in_minute), "{issued}");
            assert_eq!(may(&always, issued), Access::Allowed, "{issued}");
        }
        let mut old = task(Some("A-1"), -3601);
        old.telemetry = Some(Telemetry::new());
        assert_eq!(asked(&hour, &old, &key("desk")), Access::Forbidden);
        let telemetry = old.telemetry.as_mut().unwrap();
        telemetry.deadline = Some(at(1));
        assert_eq!(asked(&hour, &old, &key("desk")), Access::Allowed);
    }
}
