//! The same conversation over every transport: the same bytes.

use opensentience_wire::Grant;
use opensentience_wire::role::core::{CallRequest, Config};
use opensentience_wire::transport::tokio::{AuditSink, Loopback, attach};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use ubos_common::id::IdSource;
use ubos_common::os::Clock;

use crate::kit::{AGENT, frame, hello, message, object, token, tool};

/// One frame as it came, its times made equal.
async fn next(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let length = stream.read_u32().await.unwrap();
    let mut body = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    let text = String::from_utf8(body).unwrap();
    let (before, rest) = text.split_once("\"ts\":\"").unwrap();
    let (_, after) = rest.split_once('"').unwrap();
    [
        &length.to_be_bytes()[..],
        before.as_bytes(),
        after.as_bytes(),
    ]
    .concat()
}

/// A core with ids of its own seed on one end, an agent of raw bytes on the other; gives what the core sent.
async fn talk(
    core: impl AsyncRead + AsyncWrite + Send + 'static,
    mut agent: impl AsyncRead + AsyncWrite + Unpin,
) -> Vec<Vec<u8>> {
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let attached = tokio::spawn(attach(
        core,
        clock,
        Config::default(),
        IdSource::seeded(5),
        grant,
        AuditSink::default(),
    ));
    agent.write_all(&frame(&hello())).await.unwrap();
    let mut heard = vec![next(&mut agent).await];
    let mut handle = attached.await.unwrap().unwrap();
    let register = message("agent.tools.register", json!({"tools": [tool("echo")]}));
    agent.write_all(&frame(&register)).await.unwrap();
    heard.push(next(&mut agent).await);
    assert!(handle.tools_changed().await);
    let input = object(&json!({"text": "gr\u{fc}\u{df} \u{1f600}", "long": "x".repeat(70_000)}));
    let mut request = CallRequest::new(format!("{AGENT}/echo"), input);
    request.request_id = Some("r-1".into());
    let call = handle.call(request).await.unwrap();
    heard.push(next(&mut agent).await);
    let body: &str = call.id().as_ref();
    let result = message(
        "agent.tool.result",
        json!({"call_id": body, "status": "succeeded", "output": {}}),
    );
    agent.write_all(&frame(&result)).await.unwrap();
    assert!(call.result().await.by_agent);
    let closing = tokio::spawn(handle.shutdown());
    heard.push(next(&mut agent).await);
    drop(agent);
    closing.await.unwrap();
    heard
}

// spec: OSW-1-1
#[tokio::test]
async fn unix_sockets_loopback_tcp_and_memory_carry_the_same_bytes() {
    let (core, agent) = UnixStream::pair().unwrap();
    let over_unix = talk(core, agent).await;
    let (core, agent) = tokio::io::duplex(1_000);
    let in_memory = talk(core, agent).await;
    let loopback = Loopback::bind("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let address = loopback.address().unwrap();
    let (core, agent) = tokio::join!(loopback.accept(), Loopback::connect(address));
    let (core, agent) = (core.unwrap(), agent.unwrap());
    // Small frames do not wait for each other.
    assert!(core.nodelay().unwrap() && agent.nodelay().unwrap());
    let over_tcp = talk(core, agent).await;
    assert_eq!(over_unix.len(), 4);
    assert_eq!(over_unix, in_memory);
    assert_eq!(over_unix, over_tcp);
}

// spec: OSW-1-1
#[tokio::test]
async fn tcp_is_for_this_machine_alone() {
    for far in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let address = far.parse().unwrap();
        assert!(
            matches!(Loopback::bind(address).await, Err(error) if error.kind() == std::io::ErrorKind::InvalidInput),
            "{far}"
        );
        assert!(
            matches!(
                Loopback::connect(address).await,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidInput
            ),
            "{far}"
        );
    }
    assert!(Loopback::bind("[::1]:0".parse().unwrap()).await.is_ok());
}
