//! Limits of this crate. Limits of JSON are [`ubos_common::json::Limits`].

/// The depth of subtasks. Section 5.
pub(crate) const MAX_SUBTASK_DEPTH: usize = 8;

/// The depth of groups.
pub(crate) const MAX_GROUP_DEPTH: usize = 8;

/// Acts in one plan, without groups and subtasks.
pub(crate) const MAX_ACTS: usize = 10_000;

/// Agents, verbs and tools in a [`MemoryRegistry`](crate::registry::MemoryRegistry), each.
pub(crate) const MAX_REGISTERED: usize = 1_000_000;

/// Names in one list of a record: verbs, tools, inputs, outputs, tags or aliases.
pub(crate) const MAX_LISTED: usize = 256;

/// Pairs of a verb and a tool of one agent.
pub(crate) const MAX_PAIRS: usize = 4_096;

/// Bytes of all records and index entries of a [`MemoryRegistry`](crate::registry::MemoryRegistry).
pub(crate) const MAX_REGISTRY_BYTES: usize = 1 << 30;

/// Spawns for one message.
pub(crate) const MAX_SPAWNS: usize = 8;

/// Short names in one alias table.
pub(crate) const MAX_ALIASES: usize = 1_000;

/// The length of a chain of spawns: an agent spawned for a plan of a spawned agent, and so on.
pub(crate) const MAX_SPAWN_DEPTH: usize = 4;

/// Findings of one plan check.
pub(crate) const MAX_CHECK_FINDINGS: usize = 1_000;

/// Dependencies of a plan of 0.1 in 1.0, which lists each one.
pub(crate) const MAX_DEPENDENCIES: usize = 250_000;
