//! Judges somebody else's implementation, clause by clause.

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::conformance::main()
}
