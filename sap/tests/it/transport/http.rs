//! HTTP.

mod bounds;
mod correlation;
mod ending;
mod waits;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use sap::processor::{Access, Authorize, Config, Peer};
use sap::transport::http::{self, HttpClient, HttpReplies, inbox, router, serve};
use sap::transport::{Message, SendError, Service};
use sap::validate::Options;
use sap::{Status, Task};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use ubos_common::trace_context::TraceContext;

use super::suite::{self, Harness, until};
use super::world::{Real, Seen, ask, typed};
use crate::samples::with;

struct OverHttp {
    client: HttpClient,
    url: String,
    server: JoinHandle<std::io::Result<()>>,
    stop: Option<oneshot::Sender<()>>,
    plain: reqwest::Client,
}

impl OverHttp {
    async fn with(seen: &Seen, config: Config, server: http::Config) -> Self {
        Self::of(seen.service_of(config), server).await
    }

    async fn of(service: Service, server: http::Config) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/sap/tasks", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = serve(listener, service, server, async {
            let _ = stopped.await;
        });
        #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
        let server = tokio::spawn(serving);
        let client = HttpClient::new(&url).unwrap();
        // The one way to a client without TLS of its own is through a client of ours; so say it by hand.
        let plain = plain();
        Self {
            client,
            url,
            server,
            stop: Some(stop),
            plain,
        }
    }

    async fn post(&self, body: String, headers: &[(&str, &str)]) -> reqwest::Response {
        let mut request = self.plain.post(&self.url).body(body);
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }
}

fn plain() -> reqwest::Client {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .build()
        .unwrap()
}

impl Harness for OverHttp {
    const TALKS: bool = true;

    async fn start(seen: &Seen, config: Config) -> Self {
        Self::with(seen, config, http::Config::default()).await
    }

    async fn send(&self, task: &Task) -> (Vec<Message>, Result<Option<Message>, SendError>) {
        let mut told = Vec::new();
        let answer = self
            .client
            .send(task, &mut |message| told.push(message.clone()))
            .await;
        (told, answer)
    }

    fn trace(&mut self, trace: TraceContext) -> bool {
        self.client = self.client.clone().with_trace(trace);
        true
    }

    async fn status(&self, task: &Task) -> Option<Message> {
        Some(self.client.status(task).await.unwrap())
    }

    async fn cancel(&self, task: &Task) -> Option<Message> {
        Some(self.client.cancel(task).await.unwrap())
    }

    async fn follow(
        &self,
        task: &Task,
        told: &mut (dyn FnMut(&Message) + Send),
    ) -> Option<Message> {
        self.client.follow(task, told).await.unwrap()
    }

    async fn raw(&self, bytes: &str) -> Message {
        let response = self.post(bytes.to_owned(), &[]).await;
        Message::decode(&response.bytes().await.unwrap(), &Options::default()).unwrap()
    }
}

// spec: SAP-1-1, SAP-4.1-16, SAP-4.1-17, SAP-4.3-1, SAP-4.3-2, SAP-4.3-3, SAP-5-1, SAP-5-2, SAP-5-9, SAP-5-10
#[tokio::test]
async fn the_suite_holds() {
    suite::run::<OverHttp>().await;
}

#[test]
fn a_client_shows_nothing_of_its_address_but_the_origin() {
    let client = HttpClient::new("https://me:hunter2@prime.example:8443/t0ken?k=v").unwrap();
    let shown = format!("{client:?}");
    assert!(shown.contains("https://prime.example:8443\""), "{shown}");
    assert!(
        !shown.contains("hunter2") && !shown.contains("t0ken"),
        "{shown}"
    );
}

// spec: SAP-10-2
#[tokio::test]
async fn statuses_and_the_correlation_header() {
    let seen = Seen::default();
    let small = http::Config::default().with_max_body_bytes(4_000);
    let server = OverHttp::with(&seen, Config::default().with_max_running(1), small).await;
    let gate = ask(1, "test.gate");
    let to = |number, capability: &str, pointer: &str, value: Value| {
        with(ask(number, capability), pointer, Some(value))
    };
    let cases = [
        (ask(2, "test.echo"), 200),
        (ask(3, "test.fail"), 200),
        (
            to(
                4,
                "test.echo",
                "/replyTo",
                json!({"endpoint": "test:inbox"}),
            ),
            202,
        ),
        (to(5, "test.echo", "/protocolVersion", json!("1.0")), 400),
        (
            to(6, "test.echo", "/issuer/agentId", json!("A-nobody")),
            401,
        ),
        (ask(7, "test.denied"), 403),
        (to(8, "test.echo", "/target/agentId", json!("A-none")), 404),
        (
            to(9, "test.echo", "/payload/long", json!("x".repeat(4_000))),
            413,
        ),
    ];
    for (task, status) in &cases {
        let response = server.post(task.to_string(), &[]).await;
        assert_eq!(response.status().as_u16(), *status);
        let id = response.headers().get("X-Correlation-Id").cloned();
        let body = response.bytes().await.unwrap();
        let message = Message::decode(&body, &Options::default()).unwrap();
        assert_eq!(
            matches!(message, Message::Nack(_)),
            *status >= 400,
            "{message:?}"
        );
        if *status != 413 {
            assert_eq!(
                id.unwrap().to_str().unwrap(),
                task["correlationId"].as_str().unwrap()
            );
        }
    }
    let hanging = server.post(gate.to_string(), &[]);
    let full = async {
        until(|| {
            seen.written(0)
                .iter()
                .filter(|kind| *kind == "RUNNING")
                .count()
                == 5
        })
        .await;
        let full = server.post(ask(10, "test.echo").to_string(), &[]).await;
        seen.gate.store(true, Ordering::SeqCst);
        full.status().as_u16()
    };
    let (hung, full) = futures::future::join(hanging, full).await;
    assert_eq!((hung.status().as_u16(), full), (200, 429));
    let task = ask(11, "test.echo");
    let id = task["correlationId"].as_str().unwrap().to_uppercase();
    for (header, status) in [
        (&*id, 200),
        ("00000000-0000-0000-0000-000000000000", 400),
        ("?", 400),
    ] {
        let response = server
            .post(task.to_string(), &[("x-CORRELATION-id", header)])
            .await;
        assert_eq!(response.status().as_u16(), status, "{header}");
        // The task's own, whatever the header said.
        let echoed = response.headers()["x-correlation-id"].to_str().unwrap();
        assert!(echoed.eq_ignore_ascii_case(&id), "{header}: {echoed}");
    }
    let garbage = server.post("{".into(), &[("X-Correlation-Id", &id)]).await;
    assert_eq!(garbage.status().as_u16(), 400);
    assert_eq!(garbage.headers()["x-correlation-id"].to_str().unwrap(), id);
    let long = "x".repeat(5_000);
    let long = server.post(long, &[("X-Correlation-Id", &id)]).await;
    assert_eq!(long.status().as_u16(), 413);
    assert_eq!(long.headers()["x-correlation-id"].to_str().unwrap(), id);
}

// spec: SAP-4.3-1
#[tokio::test]
async fn an_answer_that_does_not_end_the_task_is_none() {
    use axum::http::StatusCode;
    let task = ask(1, "test.echo");
    let ids = json!({"messageId": task["taskId"], "correlationId": task["correlationId"]});
    let ack = with(ids, "/status", Some(json!("ACK"))).to_string();
    let running = json!({
        "protocolVersion": "2.0", "taskId": task["taskId"], "correlationId": task["correlationId"],
        "reportedAt": "2026-01-01T00:00:00Z", "producer": {"agentId": "A-1", "agentKind": "agent"},
        "status": "RUNNING", "constitutionalEvidence": {"alignment": "VALID"},
    })
    .to_string();
    let there = Some(json!({"endpoint": "test:inbox"}));
    let elsewhere = with(task.clone(), "/replyTo", there);
    let cases = [
        (&task, StatusCode::OK, String::new(), Some("nothing")),
        // Taken before, and nothing was said of it yet.
        (&task, StatusCode::ACCEPTED, ack.clone(), None),
        (
            &task,
            StatusCode::OK,
            format!("{ack}\n{running}\n"),
            Some("results"),
        ),
        // The latest of a task that was sent before.
        (&task, StatusCode::OK, running, None),
        (
            &task,
            StatusCode::NOT_FOUND,
            String::new(),
            Some("status 404"),
        ),
        (
            &elsewhere,
            StatusCode::NOT_FOUND,
            String::new(),
            Some("status 404"),
        ),
        (&elsewhere, StatusCode::ACCEPTED, ack, None),
        (&elsewhere, StatusCode::ACCEPTED, String::new(), None),
    ];
    for (task, status, body, missing) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let said = format!("{status} {body}");
        let routes = axum::Router::new().fallback(async move || (status, body));
        #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let client = HttpClient::new(&url).unwrap();
        let answer = client.send(&typed(&task.to_string()), &mut |_| {}).await;
        match (answer, missing) {
            (Err(SendError::NoAnswer { what }), Some(missing)) => {
                assert!(what.starts_with(missing), "{what}");
            }
            (answer, missing) => assert!(answer.is_ok() && missing.is_none(), "{said}: {answer:?}"),
        }
    }
}

// spec: SAP-10-1, SAP-5-1
#[tokio::test]
async fn what_cannot_be_written_down_is_not_said() {
    for entries in [0, 2] {
        let log = Arc::new(sap::store::MemoryTranscript::new(entries));
        let seen = Seen {
            log,
            ..Seen::default()
        };
        let server = OverHttp::start(&seen, Config::default()).await;
        assert_eq!(
            server
                .post(ask(1, "test.echo").to_string(), &[])
                .await
                .status()
                .as_u16(),
            500
        );
        let (_, answer) = server.send(&typed(&ask(2, "test.echo").to_string())).await;
        assert!(
            matches!(
                answer,
                Err(SendError::NoAnswer { .. } | SendError::Carrier(_))
            ),
            "{answer:?}"
        );
    }
}

// spec: SAP-5-2
#[tokio::test]
async fn a_panic_beside_the_handler_fails_its_own_task() {
    #[derive(Debug)]
    struct Faulty;
    impl sap::alignment::Policy for Faulty {
        fn assess(&self, _: &sap::alignment::Subject<'_>) -> sap::alignment::Assessment {
            panic!("a policy's own fault")
        }
    }
    let seen = Seen::default();
    let processor = seen.processor(Config::default()).policy(Arc::new(Faulty));
    let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/sap/tasks", listener.local_addr().unwrap());
    let routes = router(service, http::Config::default()).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let whole = plain()
        .post(&url)
        .header("content-type", "application/json")
        .body(ask(1, "test.echo").to_string());
    assert_eq!(whole.send().await.unwrap().status().as_u16(), 200);
    let client = HttpClient::new(&url).unwrap();
    let task = typed(&ask(2, "test.echo").to_string());
    let answer = client.send(&task, &mut |_| {}).await.unwrap();
    let Some(Message::Result(result)) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(result.error_code(), Some(&sap::ErrorCode::Internal));
    assert_eq!(seen.written(0), ["task", "FAILED", "task", "FAILED"]);
}

// spec: SAP-5-2, SAP-5-10
#[tokio::test]
async fn a_client_that_goes_does_not_end_its_task() {
    let seen = Seen::default();
    let server = OverHttp::start(&seen, Config::default()).await;
    let task = ask(1, "test.gate").to_string();
    tokio::select! {
        answer = server.post(task, &[]) => panic!("{answer:?}"),
        () = until(|| seen.entries() == 3) => {}
    }
    seen.gate.store(true, Ordering::SeqCst);
    until(|| seen.written(0) == ["task", "RUNNING", "RUNNING", "SUCCEEDED"]).await;
}

// spec: SAP-4.1-17
#[tokio::test]
async fn results_are_posted_to_endpoints_that_are_allowed() {
    let seen = Seen::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let arrived = Arc::clone(&seen.inbox);
    let inbox = inbox("/results", Options::default(), move |result| {
        arrived.lock().unwrap().push(result);
    });
    #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
    tokio::spawn(async move { axum::serve(listener, inbox).await });
    let replies = HttpReplies::new([origin.as_str()]).unwrap();
    let service = seen
        .service_of(Config::default())
        .replies(Arc::new(replies));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/sap/tasks", listener.local_addr().unwrap());
    let routes = router(service, http::Config::default()).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let send = async |number, endpoint: String| {
        let task = with(
            ask(number, "test.steps"),
            "/replyTo",
            Some(json!({"endpoint": endpoint})),
        );
        // A client of ours sends no task whose endpoint holds a password.
        let posted = plain()
            .post(&url)
            .header("content-type", "application/json");
        let answer = posted.body(task.to_string()).send().await.unwrap();
        Message::decode(&answer.bytes().await.unwrap(), &Options::default()).ok()
    };
    assert!(matches!(
        send(1, format!("{origin}/results")).await,
        Some(Message::Ack(_))
    ));
    until(|| seen.inbox.lock().unwrap().len() == 4).await;
    assert_eq!(seen.inbox.lock().unwrap()[3].status, Status::Succeeded);
    for (number, endpoint) in [
        (2, "http://127.0.0.1:1/results".to_owned()),
        (
            3,
            origin.replace("http://", "http://user:word@") + "/results",
        ),
        (4, format!("{origin}/nobody")),
        (5, origin.replace("http://", "http://user@") + "/results"),
        (6, origin.replace("http://", "http://:word@") + "/results"),
    ] {
        let before = seen.warnings.lock().unwrap().len();
        send(number, endpoint).await;
        until(|| seen.warnings.lock().unwrap().len() == before + 4).await;
    }
    assert_eq!(seen.inbox.lock().unwrap().len(), 4);
    assert_eq!(seen.calls.load(Ordering::SeqCst), 0);
}

#[cfg(all(feature = "sign", feature = "mcp"))]
// spec: SAP-2-4, SAP-4.1-17
#[tokio::test]
async fn a_result_goes_to_its_endpoint_with_its_signature() {
    use super::world::{Signatures, signed_service};
    let signatures = Signatures::new();
    for (keys, wanted) in [(signatures.keys, true), (signatures.other_keys, false)] {
        let seen = Seen::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let arrived = Arc::clone(&seen.inbox);
        let inbox = http::signed_inbox("/results", Options::default(), keys, move |result| {
            arrived.lock().unwrap().push(result);
        });
        #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
        tokio::spawn(async move { axum::serve(listener, inbox).await });
        let replies = HttpReplies::new([origin.as_str()]).unwrap();
        let warnings = Arc::clone(&seen.warnings);
        let service = signed_service(&seen)
            .replies(Arc::new(replies))
            .on_warning(move |warning| warnings.lock().unwrap().push(warning.to_string()));
        let server = OverHttp::of(service, http::Config::default()).await;
        let there = json!({"endpoint": format!("{origin}/results")});
        let task = with(ask(1, "test.echo"), "/replyTo", Some(there));
        let client = server.client.with_signing_key(Arc::clone(&signatures.desk));
        let answer = client.send(&typed(&task.to_string()), &mut |_| {}).await;
        assert!(matches!(answer, Ok(Some(Message::Ack(_)))), "{answer:?}");
        // RUNNING and SUCCEEDED.
        until(|| seen.inbox.lock().unwrap().len() + seen.warnings.lock().unwrap().len() == 2).await;
        let inbox = seen.inbox.lock().unwrap().clone();
        assert_eq!(inbox.len(), if wanted { 2 } else { 0 });
        // Anybody may post what was said, and only with its signature is it taken.
        if let Some(result) = inbox.last() {
            let posted = plain()
                .post(format!("{origin}/results"))
                .body(result.encode())
                .send();
            assert_eq!(posted.await.unwrap().status().as_u16(), 401);
        }
    }
}

#[tokio::test]
async fn a_server_refuses_settings_out_of_range() {
    let seen = Seen::default();
    for (config, wanted) in [
        (
            http::Config::default().with_path("tasks"),
            "path is \"tasks\", but",
        ),
        (
            http::Config::default().with_path("/{x"),
            "path is \"/{x\", but",
        ),
        (
            http::Config::default().with_max_body_bytes(0),
            "max_body_bytes is 0, but",
        ),
        (
            http::Config::default().with_max_connections(0),
            "max_connections is 0, but",
        ),
        (
            http::Config::default().with_max_connections_of_address(0),
            "max_connections_of_address is 0, but",
        ),
        (
            http::Config::default().with_head_timeout(Duration::ZERO),
            "head_timeout is 0ns, but",
        ),
        (
            http::Config::default().with_write_timeout(Duration::ZERO),
            "write_timeout is 0ns, but",
        ),
    ] {
        let service = || seen.service_of(Config::default());
        let refused = router(service(), config.clone()).unwrap_err();
        assert!(refused.to_string().starts_with(wanted), "{refused}");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let served = serve(listener, service(), config, std::future::pending()).await;
        assert_eq!(served.unwrap_err().to_string(), refused.to_string());
    }
}

// spec: SAP-10-2
#[tokio::test]
async fn a_task_is_asked_about_below_the_path() {
    let seen = Seen::default();
    let server = OverHttp::start(&seen, Config::default()).await;
    let task = ask(1, "test.echo");
    server.post(task.to_string(), &[]).await;
    let id = task["taskId"].as_str().unwrap();
    let whose = "?issuer=A-prime";
    for (below, status, said) in [
        (format!("/{id}{whose}"), 200, "SUCCEEDED"),
        (format!("/{id}/events{whose}"), 200, "SUCCEEDED"),
        (format!("/{id}"), 400, "NACK"),
        (format!("/{id}?issuer="), 400, "NACK"),
        (format!("/what{whose}"), 400, "NACK"),
        (format!("/{id}?issuer=A-other"), 404, "NACK"),
        (format!("/{id}/events?issuer=A-other"), 404, "NACK"),
    ] {
        let url = format!("{}{below}", server.url);
        let response = server.plain.get(&url).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{below}");
        let echoed = response.headers().get("x-correlation-id").cloned();
        let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        assert_eq!(body["status"], said, "{below}");
        if status == 200 {
            assert_eq!(echoed.unwrap().to_str().unwrap(), body["correlationId"]);
        }
    }
    let url = format!("{}/{id}{whose}", server.url);
    let lines = server.plain.get(url.replace('?', "/events?"));
    let lines = lines.header("accept", "application/x-ndjson");
    let lines = lines.send().await.unwrap().text().await.unwrap();
    assert!(lines.ends_with("}\n") && lines.lines().count() == 1);
    for (header, value) in [("host", "evil.example"), ("origin", "https://evil.example")] {
        let asked = server.plain.delete(&url).header(header, value);
        assert_eq!(asked.send().await.unwrap().status().as_u16(), 403);
    }
    assert_eq!(server.plain.put(&url).send().await.unwrap().status(), 405);
}

/// Lets the first in, and has no time for whoever comes later.
#[derive(Debug, Default)]
struct BusyNow(AtomicBool);

impl Authorize for BusyNow {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        let access = match self.0.swap(true, Ordering::SeqCst) {
            true => Access::Busy,
            false => Access::Allowed,
        };
        Box::pin(std::future::ready(access))
    }
}

// spec: SAP-10-2
#[tokio::test]
async fn one_who_asks_about_a_task_while_the_hook_is_busy_may_ask_later() {
    let processor = Seen::default().processor(Config::default());
    let processor = processor.authorize(Arc::<BusyNow>::default());
    let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
    let server = OverHttp::of(service, http::Config::default()).await;
    let task = ask(1, "test.echo");
    server.post(task.to_string(), &[]).await;
    let id = task["taskId"].as_str().unwrap();
    let url = format!("{}/{id}?issuer=A-prime", server.url);
    assert_eq!(server.plain.get(url).send().await.unwrap().status(), 429);
}
