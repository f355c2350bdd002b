//! Deadlines, patience and cancels.

use std::time::Duration;

use sap::role::consumer::{Admission, Ended, Input, Progress, Reply, Stage, StopReason};
use serde_json::json;
use ubos_common::json::RawObject;
use ubos_common::time::Mono;

use crate::samples::with;

use super::table::{CANCELLED, TIMEOUT};
use super::{Play, at, good, text, whole};

// spec: SAP-5-10, SAP-11-2
#[test]
fn a_place_that_comes_late_is_taken_and_one_that_does_not_come_is_waited_for_so_long() {
    let mut late = Play::at("enter");
    let due = late.machine.poll_timeout().unwrap();
    let due = at(due.saturating_since(Mono::ZERO).as_secs());
    assert_eq!(due, at(30));
    // Somebody would have to give it back.
    let (id, reply) = (
        late.open.as_ref().unwrap().0,
        Reply::Admission(Admission::New),
    );
    late.input(due, Input::Reply { id, reply }).unwrap();
    assert_eq!(late.step(), "record task");
    let mut never = Play::at("enter");
    never.machine.handle_timeout(at(29));
    never.drain();
    assert_eq!(never.step(), "enter");
    never.machine.handle_timeout(due);
    never.drain();
    assert_eq!(
        (never.step().as_str(), never.open.is_none()),
        ("nack RATE_LIMIT", true)
    );
}

// spec: SAP-6-11
#[test]
fn a_task_that_takes_no_record_waits_for_nobody() {
    let never = json!({"mode": "prefer", "maxAgeSec": 0});
    let task = with(whole(), "/constitutionalContext/cachePolicy", Some(never));
    let mut play = Play::new(&task);
    while play.step() != "look up" {
        play.go_on();
    }
    play.reply(play.found(false)).unwrap();
    assert_eq!(play.step(), "record RUNNING");
}

// spec: SAP-5-8, SAP-10-1
#[test]
fn a_cancel_waits_for_what_is_being_recorded_or_told() {
    for step in ["record task", "ack", "record RUNNING", "tell RUNNING"] {
        let mut play = Play::at(step);
        play.input(at(0), Input::Cancel).unwrap();
        while play.end.is_none() {
            play.go_on();
        }
        assert_eq!(
            (play.step().as_str(), play.run),
            ("answer CANCELLED", None),
            "{step}"
        );
    }
    let mut play = Play::at("record RUNNING");
    play.reply(Reply::NotRecorded).unwrap();
    assert_eq!(play.machine.stage(), Stage::Lost);
    for (reply, wanted) in [(Reply::Recorded, "lost"), (Reply::NotRecorded, "lost")] {
        let mut play = Play::at("record RUNNING");
        play.reply(Reply::NotRecorded).unwrap();
        play.reply(reply).unwrap();
        assert_eq!(play.step(), wanted);
    }
}

// spec: SAP-5-8
#[test]
fn a_cancelled_handler_has_a_grace_and_nothing_more_to_say() {
    let now = |ms| at(0).plus(Duration::from_millis(ms));
    let cancelled = || {
        let mut play = Play::at("run");
        play.input(now(0), Input::Cancel).unwrap();
        assert_eq!(play.stops, [StopReason::Cancelled]);
        assert_eq!(play.machine.poll_timeout(), Some(now(100).mono));
        let part = Progress::partial(text("1"), vec![RawObject::empty()]);
        play.input(now(1), Input::Report(part)).unwrap();
        assert_eq!(play.step(), "run");
        play
    };
    let mut ends = cancelled();
    let id = ends.run.unwrap();
    let reply = Reply::Ran(Ended::Outcome(Box::new(good())));
    ends.input(now(99), Input::Reply { id, reply }).unwrap();
    assert_eq!(ends.step(), CANCELLED);
    let mut stays = cancelled();
    stays.machine.handle_timeout(now(99));
    stays.drain();
    assert_eq!(stays.step(), "run");
    stays.machine.handle_timeout(now(100));
    stays.drain();
    assert_eq!((stays.step().as_str(), stays.run), (CANCELLED, None));
}

// spec: SAP-5-8
#[test]
fn a_deadline_includes_its_second_and_seconds_count_from_the_run() {
    let late = with(
        whole(),
        "/telemetry/deadline",
        Some(json!("2025-09-28T10:15:33Z")),
    );
    let mut play = Play::new(&late);
    while play.step() != "run" {
        play.go_on();
    }
    // It looks every now and then, for the calendar may be set.
    assert_eq!(play.machine.poll_timeout(), Some(at(10).mono));
    play.machine.handle_timeout(at(10));
    play.drain();
    assert_eq!(play.step(), "run");
    assert_eq!(play.machine.poll_timeout(), Some(at(11).mono));
    let id = play.run.unwrap();
    let reply = Reply::Ran(Ended::Outcome(Box::new(good())));
    play.input(at(11), Input::Reply { id, reply }).unwrap_err();
    assert_eq!(
        (play.step().as_str(), &play.stops[..]),
        (TIMEOUT, &[StopReason::TimedOut][..])
    );
    let budget = json!({"seconds": 2.5});
    let mut play = Play::new(&with(whole(), "/telemetry/budget", Some(budget)));
    while play.step() != "tell RUNNING" {
        play.go_on();
    }
    let id = play.open.as_ref().unwrap().0;
    let reply = Reply::Delivered;
    play.input(at(2), Input::Reply { id, reply }).unwrap();
    let last = at(2).plus(Duration::from_millis(2_500));
    play.machine.handle_timeout(last);
    play.drain();
    assert_eq!(play.step(), "run");
    let over = last.plus(Duration::from_nanos(1));
    assert_eq!(play.machine.poll_timeout(), Some(over.mono));
    play.machine.handle_timeout(over);
    play.drain();
    assert_eq!(play.step(), TIMEOUT);
}
