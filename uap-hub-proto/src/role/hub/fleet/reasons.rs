//! Why a job is not placed, in words for people.

use std::collections::BTreeMap;

use super::{
    super::{job::Job, ranking::Capable, ranking::Standing},
    Agent, Fleet,
};
use crate::capability::{Shape, Skill};

impl Fleet {
    /// Why a job that waited was offered to no agent, in words for people.
    pub(in crate::role::hub) fn why_unplaced(&self, job: &Job, shape: &Shape) -> String {
        let skill = &job.skill;
        if let Some(only) = &job.agent {
            let fault = match self.agents.get(only) {
                None => "is gone".to_owned(),
                Some(agent) => match self.unmet_by(only.as_str(), skill, shape) {
                    Some(unmet) => format!("cannot do it: {unmet}"),
                    None if agent.listen.is_none() => "is away".to_owned(),
                    None if agent.is_paused => "is paused".to_owned(),
                    None => "has no room".to_owned(),
                },
            };
            return format!("the agent that the job is for {fault}");
        }
        let Some(of_skill) = self.by_skill.get(skill) else {
            return format!("no agent offers {skill}");
        };
        let offering = of_skill.agents.len();
        let able = match self.known(skill, shape) {
            Some(able) => able,
            None => self.sampled(skill, shape),
        };
        let begin = match able.asked {
            asked if asked < offering => {
                format!("agents that offer {skill}: {offering}; of {asked} that were asked")
            }
            _ => format!("agents that offer {skill}: {offering}, of which"),
        };
        if able.all == 0 {
            return format!(
                "{begin} 0 take these payloads: {}",
                self.faults(skill, shape)
            );
        }
        let standings = [
            (able.all - able.listening, "away"),
            (able.listening - able.present, "paused"),
            (able.present - able.free, "without room"),
        ];
        let standings = standings.iter().filter(|(count, _)| *count > 0);
        let standings: Vec<_> = standings
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let colon = if standings.is_empty() { "" } else { ": " };
        format!(
            "{begin} {} take these payloads{colon}{}",
            able.all,
            standings.join(", ")
        )
    }

    /// Counts the agents that can do a job, where it is known which can.
    fn known(&self, skill: &Skill, shape: &Shape) -> Option<Able> {
        let of_skill = self.by_skill.get(skill)?;
        let ranking = self.rankings.get(of_skill.ranking?)?;
        let shape = ranking.number_of(shape)?;
        let Capable {
            all,
            listening,
            present,
        } = ranking.counts(shape);
        Some(Able {
            asked: ranking.len(),
            all,
            listening,
            present,
            free: ranking.ranked(shape).count(),
        })
    }

    /// Counts them among some agents: a job of a shape that is not known must not have all of them held against it, nor take the
    /// place of one that is.
    fn sampled(&self, skill: &Skill, shape: &Shape) -> Able {
        let mut able = Able::default();
        for agent in self.some(skill) {
            able.asked += 1;
            if agent.is_capable(skill, shape) {
                let standing = Standing::of(agent);
                able.all += 1;
                able.listening += usize::from(standing.is_listening);
                able.present += usize::from(standing.is_present);
                able.free += usize::from(standing.has_room);
            }
        }
        able
    }

    /// Those that stand for all with a skill where they are very many.
    fn some(&self, skill: &Skill) -> impl Iterator<Item = &Agent> {
        let of_skill = self.by_skill.get(skill);
        let ids = of_skill.into_iter().flat_map(|of_skill| &of_skill.agents);
        ids.take(MAX_ASKED).filter_map(|id| self.agents.get(id))
    }

    /// What a job lacks for an agent, in words for people.
    pub(in crate::role::hub) fn unmet_by(
        &self,
        id: &str,
        skill: &Skill,
        shape: &Shape,
    ) -> Option<String> {
        let Some(requirements) = self.agents.get(id)?.skills.get(skill) else {
            return Some(format!("it does not offer {skill}"));
        };
        Some(requirements.unmet_by(shape)?.to_string())
    }

    /// What a job lacks for the agents with its skill, of which none can do it. Where they are very many, some stand for all,
    /// and that is said.
    pub(in crate::role::hub) fn faults(&self, skill: &Skill, shape: &Shape) -> String {
        let Some(of_skill) = self.by_skill.get(skill) else {
            return format!("no agent offers {skill}");
        };
        let (mut faults, mut asked) = (BTreeMap::<String, usize>::new(), 0);
        for agent in self.some(skill) {
            let requirements = agent.skills.get(skill);
            let unmet = requirements.and_then(|requirements| requirements.unmet_by(shape));
            let fault = unmet.map(|unmet| unmet.to_string()).unwrap_or_default();
            *faults.entry(fault).or_default() += 1;
            asked += 1;
        }
        let mut faults: Vec<_> = faults
            .into_iter()
            .map(|(fault, count)| (count, fault))
            .collect();
        faults.sort_by(|(one, _), (other, _)| other.cmp(one));
        let left = of_skill.agents.len() - asked;
        if let ([(_, only)], 0) = (&faults[..], left) {
            return only.clone();
        }
        let said = faults.iter().take(MAX_FAULTS);
        let mut said: Vec<_> = said
            .map(|(count, fault)| format!("{count}: {fault}"))
            .collect();
        let others: usize = faults.iter().skip(MAX_FAULTS).map(|(count, _)| count).sum();
        if others > 0 {
            said.push(format!("{others}: other reasons"));
        }
        if left > 0 {
            said.push(format!("{left} were not asked"));
        }
        said.join("; ")
    }
}

/// Agents with a skill that can do a job.
#[derive(Clone, Copy, Debug, Default)]
struct Able {
    /// Of how many agents that is known.
    asked: usize,
    all: usize,
    listening: usize,
    present: usize,
    /// Those that have room.
    free: usize,
}

/// Agents that are asked why they cannot do a job.
pub(in crate::role::hub) const MAX_ASKED: usize = 64;
/// Reasons that are told.
const MAX_FAULTS: usize = 3;
