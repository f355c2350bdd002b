//! Where bytes come from and go to: the only modules here with IO, clocks and tasks.

#[cfg(feature = "mcp")]
pub mod mcp;
pub mod tokio;
