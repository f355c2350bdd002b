//! The end of a server: what is let go on, and what is closed.

use std::sync::atomic::AtomicBool;

use sap::processor::{AllowAll, Processor};
use sap::store::MemoryTranscript;
use sap::transcript::{Entry, Head, Proof, Transcript, TranscriptError};
use sap::{Producer, ProducerKind};

use super::super::world::ByHand;
use super::*;

/// Waits until nobody listens at an address.
async fn until_closed(address: &str) {
    for _ in 0..60_000 {
        if tokio::net::TcpStream::connect(address).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("somebody listens at {address}");
}

// spec: SAP-5-2
#[tokio::test]
async fn at_the_end_tasks_are_let_go_on_and_then_cancelled() {
    let seen = Seen::default();
    let patience = http::Config::default().with_shutdown_grace(Duration::from_millis(50));
    let mut server = OverHttp::with(&seen, Config::default(), patience).await;
    let endpoint = with(
        ask(2, "test.hang"),
        "/replyTo",
        Some(json!({"endpoint": "test:inbox"})),
    );
    assert_eq!(
        server
            .post(endpoint.to_string(), &[])
            .await
            .status()
            .as_u16(),
        202
    );
    let task = typed(&ask(1, "test.hang").to_string());
    let stop = server.stop.take().unwrap();
    let client = server.client.clone();
    let mut ignored = |_: &Message| {};
    let asking = client.send(&task, &mut ignored);
    let stopping = async {
        until(|| seen.entries() == 4).await;
        stop.send(()).unwrap();
        server.server.await.unwrap().unwrap();
    };
    let (answer, ()) = futures::future::join(asking, stopping).await;
    let Some(Message::Result(result)) = answer.unwrap() else {
        panic!("ended")
    };
    assert_eq!(result.status, Status::Cancelled);
    assert_eq!(seen.written(4), ["CANCELLED"; 2]);
    assert!(client.send(&task, &mut ignored).await.is_err());
}

// spec: SAP-5-2
#[tokio::test]
async fn the_end_of_a_server_cancels_no_task_that_came_another_way() {
    let seen = Seen::default();
    let service = seen.service_of(Config::default());
    let patience = http::Config::default().with_shutdown_grace(Duration::from_millis(1));
    let mut one = OverHttp::of(service.clone(), patience.clone()).await;
    let other = OverHttp::of(service, patience).await;
    let tasks = [(1, "test.hang"), (2, "test.gate")].map(|(number, capability)| {
        let task = ask(number, capability);
        typed(&task.to_string())
    });
    let stop = one.stop.take().unwrap();
    let stopping = async {
        until(|| seen.entries() == 5).await;
        // One who follows the other's task here is let go.
        let told = AtomicBool::new(false);
        let mut tell = |_: &Message| told.store(true, Ordering::SeqCst);
        let following = one.client.follow(&tasks[1], &mut tell);
        let ending = async {
            until(|| told.load(Ordering::SeqCst)).await;
            stop.send(()).unwrap();
            one.server.await.unwrap().unwrap();
        };
        let (followed, ()) = futures::future::join(following, ending).await;
        assert!(
            matches!(followed, Ok(Some(_)) | Err(SendError::NoAnswer { .. })),
            "{followed:?}"
        );
        let standing = other.client.status(&tasks[1]).await.unwrap();
        seen.gate.store(true, Ordering::SeqCst);
        standing
    };
    let (mut ignored, mut no_one) = (|_: &Message| {}, |_: &Message| {});
    let (ended, went_on, standing) = tokio::join!(
        one.client.send(&tasks[0], &mut ignored),
        other.client.send(&tasks[1], &mut no_one),
        stopping,
    );
    let status = |message: Option<Message>| match message {
        Some(Message::Result(result)) => result.status,
        other => panic!("{other:?}"),
    };
    assert_eq!(status(ended.unwrap()), Status::Cancelled);
    assert_eq!(status(Some(standing)), Status::Running);
    assert_eq!(status(went_on.unwrap()), Status::Succeeded);
}

#[tokio::test]
async fn clients_that_stall_do_not_keep_the_server_from_its_end() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (seen, clock) = (Seen::default(), ByHand::new());
    let hour = Duration::from_secs(3_600);
    let patience = http::Config::default()
        .with_shutdown_grace(hour)
        .with_head_timeout(hour)
        .with_body_timeout(hour);
    let processor = Arc::new(seen.processor(Config::default()));
    let service = Service::new(processor, Arc::new(clock.clone()));
    let mut server = OverHttp::of(service, patience).await;
    let address = server.url.replace("http://", "").replace("/sap/tasks", "");
    let mut stalled = Vec::new();
    let task = ask(1, "test.echo").to_string();
    let head = format!(
        "POST /sap/tasks HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        task.len()
    );
    for begun in [head + "{", "POST /sap".into(), String::new()] {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        stalled.push(stream);
    }
    // Answered after them, so they were taken.
    assert_eq!(server.post("{".into(), &[]).await.status().as_u16(), 400);
    server.stop.take().unwrap().send(()).unwrap();
    until_closed(&address).await;
    // The grace of tasks, and as long again for connections.
    for _ in 0..2 {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!server.server.is_finished());
        clock.go_on(hour);
    }
    let ended = tokio::time::timeout(Duration::from_secs(60), server.server).await;
    ended.expect("the server ends").unwrap().unwrap();
    // What comes whole only now is not begun.
    stalled[0].write_all(&task.as_bytes()[1..]).await.unwrap();
    let mut answer = String::new();
    stalled[0].read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(seen.calls(), 0);
}

// spec: SAP-5-2
#[tokio::test]
async fn a_task_that_runs_at_the_end_has_its_grace() {
    let seen = Seen::default();
    let patience = http::Config::default().with_shutdown_grace(Duration::from_secs(3_600));
    let mut server = OverHttp::with(&seen, Config::default(), patience).await;
    let address = server.url.replace("http://", "").replace("/sap/tasks", "");
    let task = typed(&ask(1, "test.gate").to_string());
    let stop = server.stop.take().unwrap();
    let client = server.client.clone();
    let mut ignored = |_: &Message| {};
    let asking = client.send(&task, &mut ignored);
    let stopping = async {
        until(|| seen.entries() == 3).await;
        stop.send(()).unwrap();
        // The door is closed, and what is inside goes on.
        until_closed(&address).await;
        seen.gate.store(true, Ordering::SeqCst);
        server.server.await.unwrap().unwrap();
    };
    let (answer, ()) = futures::future::join(asking, stopping).await;
    let Some(Message::Result(result)) = answer.unwrap() else {
        panic!("ended")
    };
    assert_eq!(result.status, Status::Succeeded);
}

// spec: SAP-5-2
#[tokio::test]
async fn a_server_waits_for_tasks_whose_results_go_elsewhere() {
    let seen = Seen::default();
    let patience = http::Config::default().with_shutdown_grace(Duration::from_secs(3_600));
    let mut server = OverHttp::with(&seen, Config::default(), patience).await;
    let reply = Some(json!({"endpoint": "test:inbox"}));
    let task = with(ask(1, "test.gate"), "/replyTo", reply).to_string();
    assert_eq!(server.post(task, &[]).await.status().as_u16(), 202);
    until(|| seen.entries() == 3).await;
    let address = server.url.replace("http://", "").replace("/sap/tasks", "");
    server.stop.take().unwrap().send(()).unwrap();
    until_closed(&address).await;
    // However long it takes: it has no reason to end.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!server.server.is_finished());
    seen.gate.store(true, Ordering::SeqCst);
    server.server.await.unwrap().unwrap();
    assert_eq!(seen.written(3), ["SUCCEEDED"]);
}

#[tokio::test]
async fn a_connection_that_is_kept_is_closed_when_the_server_has_ended() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let patience = Duration::from_secs(3_600);
    let patient = http::Config::default()
        .with_head_timeout(patience)
        .with_shutdown_grace(patience);
    let mut server = OverHttp::with(&Seen::default(), Config::default(), patient).await;
    let address = server.url.replace("http://", "").replace("/sap/tasks", "");
    let request = |connection: &str| {
        format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: {connection}\r\n\r\n")
    };
    let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
    let kept = request("keep-alive");
    stream.write_all(kept.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    server.stop.take().unwrap().send(()).unwrap();
    server.server.await.unwrap().unwrap();
    // Nobody is there any more who would answer.
    let mut answer = Vec::new();
    let _ = stream.write_all(request("close").as_bytes()).await;
    let _ = stream.read_to_end(&mut answer).await;
    assert_eq!(answer, b"");
}

#[tokio::test]
async fn a_server_waits_for_what_a_route_beside_still_says() {
    use tokio::sync::Notify;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let gate = Arc::new((Notify::new(), Notify::new()));
    let held = Arc::clone(&gate);
    let waits = axum::routing::get(async move || {
        held.0.notify_one();
        held.1.notified().await;
        "whole"
    });
    let beside = axum::Router::new().route("/slow", waits);
    let patience = http::Config::default().with_shutdown_grace(Duration::from_secs(3_600));
    let service = Seen::default().service_of(Config::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = http::serve_with(listener, service, patience, beside, async {
        let _ = stopped.await;
    });
    #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
    let server = tokio::spawn(serving);
    let asking = async {
        let asked = plain().get(format!("http://{address}/slow")).send().await;
        asked.unwrap().text().await.unwrap()
    };
    let stopping = async {
        gate.0.notified().await;
        stop.send(()).unwrap();
        until_closed(&address).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let is_over = server.is_finished();
        gate.1.notify_one();
        server.await.unwrap().unwrap();
        is_over
    };
    assert_eq!(
        futures::future::join(asking, stopping).await,
        ("whole".into(), false)
    );
}

/// A transcript whose disk stops: it then takes nothing, and does not say so.
#[derive(Debug, Default)]
struct Stuck {
    log: MemoryTranscript,
    is_stuck: AtomicBool,
    /// Every entry that waits has one of it.
    waits: Arc<()>,
}

impl Transcript for Stuck {
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        if !self.is_stuck.load(Ordering::SeqCst) {
            return self.log.record(entry);
        }
        let waits = Arc::clone(&self.waits);
        Box::pin(async move {
            let _waits = waits;
            std::future::pending().await
        })
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        self.log.read(from, max)
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        self.log.verify(kept)
    }
}

#[tokio::test]
async fn a_transcript_that_hangs_does_not_keep_the_server_from_its_end() {
    for grace in [0, 3_600].map(Duration::from_secs) {
        let (log, clock) = (Arc::new(Stuck::default()), ByHand::new());
        let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
        let config = Config::default().with_default_time(Duration::from_secs(10 * 3_600));
        let processor = Processor::new(producer, Arc::new(AllowAll), log.clone(), config)
            .unwrap()
            .handle("test.hang".parse().unwrap(), |_| std::future::pending());
        let service = Service::new(Arc::new(processor), Arc::new(clock.clone()));
        let patience = http::Config::default().with_shutdown_grace(grace);
        let mut server = OverHttp::of(service, patience).await;
        let stop = server.stop.take().unwrap();
        let entries = || log.verify(None).unwrap().records;
        let ending = async {
            until(|| entries() == 2).await;
            log.is_stuck.store(true, Ordering::SeqCst);
            stop.send(()).unwrap();
            tokio::select! {
                ended = server.server => ended.unwrap().unwrap(),
                _ = clock.run() => {}
            }
            until(|| Arc::strong_count(&log.waits) == 1).await;
        };
        let task = typed(&ask(1, "test.hang").to_string());
        let mut ignored = |_: &Message| {};
        let (answer, ()) =
            futures::future::join(server.client.send(&task, &mut ignored), ending).await;
        assert!(answer.is_err(), "{answer:?}");
        assert_eq!(entries(), 2);
    }
}
