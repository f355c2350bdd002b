//! Indexes of agents, best first.

use core::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::AgentRecord;

/// The rank of an agent: by confidence (absent last), then by name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rank {
    confidence: Option<f64>,
    name: Arc<str>,
}

impl Rank {
    pub(super) fn of(agent: &AgentRecord) -> Self {
        Self {
            confidence: agent.confidence_score,
            name: agent.agent_name.as_str().into(),
        }
    }
}

impl Eq for Rank {}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        by_confidence(self.confidence, other.confidence).then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// More is better, absent comes last.
pub(super) fn by_confidence(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

/// Agents, best first.
pub(super) type Ranked = BTreeMap<Rank, Arc<AgentRecord>>;

/// Agents by word. The order of the map never reaches an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Index(HashMap<String, Ranked>);

impl Index {
    pub(super) fn get(&self, word: &str) -> Option<&Ranked> {
        self.0.get(word)
    }

    pub(super) fn add(&mut self, word: &str, rank: &Rank, agent: &Arc<AgentRecord>) {
        if let Some(ranked) = self.0.get_mut(word) {
            ranked.insert(rank.clone(), Arc::clone(agent));
        } else {
            let ranked = Ranked::from([(rank.clone(), Arc::clone(agent))]);
            self.0.insert(word.to_owned(), ranked);
        }
    }

    pub(super) fn remove(&mut self, word: &str, rank: &Rank) {
        if let Some(ranked) = self.0.get_mut(word) {
            ranked.remove(rank);
            if ranked.is_empty() {
                self.0.remove(word);
            }
        }
    }
}

/// The indexes that a query can start from.
#[derive(Clone, Debug, Default)]
pub(super) struct Indexes {
    pub(super) verbs: Index,
    pub(super) tools: Index,
    pub(super) outputs: Index,
    pub(super) tags: Index,
    /// By the last dotted part of each input.
    pub(super) inputs: Index,
    pairs: HashMap<String, Index>,
}

impl Indexes {
    pub(super) fn pair(&self, verb: &str, tool: &str) -> Option<&Ranked> {
        self.pairs.get(verb)?.get(tool)
    }

    pub(super) fn add(&mut self, agent: &Arc<AgentRecord>) {
        let rank = Rank::of(agent);
        for verb in &agent.supported_verbs {
            self.verbs.add(verb, &rank, agent);
            if !self.pairs.contains_key(verb) {
                self.pairs.insert(verb.clone(), Index::default());
            }
            if let Some(tools) = self.pairs.get_mut(verb) {
                for tool in &agent.supported_tools {
                    tools.add(tool, &rank, agent);
                }
            }
        }
        for (index, words) in self.by_words(agent) {
            for word in words {
                index.add(word, &rank, agent);
            }
        }
    }

    pub(super) fn remove(&mut self, agent: &AgentRecord) {
        let rank = Rank::of(agent);
        for verb in &agent.supported_verbs {
            self.verbs.remove(verb, &rank);
            if let Some(tools) = self.pairs.get_mut(verb) {
                for tool in &agent.supported_tools {
                    tools.remove(tool, &rank);
                }
                if tools.0.is_empty() {
                    self.pairs.remove(verb);
                }
            }
        }
        for (index, words) in self.by_words(agent) {
            for word in words {
                index.remove(word, &rank);
            }
        }
    }

    /// The simple indexes, each with the words of an agent.
    fn by_words<'a>(&mut self, agent: &'a AgentRecord) -> [(&mut Index, Vec<&'a str>); 4] {
        let words = |list: &'a [String]| list.iter().map(String::as_str).collect();
        [
            (&mut self.tools, words(&agent.supported_tools)),
            (&mut self.outputs, words(&agent.outputs)),
            (
                &mut self.tags,
                words(agent.tags.as_deref().unwrap_or_default()),
            ),
            (
                &mut self.inputs,
                agent.inputs.iter().map(|input| last_part(input)).collect(),
            ),
        ]
    }
}

/// The part behind the last dot.
pub(super) fn last_part(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_nobody_has_any_more_is_forgotten() {
        let agent = AgentRecord::new("A".into(), vec![], vec![], vec![], vec![], "d".into());
        let (agent, mut index) = (Arc::new(agent), Index::default());
        let rank = Rank::of(&agent);
        index.add("word", &rank, &agent);
        index.remove("word", &rank);
        assert!(index.0.is_empty());
    }
}
