//! Launches that cross each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opensentience_wire::message::Status;
use opensentience_wire::role::router::{Config, RestartPolicy};
use opensentience_wire::transport::tokio::{AgentSource, Launcher, ToolRouter};
use opensentience_wire::{AuditEvent, AuditName};
use serde_json::json;

use super::{builder, call, code, launcher, request};

/// Longer than a router waits before it launches an agent again for the first time.
fn slow(agent: &str) -> Launcher {
    Launcher::new(agent, "/bin/sh")
        .args(["-c", "sleep 3; exec \"$0\" \"$@\""])
        .args([std::env::current_exe().unwrap()])
        .args(["transport::agent_process", "--exact", "--nocapture"])
}

// spec: OSW-4.5-3
#[tokio::test]
async fn an_agent_that_dies_while_another_takes_its_place_is_not_launched_again() {
    let launches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&launches);
    let config = Config::default().with_restart(RestartPolicy::OnFailure);
    let router = ToolRouter::builder(config).agent("com.example.a", move || {
        counted.fetch_add(1, Ordering::Relaxed);
        launcher("com.example.a")
    });
    let router = router.start().unwrap();
    router.ready().await;
    let (replaced, died) = tokio::join!(
        router.replace(AgentSource::new("com.example.a", || slow("com.example.a"))),
        call(&router, "com.example.a/die", json!({}))
    );
    replaced.unwrap();
    assert_eq!(code(died), "agent.disconnected");
    assert_eq!(launches.load(Ordering::Relaxed), 1);
    let echo = call(&router, "com.example.a/echo", json!({})).await;
    assert_eq!(echo.status, Status::Succeeded);
    router.shutdown().await;
}

#[tokio::test]
async fn a_router_that_closes_launches_nobody_again() {
    let (events, mut records) = tokio::sync::mpsc::unbounded_channel();
    let (launched, mut launches) = tokio::sync::mpsc::unbounded_channel();
    let config = Config::default().with_restart(RestartPolicy::Always);
    let router = builder(config, &["com.example.idle", "com.example.busy"])
        .agent("com.example.none", move || {
            let _ = launched.send(());
            Launcher::new("com.example.none", "/nowhere/agent")
        })
        .with_audit(move |event: AuditEvent| drop(events.send(event)))
        .start()
        .unwrap();
    router.ready().await;
    let block = request("com.example.busy/block", json!({}));
    let busy = router.call(block).await.unwrap();
    let closing = tokio::spawn(router.shutdown());
    // Nobody else ends in good order before the router closes.
    while records.recv().await.unwrap().name != AuditName::RunStopped {}
    while launches.try_recv().is_ok() {}
    // It was waiting for its next launch, which would be due by now.
    let again = tokio::time::timeout(Duration::from_secs(3), launches.recv()).await;
    assert!(again.is_err() || again == Ok(None));
    busy.cancel();
    closing.await.unwrap();
}
