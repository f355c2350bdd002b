//! The mission: a folder of source text audited by way of all five protocols.
//!
//! ```text
//! plan        SACP: words -> message -> plan -> runner        world      drives the runner
//! governed    SAP: each act a task, cached, recorded          findings   what the passes found
//! toolbox     OpenSentience core  ── socket ──  tools         scan       the passes
//! fleet       hub and two agents: a second count
//! report      a uap-agent writes the report                   sections   its parts
//! ```

mod args;
mod clock;
mod findings;
mod fleet;
mod governed;
mod output;
mod plan;
mod report;
mod run;
mod scan;
mod screen;
mod sections;
mod toolbox;
mod tools;
mod world;

pub use run::main;
