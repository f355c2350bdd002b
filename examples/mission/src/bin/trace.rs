//! Shows what a mission did, out of its stores.

use std::process::ExitCode;

fn main() -> ExitCode {
    mission::tracer::main()
}
