//! Verbs, tools and agents: who can do what.

use std::collections::BTreeMap;

use ubos_common::json::RawBuf;

use crate::error::Code;
use crate::limits::MAX_REGISTERED;

ubos_common::wire! {
    /// What can be done.
    ///
    /// Spec: SACP 10
    pub struct VerbDef {
        /// Its name in plans.
        required name: String = "name", "SACP-10-1";
        /// What it does.
        required description: String = "description", "SACP-10-1";
        /// Names of what it needs, or `{name, type}`.
        required inputs: Vec<RawBuf> = "inputs", "SACP-10-1";
        /// What it gives.
        required outputs: RawBuf = "outputs", "SACP-10-1";
        /// Other names for it in plans.
        optional aliases: Vec<String> = "aliases", "SACP-10-1";
    }
}

ubos_common::wire! {
    /// With what it can be done.
    ///
    /// Spec: SACP 10
    pub struct ToolDef {
        /// Its name in plans.
        required id: String = "id", "SACP-10-1";
        /// What it offers.
        required description: String = "description", "SACP-10-1";
        /// The verbs that it works with.
        required supported_verbs: Vec<String> = "supported_verbs", "SACP-10-1";
        /// Where it is reached.
        optional interface: String = "interface", "SACP-10-1";
    }
}

ubos_common::wire! {
    /// Who does it.
    ///
    /// Spec: SACP 11
    pub struct AgentRecord {
        /// Its name; registering the same name again replaces it.
        required agent_name: String = "agent_name", "SACP-11-1";
        /// The verbs that it carries out.
        required supported_verbs: Vec<String> = "supported_verbs", "SACP-11-1";
        /// The tools that it has.
        required supported_tools: Vec<String> = "supported_tools", "SACP-11-1";
        /// What it needs.
        required inputs: Vec<String> = "inputs", "SACP-11-1";
        /// What it gives.
        required outputs: Vec<String> = "outputs", "SACP-11-1";
        /// What it is good for.
        required description: String = "description", "SACP-11-1";
        /// Labels.
        optional tags: Vec<String> = "tags", "SACP-11-1";
        /// How far it is to be relied on; more is better.
        optional confidence_score: f64 = "confidence_score", "SACP-11-1";
        /// Where it runs.
        optional agent_location: String = "agent_location", "SACP-11-1";
        /// Version of its definition.
        optional version: String = "version", "SACP-11-1";
    }
}

/// What an orchestrator asks of a registry. A trait, so that a shared one can take the default's place.
///
/// Spec: SACP 11
pub trait Registry {
    /// The verb of that name or alias.
    fn verb(&self, name: &str) -> Option<&VerbDef>;

    /// The tool of that name.
    fn tool(&self, id: &str) -> Option<&ToolDef>;

    /// Agents that carry out a verb with a tool, best first: by confidence (absent last), then by name.
    fn agents_for(&self, verb: &str, tool: &str) -> Vec<&AgentRecord>;

    /// Adds or replaces a verb.
    ///
    /// # Errors
    ///
    /// The registry is full.
    fn add_verb(&mut self, verb: VerbDef) -> Result<(), RegistryError>;

    /// Adds or replaces a tool.
    ///
    /// # Errors
    ///
    /// The registry is full.
    fn add_tool(&mut self, tool: ToolDef) -> Result<(), RegistryError>;

    /// Adds or replaces an agent.
    ///
    /// # Errors
    ///
    /// The registry is full.
    fn add_agent(&mut self, agent: AgentRecord) -> Result<(), RegistryError>;

    /// Removes an agent; gives whether there was one.
    fn remove_agent(&mut self, name: &str) -> bool;
}

/// Why a registration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The bound on entries of one sort is reached.
    #[error("the registry holds {limit} entries of this sort, and no more")]
    Full {
        /// The bound.
        limit: usize,
    },
    /// A required name is empty.
    #[error("an entry without a name")]
    NoName,
}

/// Verbs that need no registration: joins and the acts of a spawn.
pub const KNOWN_VERBS: [&str; 3] = ["join", "define", "instantiate"];

/// Looks up a pair of verb and tool.
///
/// # Errors
///
/// [`Code::UnknownVerb`], [`Code::UnknownTool`], [`Code::VerbToolMismatch`], in that order.
///
/// Spec: SACP 10
pub fn look_up(registry: &dyn Registry, verb: &str, tool: &str) -> Result<(), Code> {
    if matches!(verb, "define" | "instantiate") {
        return Ok(());
    }
    let names: Vec<&str> = match registry.verb(verb) {
        Some(def) => def
            .aliases
            .iter()
            .flatten()
            .map(String::as_str)
            .chain([def.name.as_str()])
            .collect(),
        None if KNOWN_VERBS.contains(&verb) => vec![verb],
        None => return Err(Code::UnknownVerb),
    };
    let tool = registry.tool(tool).ok_or(Code::UnknownTool)?;
    if tool
        .supported_verbs
        .iter()
        .any(|supported| names.contains(&supported.as_str()))
    {
        Ok(())
    } else {
        Err(Code::VerbToolMismatch)
    }
}

/// A registry in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryRegistry {
    verbs: BTreeMap<String, VerbDef>,
    aliases: BTreeMap<String, String>,
    tools: BTreeMap<String, ToolDef>,
    agents: BTreeMap<String, AgentRecord>,
    by_pair: BTreeMap<(String, String), Vec<String>>,
}

impl MemoryRegistry {
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

    fn rank(&self, names: &mut [String]) {
        let score = |name: &String| {
            self.agents
                .get(name)
                .and_then(|agent| agent.confidence_score)
        };
        names.sort_by(|a, b| match (score(a), score(b)) {
            (Some(a_score), Some(b_score)) => b_score.total_cmp(&a_score).then_with(|| a.cmp(b)),
            (Some(_), None) => core::cmp::Ordering::Less,
            (None, Some(_)) => core::cmp::Ordering::Greater,
            (None, None) => a.cmp(b),
        });
    }
}

impl Registry for MemoryRegistry {
    fn verb(&self, name: &str) -> Option<&VerbDef> {
        let name = self.aliases.get(name).map_or(name, String::as_str);
        self.verbs.get(name)
    }

    fn tool(&self, id: &str) -> Option<&ToolDef> {
        self.tools.get(id)
    }

    fn agents_for(&self, verb: &str, tool: &str) -> Vec<&AgentRecord> {
        let verb = self.aliases.get(verb).map_or(verb, String::as_str);
        let names = self.by_pair.get(&(verb.to_owned(), tool.to_owned()));
        names
            .into_iter()
            .flatten()
            .filter_map(|name| self.agents.get(name))
            .collect()
    }

    fn add_verb(&mut self, verb: VerbDef) -> Result<(), RegistryError> {
        Self::room(&self.verbs, &verb.name)?;
        self.aliases.retain(|_, name| *name != verb.name);
        for alias in verb.aliases.iter().flatten() {
            self.aliases.insert(alias.clone(), verb.name.clone());
        }
        self.verbs.insert(verb.name.clone(), verb);
        Ok(())
    }

    fn add_tool(&mut self, tool: ToolDef) -> Result<(), RegistryError> {
        Self::room(&self.tools, &tool.id)?;
        self.tools.insert(tool.id.clone(), tool);
        Ok(())
    }

    fn add_agent(&mut self, agent: AgentRecord) -> Result<(), RegistryError> {
        Self::room(&self.agents, &agent.agent_name)?;
        let name = agent.agent_name.clone();
        self.remove_agent(&name);
        let pairs: Vec<(String, String)> = agent
            .supported_verbs
            .iter()
            .flat_map(|verb| {
                agent
                    .supported_tools
                    .iter()
                    .map(|tool| (verb.clone(), tool.clone()))
            })
            .collect();
        self.agents.insert(name.clone(), agent);
        for pair in pairs {
            let mut names = self.by_pair.remove(&pair).unwrap_or_default();
            names.push(name.clone());
            self.rank(&mut names);
            names.dedup();
            self.by_pair.insert(pair, names);
        }
        Ok(())
    }

    fn remove_agent(&mut self, name: &str) -> bool {
        let Some(_) = self.agents.remove(name) else {
            return false;
        };
        self.by_pair.retain(|_, names| {
            names.retain(|other| other != name);
            !names.is_empty()
        });
        true
    }
}
