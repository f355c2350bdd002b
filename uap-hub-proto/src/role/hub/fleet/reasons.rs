//! Why a job is not placed, in words for people.

use std::collections::BTreeMap;

use super::{super::job::Job, Fleet};
use crate::capability::{Shape, Skill};

impl Fleet {
    /// Why a job that waited was offered to no agent, in words for people.
    pub(in crate::role::hub) fn why_unplaced(&mut self, job: &Job, shape: &Shape) -> String {
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
        let Some(work) = self.rank(skill, shape) else {
            return format!("no agent offers {skill}");
        };
        let ranking = self.rankings.get(work.ranking);
        let (offering, free) = ranking.map_or((0, 0), |ranking| {
            (ranking.len(), ranking.ranked(work.shape).count())
        });
        let begin = format!("agents that offer {skill}: {offering}, of which");
        let able = self.counts(work);
        if able.all == 0 {
            return format!(
                "{begin} 0 take these payloads: {}",
                self.faults(skill, shape)
            );
        }
        let standings = [
            (able.all - able.listening, "away"),
            (able.listening - able.present, "paused"),
            (able.present - free, "without room"),
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

    /// What a job lacks for the agents with its skill, of which none can do it. Where they are very many, some stand for all.
    pub(in crate::role::hub) fn faults(&self, skill: &Skill, shape: &Shape) -> String {
        let Some(of_skill) = self.by_skill.get(skill) else {
            return format!("no agent offers {skill}");
        };
        let mut faults = BTreeMap::<String, usize>::new();
        for id in of_skill.agents.iter().take(MAX_ASKED) {
            let fault = self.unmet_by(id.as_str(), skill, shape);
            *faults.entry(fault.unwrap_or_default()).or_default() += 1;
        }
        let mut faults: Vec<_> = faults
            .into_iter()
            .map(|(fault, count)| (count, fault))
            .collect();
        faults.sort_by(|(one, _), (other, _)| other.cmp(one));
        if let [(_, only)] = &faults[..] {
            return only.clone();
        }
        let said = faults.iter().take(MAX_FAULTS);
        let mut said: Vec<_> = said
            .map(|(count, fault)| format!("{count}: {fault}"))
            .collect();
        let left: usize = faults.iter().skip(MAX_FAULTS).map(|(count, _)| count).sum();
        if left > 0 {
            said.push(format!("{left}: other reasons"));
        }
        said.join("; ")
    }
}

/// Agents that are asked why they cannot do a job.
const MAX_ASKED: usize = 64;
/// Reasons that are told.
const MAX_FAULTS: usize = 3;
