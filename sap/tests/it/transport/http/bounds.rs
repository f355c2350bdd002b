//! Peers that are silent, slow, or not meant: time, places and names.

use super::*;

// spec: SAP-10-2
#[tokio::test]
async fn a_server_reads_what_is_meant_for_it_and_comes_in_time() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let seen = Seen::default();
    let timeout = |timeout| http::Config::default().with_body_timeout(timeout);
    let hasty = timeout(Duration::from_millis(1));
    let hasty = OverHttp::with(&seen, Config::default(), hasty).await;
    // What it answers was not waited for, and what is whole comes in time on any machine.
    let patient = timeout(Duration::from_secs(3_600));
    let patient = OverHttp::with(&seen, Config::default(), patient).await;
    let address = |server: &OverHttp| server.url.replace("http://", "").replace("/sap/tasks", "");
    let (to_hasty, to_patient) = (address(&hasty), address(&patient));
    for (address, host, length, wanted) in [
        (&to_patient, "evil.example", 10, "403"),
        // Nothing of the body is waited for.
        (&to_patient, to_patient.as_str(), 1 << 30, "413"),
        // Only a part of the body comes.
        (&to_hasty, to_hasty.as_str(), 10, "408"),
    ] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = "Content-Type: application/json\r\nConnection: close";
        let request = format!(
            "POST /sap/tasks HTTP/1.1\r\nHost: {host}\r\n{head}\r\nContent-Length: {length}\r\n\r\n{{"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(
            std::str::from_utf8(&answer).unwrap(),
            format!("HTTP/1.1 {wanted}")
        );
    }
    let foreign = [("origin", "https://evil.example")];
    let task = ask(1, "test.echo").to_string();
    assert_eq!(
        patient.post(task.clone(), &foreign).await.status().as_u16(),
        403
    );
    assert_eq!(
        (seen.calls(), seen.written(0)),
        (0, vec!["nack".to_owned(); 4])
    );
    assert_eq!(patient.post(task, &[]).await.status().as_u16(), 200);
}

// spec: SAP-10-2
#[tokio::test]
async fn a_head_has_a_bound_of_bytes_and_of_headers() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = OverHttp::start(&Seen::default(), Config::default()).await;
    let address = server.url.replace("http://", "").replace("/sap/tasks", "");
    let head = |headers: String| format!("GET / HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
    let long = |bytes| format!("X: {}\r\n", "x".repeat(bytes));
    let many = |headers| "X: x\r\n".repeat(headers);
    for (headers, wanted) in [
        (long(60_000), "404"),
        (long(200_000), "431"),
        (many(90), "404"),
        (many(101), "431"),
    ] {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        // What is answered early is not read to its end.
        let _ = stream.write_all(head(headers).as_bytes()).await;
        let mut answer = [0; 12];
        match stream.read_exact(&mut answer).await {
            Ok(_) => {
                let answer = std::str::from_utf8(&answer).unwrap();
                assert_eq!(answer, format!("HTTP/1.1 {wanted}"));
            }
            // Closed with a rest that was not read, its answer may be lost.
            Err(_) => assert_eq!(wanted, "431"),
        }
    }
}

// spec: SAP-10-2
#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let seen = Seen::default();
    let hasty = http::Config::default().with_head_timeout(Duration::from_millis(50));
    let server = OverHttp::with(&seen, Config::default(), hasty).await;
    let address = server.url.replace("http://", "").replace("/sap/tasks", "");
    let idle = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
    for begun in [
        "",
        "POST /sap",
        "POST /sap/tasks HTTP/1.1\r\nHost: a\r\n",
        &idle,
    ] {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        // Ends where the server closes it.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
}

/// Asks for what is not there, on a connection that stays open.
async fn ask_nothing(stream: &mut tokio::net::TcpStream, address: &str) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 404"));
}

// spec: SAP-10-2
#[tokio::test]
async fn connections_above_the_bound_wait_for_a_place() {
    let seen = Seen::default();
    let few = http::Config::default()
        .with_max_connections(2)
        .with_max_connections_of_address(2)
        .with_head_timeout(Duration::from_secs(3_600));
    let server = OverHttp::with(&seen, Config::default(), few).await;
    let address = server.url.replace("http://", "").replace("/sap/tasks", "");
    let mut first = tokio::net::TcpStream::connect(&address).await.unwrap();
    let mut second = tokio::net::TcpStream::connect(&address).await.unwrap();
    // Each has its place when it was answered.
    ask_nothing(&mut second, &address).await;
    let mut posting = std::pin::pin!(server.post(ask(1, "test.echo").to_string(), &[]));
    // The runtime looks at every connection once for each of these answers.
    let many_turns = async {
        for _ in 0..50 {
            ask_nothing(&mut first, &address).await;
        }
    };
    tokio::select! {
        answer = &mut posting => panic!("{answer:?}"),
        () = many_turns => {}
    }
    assert_eq!(seen.calls(), 0);
    drop(first);
    assert_eq!(posting.await.status().as_u16(), 200);
}

/// A connection from one of the addresses of this machine.
async fn connect_from(from: &str, to: &str) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    socket.connect(to.parse().unwrap()).await.unwrap()
}

// spec: SAP-10-2
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_address_that_opens_all_it_can_leaves_its_neighbours_their_places() {
    use tokio::io::AsyncReadExt as _;
    let seen = Seen::default();
    let shared = http::Config::default()
        .with_max_connections(4)
        .with_head_timeout(Duration::from_secs(3_600));
    let server = OverHttp::with(&seen, Config::default(), shared).await;
    let address = server.url.replace("http://", "").replace("/sap/tasks", "");
    let all = async {
        let mut open = Vec::new();
        for _ in 0..2 {
            let mut stream = connect_from("127.0.0.1", &address).await;
            ask_nothing(&mut stream, &address).await;
            open.push(stream);
        }
        // Half of all is what one address has, and each more is closed.
        for _ in 0..8 {
            let mut more = connect_from("127.0.0.1", &address).await;
            assert!(more.read_u8().await.is_err());
        }
        let mut neighbour = connect_from("127.0.0.2", &address).await;
        ask_nothing(&mut neighbour, &address).await;
        // One that goes makes room for another of the same address.
        drop(open.pop());
        loop {
            let mut again = connect_from("127.0.0.1", &address).await;
            let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
            let _ = tokio::io::AsyncWriteExt::write_all(&mut again, request.as_bytes()).await;
            if again.read_u8().await.is_ok() {
                break;
            }
        }
    };
    let served = tokio::time::timeout(Duration::from_secs(60), all).await;
    served.expect("one address has all places");
}

#[tokio::test]
async fn bodies_for_routes_beside_must_come_in_time_too() {
    use axum::routing::post;
    use tokio::io::AsyncWriteExt as _;
    let seen = Seen::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = http::Config::default()
        .with_max_connections(2)
        .with_max_connections_of_address(2)
        .with_body_timeout(Duration::from_millis(100));
    let beside = axum::Router::new().route("/mcp", post(async |body: String| body));
    let service = seen.service_of(Config::default());
    let serving = http::serve_with(listener, service, config, beside, std::future::pending());
    #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
    let server = tokio::spawn(serving);
    let mut stalled = Vec::new();
    for _ in 0..2 {
        let head =
            format!("POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Length: 100\r\n\r\n{{");
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stalled.push(stream);
    }
    let task = typed(&ask(1, "test.echo").to_string());
    let client = HttpClient::new(&format!("http://{address}/sap/tasks")).unwrap();
    let answered = async {
        // On a busy machine what is whole may come late, too.
        loop {
            let answer = client.send(&task, &mut |_| {}).await.unwrap();
            if let Some(Message::Result(_)) = answer {
                break;
            }
        }
        let whole = || plain().post(format!("http://{address}/mcp")).body("whole");
        while whole().send().await.unwrap().text().await.unwrap() != "whole" {}
    };
    let answered = tokio::time::timeout(Duration::from_secs(60), answered).await;
    answered.expect("the places are free again");
    server.abort();
}

#[tokio::test]
async fn a_server_on_every_address_answers_for_addresses_and_no_name() {
    let seen = Seen::default();
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = seen.service_of(Config::default());
    let config = http::Config::default();
    let serving = serve(listener, service, config, std::future::pending());
    #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
    let server = tokio::spawn(serving);
    let url = format!("http://127.0.0.1:{port}/sap/tasks");
    for (host, wanted) in [
        ("evil.example".to_owned(), 403),
        (format!("evil.example:{port}"), 403),
        ("127.0.0.1.evil.example".to_owned(), 403),
        (format!("192.0.2.7:{port}"), 200),
        (format!("[2001:db8::1]:{port}"), 200),
        (format!("localhost:{port}"), 200),
        (format!("127.0.0.1:{port}"), 200),
    ] {
        let request = plain()
            .post(&url)
            .header("content-type", "application/json")
            .header("origin", format!("http://{host}"))
            .header("host", &host);
        let answer = request.body(ask(1, "test.echo").to_string()).send().await;
        assert_eq!(answer.unwrap().status().as_u16(), wanted, "{host}");
    }
    server.abort();
}
