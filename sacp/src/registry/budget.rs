//! How much strangers may put into a registry: the lengths of lists, and the bytes of all entries together.

use super::{AgentRecord, RegistryError, ToolDef, VerbDef};
use crate::limits::{MAX_LISTED, MAX_PAIRS, MAX_REGISTRY_BYTES};

/// The bytes of all records and of what is found by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Budget {
    used: usize,
}

impl Budget {
    /// Gives back what an entry took, and takes what the one in its place does; nothing changes where that is too much.
    pub(super) const fn replace(
        &mut self,
        before: usize,
        after: usize,
    ) -> Result<(), RegistryError> {
        let (limit, seen) = (
            MAX_REGISTRY_BYTES,
            self.used.saturating_sub(before).saturating_add(after),
        );
        if seen > limit && after > before {
            return Err(RegistryError::TooLarge { seen, limit });
        }
        self.used = seen;
        Ok(())
    }

    /// Gives back what an entry took.
    pub(super) const fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }
}

/// Bytes that an entry of an index takes beside its word.
const ENTRY: usize = 96;

/// The bytes of a verb, about.
pub(super) fn of_verb(verb: &VerbDef) -> usize {
    let inputs: usize = verb.inputs.iter().map(|input| input.as_str().len()).sum();
    let texts = verb.name.len() + verb.description.len() + verb.outputs.as_str().len();
    texts + inputs + words(verb.aliases.as_deref().unwrap_or_default()) + ENTRY
}

/// The bytes of a tool, about.
pub(super) fn of_tool(tool: &ToolDef) -> usize {
    let interface = tool.interface.as_ref().map_or(0, String::len);
    tool.id.len() + tool.description.len() + interface + words(&tool.supported_verbs) + ENTRY
}

/// The bytes of an agent, about: its record, and an entry for each word and each pair that it is found by. The row of its vector
/// comes on top.
pub(super) fn of_agent(agent: &AgentRecord) -> usize {
    let listed: usize = lists(agent).iter().map(|(_, list)| words(list)).sum();
    let pairs = agent
        .supported_verbs
        .len()
        .saturating_mul(agent.supported_tools.len());
    let vector = agent
        .embedding
        .as_ref()
        .map_or(0, |vector| vector.len() * size_of::<f64>());
    let texts = agent.agent_name.len() + agent.description.len();
    listed * 2 + pairs.saturating_mul(ENTRY + 32) + vector + texts + ENTRY
}

fn words(list: &[String]) -> usize {
    list.iter().map(|word| word.len() + ENTRY).sum()
}

fn lists(agent: &AgentRecord) -> [(&'static str, &[String]); 5] {
    [
        ("supported_verbs", &agent.supported_verbs),
        ("supported_tools", &agent.supported_tools),
        ("inputs", &agent.inputs),
        ("outputs", &agent.outputs),
        ("tags", agent.tags.as_deref().unwrap_or_default()),
    ]
}

const fn at_most(list: &'static str, seen: usize, limit: usize) -> Result<(), RegistryError> {
    if seen > limit {
        return Err(RegistryError::TooLong { list, seen, limit });
    }
    Ok(())
}

pub(super) fn check_verb(verb: &VerbDef) -> Result<(), RegistryError> {
    at_most("inputs", verb.inputs.len(), MAX_LISTED)?;
    at_most("aliases", verb.aliases.iter().flatten().count(), MAX_LISTED)
}

pub(super) const fn check_tool(tool: &ToolDef) -> Result<(), RegistryError> {
    at_most("supported_verbs", tool.supported_verbs.len(), MAX_LISTED)
}

pub(super) fn check_agent(agent: &AgentRecord) -> Result<(), RegistryError> {
    for (list, entries) in lists(agent) {
        at_most(list, entries.len(), MAX_LISTED)?;
    }
    let pairs = agent
        .supported_verbs
        .len()
        .saturating_mul(agent.supported_tools.len());
    at_most("pairs", pairs, MAX_PAIRS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_takes_nothing() {
        let (mut budget, half) = (Budget::default(), MAX_REGISTRY_BYTES / 2);
        budget.replace(0, half).unwrap();
        budget.replace(0, half).unwrap();
        let full = budget;
        let refused = RegistryError::TooLarge {
            seen: MAX_REGISTRY_BYTES + 1,
            limit: MAX_REGISTRY_BYTES,
        };
        assert_eq!(budget.replace(0, 1), Err(refused));
        assert_eq!(budget, full);
        budget.replace(half, half).unwrap();
        budget.release(half);
        budget.replace(0, 1).unwrap();
    }

    #[test]
    fn a_pair_costs_more_than_its_names() {
        let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        let agent = |verbs, tools| {
            let (verbs, tools) = (names(verbs), names(tools));
            AgentRecord::new("A".into(), verbs, tools, vec![], vec![], String::new())
        };
        let (few, many) = (of_agent(&agent(1, 64)), of_agent(&agent(64, 64)));
        assert!(many > few + 63 * 64 * ENTRY, "{few} {many}");
    }

    #[test]
    fn a_word_is_counted_in_the_record_and_in_the_index_and_a_number_once() {
        let agent = |tag: &str, numbers: usize| {
            let mut agent =
                AgentRecord::new("A".into(), vec![], vec![], vec![], vec![], String::new());
            agent.tags = Some(vec![tag.into()]);
            agent.embedding = Some(vec![0.5; numbers]);
            of_agent(&agent)
        };
        assert_eq!(agent("long", 0) - agent("", 0), 8);
        assert_eq!(agent("", 3) - agent("", 0), 24);
    }

    #[test]
    fn verbs_and_tools_cost_their_texts_and_an_entry_for_each_word() {
        let raw = |text| ubos_common::json::RawBuf::parse(text).unwrap();
        let inputs = vec![raw("\"input\""), raw("1")];
        let mut verb = VerbDef::new("name".into(), "about".into(), inputs, raw("\"any\""));
        verb.aliases = Some(vec!["n".into(), "nm".into()]);
        let texts = 4 + 5 + (7 + 1) + 5 + (1 + 2);
        assert_eq!(of_verb(&verb), texts + 3 * ENTRY);
        let mut tool = ToolDef::new("TOOL".into(), "about".into(), vec!["v".into()]);
        tool.interface = Some("f()".into());
        assert_eq!(of_tool(&tool), 4 + 5 + 3 + 1 + 2 * ENTRY);
    }
}
