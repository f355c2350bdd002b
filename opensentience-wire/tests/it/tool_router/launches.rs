//! Launches that cross each other.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use opensentience_wire::message::{ActorType, Health, Status};
use opensentience_wire::role::router::{AgentPolicy, Config, Quota, Refused, RestartPolicy};
use opensentience_wire::transport::tokio::{
    AddError, AgentSource, AuditSink, LaunchError, Launcher, ToolRouter,
};
use opensentience_wire::{AuditEvent, AuditName, Severity};
use serde_json::{Value, json};

use super::{PATIENCE, builder, call, code, launcher, patient, pid, request, source};
use crate::kit::{RequestExt as _, frame, message, tool};

/// Longer than a router waits before it launches an agent again for the first time.
fn slow(agent: &str) -> Launcher {
    Launcher::new(agent, "/bin/sh")
        .args(["-c", "sleep 3; exec \"$0\" \"$@\""])
        .args([std::env::current_exe().unwrap()])
        .args(["transport::agent_process", "--exact", "--nocapture"])
        .with_config(patient())
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

// spec: OSW-7-1
#[tokio::test]
async fn what_a_router_refuses_is_recorded_without_the_token_of_an_agent() {
    let (events, mut records) = tokio::sync::mpsc::unbounded_channel();
    let router = builder(Config::default(), &["com.example.a"]);
    let router = router.with_audit(move |event: AuditEvent| drop(events.send(event)));
    let router = router.start().unwrap();
    router.ready().await;
    let told = call(&router, "com.example.a/tell", json!({})).await;
    let told: Value = told.into_result().unwrap().deserialize().unwrap();
    let token: String = told["nekot"].as_str().unwrap().chars().rev().collect();
    assert!(token.len() > 40);
    let none = request("com.example.a/none", json!({}));
    let refused = router.call(none.with_correlation_id(&token)).await;
    assert!(matches!(refused, Err(Refused::ToolNotFound { .. })));
    let refusal = loop {
        let record = records.recv().await.unwrap();
        if record.name == AuditName::CallRefused {
            break record;
        }
    };
    assert_eq!(refusal.tool_id.as_deref(), Some("com.example.a/none"));
    assert_eq!(refusal.correlation_id, None);
    router.shutdown().await;
}

#[tokio::test]
async fn an_agent_that_is_stopped_is_not_called_while_it_ends_its_calls() {
    let router = builder(Config::default(), &["com.example.a"]);
    let router = router.start().unwrap();
    router.ready().await;
    let block = router.call(request("com.example.a/block", json!({})));
    let mut busy = block.await.unwrap();
    assert!(busy.next_chunk().await.is_some(), "it runs");
    router.stop("com.example.a").await;
    let refused = router.call(request("com.example.a/echo", json!({}))).await;
    assert!(matches!(refused, Err(Refused::ToolNotFound { .. })));
    busy.cancel();
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

const ROLE: &str = "OSW_TEST_ROLE";

/// No test of its own: an agent that says hello, and then what its role is.
#[test]
#[expect(clippy::disallowed_types, reason = "a process that blocks")]
fn terse_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let var = |name: &str| std::env::var(name).unwrap();
    let mut core =
        std::os::unix::net::UnixStream::connect(var("OPENSENTIENCE_SOCKET_PATH")).unwrap();
    let mut hello = crate::kit::hello();
    hello["payload"]["session_token"] = json!(var("OPENSENTIENCE_SESSION_TOKEN"));
    hello["payload"]["agent_id"] = json!(var("OPENSENTIENCE_AGENT_ID"));
    if role == "with a wrong token" {
        hello["payload"]["session_token"] = json!("x".repeat(43));
    }
    core.write_all(&frame(&hello)).unwrap();
    let mut length = [0; 4];
    core.read_exact(&mut length).unwrap();
    let mut welcome = vec![0; u32::from_be_bytes(length) as usize];
    core.read_exact(&mut welcome).unwrap();
    let welcome: Value = serde_json::from_slice(&welcome).unwrap();
    std::fs::write(var("HOME_OF_TEST"), std::process::id().to_string()).unwrap();
    let read_until = |end: &str| {
        let mut text = String::new();
        while !text.ends_with(end) {
            let mut byte = [0];
            (&core).read_exact(&mut byte).unwrap();
            text.push(byte[0].into());
        }
        text
    };
    let say = |kind: &str, payload: Value| {
        (&core).write_all(&frame(&message(kind, payload))).unwrap();
    };
    let register = |tools: Value| say("agent.tools.register", json!({"tools": tools}));
    let session = &welcome["payload"]["session_id"];
    let unwell =
        json!({"session_id": session, "uptime_ms": 1, "inflight_calls": 0, "status": "unhealthy"});
    match &*role {
        // It has been turned away, and tries again and again.
        "with a wrong token" => loop {
            let path = var("OPENSENTIENCE_SOCKET_PATH");
            let Ok(mut core) = std::os::unix::net::UnixStream::connect(path) else {
                std::process::exit(1);
            };
            let _ = core.write_all(&frame(&hello));
            let _ = core.read(&mut [0; 64]);
        },
        "dies" => std::process::exit(1),
        "without tools" => register(json!([])),
        "with a wrong tool" => {
            let mut wrong = tool("wrong");
            wrong["name"] = json!("no name at all");
            register(json!([wrong]));
        }
        "unwell" => {
            register(json!([tool("echo")]));
            say("agent.heartbeat", unwell);
        }
        "unwell during a call" => {
            register(json!([tool("echo")]));
            read_until(r#""call_id":""#);
            let id = read_until("\"");
            say("agent.heartbeat", unwell);
            read_until("core.tool.cancel");
            let result = json!({"call_id": id.trim_end_matches('"'), "status": "canceled"});
            say("agent.tool.result", result);
        }
        "says too much and dies" => {
            // Less than may be said at once; compiling what comes then costs twice as much as may.
            for _ in 0..7 {
                say("agent.later", json!({"text": "x".repeat(1_000_000)}));
            }
            let mut dear = tool("echo");
            dear["input_schema"] = json!({"type": "object", "description": r"\w".repeat(20_000)});
            register(json!([dear]));
            read_until("core.tools.registered");
            std::process::exit(1)
        }
        _ => {}
    }
    std::thread::sleep(Duration::from_secs(600));
}

/// An agent that says hello, and where it writes the number of its process.
fn terse(role: &'static str, tools_timeout: Duration, pid: &Path) -> AgentSource {
    let pid = pid.to_owned();
    AgentSource::new("com.example.a", move || {
        Launcher::new("com.example.a", std::env::current_exe().unwrap())
            .args([
                "tool_router::launches::terse_process",
                "--exact",
                "--nocapture",
            ])
            .env(ROLE, role)
            .env("HOME_OF_TEST", &pid)
            .with_config(patient().with_handshake_timeout(tools_timeout))
            .with_stop_timeout(Duration::from_millis(300))
    })
}

fn is_alive(pid: &Path) -> bool {
    let pid = std::fs::read_to_string(pid).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next();
    state.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

#[tokio::test]
async fn an_agent_that_does_not_register_takes_nobodys_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    let router = builder(Config::default(), &["com.example.a"]);
    let router = router.start().unwrap();
    router.ready().await;
    let old = pid(&router, "com.example.a").await;
    for (role, within, why) in [
        (
            "dies",
            PATIENCE,
            "the agent's connection ended before it could be called",
        ),
        (
            "says nothing",
            Duration::from_secs(2),
            "the agent did not register within {within}",
        ),
        (
            "with a wrong tool",
            PATIENCE,
            "all the tools that the agent registered were rejected",
        ),
    ] {
        let mut span = within;
        let refused = loop {
            match router.replace(terse(role, span, &path)).await.unwrap_err() {
                // Not even its hello came in this time.
                AddError::Launch(LaunchError::Handshake) => span *= 2,
                refused => break refused,
            }
        };
        let why = why.replace("{within}", &format!("{span:?}"));
        assert_eq!(refused.to_string(), why);
        assert!(!is_alive(&path), "{role}");
        assert_eq!(pid(&router, "com.example.a").await, old, "{role}");
    }
    router
        .replace(terse("without tools", PATIENCE, &path))
        .await
        .unwrap();
    assert_eq!(router.view().tools().count(), 0);
    router.replace(source("com.example.a")).await.unwrap();
    router.stop("com.example.a").await;
    let refused = router
        .add(terse("dies", PATIENCE, &path))
        .await
        .unwrap_err();
    assert!(matches!(refused, AddError::Disconnected), "{refused}");
    assert!(router.view().agents.is_empty());
    router.add(source("com.example.a")).await.unwrap();
    router.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_waits_for_processes_that_have_not_registered() {
    for is_replacement in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let silent = terse("says nothing", PATIENCE, &path);
        let router = ToolRouter::builder(Config::default());
        let router = match is_replacement {
            true => router.with_agent(source("com.example.a")),
            false => router.with_agent(silent.clone()),
        };
        let router = Arc::new(router.start().unwrap());
        let replacing = tokio::spawn({
            let router = Arc::clone(&router);
            async move {
                if is_replacement {
                    router.ready().await;
                    drop(router.replace(silent).await);
                }
            }
        });
        while !path.exists() || std::fs::read_to_string(&path).unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        replacing.abort();
        drop(replacing.await);
        Arc::into_inner(router).unwrap().shutdown().await;
        assert!(!is_alive(&path), "replacement: {is_replacement}");
    }
}

// spec: OSW-4.1-3
#[tokio::test]
async fn a_process_may_fail_the_handshake_a_few_times_and_not_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    let (events, mut records) = tokio::sync::mpsc::unbounded_channel();
    let router = ToolRouter::builder(Config::default())
        .with_audit(move |event: AuditEvent| drop(events.send(event)))
        .start()
        .unwrap();
    let refused = router.add(terse("with a wrong token", PATIENCE, &path));
    let refused = refused.await.unwrap_err();
    assert!(
        matches!(refused, AddError::Launch(LaunchError::Handshake)),
        "{refused}"
    );
    router.shutdown().await;
    let mut failed = 0;
    while let Some(record) = records.recv().await {
        failed += usize::from(record.name == AuditName::HandshakeFailed);
    }
    assert_eq!(failed, 16);
}

// An agent has its place until its process has ended.
#[tokio::test]
async fn an_agent_is_not_added_in_the_place_of_one_that_is_still_ending() {
    let folder = tempfile::tempdir().unwrap();
    let (path, go) = (folder.path().join("pid"), folder.path().join("go"));
    // An agent, and what its process does after it.
    let lingering = |agent: &str, script: &str, path: &Path| {
        let script = format!("trap '' TERM; \"$0\" \"$@\"; {script}");
        Launcher::new(agent, "/bin/sh")
            .args(["-c", &script])
            .args([std::env::current_exe().unwrap()])
            .args(["transport::agent_process", "--exact", "--nocapture"])
            .env("HOME_OF_TEST", path)
            .with_config(patient())
            .with_stop_timeout(PATIENCE * 10)
    };
    let until_told = "until [ -e \"$HOME_OF_TEST\" ]; do sleep 0.1; done";
    let first = go.clone();
    let a_second = "printf $$ > \"$HOME_OF_TEST\"; sleep 1";
    let second = path.clone();
    let slow = AgentSource::new("com.example.b", move || {
        lingering("com.example.b", a_second, &second)
    });
    let config = Config::default().with_max_agents(1);
    let (events, mut records) = tokio::sync::mpsc::unbounded_channel();
    let router = ToolRouter::builder(config)
        .agent("com.example.a", move || {
            lingering("com.example.a", until_told, &first)
        })
        .with_audit(move |event: AuditEvent| drop(events.send(event)))
        .start()
        .unwrap();
    router.ready().await;
    router.stop("com.example.a").await;
    let full = router.add(slow).await.unwrap_err();
    assert!(matches!(full, AddError::TooMany { limit: 1 }), "{full}");
    std::fs::write(&go, "").unwrap();
    router.shutdown().await;
    assert!(!is_alive(&path), "the one that was refused has ended");
    // The one that came too late is asked to end, and not killed.
    let end = loop {
        let record = records.recv().await.unwrap();
        let is_end = matches!(record.name, AuditName::RunStopped | AuditName::RunCrashed);
        if is_end && record.agent_id.as_deref() == Some("com.example.b") {
            break record.name;
        }
    };
    assert_eq!(end, AuditName::RunStopped);
}

#[tokio::test]
async fn a_router_is_ready_once_what_never_came_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    let silent = terse("says nothing", PATIENCE * 10, &path);
    let router = ToolRouter::builder(Config::default()).with_agent(silent);
    let router = router.start().unwrap();
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    router.stop("com.example.a").await;
    tokio::time::timeout(PATIENCE, router.ready())
        .await
        .expect("nobody else is waited for");
    router.shutdown().await;
}

// spec: OSW-4.5-3
#[tokio::test]
async fn an_agent_that_died_is_launched_again_when_its_replacement_has_failed() {
    let config = Config::default().with_restart(RestartPolicy::OnFailure);
    let router = builder(config, &["com.example.a"]).start().unwrap();
    router.ready().await;
    let failing = AgentSource::new("com.example.a", || {
        Launcher::new("com.example.a", "/bin/sh").args(["-c", "sleep 3; exit 1"])
    });
    let (refused, died) = tokio::join!(
        router.replace(failing),
        call(&router, "com.example.a/die", json!({}))
    );
    assert!(refused.is_err());
    assert_eq!(code(died), "agent.disconnected");
    let back = async {
        while router.view().tools().count() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back)
        .await
        .expect("the one before is there again");
    router.shutdown().await;
}

// spec: OSW-4.5-3
#[tokio::test]
async fn an_agent_that_says_it_is_unwell_is_ended_and_launched_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    let config = Config::default().with_restart(RestartPolicy::OnFailure);
    let router = ToolRouter::builder(config).with_agent(terse("unwell", PATIENCE, &path));
    let router = router.start().unwrap();
    let pid = || std::fs::read_to_string(&path).unwrap_or_default();
    let mut seen = std::collections::BTreeSet::new();
    let twice = async {
        while seen.len() < 2 {
            seen.extend(Some(pid()).filter(|pid| !pid.is_empty()));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, twice).await.unwrap();
    let first = seen.iter().find(|seen| **seen != pid()).unwrap();
    std::fs::write(&path, first).unwrap();
    assert!(!is_alive(&path), "the one before is gone");
    router.shutdown().await;
}

// Its process does not end by itself.
#[tokio::test]
async fn an_unwell_agent_is_shown_no_more_once_its_last_call_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let agent = terse("unwell during a call", PATIENCE, &folder.path().join("pid"));
    let config = Config::default().with_restart(RestartPolicy::OnFailure);
    let router = ToolRouter::builder(config).with_agent(agent);
    let mut router = router.start().unwrap();
    router.ready().await;
    let echo = request("com.example.a/echo", json!({}));
    let running = router.call(echo).await.unwrap();
    while router.view().agents["com.example.a"].health == Health::Ok {
        assert!(router.view_changed().await);
    }
    running.cancel();
    assert_eq!(running.result().await.status, Status::Canceled);
    assert!(router.view().agents.is_empty());
    router.shutdown().await;
}

#[tokio::test]
async fn an_agent_that_was_unwell_when_it_was_stopped_leaves_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let agent = terse("unwell during a call", PATIENCE, &folder.path().join("pid"));
    let config = Config::default().with_max_agents(1);
    let config = config.with_restart(RestartPolicy::OnFailure);
    let router = ToolRouter::builder(config).with_agent(agent);
    let mut router = router.start().unwrap();
    router.ready().await;
    let echo = request("com.example.a/echo", json!({}));
    let running = router.call(echo).await.unwrap();
    while router.view().agents["com.example.a"].health == Health::Ok {
        assert!(router.view_changed().await);
    }
    router.stop("com.example.a").await;
    running.cancel();
    // It has its place until its process has ended.
    let added = async { while router.add(source("com.example.b")).await.is_err() {} };
    tokio::time::timeout(PATIENCE, added)
        .await
        .expect("the place is free");
    router.shutdown().await;
}

// It is not read for a minute, and dies in it.
// spec: OSW-4.5-3
#[tokio::test]
async fn an_agent_that_said_too_much_and_died_is_launched_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    let (events, mut records) = tokio::sync::mpsc::unbounded_channel();
    let config = Config::default().with_restart(RestartPolicy::OnFailure);
    let agent = terse("says too much and dies", PATIENCE, &path);
    let router = ToolRouter::builder(config)
        .with_agent(agent)
        .with_audit(move |event: AuditEvent| drop(events.send((event, Instant::now()))))
        .start()
        .unwrap();
    let mut throttled = None;
    loop {
        let (record, at) = records.recv().await.unwrap();
        match record.name {
            AuditName::Throttled => throttled = throttled.or(Some(at)),
            // It could have been read again only then.
            AuditName::RunCrashed if at - throttled.unwrap() < Duration::from_secs(50) => break,
            AuditName::RunCrashed => panic!("its end was found late"),
            _ => {}
        }
    }
    router.shutdown().await;
}

// The ledger has room for what three connections may read at once.
// spec: OSW-4.3-11
#[tokio::test]
async fn agents_that_were_replaced_leave_room_for_the_output_of_the_next() {
    let router = builder(Config::default(), &["com.example.a"]);
    let router = router.start().unwrap();
    router.ready().await;
    let mut running = Vec::new();
    for _ in 0..5 {
        let block = request("com.example.a/block", json!({}));
        let mut block = router.call(block).await.unwrap();
        let piece = tokio::time::timeout(PATIENCE, block.next_chunk()).await;
        assert!(piece.unwrap().is_some());
        running.push(block);
        let patient = source("com.example.a").with_drain_time(PATIENCE * 10);
        router.replace(patient).await.unwrap();
    }
    let echo = call(&router, "com.example.a/echo", json!({}));
    let echo = tokio::time::timeout(PATIENCE, echo).await.unwrap();
    assert_eq!(echo.status, Status::Succeeded);
    drop(running);
    router.shutdown().await;
}

#[tokio::test]
async fn an_agent_that_was_replaced_ends_with_the_last_of_its_calls() {
    let router = builder(Config::default(), &["com.example.a"]);
    let router = router.start().unwrap();
    router.ready().await;
    let old = pid(&router, "com.example.a").await;
    let block = request("com.example.a/block", json!({}));
    let block = router.call(block).await.unwrap();
    // Nothing else ends it before this test gives up.
    let patient = source("com.example.a").with_drain_time(PATIENCE * 10);
    router.replace(patient).await.unwrap();
    assert_ne!(pid(&router, "com.example.a").await, old);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    std::fs::write(&path, old.to_string()).unwrap();
    assert!(is_alive(&path), "it has a call");
    block.cancel();
    block.result().await;
    let gone = async {
        while is_alive(&path) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    router.shutdown().await;
}

// spec: OSW-8-1
#[tokio::test]
async fn an_output_that_a_quota_refuses_is_recorded_as_refused_once() {
    let (events, mut records) = tokio::sync::mpsc::unbounded_channel();
    let quota = Quota::default().with_max_output_bytes(100);
    let agent = source("com.example.a").with_policy(AgentPolicy::default().with_quota(quota));
    let router = ToolRouter::builder(Config::default())
        .with_agent(agent)
        .with_audit(move |event: AuditEvent| drop(events.send(event)))
        .start()
        .unwrap();
    router.ready().await;
    let long = json!({"text": "x".repeat(100)});
    let asked = request("com.example.a/echo", long).with_caller(ActorType::Human, "ada");
    let refused = router.call(asked).await.unwrap().result().await;
    assert_eq!(code(refused), "tool.output_too_large");
    router.shutdown().await;
    let mut ends = Vec::new();
    while let Some(event) = records.recv().await {
        if event.name == AuditName::CallCompleted {
            let caller = event.caller.map(|caller| caller.id.to_string());
            ends.push((
                event.status.unwrap(),
                event.code.unwrap().to_string(),
                caller,
            ));
        }
    }
    let code = "tool.output_too_large".to_owned();
    assert_eq!(ends, [(Status::Failed, code, Some("ada".to_owned()))]);
}

#[tokio::test]
async fn who_panics_behind_a_router_ends_no_agent() {
    let (events, mut records) = tokio::sync::mpsc::unbounded_channel();
    let sink = AuditSink::from(move |event: AuditEvent| {
        drop(events.send(event));
        panic!("nobody's business")
    });
    let router = builder(Config::default(), &["com.example.a"])
        .agent("com.example.b", || panic!("no launcher"))
        .with_audit(sink.clone())
        .start()
        .unwrap();
    router.ready().await;
    let panics = AgentSource::new("com.example.c", || panic!("no launcher"));
    let refused = router.add(panics.clone()).await.unwrap_err();
    assert!(matches!(refused, AddError::Panicked), "{refused}");
    router.add(source("com.example.c")).await.unwrap();
    let panics = AgentSource::new("com.example.c", || panic!("no launcher"));
    router.replace(panics).await.unwrap_err();
    for agent in ["com.example.a", "com.example.c"] {
        let echo = call(&router, &format!("{agent}/echo"), json!({})).await;
        assert_eq!(echo.status, Status::Succeeded);
    }
    assert!(sink.lost() > 0);
    router.shutdown().await;
    let mut crashed = Vec::new();
    while let Ok(record) = records.try_recv() {
        if record.name == AuditName::RunCrashed {
            assert_eq!(record.detail, Some(refused.to_string()));
            assert_eq!(record.severity, Severity::Error);
            crashed.extend(record.agent_id);
        }
    }
    assert_eq!(crashed, ["com.example.b", "com.example.c", "com.example.c"]);
}
