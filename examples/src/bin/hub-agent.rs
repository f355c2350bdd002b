//! A fleet agent for a hub's address.

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::hub_agent::main()
}
