//! What became of a task, asked of a service.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join};
use sap::processor::{AllowAll, Config, Identity, Peer, Speakers};
use sap::transport::{Caller, Message, Service};
use sap::{AgentId, ErrorCode, TaskId};

use super::suite::until;
use super::world::{Real, Seen, ask, typed};

/// One who only sends.
struct Nobody(Peer);

impl Caller for Nobody {
    fn peer(&self) -> Peer {
        self.0.clone()
    }

    fn tell(&mut self, _: Message) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn prime() -> AgentId {
    "A-prime".parse().unwrap()
}

fn id(number: u16) -> TaskId {
    typed(&ask(number, "test.echo").to_string()).task_id
}

// spec: SAP-11-2
#[tokio::test]
async fn only_a_peer_that_may_send_a_task_is_told_of_it() {
    let seen = Seen::default();
    let speakers = Speakers::new(Arc::new(AllowAll)).allow(Identity::SameProcess, prime());
    let processor = seen.processor(Config::default());
    let processor = processor.authorize(Arc::new(speakers));
    let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
    let task = ask(1, "test.hang").to_string();
    let mut nobody = Nobody(Peer::same_process());
    let asking = async {
        until(|| seen.entries() == 2).await;
        let refused = service.about(&Peer::default(), &prime(), &id(1)).await;
        let unknown = service.about(&Peer::same_process(), &prime(), &id(2)).await;
        let (mut refused, unknown) = (refused.unwrap_err(), unknown.unwrap_err());
        assert_eq!(refused.code, ErrorCode::NotFound);
        // The one cannot be told from the other.
        refused.message_id = unknown.message_id;
        assert_eq!(refused, unknown);
        let about = service.about(&Peer::same_process(), &prime(), &id(1)).await;
        about.unwrap().cancel().await
    };
    let (served, _) = join(service.serve(task.as_bytes(), &mut nobody), asking).await;
    served.unwrap();
    let written = ["task", "RUNNING", "nack", "nack", "CANCELLED"];
    assert_eq!(seen.written(0), written);
}

#[tokio::test]
async fn one_who_asks_seldom_is_told_the_latest() {
    let seen = Seen::default();
    let service = seen.service_of(Config::default());
    let (task, peer) = (ask(1, "test.gate").to_string(), Peer::default());
    let mut nobody = Nobody(peer.clone());
    let asking = async {
        until(|| seen.entries() == 3).await;
        let mut about = service.about(&peer, &prime(), &id(1)).await.unwrap();
        let mut others = Vec::new();
        for _ in 0..1_024 {
            let mut other = service.about(&peer, &prime(), &id(1)).await.unwrap();
            assert!(other.next().now_or_never().flatten().is_some());
            others.push(Box::pin(async move { other.next().await }));
        }
        // As many as may wait for what comes next.
        for other in &mut others {
            assert!(other.now_or_never().is_none());
        }
        let mut one_more = service.about(&peer, &prime(), &id(1)).await.unwrap();
        assert!(matches!(one_more.next().await, Some(Message::Result(_))));
        let Some(Message::Nack(refused)) = one_more.next().await else {
            panic!("a Nack")
        };
        let why = "1024 follow this task already; ask for its status";
        assert_eq!(
            (refused.code, refused.reason.as_str()),
            (ErrorCode::RateLimit, why)
        );
        assert!(one_more.next().await.is_none());
        // Those who are gone make room.
        others.clear();
        let mut again = service.about(&peer, &prime(), &id(1)).await.unwrap();
        assert!(again.next().await.is_some());
        assert!(again.next().now_or_never().is_none());
        seen.gate.store(true, Ordering::SeqCst);
        until(|| seen.entries() == 4).await;
        // It was told nothing while the task ran, and what was said then is left out.
        let Some(Message::Result(end)) = about.next().await else {
            panic!("a result")
        };
        assert!(end.status.is_terminal());
        assert!(about.next().await.is_none());
    };
    let (served, ()) = join(service.serve(task.as_bytes(), &mut nobody), asking).await;
    served.unwrap();
}
