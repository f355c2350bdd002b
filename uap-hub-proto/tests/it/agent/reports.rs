//! What a session reports, and whose reports they are.

use prost::Message as _;
use uap_hub_proto::convert::to_timestamp;

use super::*;

// spec: HUB-4-2
#[test]
fn a_line_without_a_time_has_that_of_its_report() {
    let mut rig = Rig::running();
    let own = to_timestamp(Timestamp::from_unix(7).unwrap());
    let now = to_timestamp(rig.now.wall);
    let session = SessionId::from("s");
    for (given, sent) in [(None, now), (Some(own), own)] {
        let telemetry = Telemetry {
            timestamp: given,
            ..Telemetry::default()
        };
        rig.agent.telemetry(rig.now, &session, telemetry).unwrap();
        let Some(Output::Send {
            message: Outbound::Test(report),
            ..
        }) = rig.agent.poll_output()
        else {
            panic!("no report")
        };
        let Some(test_response::Event::Telemetry(line)) = report.event else {
            panic!("{report:?}")
        };
        assert_eq!(line.timestamp, Some(sent));
    }
}

// spec: HUB-4-7
#[test]
fn the_end_of_a_stream_is_not_that_of_a_later_session_with_the_same_id() {
    let mut rig = Rig::running();
    rig.ended(2, Code::Cancelled);
    rig.propose("s", test("t"));
    rig.ready("s");
    rig.take();
    rig.ended(2, Code::Cancelled);
    assert_eq!(rig.take(), [""; 0]);
}

// spec: HUB-4-6
#[test]
fn a_report_that_just_fits_is_sent() {
    let line = || Telemetry::new(Severity::Info, "x".repeat(5_000));
    let session = SessionId::from("s");
    let mut rig = Rig::running();
    rig.agent.telemetry(rig.now, &session, line()).unwrap();
    let Some(Output::Send {
        message: Outbound::Test(report),
        ..
    }) = rig.agent.poll_output()
    else {
        panic!("no report")
    };
    let bytes = report.encoded_len();
    for (most, sent) in [(bytes, true), (bytes - 1, false)] {
        let mut rig = Rig::new(|config| config.with_max_message_bytes(most));
        rig.registered();
        rig.propose("s", test("t"));
        rig.ready("s");
        rig.init(2);
        let done = rig.agent.telemetry(rig.now, &session, line());
        assert_eq!(done.is_ok(), sent, "{done:?}");
    }
}
