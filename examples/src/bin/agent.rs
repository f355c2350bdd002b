//! An OpenSentience agent with the reference tools.

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::osw_agent::main()
}
