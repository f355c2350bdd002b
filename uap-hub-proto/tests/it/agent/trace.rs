//! The place of a job in a trace, from the hub's answer to the handler.

use super::*;

const PLACE: &str = "00-abababababababababababababababab-cdcdcdcdcdcdcdcd-00";

fn traced(rig: &mut Rig, stream: u64) {
    traced_from(rig, stream, 0xcd);
}

fn traced_from(rig: &mut Rig, stream: u64, span: u8) {
    let trace = TraceContext::new([0xab; 16], [span; 8]).unwrap();
    let stream = StreamId(stream);
    rig.input(Input::Trace { stream, trace });
}

/// Session `s` waits for its job on stream 2.
fn opened(change: impl FnOnce(Config) -> Config) -> Rig {
    let mut rig = Rig::new(change);
    rig.registered();
    rig.propose("s", test("t"));
    rig.ready("s");
    rig.take();
    rig
}

fn cut(rig: &mut Rig, stream: u64) {
    let status = Status::new(Code::Unavailable, "the connection was lost");
    let stream = StreamId(stream);
    rig.input(Input::Broken { stream, status });
}

fn job(rig: &mut Rig, stream: u64) {
    let init = TestInit {
        acknowledged: Some(0),
        ..TestInit::default()
    };
    rig.input(Input::Message {
        stream: StreamId(stream),
        message: Inbound::Test(init),
    });
}

#[test]
fn a_handler_runs_at_the_place_that_the_answer_names() {
    let mut rig = opened(|config| config);
    traced_from(&mut rig, 2, 0x11);
    traced(&mut rig, 2);
    assert_eq!(rig.take(), [""; 0], "nothing is said of it");
    rig.init(2);
    let run = format!("run s test type \"t\" 1 in {PLACE}");
    assert_eq!(rig.take(), ["2: status 3 ", &run]);
}

#[test]
fn a_place_of_another_call_or_after_the_job_is_passed_over() {
    let mut rig = opened(|config| config.with_resume(true));
    traced(&mut rig, 1);
    traced(&mut rig, 3);
    job(&mut rig, 2);
    assert_eq!(rig.take(), ["2: #2 status 3 ", "run s test type \"t\" 0"]);
    traced(&mut rig, 2);
    cut(&mut rig, 2);
    rig.pass(0);
    assert_eq!(rig.take()[..2], ["cut s", "open 3 Execute s reports 2"]);
}

// spec: HUB-5-4
#[test]
fn a_call_that_is_opened_again_carries_the_place_of_its_job() {
    let mut rig = opened(|config| config.with_resume(true));
    traced(&mut rig, 2);
    cut(&mut rig, 2);
    rig.pass(0);
    let open = format!("open 3 Execute s job 2 in {PLACE}");
    assert_eq!(rig.take()[..2], ["cut s", &open]);
    job(&mut rig, 3);
    let run = format!("run s test type \"t\" 0 in {PLACE}");
    assert_eq!(rig.take(), ["resumed s", "3: #2 status 3 ", &run]);
    traced_from(&mut rig, 3, 0x11);
    cut(&mut rig, 3);
    rig.pass(0);
    let open = format!("open 4 Execute s reports 3 in {PLACE}");
    assert_eq!(rig.take()[..2], ["cut s", &open]);
}
