//! The mission: a folder of source text audited by way of all five protocols.
//!
//! ```text
//! plan        SACP: words -> message -> plan -> runner        world      drives the runner
//! governed    SAP: each act a task, cached, recorded          findings   what the passes found
//! toolbox     OpenSentience core  ── socket ──  tools         scan       the passes
//! fleet       hub and two agents: a second count
//! report      a uap-agent writes the report                   sections   its parts
//! checkpoints where that agent keeps its state          stores     where everything else is kept
//! trace       what happened when, as one tree           page       the report and that tree as HTML
//! steps       of these, what no protocol's store holds  step_id    how steps are known, step_words named
//! rebuild     that tree again, out of the stores        tracer     the program that prints it
//! ```

#![expect(
    clippy::missing_errors_doc,
    reason = "parts of a program: nothing here is depended on from outside"
)]

pub mod args;
pub mod checkpoints;
pub mod clock;
pub mod findings;
pub mod fleet;
pub mod governed;
pub mod output;
pub mod page;
pub mod plan;
pub mod rebuild;
pub mod report;
pub mod run;
pub mod scan;
pub mod screen;
pub mod sections;
pub mod signals;
pub mod step_id;
pub mod step_words;
pub mod steps;
pub mod stores;
pub mod toolbox;
pub mod tools;
pub mod trace;
pub mod tracer;
pub mod words;
pub mod world;

pub use run::main;
