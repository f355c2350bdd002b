//! What a manifest lets be used.

use std::time::Duration;

use opensentience_wire::message::{ActorType, Caller, Status};
use opensentience_wire::role::router::{AgentPolicy, Config, Quota, Refused};
use opensentience_wire::transport::tokio::{AddError, AgentSource, LaunchError, ToolRouter};
use opensentience_wire::{CommandError, Manifest};
use serde_json::json;

use super::{code, launcher, patient, request};

// spec: OSW-4.1-9
#[tokio::test]
async fn a_manifest_binds() {
    let manifest = br#"{"id": "com.example.a", "entrypoint": {"type": "command", "value": "a"},
        "permissions": ["tool:invoke:com.example.a/echo"],
        "execution_limits": {"max_tool_call_duration": "300ms", "max_concurrent_calls": 2}}"#;
    let manifest = Manifest::decode(manifest).unwrap();
    let hash = "0".repeat(64);
    let bound = {
        let (manifest, hash) = (manifest.clone(), hash.clone());
        move |agent: &str| launcher(agent).with_manifest(&manifest, hash.as_str())
    };
    let other = bound("com.example.b").launch().await.unwrap_err();
    assert_eq!(
        other.to_string(),
        "the manifest is that of com.example.a, the agent is com.example.b"
    );
    // A manifest loosens nothing, and settings that come later loosen no manifest.
    let within = |span| patient().with_call_timeout(Duration::from_millis(span));
    let slow = br#"{"id": "com.example.a", "entrypoint": {"type": "command", "value": "a"}, "permissions": [],
        "execution_limits": {"max_tool_call_duration": "60s"}}"#;
    let slow = Manifest::decode(slow).unwrap();
    let strict = launcher("com.example.a").with_config(within(300));
    for launcher in [
        strict.with_manifest(&slow, hash.as_str()),
        bound("com.example.a").with_config(within(60_000)),
    ] {
        let handle = launcher.launch().await.unwrap();
        let block = request("com.example.a/block", json!({}));
        let late = handle.call(block).await.unwrap().result().await;
        assert!(late.duration < Duration::from_secs(50), "{late:?}");
        assert_eq!(code(late), "tool.timeout");
        handle.shutdown().await;
    }
    // Alone, and behind a router.
    let handle = bound("com.example.a").launch().await.unwrap();
    let block = || request("com.example.a/block", json!({}));
    let late = handle.call(block()).await.unwrap().result().await;
    assert_eq!(code(late), "tool.timeout");
    handle.shutdown().await;

    // Not even alone more calls than it says in a span of time; what a router has counted is not counted again.
    let rated = br#"{"id": "com.example.a", "entrypoint": {"type": "command", "value": "a"}, "permissions": [],
        "execution_limits": {"rate_limit": "2/hour"}}"#;
    let rated = Manifest::decode(rated).unwrap();
    let echo = || request("com.example.a/echo", json!({}));
    let launched = {
        let (rated, hash) = (rated.clone(), hash.clone());
        let own = patient().with_call_rate(1_000, Duration::from_secs(1));
        move || {
            let launcher = launcher("com.example.a").with_config(own.clone());
            launcher.with_manifest(&rated, hash.as_str())
        }
    };
    let handle = launched().launch().await.unwrap();
    for _ in 0..2 {
        handle.call(echo()).await.unwrap();
    }
    let third = handle.call(echo()).await.unwrap_err();
    assert!(
        matches!(third, CommandError::RateExceeded { .. }),
        "{third}"
    );
    handle.shutdown().await;
    let router = ToolRouter::builder(Config::default());
    let router = router.with_agent(AgentSource::of(&rated, launched.clone()));
    let router = router.start().unwrap();
    router.ready().await;
    for _ in 0..2 {
        router.call(echo()).await.unwrap();
    }
    let third = router.call(echo()).await.unwrap_err();
    assert!(matches!(third, Refused::RateExceeded { .. }), "{third}");
    router.shutdown().await;
    // Where the router has no manifest its launcher's binds.
    let router = ToolRouter::builder(Config::default()).agent("com.example.a", launched);
    let router = router.start().unwrap();
    router.ready().await;
    for _ in 0..2 {
        let echo = router.call(echo()).await.unwrap();
        assert_eq!(echo.result().await.status, Status::Succeeded);
    }
    let third = router.call(echo()).await.unwrap().result().await;
    assert_eq!(code(third), "limits.rate_exceeded");
    router.shutdown().await;

    // One whose launcher forgets the manifest is not launched, nor one that has another of its id.
    let router = ToolRouter::builder(Config::default()).start().unwrap();
    let unbound = AgentSource::of(&manifest, || launcher("com.example.a"));
    let other = AgentSource::of(&manifest, move || {
        launcher("com.example.a").with_manifest(&slow, "0".repeat(64))
    });
    for agent in [unbound, other] {
        let error = router.add(agent).await.unwrap_err();
        assert!(
            matches!(error, AddError::Launch(LaunchError::Unbound { .. })),
            "{error}"
        );
    }
    router.shutdown().await;

    // A policy of its own takes nothing of the manifest away.
    let own = Quota::default().with_concurrent(9);
    let agent = AgentSource::of(&manifest, move || bound("com.example.a"))
        .with_policy(AgentPolicy::default().with_quota(own));
    let router = ToolRouter::builder(Config::default()).with_agent(agent);
    let router = router.start().unwrap();
    router.ready().await;
    let calls = [
        router.call(block()).await.unwrap(),
        router.call(block()).await.unwrap(),
    ];
    let third = router.call(block()).await.unwrap_err();
    assert_eq!(third, Refused::ConcurrencyExceeded { limit: 2 });
    for call in calls {
        assert_eq!(code(call.result().await), "tool.timeout");
    }
    let by_agent = |tool: &str| {
        let mut request = request(tool, json!({}));
        request.caller = Some(Caller::new(ActorType::Agent, "com.example.a".into()));
        request
    };
    let echo = router.call(by_agent("com.example.a/echo")).await.unwrap();
    assert_eq!(echo.result().await.status, Status::Succeeded);
    let denied = router
        .call(by_agent("com.example.a/count"))
        .await
        .unwrap_err();
    assert!(matches!(denied, Refused::PermissionDenied { .. }));
    router.shutdown().await;
}
