//! An agent that serves capabilities of SAP V2.0 over HTTP, and as MCP tools.

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::sap_agent::main()
}
