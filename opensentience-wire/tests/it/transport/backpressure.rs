//! Sides that read slowly, or not at all.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opensentience_wire::message::Status;
use opensentience_wire::role::CloseReason;
use opensentience_wire::transport::tokio::{AuditSink, RunningCall, attach};
use opensentience_wire::{AuditName, CommandError, ErrorCode, Grant, Ledger, Limits, Share};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use ubos_common::id::IdSource;
use ubos_common::os::Clock;

use crate::kit::{AGENT, frame, hello, message, token, tool};

use super::{
    audit_channel, audited_raw_agent, code, connect, launch, next_frame, patient, raw_agent,
    raw_agent_over, raw_agent_with, raw_agent_within, request,
};

// spec: OSW-4.3-11
#[tokio::test]
async fn a_slow_reader_slows_the_tool_and_loses_nothing() {
    let mut handle = connect(Limits::default(), token()).await.unwrap();
    assert!(handle.tools_changed().await);
    let mut slow = handle
        .call(request("count", json!({"n": 3_000})))
        .await
        .unwrap();
    let echo = handle.call(request("echo", json!({}))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut seen = 0;
    while slow.next_chunk().await.is_some() {
        seen += 1;
    }
    assert_eq!(seen, 3_000);
    assert_eq!(slow.result().await.status, Status::Succeeded);
    assert_eq!(echo.result().await.status, Status::Succeeded);
    let unread = handle
        .call(request("count", json!({"n": 3_000})))
        .await
        .unwrap();
    assert_eq!(unread.result().await.status, Status::Succeeded);
}

// spec: OSW-4.3-11
#[tokio::test]
async fn who_wants_the_end_alone_has_it() {
    let mut handle = connect(Limits::default(), token()).await.unwrap();
    assert!(handle.tools_changed().await);
    let count = request("count", json!({"n": 20_000}));
    let unread = handle.call(count).await.unwrap();
    // Its agent is held up first.
    loop {
        let echo = request("echo", json!({})).with_timeout(Duration::from_millis(200));
        let echo = handle.call(echo).await.unwrap().result().await;
        if echo.status != Status::Succeeded {
            assert_eq!(code(&echo), "tool.timeout");
            break;
        }
    }
    assert_eq!(unread.result().await.status, Status::Succeeded);
}

// Both ends have more to write than either has read: one of them has to go on reading.
// spec: OSW-4.3-11
#[tokio::test]
async fn large_calls_and_large_results_pass_each_other() {
    let mut handle = connect(Limits::default(), token()).await.unwrap();
    assert!(handle.tools_changed().await);
    let text = "x".repeat(1_000_000);
    let echo = async || {
        let call = handle.call(request("echo", json!({"text": text}))).await;
        call.unwrap().result().await.status
    };
    let all = async {
        tokio::join!(
            echo(),
            echo(),
            echo(),
            echo(),
            echo(),
            echo(),
            echo(),
            echo()
        )
    };
    let patience = Duration::from_secs(300);
    let (a, b, c, d, e, f, g, h) = tokio::time::timeout(patience, all).await.unwrap();
    assert!(
        [a, b, c, d, e, f, g, h]
            .iter()
            .all(|status| *status == Status::Succeeded)
    );
}

/// The ids of the next calls that a core sends.
async fn next_calls(far: &mut DuplexStream, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    while ids.len() < count {
        let frame = next_frame(far).await;
        if let Some(id) = frame["payload"]["call_id"].as_str() {
            ids.push(id.to_owned());
        }
    }
    ids
}

// An agent that answers before it reads must not wait for ever: what results let go is the core's to send.
// spec: OSW-2-6
#[tokio::test]
async fn results_are_read_while_the_calls_behind_them_wait_to_be_sent() {
    let limits = Limits::default().with_max_inflight_requests(4);
    let (handle, mut far) = raw_agent_within(limits).await;
    let mut calls = Vec::new();
    for n in 0..12 {
        let size = if n < 4 { 10 } else { 500_000 };
        let input = json!({"text": "x".repeat(size)});
        calls.push(handle.call(request("echo", input)).await.unwrap());
    }
    let answered = async {
        for id in next_calls(&mut far, 4).await {
            let output = json!({"text": "y".repeat(500_000)});
            let result = json!({"call_id": id, "status": "succeeded", "output": output});
            let result = message("agent.tool.result", result);
            far.write_all(&frame(&result)).await.unwrap();
        }
        next_calls(&mut far, 4).await
    };
    let patience = Duration::from_secs(300);
    let next = tokio::time::timeout(patience, answered).await.unwrap();
    assert_eq!(next.len(), 4);
    for call in calls.drain(..4) {
        assert_eq!(call.result().await.status, Status::Succeeded);
    }
}

/// Waits for the first piece of a flood, which may take long on a busy machine: what comes behind it is to be held up.
async fn until_held(ledger: &Ledger, bytes: usize) {
    while ledger.held_bytes_of(Share::Output) < bytes {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

// Output is bounded in bytes, too: few pieces may be many bytes.
// spec: OSW-4.3-11
#[tokio::test]
async fn long_output_that_nobody_takes_is_not_read_on() {
    let (handle, mut far) = raw_agent().await;
    let ledger = handle.ledger().clone();
    let mut call = handle.call(request("echo", json!({}))).await.unwrap();
    let id = next_calls(&mut far, 1).await.remove(0);
    let written = Cell::new(0);
    let mut flood = pin!(async {
        for seq in 1..=60 {
            let data = json!({"text": "x".repeat(500_000)});
            let piece = json!({"call_id": id, "seq": seq, "channel": "stdout", "data": data});
            let piece = message("agent.tool.stream", piece);
            far.write_all(&frame(&piece)).await.unwrap();
            written.set(seq);
        }
    });
    tokio::select! {
        () = &mut flood => panic!("all of it was read"),
        () = until_held(&ledger, 500_000) => {}
    }
    let quiet = tokio::time::timeout(Duration::from_secs(2), flood);
    assert!(quiet.await.is_err());
    let written = written.get();
    assert!(written <= 4, "{written}");
    assert_eq!(call.next_chunk().await.unwrap().seq, 1);
}

// Nothing else happens on the connection: that its output is taken lets the agent be read again.
// spec: OSW-4.3-11
#[tokio::test]
async fn an_agent_is_read_again_once_its_output_is_taken() {
    let quiet = patient().with_heartbeat_interval(Duration::from_secs(3600));
    let (handle, mut far) = raw_agent_with(quiet).await;
    let mut call = handle.call(request("echo", json!({}))).await.unwrap();
    let id = next_calls(&mut far, 1).await.remove(0);
    let mut flood = pin!(async {
        for seq in 1..=60 {
            let data = json!({"text": "x".repeat(500_000)});
            let piece = json!({"call_id": id, "seq": seq, "channel": "stdout", "data": data});
            let piece = message("agent.tool.stream", piece);
            far.write_all(&frame(&piece)).await.unwrap();
        }
    });
    let quiet = tokio::time::timeout(Duration::from_millis(100), &mut flood);
    assert!(quiet.await.is_err());
    let take = async {
        for seq in 1..=60 {
            assert_eq!(call.next_chunk().await.unwrap().seq, seq);
        }
    };
    tokio::join!(flood, take);
}

// spec: OSW-2-9
#[tokio::test]
async fn an_agent_that_provokes_answers_and_reads_none_is_not_read_on() {
    let (_handle, mut far) = raw_agent().await;
    let unknown = |n: usize| {
        let mut message = message("agent.what", json!({}));
        message["request_id"] = json!(format!("{n}{}", "r".repeat(10_000)));
        frame(&message)
    };
    let flood = async {
        for n in 0.. {
            far.write_all(&unknown(n)).await.unwrap();
        }
    };
    // A core that wrote down answers without end would read without end.
    let quiet = tokio::time::timeout(Duration::from_secs(2), flood);
    assert!(quiet.await.is_err());
    let mut answers = 0;
    let rest = async {
        let mut buffer = vec![0; 4_096];
        while answers < 8 << 20 {
            answers += far.read(&mut buffer).await.unwrap();
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(2), rest)
            .await
            .is_err()
    );
}

// spec: OSW-4.1-7
#[tokio::test]
async fn an_agent_that_stops_reading_does_not_delay_shutdown() {
    for dropped in [false, true] {
        let (handle, mut far) = raw_agent().await;
        let input = json!({"text": "x".repeat(1_000_000)});
        let mut calls = Vec::new();
        for _ in 0..2 {
            calls.push(handle.call(request("echo", input.clone())).await.unwrap());
        }
        let ended = async {
            if dropped {
                drop(handle);
            } else {
                assert_eq!(handle.shutdown().await, CloseReason::Goodbye);
            }
            for call in calls {
                assert_eq!(code(&call.result().await), "agent.disconnected");
            }
        };
        let patience = Duration::from_secs(60);
        tokio::time::timeout(patience, ended).await.unwrap();
        // The stream has ended too.
        while far.read(&mut [0; 4_096]).await.unwrap() > 0 {}
    }
}

#[tokio::test]
async fn who_asks_after_the_end_is_told_even_while_output_waits() {
    let (handle, _) = launch().await;
    let count = request("count", json!({"n": 50}));
    let unread = handle.call(count).await.unwrap();
    let die = handle.call(request("die", json!({}))).await.unwrap();
    assert_eq!(code(&die.result().await), "agent.disconnected");
    let late = handle.call(request("echo", json!({}))).await;
    assert_eq!(late.unwrap_err(), CommandError::Closing);
    drop(unread);
}

/// A registration whose schemas take long to compile.
fn heavy(name: &str) -> Vec<u8> {
    let mut tool = tool(name);
    tool["input_schema"] = json!({"pattern": format!("{}{name}", "\\w".repeat(330))});
    frame(&message("agent.tools.register", json!({"tools": [tool]})))
}

// spec: OSW-4.2-3
#[tokio::test]
async fn a_connection_that_ends_before_its_schemas_are_compiled_holds_up_no_other() {
    let (handle, mut far) = raw_agent().await;
    let call = handle.call(request("echo", json!({}))).await.unwrap();
    let id = next_calls(&mut far, 1).await.remove(0);
    let ended = json!({"call_id": id, "status": "succeeded", "output": {}});
    let ended = message("agent.tool.result", ended);
    far.write_all(&frame(&ended)).await.unwrap();
    while handle.pending_calls() > 0 {
        tokio::task::yield_now().await;
    }
    let (_busy, mut busy_far) = raw_agent().await;
    busy_far.write_all(&heavy("busy")).await.unwrap();
    far.write_all(&heavy("first")).await.unwrap();
    // Its schemas wait behind those of the busy one.
    tokio::time::sleep(Duration::from_millis(20)).await;
    handle.shutdown().await;
    let (mut other, mut far) = raw_agent().await;
    far.write_all(&heavy("second")).await.unwrap();
    let changed = tokio::time::timeout(Duration::from_secs(300), other.tools_changed());
    assert!(changed.await.unwrap());
    // It has been kept by who still wants its output.
    drop(call);
}

// spec: OSW-4.3-11
#[tokio::test]
async fn output_of_a_call_that_has_ended_holds_up_no_other_call() {
    let (handle, mut far) = raw_agent().await;
    let mut slow = handle.call(request("echo", json!({}))).await.unwrap();
    let id = next_calls(&mut far, 1).await.remove(0);
    for seq in 1..=70 {
        let piece = json!({"call_id": id, "seq": seq, "channel": "stdout", "data": {"text": "x"}});
        let piece = frame(&message("agent.tool.stream", piece));
        far.write_all(&piece).await.unwrap();
        if seq == 65 {
            // As many wait as may, and one more: nothing is read until the call ends.
            tokio::time::sleep(Duration::from_millis(20)).await;
            slow.cancel();
        }
    }
    let next = async {
        let other = handle.call(request("echo", json!({}))).await.unwrap();
        let id = loop {
            let sent = next_frame(&mut far).await;
            if sent["type"] == "core.tool.call" {
                break sent["payload"]["call_id"].clone();
            }
        };
        let ended = json!({"call_id": id, "status": "succeeded", "output": {}});
        let ended = frame(&message("agent.tool.result", ended));
        far.write_all(&ended).await.unwrap();
        other.result().await
    };
    // The cancelled one ends without its agent after 5 s.
    let outcome = tokio::time::timeout(Duration::from_secs(60), next).await;
    assert_eq!(outcome.unwrap().status, Status::Succeeded);
    assert_eq!(slow.next_chunk().await.unwrap().seq, 1);
}

// spec: OSW-4.3-9
#[tokio::test]
async fn what_a_call_waits_for_room_is_taken_from_its_time() {
    let (handle, mut far) = raw_agent().await;
    let long = json!({"text": "x".repeat(1_000_000)});
    let first = handle.call(request("echo", long.clone())).await.unwrap();
    let second = handle.call(request("echo", long)).await.unwrap();
    let asked = request("echo", json!({})).with_timeout(Duration::from_secs(600));
    let waits = async {
        let call = handle.call(asked).await.unwrap();
        (call, ())
    };
    let reads = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        loop {
            let sent = next_frame(&mut far).await;
            if let Some(left) = sent["payload"]["timeout_ms"].as_u64() {
                return left;
            }
        }
    };
    let (_third, left) = tokio::join!(waits, reads);
    assert!(left <= 600_000 - 40, "{left} ms are left");
    drop((first, second));
}

/// A piece of output of a call, as its agent sends it.
fn piece(id: &str, seq: u64, bytes: usize) -> Vec<u8> {
    // What the core does not know counts, too.
    let half = "x".repeat(bytes / 2);
    let data = json!({"text": half, "later": half});
    let piece = json!({"call_id": id, "seq": seq, "channel": "stdout", "data": data});
    frame(&message("agent.tool.stream", piece))
}

#[tokio::test]
async fn what_a_piece_of_output_says_beside_it_counts_as_output() {
    let (handle, mut far) = raw_agent().await;
    let (mut held, mut calls) = (vec![0], Vec::new());
    for later in ["", &"x".repeat(100)] {
        calls.push(handle.call(request("echo", json!({}))).await.unwrap());
        let id = &next_calls(&mut far, 1).await[0];
        let piece = json!({"call_id": id, "seq": 1, "channel": "stdout", "data": {"text": ""}, "later": later});
        far.write_all(&frame(&message("agent.tool.stream", piece)))
            .await
            .unwrap();
        let all = || handle.ledger().held_bytes_of(Share::Output);
        while all() == held[held.len() - 1] {
            tokio::task::yield_now().await;
        }
        held.push(all());
    }
    assert!(held[2] >= 2 * held[1] + 100, "{held:?}");
}

// spec: OSW-4.3-11
#[tokio::test]
async fn output_of_all_calls_is_bounded_together_and_the_agent_is_read_again() {
    let limits = Limits::default().with_max_agent_bytes(32 << 20);
    let (handle, mut far) = raw_agent_within(limits).await;
    let ledger = handle.ledger().clone();
    let most = ledger.max_bytes_of(Share::Output);
    let before = ledger.held_bytes();
    let mut calls = Vec::new();
    for _ in 0..20 {
        calls.push(handle.call(request("echo", json!({}))).await.unwrap());
    }
    let ids = next_calls(&mut far, 20).await;
    // Of each no more than one call may have.
    let mut flood = pin!(async {
        for id in &ids {
            far.write_all(&piece(id, 1, 900_000)).await.unwrap();
        }
    });
    tokio::select! {
        () = &mut flood => panic!("all of it was read"),
        () = until_held(&ledger, 900_000) => {}
    }
    let quiet = tokio::time::timeout(Duration::from_secs(2), &mut flood);
    assert!(quiet.await.is_err());
    let held = ledger.held_bytes_of(Share::Output);
    assert!((900_000..=most).contains(&held), "{held} of {most}");
    let take = async {
        for call in &mut calls {
            assert!(call.next_chunk().await.is_some());
            assert!(ledger.held_bytes_of(Share::Output) <= most);
        }
    };
    tokio::join!(flood, take);
    drop(calls);
    handle.shutdown().await;
    assert_eq!(ledger.held_bytes_of(Share::Output), 0);
    assert!(before > 0 && ledger.held_bytes() == 0, "{ledger:?}");
}

// spec: OSW-2-7
#[tokio::test]
async fn results_that_nobody_takes_are_bounded_together() {
    let limits = Limits::default().with_max_agent_bytes(32 << 20);
    let (handle, mut far) = raw_agent_within(limits).await;
    let ledger = handle.ledger().clone();
    let most = ledger.max_bytes_of(Share::Results);
    let mut calls = Vec::new();
    for _ in 0..12 {
        calls.push(handle.call(request("echo", json!({}))).await.unwrap());
    }
    for id in next_calls(&mut far, 12).await {
        let output = json!({"text": "y".repeat(1_000_000)});
        let result = json!({"call_id": id, "status": "succeeded", "output": output});
        let result = message("agent.tool.result", result);
        far.write_all(&frame(&result)).await.unwrap();
    }
    while handle.pending_calls() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let held = ledger.held_bytes_of(Share::Results);
    assert!((most / 2..=most).contains(&held), "{held} of {most}");
    let mut ends = Vec::new();
    for call in calls {
        let outcome = call.result().await;
        ends.push(code(&outcome).to_owned());
    }
    // Those that came first are there.
    let good = held / 1_000_000;
    assert!(ends[..good].iter().all(String::is_empty), "{ends:?}");
    let too_large = |code: &String| code == "tool.output_too_large";
    assert!(ends[good..].iter().all(too_large), "{ends:?}");
    assert_eq!(ledger.held_bytes_of(Share::Results), 0);
}

// The core could read them all at once.
// spec: OSW-2-7
#[tokio::test]
async fn results_that_are_waited_for_are_taken_before_more_are_read() {
    let limits = Limits::default().with_max_agent_bytes(32 << 20);
    let config = patient().with_limits(limits);
    let (handle, mut far) = raw_agent_over(32 << 20, config, AuditSink::default()).await;
    let most = handle.ledger().max_bytes_of(Share::Results);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let call = handle.call(request("echo", json!({}))).await.unwrap();
        callers.spawn(call.result());
    }
    let mut results = Vec::new();
    for id in next_calls(&mut far, 16).await {
        let output = json!({"text": "y".repeat(1_000_000)});
        let result = json!({"call_id": id, "status": "succeeded", "output": output});
        results.extend(frame(&message("agent.tool.result", result)));
    }
    assert!(results.len() > 2 * most);
    far.write_all(&results).await.unwrap();
    while let Some(outcome) = callers.join_next().await {
        assert_eq!(code(&outcome.unwrap()), "");
    }
}

// spec: OSW-4.3-9
#[tokio::test]
async fn calls_end_in_their_time_while_results_wait_and_the_agent_goes_on() {
    let limits = Limits::default().with_max_agent_bytes(32 << 20);
    let (handle, mut far) = raw_agent_within(limits).await;
    let mut untaken = Vec::new();
    for _ in 0..5 {
        untaken.push(handle.call(request("echo", json!({}))).await.unwrap());
    }
    for id in next_calls(&mut far, 5).await {
        let output = json!({"text": "y".repeat(1_000_000)});
        let result = json!({"call_id": id, "status": "succeeded", "output": output});
        let result = message("agent.tool.result", result);
        far.write_all(&frame(&result)).await.unwrap();
    }
    let share = (Share::Results, handle.ledger().max_bytes_of(Share::Results));
    while handle.ledger().held_bytes_of(share.0) <= share.1 / 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut talking = handle.call(request("echo", json!({}))).await.unwrap();
    let timed = request("echo", json!({})).with_timeout(Duration::from_millis(200));
    let timed = handle.call(timed).await.unwrap();
    let id = next_calls(&mut far, 1).await.remove(0);
    let talk = async {
        for seq in 1.. {
            let chunk =
                json!({"call_id": id, "seq": seq, "channel": "stdout", "data": {"text": "z"}});
            let chunk = frame(&message("agent.tool.stream", chunk));
            far.write_all(&chunk).await.unwrap();
        }
    };
    let listen = async { while talking.next_chunk().await.is_some() {} };
    let late = tokio::time::timeout(Duration::from_secs(60), timed.result());
    let late = tokio::select! {
        late = late => late.unwrap(),
        () = talk => panic!("it goes on"),
        () = listen => panic!("there is more"),
    };
    assert_eq!(code(&late), "tool.timeout");
}

// spec: OSW-8-1
#[tokio::test]
async fn a_call_that_is_dropped_before_it_found_room_is_audited() {
    let (sink, mut audit) = audit_channel();
    let (core, _far) = audited_raw_agent(patient(), sink).await;
    let long = || request("echo", json!({"text": "x".repeat(900_000)}));
    let mut sent = Vec::new();
    // Nobody reads them: it waits for room once the stream is full.
    while let Ok(call) = tokio::time::timeout(Duration::from_millis(50), core.call(long())).await {
        sent.push(call.unwrap());
    }
    let mut refused = Vec::new();
    while let Ok(record) = audit.try_recv() {
        if record.name == AuditName::CallRefused {
            refused.push(record);
        }
    }
    let [record] = &refused[..] else {
        panic!("{refused:?}")
    };
    assert_eq!(record.code, Some(ErrorCode::ToolCanceled));
    assert_eq!(record.tool_id, Some(long().tool_id));
    assert_eq!(record.correlation_id.as_deref(), Some("c"));
}

// Sinks are told under the lock, so the driver has to see to it, which may have nothing else to do.
// spec: OSW-8-1
#[tokio::test(start_paused = true)]
async fn a_call_without_room_that_a_sink_drops_is_audited() {
    for is_told_by_the_driver in [true, false] {
        sink_that_drops_a_call(is_told_by_the_driver).await;
    }
}

async fn sink_that_drops_a_call(is_told_by_the_driver: bool) {
    type Waiting = Pin<Box<dyn Future<Output = Result<RunningCall, CommandError>> + Send>>;
    let waiting: Arc<Mutex<Option<Waiting>>> = Arc::default();
    let (tx, mut audit) = tokio::sync::mpsc::unbounded_channel();
    let dropped = Arc::clone(&waiting);
    let sink = AuditSink::from(move |event| {
        drop(dropped.lock().unwrap().take());
        drop(tx.send(event));
    });
    let (core, mut far) = audited_raw_agent(patient(), sink).await;
    let core = Arc::new(core);
    let mut sent = Vec::new();
    let long = || request("echo", json!({"text": "x".repeat(900_000)}));
    let call = loop {
        let core = Arc::clone(&core);
        let mut call: Waiting = Box::pin(async move { core.call(long()).await });
        // One that finds room is taken at the first look.
        match tokio::time::timeout(Duration::from_millis(1), &mut call).await {
            Ok(taken) => sent.push(taken.unwrap()),
            Err(_) => break call,
        }
    };
    *waiting.lock().unwrap() = Some(call);
    if is_told_by_the_driver {
        far.write_all(&frame(&json!({"v": 1}))).await.unwrap();
    } else {
        let late = core.call(long().with_timeout(Duration::from_millis(1)));
        assert_eq!(late.await.unwrap_err(), CommandError::Late);
    }
    let refused = async {
        loop {
            let record = audit.recv().await.unwrap();
            if record.code == Some(ErrorCode::ToolCanceled) {
                break record;
            }
        }
    };
    let refused = tokio::time::timeout(Duration::from_millis(1), refused).await;
    assert_eq!(refused.unwrap().name, AuditName::CallRefused);
}

// Each byte costs the core a look, and a whole frame of them comes to no message.
#[tokio::test]
async fn a_frame_that_comes_byte_by_byte_has_a_rate() {
    // Hello and welcome come byte by byte, too.
    let (near, mut far) = tokio::io::duplex(1);
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let (ids, audit) = (IdSource::seeded(1), AuditSink::default());
    let attached = attach(near, clock, patient(), ids, grant, audit);
    let greeting = async {
        far.write_all(&frame(&hello())).await.unwrap();
        assert_eq!(next_frame(&mut far).await["type"], "core.welcome");
    };
    let (handle, ()) = tokio::join!(attached, greeting);
    let began = std::time::Instant::now();
    let long = json!({"session_id": "x".repeat(10_500), "status": "ok"});
    let long = frame(&message("agent.heartbeat", long));
    far.write_all(&long).await.unwrap();
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(200), "{took:?}");
    drop(handle);
}

// spec: OSW-4.5-5
#[tokio::test]
async fn an_agent_that_said_too_much_and_is_gone_has_ended() {
    let (mut handle, mut far) = raw_agent_over(2 << 20, patient(), AuditSink::default()).await;
    let call = handle.call(request("echo", json!({}))).await.unwrap();
    // More than may be said at once, and each wants an answer, which nobody takes.
    let mut question = message("agent.later", json!({}));
    question["request_id"] = json!("q");
    let questions = frame(&question).repeat(8_400);
    far.write_all(&questions).await.unwrap();
    drop(far);
    let ended = async { while handle.tools_changed().await {} };
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, ended)
        .await
        .expect("it has ended");
    assert_eq!(code(&call.result().await), "agent.disconnected");
}
