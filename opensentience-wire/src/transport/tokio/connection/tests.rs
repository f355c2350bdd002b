use super::*;
use crate::audit::AuditName;
use crate::error::ErrorCode;
use crate::frame::encode_frame;
use crate::message::{Channel, ChunkData, Health, Status};
use crate::role::core::Config;
use crate::token::SessionToken;
use crate::transport::tokio::call::{Link, RunningCall};
use core::future::poll_fn;
use serde_json::json;
use std::sync::Arc;
use std::task::Wake;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use ubos_common::id::IdSource;
use ubos_common::json::RawObject;

fn tell(conn: &mut CoreConnection, clock: &Clock, kind: &str, payload: serde_json::Value) {
    conn.handle_input(clock.now(), Input::Bytes(&frame_of(kind, &payload)))
        .unwrap();
}

fn frame_of(kind: &str, payload: &serde_json::Value) -> Vec<u8> {
    let text =
        json!({"v": 1, "type": kind, "id": "m", "ts": "2026-01-16T12:00:00Z", "payload": payload});
    let (text, mut frame) = (text.to_string(), Vec::new());
    encode_frame(&mut frame, usize::MAX, |out| out.extend(text.bytes())).unwrap();
    frame
}

struct NoLink;

impl Link<CallId> for NoLink {
    fn cancel(&self, _: &CallId) {}

    fn on_change(&self, _: Change) {}
}

#[tokio::test]
async fn short_reads_alone_have_a_rate() {
    let (mut made, counts) = (connection(Listeners::default()), Counts::default());
    for (bytes, rests) in [(DRIP, false), (DRIP - 1, true)] {
        for _ in 0..100_000 {
            made.on_moved(&counts, &Moved::Read(bytes));
        }
        assert_eq!(made.rests(), rests, "{bytes}");
    }
    made.rests_until = Some(Mono::ZERO);
    assert!(!made.rests(), "it is over");
}

#[tokio::test]
async fn schemas_are_compiled_without_the_lock_of_their_connection() {
    let mut made = connection(Listeners::default());
    let tool = json!({"tool_id": "a/u", "name": "u", "description": "d", "input_schema": {}});
    let (clock, register) = (made.clock, json!({"tools": [tool]}));
    tell(&mut made.conn, &clock, "agent.tools.register", register);
    made.drain(&Counts::default());
    assert!(made.checking.is_some());
}

// What an agent says while nobody reads is not heard, so its silence says nothing.
// spec: OSW-4.5-2
#[tokio::test]
async fn silence_is_watched_while_the_agent_is_read() {
    let (mut made, counts) = (connection(Listeners::default()), Counts::default());
    let (near, _far) = tokio::io::duplex(64);
    made.wire = Wire::new(Box::pin(near));
    let mut turn = || {
        let context = &mut Context::from_waker(Waker::noop());
        let _ = made.poll_turn(&counts, context, false);
        made.conn.poll_timeout().is_some()
    };
    assert!(turn());
    counts.full.store(1, Ordering::Relaxed);
    assert!(!turn());
    counts.full.store(0, Ordering::Relaxed);
    assert!(turn());
}

/// One whose agent has said too much, and is not read.
fn throttled(stream: tokio::io::DuplexStream) -> Connection {
    let mut made = connection(Listeners::default());
    made.wire = Wire::new(Box::pin(stream));
    let (clock, hour) = (made.clock, Duration::from_secs(3_600));
    made.conn.ledger().owe(clock.mono(), hour, hour);
    tell(&mut made.conn, &clock, "agent.heartbeat", json!({}));
    assert!(!made.conn.accepts_input());
    made
}

/// A call that runs, and the agent's result of it.
fn answered(made: &mut Connection, counts: &Counts) -> (RunningCall, Vec<u8>) {
    let request = CallRequest::new("a/t", RawObject::empty());
    let id = made.call_tool(counts, request).unwrap();
    let (running, call) = RunningCall::new(id.clone(), Arc::new(NoLink));
    let span = made.span_of(&id);
    let payload = json!({"call_id": id.as_str(), "status": "succeeded"});
    made.add(counts, id, Slot { call, span });
    (running, frame_of("agent.tool.result", &payload))
}

// spec: OSW-4.5-5
#[tokio::test]
async fn the_last_of_an_agent_that_is_gone_is_read_though_it_said_too_much() {
    for (is_open, broken) in [(false, false), (true, false), (true, true)] {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (mut made, counts) = (throttled(near), Counts::default());
        let (running, result) = answered(&mut made, &counts);
        far.write_all(&result).await.unwrap();
        let far = is_open.then_some(far);
        let mut alarm = Alarm::new(made.clock);
        match broken {
            true => made.on_moved(&counts, &Moved::Broken),
            false => made.read_last(),
        }
        let reason = poll_fn(|context| {
            loop {
                match made.poll_turn(&counts, context, false) {
                    Poll::Ready(Turn::Closed(reason)) => return Poll::Ready(reason),
                    Poll::Ready(_) => {}
                    Poll::Pending => ready!(made.poll_alarm(context, &mut alarm)),
                }
            }
        });
        // It could be read again in two minutes.
        let reason = tokio::time::timeout(Duration::from_secs(60), reason).await;
        assert_eq!(reason.unwrap(), CloseReason::Disconnected);
        let outcome = running.result().await;
        assert_eq!(outcome.status, Status::Succeeded, "{:?}", outcome.error);
        drop(far);
    }
}

#[tokio::test]
async fn no_more_is_read_of_an_agent_that_takes_nothing_than_a_socket_keeps() {
    let mut made = connection(Listeners::default());
    made.wire = Wire::new(Box::pin(tokio::io::join(
        tokio::io::repeat(b'0'),
        tokio::io::sink(),
    )));
    made.read_last();
    // Exactly what is left is read.
    made.last.as_mut().unwrap().bytes = 4 << 10;
    let read = made.poll_last(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(read, Poll::Ready(Moved::Read(4_096))));
    made.last = None;
    made.read_last();
    let mut sum = 0;
    let reading = poll_fn(|context| {
        while let Moved::Read(count @ 1..) = ready!(made.poll_last(context)) {
            sum += count;
        }
        Poll::Ready(())
    });
    tokio::task::unconstrained(reading).await;
    assert!((MAX_LAST - (64 << 10)..=MAX_LAST).contains(&sum), "{sum}");
}

// What was sent for callers before is nothing that its answers are made up for with.
// spec: OSW-4.3-11
#[tokio::test]
async fn what_an_agent_provokes_counts_though_callers_have_sent_much() {
    let (near, mut far) = tokio::io::duplex(1 << 10);
    let (mut made, counts) = (connection(Listeners::default()), Counts::default());
    made.wire = Wire::new(Box::pin(near));
    let input = RawObject::parse(&format!(r#"{{"text":"{}"}}"#, "x".repeat(100_000))).unwrap();
    made.call_tool(&counts, CallRequest::new("a/t", input))
        .unwrap();
    made.drain(&counts);
    let question = br#"{"v":1,"type":"agent.later","id":"m","request_id":"q","ts":"2026-01-16T12:00:00Z","payload":{}}"#;
    let mut frame = Vec::new();
    encode_frame(&mut frame, usize::MAX, |out| out.extend(question)).unwrap();
    far.write_all(&frame).await.unwrap();
    let context = &mut Context::from_waker(Waker::noop());
    let _ = made.poll_turn(&counts, context, false);
    assert!(made.answers > 0, "it was answered");
}

// spec: OSW-2-7
#[tokio::test]
async fn a_call_ends_whose_output_finds_no_room() {
    let (mut made, counts) = (connection(Listeners::default()), Counts::default());
    let (near, mut far) = tokio::io::duplex(1 << 16);
    made.wire = Wire::new(Box::pin(near));
    let request = || CallRequest::new("a/t", RawObject::empty());
    let begin = |made: &mut Connection| {
        let id = made.call_tool(&counts, request()).unwrap();
        let (running, call) = RunningCall::new(id.clone(), Arc::new(NoLink));
        let span = made.span_of(&id);
        made.add(&counts, id.clone(), Slot { call, span });
        (id, running)
    };
    let piece = |made: &mut Connection, id: &CallId| {
        let mut data = ChunkData::new();
        data.text = Some("x".repeat(1_000));
        let chunk = ToolStream::new(id.to_string(), 1, Channel::Stdout, data);
        made.on_event(&counts, Event::Stream(id.clone(), chunk));
        made.drain(&counts);
    };
    let ledger = made.conn.ledger().clone();
    let (id, mut kept) = begin(&mut made);
    piece(&mut made, &id);
    assert!(kept.next_chunk().await.is_some(), "there is room");
    let all = ledger.take(Share::Output, ledger.max_bytes_of(Share::Output));
    let (id, mut unkept) = begin(&mut made);
    piece(&mut made, &id);
    assert!(unkept.next_chunk().await.is_none(), "it has ended");
    let error = unkept.result().await.error.unwrap();
    assert_eq!(error.code, ErrorCode::ToolOutputTooLarge);
    assert_eq!(made.conn.pending_calls(), 1);
    // The agent is told to stop.
    made.drain(&counts);
    poll_fn(|context| made.wire.poll_flush(context).map(|sent| sent.is_ok())).await;
    made.wire.close().await;
    let mut sent = Vec::new();
    far.read_to_end(&mut sent).await.unwrap();
    let sent = String::from_utf8_lossy(&sent).into_owned();
    let cancels: Vec<_> = sent.matches("core.tool.cancel").collect();
    assert_eq!(cancels.len(), 1, "{sent}");
    drop(all);
    assert_eq!(ledger.held_bytes_of(Share::Output), 0);
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

// A connection that ends lets those of its ledger look again, which it may have been woken for.
#[tokio::test]
async fn an_end_wakes_who_waits_for_output_to_be_taken() {
    for is_abandoned in [false, true] {
        let mut made = connection(Listeners::default());
        let ledger = made.conn.ledger().clone();
        let _all = ledger.take(Share::Output, ledger.max_bytes_of(Share::Output));
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        assert!(!Charge::on(&ledger, Share::Output).fill(1, &Context::from_waker(&waker)));
        if is_abandoned {
            made.abandon(&Counts::default());
        } else {
            drop(made.end());
        }
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "{is_abandoned}");
    }
}

#[tokio::test]
async fn records_of_calls_are_made_for_somebody_alone() {
    let mut made = connection(Listeners {
        health: Some(watch::channel(Health::Ok).0),
        ..Listeners::default()
    });
    let request = CallRequest::new("a/t", RawObject::empty());
    made.call_tool(&Counts::default(), request).unwrap();
    let is_record = |output| match output {
        Output::Event(Event::Audit(record)) => record.name == AuditName::CallRouted,
        _ => false,
    };
    let mut outputs = core::iter::from_fn(|| made.conn.poll_output());
    assert!(!outputs.any(is_record));
}

/// A connection of the agent `a`, which offers `a/t`.
fn connection(listeners: Listeners) -> Connection {
    let (clock, token) = (Clock::start(), SessionToken::from_random([9; 32]));
    let hello = json!({"session_token": token.expose(), "agent_id": "a", "agent_version": "1.0.0",
        "protocol": {"supported_versions": [1], "capabilities": ["tools"]}});
    let tool = json!({"tool_id": "a/t", "name": "t", "description": "d", "input_schema": {"type": "object"}});
    let grant = Grant::new(clock.mono(), token, "a");
    let ids = IdSource::seeded(1);
    let mut conn = CoreConnection::new(clock.now(), Config::default(), ids, Some(grant)).unwrap();
    tell(&mut conn, &clock, "agent.hello", hello);
    tell(
        &mut conn,
        &clock,
        "agent.tools.register",
        json!({"tools": [tool]}),
    );
    let (tools, _) = watch::channel(SharedTools::from(Vec::new()));
    let stream = Box::pin(tokio::io::empty());
    Connection::new(stream, clock, conn, listeners, tools)
}
