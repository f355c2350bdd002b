//! Programs that put the crates to work.

#![expect(
    clippy::missing_errors_doc,
    reason = "parts of programs: nothing here is depended on from outside"
)]

/// A line on standard error; where nobody reads it any more, none.
macro_rules! note {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($said)*);
    }};
}

#[cfg(unix)]
pub mod agent_chat;
pub mod hub;
#[cfg(unix)]
pub mod hub_agent;
pub mod manual;
#[cfg(unix)]
pub mod osw_agent;
#[cfg(unix)]
pub mod osw_core;
mod out;
pub mod plan;
pub mod sap_agent;
pub mod sap_send;
mod secured;
pub mod validate;

/// The example of the project's first page runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
