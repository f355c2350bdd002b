//! The agents that are connected: one by each id, and those that were replaced and go on with their calls.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::super::handle::Caller;
use super::report::{LaunchId, Wanted};
use crate::audit::AuditEvent;
use crate::role::router::RouteId;

/// An agent that is connected.
pub(super) struct Live {
    pub(super) launch: LaunchId,
    pub(super) caller: Caller,
    pub(super) wanted: watch::Sender<Wanted>,
    /// Calls that were sent to it.
    pub(super) calls: usize,
}

impl Live {
    /// Tells it what the router wants. Its task sees the latest alone, so one that is to stop is never told to go on.
    fn want(&self, wanted: Wanted) {
        self.wanted.send_if_modified(|now| {
            let is_news = !matches!(now, Wanted::Stop);
            if is_news {
                *now = wanted;
            }
            is_news
        });
    }
}

/// A call that was sent.
pub(super) struct Sent {
    pub(super) cancel: Arc<Notify>,
    agent: Arc<str>,
    launch: LaunchId,
}

/// The agents that are connected, and the calls that were sent to them.
#[derive(Default)]
pub(super) struct Connected {
    live: HashMap<Arc<str>, Live>,
    /// Those that were replaced and still have calls.
    retired: HashMap<LaunchId, Live>,
    /// How to cancel the calls that were sent.
    sent: HashMap<RouteId, Sent>,
}

impl Connected {
    pub(super) fn get(&self, agent: &str) -> Option<&Live> {
        self.live.get(agent)
    }

    /// Whether a report comes from the one that is called by its id: those that were replaced have nothing to say.
    pub(super) fn is_current(&self, agent: &str, launch: LaunchId) -> bool {
        self.live
            .get(agent)
            .is_some_and(|live| live.launch == launch)
    }

    /// Adds one. Another of its id goes on with its calls, for as long as `drain`.
    pub(super) fn add(&mut self, agent: &Arc<str>, live: Live, drain: Duration) {
        let Some(before) = self.live.insert(Arc::clone(agent), live) else {
            return;
        };
        let wanted = match before.calls {
            0 => Wanted::Stop,
            _ => Wanted::Drain(drain),
        };
        before.want(wanted);
        self.retired.insert(before.launch, before);
    }

    /// Forgets one that has ended; gives whether it is the one that is called by its id.
    pub(super) fn remove(&mut self, agent: &str, launch: LaunchId) -> bool {
        if self.is_current(agent, launch) {
            return self.live.remove(agent).is_some();
        }
        self.retired.remove(&launch);
        false
    }

    /// A call is sent to an agent; gives what calls it and what tells of its cancel.
    pub(super) fn send(
        &mut self,
        route: RouteId,
        agent: &Arc<str>,
    ) -> Option<(Caller, Arc<Notify>)> {
        let live = self.live.get_mut(agent)?;
        live.calls += 1;
        let cancel = Arc::new(Notify::new());
        let sent = Sent {
            cancel: Arc::clone(&cancel),
            agent: Arc::clone(agent),
            launch: live.launch,
        };
        self.sent.insert(route, sent);
        Some((live.caller.clone(), cancel))
    }

    /// A call that was sent has ended. One that was replaced ends with the last of its calls.
    pub(super) fn called(&mut self, route: RouteId) {
        let Some(sent) = self.sent.remove(&route) else {
            return;
        };
        if self.is_current(&sent.agent, sent.launch) {
            if let Some(live) = self.live.get_mut(&sent.agent) {
                live.calls -= 1;
            }
        } else if let Some(retired) = self.retired.get_mut(&sent.launch) {
            retired.calls -= 1;
            if retired.calls == 0 {
                retired.want(Wanted::Stop);
            }
        }
    }

    pub(super) fn cancel(&self, route: RouteId) {
        if let Some(sent) = self.sent.get(&route) {
            sent.cancel.notify_one();
        }
    }

    /// Asks the one that is called by its id to end.
    pub(super) fn stop_current(&self, agent: &str) {
        if let Some(live) = self.live.get(agent) {
            live.want(Wanted::Stop);
        }
    }

    /// Asks all those of an id to end, the replaced ones with their calls, too.
    pub(super) fn stop(&self, agent: &str) {
        let is_of_it = |sent: &&Sent| &*sent.agent == agent;
        // One that was replaced is there for its calls alone.
        for sent in self.sent.values().filter(is_of_it) {
            if let Some(retired) = self.retired.get(&sent.launch) {
                retired.want(Wanted::Stop);
            }
        }
        self.stop_current(agent);
    }

    /// Leaves the tokens of all out of a record of the router's, who knows none.
    // impl: OSW-7-1
    pub(super) fn leave_out_tokens(&self, event: &mut AuditEvent) {
        for live in self.live.values().chain(self.retired.values()) {
            live.caller.leave_out_token(event);
        }
    }

    pub(super) fn stop_all(&self) {
        for live in self.live.values().chain(self.retired.values()) {
            live.want(Wanted::Stop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(launch: LaunchId) -> (Live, watch::Receiver<Wanted>) {
        let (wanted, told) = watch::channel(Wanted::Run);
        let live = Live {
            launch,
            caller: Caller::idle(),
            wanted,
            calls: 0,
        };
        (live, told)
    }

    #[tokio::test]
    async fn one_that_was_replaced_ends_with_its_calls_and_is_forgotten() {
        let (mut connected, agent) = (Connected::default(), Arc::<str>::from("a"));
        let drain = Duration::from_secs(9);
        let told = [1, 2, 3].map(|launch| {
            let (live, told) = live(launch);
            connected.add(&agent, live, drain);
            // The second alone has calls when the next one comes.
            if launch == 2 {
                assert!(connected.send(RouteId::of(1), &agent).is_some());
                assert!(connected.send(RouteId::of(2), &agent).is_some());
            }
            told
        });
        let is_told = |n: usize| *told[n].borrow();
        assert!(matches!(is_told(0), Wanted::Stop));
        assert!(matches!(is_told(1), Wanted::Drain(time) if time == drain));
        assert!(matches!(is_told(2), Wanted::Run));
        connected.called(RouteId::of(1));
        connected.called(RouteId::of(1));
        assert!(matches!(is_told(1), Wanted::Drain(_)), "it has one more");
        connected.called(RouteId::of(2));
        assert!(matches!(is_told(1), Wanted::Stop));
        assert!(!connected.remove("a", 1) && !connected.remove("a", 2));
        assert!(connected.is_current("a", 3) && connected.remove("a", 3));
        assert!(connected.live.is_empty() && connected.retired.is_empty());
        assert!(connected.sent.is_empty() && !connected.is_current("a", 3));
    }
}
