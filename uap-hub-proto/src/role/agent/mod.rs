//! The fleet agent.
