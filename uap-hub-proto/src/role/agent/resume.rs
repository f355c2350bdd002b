//! Sessions that outlive their calls.

use std::time::Duration;

use ubos_common::{machine::Backoff, time::Now};

use super::{
    Event, FleetAgent, Output, Rpc,
    kept::Kept,
    state::{Session, SessionStage, Timer},
};
use crate::{
    capability::{Kind, Skill},
    id::{SessionId, StreamId},
    role::{Resume, slots::SlotKey as SessionKey},
    status::{Status, brief},
};

impl FleetAgent {
    /// Whether the call of a session was cut, so that its reports wait in the agent.
    #[cfg(feature = "client")]
    pub(crate) fn is_cut(&self, id: &SessionId) -> bool {
        self.session(id.as_str()).is_some_and(Session::is_cut)
    }

    /// The number of reports of a session that the hub may not have.
    #[cfg(feature = "client")]
    pub(crate) fn unacknowledged(&self, id: &str) -> usize {
        let session = self.session(id);
        session.map_or(0, |session| session.kept.reports().len())
    }

    #[cfg(feature = "client")]
    fn session(&self, id: &str) -> Option<&Session> {
        self.sessions.get(*self.by_id.get(id)?)
    }

    pub(super) fn accepted(&self, id: SessionId, skill: Skill, answered_on: StreamId) -> Session {
        Session {
            id,
            skill,
            stage: SessionStage::Accepted,
            answered_on,
            stream: None,
            opened: 0,
            trace: None,
            kept: Kept::new(self.config.resume),
            backoff: Backoff::new(self.config.first_retry, self.config.longest_retry),
            cut_at: None,
            cut_before: Duration::ZERO,
            resumed_at: None,
        }
    }

    /// The call of a session broke: it is opened again, or the session is lost.
    // impl: HUB-5-4
    pub(super) fn cut(&mut self, now: Now, stream: StreamId, status: Status) {
        let Some(key) = self.streams.get(&stream).copied() else {
            return;
        };
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if !session.kept.can_resume() {
            return self.over(key, Some(status));
        }
        self.streams.remove(&stream);
        session.stream = None;
        let resumed_at = session.resumed_at.take();
        let lasted = resumed_at.map(|since| now.mono.saturating_since(since));
        // A hub that resumes the session and cuts it again, with nothing new in between, is not called without a pause.
        let is_at_once = lasted.is_none_or(|lasted| lasted >= self.config.longest_cut_retry);
        let is_first = session.cut_at.is_none();
        if is_first {
            session.cut_at = Some(now.mono);
            self.outputs.push(Output::Event(Event::SessionCut {
                session: session.id.clone(),
                reason: brief(&status.message),
            }));
        }
        let after = match is_first && is_at_once {
            true => {
                session.made_way();
                Duration::ZERO
            }
            false if self.config.jitter => session.backoff.next_delay_with_jitter(&mut self.ids),
            false => session.backoff.next_delay(),
        };
        let after = after.min(self.config.longest_cut_retry);
        self.timers
            .set(Timer::Session(key), now.mono.saturating_add(after));
    }

    /// The hub can be reached again: all cut calls are opened at once.
    pub(super) fn resume_all(&mut self, now: Now) {
        for key in self.sessions.keys_of(Session::is_cut) {
            if let Some(session) = self.sessions.get_mut(key) {
                session.backoff.reset();
                self.timers.set(Timer::Session(key), now.mono);
            }
        }
    }

    /// Opens the call of a cut session again, and sends what the hub may not have.
    pub(super) fn resume(&mut self, now: Now, key: SessionKey) {
        let stream = self.next_stream();
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let cut_for = session.cut_for(now);
        if cut_for >= self.config.resume_limit {
            return self.over(key, None);
        }
        session.stream = Some(stream);
        self.streams.insert(stream, key);
        session.opened += 1;
        let resume = match session.stage {
            SessionStage::Accepted | SessionStage::Opened => Resume::Job(session.opened),
            SessionStage::Running | SessionStage::Finishing => Resume::Reports(session.opened),
        };
        self.outputs.push(Output::Open {
            stream,
            rpc: rpc_of(session.skill.kind()),
            key: session.id.as_str().to_owned(),
            resume: Some(resume),
            trace: session.trace.clone(),
        });
        for message in session.kept.reports().cloned() {
            self.outputs.push(Output::Send { stream, message });
        }
        match session.stage {
            SessionStage::Finishing => self.finishing(now, key),
            SessionStage::Accepted | SessionStage::Opened => {
                let at = now.mono.saturating_add(self.config.init_timeout);
                self.timers.set(Timer::Session(key), at);
            }
            SessionStage::Running => {}
        }
    }

    /// The hub said on an open call which reports it has; nothing, where it does not resume sessions.
    pub(super) fn acknowledged(&mut self, now: Now, key: SessionKey, number: Option<u64>) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let cut_for = session.cut_for(now);
        if session.cut_at.take().is_some() {
            (session.cut_before, session.resumed_at) = (cut_for, Some(now.mono));
            let session = session.id.clone();
            let resumed = Event::SessionResumed { session };
            self.outputs.push(Output::Event(resumed));
        }
        let has_new = match number {
            Some(number) => session.kept.acknowledged(number),
            None => {
                session.kept.give_up();
                true
            }
        };
        if has_new {
            session.made_way();
        }
    }
}

pub(super) const fn rpc_of(kind: Kind) -> Rpc {
    match kind {
        Kind::Test => Rpc::Execute,
        Kind::Translation => Rpc::Translate,
    }
}

#[cfg(test)]
#[cfg(feature = "client")]
mod tests {
    use ubos_common::{
        id::IdSource,
        time::{Mono, Timestamp},
    };

    use super::super::{Config, Inbound, Input};
    use super::*;
    use crate::{
        capability::Skill,
        status::Code,
        wire::{
            ListenResponse, SessionProposal, SessionReady, TestInit, TestProposalDetails,
            listen_response::Event as Control, session_proposal::Details,
        },
    };

    // spec: HUB-5-4
    #[test]
    fn the_reports_of_a_cut_session_are_counted_until_it_is_over() {
        let capability = Skill::test("t").into();
        let config = Config::default().with_capabilities([capability]);
        let ids = IdSource::seeded(0);
        let mut agent = FleetAgent::new(config.with_resume(true), ids).unwrap();
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        agent.start(now);
        let (id, client_id) = (SessionId::from("s"), "a".to_owned());
        let r#type = "t".to_owned();
        let proposal = SessionProposal {
            session_id: id.to_string(),
            details: Some(Details::Test(TestProposalDetails { r#type })),
        };
        let session_id = id.to_string();
        let control = |event| {
            let event = Some(event);
            Inbound::Listen(ListenResponse { event })
        };
        let init = TestInit {
            acknowledged: Some(0),
            ..TestInit::default()
        };
        let message = |stream, message| Input::Message {
            stream: StreamId(stream),
            message,
        };
        let ready = SessionReady { session_id };
        for input in [
            Input::Registered {
                attempt: 1,
                client_id,
            },
            message(1, control(Control::SessionProposal(proposal))),
            message(1, control(Control::SessionReady(ready))),
            message(2, Inbound::Test(init)),
        ] {
            agent.handle_input(now, input).unwrap();
        }
        assert!(!agent.is_cut(&id));
        let status = Status::new(Code::Unavailable, "");
        let stream = StreamId(2);
        let broken = Input::Broken { stream, status };
        agent.handle_input(now, broken).unwrap();
        assert!(agent.is_cut(&id));
        // That it has the job, and that it runs.
        assert_eq!(agent.unacknowledged("s"), 2);
        assert_eq!(agent.unacknowledged("another"), 0);
        agent.handle_timeout(now);
        let (stream, status) = (StreamId(3), Status::new(Code::Cancelled, ""));
        let ended = Input::Ended { stream, status };
        agent.handle_input(now, ended).unwrap();
        assert_eq!((agent.unacknowledged("s"), agent.streams.len()), (0, 0));
    }
}
