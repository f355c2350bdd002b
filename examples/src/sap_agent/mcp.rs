//! The capabilities as MCP tools.

use std::sync::Arc;

use axum::Router;
use rmcp::ServiceExt as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use sap::transport::Service;
use sap::transport::mcp::Server;

/// Where the tools are.
pub const PATH: &str = "/mcp";

/// Serves on standard input and output until the input ends.
///
/// # Errors
///
/// What went wrong, for a person.
pub async fn on_standard_streams(service: Service) -> Result<(), String> {
    let streams = (tokio::io::stdin(), tokio::io::stdout());
    let running = Server::from(service).serve(streams).await;
    let running = running.map_err(|error| error.to_string())?;
    let ended = running.waiting().await;
    ended.map(drop).map_err(|error| error.to_string())
}

/// The tools over streamable HTTP, for a server that judges hosts and origins itself. Each call stands alone, so that nobody
/// can make sessions without end.
pub fn router(service: &Service) -> Router {
    let service = service.clone();
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_legacy_session_mode(false)
        .with_max_request_body_bytes(MAX_BODY_BYTES);
    let server = move || Ok(Server::from(service.clone()));
    let sessions = Arc::new(LocalSessionManager::default());
    Router::new().route_service(PATH, StreamableHttpService::new(server, sessions, config))
}

/// A task of 1 MiB, as text within JSON.
const MAX_BODY_BYTES: usize = 2 << 20;
