//! Whom a server knows, and what a fault of it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sap::processor::{AllowAll, Identity, Peer, Speakers};
use sap::transport::Service;

use super::super::world::{Faulty, Real};
use super::*;

// spec: SAP-11-2
#[tokio::test]
async fn the_peer_of_a_server_is_who_asks() {
    for (user, wanted) in [(7, None), (8, Some(ErrorCode::Unauthorized))] {
        let seen = Seen::default();
        let speakers = Speakers::new(Arc::new(AllowAll));
        let speakers = speakers.allow(Identity::UnixUser(7), "A-prime".parse().unwrap());
        let processor = seen.processor(Config::default());
        let processor = processor.authorize(Arc::new(speakers));
        let clock = Arc::new(Real::default());
        let mut peer = Peer::default();
        peer.unix_user = Some(user);
        let server = Server::from(Service::new(Arc::new(processor), clock));
        let (here, there) = tokio::io::duplex(1 << 21);
        let server = server.with_peer(peer).serve(there);
        let (answering, asking) = futures::future::join(server, ().serve(here)).await;
        let (_answering, asking) = (answering.unwrap(), asking.unwrap());
        let client = McpClient::new(asking.peer().clone());
        let task = typed(&ask(1, "test.echo").to_string());
        let answer = client.send(&task, &mut |_| {}).await.unwrap();
        let code = match answer {
            Some(Message::Nack(nack)) => Some(nack.code),
            _ => None,
        };
        assert_eq!(code, wanted);
    }
}

// spec: SAP-10-3
#[tokio::test]
async fn a_panic_beside_the_hooks_ends_its_own_call() {
    let (seen, clock) = (Seen::default(), Arc::new(Faulty::default()));
    let service = Service::new(Arc::new(seen.processor(Config::default())), clock.clone());
    let (here, there) = tokio::io::duplex(1 << 21);
    let server = Server::from(service).serve(there);
    let (answering, asking) = futures::future::join(server, ().serve(here)).await;
    let (_answering, asking) = (answering.unwrap(), asking.unwrap());
    let client = McpClient::new(asking.peer().clone());
    let task = typed(&ask(1, "test.echo").to_string());
    let mut told = |_: &Message| {};
    clock.is_broken.store(true, Ordering::SeqCst);
    let asked = async {
        (
            client.send(&task, &mut told).await,
            client.status(&task).await,
        )
    };
    let answered = tokio::time::timeout(Duration::from_secs(60), asked).await;
    let (sent, known) = answered.expect("both calls are answered");
    assert!(matches!(sent, Err(SendError::NoAnswer { .. })), "{sent:?}");
    assert!(
        matches!(known, Err(SendError::NoAnswer { .. })),
        "{known:?}"
    );
    clock.is_broken.store(false, Ordering::SeqCst);
    let task = typed(&ask(2, "test.echo").to_string());
    let answer = client.send(&task, &mut |_| {}).await.unwrap();
    assert!(matches!(answer, Some(Message::Result(_))), "{answer:?}");
}
