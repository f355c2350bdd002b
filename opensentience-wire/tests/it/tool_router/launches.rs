//! Launches that cross each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use opensentience_wire::message::Status;
use opensentience_wire::role::router::{Config, RestartPolicy};
use opensentience_wire::transport::tokio::{AgentSource, Launcher, ToolRouter};
use serde_json::json;

use super::{call, code, launcher};

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
