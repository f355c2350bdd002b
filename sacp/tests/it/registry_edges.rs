//! The edges of registries: what has no name, what changes, and what a registry of one's own need not implement.

use std::sync::Arc;

use sacp::registry::{
    AgentRecord, EmbeddingRecord, Health, MemoryRegistry, Query, Registry, RegistryError, Similar,
    Subject, ToolDef, VerbDef,
};

use crate::registry::{agent, tool, verb};

/// A registry with the required methods alone.
struct Own(MemoryRegistry);

impl Registry for Own {
    fn verb(&self, name: &str) -> Option<Arc<VerbDef>> {
        self.0.verb(name)
    }

    fn tool(&self, id: &str) -> Option<Arc<ToolDef>> {
        self.0.tool(id)
    }

    fn agent(&self, name: &str) -> Option<Arc<AgentRecord>> {
        self.0.agent(name)
    }

    fn agents_for(&self, verb: &str, tool: &str) -> Vec<Arc<AgentRecord>> {
        self.0.agents_for(verb, tool)
    }

    fn query(&self, query: &Query) -> Vec<Arc<AgentRecord>> {
        self.0.query(query)
    }

    fn similar(
        &self,
        vector: &[f32],
        top: usize,
        threshold: f32,
    ) -> Result<Vec<Similar>, RegistryError> {
        self.0.similar(vector, top, threshold)
    }

    fn add_verb(&mut self, verb: VerbDef) -> Result<(), RegistryError> {
        self.0.add_verb(verb)
    }

    fn add_tool(&mut self, tool: ToolDef) -> Result<(), RegistryError> {
        self.0.add_tool(tool)
    }

    fn add_agent(&mut self, agent: AgentRecord) -> Result<(), RegistryError> {
        self.0.add_agent(agent)
    }

    fn set_embedding(&mut self, embedding: &EmbeddingRecord) -> Result<(), RegistryError> {
        self.0.set_embedding(embedding)
    }

    fn remove_agent(&mut self, name: &str) -> bool {
        self.0.remove_agent(name)
    }
}

// spec: SACP-11-5
#[test]
fn the_required_methods_of_a_registry_tell_the_best_agents() {
    let mut own = Own(MemoryRegistry::default());
    own.add_verb(verb("search", &["s"])).unwrap();
    own.add_tool(tool("H_API", &["search"])).unwrap();
    for (name, score) in [("C", 0.1), ("A", 0.5), ("B", 0.9)] {
        own.add_agent(agent(name, "search", "H_API", Some(score)))
            .unwrap();
    }
    for most in 0..=4 {
        let best = own.best_for("s", most);
        let names: Vec<_> = best.iter().map(|agent| &*agent.agent_name).collect();
        assert_eq!(names, ["B", "A", "C"][..most.min(3)]);
        assert_eq!(best, own.0.best_for("s", most));
    }
    assert!(own.serves("s", "H_API") && !own.serves("s", "NONE"));
}

// spec: SACP-10-1
#[test]
fn verbs_and_tools_have_a_name() {
    let mut registry = MemoryRegistry::default();
    let verb = registry.add_verb(verb("", &[]));
    let tool = registry.add_tool(tool("", &[]));
    assert_eq!([verb, tool], [const { Err(RegistryError::NoName) }; 2]);
}

#[test]
fn the_others_keep_their_vectors_where_one_is_removed() {
    let mut registry = MemoryRegistry::default();
    let add = |registry: &mut MemoryRegistry, name: &str, vector: [f64; 2]| {
        let mut agent = agent(name, "v", "T", None);
        agent.embedding = Some(vector.into());
        registry.add_agent(agent).unwrap();
    };
    add(&mut registry, "C", [1.0, 0.0]);
    add(&mut registry, "X", [0.0, 1.0]);
    add(&mut registry, "B", [-1.0, 0.0]);
    registry.remove_agent("X");
    add(&mut registry, "A", [1.0, 0.0]);
    let near = ["A", "B", "C"].map(|name| registry.cosine(name, &[1.0, 0.0]));
    assert_eq!(near, [Some(1.0), Some(-1.0), Some(1.0)]);
    // One at the threshold is near enough, and the first by name of equals is the nearest.
    let found = registry.similar(&[1.0, 0.0], 1, 1.0).unwrap();
    assert_eq!((found.len(), &*found[0].agent.agent_name), (1, "A"));
}

#[test]
fn a_new_vector_is_told() {
    let mut registry = MemoryRegistry::default();
    registry.add_agent(agent("A", "v", "T", None)).unwrap();
    let from = registry.revision();
    let vector = EmbeddingRecord::new("A".into(), vec![0.5], String::new());
    registry.set_embedding(&vector).unwrap();
    let changes = registry.changes_since(from).unwrap();
    let told = changes.iter().map(|change| (change.subject, &*change.name));
    assert_eq!(told.collect::<Vec<_>>(), [(Subject::Embedding, "A")]);
}

#[test]
fn the_newest_1024_changes_are_told() {
    let mut registry = MemoryRegistry::default();
    for _ in 0..1025 {
        registry.add_agent(agent("A", "v", "T", None)).unwrap();
    }
    let told = |from| registry.changes_since(from).map(|changes| changes.len());
    assert_eq!((told(0), told(1)), (None, Some(1024)));
}

#[test]
fn a_removed_agent_has_no_health() {
    let mut registry = MemoryRegistry::default();
    registry.add_agent(agent("A", "v", "T", None)).unwrap();
    registry.set_health("A", Health::Unhealthy).unwrap();
    registry.remove_agent("A");
    registry.add_agent(agent("A", "v", "T", None)).unwrap();
    assert_eq!(registry.health("A"), Health::default());
}
