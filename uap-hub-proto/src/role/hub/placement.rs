//! Placement: which agent is offered which job, and when.

use std::time::Duration;

use ubos_common::time::{Mono, Now};

use super::{
    Hub, JobEvent, Outbound, Outcome, Phase, Timer, Verdict,
    execution::Closed,
    queue::{Entry, Line, Place, Stage as JobStage},
    session::{Session, SessionKey, Stage},
};
use crate::trace::debug;
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
        let Some(entry) = self.queue.get(job) else {
            return;
        };
        if entry.stage != JobStage::Waiting {
            return;
        }
        if entry.job.agent.is_none() {
            self.fleet.rank(&entry.job.skill, &entry.shape);
        }
        let (chosen, asked) = self.choose(entry);
        // A job may ask thousands of agents one by one: count those that refused only when there can be enough.
        let has_refused = || entry.refused.iter().filter(|id| self.fleet.is_present(id));
        let may_all = chosen.is_none() && entry.refused.len() >= asked.max(1);
        let all_refused = may_all && has_refused().count() >= asked;
        match chosen {
            Some(agent) => self.propose(now, job, &agent),
            None if all_refused && !entry.is_retrying => {
                let pause = pause(self.config.refusal_pause, entry.rounds);
                self.retry(job, Some(now.mono.saturating_add(pause)));
            }
            None => {}
        }
    }

    /// Sets when a job that all refused is offered again, or takes it back.
    pub(super) fn retry(&mut self, job: JobId, at: Option<Mono>) {
        let Some(entry) = self.queue.get_mut(job) else {
            return;
        };
        match at {
            Some(at) => self.timers.set(Timer::Retry(job), at),
            None if entry.is_retrying => self.timers.clear(&Timer::Retry(job)),
            None => {}
        }
        entry.is_retrying = at.is_some();
    }

    /// The agent to ask now, and the number of agents that could be asked at some time.
    fn choose(&self, entry: &Entry) -> (Option<ClientId>, usize) {
        let (skill, shape) = (&entry.job.skill, &entry.shape);
        let Some(only) = &entry.job.agent else {
            let home = self.fleet.affinity(&entry.job);
            let home = home.and_then(|key| self.fleet.home(key));
            let may_take = |id: &&ClientId| {
                !entry.refused.contains(*id) && self.fleet.is_capable(id.as_str(), skill, shape)
            };
            let chosen = home.filter(may_take);
            let chosen = chosen.or_else(|| self.fleet.choose(skill, shape, &entry.refused));
            let chosen = chosen.cloned();
            let asked = match chosen {
                Some(_) => 0,
                None => self.fleet.present(skill, shape),
            };
            return (chosen, asked);
        };
        let may_be_asked = self.fleet.may_be_asked(only) && !entry.refused.contains(only);
        (may_be_asked.then(|| only.clone()), 1)
    }

    // impl: HUB-3-1
    fn propose(&mut self, now: Now, job: JobId, agent: &ClientId) {
        let Some(skill) = self.queue.get(job).map(|entry| entry.job.skill.clone()) else {
            return;
        };
        let asked = self.fleet.get(agent.as_str());
        let Some((stream, identity)) =
            asked.and_then(|asked| Some((asked.listen?, asked.identity.clone())))
        else {
            return;
        };
        let id = SessionId::new(skill.kind(), self.ids.uuid());
        let r#type = skill.name().to_owned();
        let details = Some(match skill.kind() {
            Kind::Test => Details::Test(TestProposalDetails { r#type }),
            Kind::Translation => Details::Translation(TranslationProposalDetails { r#type }),
        });
        self.retry(job, None);
        let key = self.sessions.add(Session {
            id: id.clone(),
            job,
            agent: agent.clone(),
            identity,
            skill,
            stage: Stage::Proposed,
            has_spoken: false,
            reports: None,
        });
        self.timers.set(
            Timer::Session(key),
            now.mono.saturating_add(self.config.proposal_timeout),
        );
        self.queue.set_stage(job, JobStage::Session(key));
        self.fleet.add_session(agent, key);
        self.job_event(
            now,
            job,
            JobEvent::Offered {
                session: id.clone(),
                agent: agent.clone(),
            },
        );
        let proposal = SessionProposal {
            session_id: id.as_str().to_owned(),
            details,
        };
        self.send(
            stream,
            Outbound::Listen(ListenResponse {
                event: Some(Event::SessionProposal(proposal)),
            }),
        );
    }

    /// An offer was declined: the job goes to other agents, or ends if it is for this agent alone.
    // impl: HUB-3-3
    pub(super) fn decline(&mut self, now: Now, session: SessionKey, reason: &str) {
        let Some(found) = self.sessions.get(session) else {
            return;
        };
        debug!(session = %found.id, "offer declined");
        let (job, agent) = (found.job, found.agent.clone());
        let reason = brief(reason);
        let Some(entry) = self.queue.get_mut(job) else {
            return;
        };
        entry.reason = Some(reason.clone());
        let is_pinned = entry.job.agent.is_some();
        self.cool_down(now, &agent);
        if is_pinned {
            let mut outcome = Outcome::new(Verdict::Refused, reason);
            outcome.agent = Some(agent);
            self.end_session(now, session, outcome, Status::ok());
            return;
        }
        self.pass_over(job, &agent);
        self.withdraw(now, session, &reason);
        self.place(now, job);
        self.dismiss_if_drained(now, &agent);
    }

    /// Limits an agent that refused to the sessions that it has accepted, for a while. It is most likely full, and a long
    /// queue would ask it for one job after the other.
    // choice: HUB-3-6 the room of an agent that refused shrinks to what it accepted, and grows by one each time
    fn cool_down(&mut self, now: Now, id: &ClientId) {
        self.fleet.set_room(id, self.accepted_by(id));
        self.arm_cooldown(now, id);
    }

    /// Raises the room of an agent that accepted more than its limit since it refused.
    pub(super) fn warm_up(&mut self, id: &ClientId) {
        if self.timers.get(&Timer::Cool(id.clone())).is_some() {
            self.fleet.raise_room(id, self.accepted_by(id));
        }
    }

    fn accepted_by(&self, id: &ClientId) -> usize {
        let is_accepted = |session: &&SessionKey| {
            let found = self.sessions.get(**session);
            found.is_some_and(|found| found.stage != Stage::Proposed)
        };
        let agent = self.fleet.get(id.as_str());
        agent.map_or(0, |agent| agent.sessions.iter().filter(is_accepted).count())
    }

    /// The agent may take one session more.
    pub(super) fn cooled_down(&mut self, now: Now, id: &ClientId) {
        if self.fleet.widen(id) {
            self.arm_cooldown(now, id);
        }
        self.offer_to(now, id, false);
    }

    fn arm_cooldown(&mut self, now: Now, id: &ClientId) {
        let pause = self.config.refusal_cooldown.max(SHORTEST);
        self.timers
            .set(Timer::Cool(id.clone()), now.mono.saturating_add(pause));
    }

    /// Passes over this agent until all others are asked. Agents that are gone are forgotten before
    /// there are more names than agents.
    pub(super) fn pass_over(&mut self, job: JobId, agent: &ClientId) {
        let Some(entry) = self.queue.get_mut(job) else {
            return;
        };
        entry.refused.insert(agent.clone());
        if entry.refused.len() > self.fleet.len() {
            (entry.refused).retain(|id| self.fleet.get(id.as_str()).is_some());
        }
    }

    /// Withdraws an offer. The job waits again; the caller places it.
    // impl: HUB-3-3
    pub(super) fn withdraw(&mut self, now: Now, id: SessionKey, reason: &str) -> Option<JobId> {
        let Closed { job, session, .. } = self.close_session(now, id, Status::ok())?;
        self.queue.set_stage(job, JobStage::Waiting);
        let event = JobEvent::Declined {
            session,
            reason: reason.to_owned(),
        };
        self.job_event(now, job, event);
        Some(job)
    }

    /// Offers waiting jobs to an agent that has room, by their place in line. An agent that got free of a
    /// session (`freed`) is asked again for one job that it refused, since it may have been busy.
    pub(super) fn offer_to(&mut self, now: Now, agent: &ClientId, mut freed: bool) {
        let mut lines = self.lines_for(agent);
        while self.phase == Phase::Open && self.fleet.may_be_asked(agent) {
            let heads = lines.iter_mut().filter_map(|(line, after)| {
                let (place, job) = self.queue.next_in(line, *after)?;
                Some((place, job, after))
            });
            let Some((place, job, after)) = heads.min_by_key(|(place, ..)| *place) else {
                return;
            };
            *after = Some(place);
            let Some(entry) = self.queue.get_mut(job) else {
                continue;
            };
            if freed {
                freed = !entry.refused.remove(agent);
            }
            // A job that this agent refused waits because all others refused it too, or have no room.
            if !entry.refused.contains(agent) {
                self.place(now, job);
            }
        }
    }

    /// The lines whose jobs an agent can do, each to be read from its start.
    fn lines_for(&self, id: &ClientId) -> Vec<(Line, Option<Place>)> {
        let Some(agent) = self.fleet.get(id.as_str()) else {
            return Vec::new();
        };
        let lines = agent.skills.keys().flat_map(|skill| {
            let shapes = self.queue.shapes(skill);
            let fitting = shapes.filter(|shape| self.fleet.is_capable(id.as_str(), skill, shape));
            fitting.map(|shape| Line::Any(skill.clone(), shape.clone()))
        });
        let own = std::iter::once(Line::One(id.clone()));
        let lines = lines.chain(own);
        lines.map(|line| (line, None)).collect()
    }

    /// Notes that an agent cannot be asked any more. Jobs that all others refused may have waited for it alone: they are
    /// searched a little later, once for all agents that leave meanwhile.
    pub(super) fn one_less(&mut self, now: Now) {
        if self.timers.get(&Timer::Fewer).is_none() {
            let pause = self.config.refusal_pause.max(SHORTEST);
            self.timers
                .set(Timer::Fewer, now.mono.saturating_add(pause));
        }
    }

    pub(super) fn place_refused(&mut self, now: Now) {
        for job in self.queue.waiting() {
            let entry = self.queue.get(job);
            if entry.is_some_and(|entry| !entry.refused.is_empty()) {
                self.place(now, job);
            }
        }
    }

    /// All capable agents have refused and the pause is over.
    pub(super) fn offer_again(&mut self, now: Now, job: JobId) {
        if let Some(entry) = self.queue.get_mut(job) {
            entry.refused.clear();
            entry.is_retrying = false;
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
        let session = entry.session();
        let message = match &entry.reason {
            Some(reason) => {
                format!("no agent took the job in time; the last one asked said: {reason}")
            }
            None if session.is_some() => "no agent took the job in time".to_owned(),
            None if self.phase == Phase::Paused => "the hub is paused".to_owned(),
            None => self.fleet.why_unplaced(&entry.job, &entry.shape),
        };
        let outcome = Outcome::new(Verdict::Unplaced, message);
        self.stop_job(now, job, outcome, "no agent took the job in time");
    }
}

/// The pause is never zero, or refusals would loop within one call.
const SHORTEST: Duration = Duration::from_millis(1);

// impl: HUB-3-1
fn pause(first: Duration, rounds: u32) -> Duration {
    /// The longest pause of a job that all agents refuse.
    const LONGEST: Duration = Duration::from_secs(60);
    let first = first.max(SHORTEST);
    first
        .saturating_mul(2_u32.saturating_pow(rounds))
        .min(LONGEST.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: HUB-3-1
    #[test]
    fn the_pause_doubles_up_to_a_minute() {
        let seconds = |first, rounds| pause(Duration::from_secs(first), rounds).as_secs();
        let pauses = [0, 1, 5, 6, 7, u32::MAX].map(|rounds| seconds(1, rounds));
        assert_eq!(pauses, [1, 2, 32, 60, 60, 60]);
        assert_eq!(
            [seconds(90, 0), seconds(90, 1)],
            [90, 90],
            "no shorter than the first"
        );
        assert_eq!(pause(Duration::ZERO, 0), SHORTEST);
    }
}
