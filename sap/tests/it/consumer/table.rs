//! Every event at every step.

use sap::role::consumer::{Input, Progress};
use ubos_common::json::RawObject;

use super::{Play, at, replies, text};

/// A step; where each reply leads that fits; where cancel, the deadline and shutdown lead.
pub(super) type Row = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
    &'static str,
);

const INTERNAL: &str = "record FAILED INTERNAL";

pub(super) const CANCELLED: &str = "record CANCELLED";

pub(super) const TIMEOUT: &str = "record FAILED TIMEOUT";

const REFUSED: &str = "record FAILED NON_CONSTITUTIONAL";

/// `=`: it stays. `-`: it is refused.
pub(super) const TABLE: [Row; 19] = [
    (
        "authorize",
        &[
            ("allowed", "enter"),
            ("forbidden", "nack FORBIDDEN"),
            ("unknown", "nack UNAUTHORIZED"),
            ("busy", "nack RATE_LIMIT"),
            ("panicked", "nack INTERNAL"),
        ],
        "-",
        "nack RATE_LIMIT",
        "lost",
    ),
    (
        "enter",
        &[
            ("new", "record task"),
            ("interrupted", "ack"),
            ("came before", "again SUCCEEDED"),
            ("runs", "taken"),
            ("other", "nack INVALID_TASK"),
            ("not found", "nack NOT_FOUND"),
            ("full", "nack RATE_LIMIT"),
            ("gone", "nack NOT_FOUND"),
            ("unreadable", "nack RATE_LIMIT"),
            ("panicked", "nack INTERNAL"),
        ],
        "-",
        "nack RATE_LIMIT",
        "lost",
    ),
    (
        "record task",
        &[("recorded", "ack"), ("not recorded", "lost")],
        "=",
        "=",
        INTERNAL,
    ),
    ("ack", &[("delivered", "admit")], "=", "=", INTERNAL),
    (
        "admit",
        &[
            ("valid", "look up"),
            ("escalate", "record ESCALATED"),
            ("no", REFUSED),
            ("panicked", INTERNAL),
        ],
        CANCELLED,
        TIMEOUT,
        INTERNAL,
    ),
    (
        "look up",
        &[
            ("a record", "recheck"),
            ("no record", "join"),
            ("no key", "record RUNNING"),
            ("panicked", INTERNAL),
        ],
        CANCELLED,
        TIMEOUT,
        INTERNAL,
    ),
    (
        "recheck",
        &[
            ("valid", "record SUCCEEDED"),
            ("escalate", "join"),
            ("no", "join"),
            ("panicked", INTERNAL),
        ],
        CANCELLED,
        TIMEOUT,
        INTERNAL,
    ),
    (
        "join",
        &[("lead", "record RUNNING"), ("followed", "look up")],
        CANCELLED,
        TIMEOUT,
        INTERNAL,
    ),
    (
        "record RUNNING",
        &[("recorded", "tell RUNNING"), ("not recorded", INTERNAL)],
        "=",
        "=",
        INTERNAL,
    ),
    ("tell RUNNING", &[("delivered", "run")], "=", "=", INTERNAL),
    (
        "run",
        &[
            ("made", "check"),
            ("error", "record FAILED UNPROCESSABLE"),
            ("panic", INTERNAL),
            ("over budget", "record FAILED RATE_LIMIT"),
        ],
        "=",
        TIMEOUT,
        INTERNAL,
    ),
    (
        "assess part",
        &[
            ("valid", "record PARTIAL"),
            ("escalate", "record ESCALATED"),
            ("no", REFUSED),
            ("panicked", INTERNAL),
        ],
        "=",
        TIMEOUT,
        INTERNAL,
    ),
    (
        "record PARTIAL",
        &[("recorded", "tell PARTIAL"), ("not recorded", INTERNAL)],
        "=",
        "=",
        INTERNAL,
    ),
    ("tell PARTIAL", &[("delivered", "run")], "=", "=", INTERNAL),
    (
        "check",
        &[
            ("kept", "judge"),
            ("broken", "record FAILED UNPROCESSABLE"),
            ("panicked", INTERNAL),
        ],
        CANCELLED,
        TIMEOUT,
        INTERNAL,
    ),
    (
        "judge",
        &[
            ("valid", "keep"),
            ("escalate", "record ESCALATED"),
            ("no", REFUSED),
            ("panicked", INTERNAL),
        ],
        CANCELLED,
        TIMEOUT,
        INTERNAL,
    ),
    (
        "keep",
        &[("in the cache", "record SUCCEEDED"), ("panicked", INTERNAL)],
        CANCELLED,
        TIMEOUT,
        INTERNAL,
    ),
    (
        "record SUCCEEDED",
        &[("recorded", "answer SUCCEEDED"), ("not recorded", INTERNAL)],
        "-",
        "=",
        "lost",
    ),
    ("answer SUCCEEDED", &[], "-", "=", "-"),
];

// spec: SAP-5-2, SAP-5-3, SAP-5-8, SAP-5-10, SAP-10-1, SAP-11-2
#[test]
fn every_event_at_every_step() {
    for (step, ways, cancel, timeout, shutdown) in TABLE {
        for (name, reply) in replies(&Play::at(step)) {
            let mut play = Play::at(step);
            let wanted = ways.iter().find(|way| way.0 == name).map(|way| way.1);
            let outcome = play.reply(reply);
            match wanted {
                Some(next) => assert_eq!(
                    (outcome, play.step()),
                    (Ok(()), next.into()),
                    "{step}: {name}"
                ),
                None => {
                    outcome.expect_err(&format!("{step}: {name}"));
                    assert_eq!(play.step(), step, "{name}");
                }
            }
        }
        let other = |event: &str, input: Option<Input>, wanted: &str| {
            let mut play = Play::at(step);
            let outcome = match input {
                Some(input) => play.input(at(0), input),
                None => {
                    play.machine.handle_timeout(at(100_000));
                    play.drain();
                    Ok(())
                }
            };
            assert_eq!(outcome.is_err(), wanted == "-", "{step}: {event}");
            let next = if ["-", "="].contains(&wanted) {
                step
            } else {
                wanted
            };
            assert_eq!(play.step(), next, "{step}: {event}");
            assert!(
                play.end.is_none() || (play.open.is_none() && play.run.is_none()),
                "{step}: nothing is under way after {event}"
            );
        };
        other("cancel", Some(Input::Cancel), cancel);
        other("timeout", None, timeout);
        other("shutdown", Some(Input::Shutdown), shutdown);
        let part = Progress::partial(text("1"), vec![RawObject::empty()]);
        let wanted = if step == "run" { "assess part" } else { "-" };
        other("report", Some(Input::Report(part)), wanted);
    }
}
