//! Audits a folder of source text by way of all five protocols.

use std::process::ExitCode;

fn main() -> ExitCode {
    mission::main()
}
