//! How long a client waits, and what it sends again.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use sap::ErrorCode;

use super::super::world::ByHand;
use super::*;

/// A client of a server that the test plays, by a clock that the test has go on.
async fn client() -> (TcpListener, HttpClient, ByHand) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/sap/tasks", listener.local_addr().unwrap());
    let clock = ByHand::new();
    let client = HttpClient::new(&url).unwrap();
    let client = client.with_clock(Arc::new(clock.clone()));
    (listener, client, clock)
}

/// The next request, of which some has come.
async fn asked(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.read_exact(&mut [0; 16]).await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream, status: &str, body: &str) {
    // All of the request is read first: what is closed with a rest of it is reset.
    let mut request = [0; 64 << 10];
    let _ = stream.read(&mut request).await;
    let kind = match body.starts_with('<') {
        true => "text/html",
        false => "application/json",
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length:"
    );
    let said = format!("{head} {}\r\n\r\n{body}", body.len());
    stream.write_all(said.as_bytes()).await.unwrap();
    let _ = stream.shutdown().await;
}

fn result_of(task: &Task, status: Status) -> String {
    let mut result = sap::TaskResult::of(
        task,
        "2025-09-28T10:15:30Z".parse().unwrap(),
        sap::Producer::new("b".parse().unwrap(), sap::ProducerKind::Agent),
        status,
        sap::ConstitutionalEvidence::new(sap::Alignment::Valid),
    );
    result.output = Some(ubos_common::json::RawBuf::parse("1").unwrap());
    String::from_utf8(result.encode()).unwrap()
}

fn with_deadline(number: u16) -> Task {
    let deadline = json!({"deadline": "2025-09-28T10:15:24Z"});
    let task = with(ask(number, "test.echo"), "/telemetry", Some(deadline));
    typed(&task.to_string())
}

fn no_answer<T: std::fmt::Debug>(answer: Result<T, SendError>) -> String {
    match answer {
        Err(SendError::NoAnswer { what }) => what,
        answer => panic!("{answer:?}"),
    }
}

// spec: SAP-5-8
#[tokio::test]
async fn a_client_gives_a_silent_server_up_when_its_patience_is_over() {
    let task = typed(&ask(1, "test.echo").to_string());
    for (patience, set) in [(300, None), (50, Some(50))] {
        let (listener, mut client, clock) = client().await;
        if let Some(seconds) = set {
            client = client.with_patience(Duration::from_secs(seconds));
        }
        for asks in ["send", "status", "cancel", "follow"] {
            let begun = clock.gone();
            let mut ignored = |_: &Message| {};
            let asking = async {
                match asks {
                    "send" => client.send(&task, &mut ignored).await,
                    "status" => client.status(&task).await.map(Some),
                    "cancel" => client.cancel(&task).await.map(Some),
                    _ => client.follow(&task, &mut ignored).await,
                }
            };
            let silent = async {
                let _stream = asked(&listener).await;
                clock.run().await
            };
            let answer = tokio::select! {
                biased;
                answer = asking => answer,
                _ = silent => panic!("never"),
            };
            let what = no_answer(answer);
            assert!(what.contains("longer than the patience"), "{asks}: {what}");
            assert_eq!((clock.gone() - begun).as_secs(), patience, "{asks}");
        }
    }
}

// spec: SAP-5-8
#[tokio::test]
async fn a_client_gives_a_talking_server_up_when_the_time_of_the_task_is_over() {
    // The deadline's own second is in time. A task that names none has the time that the client is told.
    for (task, follows, wanted) in [
        (with_deadline(1), false, 2 + 300),
        (with_deadline(1), true, 2 + 300),
        (typed(&ask(2, "test.echo").to_string()), false, 10 + 300),
        (typed(&ask(2, "test.echo").to_string()), true, 10 + 300),
    ] {
        let (listener, client, clock) = client().await;
        let client = client.with_default_time(Duration::from_secs(10));
        let told = std::sync::atomic::AtomicUsize::new(0);
        let talking = async {
            let mut stream = asked(&listener).await;
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            let ack = ubos_common::json::to_vec(&sap::Ack::from(&task));
            let ack = String::from_utf8(ack).unwrap();
            for (number, line) in [ack, result_of(&task, Status::Running)].iter().enumerate() {
                let line = format!("{:x}\r\n{line}\n\r\n", line.len() + 1);
                stream.write_all(line.as_bytes()).await.unwrap();
                until(|| told.load(Ordering::SeqCst) > number).await;
                // It is not silent for as long as the client has patience.
                for _ in 0..(200 * (1 - number)) {
                    clock.go_on(Duration::from_secs(1));
                    tokio::task::yield_now().await;
                }
            }
            clock.run().await
        };
        let mut note = |_: &Message| {
            told.fetch_add(1, Ordering::SeqCst);
        };
        let asking = async {
            match follows {
                false => client.send(&task, &mut note).await,
                true => client.follow(&task, &mut note).await,
            }
        };
        let answer = tokio::select! {
            biased;
            answer = asking => answer,
            _ = talking => panic!("never"),
        };
        let what = no_answer(answer);
        assert!(what.contains("no end"), "{what}");
        assert_eq!(clock.gone().as_secs(), wanted);
    }
}

// spec: SAP-4.3-3, SAP-5-10
#[tokio::test]
async fn a_client_sends_again_what_nobody_answers() {
    let (listener, client, clock) = client().await;
    let patience = Duration::from_secs(50);
    let client = client.with_patience(patience).with_resends(3);
    let task = typed(&ask(1, "test.echo").to_string());
    let serving = async {
        // One is silent, one breaks off, one has the task still running, and one has its end.
        let silent = asked(&listener).await;
        clock.go_on(patience);
        drop(asked(&listener).await);
        clock.go_on(patience);
        let status = [Status::Running, Status::Succeeded];
        for status in status {
            answer(asked(&listener).await, "200 OK", &result_of(&task, status)).await;
        }
        drop(silent);
        std::future::pending().await
    };
    let mut told = Vec::new();
    let mut note = |message: &Message| {
        if let Message::Result(result) = message {
            told.push(result.status.clone());
            // What it said is not the end, and nothing follows.
            clock.go_on(patience);
        }
    };
    let answer = tokio::select! {
        answer = client.send(&task, &mut note) => answer.unwrap(),
        () = serving => panic!("it never ends"),
    };
    assert!(matches!(answer, Some(Message::Result(result)) if result.status == Status::Succeeded));
    assert_eq!(told, [Status::Running, Status::Succeeded]);
}

// spec: SAP-5-8
#[tokio::test]
async fn a_client_sends_a_task_again_as_often_as_it_is_told() {
    let (listener, client, clock) = client().await;
    let patience = Duration::from_secs(50);
    let client = client.with_patience(patience).with_resends(2);
    let task = typed(&ask(1, "test.echo").to_string());
    let times = std::sync::atomic::AtomicUsize::new(0);
    let silent = async {
        let mut streams = Vec::new();
        loop {
            streams.push(asked(&listener).await);
            times.fetch_add(1, Ordering::SeqCst);
            clock.go_on(patience);
        }
    };
    let mut ignored = |_: &Message| {};
    let answer = tokio::select! {
        answer = client.send(&task, &mut ignored) => answer,
        () = silent => panic!("never"),
    };
    no_answer(answer);
    assert_eq!(times.load(Ordering::SeqCst), 3);
}

/// What is refused once is refused again, and a token that is tried too often may be locked.
// spec: SAP-11-2
#[tokio::test]
async fn credentials_that_are_refused_are_not_sent_again() {
    let nack = |task: &Task| {
        let mut nack = sap::Nack::of(task, ErrorCode::Unauthorized, "who?".parse().unwrap());
        nack.message_id = Some(task.task_id);
        String::from_utf8(Message::Nack(nack).encode()).unwrap()
    };
    let task = typed(&ask(1, "test.echo").to_string());
    for (status, body, is_known) in [
        ("401 Unauthorized", nack(&task), true),
        ("401 Unauthorized", String::new(), false),
        ("401 Unauthorized", "<p>who?</p>".to_owned(), false),
        ("407 Proxy Authentication Required", String::new(), false),
    ] {
        for asks in ["send", "status", "follow"] {
            let (listener, client, clock) = client().await;
            let token = ubos_common::secret::Secret::new("t0ken".to_owned());
            let client = client.with_bearer(&token).unwrap().with_resends(1_000);
            let serving = async {
                answer(asked(&listener).await, status, &body).await;
                let run = clock.run();
                let again = asked(&listener);
                tokio::select! {
                    _ = again => panic!("{status}: it asks again"),
                    _ = run => {}
                }
            };
            let mut ignored = |_: &Message| {};
            let asking = async {
                match asks {
                    "send" => client.send(&task, &mut ignored).await,
                    "status" => client.status(&task).await.map(Some),
                    _ => client.follow(&task, &mut ignored).await,
                }
            };
            let answer = tokio::select! {
                biased;
                answer = asking => answer,
                () = serving => panic!("never"),
            };
            match answer {
                Ok(Some(Message::Nack(nack))) => {
                    assert!(is_known && nack.code == ErrorCode::Unauthorized);
                }
                Err(SendError::Credentials { status: seen }) => {
                    assert!(!is_known && status.starts_with(&seen.to_string()));
                }
                answer => panic!("{status}: {answer:?}"),
            }
        }
    }
}

/// Of two signatures nobody knows which one is meant.
#[cfg(all(feature = "sign", feature = "mcp"))]
// spec: SAP-2-4
#[tokio::test]
async fn a_signature_that_comes_twice_is_none() {
    use super::super::world::{Signatures, signed_service};
    let (seen, signatures) = (Seen::default(), Signatures::new());
    let server = OverHttp::of(signed_service(&seen), http::Config::default()).await;
    let task = ask(1, "test.echo");
    let signature = signatures.desk.sign_task(&typed(&task.to_string()));
    let signature = signature.unwrap().to_string();
    for (times, wanted) in [(2, 401), (1, 200)] {
        let headers = vec![("sap-signature", signature.as_str()); times];
        let mut request = server.plain.post(&server.url).body(task.to_string());
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let status = request.send().await.unwrap().status();
        assert_eq!(status.as_u16(), wanted, "{times}");
    }
}
