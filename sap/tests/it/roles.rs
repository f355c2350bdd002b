//! The producer's side of a task: every event at every stage.

use core::time::Duration;

use sap::role::producer::{Config, Error, Input, Output, SentTasks, Stage, Waiting};
use sap::validate::Options;
use sap::{Ack, ErrorCode, Nack, Status, Task, TaskResult};
use serde_json::{Value, json};
use ubos_common::machine::Machine;
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::violation::Profile;

use crate::samples::{read_result, read_task, result, task, with};

fn at(seconds: u64) -> Now {
    let issued: Timestamp = "2025-09-28T10:15:23Z".parse().unwrap();
    Now::new(Mono::ZERO, issued).plus(Duration::from_secs(seconds))
}

fn typed(value: &Value) -> Task {
    read_task(value, &Options::default()).unwrap().0
}

fn drained<M: Machine>(machine: &mut M) -> Vec<M::Output> {
    std::iter::from_fn(|| machine.poll_output()).collect()
}

fn of_status(status: &str) -> TaskResult {
    let changed = with(result(), "/status", Some(json!(status)));
    let error = json!({"code": "INTERNAL", "message": "m"});
    read_result(
        &with(changed, "/error", Some(error)),
        &Options::from(Profile::Lenient),
    )
    .unwrap()
    .0
}

fn nack() -> Nack {
    Nack::of(
        &typed(&task()),
        ErrorCode::NotFound,
        "nobody".parse().unwrap(),
    )
}

fn apply(orders: &mut SentTasks, event: &str) -> Result<(), Error> {
    let task = typed(&task());
    match event {
        "dispatch" => orders.handle_input(at(0), Input::Dispatch(&task)),
        "ack" => orders.handle_input(at(0), Input::Ack(&Ack::from(&task))),
        "nack" => orders.handle_input(at(0), Input::Nack(&nack())),
        status => orders.handle_input(at(0), Input::Result(&of_status(status))),
    }
}

// spec: SAP-4.3-2, SAP-4.3-3, SAP-5-3
#[test]
fn every_event_at_every_stage_of_the_producer() {
    const EVENTS: [&str; 6] = ["dispatch", "ack", "nack", "QUEUED", "PARTIAL", "FAILED"];
    let partial = "in progress as PARTIAL";
    // Where an event leads; `-` where it may not come, `=` where it changes nothing.
    let table: [(&str, &[&str], [&str; 6]); 7] = [
        ("drafted", &[], ["sent", "-", "-", "-", "-", "-"]),
        (
            "sent",
            &["dispatch"],
            [
                "sent",
                "accepted",
                "refused as NOT_FOUND",
                "in progress as QUEUED",
                partial,
                "ended as FAILED",
            ],
        ),
        (
            "accepted",
            &["dispatch", "ack"],
            [
                "accepted",
                "=",
                "-",
                "in progress as QUEUED",
                partial,
                "ended as FAILED",
            ],
        ),
        (
            "in progress as QUEUED",
            &["dispatch", "QUEUED"],
            [
                "in progress as QUEUED",
                "=",
                "-",
                "=",
                partial,
                "ended as FAILED",
            ],
        ),
        (
            partial,
            &["dispatch", "RUNNING", "PARTIAL"],
            [partial, "=", "-", "-", "=", "ended as FAILED"],
        ),
        (
            "ended as FAILED",
            &["dispatch", "FAILED"],
            ["-", "=", "-", "-", "-", "="],
        ),
        (
            "refused as NOT_FOUND",
            &["dispatch", "nack"],
            ["-", "-", "=", "-", "-", "-"],
        ),
    ];
    for (name, way, row) in table {
        for (event, wanted) in EVENTS.into_iter().zip(row) {
            let mut orders = SentTasks::new(Config::default()).unwrap();
            orders.draft(&typed(&task())).unwrap();
            way.iter()
                .for_each(|event| apply(&mut orders, event).unwrap());
            drained(&mut orders);
            let outcome = apply(&mut orders, event);
            let id = typed(&task()).task_id;
            let stage = orders.stage(&id).unwrap().to_string();
            let told = drained(&mut orders).len();
            match wanted {
                "-" => {
                    let why = outcome.unwrap_err().to_string();
                    assert!(why.contains("may not follow"), "{name}, {event}: {why}");
                    assert_eq!((stage.as_str(), told), (name, 0), "{event}");
                }
                "=" => assert_eq!(
                    (outcome, stage.as_str(), told),
                    (Ok(()), name, 0),
                    "{event}"
                ),
                wanted => assert_eq!(
                    (outcome, stage.as_str(), told),
                    (Ok(()), wanted, 1),
                    "{name}, {event}"
                ),
            }
        }
    }
}

fn numbered(n: u64) -> (Task, TaskResult) {
    let id = json!(format!("00000000-0000-0000-0000-{n:012}"));
    let task = typed(&with(task(), "/taskId", Some(id.clone())));
    let result = with(result(), "/taskId", Some(id));
    (task, read_result(&result, &Options::default()).unwrap().0)
}

// spec: SAP-4.3-3, SAP-5-5
#[test]
fn interleaved_tasks_of_one_correlation_get_their_own_results() {
    let mut orders = SentTasks::new(Config::default()).unwrap();
    let pairs: Vec<_> = (0..5).map(numbered).collect();
    for (task, _) in &pairs {
        orders.handle_input(at(0), Input::Dispatch(task)).unwrap();
    }
    drained(&mut orders);
    for (task, result) in pairs.iter().rev() {
        // The Ack comes after its result, and twice.
        orders.handle_input(at(1), Input::Result(result)).unwrap();
        orders
            .handle_input(at(1), Input::Ack(&Ack::from(task)))
            .unwrap();
        orders
            .handle_input(at(1), Input::Ack(&Ack::from(task)))
            .unwrap();
        orders.handle_input(at(1), Input::Result(result)).unwrap();
        assert_eq!(
            drained(&mut orders),
            [Output::Result(Box::new(result.clone()))]
        );
    }
    assert_eq!(orders.open(), 0);
    let mut other = pairs[0].1.clone();
    other.correlation_id = "00000000-0000-0000-0000-000000000000".parse().unwrap();
    assert!(matches!(
        orders.handle_input(at(1), Input::Result(&other)),
        Err(Error::Lifecycle(_))
    ));
    let mut ack = Ack::from(&pairs[0].0);
    ack.correlation_id = other.correlation_id;
    assert!(matches!(
        orders.handle_input(at(1), Input::Ack(&ack)),
        Err(Error::Correlation { .. })
    ));
    let unknown = numbered(99).1;
    assert!(matches!(
        orders.handle_input(at(1), Input::Result(&unknown)),
        Err(Error::Unknown { .. })
    ));
}

// spec: SAP-4.3-3
#[test]
fn waiting_too_long_is_told_once_and_what_comes_late_counts() {
    let config = Config::default()
        .with_patience(Duration::from_secs(10), Duration::from_secs(60))
        .with_deadline_patience(Duration::MAX);
    let mut orders = SentTasks::new(config).unwrap();
    let (task, result) = numbered(1);
    orders.handle_input(at(0), Input::Dispatch(&task)).unwrap();
    assert_eq!(orders.poll_timeout(), Some(at(10).mono));
    orders.handle_timeout(at(9));
    orders.handle_timeout(at(10));
    orders.handle_timeout(at(11));
    let overdue = |waiting| Output::Overdue(task.task_id, waiting);
    assert_eq!(
        drained(&mut orders),
        [Output::Transmit(task.task_id), overdue(Waiting::Receipt)]
    );
    assert_eq!(orders.poll_timeout(), None);
    orders.handle_input(at(12), Input::Dispatch(&task)).unwrap();
    orders
        .handle_input(at(13), Input::Ack(&Ack::from(&task)))
        .unwrap();
    assert_eq!(orders.poll_timeout(), Some(at(73).mono));
    orders.handle_timeout(at(73));
    assert_eq!(drained(&mut orders).last(), Some(&overdue(Waiting::Result)));
    orders.handle_input(at(99), Input::Result(&result)).unwrap();
    assert_eq!(
        orders.stage(&task.task_id),
        Some(&Stage::Ended(Status::Succeeded))
    );
    // One that ends in time is waited for no more.
    let (task, result) = numbered(2);
    orders.handle_input(at(99), Input::Dispatch(&task)).unwrap();
    orders.handle_input(at(99), Input::Result(&result)).unwrap();
    assert_eq!(orders.poll_timeout(), None);
}

// spec: SAP-4.3-3, SAP-5-10
#[test]
fn a_task_is_sent_again_as_often_as_is_set() {
    let patience = Duration::from_secs(10);
    let config = Config::default()
        .with_patience(patience, patience)
        .with_resends(2);
    let mut orders = SentTasks::new(config).unwrap();
    let (task, result) = numbered(1);
    orders.handle_input(at(0), Input::Dispatch(&task)).unwrap();
    let again = Output::Transmit(task.task_id);
    assert_eq!(drained(&mut orders), std::slice::from_ref(&again));
    orders.handle_timeout(at(10));
    assert_eq!(drained(&mut orders), std::slice::from_ref(&again));
    // What comes counts from then on.
    orders
        .handle_input(at(15), Input::Ack(&Ack::from(&task)))
        .unwrap();
    drained(&mut orders);
    orders.handle_timeout(at(24));
    assert_eq!(drained(&mut orders), []);
    orders.handle_timeout(at(25));
    assert_eq!(drained(&mut orders), [again]);
    orders.handle_timeout(at(35));
    let overdue = Output::Overdue(task.task_id, Waiting::Result);
    assert_eq!(drained(&mut orders), [overdue]);
    orders.handle_input(at(36), Input::Result(&result)).unwrap();
    orders.handle_timeout(at(100_000));
    assert_eq!(drained(&mut orders).len(), 1);
}

// spec: SAP-4.3-3, SAP-5-10
#[test]
fn a_copy_for_which_there_is_no_room_ends_no_task() {
    let patience = Duration::from_secs(10);
    let config = Config::default().with_patience(patience, patience);
    let (task, result) = numbered(1);
    let mut full = nack();
    full.message_id = Some(task.task_id);
    full.correlation_id = None;
    full.code = ErrorCode::RateLimit;
    // Of the first alone it is the end.
    let mut orders = SentTasks::new(config.with_resends(1)).unwrap();
    orders.handle_input(at(0), Input::Dispatch(&task)).unwrap();
    orders.handle_input(at(1), Input::Nack(&full)).unwrap();
    let refused = Stage::Refused(ErrorCode::RateLimit);
    assert_eq!(orders.stage(&task.task_id), Some(&refused));
    // It is sent again by itself, or by whoever wants it.
    for by_itself in [true, false] {
        let mut orders = SentTasks::new(config.with_resends(1)).unwrap();
        orders.handle_input(at(0), Input::Dispatch(&task)).unwrap();
        if by_itself {
            orders.handle_timeout(at(10));
        } else {
            orders.handle_input(at(10), Input::Dispatch(&task)).unwrap();
        }
        drained(&mut orders);
        orders.handle_input(at(11), Input::Nack(&full)).unwrap();
        assert_eq!(drained(&mut orders), []);
        let mut other = full.clone();
        other.code = ErrorCode::Forbidden;
        let mut running = result.clone();
        (running.status, running.output) = (Status::Running, None);
        orders
            .handle_input(at(12), Input::Result(&running))
            .unwrap();
        orders.handle_input(at(13), Input::Nack(&full)).unwrap();
        assert!(orders.handle_input(at(13), Input::Nack(&other)).is_err());
        orders.handle_input(at(14), Input::Result(&result)).unwrap();
        let ended = Stage::Ended(Status::Succeeded);
        assert_eq!(orders.stage(&task.task_id), Some(&ended));
    }
}

// spec: SAP-5-8
#[test]
fn a_task_is_overdue_after_its_deadline_whatever_is_said_before() {
    let config = Config::default()
        .with_patience(Duration::MAX, Duration::MAX)
        .with_deadline_patience(Duration::from_secs(5));
    let deadline = json!({"deadline": "2025-09-28T10:15:33Z"});
    let task = typed(&with(task(), "/telemetry", Some(deadline)));
    let running = of_status("RUNNING");
    let mut orders = SentTasks::new(config).unwrap();
    orders.handle_input(at(0), Input::Dispatch(&task)).unwrap();
    let looks = |orders: &mut SentTasks, due, wall, next| {
        assert_eq!(orders.poll_timeout(), Some(at(due).mono));
        let mut now = at(due);
        now.wall = at(wall).wall;
        orders.handle_timeout(now);
        assert_eq!(drained(orders), []);
        assert_eq!(orders.poll_timeout(), Some(at(next).mono));
    };
    orders.handle_input(at(9), Input::Result(&running)).unwrap();
    drained(&mut orders);
    // The calendar was set back: the deadline is not over yet, as little as its last second.
    looks(&mut orders, 10, 3, 18);
    looks(&mut orders, 18, 10, 19);
    looks(&mut orders, 19, 11, 24);
    orders.handle_timeout(at(24));
    let overdue = Output::Overdue(task.task_id, Waiting::End);
    assert_eq!(drained(&mut orders), [overdue]);
    assert_eq!(orders.poll_timeout(), None);
    // It was set forward, or the machine slept: that is seen soon.
    let mut far = SentTasks::new(config).unwrap();
    let deadline = json!({"deadline": "2025-09-28T12:00:00Z"});
    let task_of_hours = typed(&with(crate::samples::task(), "/telemetry", Some(deadline)));
    far.handle_input(at(0), Input::Dispatch(&task_of_hours))
        .unwrap();
    drained(&mut far);
    looks(&mut far, 10, 10, 20);
    looks(&mut far, 20, 7_200, 25);
    // Sent after its deadline, it has the patience from then on.
    let mut late = SentTasks::new(config).unwrap();
    late.handle_input(at(100), Input::Dispatch(&task)).unwrap();
    assert_eq!(late.poll_timeout(), Some(at(105).mono));
    // Sent again when the calendar was set back, it has its time again.
    let mut now = at(101);
    now.wall = at(3).wall;
    late.handle_input(now, Input::Dispatch(&task)).unwrap();
    assert_eq!(late.poll_timeout(), Some(at(109).mono));
}

// spec: SAP-4.3-2
#[test]
fn a_nack_of_another_correlation_is_not_the_tasks_own() {
    let mut orders = SentTasks::new(Config::default()).unwrap();
    apply(&mut orders, "dispatch").unwrap();
    let mut other = nack();
    other.correlation_id = Some("00000000-0000-0000-0000-000000000009".parse().unwrap());
    let refused = orders.handle_input(at(0), Input::Nack(&other));
    assert!(
        matches!(refused, Err(Error::Correlation { .. })),
        "{refused:?}"
    );
    assert_eq!(orders.stage(&typed(&task()).task_id), Some(&Stage::Sent));
}

// spec: SAP-4.3-3
#[test]
fn each_result_before_the_last_begins_the_patience_anew() {
    let patience = Duration::from_secs(10);
    let config = Config::default()
        .with_patience(patience, patience)
        .with_deadline_patience(Duration::MAX);
    let mut orders = SentTasks::new(config).unwrap();
    apply(&mut orders, "dispatch").unwrap();
    let running = of_status("RUNNING");
    orders.handle_input(at(7), Input::Result(&running)).unwrap();
    assert_eq!(orders.poll_timeout(), Some(at(17).mono));
}

#[test]
fn outputs_that_nobody_takes_have_a_bound() {
    let mut orders = SentTasks::new(Config::default()).unwrap();
    let mut sent = 0;
    while orders.accepts_input() {
        let task = numbered(sent).0;
        orders.handle_input(at(0), Input::Dispatch(&task)).unwrap();
        sent += 1;
        assert!(sent < 10_000);
    }
    drained(&mut orders);
    assert!(orders.accepts_input());
}

#[test]
fn bounds_of_the_producer_hold() {
    let mut orders = SentTasks::new(Config::default().with_max_open(2).with_max_ended(1)).unwrap();
    let [a, b, c] = [1, 2, 3].map(numbered);
    orders.handle_input(at(0), Input::Dispatch(&a.0)).unwrap();
    // Whom a Nack without ids means is known where only one can be meant.
    let mut nameless = nack();
    (nameless.message_id, nameless.correlation_id) = (None, None);
    orders.handle_input(at(0), Input::Dispatch(&b.0)).unwrap();
    assert_eq!(
        orders.handle_input(at(0), Input::Nack(&nameless)),
        Err(Error::Nameless)
    );
    assert_eq!(
        orders.handle_input(at(0), Input::Dispatch(&c.0)),
        Err(Error::Full { limit: 2 })
    );
    orders.handle_input(at(0), Input::Result(&a.1)).unwrap();
    orders.handle_input(at(0), Input::Nack(&nameless)).unwrap();
    assert_eq!(
        orders.stage(&b.0.task_id),
        Some(&Stage::Refused(ErrorCode::NotFound))
    );
    assert_eq!((orders.stage(&a.0.task_id), orders.open()), (None, 0));
    orders.handle_input(at(0), Input::Dispatch(&c.0)).unwrap();
}

#[test]
fn a_setting_out_of_its_range_is_refused_by_name() {
    let made = SentTasks::new(Config::default().with_max_open(0)).map(drop);
    assert_eq!(
        made.map_err(|error| error.to_string()),
        Err("max_open is 0, but a producer needs room for at least 1 task".to_owned())
    );
    let least = Config::default().with_max_open(1).with_max_ended(0);
    assert!(SentTasks::new(least.with_patience(Duration::ZERO, Duration::ZERO)).is_ok());
}
