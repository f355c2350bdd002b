//! Records of verbs, tools and agents.

use ubos_common::json::RawBuf;

ubos_common::wire! {
    /// A verb.
    ///
    /// Spec: SACP 10
    pub struct VerbDef {
        /// Its name in plans.
        required name: String = "name", "SACP-10-1";
        /// Its description.
        required description: String = "description", "SACP-10-1";
        /// Its inputs: names, or `{name, type}`.
        required inputs: Vec<RawBuf> = "inputs", "SACP-10-1";
        /// Its outputs.
        required outputs: RawBuf = "outputs", "SACP-10-1";
        /// Other names for it in plans.
        optional aliases: Vec<String> = "aliases", "SACP-10-1";
    }
}

ubos_common::wire! {
    /// A tool.
    ///
    /// Spec: SACP 10
    pub struct ToolDef {
        /// Its name in plans.
        required id: String = "id", "SACP-10-1";
        /// Its description.
        required description: String = "description", "SACP-10-1";
        /// The verbs that it supports.
        required supported_verbs: Vec<String> = "supported_verbs", "SACP-10-1";
        /// Its interface.
        optional interface: String = "interface", "SACP-10-1";
    }
}

ubos_common::wire! {
    /// An agent.
    ///
    /// Spec: SACP 11
    // impl: SACP-11-1
    pub struct AgentRecord {
        /// Its name; registering the same name again replaces it.
        required agent_name: String = "agent_name", "SACP-11-1";
        /// Its verbs.
        required supported_verbs: Vec<String> = "supported_verbs", "SACP-11-1";
        /// Its tools.
        required supported_tools: Vec<String> = "supported_tools", "SACP-11-1";
        /// Its inputs.
        required inputs: Vec<String> = "inputs", "SACP-11-1";
        /// Its outputs.
        required outputs: Vec<String> = "outputs", "SACP-11-1";
        /// Its description.
        required description: String = "description", "SACP-11-1";
        /// Its tags.
        optional tags: Vec<String> = "tags", "SACP-11-1";
        /// Its vector: finite numbers, of one length for all agents.
        optional embedding: Vec<f64> = "embedding", "SACP-11-1";
        /// Reference to its API or function.
        optional tool_interface: String = "tool.interface", "SACP-11-1";
        /// Its confidence; more is better.
        optional confidence_score: f64 = "confidence_score", "SACP-11-1";
        /// Its location.
        optional agent_location: String = "agent_location", "SACP-11-1";
        /// Version of its definition.
        optional version: String = "version", "SACP-11-1";
    }
}

ubos_common::wire! {
    /// An agent's vector, published apart from its record.
    ///
    /// Spec: SACP 12
    pub struct EmbeddingRecord {
        /// The agent's name.
        required agent: String = "agent", "SACP-12-1";
        /// Finite numbers, of one length for all agents.
        required embedding: Vec<f64> = "embedding", "SACP-12-1";
        /// The text that it was made from.
        required description: String = "description", "SACP-12-1";
    }
}

impl VerbDef {
    /// Its name and its aliases.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let aliases = self.aliases.iter().flatten().map(String::as_str);
        core::iter::once(self.name.as_str()).chain(aliases)
    }
}
