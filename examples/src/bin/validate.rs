//! Says of files whether they are messages of a protocol, and what is wrong with those that are not.

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::validate::main()
}
