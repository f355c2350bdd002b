//! Which agent is offered which job, and when.

use std::time::Duration;

use ubos_common::time::Now;

use super::{
    Hub, JobEvent, Outbound, Outcome, Phase, Timer, Verdict,
    session::{Session, Stage},
};
use crate::{
    capability::Kind,
    id::{ClientId, JobId, SessionId},
    status::{Status, brief},
    wire::{
        ListenResponse, SessionProposal, TestProposalDetails, TranslationProposalDetails,
        listen_response::Event, session_proposal::Details,
    },
};

impl Hub {
    /// Offers a waiting job to the best agent, or arranges for it to be offered later.
    // impl: HUB-3-2 HUB-3-6
    pub(super) fn place(&mut self, now: Now, job: JobId) {
        if self.phase != Phase::Open {
            return;
        }
        let Some(entry) = self.queue.get(job).filter(|entry| entry.session.is_none()) else {
            return;
        };
        let most = self.config.max_sessions_per_agent;
        let mut is_full = false;
        let mut chosen = None;
        for (id, agent) in self.fleet.candidates(&entry.skill) {
            let is_asked = entry.pinned.as_ref().is_none_or(|pinned| pinned == id);
            if !is_asked
                || entry.refused.contains(id)
                || !agent.can_do(&entry.skill, &entry.payloads)
            {
                continue;
            }
            if agent.sessions.len() < most {
                chosen = Some(id.clone());
                break;
            }
            is_full = true;
        }
        let rests = !entry.refused.is_empty() && !is_full;
        match chosen {
            Some(agent) => self.propose(now, job, &agent),
            None if rests && !self.timers.is_set(&Timer::Retry(job)) => {
                let pause = pause(self.config.refusal_pause, entry.rounds);
                self.timers
                    .set(Timer::Retry(job), now.mono.saturating_add(pause));
            }
            None => {}
        }
    }

    // impl: HUB-3-1
    fn propose(&mut self, now: Now, job: JobId, agent: &ClientId) {
        let Some(skill) = self.queue.get(job).map(|entry| entry.skill.clone()) else {
            return;
        };
        let Some(stream) = self
            .fleet
            .get(agent.as_str())
            .and_then(|agent| agent.listen)
        else {
            return;
        };
        let id = SessionId::new(skill.kind(), self.config.ids.uuid());
        let r#type = skill.name().to_owned();
        let details = Some(match skill.kind() {
            Kind::Test => Details::Test(TestProposalDetails { r#type }),
            Kind::Translation => Details::Translation(TranslationProposalDetails { r#type }),
        });
        self.timers.clear(&Timer::Retry(job));
        self.timers.set(
            Timer::Session(id.clone()),
            now.mono.saturating_add(self.config.proposal_timeout),
        );
        self.queue.assign(job, id.clone());
        self.fleet.add_session(agent, id.clone());
        self.sessions.add(
            id.clone(),
            Session {
                job,
                agent: agent.clone(),
                skill,
                stage: Stage::Proposed,
            },
        );
        self.job_event(
            job,
            JobEvent::Offered {
                session: id.clone(),
                agent: agent.clone(),
            },
        );
        let proposal = SessionProposal {
            session_id: id.to_string(),
            details,
        };
        self.send(
            stream,
            Outbound::Listen(ListenResponse {
                event: Some(Event::SessionProposal(proposal)),
            }),
        );
    }

    /// An offer came to nothing: the job goes to others, or ends if it is meant for this agent alone.
    // impl: HUB-3-3
    pub(super) fn decline(&mut self, now: Now, session: &SessionId, reason: &str) {
        let Some((job, agent)) = self
            .sessions
            .get(session.as_str())
            .map(|found| (found.job, found.agent.clone()))
        else {
            return;
        };
        let reason = brief(reason);
        let Some(entry) = self.queue.get_mut(job) else {
            return;
        };
        entry.reason = Some(reason.clone());
        if entry.pinned.is_some() {
            let mut outcome = Outcome::new(Verdict::Refused, reason);
            outcome.agent = Some(agent);
            self.end_session(now, session, outcome, Status::ok());
            return;
        }
        entry.refused.insert(agent.clone());
        self.withdraw(now, session, reason);
        self.place(now, job);
        self.offer_to(now, &agent, false);
    }

    /// Takes an offer back; the job waits again.
    pub(super) fn withdraw(&mut self, now: Now, session: &SessionId, reason: String) {
        let Some((job, agent)) = self
            .sessions
            .get(session.as_str())
            .map(|found| (found.job, found.agent.clone()))
        else {
            return;
        };
        self.timers.clear(&Timer::Session(session.clone()));
        self.fleet.remove_session(now.mono, &agent, session);
        self.sessions.forget(session, self.config.max_remembered);
        self.queue.unassign(job);
        self.job_event(
            job,
            JobEvent::Declined {
                session: session.clone(),
                reason,
            },
        );
    }

    /// Offers waiting jobs to an agent that has room, the oldest of each skill first. An agent that got
    /// free of a session (`freed`) is asked again for one job that it refused, since it may have been busy.
    pub(super) fn offer_to(&mut self, now: Now, agent: &ClientId, mut freed: bool) {
        let Some(found) = self.fleet.get(agent.as_str()) else {
            return;
        };
        let skills: Vec<_> = found.skills.keys().cloned().collect();
        for skill in skills {
            let mut order = 0;
            while let Some((next, job)) = self.queue.waiting_after(&skill, order) {
                order = next;
                let Some(found) = self.fleet.get(agent.as_str()) else {
                    return;
                };
                if found.sessions.len() >= self.config.max_sessions_per_agent {
                    return;
                }
                if freed && let Some(entry) = self.queue.get_mut(job) {
                    freed = !entry.refused.remove(agent);
                }
                self.place(now, job);
            }
        }
    }

    /// All capable agents have refused and the pause is over.
    pub(super) fn offer_again(&mut self, now: Now, job: JobId) {
        if let Some(entry) = self.queue.get_mut(job) {
            entry.refused.clear();
            entry.rounds = entry.rounds.saturating_add(1);
            self.place(now, job);
        }
    }

    /// The job's time of waiting is over.
    // impl: HUB-3-6
    pub(super) fn waited_long_enough(&mut self, now: Now, job: JobId) {
        let Some(entry) = self.queue.get(job) else {
            return;
        };
        let session = entry.session.clone();
        let message = match &entry.reason {
            Some(reason) => {
                format!("no agent took the job in time; the last one asked said: {reason}")
            }
            None if session.is_some() => "no agent took the job in time".to_owned(),
            None if self.fleet.candidates(&entry.skill).next().is_none() => {
                format!("no agent offers {}", entry.skill)
            }
            None => format!(
                "no agent that offers {} had room for the job and took its payloads",
                entry.skill
            ),
        };
        let outcome = Outcome::new(Verdict::Unplaced, message);
        match session {
            None => self.end_job(job, outcome),
            Some(session) => self.end_session(now, &session, outcome, Status::ok()),
        }
    }
}

fn pause(first: Duration, rounds: u32) -> Duration {
    /// The longest rest of a job that everybody refuses.
    const LONGEST: Duration = Duration::from_secs(60);
    /// Even a pause of nothing is one, or refusals would go round and round in one call.
    const SHORTEST: Duration = Duration::from_millis(1);
    let first = first.max(SHORTEST);
    first
        .saturating_mul(2_u32.saturating_pow(rounds))
        .min(LONGEST.max(first))
}
