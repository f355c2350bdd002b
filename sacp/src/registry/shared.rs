//! One registry for several threads.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{
    AgentRecord, EmbeddingRecord, Health, Query, Registry, RegistryError, Similar, ToolDef, VerbDef,
};

/// A handle on one registry: clones see the same entries.
///
/// Answers are shared records, so no lock is held while they are in use.
#[derive(Debug, Default)]
pub struct Shared<R>(Arc<RwLock<R>>);

impl<R> Clone for Shared<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Registry> Shared<R> {
    /// A handle on this registry.
    #[must_use]
    pub fn new(registry: R) -> Self {
        Self(Arc::new(RwLock::new(registry)))
    }

    /// The registry, for reading. Registrations wait until the guard is dropped.
    fn read(&self) -> RwLockReadGuard<'_, R> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The registry, for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, R> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

// impl: SACP-11-5
impl<R: Registry> Registry for Shared<R> {
    fn verb(&self, name: &str) -> Option<Arc<VerbDef>> {
        self.read().verb(name)
    }

    fn tool(&self, id: &str) -> Option<Arc<ToolDef>> {
        self.read().tool(id)
    }

    fn agent(&self, name: &str) -> Option<Arc<AgentRecord>> {
        self.read().agent(name)
    }

    fn agents_for(&self, verb: &str, tool: &str) -> Vec<Arc<AgentRecord>> {
        self.read().agents_for(verb, tool)
    }

    fn serves(&self, verb: &str, tool: &str) -> bool {
        self.read().serves(verb, tool)
    }

    fn best_for(&self, verb: &str, most: usize) -> Vec<Arc<AgentRecord>> {
        self.read().best_for(verb, most)
    }

    fn query(&self, query: &Query) -> Vec<Arc<AgentRecord>> {
        self.read().query(query)
    }

    fn similar(
        &self,
        vector: &[f32],
        top: usize,
        threshold: f32,
    ) -> Result<Vec<Similar>, RegistryError> {
        self.read().similar(vector, top, threshold)
    }

    fn cosine(&self, name: &str, vector: &[f32]) -> Option<f32> {
        self.read().cosine(name, vector)
    }

    fn health(&self, name: &str) -> Health {
        self.read().health(name)
    }

    fn look_alike(&self, name: &str) -> Option<Arc<str>> {
        self.read().look_alike(name)
    }

    fn verb_look_alike(&self, name: &str) -> Option<Arc<str>> {
        self.read().verb_look_alike(name)
    }

    fn add_verb(&mut self, verb: VerbDef) -> Result<(), RegistryError> {
        self.write().add_verb(verb)
    }

    fn add_tool(&mut self, tool: ToolDef) -> Result<(), RegistryError> {
        self.write().add_tool(tool)
    }

    fn add_agent(&mut self, agent: AgentRecord) -> Result<(), RegistryError> {
        self.write().add_agent(agent)
    }

    fn set_embedding(&mut self, embedding: &EmbeddingRecord) -> Result<(), RegistryError> {
        self.write().set_embedding(embedding)
    }

    fn remove_agent(&mut self, name: &str) -> bool {
        self.write().remove_agent(name)
    }
}
