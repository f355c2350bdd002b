//! Queries to a registry, and its answers on the wire.

use std::sync::Arc;

use ubos_common::json::{MemberWriter, Write};

use super::index::{by_confidence, last_part};
use super::{AgentRecord, Embedder, Registry};

ubos_common::wire! {
    /// A query for agents: a match meets every member that is present.
    ///
    /// Spec: SACP 11
    pub struct Query {
        /// A verb, or an alias of one.
        optional verb: String = "verb", "SACP-11-2";
        /// A tool.
        optional tool: String = "tool", "SACP-11-2";
        /// Inputs, each equal to one of the agent's, or to its last dotted part: `ctx.history` matches `history`.
        optional inputs: Vec<String> = "inputs", "SACP-11-2";
        /// One of its outputs.
        optional output_type: String = "output_type", "SACP-11-2";
        /// Tags, all of which it has.
        optional tags: Vec<String> = "tags", "SACP-11-2";
    }
}

ubos_common::wire! {
    /// A query on the wire.
    ///
    /// Spec: SACP 11
    pub struct QueryMessage {
        /// The query.
        required query: Query = "query", "SACP-11-2";
    }
}

/// An answer on the wire: agents, best first.
///
/// Spec: SACP 11
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Matches {
    /// The agents, best first; may be empty.
    pub matches: Vec<Arc<AgentRecord>>,
}

/// An agent and its similarity.
#[derive(Clone, Debug, PartialEq)]
// exhaustive: a registry makes it
pub struct Similar {
    /// The agent.
    pub agent: Arc<AgentRecord>,
    /// The cosine, -1 to 1.
    pub cosine: f32,
}

impl Default for Query {
    fn default() -> Self {
        Self::new()
    }
}

impl Query {
    /// Asks for a verb, or an alias of one.
    #[must_use]
    pub fn with_verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Asks for a tool.
    #[must_use]
    pub fn with_tool(mut self, tool: &str) -> Self {
        self.tool = Some(tool.to_owned());
        self
    }

    /// Whether an agent meets the query apart from its verb, whose aliases only the registry knows.
    // impl: SACP-11-2
    pub(super) fn is_met_by(&self, agent: &AgentRecord) -> bool {
        let has = |list: &[String], word: &String| list.contains(word);
        let tool = self
            .tool
            .as_ref()
            .is_none_or(|tool| has(&agent.supported_tools, tool));
        let output = self
            .output_type
            .as_ref()
            .is_none_or(|output| has(&agent.outputs, output));
        let tags = agent.tags.as_deref().unwrap_or_default();
        let input_met = |wanted: &String| {
            agent
                .inputs
                .iter()
                .any(|input| input == wanted || last_part(input) == wanted)
        };
        tool && output
            && self.tags.iter().flatten().all(|tag| has(tags, tag))
            && self.inputs.iter().flatten().all(input_met)
    }
}

impl Write for Matches {
    fn write(&self, out: &mut Vec<u8>) {
        let matches: Vec<&AgentRecord> = self.matches.iter().map(AsRef::as_ref).collect();
        let mut object = MemberWriter::begin(out);
        object.member("status", "OK");
        object.member("matches", &matches);
        object.end();
    }
}

/// Answers a query, best first. With an embedder, agents of equal confidence are ordered by the similarity of their
/// vectors to the words of the query.
///
/// Spec: SACP 11
#[must_use]
pub fn answer(registry: &dyn Registry, query: &Query, embedder: Option<&dyn Embedder>) -> Matches {
    let mut matches = registry.query(query);
    if let Some(vector) = embedder.and_then(|embedder| embedder.embed(&words_of(query))) {
        // choice: SACP-11-2 agents without a vector come behind those with one; else the order would have cycles.
        let place = |agent: &AgentRecord| registry.cosine(&agent.agent_name, &vector);
        let mut placed: Vec<_> = matches
            .into_iter()
            .map(|agent| (place(&agent), agent))
            .collect();
        placed.sort_by(|(a_near, a), (b_near, b)| {
            by_confidence(a.confidence_score, b.confidence_score)
                .then_with(|| by_confidence(a_near.map(f64::from), b_near.map(f64::from)))
                .then_with(|| a.agent_name.cmp(&b.agent_name))
        });
        matches = placed.into_iter().map(|(_, agent)| agent).collect();
    }
    Matches { matches }
}

fn words_of(query: &Query) -> String {
    let one = [&query.verb, &query.tool, &query.output_type]
        .into_iter()
        .flatten();
    let many = query.inputs.iter().chain(&query.tags).flatten();
    one.chain(many)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" ")
}
