//! Placement: which agent is offered which job, and when.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use ubos_common::time::{Mono, Now};

use super::{
    Hub, JobEvent, Outbound, Outcome, Phase, Timer, Verdict,
    execution::Closed,
    fleet::Fleet,
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
        match choose(&mut self.fleet, entry) {
            Choice::Ask(agent) => self.propose(now, job, &agent),
            Choice::AllRefused if !entry.is_retrying => {
                let pause = pause(self.config.refusal_pause, entry.rounds);
                self.retry(job, Some(now.mono.saturating_add(pause)));
            }
            Choice::AllRefused | Choice::Nobody => {}
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

    // impl: HUB-3-1
    fn propose(&mut self, now: Now, job: JobId, agent: &ClientId) {
        let Some(skill) = self.queue.get(job).map(|entry| entry.job.skill.clone()) else {
            return;
        };
        let asked = self.fleet.get(agent.as_str());
        let Some(identity) = asked.and_then(|asked| asked.listen.map(|_| asked.identity.clone()))
        else {
            return;
        };
        let id = SessionId::new(skill.kind(), self.ids.uuid());
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
        self.queue.set_stage(job, JobStage::Session(key));
        self.fleet.add_session(agent, key);
        self.job_event(
            now,
            job,
            JobEvent::Offered {
                session: id,
                agent: agent.clone(),
            },
        );
        self.tell_proposal(now, key);
    }

    /// Sends an offer, and starts the agent's time to answer it.
    pub(super) fn tell_proposal(&mut self, now: Now, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let agent = self.fleet.get(session.agent.as_str());
        let Some(stream) = agent.and_then(|agent| agent.listen) else {
            return;
        };
        let r#type = session.skill.name().to_owned();
        let details = Some(match session.skill.kind() {
            Kind::Test => Details::Test(TestProposalDetails { r#type }),
            Kind::Translation => Details::Translation(TranslationProposalDetails { r#type }),
        });
        let proposal = SessionProposal {
            session_id: session.id.as_str().to_owned(),
            details,
        };
        self.timers.set(
            Timer::Session(key),
            now.mono.saturating_add(self.config.proposal_timeout),
        );
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
        if self.phase != Phase::Open || !self.fleet.may_be_asked(agent) {
            return;
        }
        let mut heads = self.heads_for(agent);
        while self.fleet.may_be_asked(agent) {
            let Some(Reverse((place, job, line))) = heads.pop() else {
                return;
            };
            if let Some((next, behind)) = self.queue.next_in(&line, Some(place)) {
                heads.push(Reverse((next, behind, line)));
            }
            let Some(entry) = self.queue.get_mut(job) else {
                continue;
            };
            if freed {
                freed = !entry.refused.remove(agent);
            }
            // What waits in line waits because all others that can do it refused it or have no room: only this agent is asked.
            if !entry.refused.contains(agent) {
                self.propose(now, job, agent);
            }
        }
    }

    /// The first job of each line whose jobs an agent can do.
    fn heads_for(&self, id: &ClientId) -> BinaryHeap<Reverse<(Place, JobId, Line)>> {
        let Some(agent) = self.fleet.get(id.as_str()) else {
            return BinaryHeap::new();
        };
        let lines = agent.skills.iter().flat_map(|(skill, requirements)| {
            let heads = self.queue.heads(skill);
            let fitting = heads.filter(|(shape, ..)| requirements.are_met_by(shape));
            fitting.map(|(shape, place, job)| {
                let line = Line::Any(skill.clone(), shape.clone());
                Reverse((place, job, line))
            })
        });
        let own = Line::One(id.clone());
        let first = self.queue.next_in(&own, None);
        let own = first.map(|(place, job)| Reverse((place, job, own)));
        lines.chain(own).collect()
    }

    /// Notes that an agent cannot be asked any more. Jobs that all others refused may have waited for it alone: they are
    /// searched a little later, once for all agents that leave meanwhile.
    pub(super) fn one_less(&mut self, now: Now) {
        if self.searched.is_empty() {
            self.search_later(now, self.config.refusal_pause);
        } else {
            self.search_again = true;
        }
    }

    fn search_later(&mut self, now: Now, pause: Duration) {
        if self.timers.get(&Timer::Fewer).is_none() {
            let pause = pause.max(SHORTEST);
            self.timers
                .set(Timer::Fewer, now.mono.saturating_add(pause));
        }
    }

    /// Searches some of the jobs that were refused, and the others a little later: each may have every agent held against it.
    pub(super) fn place_refused(&mut self, now: Now) {
        if self.searched.is_empty() {
            let is_refused = |job: &JobId| {
                let entry = self.queue.get(*job);
                entry.is_some_and(|entry| !entry.refused.is_empty() && !entry.is_retrying)
            };
            self.searched = self
                .queue
                .waiting()
                .into_iter()
                .filter(is_refused)
                .collect();
        }
        for _ in 0..MAX_SEARCHED {
            match self.searched.pop_front() {
                Some(job) => self.place(now, job),
                None => break,
            }
        }
        if !self.searched.is_empty() {
            self.search_later(now, SHORTEST);
        } else if std::mem::take(&mut self.search_again) {
            self.search_later(now, self.config.refusal_pause);
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

    /// Why a job waits, in words for people: what agents lack for it, and what the last one that was asked said. `None` where it
    /// does not wait. Where it is not known which agents of very many can do it, 64 are asked, and the words say so.
    pub fn why_waiting(&self, job: JobId) -> Option<String> {
        let entry = self.queue.get(job)?;
        if entry.stage != JobStage::Waiting {
            return None;
        }
        let why = match self.phase {
            Phase::Paused => "the hub is paused".to_owned(),
            _ => self.fleet.why_unplaced(&entry.job, &entry.shape),
        };
        Some(match &entry.reason {
            Some(reason) => format!("{why}; the last one asked said: {reason}"),
            None => why,
        })
    }

    /// The job's time of waiting is over.
    // impl: HUB-3-6
    pub(super) fn waited_long_enough(&mut self, now: Now, job: JobId) {
        let Some(entry) = self.queue.get(job) else {
            return;
        };
        let reason = entry.reason.clone();
        let why = self.why_waiting(job);
        let message = match (why, reason) {
            (Some(why), _) => why,
            (None, Some(reason)) => {
                format!("no agent took the job in time; the last one asked said: {reason}")
            }
            (None, None) => "no agent took the job in time".to_owned(),
        };
        let outcome = Outcome::new(Verdict::Unplaced, message);
        self.stop_job(now, job, outcome, "no agent took the job in time");
    }
}

/// Jobs that are searched at once after agents left.
pub(super) const MAX_SEARCHED: usize = 32;

/// Whom to ask for a job.
enum Choice {
    Ask(ClientId),
    /// Everybody who could be asked has refused.
    AllRefused,
    /// Nobody now.
    Nobody,
}

fn choose(fleet: &mut Fleet, entry: &Entry) -> Choice {
    let (skill, shape, refused) = (&entry.job.skill, &entry.shape, &entry.refused);
    let asked = if let Some(only) = &entry.job.agent {
        if fleet.may_be_asked(only) && !refused.contains(only) {
            return Choice::Ask(only.clone());
        }
        1
    } else {
        // Where nobody has room it does not matter who could do the job, until somebody refused it.
        if refused.is_empty() && !fleet.has_room(skill) {
            return Choice::Nobody;
        }
        let home = fleet.affinity(&entry.job).and_then(|key| fleet.home(key));
        let may_take =
            |id: &&ClientId| !refused.contains(*id) && fleet.is_capable(id.as_str(), skill, shape);
        if let Some(home) = home.filter(may_take) {
            return Choice::Ask(home.clone());
        }
        let Some(work) = fleet.rank(skill, shape) else {
            return Choice::Nobody;
        };
        if let Some(best) = fleet.choose(work, refused) {
            return Choice::Ask(best.clone());
        }
        fleet.present(work)
    };
    // A job may ask thousands of agents one by one: count those that refused only when there can be enough.
    let have_refused = || refused.iter().filter(|id| fleet.is_present(id)).count();
    match refused.len() >= asked.max(1) && have_refused() >= asked {
        true => Choice::AllRefused,
        false => Choice::Nobody,
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
