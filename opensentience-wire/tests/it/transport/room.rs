//! Calls that wait for room.

use super::*;

#[tokio::test]
async fn a_call_waits_for_room_no_longer_than_it_may_take() {
    let (core, _far) = raw_agent().await;
    // Nobody reads them: the stream is full after the first, and the driver takes no more.
    let text = "x".repeat(900_000);
    let timed = || request("echo", json!({"text": text})).with_timeout(Duration::from_millis(50));
    let late = async {
        loop {
            if let Err(error) = core.call(timed()).await {
                break error;
            }
        }
    };
    let late = tokio::time::timeout(Duration::from_secs(60), late).await;
    assert_eq!(late.unwrap(), CommandError::Late);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_time_waits_for_room_as_long_as_its_core_says() {
    let within = Duration::from_secs(7);
    let (sink, mut audit) = audit_channel();
    let (core, _far) = audited_raw_agent(patient().with_room_timeout(within), sink).await;
    let text = "x".repeat(900_000);
    for timeout in [None, Some(Duration::from_secs(3_600))] {
        let mut endless = request("echo", json!({"text": text}));
        endless.timeout = timeout;
        let error = loop {
            if let Err(error) = core.call(endless.clone()).await {
                break error;
            }
        };
        assert_eq!(error, CommandError::NoRoom { within });
    }
    let mut why = Vec::new();
    while let Ok(record) = audit.try_recv() {
        if record.name == AuditName::CallRefused {
            why.push((record.code.unwrap(), record.detail.unwrap()));
        }
    }
    let detail = "no room for the call in time".to_owned();
    assert_eq!(why, vec![(ErrorCode::ToolBusy, detail); 2]);
}

// One read takes all that stands in the stream, and nothing happens after it.
#[tokio::test(start_paused = true)]
async fn who_waits_for_room_has_it_as_soon_as_there_is_some() {
    let (core, mut far) = raw_agent_over(1 << 20, patient(), AuditSink::default()).await;
    let full = || request("echo", json!({"text": "x".repeat(900_000)}));
    let mut calls = Vec::new();
    let mut waiting = loop {
        let mut call = Box::pin(core.call(full()));
        tokio::select! {
            biased;
            taken = &mut call => calls.push(taken.unwrap()),
            // The driver has nothing to do any more.
            () = tokio::time::sleep(Duration::from_millis(1)) => break call,
        }
    };
    let began = tokio::time::Instant::now();
    let read = far.read(&mut vec![0; 1 << 20]).await.unwrap();
    assert_eq!(read, 1 << 20);
    waiting.as_mut().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
}

// spec: OSW-8-1
#[tokio::test]
async fn a_call_that_found_no_room_in_its_time_is_audited() {
    let (sink, mut audit) = audit_channel();
    let (core, _far) = audited_raw_agent(patient(), sink).await;
    let text = "x".repeat(900_000);
    let timed = || request("echo", json!({"text": text})).with_timeout(Duration::from_millis(50));
    while core.call(timed()).await.is_ok() {}
    // The calls that were sent end, too.
    let mut late = Vec::new();
    while let Ok(record) = audit.try_recv() {
        if record.name == AuditName::CallRefused {
            late.push(record);
        }
    }
    let [record] = &late[..] else {
        panic!("{late:?}")
    };
    assert_eq!(record.code, Some(ErrorCode::ToolTimeout));
    let detail = record.detail.as_deref();
    assert_eq!(detail, Some("no room for the call in its time"));
    assert_eq!(record.tool_id, Some(timed().tool_id));
    assert_eq!(record.correlation_id.as_deref(), Some("c"));
    assert_eq!(record.agent_id.as_deref(), Some(AGENT));
}
