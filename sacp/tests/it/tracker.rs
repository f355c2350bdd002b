//! The states of messages, followed from outside.

use std::num::NonZeroUsize;

use sacp::Message;
use sacp::role::{StateError, Tracker};

use crate::roles::{message, new_message};

fn old(id: &str, state: &str) -> Message {
    message(&format!(
        r#"{{"msg_id":"{id}","g":"G","plan":[],"state":"{state}"}}"#
    ))
}

// spec: SACP1-5-1
#[test]
fn a_tracker_takes_no_state_back() {
    let states = [
        "PENDING",
        "ACCEPTED",
        "IN_PROGRESS",
        "WAITING",
        "DONE",
        "FAILED",
        "CANCELLED",
    ];
    let outcome = |state: &str| match state {
        "DONE" => r#","result":{"outputs":{}}"#,
        "FAILED" => r#","error":{"code":"TIMEOUT","message":"late"}"#,
        _ => "",
    };
    // WAITING goes back to IN_PROGRESS and nowhere else but to an end.
    let later = [
        "PENDING ACCEPTED IN_PROGRESS WAITING DONE FAILED CANCELLED",
        "ACCEPTED IN_PROGRESS WAITING DONE FAILED CANCELLED",
        "IN_PROGRESS WAITING DONE FAILED CANCELLED",
        "IN_PROGRESS WAITING DONE FAILED CANCELLED",
        "DONE",
        "FAILED",
        "CANCELLED",
    ];
    for (from, allowed) in states.iter().zip(later) {
        for to in states {
            let mut tracker = Tracker::new(NonZeroUsize::MIN);
            let message =
                |state: &str| new_message(&format!("\"state\":\"{state}\"{}", outcome(state)));
            tracker.follow(&message(from)).unwrap();
            let followed = tracker.follow(&message(to)).is_ok();
            assert_eq!(
                followed,
                allowed.split(' ').any(|state| state == to),
                "{from} {to}"
            );
        }
    }
}

#[test]
fn a_tracker_forgets_what_has_ended_and_nothing_else() {
    let mut tracker = Tracker::new(NonZeroUsize::new(2).unwrap());
    tracker.follow(&old("a", "PENDING")).unwrap();
    tracker.follow(&old("b", "PENDING")).unwrap();
    assert_eq!(
        tracker.follow(&old("c", "PENDING")),
        Err(StateError::Full { limit: 2 })
    );
    tracker.follow(&old("b", "DONE")).unwrap();
    tracker.follow(&old("c", "PENDING")).unwrap();
    assert!(tracker.follow(&old("a", "DONE")).is_ok());
    assert!(tracker.follow(&old("a", "IN_PROGRESS")).is_err());
    assert!(tracker.follow(&new_message(r#""state":"PENDING""#)).is_ok());
}

// spec: SACP-2-6
#[test]
fn a_state_of_0_1_may_come_twice_and_none_comes_back() {
    let states = ["PENDING", "IN_PROGRESS", "DONE", "FAILED"];
    let later = [
        "PENDING IN_PROGRESS DONE FAILED",
        "IN_PROGRESS DONE FAILED",
        "DONE",
        "FAILED",
    ];
    for (from, allowed) in states.iter().zip(later) {
        for to in states {
            let mut tracker = Tracker::new(NonZeroUsize::MIN);
            tracker.follow(&old("m", from)).unwrap();
            let followed = tracker.follow(&old("m", to)).is_ok();
            let wanted = allowed.split(' ').any(|state| state == to);
            assert_eq!(followed, wanted, "{from} {to}");
        }
    }
}

#[test]
fn a_message_that_was_forgotten_may_come_again_as_new() {
    let mut tracker = Tracker::new(NonZeroUsize::MIN);
    tracker.follow(&old("a", "DONE")).unwrap();
    tracker.follow(&old("b", "DONE")).unwrap();
    assert_eq!(tracker.follow(&old("a", "PENDING")), Ok(()));
}
