//! Who stops a task on NATS, and whose word is not lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use sap::processor::{self, Access, Authorize, Peer};
use sap::transport::nats::Queue;
use sap::transport::{Message, Service};
use sap::{Status, Task};
use tokio::task::JoinHandle;
use ubos_common::trace_context::TraceContext;

use super::nats::{Nats, config, work};
use super::nats_faults::until_kept;
use super::suite::until;
use super::world::{Real, Seen, ask, typed};

/// Takes what comes from a place in a trace; of anything else it thinks for so long, and refuses it.
#[derive(Debug, Default)]
struct Traced {
    thinks: Duration,
    asked: Arc<AtomicUsize>,
}

impl Authorize for Traced {
    fn authorize<'a>(&'a self, peer: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if peer.trace.is_some() {
                return Access::Allowed;
            }
            tokio::time::sleep(self.thinks).await;
            Access::Forbidden
        })
    }
}

/// Takes what comes from a place in a trace; about anything else it never comes to an end the first time, and refuses it then.
#[derive(Debug, Default)]
struct Hesitant(AtomicUsize);

impl Authorize for Hesitant {
    fn authorize<'a>(&'a self, peer: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        Box::pin(async move {
            if peer.trace.is_some() {
                return Access::Allowed;
            }
            if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
                core::future::pending::<()>().await;
            }
            Access::Forbidden
        })
    }
}

/// Takes what comes from a place in a trace, and is busy with anything else. Who asks without a pause is refused in the end.
#[derive(Debug, Default)]
struct Overloaded(Arc<AtomicUsize>);

impl Authorize for Overloaded {
    fn authorize<'a>(&'a self, peer: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        let access = match &peer.trace {
            Some(_) => Access::Allowed,
            None if self.0.fetch_add(1, Ordering::SeqCst) < MAX_ASKED => Access::Busy,
            None => Access::Forbidden,
        };
        Box::pin(std::future::ready(access))
    }
}

/// Far more often than anybody asks who pauses in between.
const MAX_ASKED: usize = 100_000;

/// The queue of one whose tasks are taken.
fn traced(queue: &Queue) -> Queue {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let trace = TraceContext::read(parent, ["a=1"]).unwrap();
    queue.clone().with_trace(trace)
}

fn worker(queue: &Queue, seen: &Seen, authorize: impl Authorize + 'static) -> JoinHandle<()> {
    let processor = seen.processor(processor::Config::default());
    let processor = processor.authorize(Arc::new(authorize));
    let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
    work(queue, service)
}

/// What a task comes to, which does not take for ever.
async fn end(queue: &Queue, task: &Task) -> Status {
    let mut ignored = |_: &Message| {};
    let sent = queue.send(task, &mut ignored);
    let answer = tokio::time::timeout(Duration::from_secs(300), sent).await;
    match answer.expect("an end").unwrap() {
        Some(Message::Result(result)) => result.status,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_task_that_waits_is_cancelled_by_its_own_user_and_never_runs() {
    let nats = Nats::start();
    let (mine, other) = (
        nats.queue(config().with_user("mine")).await,
        nats.queue(config().with_user("other")).await,
    );
    let seen = Seen::default();
    let tasks: Vec<Task> = (1..=3)
        .map(|number| typed(&ask(number, "test.echo").to_string()))
        .collect();
    let [cancelled, kept, changed] = tasks.as_slice() else {
        panic!("three tasks")
    };
    let worker = std::sync::Mutex::new(None);
    let mut like_it = changed.clone();
    like_it.tags = Some(vec!["other".into()]);
    let asking = async {
        until_kept(&nats, "sap_tasks", 3).await;
        assert_eq!(mine.cancel(cancelled).await.unwrap(), None);
        assert_eq!(other.cancel(kept).await.unwrap(), None);
        // Of the same id, and another task.
        assert_eq!(mine.cancel(&like_it).await.unwrap(), None);
        let service = seen.service_of(processor::Config::default());
        worker.lock().unwrap().replace(work(&mine, service));
    };
    let send = async |task: &Task| match mine.send(task, &mut |_| {}).await.unwrap() {
        Some(Message::Result(result)) => result.status,
        other => panic!("{other:?}"),
    };
    let (first, second, third, ()) =
        tokio::join!(send(cancelled), send(kept), send(changed), asking);
    assert_eq!(
        (first, second, third),
        (Status::Cancelled, Status::Succeeded, Status::Succeeded)
    );
    assert_eq!(seen.calls(), 2);
    let worker = worker.lock().unwrap().take();
    worker.unwrap().abort();
}

// spec: SAP-5-8, SAP-10-4
#[tokio::test]
async fn a_cancel_of_another_task_or_of_nobody_displaces_none() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let nobody = nats.queue(config()).await;
    let mine = traced(&nobody);
    let task = |number| typed(&ask(number, "test.echo").to_string());
    let (displaced, refused) = (task(1), task(2));
    let authorize = Traced::default();
    let asked = Arc::clone(&authorize.asked);
    let mut like_it = displaced.clone();
    like_it.tags = Some(vec!["other".into()]);
    let asking = async {
        until_kept(&nats, "sap_tasks", 2).await;
        assert_eq!(mine.cancel(&displaced).await.unwrap(), None);
        assert_eq!(mine.cancel(&like_it).await.unwrap(), None);
        for queue in [&nobody, &nobody, &nobody, &mine, &nobody] {
            assert_eq!(queue.cancel(&refused).await.unwrap(), None);
        }
        Some(worker(&mine, &seen, authorize))
    };
    let (first, second, worker) =
        tokio::join!(end(&mine, &displaced), end(&mine, &refused), asking);
    assert_eq!((first, second), (Status::Cancelled, Status::Cancelled));
    assert_eq!(seen.calls(), 0);
    // About each task and each who may, and once about who says the same three times.
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked <= 5, "asked {asked} times");
    worker.unwrap().abort();
}

// spec: SAP-5-8, SAP-10-4
#[tokio::test]
async fn a_cancel_behind_many_of_nobody_stops_the_task_that_runs() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let nobody = nats.queue(config()).await;
    let mine = traced(&nobody);
    let authorize = Traced {
        thinks: Duration::from_millis(300),
        ..Traced::default()
    };
    let worker = worker(&mine, &seen, authorize);
    let task = typed(&ask(1, "test.gate").to_string());
    let asking = async {
        until(|| seen.entries() >= 3).await;
        for _ in 0..10 {
            nobody.cancel(&task).await.unwrap();
        }
        mine.cancel(&task).await.unwrap();
    };
    let (ended, ()) = tokio::join!(end(&mine, &task), asking);
    assert_eq!(ended, Status::Cancelled);
    worker.abort();
}

/// Nobody is woken for it: it was stored before.
// spec: SAP-5-8, SAP-10-4
#[tokio::test]
async fn a_cancel_that_was_not_looked_at_in_time_stops_the_task_once_it_runs() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let nobody = nats.queue(config()).await;
    let mine = traced(&nobody);
    let task = typed(&ask(1, "test.gate").to_string());
    let asking = async {
        until_kept(&nats, "sap_tasks", 1).await;
        nobody.cancel(&task).await.unwrap();
        mine.cancel(&task).await.unwrap();
        Some(worker(&mine, &seen, Hesitant::default()))
    };
    let (ended, worker) = tokio::join!(end(&mine, &task), asking);
    assert_eq!(ended, Status::Cancelled);
    worker.unwrap().abort();
}

/// It is asked again, and what the worker does goes on meanwhile.
#[tokio::test]
async fn a_hook_that_is_busy_with_a_cancel_holds_up_no_task() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let nobody = nats.queue(config()).await;
    let mine = traced(&nobody);
    let hook = Overloaded::default();
    let asked = Arc::clone(&hook.0);
    let worker = worker(&mine, &seen, hook);
    let task = typed(&ask(1, "test.gate").to_string());
    let asking = async {
        until(|| seen.entries() >= 3).await;
        nobody.cancel(&task).await.unwrap();
        until(|| asked.load(Ordering::SeqCst) >= 2).await;
        seen.gate.store(true, Ordering::SeqCst);
    };
    let (ended, ()) = tokio::join!(end(&mine, &task), asking);
    assert_eq!(ended, Status::Succeeded);
    assert!(asked.load(Ordering::SeqCst) < MAX_ASKED);
    worker.abort();
}
