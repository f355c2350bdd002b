//! Several real processes behind one handle.

mod launches;
mod manifest;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use opensentience_wire::message::{Health, Status};
use opensentience_wire::role::core::{CallRequest, Config as CoreConfig, Event, Outcome};
use opensentience_wire::role::router::{AgentPolicy, Config, Quota, Refused, RestartPolicy};
use opensentience_wire::transport::tokio::{
    AddError, AgentSource, AuditSink, LaunchError, Launcher, ToolRouter, ToolRouterBuilder,
};
use opensentience_wire::{AuditEvent, AuditName, Share};
use serde_json::json;

use crate::kit::object;
use crate::transport::{PATIENCE, patient};

fn launcher(agent: &str) -> Launcher {
    Launcher::new(agent, std::env::current_exe().unwrap())
        .args(["transport::agent_process", "--exact", "--nocapture"])
        .with_config(patient())
        .with_stop_timeout(Duration::from_millis(300))
}

fn builder(config: Config, agents: &[&'static str]) -> ToolRouterBuilder {
    agents
        .iter()
        .fold(ToolRouter::builder(config), |builder, agent| {
            builder.agent(agent, || launcher(agent))
        })
}

fn request(tool: &str, input: serde_json::Value) -> CallRequest {
    CallRequest::new(tool, object(&input))
}

async fn call(router: &ToolRouter, tool: &str, input: serde_json::Value) -> Outcome {
    let call = router.call(request(tool, input)).await.unwrap();
    call.result().await
}

fn code(outcome: Outcome) -> String {
    outcome.error.unwrap().code.to_string()
}

#[tokio::test]
async fn calls_reach_the_agent_that_has_the_tool() {
    let router = builder(Config::default(), &["com.example.a", "com.example.b"]);
    let router = router.start().unwrap();
    router.ready().await;
    let view = router.view();
    assert_eq!(view.agents.len(), 2);
    assert!(view.agents.values().all(|agent| agent.health == Health::Ok));
    let (a, b) = tokio::join!(
        call(&router, "com.example.a/environment", json!({})),
        call(&router, "com.example.b/environment", json!({}))
    );
    let pid = |outcome: Outcome| -> serde_json::Value {
        outcome
            .into_result()
            .unwrap()
            .deserialize::<serde_json::Value>()
            .unwrap()["pid"]
            .clone()
    };
    assert_ne!(pid(a), pid(b));
    let refused = router.call(request("com.example.c/echo", json!({}))).await;
    assert!(matches!(refused, Err(Refused::ToolNotFound { .. })));
    router.shutdown().await;
}

#[tokio::test]
async fn pieces_come_in_order_and_a_dropped_call_is_cancelled() {
    let router = builder(Config::default(), &["com.example.a"])
        .start()
        .unwrap();
    router.ready().await;
    let count = request("com.example.a/count", json!({"n": 500}));
    let mut counting = router.call(count).await.unwrap();
    let mut seen = 0;
    while let Some(chunk) = counting.next_chunk().await {
        seen += 1;
        assert_eq!(chunk.data.text.unwrap(), format!("line {seen}"));
    }
    assert_eq!(seen, 500);
    assert_eq!(counting.result().await.status, Status::Succeeded);
    let mut blocked = router
        .call(request("com.example.a/block", json!({})))
        .await
        .unwrap();
    assert!(blocked.next_chunk().await.is_some());
    blocked.cancel();
    assert_eq!(blocked.result().await.status, Status::Canceled);
    drop(
        router
            .call(request("com.example.a/block", json!({})))
            .await
            .unwrap(),
    );
    // It would wait for the drain time if that call went on.
    router.shutdown().await;
}

#[tokio::test]
async fn what_is_kept_for_an_agent_is_shown_and_given_back() {
    let config = Config::default().with_restart(RestartPolicy::Always);
    let router = builder(config, &["com.example.a"]).start().unwrap();
    router.ready().await;
    let ledger = router.view().agents["com.example.a"].ledger.clone();
    let held = |share| ledger.held_bytes_of(share);
    assert!(held(Share::Tools) > 0);
    let long = |tool: &str| {
        let text = "x".repeat(10_000);
        let mut request = request(&format!("com.example.a/{tool}"), json!({"text": text}));
        request.idempotency_key = Some("k".into());
        router.call(request)
    };
    let mut blocked = long("block").await.unwrap();
    blocked.next_chunk().await.unwrap();
    assert!(held(Share::Calls) > 10_000, "the input of a key is kept");
    assert_eq!(held(Share::Output), 0, "it was taken");
    blocked.cancel();
    assert_eq!(blocked.result().await.status, Status::Canceled);
    let mut echo = long("echo").await.unwrap();
    assert!(echo.next_chunk().await.is_none(), "it has ended");
    assert!(held(Share::Results) > 10_000);
    assert!(held(Share::Remembered) > 20_000, "input and output");
    assert_eq!(echo.result().await.status, Status::Succeeded);
    assert_eq!(held(Share::Results), 0);
    while held(Share::Calls) + held(Share::Output) > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The next one of its id has the same account.
    let died = call(&router, "com.example.a/die", json!({})).await;
    assert_eq!(code(died), "agent.disconnected");
    router.shutdown().await;
    assert_eq!(ledger.held_bytes(), 0, "{ledger:?}");
}

#[tokio::test]
async fn output_that_nobody_takes_holds_up_its_agent() {
    let router = builder(Config::default(), &["com.example.a"]);
    let router = router.start().unwrap();
    router.ready().await;
    let count = request("com.example.a/count", json!({"n": 20_000}));
    let mut counting = router.call(count).await.unwrap();
    loop {
        let mut echo = request("com.example.a/echo", json!({}));
        echo.timeout = Some(Duration::from_millis(200));
        let outcome = router.call(echo).await.unwrap().result().await;
        if outcome.status != Status::Succeeded {
            assert_eq!(code(outcome), "tool.timeout");
            break;
        }
    }
    let mut seen = 0;
    while counting.next_chunk().await.is_some() {
        seen += 1;
    }
    assert_eq!(seen, 20_000);
    let echo = call(&router, "com.example.a/echo", json!({})).await;
    assert_eq!(echo.status, Status::Succeeded);
    router.shutdown().await;
}

// spec: OSW-4.5-3
#[tokio::test]
async fn an_agent_that_dies_ends_its_calls_and_is_launched_again() {
    let records = Arc::new(Mutex::new(Vec::new()));
    let audit = {
        let records = Arc::clone(&records);
        AuditSink::from(move |event: AuditEvent| {
            records.lock().unwrap().push(event.name.to_string())
        })
    };
    let config = Config::default().with_restart(RestartPolicy::OnFailure);
    let router = builder(config, &["com.example.a", "com.example.b"]);
    let mut router = router.with_audit(audit).start().unwrap();
    router.ready().await;
    let waiting = router
        .call(request("com.example.a/block", json!({})))
        .await
        .unwrap();
    let died = call(&router, "com.example.a/die", json!({})).await;
    assert_eq!(code(died), "agent.disconnected");
    assert_eq!(code(waiting.result().await), "agent.disconnected");
    assert_eq!(
        call(&router, "com.example.b/echo", json!({})).await.status,
        Status::Succeeded
    );
    // The view may still show the one that died: wait for its successor first.
    let started = || {
        let records = records.lock().unwrap();
        let is_start = |record: &&String| *record == "agent.run_started";
        records.iter().filter(is_start).count()
    };
    while started() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while router.view().agents.len() < 2 {
        assert!(router.view_changed().await);
    }
    let again = call(&router, "com.example.a/echo", json!({})).await;
    assert_eq!(again.status, Status::Succeeded);
    router.stop("com.example.b").await;
    while router.view().agents.len() > 1 {
        assert!(router.view_changed().await);
    }
    router.shutdown().await;
    let records = records.lock().unwrap();
    let seen = |name: &str| records.iter().filter(|record| *record == name).count();
    assert_eq!(
        (
            seen("agent.run_started"),
            seen("agent.run_crashed"),
            seen("agent.run_stopped")
        ),
        (3, 1, 2)
    );
}

// spec: OSW-4.5-3
// spec: OSW-5-3
#[tokio::test]
async fn restart_policy_and_environment_are_those_of_the_agent() {
    let greeting = |agent: &'static str, text: &'static str| {
        AgentSource::new(agent, move || launcher(agent).env("GREETING", text))
    };
    let always = AgentPolicy::default().with_restart(RestartPolicy::Always);
    let router = ToolRouter::builder(Config::default())
        .with_agent(greeting("com.example.a", "hello").with_policy(always))
        .with_agent(greeting("com.example.b", "good day"))
        .with_agent(source("com.example.c"));
    let mut router = router.start().unwrap();
    router.ready().await;
    let said = async |router: &ToolRouter, agent: &str| -> serde_json::Value {
        let environment = request(&format!("{agent}/environment"), json!({}));
        let seen: serde_json::Value = router.ask(environment).await.unwrap();
        seen["greeting"].clone()
    };
    assert_eq!(said(&router, "com.example.a").await, "hello");
    assert_eq!(said(&router, "com.example.b").await, "good day");
    assert_eq!(said(&router, "com.example.c").await, json!(null));
    for agent in ["com.example.a", "com.example.b"] {
        let died = call(&router, &format!("{agent}/die"), json!({})).await;
        assert_eq!(code(died), "agent.disconnected");
    }
    // One of them comes back, and has its environment again. Between the two its tools are expected.
    let again = async {
        loop {
            let echo = request("com.example.a/echo", json!({}));
            match router.call(echo).await {
                Ok(call) => {
                    if call.result().await.status == Status::Succeeded {
                        break;
                    }
                }
                Err(refused) => assert_eq!(refused, Refused::Unavailable),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, again).await.unwrap();
    assert_eq!(said(&router, "com.example.a").await, "hello");
    while router.view().agents.contains_key("com.example.b") {
        assert!(router.view_changed().await);
    }
    let refused = router.call(request("com.example.b/echo", json!({}))).await;
    assert!(matches!(refused, Err(Refused::ToolNotFound { .. })));
    router.shutdown().await;
}

#[tokio::test]
async fn a_program_that_is_none_is_tried_again_and_the_others_serve() {
    let launches = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&launches);
    let config = Config::default().with_restart(RestartPolicy::Always);
    let router = builder(config, &["com.example.a"]).agent("com.example.none", move || {
        *counted.lock().unwrap() += 1;
        Launcher::new("com.example.none", "/nowhere/agent")
    });
    let router = router.start().unwrap();
    router.ready().await;
    // The first launch is over, and maybe others by now.
    while *launches.lock().unwrap() < 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let echo = call(&router, "com.example.a/echo", json!({})).await;
    assert_eq!(echo.status, Status::Succeeded);
    router.shutdown().await;
}

#[tokio::test]
async fn quotas_hold_and_a_key_runs_once() {
    let quota = Quota::default().with_concurrent(1);
    let config = Config::default().with_agent_quota(quota);
    let router = builder(config, &["com.example.a"]).start().unwrap();
    router.ready().await;
    let blocked = router
        .call(request("com.example.a/block", json!({})))
        .await
        .unwrap();
    let over = router.call(request("com.example.a/echo", json!({}))).await;
    let limit = Refused::ConcurrencyExceeded { limit: 1 };
    assert_eq!(over.unwrap_err(), limit);
    blocked.cancel();
    blocked.result().await;
    let keyed = || {
        let mut keyed = request("com.example.a/environment", json!({}));
        keyed.idempotency_key = Some("k".into());
        keyed
    };
    let first = router.call(keyed()).await.unwrap().result().await;
    let again = router.call(keyed()).await.unwrap().result().await;
    assert_eq!(first, again);
    router.shutdown().await;
}

#[tokio::test]
async fn the_router_is_there_at_once_and_ready_after_every_first_launch() {
    let config = Config::default().with_restart(RestartPolicy::Always);
    let slow = || {
        let program = std::env::current_exe().unwrap();
        Launcher::new("com.example.slow", "/bin/sh")
            .args(["-c", "sleep 2; exec \"$0\" \"$@\""])
            .args([program])
            .args(["transport::agent_process", "--exact", "--nocapture"])
            .with_config(patient())
    };
    let router = ToolRouter::builder(config)
        .agent("com.example.none", || {
            Launcher::new("com.example.none", "/nowhere/agent")
        })
        .agent("com.example.slow", slow);
    let router = router.start().unwrap();
    assert!(router.view().agents.is_empty());
    let early = router
        .call(request("com.example.slow/echo", json!({})))
        .await;
    assert!(matches!(early, Err(Refused::ToolNotFound { .. })));
    router.ready().await;
    assert!(router.view().agents.contains_key("com.example.slow"));
    router.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_launches() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let silent = move || {
        let patient = CoreConfig::default().with_handshake_timeout(minutes(10));
        Launcher::new("com.example.silent", "/bin/sleep")
            .args(["600"])
            .with_config(patient)
    };
    let router = ToolRouter::builder(Config::default()).agent("com.example.silent", silent);
    let router = router.start().unwrap();
    let ended = tokio::time::timeout(minutes(5), router.shutdown()).await;
    assert!(ended.is_ok());
}

// spec: OSW-4.5-3
#[tokio::test]
async fn an_agent_is_down_when_its_connection_ends_however_long_its_process_lives() {
    let lingering = || {
        let program = std::env::current_exe().unwrap();
        // The shell holds the process that was launched open after the agent has died.
        Launcher::new("com.example.a", "/bin/sh")
            .args(["-c", "trap '' TERM; \"$0\" \"$@\"; sleep 600"])
            .args([program])
            .args(["transport::agent_process", "--exact", "--nocapture"])
            .with_config(patient())
            .with_stop_timeout(Duration::from_secs(300))
    };
    let router = ToolRouter::builder(Config::default()).agent("com.example.a", lingering);
    let mut router = router.start().unwrap();
    router.ready().await;
    let died = call(&router, "com.example.a/die", json!({})).await;
    assert_eq!(code(died), "agent.disconnected");
    while !router.view().agents.is_empty() {
        assert!(router.view_changed().await);
    }
    assert_eq!(router.view().tools().count(), 0);
    let refused = router.call(request("com.example.a/echo", json!({}))).await;
    assert!(matches!(refused, Err(Refused::ToolNotFound { .. })));
}

// spec: OSW-4.5-3
#[tokio::test]
async fn an_agent_that_is_stopped_gets_no_calls_however_long_its_process_lives() {
    let lingering = || {
        let program = std::env::current_exe().unwrap();
        // The shell stays after the agent has said goodbye.
        Launcher::new("com.example.a", "/bin/sh")
            .args(["-c", "trap '' TERM; \"$0\" \"$@\"; sleep 600"])
            .args([program])
            .args(["transport::agent_process", "--exact", "--nocapture"])
            .with_config(patient())
            .with_stop_timeout(Duration::from_secs(300))
    };
    let config = Config::default().with_restart(RestartPolicy::Always);
    let router = ToolRouter::builder(config).agent("com.example.a", lingering);
    let mut router = router.start().unwrap();
    router.ready().await;
    router.stop("com.example.a").await;
    let gone = async {
        while !router.view().agents.is_empty() {
            assert!(router.view_changed().await);
        }
    };
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, gone).await.unwrap();
    assert_eq!(router.view().tools().count(), 0);
    let refused = router.call(request("com.example.a/echo", json!({}))).await;
    assert!(matches!(refused, Err(Refused::ToolNotFound { .. })));
}

#[tokio::test]
async fn a_router_leaves_the_observer_of_a_launcher_in_its_place() {
    let (events, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let observed = move || {
        let events = events.clone();
        launcher("com.example.a").with_observer(move |event: &Event| {
            let _ = events.send(event.clone());
        })
    };
    let router = ToolRouter::builder(Config::default()).agent("com.example.a", observed);
    let router = router.start().unwrap();
    router.ready().await;
    let echo = call(&router, "com.example.a/echo", json!({})).await;
    assert_eq!(echo.status, Status::Succeeded);
    router.shutdown().await;
    let mut ends = 0;
    while let Ok(event) = seen.try_recv() {
        ends += usize::from(matches!(event, Event::Ended(..)));
    }
    assert_eq!(ends, 1);
}

// An agent that reads nothing more takes no calls; those for it end all the same.
#[tokio::test]
async fn calls_that_cannot_be_sent_end_by_cancel_or_timeout() {
    let router = builder(Config::default(), &["com.example.a"])
        .start()
        .unwrap();
    router.ready().await;
    let freeze = request("com.example.a/freeze", json!({}));
    let frozen = router.call(freeze).await.unwrap();
    let text = "x".repeat(1_000_000);
    let echo = async |timeout: Option<Duration>| {
        let mut echo = request("com.example.a/echo", json!({"text": text}));
        echo.timeout = timeout;
        router.call(echo).await.unwrap()
    };
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.push(echo(None).await);
    }
    let canceled = echo(None).await;
    let late = echo(Some(Duration::from_millis(100))).await;
    canceled.cancel();
    let ends = async {
        assert_eq!(canceled.result().await.status, Status::Canceled);
        assert_eq!(code(late.result().await), "tool.timeout");
        router.shutdown().await;
    };
    tokio::time::timeout(Duration::from_secs(60), ends)
        .await
        .unwrap();
    drop((frozen, sent));
}

fn source(agent: &'static str) -> AgentSource {
    AgentSource::new(agent, move || launcher(agent))
}

/// An agent whose program is not there.
fn broken(agent: &'static str) -> AgentSource {
    AgentSource::new(agent, move || Launcher::new(agent, "/nowhere/agent"))
}

async fn pid(router: &ToolRouter, agent: &str) -> u64 {
    let environment = format!("{agent}/environment");
    let seen: serde_json::Value = router.ask(request(&environment, json!({}))).await.unwrap();
    seen["pid"].as_u64().unwrap()
}

async fn until_gone(pid: u64) {
    let path = format!("/proc/{pid}");
    while std::path::Path::new(&path).exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_agent_is_added_to_a_router_that_runs() {
    let config = Config::default().with_max_agents(2);
    let router = builder(config, &["com.example.a"]).start().unwrap();
    router.ready().await;
    let failed = router.add(broken("com.example.b")).await.unwrap_err();
    assert!(
        matches!(failed, AddError::Launch(LaunchError::Spawn { .. })),
        "{failed}"
    );
    assert_eq!(router.view().agents.len(), 1);
    let unknown = router.replace(source("com.example.b")).await.unwrap_err();
    assert_eq!(unknown.to_string(), "the router has no agent com.example.b");
    let (added, again, third) = tokio::join!(
        router.add(source("com.example.b")),
        router.add(source("com.example.b")),
        router.add(broken("com.example.c"))
    );
    added.unwrap();
    // It was not even launched.
    let third = third.unwrap_err();
    assert!(matches!(third, AddError::TooMany { limit: 2 }), "{third}");
    let again = again.unwrap_err();
    assert!(matches!(again, AddError::InProgress { .. }), "{again}");
    let exists = router.add(source("com.example.b")).await.unwrap_err();
    assert!(matches!(exists, AddError::Exists { .. }), "{exists}");
    pid(&router, "com.example.b").await;
    let full = router.add(source("com.example.c")).await.unwrap_err();
    assert_eq!(
        full.to_string(),
        "the router has 2 agents, and takes no more"
    );
    let timeless = AgentPolicy::default().with_call_timeout(Duration::ZERO);
    let timeless = source("com.example.b").with_policy(timeless);
    let refused = router.replace(timeless).await.unwrap_err();
    assert!(matches!(refused, AddError::Policy(_)), "{refused}");
    // What was stopped leaves its place.
    router.stop("com.example.b").await;
    router.add(source("com.example.c")).await.unwrap();
    router.shutdown().await;
}

// spec: OSW-4.1-9
#[tokio::test]
async fn an_agent_whose_policy_is_out_of_its_range_stops_no_other() {
    let (events, mut records) = tokio::sync::mpsc::unbounded_channel();
    let none = Quota::default().with_concurrent(0);
    let idle = source("com.example.b").with_policy(AgentPolicy::default().with_quota(none));
    let router = builder(Config::default(), &["com.example.a"])
        .with_agent(idle)
        .with_audit(move |event: AuditEvent| drop(events.send(event)))
        .start()
        .unwrap();
    router.ready().await;
    let echo = call(&router, "com.example.a/echo", json!({})).await;
    assert_eq!(echo.status, Status::Succeeded);
    assert_eq!(router.view().agents.len(), 1);
    router.shutdown().await;
    let mut refused = Vec::new();
    while let Some(event) = records.recv().await {
        if event.agent_id.as_deref() == Some("com.example.b") {
            refused.push((event.name, event.detail.unwrap()));
        }
    }
    let why = "quota is Some(0), but at least 1 call must be allowed at once";
    assert_eq!(refused, [(AuditName::RunCrashed, why.to_owned())]);
}

#[tokio::test]
async fn an_agent_that_never_came_leaves_its_place_when_it_is_stopped() {
    let config = Config::default()
        .with_max_agents(1)
        .with_restart(RestartPolicy::Always);
    let none = || Launcher::new("com.example.none", "/nowhere/agent");
    let router = ToolRouter::builder(config).agent("com.example.none", none);
    let router = router.start().unwrap();
    router.ready().await;
    router.stop("com.example.none").await;
    router.add(source("com.example.a")).await.unwrap();
    let echo = call(&router, "com.example.a/echo", json!({})).await;
    assert_eq!(echo.status, Status::Succeeded);
    router.shutdown().await;
}

#[tokio::test]
async fn an_agent_that_is_replaced_goes_on_with_its_calls() {
    let router = builder(Config::default(), &["com.example.a"]);
    let router = router.start().unwrap();
    router.ready().await;
    let old = pid(&router, "com.example.a").await;
    let mut running = router
        .call(request("com.example.a/block", json!({})))
        .await
        .unwrap();
    assert!(running.next_chunk().await.is_some());
    let failed = router.replace(broken("com.example.a")).await.unwrap_err();
    assert!(matches!(failed, AddError::Launch(_)), "{failed}");
    assert_eq!(pid(&router, "com.example.a").await, old);

    router.replace(source("com.example.a")).await.unwrap();
    let new = pid(&router, "com.example.a").await;
    assert_ne!(new, old);
    assert!(std::path::Path::new(&format!("/proc/{old}")).exists());
    running.cancel();
    assert_eq!(running.result().await.status, Status::Canceled);
    until_gone(old).await;
    assert_eq!(pid(&router, "com.example.a").await, new);

    // One whose calls do not end in time is ended with them.
    let mut running = router
        .call(request("com.example.a/block", json!({})))
        .await
        .unwrap();
    assert!(running.next_chunk().await.is_some());
    let hasty = source("com.example.a").with_drain_time(Duration::from_millis(10));
    router.replace(hasty).await.unwrap();
    assert_ne!(running.result().await.status, Status::Succeeded);
    until_gone(new).await;

    // One without calls has nothing to go on with.
    let idle = pid(&router, "com.example.a").await;
    let patient = source("com.example.a").with_drain_time(Duration::from_secs(3600));
    router.replace(patient).await.unwrap();
    until_gone(idle).await;
    router.shutdown().await;
}

// spec: OSW-4.5-2
#[tokio::test]
async fn an_agent_that_hangs_is_unhealthy_and_gets_no_calls() {
    let hasty = patient().with_heartbeat_interval(Duration::from_secs(1));
    let source = move || launcher("com.example.a").with_config(hasty.clone());
    let router = ToolRouter::builder(Config::default()).agent("com.example.a", source);
    let mut router = router.start().unwrap();
    router.ready().await;
    let frozen = loop {
        // On a busy machine it may be late before.
        if let Ok(call) = router
            .call(request("com.example.a/freeze", json!({})))
            .await
        {
            break call;
        }
    };
    while router.view().agents["com.example.a"].health == Health::Ok {
        assert!(router.view_changed().await);
    }
    let refused = router.call(request("com.example.a/echo", json!({}))).await;
    assert_eq!(refused.unwrap_err(), Refused::Unhealthy);
    drop(frozen);
    router.shutdown().await;
}

#[tokio::test]
async fn a_stop_ends_the_replaced_ones_too() {
    let router = builder(Config::default(), &["com.example.a"]);
    let router = router.start().unwrap();
    router.ready().await;
    let old = pid(&router, "com.example.a").await;
    let block = request("com.example.a/block", json!({}));
    let mut running = router.call(block).await.unwrap();
    assert!(running.next_chunk().await.is_some());
    let patient = source("com.example.a").with_drain_time(Duration::from_secs(3600));
    router.replace(patient).await.unwrap();
    let new = pid(&router, "com.example.a").await;
    router.stop("com.example.a").await;
    assert_ne!(running.result().await.status, Status::Succeeded);
    until_gone(old).await;
    until_gone(new).await;
    router.shutdown().await;
}

#[tokio::test]
async fn a_launch_that_fails_is_told_to_the_auditor() {
    let (events, mut records) = tokio::sync::mpsc::unbounded_channel();
    let router = builder(Config::default(), &["com.example.a"])
        .with_audit(move |event: AuditEvent| drop(events.send(event)))
        .start()
        .unwrap();
    router.ready().await;
    let error = router.add(broken("com.example.none")).await.unwrap_err();
    assert!(matches!(error, AddError::Launch(_)), "{error}");
    let other = AgentSource::new("com.example.b", || launcher("com.example.c"));
    let error = router.add(other).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the launcher is that of com.example.c, the router wants com.example.b"
    );
    let nobody = Launcher::new("", "/nowhere").launch().await.unwrap_err();
    assert!(matches!(nobody, LaunchError::Config(_)), "{nobody}");
    router.shutdown().await;
    let mut crashes = Vec::new();
    while let Some(event) = records.recv().await {
        if event.name == AuditName::RunCrashed {
            crashes.push(event.detail.unwrap());
        }
    }
    assert_eq!(crashes.len(), 2, "{crashes:?}");
    assert!(crashes[0].contains(" cannot be started: "), "{crashes:?}");
    assert_eq!(crashes[1], error.to_string());
}
