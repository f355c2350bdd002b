//! The default registry.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ubos_common::time::{Mono, Now};

use super::budget::{self, Budget};
use super::changes::{Change, Journal, Subject};
use super::index::{Indexes, Ranked};
use super::looks;
use super::vectors::{self, Vectors};
use super::{
    AgentRecord, EmbeddingRecord, Health, Query, Registry, RegistryError, Similar, ToolDef, VerbDef,
};
use crate::limits::MAX_REGISTERED;

/// A registry in memory.
///
/// An agent can have a lease: see [`MemoryRegistry::add_for`] and [`MemoryRegistry::expire`].
///
/// Spec: SACP 11
#[derive(Clone, Debug, Default)]
pub struct MemoryRegistry {
    verbs: BTreeMap<String, Arc<VerbDef>>,
    aliases: BTreeMap<String, String>,
    tools: BTreeMap<String, Arc<ToolDef>>,
    agents: BTreeMap<String, Arc<AgentRecord>>,
    indexes: Indexes,
    vectors: Vectors,
    health: BTreeMap<String, Health>,
    leases: BTreeMap<String, Lease>,
    due: BTreeSet<(Mono, String)>,
    journal: Journal,
    budget: Budget,
    /// Tools by the look of their names.
    looks: BTreeSet<(String, String)>,
    /// Verbs by the look of their names.
    verb_looks: BTreeSet<(String, String)>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    lasts: Duration,
    until: Mono,
}

impl MemoryRegistry {
    /// The number of changes so far.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.journal.revision()
    }

    /// The changes after a revision, oldest first. The newest 1,024 are kept: `None` if older ones are wanted, and the
    /// registry must be read anew.
    #[must_use]
    pub fn changes_since(&self, revision: u64) -> Option<Vec<Change>> {
        self.journal.since(revision)
    }

    /// Adds or replaces an agent with a lease: it is removed unless it is [renewed](Self::renew) within `lasts`.
    ///
    /// # Errors
    ///
    /// As [`Registry::add_agent`].
    pub fn add_for(
        &mut self,
        now: Now,
        agent: AgentRecord,
        lasts: Duration,
    ) -> Result<(), RegistryError> {
        let name = agent.agent_name.clone();
        self.add_agent(agent)?;
        self.lease(&name, lasts, now.mono.saturating_add(lasts));
        Ok(())
    }

    /// Renews the lease of an agent; returns whether it has one.
    pub fn renew(&mut self, now: Now, name: &str) -> bool {
        let Some(Lease { lasts, .. }) = self.leases.get(name).copied() else {
            return false;
        };
        self.lease(name, lasts, now.mono.saturating_add(lasts));
        true
    }

    /// Removes the agents whose lease has run out; returns their names.
    pub fn expire(&mut self, now: Now) -> Vec<String> {
        let mut gone = Vec::new();
        while let Some((until, _)) = self.due.first() {
            if *until > now.mono {
                break;
            }
            let Some((_, name)) = self.due.pop_first() else {
                break;
            };
            if self.discard(&name) {
                self.journal.note(Subject::AgentExpired, &name, None);
                gone.push(name);
            }
        }
        gone
    }

    /// When [`expire`](Self::expire) is due next.
    #[must_use]
    pub fn expires_next(&self) -> Option<Mono> {
        self.due.first().map(|(until, _)| *until)
    }

    /// Sets the health of an agent. Its record is unchanged.
    ///
    /// # Errors
    ///
    /// No agent has this name.
    pub fn set_health(&mut self, name: &str, health: Health) -> Result<(), RegistryError> {
        self.known(name)?;
        let before = self.health.insert(name.to_owned(), health);
        if before.unwrap_or_default() != health {
            self.journal.note(Subject::Health, name, None);
        }
        Ok(())
    }

    fn lease(&mut self, name: &str, lasts: Duration, until: Mono) {
        if let Some(old) = self.leases.insert(name.to_owned(), Lease { lasts, until }) {
            self.due.remove(&(old.until, name.to_owned()));
        }
        self.due.insert((until, name.to_owned()));
    }

    fn known(&self, name: &str) -> Result<&Arc<AgentRecord>, RegistryError> {
        self.agents
            .get(name)
            .ok_or_else(|| RegistryError::UnknownAgent {
                agent: name.to_owned(),
            })
    }

    /// Removes an agent, and gives back its share of the budget.
    fn discard(&mut self, name: &str) -> bool {
        if let Some(agent) = self.agents.get(name) {
            let row = self.vectors.bytes_of(name);
            self.budget.release(budget::of_agent(agent) + row);
        }
        self.take(name)
    }

    /// Removes an agent with its indexes, vector, health and lease.
    fn take(&mut self, name: &str) -> bool {
        let Some(agent) = self.agents.remove(name) else {
            return false;
        };
        self.indexes.remove(&agent);
        self.vectors.remove(name);
        self.health.remove(name);
        if let Some(lease) = self.leases.remove(name) {
            self.due.remove(&(lease.until, name.to_owned()));
        }
        true
    }

    /// The names of a verb in records: its own and its aliases.
    fn verb_names<'a>(&'a self, verb: &'a str) -> Vec<&'a str> {
        let canonical = self.aliases.get(verb).map_or(verb, String::as_str);
        match self.verbs.get(canonical) {
            Some(def) => def.names().collect(),
            None => vec![verb],
        }
    }

    /// The agents for a verb and perhaps a tool, under all names of the verb, best first: at most `most`.
    fn under_verb(&self, verb: &str, tool: Option<&str>, most: usize) -> Vec<Arc<AgentRecord>> {
        let list = |name: &&str| match tool {
            Some(tool) => self.indexes.pair(name, tool),
            None => self.indexes.verbs.get(name),
        };
        let lists: Vec<&Ranked> = self.verb_names(verb).iter().filter_map(list).collect();
        match lists.as_slice() {
            [one] => one.values().take(most).cloned().collect(),
            many => {
                let best = many.iter().flat_map(|list| list.iter().take(most));
                let merged: BTreeMap<_, _> = best.collect();
                merged.into_values().take(most).cloned().collect()
            }
        }
    }

    /// The shortest index list that contains every match of a query without a verb.
    fn shortest(&self, query: &Query) -> Option<Vec<&Ranked>> {
        let one = [
            query.tool.as_ref().map(|tool| self.indexes.tools.get(tool)),
            query
                .output_type
                .as_ref()
                .map(|output| self.indexes.outputs.get(output)),
        ];
        let tags = query
            .tags
            .iter()
            .flatten()
            .map(|tag| self.indexes.tags.get(tag));
        let by_last = |input: &String| self.indexes.inputs.get(super::index::last_part(input));
        let inputs = query.inputs.iter().flatten().map(by_last);
        let lists = one.into_iter().flatten().chain(tags).chain(inputs);
        let shortest = lists.min_by_key(|list| list.map_or(0, Ranked::len))?;
        Some(shortest.into_iter().collect())
    }
}

impl Registry for MemoryRegistry {
    // impl: SACP-11-6
    fn verb(&self, name: &str) -> Option<Arc<VerbDef>> {
        let name = self.aliases.get(name).map_or(name, String::as_str);
        self.verbs.get(name).cloned()
    }

    fn tool(&self, id: &str) -> Option<Arc<ToolDef>> {
        self.tools.get(id).cloned()
    }

    fn agent(&self, name: &str) -> Option<Arc<AgentRecord>> {
        self.agents.get(name).cloned()
    }

    // impl: SACP-11-6
    fn agents_for(&self, verb: &str, tool: &str) -> Vec<Arc<AgentRecord>> {
        self.under_verb(verb, Some(tool), usize::MAX)
    }

    fn serves(&self, verb: &str, tool: &str) -> bool {
        !self.under_verb(verb, Some(tool), 1).is_empty()
    }

    fn best_for(&self, verb: &str, most: usize) -> Vec<Arc<AgentRecord>> {
        self.under_verb(verb, None, most)
    }

    // impl: SACP-11-2
    fn query(&self, query: &Query) -> Vec<Arc<AgentRecord>> {
        let mut found: Vec<Arc<AgentRecord>> = match (&query.verb, self.shortest(query)) {
            (Some(verb), _) => self.under_verb(verb, query.tool.as_deref(), usize::MAX),
            (None, Some(lists)) => lists
                .into_iter()
                .flat_map(BTreeMap::values)
                .cloned()
                .collect(),
            (None, None) => {
                let mut all: Vec<_> = self.agents.values().cloned().collect();
                all.sort_by_cached_key(|agent| super::index::Rank::of(agent));
                all
            }
        };
        found.retain(|agent| query.is_met_by(agent));
        found
    }

    // impl: SACP-11-3, SACP-12-1
    fn similar(
        &self,
        vector: &[f32],
        top: usize,
        threshold: f32,
    ) -> Result<Vec<Similar>, RegistryError> {
        let unit = self.vectors.sound(vector)?;
        let nearest = self.vectors.nearest(&unit, top, threshold).into_iter();
        let named = |(name, cosine): (&Arc<str>, f32)| {
            let agent = self.agent(name)?;
            Some(Similar { agent, cosine })
        };
        Ok(nearest.filter_map(named).collect())
    }

    fn cosine(&self, name: &str, vector: &[f32]) -> Option<f32> {
        self.vectors.cosine(name, &self.vectors.sound(vector).ok()?)
    }

    fn health(&self, name: &str) -> Health {
        self.health.get(name).copied().unwrap_or_default()
    }

    fn look_alike(&self, name: &str) -> Option<Arc<str>> {
        mistaken(&self.looks, name)
    }

    fn verb_look_alike(&self, name: &str) -> Option<Arc<str>> {
        mistaken(&self.verb_looks, name)
    }

    // impl: SACP-10-1
    fn add_verb(&mut self, verb: VerbDef) -> Result<(), RegistryError> {
        room(&self.verbs, &verb.name)?;
        budget::check_verb(&verb)?;
        let owner = self.aliases.get(&verb.name);
        if let Some(owner) = owner.filter(|owner| **owner != verb.name) {
            return Err(RegistryError::AliasTaken {
                alias: verb.name.clone(),
                verb: owner.clone(),
            });
        }
        for alias in verb.aliases.iter().flatten() {
            let owner = self
                .aliases
                .get(alias)
                .or_else(|| self.verbs.get_key_value(alias).map(|(name, _)| name));
            if let Some(owner) = owner.filter(|owner| **owner != verb.name) {
                return Err(RegistryError::AliasTaken {
                    alias: alias.clone(),
                    verb: owner.clone(),
                });
            }
        }
        let before = self
            .verbs
            .get(&verb.name)
            .map_or(0, |old| budget::of_verb(old));
        self.budget.replace(before, budget::of_verb(&verb))?;
        self.aliases.retain(|_, name| *name != verb.name);
        for alias in verb.aliases.iter().flatten() {
            self.aliases.insert(alias.clone(), verb.name.clone());
        }
        self.journal.note(Subject::Verb, &verb.name, None);
        self.verb_looks
            .insert((looks(&verb.name), verb.name.clone()));
        self.verbs.insert(verb.name.clone(), Arc::new(verb));
        Ok(())
    }

    fn add_tool(&mut self, tool: ToolDef) -> Result<(), RegistryError> {
        room(&self.tools, &tool.id)?;
        budget::check_tool(&tool)?;
        let before = self
            .tools
            .get(&tool.id)
            .map_or(0, |old| budget::of_tool(old));
        self.budget.replace(before, budget::of_tool(&tool))?;
        self.journal.note(Subject::Tool, &tool.id, None);
        self.looks.insert((looks(&tool.id), tool.id.clone()));
        self.tools.insert(tool.id.clone(), Arc::new(tool));
        Ok(())
    }

    // impl: SACP-11-1
    fn add_agent(&mut self, agent: AgentRecord) -> Result<(), RegistryError> {
        room(&self.agents, &agent.agent_name)?;
        budget::check_agent(&agent)?;
        if agent
            .confidence_score
            .is_some_and(|score| !score.is_finite())
        {
            return Err(RegistryError::NotFinite);
        }
        let vector = agent
            .embedding
            .as_deref()
            .map(single)
            .map(|vector| self.vectors.sound(&vector));
        let vector = vector.transpose()?;
        let name = agent.agent_name.clone();
        let old = self.agents.get(&name);
        let before = old.map_or(0, |old| budget::of_agent(old)) + self.vectors.bytes_of(&name);
        let row = vector
            .as_ref()
            .map_or(0, |vector| vectors::row_bytes(vector.len()));
        self.budget
            .replace(before, budget::of_agent(&agent) + row)?;
        // Health is separate from the record: a new record keeps it.
        let health = self.health.get(&name).copied();
        self.take(&name);
        if let Some(health) = health {
            self.health.insert(name.clone(), health);
        }
        let agent = Arc::new(agent);
        self.indexes.add(&agent);
        if let Some(vector) = vector {
            self.vectors.set(&name, &vector);
        }
        self.journal
            .note(Subject::Agent, &name, agent.version.as_deref());
        self.agents.insert(name, agent);
        Ok(())
    }

    // impl: SACP-12-1
    fn set_embedding(&mut self, embedding: &EmbeddingRecord) -> Result<(), RegistryError> {
        self.known(&embedding.agent)?;
        let vector = self.vectors.sound(&single(&embedding.embedding))?;
        let before = self.vectors.bytes_of(&embedding.agent);
        self.budget
            .replace(before, vectors::row_bytes(vector.len()))?;
        self.vectors.set(&embedding.agent, &vector);
        self.journal
            .note(Subject::Embedding, &embedding.agent, None);
        Ok(())
    }

    fn remove_agent(&mut self, name: &str) -> bool {
        let was = self.discard(name);
        if was {
            self.journal.note(Subject::AgentRemoved, name, None);
        }
        was
    }
}

/// Another name with the look of this one.
fn mistaken(by_look: &BTreeSet<(String, String)>, name: &str) -> Option<Arc<str>> {
    let look = looks(name);
    let mut names = by_look.range((look.clone(), String::new())..);
    let other = names.find(|(_, other)| other != name)?;
    (other.0 == look).then(|| other.1.as_str().into())
}

fn room<V>(map: &BTreeMap<String, V>, name: &str) -> Result<(), RegistryError> {
    if name.is_empty() {
        return Err(RegistryError::NoName);
    }
    if map.len() >= MAX_REGISTERED && !map.contains_key(name) {
        return Err(RegistryError::Full {
            limit: MAX_REGISTERED,
        });
    }
    Ok(())
}

/// Numbers in the width that is kept. One that does not fit becomes an infinity, which is refused.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounded to the width that is kept"
)]
fn single(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|number| *number as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_entry_takes_of_the_budget() {
        let mut registry = MemoryRegistry::default();
        let agent = |name: &str| {
            AgentRecord::new(name.into(), vec![], vec![], vec![], vec![], String::new())
        };
        registry.add_agent(agent("A")).unwrap();
        let used = budget::of_agent(&agent("A"));
        let rest = crate::limits::MAX_REGISTRY_BYTES - used;
        registry.budget.replace(0, rest).unwrap();
        let full = registry.budget;
        let any = ubos_common::json::RawBuf::parse("\"any\"").unwrap();
        let verb = VerbDef::new("v".into(), String::new(), vec![], any);
        let tool = ToolDef::new("T".into(), String::new(), vec![]);
        let embedding = EmbeddingRecord::new("A".into(), vec![0.5; 64], String::new());
        for refused in [
            registry.add_verb(verb),
            registry.add_tool(tool),
            registry.add_agent(agent("B")),
            registry.set_embedding(&embedding),
        ] {
            assert!(
                matches!(refused, Err(RegistryError::TooLarge { .. })),
                "{refused:?}"
            );
            assert_eq!(registry.budget, full);
        }
        registry.budget.release(rest);
        registry.set_embedding(&embedding).unwrap();
        registry.set_embedding(&embedding).unwrap();
        registry.remove_agent("A");
        assert_eq!(registry.budget, Budget::default());
    }

    #[test]
    fn what_leaves_a_registry_gives_its_bytes_back() {
        let agent = |about: &str| {
            let (verbs, tools) = (vec!["v".to_owned()], vec!["T".to_owned()]);
            let mut agent =
                AgentRecord::new("A".into(), verbs, tools, vec![], vec![], about.into());
            agent.embedding = Some(vec![0.5; 4]);
            agent
        };
        let mut registry = MemoryRegistry::default();
        registry.add_agent(agent("long ago")).unwrap();
        registry.add_agent(agent("new")).unwrap();
        let once = registry.budget;
        registry.remove_agent("A");
        assert_eq!(registry.budget, Budget::default());
        let now = Now::new(Mono::ZERO, ubos_common::time::Timestamp::EPOCH);
        let lasts = Duration::from_secs(1);
        registry.add_for(now, agent("new"), lasts).unwrap();
        assert_eq!(registry.budget, once);
        let later = Now::new(Mono::from_millis(2000), now.wall);
        assert_eq!(registry.expire(later), ["A"]);
        assert_eq!(registry.budget, Budget::default());
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn a_full_registry_takes_what_it_knows_and_nothing_new() {
        let names = (0..MAX_REGISTERED).map(|n| (format!("{n:07}"), ()));
        let mut known: BTreeMap<String, ()> = names.collect();
        let full = RegistryError::Full {
            limit: MAX_REGISTERED,
        };
        assert_eq!(room(&known, "0000007"), Ok(()));
        assert_eq!(room(&known, "new"), Err(full));
        known.pop_first();
        assert_eq!(room(&known, "new"), Ok(()));
    }
}
