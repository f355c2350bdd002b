//! An agent whose core reads nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opensentience_wire::Limits;
use opensentience_wire::message::SemVer;
use opensentience_wire::role::agent;
use opensentience_wire::transport::tokio::Agent;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;
use ubos_common::os::Clock;
use ubos_common::time::Timestamp;

use super::next_frame;
use crate::kit::{AGENT, call, frame, message, object, spec, token, welcome};

/// The core's end of a connection whose agent has registered its tools.
async fn core_of(agent: Agent, limits: Limits) -> DuplexStream {
    core_that_wants_heartbeats(agent, limits, 30_000).await
}

async fn core_that_wants_heartbeats(agent: Agent, limits: Limits, every_ms: u64) -> DuplexStream {
    let (mut near, far) = tokio::io::duplex(64 << 10);
    let version = "1.0.0".parse::<SemVer>().unwrap();
    let config = agent::Config::new(AGENT, version, token()).with_limits(limits);
    tokio::spawn(agent.serve(far, config));
    assert_eq!(next_frame(&mut near).await["type"], "agent.hello");
    let mut welcome = welcome();
    welcome["payload"]["max_frame_bytes"] = json!(4_194_304);
    welcome["payload"]["heartbeat_interval_ms"] = json!(every_ms);
    near.write_all(&frame(&welcome)).await.unwrap();
    while next_frame(&mut near).await["type"] != "agent.tools.register" {}
    let registered = json!({"registered": [format!("{AGENT}/large")], "rejected": []});
    let registered = message("core.tools.registered", registered);
    near.write_all(&frame(&registered)).await.unwrap();
    near
}

/// An agent of which two results are more than may wait to be sent.
fn large() -> Agent {
    Agent::new("1.0.0".parse().unwrap()).tool(spec("large"), |_, _| {
        core::future::ready(Ok(object(&json!({"text": "x".repeat(900_000)}))))
    })
}

/// Calls of the tool `large`.
fn calls(count: usize) -> Vec<u8> {
    let one = |n: usize| {
        let mut call = call(&n.to_string());
        call["payload"]["tool_id"] = json!(format!("{AGENT}/large"));
        frame(&call)
    };
    (0..count).flat_map(one).collect()
}

/// The next results of an agent.
async fn results(near: &mut DuplexStream, count: usize) -> Vec<Value> {
    let mut results = Vec::new();
    while results.len() < count {
        let mut next = next_frame(near).await;
        if next["type"] == "agent.tool.result" {
            results.push(next["payload"].take());
        }
    }
    results
}

async fn until(count: &AtomicUsize, wanted: usize) {
    while count.load(Ordering::SeqCst) < wanted {
        tokio::task::yield_now().await;
    }
}

// spec: OSW-2-7
#[tokio::test]
async fn a_core_that_reads_nothing_gets_no_more_results_made_for_it() {
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let agent = Agent::new("1.0.0".parse().unwrap()).tool(spec("large"), move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        core::future::ready(Ok(object(&json!({"text": "x".repeat(900_000)}))))
    });
    let mut near = core_of(agent, Limits::default()).await;
    near.write_all(&calls(100)).await.unwrap();
    until(&begun, 1).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    // As much waits to be sent as may, and one more.
    let seen = begun.load(Ordering::SeqCst);
    assert!(seen <= 2, "{seen} tools have begun");
    for result in results(&mut near, 100).await {
        assert_eq!(result["status"], "succeeded");
    }
}

// spec: OSW-4.3-11
#[tokio::test]
async fn pieces_of_many_tools_wait_with_their_tools_for_a_core_that_reads_nothing() {
    const PIECE: usize = 200_000;
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let agent = Agent::new("1.0.0".parse().unwrap()).tool(spec("large"), move |context, _| {
        let count = Arc::clone(&count);
        async move {
            context.send("x".repeat(PIECE)).await?;
            count.fetch_add(1, Ordering::SeqCst);
            Ok(object(&json!({})))
        }
    });
    let mut near = core_of(agent, Limits::default()).await;
    near.write_all(&calls(40)).await.unwrap();
    until(&sent, 1).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    // What waits to be sent is a megabyte and a piece.
    let seen = sent.load(Ordering::SeqCst);
    assert!(
        (1..=1_000_000 / PIECE + 2).contains(&seen),
        "{seen} pieces were taken"
    );
    for result in results(&mut near, 40).await {
        assert_eq!(result["status"], "succeeded");
    }
}

// A tool may have handed its context to a task of its own.
// spec: OSW-4.4-1
#[tokio::test(start_paused = true)]
async fn whoever_keeps_the_context_of_a_call_learns_of_its_end() {
    for waits in [false, true] {
        let (told, mut end) = watch::channel(false);
        let agent = Agent::new("1.0.0".parse().unwrap()).tool(spec("large"), move |context, _| {
            let told = told.clone();
            tokio::spawn(async move {
                context.cancelled().await;
                assert!(context.is_cancelled());
                told.send_replace(true);
            });
            async move {
                if waits {
                    tokio::task::yield_now().await;
                }
                Ok(object(&json!({})))
            }
        });
        let mut near = core_of(agent, Limits::default()).await;
        near.write_all(&calls(1)).await.unwrap();
        results(&mut near, 1).await;
        let patience = Duration::from_secs(60);
        let learnt = tokio::time::timeout(patience, end.wait_for(|end| *end)).await;
        assert!(*learnt.expect("it has ended").unwrap(), "{waits}");
    }
}

// spec: OSW-4.4-2
#[tokio::test]
async fn a_call_whose_tool_has_not_begun_is_cancelled() {
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let agent = Agent::new("1.0.0".parse().unwrap()).tool(spec("large"), move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        core::future::ready(Ok(object(&json!({"text": "x".repeat(900_000)}))))
    });
    let mut near = core_of(agent, Limits::default()).await;
    let cancel = json!({"call_id": "9", "deadline_ms": 60_000});
    let cancel = message("core.tool.cancel", cancel);
    let all = [calls(10), frame(&cancel)].concat();
    near.write_all(&all).await.unwrap();
    let results = results(&mut near, 10).await;
    let status = |result: &Value| (result["call_id"] == "9").then(|| result["status"].clone());
    let seen = results.iter().find_map(status);
    assert_eq!(seen, Some(json!("canceled")));
    assert_eq!(begun.load(Ordering::SeqCst), 9);
}

// spec: OSW-2-7
#[tokio::test]
async fn results_that_wait_to_be_sent_are_bounded_together() {
    const RESULT: usize = 500_000;
    let limits = Limits::default().with_max_inflight_bytes(8 * RESULT + RESULT / 2);
    let (go, gone) = watch::channel(false);
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let [begun, returned] = counts.clone();
    let agent = Agent::new("1.0.0".parse().unwrap()).tool(spec("large"), move |_, _| {
        let (mut gone, [begun, returned]) = (gone.clone(), counts.clone());
        async move {
            begun.fetch_add(1, Ordering::SeqCst);
            gone.wait_for(|gone| *gone).await.unwrap();
            returned.fetch_add(1, Ordering::SeqCst);
            Ok(object(&json!({"text": "x".repeat(RESULT - 100)})))
        }
    });
    let mut near = core_of(agent, limits).await;
    near.write_all(&calls(20)).await.unwrap();
    until(&begun, 20).await;
    go.send_replace(true);
    until(&returned, 20).await;
    let results = results(&mut near, 20).await;
    let (good, bad): (Vec<_>, _) = results.iter().partition(|it| it["status"] == "succeeded");
    // Those beside the bound were on their way.
    assert!((8..=8 + 4).contains(&good.len()), "{}", good.len());
    for result in bad {
        assert_eq!(result["error"]["code"], "tool.output_too_large");
    }
    // What was sent makes room again.
    near.write_all(&calls(1)).await.unwrap();
    assert_eq!(self::results(&mut near, 1).await[0]["status"], "succeeded");
}

// spec: OSW-4.1-7
#[tokio::test]
async fn an_agent_shuts_down_though_its_core_reads_nothing() {
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let agent = Agent::new("1.0.0".parse().unwrap()).tool(spec("large"), move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        core::future::ready(Ok(object(&json!({"text": "x".repeat(900_000)}))))
    });
    let control = agent.control();
    let mut near = core_of(agent, Limits::default()).await;
    near.write_all(&calls(10)).await.unwrap();
    until(&begun, 2).await;
    control.shutdown().await;
    let ended = async {
        // It takes no more tools once it is gone.
        while control.replace_tools(Vec::new()).await.is_ok() {}
    };
    let patience = Duration::from_secs(120);
    tokio::time::timeout(patience, ended).await.unwrap();
}

// spec: OSW-4.3-11
#[tokio::test(start_paused = true)]
async fn an_agent_whose_core_reads_nothing_reads_no_more_of_it() {
    let mut near = core_of(large(), Limits::default()).await;
    near.write_all(&calls(2)).await.unwrap();
    let pings = frame(&message("core.ping", json!({}))).repeat(10_000);
    let taken = tokio::time::timeout(Duration::from_secs(1), near.write_all(&pings));
    assert!(taken.await.is_err());
}

// Those that nobody reads would be all that is kept one day.
#[tokio::test]
async fn no_heartbeats_are_made_for_a_core_that_reads_nothing() {
    let mut near = core_that_wants_heartbeats(large(), Limits::default(), 1).await;
    near.write_all(&calls(2)).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let clock = Clock::start();
    let since = clock.now().wall;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let until = clock.now().wall;
    let (mut unread, mut later) = (0, 0);
    while later == 0 {
        let next = next_frame(&mut near).await;
        if next["type"] == "agent.heartbeat" {
            let at = next["ts"].as_str().unwrap().parse::<Timestamp>().unwrap();
            unread += usize::from(since < at && at < until);
            later += usize::from(at > until);
        }
    }
    assert_eq!(unread, 0);
}
