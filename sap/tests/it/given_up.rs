//! The consumer's side of a task that nobody goes on with, and what it says of itself.

use sap::ErrorCode;
use sap::role::consumer::{Admission, End, Ended, HandlerError, Input, Progress, Reply, Stage};
use ubos_common::json::{Limits, RawBuf, RawObject};

use crate::consumer::{Play, at};

// spec: SAP-5-2, SAP-10-1
#[test]
fn a_run_ends_where_its_result_is_not_recorded() {
    let mut play = Play::at("record PARTIAL");
    assert!(play.run.is_some());
    play.reply(Reply::NotRecorded).unwrap();
    assert_eq!(
        (play.step().as_str(), play.run),
        ("record FAILED INTERNAL", None)
    );
    assert_eq!(play.machine.stage(), Stage::Lost);
}

// spec: SAP-5-2
#[test]
fn a_shutdown_ends_the_run_before_its_end_is_recorded() {
    let mut play = Play::at("run");
    play.input(at(0), Input::Shutdown).unwrap();
    assert_eq!(
        (play.step().as_str(), play.run),
        ("record FAILED INTERNAL", None)
    );
}

// spec: SAP-5-2, SAP-10-1
#[test]
fn a_shutdown_waits_for_no_end_that_was_handed_over() {
    let mut play = Play::at("record RUNNING");
    play.reply(Reply::NotRecorded).unwrap();
    play.input(at(0), Input::Shutdown).unwrap();
    assert_eq!(play.end, Some(End::Lost));
    assert!(play.open.is_none(), "it is not recorded twice");
    let mut play = Play::at("record SUCCEEDED");
    play.input(at(0), Input::Shutdown).unwrap();
    assert!(play.end.is_some() && play.open.is_none());
}

// spec: SAP-5-10
#[test]
fn one_that_runs_elsewhere_is_dismissed() {
    let mut play = Play::at("enter");
    play.reply(Reply::Admission(Admission::Known(None)))
        .unwrap();
    assert_eq!(
        (play.step().as_str(), play.machine.stage()),
        ("taken", Stage::Dismissed)
    );
}

// spec: SAP-5-3
#[test]
fn progress_without_an_output_is_recorded_unjudged() {
    let mut play = Play::at("run");
    let report = Progress::running(None);
    play.input(at(0), Input::Report(report)).unwrap();
    assert_eq!(play.step(), "record RUNNING");
}

#[test]
fn input_is_welcome_until_the_task_is_closed_or_nobody_takes_the_outputs() {
    let mut play = Play::at("run");
    assert!(play.machine.accepts_input());
    play.input(at(0), Input::Shutdown).unwrap();
    play.reply(Reply::Recorded).unwrap();
    assert!(play.machine.is_closed() && !play.machine.accepts_input());
    let mut untaken = Play::at("run");
    let mut inputs = 0;
    while untaken.machine.accepts_input() {
        let machine = &mut untaken.machine;
        let _ = machine.handle_input(at(0), Input::Report(Progress::running(None)));
        for (id, reply) in (0..100).flat_map(|id| [(id, Reply::Recorded), (id, Reply::Delivered)]) {
            let _ = machine.handle_input(at(0), Input::Reply { id, reply });
        }
        inputs += 1;
        assert!(inputs < 100, "outputs that nobody takes have a bound");
    }
}

// spec: SAP-10-1, SAP-8-1
#[test]
fn a_failure_that_no_reader_would_take_is_told_without_its_details() {
    let mut play = Play::at("run");
    let id = play.run.unwrap();
    // As deep as may be read, and in a result deeper than that.
    let deep = Limits::default().max_depth - 1;
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(deep), "]".repeat(deep));
    let details = RawObject::new(RawBuf::parse(&deep).unwrap());
    let error = HandlerError::Failed {
        code: ErrorCode::Unprocessable,
        message: "why".into(),
        details,
    };
    let reply = Reply::Ran(Ended::Error(error));
    play.input(at(0), Input::Reply { id, reply }).unwrap();
    assert_eq!(play.step(), "record FAILED INTERNAL");
}
