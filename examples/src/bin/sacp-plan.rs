//! Checks a plan of SACP, shows what is wrong with it and what would mend it, and draws it.

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::plan::main()
}
