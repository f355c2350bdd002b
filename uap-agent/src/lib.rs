//! UAP-1.1 agents: strategies, immutable state, checkpoints and streams as step machines.
