//! Who hears of what happens.

use super::*;

// spec: OSW-8-1
#[tokio::test]
async fn an_auditor_alone_hears_of_calls() {
    let (handle, audit) = launch().await;
    let echo = handle.call(request("echo", json!({}))).await.unwrap();
    echo.result().await;
    handle.shutdown().await;
    let seen = names(audit).await;
    for name in ["tool.call_routed", "tool.call_completed"] {
        assert!(seen.iter().any(|it| it == name), "{name}: {seen:?}");
    }
}

// spec: OSW-8-1
#[tokio::test]
async fn an_observer_alone_hears_of_calls() {
    let (tx, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let observer = move |event: &Event| {
        if let Event::Audit(audit) = event {
            drop(tx.send(audit.name.clone()));
        }
    };
    let launcher = Launcher::new(AGENT, std::env::current_exe().unwrap())
        .args(["transport::agent_process", "--exact", "--nocapture"])
        .with_config(patient())
        .with_observer(observer);
    let handle = launcher.launch().await.unwrap();
    let echo = handle.call(request("echo", json!({}))).await.unwrap();
    echo.result().await;
    handle.shutdown().await;
    let mut names = Vec::new();
    while let Some(name) = seen.recv().await {
        names.push(name);
    }
    for name in [AuditName::CallRouted, AuditName::CallCompleted] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
}

// spec: OSW-8-1
#[tokio::test]
async fn a_launch_that_is_given_up_is_recorded_with_the_end_of_its_process() {
    let (sink, mut audit) = audit_channel();
    let launcher = Launcher::new(AGENT, "/bin/sh").args(["-c", "sleep 600"]);
    let launcher = launcher.with_config(patient()).with_audit(sink);
    tokio::select! {
        launched = launcher.launch() => panic!("{launched:?}"),
        begun = audit.recv() => assert_eq!(begun.unwrap().name, AuditName::RunStarted),
    }
    let end = audit.recv().await.unwrap();
    assert_eq!(end.name, AuditName::RunCrashed);
    assert_eq!(end.detail.as_deref(), Some("given up, and killed"));
    assert!(audit.recv().await.is_none());
}

// A subscriber that is set, or lets more through, while calls run.
#[cfg(feature = "tracing")]
#[tokio::test]
async fn who_listens_from_the_middle_of_a_call_hears_of_its_end() {
    let (core, mut far) = raw_agent().await;
    let call = core.call(request("echo", json!({}))).await.unwrap();
    let traces = ubos_common::testing::Traces::of("osw::audit");
    let result = json!({"call_id": call.id().to_string(), "status": "succeeded", "output": {}});
    let result = frame(&message("agent.tool.result", result));
    far.write_all(&result).await.unwrap();
    assert_eq!(call.result().await.status, Status::Succeeded);
    let said = traces.text();
    assert!(said.contains("name=tool.call_completed"), "{said}");
}

#[tokio::test]
async fn who_panics_while_they_are_told_loses_that_alone() {
    let sink = AuditSink::from(|_: AuditEvent| panic!("nobody's business"));
    let observer = Observer::from(|_: &Event| panic!("nobody's either"));
    let launcher = launcher()
        .0
        .with_audit(sink.clone())
        .with_observer(observer.clone());
    let handle = launcher.launch().await.unwrap();
    let mut waiting = handle.call(request("block", json!({}))).await.unwrap();
    assert!(waiting.next_chunk().await.is_some());
    let echo = handle.call(request("echo", json!({}))).await.unwrap();
    assert_eq!(echo.result().await.status, Status::Succeeded);
    // Started, connected, two routed, one completed.
    assert!(sink.lost() >= 5 && observer.lost() >= 5);
    waiting.cancel();
    assert_eq!(waiting.result().await.status, Status::Canceled);
    assert_eq!(handle.shutdown().await, CloseReason::Goodbye);
}
