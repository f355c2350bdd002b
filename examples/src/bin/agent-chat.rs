//! A talk with an agent in the terminal.

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::agent_chat::main()
}
