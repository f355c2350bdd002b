//! Where bytes come from and go to: the only modules here with IO, clocks and tasks.

pub mod tokio;
