//! The tools over streamable HTTP.

use std::sync::Arc;

use axum::Router;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use super::Server;

/// The path of the tools.
pub const PATH: &str = "/mcp";

/// The tools over streamable HTTP at [`PATH`], for `http::serve_with`, which judges hosts and origins: the route itself
/// answers for every host. Each call stands alone, so that nobody can make sessions without end. A body is at most 2 MiB.
pub fn router(server: Server) -> Router {
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_legacy_session_mode(false)
        .with_max_request_body_bytes(MAX_BODY_BYTES);
    let server = move || Ok(server.clone());
    let sessions = Arc::new(NeverSessionManager::default());
    Router::new().route_service(PATH, StreamableHttpService::new(server, sessions, config))
}

/// A task of 1 MiB, as text within JSON.
const MAX_BODY_BYTES: usize = 2 << 20;
