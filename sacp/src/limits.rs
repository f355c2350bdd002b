//! Bounds of this crate. JSON bounds are [`ubos_common::json::Limits`].

/// How deep a message may be nested in `subtask` members. Section 5.
pub const MAX_SUBTASK_DEPTH: usize = 8;

/// How deep groups may be nested in one another.
pub const MAX_GROUP_DEPTH: usize = 8;

/// Acts in one plan, groups and subtasks not counted.
pub const MAX_ACTS: usize = 10_000;

/// Agents, verbs and tools that a [`MemoryRegistry`](crate::registry::MemoryRegistry) holds of each.
pub const MAX_REGISTERED: usize = 1_000_000;

/// Spawns that one message may ask for.
pub const MAX_SPAWNS: usize = 8;

/// Short names in one alias table.
pub const MAX_ALIASES: usize = 1_000;

/// How deep a chain of spawns may be: an agent spawned for a plan that was itself made for a spawned agent, and so on.
pub const MAX_SPAWN_DEPTH: usize = 4;

/// Findings of one plan check; looking ends there.
pub const MAX_CHECK_FINDINGS: usize = 1_000;

/// Dependencies that a plan of 0.1 may become in 1.0, where each is written out.
pub const MAX_DEPENDENCIES: usize = 250_000;
