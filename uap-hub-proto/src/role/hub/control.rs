//! The control plane: `Listen` streams, answers to proposals, agents coming and going.

use ubos_common::time::Now;

use super::{
    AuditKind, Event, Hub, JobEvent, Outbound, Outcome, Output, Timer, Use, Verdict,
    session::{Owner, SessionKey, Stage},
};
use crate::trace::{debug, trace};
use crate::{
    id::{ClientId, Identity, SessionId, StreamId},
    status::{Code, Status, brief},
    wire::{
        ListenRequest, ListenResponse, SessionAcceptance, SessionReady, listen_request,
        listen_response,
    },
};

impl Hub {
    // impl: HUB-2-2 HUB-2-5
    pub(super) fn open_listen(
        &mut self,
        now: Now,
        stream: StreamId,
        key: Option<&str>,
        identity: Option<&Identity>,
    ) {
        // An agent that was cut off comes back to what it has, while the hub drains.
        let is_awaited = || {
            let agent = key.and_then(|key| self.fleet.get(key));
            agent.is_some_and(|agent| !agent.sessions.is_empty())
        };
        if self.phase.is_leaving() && !is_awaited() {
            return self.end_stream(
                stream,
                Status::new(Code::Unavailable, "the hub is shutting down"),
            );
        }
        let owner = key.and_then(|key| {
            Some(Owner {
                identity: self.fleet.get(key)?.identity.clone(),
                agent: key.into(),
            })
        });
        let owner = owner.filter(|owner| self.is_of(owner, identity, None));
        let Some(Owner { agent, .. }) = owner else {
            return self.end_stream(stream, Status::new(Code::NotFound, "Invalid Client ID"));
        };
        self.timers.clear(&Timer::Unheard(agent.clone()));
        let old = self.fleet.listen(now.mono, &agent, stream);
        self.streams.open(stream, Use::Listen(agent.clone()));
        match old {
            Some(old) => self.end_stream(
                old,
                Status::new(Code::Aborted, "replaced by a newer Listen stream"),
            ),
            None => self.event(Event::AgentAvailable {
                agent: agent.clone(),
            }),
        }
        self.tell_again(now, &agent);
        if old.is_none() {
            self.offer_to(now, &agent, false);
        }
    }

    /// Whether a call of `identity` may use what `owner` was given; if not, it is audited.
    pub(super) fn is_of(
        &mut self,
        owner: &Owner,
        identity: Option<&Identity>,
        session: Option<&str>,
    ) -> bool {
        if owner.identity.as_ref() == identity {
            return true;
        }
        let kind = AuditKind::ForeignIdentity;
        self.audit(
            kind,
            Some(owner.agent.clone()),
            session.map(SessionId::from),
        );
        false
    }

    /// Handles a message of the control stream. Only answers to proposals matter: an open stream is already available, so
    /// `ready` adds nothing.
    pub(super) fn listen_message(&mut self, now: Now, agent: ClientId, message: ListenRequest) {
        if let Some(listen_request::Event::SessionAcceptance(answer)) = message.event {
            self.answered(now, agent, &answer);
        }
    }

    // impl: HUB-3-3 HUB-3-4
    fn answered(&mut self, now: Now, agent: ClientId, answer: &SessionAcceptance) {
        let named = || Some(SessionId::from(brief(&answer.session_id)));
        let key = self.sessions.find(&answer.session_id);
        let found = key.and_then(|key| Some((key, self.sessions.get(key)?)));
        let (id, session) = match found {
            Some((_, session)) if session.agent != agent => {
                return self.audit(AuditKind::ForeignAcceptance, Some(agent), named());
            }
            Some((id, session)) if session.stage == Stage::Proposed => (id, session),
            _ => return self.audit(AuditKind::StrayAcceptance, Some(agent), named()),
        };
        let (job, name) = (session.job, session.id.clone());
        if !answer.accepted {
            return self.decline(now, id, &answer.reason);
        }
        self.timers.clear(&Timer::Wait(job));
        if let Some(entry) = self.queue.get_mut(job) {
            entry.attempts = entry.attempts.saturating_add(1);
            entry.rounds = 0;
            self.fleet.settle(&entry.job, &agent);
        }
        let accepted = JobEvent::Accepted {
            session: name.clone(),
        };
        self.job_event(now, job, accepted);
        if let Some(session) = self.sessions.get_mut(id) {
            session.stage = Stage::Preparing;
        }
        self.warm_up(&agent);
        if !self.config.prepare {
            return self.ready(now, id);
        }
        // choice: HUB-3-1 preparation has no timeout: the caller can cancel
        self.timers.clear(&Timer::Session(id));
        self.outputs.push(Output::Prepare { session: name, job });
    }

    /// Tells the agent to open the stream.
    pub(super) fn ready(&mut self, now: Now, id: SessionKey) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.stage = Stage::Ready;
        trace!(session = %session.id, "session ready");
        let job = session.job;
        let event = JobEvent::Ready {
            session: session.id.clone(),
        };
        self.job_event(now, job, event);
        self.tell_ready(now, id);
    }

    /// Sends `SessionReady` and starts the agent's time to open the stream. An agent that is away gets it when it is back.
    pub(super) fn tell_ready(&mut self, now: Now, id: SessionKey) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let agent = self.fleet.get(session.agent.as_str());
        let Some(stream) = agent.and_then(|agent| agent.listen) else {
            return;
        };
        self.timers.set(
            Timer::Session(id),
            now.mono.saturating_add(self.config.open_timeout),
        );
        let event = listen_response::Event::SessionReady(SessionReady {
            session_id: session.id.as_str().to_owned(),
        });
        self.send(
            stream,
            Outbound::Listen(ListenResponse { event: Some(event) }),
        );
    }

    /// Removes an agent whose control stream closed or never opened: its offers are withdrawn, its sessions fail.
    // impl: HUB-5-1, HUB-2-6
    pub(super) fn agent_gone(&mut self, now: Now, id: &ClientId, reason: &str) {
        let Some(agent) = self.fleet.remove(id) else {
            return;
        };
        debug!(sessions = agent.sessions.len(), "agent gone");
        self.timers.clear(&Timer::Unheard(id.clone()));
        self.timers.clear(&Timer::Cool(id.clone()));
        self.one_less(now);
        self.event(Event::AgentGone {
            agent: id.clone(),
            reason: brief(reason),
        });
        let mut freed = Vec::new();
        for session in agent.sessions {
            let Some(found) = self.sessions.get(session) else {
                continue;
            };
            if found.stage == Stage::Proposed {
                freed.extend(self.withdraw(now, session, "the agent disconnected"));
            } else {
                let status = Status::new(Code::Aborted, "the agent disconnected");
                self.lose_session(now, session, "Agent disconnected".to_owned(), status);
            }
        }
        for job in self.queue.pinned_to(id) {
            let gone = "the agent that the job is for is gone";
            self.end_job(now, job, Outcome::new(Verdict::Unplaced, gone));
        }
        for job in freed {
            self.place(now, job);
        }
    }
}
