//! Registries of verbs, tools and agents.
//!
//! ```text
//! Registry       the trait that an orchestrator uses
//! MemoryRegistry the default: ranked indexes, exact similarity, leases and health, a list of changes
//! Shared         a handle on one registry for several threads
//! Embedder       texts to vectors; NGrams is the one that ships
//! ```
//!
//! ```
//! use sacp::registry::{AgentRecord, MemoryRegistry, Query, Registry};
//!
//! let mut registry = MemoryRegistry::default();
//! registry.add_agent(AgentRecord::new(
//!     "PRICE_PREDICTOR".into(), vec!["predict".into()], vec!["PRC_EST".into()],
//!     vec!["ctx.history".into()], vec!["predictions".into()], "Predicts prices".into(),
//! ))?;
//! let query = Query::default().with_verb("predict");
//! assert_eq!(registry.query(&query)[0].agent_name, "PRICE_PREDICTOR");
//! # Ok::<(), sacp::registry::RegistryError>(())
//! ```
//!
//! Spec: SACP 10, 11, 12

mod budget;
mod changes;
mod defs;
mod embed;
mod health;
mod index;
mod looks;
mod memory;
mod query;
mod shared;
mod vectors;

use std::sync::Arc;

use crate::error::Code;

pub use changes::{Change, Subject};
pub use defs::{AgentRecord, EmbeddingRecord, ToolDef, VerbDef};
pub use embed::{Embedder, NGrams};
pub use health::Health;
pub(crate) use looks::looks;
pub use memory::MemoryRegistry;
pub use query::{Matches, Query, QueryMessage, Similar, answer};
pub use shared::Shared;

/// A registry of verbs, tools and agents. A trait, so that a shared or remote one can replace the default.
///
/// Spec: SACP 11
pub trait Registry {
    /// The verb with this name or alias.
    fn verb(&self, name: &str) -> Option<Arc<VerbDef>>;

    /// The tool with this name.
    fn tool(&self, id: &str) -> Option<Arc<ToolDef>>;

    /// The agent with this name.
    fn agent(&self, name: &str) -> Option<Arc<AgentRecord>>;

    /// Agents that carry out a verb with a tool, best first: by confidence (absent last), then by name.
    ///
    /// It includes unhealthy agents; [`Registry::ready_for`] leaves them out.
    fn agents_for(&self, verb: &str, tool: &str) -> Vec<Arc<AgentRecord>>;

    /// Whether an agent carries out a verb with a tool.
    fn serves(&self, verb: &str, tool: &str) -> bool {
        !self.agents_for(verb, tool).is_empty()
    }

    /// The best agents for a verb, at most `most`.
    fn best_for(&self, verb: &str, most: usize) -> Vec<Arc<AgentRecord>> {
        let mut agents = self.query(&Query::default().with_verb(verb));
        agents.truncate(most);
        agents
    }

    /// Agents that meet every member of a query, best first.
    fn query(&self, query: &Query) -> Vec<Arc<AgentRecord>>;

    /// The agents whose vectors lie nearest, nearest first: at most `top`, none below `threshold`.
    ///
    /// # Errors
    ///
    /// The vector has another length, an infinity or NaN, or only zeros.
    fn similar(
        &self,
        vector: &[f32],
        top: usize,
        threshold: f32,
    ) -> Result<Vec<Similar>, RegistryError>;

    /// The cosine of an agent's vector and another of the same length.
    fn cosine(&self, _name: &str, _vector: &[f32]) -> Option<f32> {
        None
    }

    /// The health of an agent; without a report it is healthy.
    fn health(&self, _name: &str) -> Health {
        Health::Healthy
    }

    /// Agents for a pair, without unhealthy ones, healthy before degraded.
    fn ready_for(&self, verb: &str, tool: &str) -> Vec<Arc<AgentRecord>> {
        let mut agents = self.agents_for(verb, tool);
        agents.retain(|agent| self.health(&agent.agent_name) != Health::Unhealthy);
        agents.sort_by_key(|agent| self.health(&agent.agent_name));
        agents
    }

    /// The name of another registered tool that this one could be mistaken for. The default implementation finds none.
    fn look_alike(&self, _name: &str) -> Option<Arc<str>> {
        None
    }

    /// The name of another registered verb that this one could be mistaken for. The default implementation finds none.
    fn verb_look_alike(&self, _name: &str) -> Option<Arc<str>> {
        None
    }

    /// Adds or replaces a verb.
    ///
    /// # Errors
    ///
    /// The registry is full, the name is empty, or an alias belongs to another verb.
    fn add_verb(&mut self, verb: VerbDef) -> Result<(), RegistryError>;

    /// Adds or replaces a tool.
    ///
    /// # Errors
    ///
    /// The registry is full, or the name is empty.
    fn add_tool(&mut self, tool: ToolDef) -> Result<(), RegistryError>;

    /// Adds or replaces an agent.
    ///
    /// # Errors
    ///
    /// The registry is full, the name is empty, or its vector or confidence is refused.
    fn add_agent(&mut self, agent: AgentRecord) -> Result<(), RegistryError>;

    /// Adds or replaces an agent's vector.
    ///
    /// # Errors
    ///
    /// No agent has this name, or the vector has another length, an infinity or NaN, or only zeros.
    fn set_embedding(&mut self, embedding: &EmbeddingRecord) -> Result<(), RegistryError>;

    /// Removes an agent; returns whether it was registered.
    fn remove_agent(&mut self, name: &str) -> bool;
}

/// Why a registration or a vector is refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The limit on entries of one kind is reached.
    #[error("the registry holds {limit} entries of this sort, and no more")]
    Full {
        /// The bound.
        limit: usize,
    },
    /// A list of a record is too long.
    #[error("{list} has {seen} entries, but at most {limit} are registered")]
    TooLong {
        /// The list: a member of the record, or `pairs` for those of its verbs and tools.
        list: &'static str,
        /// Its length.
        seen: usize,
        /// The limit.
        limit: usize,
    },
    /// The records and their index entries would take too many bytes together.
    #[error("the registry would hold {seen} bytes, but at most {limit} are kept")]
    TooLarge {
        /// The bytes, about.
        seen: usize,
        /// The limit.
        limit: usize,
    },
    /// A required name is empty.
    #[error("an entry without a name")]
    NoName,
    /// An alias that is another verb's name or alias.
    #[error("the alias {alias:?} belongs to the verb {verb:?}")]
    AliasTaken {
        /// The alias.
        alias: String,
        /// The verb that it belongs to.
        verb: String,
    },
    /// No agent has that name.
    #[error("no agent is called {agent:?}")]
    UnknownAgent {
        /// The name.
        agent: String,
    },
    /// The vector has another length than the registered ones.
    #[error("a vector of {seen} numbers where {wanted} are wanted")]
    Dimension {
        /// Its length.
        seen: usize,
        /// The length of all others.
        wanted: usize,
    },
    /// A vector or a confidence has an infinity or NaN.
    #[error("a number that is not finite")]
    NotFinite,
    /// The vector has only zeros.
    #[error("a vector of zeros")]
    ZeroVector,
}

/// Verbs that need no registration: joins and the acts of a spawn.
pub(crate) const KNOWN_VERBS: [&str; 4] = ["join", "define", "instantiate", "register"];

/// The tool of the joins that every registry serves: their output is the list of their inputs.
pub(crate) const MERGE: &str = "MERGE";

/// Whether the host itself carries out an act, without an agent.
pub(crate) fn is_merge(verb: &str, tool: &str) -> bool {
    verb == "join" && tool == MERGE
}

/// Looks up a pair of verb and tool. `join` with `MERGE` is in every registry.
///
/// # Errors
///
/// [`Code::UnknownVerb`], [`Code::UnknownTool`], [`Code::VerbToolMismatch`], in that order.
///
/// Spec: SACP 10
// impl: SACP-10-1
pub fn look_up(registry: &dyn Registry, verb: &str, tool: &str) -> Result<(), Code> {
    if matches!(verb, "define" | "instantiate" | "register") || is_merge(verb, tool) {
        return Ok(());
    }
    let def = registry.verb(verb);
    if def.is_none() && !KNOWN_VERBS.contains(&verb) {
        return Err(Code::UnknownVerb);
    }
    let tool = registry.tool(tool).ok_or(Code::UnknownTool)?;
    let supports = |name: &str| tool.supported_verbs.iter().any(|verb| verb == name);
    let supported = match &def {
        Some(def) => def.names().any(supports),
        None => supports(verb),
    };
    if supported {
        Ok(())
    } else {
        Err(Code::VerbToolMismatch)
    }
}
