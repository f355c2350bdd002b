//! An OpenSentience core: launches an agent, calls its tools, prints what happens as JSON lines.

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::osw_core::main()
}
