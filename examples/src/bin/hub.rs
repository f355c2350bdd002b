//! A UAP hub: takes jobs as JSON lines, has a fleet of agents run them, prints what happens as JSON lines.

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::hub::main()
}
