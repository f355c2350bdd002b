//! The changes of a registry, for caches that depend on it.

use std::collections::VecDeque;
use std::sync::Arc;

/// A change, with the revision of the registry after it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Counts every change from 1.
    pub revision: u64,
    /// The kind of entry.
    pub subject: Subject,
    /// Its name.
    pub name: Arc<str>,
    /// Its new version, if it has one.
    pub version: Option<String>,
}

/// The subject of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subject {
    /// A verb was added or replaced.
    Verb,
    /// A tool was added or replaced.
    Tool,
    /// An agent was added or replaced.
    Agent,
    /// An agent was removed.
    AgentRemoved,
    /// An agent's lease ran out, and it was removed.
    AgentExpired,
    /// An agent's vector was set.
    Embedding,
    /// An agent's health changed.
    Health,
}

/// The newest changes, up to a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    newest: VecDeque<Change>,
    revision: u64,
}

impl Journal {
    pub(super) const fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn note(&mut self, subject: Subject, name: &str, version: Option<&str>) {
        self.revision += 1;
        if self.newest.len() >= KEPT {
            self.newest.pop_front();
        }
        self.newest.push_back(Change {
            revision: self.revision,
            subject,
            name: name.into(),
            version: version.map(str::to_owned),
        });
    }

    pub(super) fn since(&self, revision: u64) -> Option<Vec<Change>> {
        let first = self
            .newest
            .front()
            .map_or(self.revision + 1, |change| change.revision);
        if revision.saturating_add(1) < first {
            return None;
        }
        let newer = self
            .newest
            .iter()
            .filter(|change| change.revision > revision);
        Some(newer.cloned().collect())
    }
}

/// The number of changes that are kept.
const KEPT: usize = 1024;
