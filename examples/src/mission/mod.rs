//! The mission: a folder of source text audited by way of all five protocols.

pub mod args;
pub mod fleet;
pub mod output;
pub mod plan;
pub mod scan;
pub mod screen;
pub mod toolbox;
pub mod tools;
