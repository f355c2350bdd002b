//! Sends one SAP V2.0 task over HTTP and prints what is said about it.

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::sap_send::main()
}
