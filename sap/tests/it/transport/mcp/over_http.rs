//! The tools as a route of a server of HTTP, beside the tasks.

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use sap::processor::{AllowAll, Identity, Speakers};
use sap::transport::Service;
use sap::transport::http::{self, Listener, serve_with};
use sap::transport::mcp::router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::super::peers::{Authority, client_tls, server_tls};
use super::super::world::Real;
use super::*;

/// Serves both; gives the address.
async fn serve(
    service: Service,
    address: &str,
    config: http::Config,
    tls: Option<rustls::ServerConfig>,
) -> std::net::SocketAddr {
    let never = std::future::pending();
    serve_until(service, address, config, tls, never).await.0
}

async fn serve_until(
    service: Service,
    address: &str,
    config: http::Config,
    tls: Option<rustls::ServerConfig>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> (std::net::SocketAddr, JoinHandle<std::io::Result<()>>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = match tls {
        Some(tls) => Listener::from(listener).with_tls(Arc::new(tls)),
        None => listener.into(),
    };
    let tools = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_legacy_session_mode(false)
        .with_json_response(true);
    let ours = service.clone();
    let server = move || Ok(Server::from(ours.clone()));
    let sessions = Arc::new(LocalSessionManager::default());
    let tools = StreamableHttpService::new(server, sessions, tools);
    let tools = axum::Router::new().route_service("/mcp", tools);
    let serving = serve_with(listener, service, config, tools, shutdown);
    #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
    let server = tokio::spawn(serving);
    (address, server)
}

/// A client without certificates of the system.
fn client(tls: rustls::ClientConfig) -> reqwest::Client {
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls);
    client.build().unwrap()
}

/// The call of a tool with a task.
fn called(task: &Value) -> String {
    let params = json!({"name": task["target"]["capability"], "arguments": task});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
}

fn post(client: &reqwest::Client, url: &str) -> reqwest::RequestBuilder {
    client
        .post(url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
}

// spec: SAP-11-2
#[tokio::test]
async fn a_certificate_says_who_calls_a_tool_as_it_says_who_sends_a_task() {
    let (seen, authority) = (Seen::default(), Authority::new());
    let (known, other) = (authority.sign("desk"), authority.sign("desk"));
    let speakers = Speakers::new(Arc::new(AllowAll));
    let identity = Identity::certificate(&known.0);
    let speakers = speakers.allow(identity, "A-prime".parse().unwrap());
    let processor = seen.processor(Config::default());
    let processor = processor.authorize(Arc::new(speakers));
    let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
    let tls = Some(server_tls(&authority));
    let address = serve(service, "127.0.0.1:0", http::Config::default(), tls).await;
    let mut number = 0;
    for (certificate, wanted) in [
        (None, Some("UNAUTHORIZED")),
        (Some(other), Some("UNAUTHORIZED")),
        (Some(known), None),
    ] {
        let client = client(client_tls(&authority, certificate));
        let url = |path| format!("https://localhost:{}{path}", address.port());
        let mut ask = || {
            number += 1;
            ask(number, "test.echo")
        };
        let sent = post(&client, &url("/sap/tasks")).body(ask().to_string());
        let sent = sent.send().await.unwrap().bytes().await.unwrap();
        let call = post(&client, &url("/mcp")).body(called(&ask()));
        let answer = call.send().await.unwrap().bytes().await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        for said in [&sent, &answer["result"]["structuredContent"]] {
            assert_eq!(said.get("code").and_then(Value::as_str), wanted, "{said}");
            assert_eq!(said["status"] == "SUCCEEDED", wanted.is_none(), "{said}");
        }
    }
}

// spec: SAP-10-2, SAP-10-3
#[tokio::test]
async fn the_tools_have_the_hosts_and_origins_of_the_server() {
    let desk = "https://desk.example";
    for (listen, is_every) in [("127.0.0.1:0", false), ("0.0.0.0:0", true)] {
        let service = Seen::default().service_of(Config::default());
        let config = http::Config::default().with_origins([desk]);
        let port = serve(service, listen, config, None).await.port();
        let own = format!("127.0.0.1:{port}");
        let (other, own_page) = (format!("192.0.2.7:{port}"), format!("http://{own}"));
        let client = client(client_tls(&Authority::new(), None));
        let of_every = if is_every { 200 } else { 403 };
        for (host, origin, wanted) in [
            (own.as_str(), None, 200),
            (&own, Some(own_page.as_str()), 200),
            (&own, Some(desk), 200),
            (&own, Some("https://evil.example"), 403),
            (&own, Some("null"), 403),
            (&other, None, of_every),
            ("evil.example", None, 403),
            ("evil.example", Some("http://evil.example"), 403),
        ] {
            let task = ask(1, "test.echo");
            for (path, body) in [("/sap/tasks", task.to_string()), ("/mcp", called(&task))] {
                let mut request = post(&client, &format!("http://{own}{path}"));
                request = request.header("host", host);
                if let Some(origin) = origin {
                    request = request.header("origin", origin);
                }
                let status = request.body(body).send().await.unwrap().status();
                let seen = (path, host, origin, status.as_u16());
                assert_eq!(seen, (path, host, origin, wanted), "{listen}");
            }
        }
    }
}

// spec: SAP-5-2, SAP-10-3
#[tokio::test]
async fn the_end_of_the_server_cancels_the_calls_that_came_by_it() {
    let seen = Seen::default();
    let service = seen.service_of(Config::default());
    let config = http::Config::default().with_shutdown_grace(Duration::from_millis(1));
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        let _ = stopped.await;
    };
    let serving = serve_until(service, "127.0.0.1:0", config, None, shutdown);
    let (address, server) = serving.await;
    let client = client(client_tls(&Authority::new(), None));
    let call = post(&client, &format!("http://{address}/mcp"));
    let call = call.body(called(&ask(1, "test.hang"))).send();
    let stopping = async {
        until(|| seen.entries() == 2).await;
        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
    };
    let (answer, ()) = futures::future::join(call, stopping).await;
    let answer = answer.unwrap().bytes().await.unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let said = &answer["result"]["structuredContent"];
    assert_eq!(said["status"], "CANCELLED", "{answer}");
    assert_eq!(seen.written(0), ["task", "RUNNING", "CANCELLED"]);
}

// spec: SAP-10-3
#[tokio::test]
async fn the_route_keeps_no_session_and_takes_no_long_body() {
    let service = Seen::default().service_of(Config::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let tools = router(Server::from(service.clone()));
    let (config, never) = (http::Config::default(), std::future::pending());
    #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
    tokio::spawn(serve_with(listener, service, config, tools, never));
    let client = client(client_tls(&Authority::new(), None));
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let begun = post(&client, &url).body(begin.to_string());
    let begun = begun.send().await.unwrap();
    assert_eq!(begun.status(), 200);
    assert!(!begun.headers().contains_key("mcp-session-id"));
    assert!(begun.text().await.unwrap().contains("protocolVersion"));
    let answer = post(&client, &url).body(called(&ask(1, "test.echo")));
    let answer = answer.send().await.unwrap().text().await.unwrap();
    assert!(answer.contains("SUCCEEDED"), "{answer}");
    let task = with(
        ask(2, "test.echo"),
        "/payload/long",
        Some(json!("x".repeat(2 << 20))),
    );
    let long = post(&client, &url).body(called(&task));
    assert_eq!(long.send().await.unwrap().status(), 413);
}
