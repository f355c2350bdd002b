//! The capabilities as MCP tools.

use rmcp::ServiceExt as _;
use sap::transport::Service;
use sap::transport::mcp::{Bounded, Server};

/// Serves on standard input and output until the input ends.
///
/// # Errors
///
/// What went wrong, for a person.
pub async fn on_standard_streams(service: Service) -> Result<(), String> {
    let streams = (Bounded::new(tokio::io::stdin()), tokio::io::stdout());
    let running = Server::from(service).serve(streams).await;
    let running = running.map_err(|error| error.to_string())?;
    let ended = running.waiting().await;
    ended.map(drop).map_err(|error| error.to_string())
}
