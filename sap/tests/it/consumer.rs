//! The consumer's side of a task: every event at every step, time, and random walks.

use std::sync::Arc;
use std::time::Duration;

use sap::alignment::Assessment;
use sap::cache::{CacheRecord, Keys, WholePayload};
use sap::role::consumer::{
    Access, Admission, Config, ContractFinding, End, Ended, Error, HandlerError, Input, Message,
    Outcome, Output, Progress, Proposed, ReceivedTask, Record, Reply, Request, Stage, StopReason,
};
use sap::validate::Options;
use sap::{Accepted, Alignment, Lifecycle, Producer, ProducerKind, Status, Task, TaskResult};
use serde_json::{Value, json};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::violation::Profile;

use crate::samples::{read_result, read_task, result, task, with};

pub(crate) fn at(seconds: u64) -> Now {
    let issued: Timestamp = "2025-09-28T10:15:23Z".parse().unwrap();
    Now::new(Mono::ZERO, issued).plus(Duration::from_secs(seconds))
}

fn typed(value: &Value) -> Task {
    read_task(value, &Options::default()).unwrap().0
}

/// A task that goes through every step.
fn whole() -> Value {
    with(task(), "/replyTo/endpoint", None)
}

fn text(text: &str) -> RawBuf {
    RawBuf::parse(text).unwrap()
}

/// A machine, and what it has asked for.
pub(crate) struct Play {
    task: Arc<Task>,
    pub(crate) machine: ReceivedTask,
    pub(crate) open: Option<(u64, Request)>,
    pub(crate) run: Option<u64>,
    pub(crate) end: Option<End>,
    stops: Vec<StopReason>,
    has_reported: bool,
}

impl Play {
    fn new(task: &Value) -> Self {
        let task = Arc::new(typed(task));
        let producer = Producer::new("worker".parse().unwrap(), ProducerKind::Agent);
        let machine = ReceivedTask::new(at(0), Arc::clone(&task), Config::new(producer));
        let mut play = Self {
            task,
            machine,
            open: None,
            run: None,
            end: None,
            stops: Vec::new(),
            has_reported: false,
        };
        play.drain();
        play
    }

    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Request {
                    id,
                    request: Request::Run,
                } => self.run = Some(id),
                Output::Request { id, request } => {
                    assert!(self.open.is_none(), "one request at a time");
                    self.open = Some((id, request));
                }
                Output::Cancel(id) if self.run == Some(id) => self.run = None,
                Output::Cancel(id) => assert_eq!(self.open.take().map(|open| open.0), Some(id)),
                Output::Stop(reason) => self.stops.push(reason),
                Output::Close(end) => self.end = Some(end),
                _ => {}
            }
        }
    }

    /// What is waited for, or how it ended.
    pub(crate) fn step(&self) -> String {
        let status = |result: &TaskResult| match result.error_code() {
            Some(code) => format!("{} {code}", result.status),
            None => result.status.to_string(),
        };
        match (&self.end, &self.open) {
            (Some(End::Nack(nack)), _) => format!("nack {}", nack.code),
            (Some(End::Answer(written)), _) => format!("answer {}", status(&written.result)),
            (Some(End::Again(result)), _) => format!("again {}", status(result)),
            (Some(End::Taken(_)), _) => "taken".into(),
            (Some(_), _) => "lost".into(),
            (None, None) => "run".into(),
            (None, Some((_, request))) => match request {
                Request::Record(Record::Task) => "record task".into(),
                Request::Record(Record::Result(written)) => {
                    format!("record {}", status(&written.result))
                }
                Request::Deliver(Message::Ack(_)) => "ack".into(),
                Request::Deliver(Message::Result(written)) => {
                    format!("tell {}", written.result.status)
                }
                Request::Assess(Proposed::Nothing) => "admit".into(),
                Request::Assess(Proposed::Part(_)) => "assess part".into(),
                Request::Assess(Proposed::Record(_)) => "recheck".into(),
                Request::Assess(_) => "judge".into(),
                Request::LookUp => "look up".into(),
                Request::Join(_) => "join".into(),
                Request::Check(_) => "check".into(),
                Request::Keep(_) => "keep".into(),
                other => format!("{other:?}").to_lowercase(),
            },
        }
    }

    pub(crate) fn input(&mut self, now: Now, input: Input) -> Result<(), Error> {
        let open = self.open.take();
        let is_reply = |id| open.as_ref().is_some_and(|open| open.0 == id);
        let done = matches!(&input, Input::Reply { id, .. } if is_reply(*id))
            || matches!(input, Input::Shutdown);
        let ran = matches!(&input, Input::Reply { id, .. } if self.run == Some(*id));
        let outcome = self.machine.handle_input(now, input);
        if outcome.is_err() || !done {
            self.open = open;
        }
        if outcome.is_ok() && ran {
            self.run = None;
        }
        self.drain();
        outcome
    }

    pub(crate) fn reply(&mut self, reply: Reply) -> Result<(), Error> {
        let id = match (&self.open, &reply, self.run) {
            (_, Reply::Ran(_), Some(run)) => run,
            (Some((id, _)), ..) => *id,
            (None, _, Some(run)) => run,
            (None, _, None) => 999,
        };
        self.input(at(0), Input::Reply { id, reply })
    }

    fn verdict(&self, alignment: Alignment) -> Reply {
        let mut verdict = Assessment::valid(&self.task.constitutional_context);
        verdict.alignment = alignment;
        Reply::Assessed(verdict)
    }

    fn found(&self, is_there: bool) -> Reply {
        let keys = Keys::of(&self.task, &WholePayload).unwrap();
        let record = CacheRecord::new(
            keys.key,
            at(0).wall.into(),
            "worker".parse().unwrap(),
            Alignment::Valid,
            text("1"),
            vec!["ubos://a".into()],
            keys.fingerprint,
            "2.0".into(),
        );
        Reply::Found {
            keys: Some(keys),
            record: is_there.then(|| Arc::new(record)),
            keeps: true,
        }
    }

    /// Goes one step on the longest way.
    fn go_on(&mut self) {
        let step = self.step();
        let reply = match step.as_str() {
            "authorize" => Reply::Access(Access::Allowed),
            "enter" => Reply::Admission(Admission::New),
            "admit" | "judge" | "assess part" => self.verdict(Alignment::Valid),
            "look up" => self.found(true),
            "recheck" => self.verdict(Alignment::Escalate),
            "join" => Reply::Lead,
            "check" => Reply::Checked(ContractFinding::Kept),
            "keep" => Reply::Kept,
            "run" if !self.has_reported => {
                self.has_reported = true;
                let part = Progress::partial(text("1"), vec![RawObject::empty()]);
                return self.input(at(0), Input::Report(part)).unwrap();
            }
            "run" => Reply::Ran(Ended::Outcome(Box::new(good()))),
            step if step.starts_with("record") => Reply::Recorded,
            _ => Reply::Delivered,
        };
        self.reply(reply)
            .unwrap_or_else(|why| panic!("{step}: {why}"));
    }

    pub(crate) fn at(step: &str) -> Self {
        let mut play = Self::new(&whole());
        while play.step() != step {
            assert_eq!(play.end, None, "{step} is on the way");
            play.go_on();
        }
        play
    }
}

fn good() -> Outcome {
    Outcome::new(text("{}")).citing(vec!["ubos://a".into()])
}

/// Every kind of reply, by name.
fn replies(play: &Play) -> Vec<(&'static str, Reply)> {
    let known = read_result(&result(), &Options::default()).unwrap().0;
    let mut invalid = good();
    invalid.metrics = Some(RawObject::new(text("{\"latencyMs\":-1}")).unwrap());
    let ran = |ended| Reply::Ran(ended);
    vec![
        ("allowed", Reply::Access(Access::Allowed)),
        ("forbidden", Reply::Access(Access::Forbidden)),
        ("unknown", Reply::Access(Access::Unknown)),
        ("busy", Reply::Access(Access::Busy)),
        ("new", Reply::Admission(Admission::New)),
        (
            "interrupted",
            Reply::Admission(Admission::Interrupted {
                status: Some(Status::Partial),
                ends: Timestamp::MAX,
            }),
        ),
        (
            "came before",
            Reply::Admission(Admission::Known(Some(Box::new(known)))),
        ),
        ("runs", Reply::Admission(Admission::Known(None))),
        ("other", Reply::Admission(Admission::Other)),
        ("not found", Reply::Admission(Admission::NotFound)),
        ("full", Reply::Admission(Admission::Full)),
        ("gone", Reply::Admission(Admission::Gone)),
        ("unreadable", Reply::Admission(Admission::Unreadable)),
        ("recorded", Reply::Recorded),
        ("not recorded", Reply::NotRecorded),
        ("delivered", Reply::Delivered),
        ("valid", play.verdict(Alignment::Valid)),
        ("escalate", play.verdict(Alignment::Escalate)),
        ("no", play.verdict(Alignment::NonConstitutional)),
        ("a record", play.found(true)),
        ("no record", play.found(false)),
        (
            "no key",
            Reply::Found {
                keys: None,
                record: None,
                keeps: true,
            },
        ),
        ("lead", Reply::Lead),
        ("followed", Reply::Followed),
        ("made", ran(Ended::Outcome(Box::new(good())))),
        ("error", ran(Ended::Error(HandlerError::unprocessable("")))),
        ("panic", ran(Ended::Panicked)),
        ("over budget", ran(Ended::OverBudget("tokens".into()))),
        ("kept", Reply::Checked(ContractFinding::Kept)),
        (
            "broken",
            Reply::Checked(ContractFinding::Broken(vec!["/a".into()])),
        ),
        ("in the cache", Reply::Kept),
        ("panicked", Reply::Panicked),
    ]
}

/// A step; where each reply leads that fits; where cancel, the deadline and shutdown lead.
type Row = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
    &'static str,
);

const INTERNAL: &str = "record FAILED INTERNAL";
const CANCELLED: &str = "record CANCELLED";
const TIMEOUT: &str = "record FAILED TIMEOUT";
const REFUSED: &str = "record FAILED NON_CONSTITUTIONAL";

/// `=`: it stays. `-`: it is refused.
const TABLE: [Row; 19] = [
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

/// What is recorded, in order.
struct Recorded {
    lifecycle: Lifecycle,
    results: Vec<TaskResult>,
}

impl Recorded {
    /// Gives one input, and looks at what it does.
    fn watch(&mut self, play: &mut Play, now: Now, input: Input) {
        let recording = match &play.open {
            Some((_, Request::Record(Record::Result(written)))) => Some(written.result.clone()),
            _ => None,
        };
        let is_recorded = matches!(
            &input,
            Input::Reply {
                reply: Reply::Recorded,
                ..
            }
        );
        let was_closed = play.machine.is_closed();
        let outcome = play.input(now, input);
        assert!(
            !was_closed || outcome.is_err(),
            "nothing comes after the end"
        );
        if let Some(result) = recording.filter(|_| is_recorded && outcome.is_ok()) {
            assert_eq!(self.lifecycle.accept(&result), Ok(Accepted::Moved));
            self.results.push(result);
        }
        let ((Some((_, Request::Deliver(Message::Result(told)))), _)
        | (_, Some(End::Answer(told)))) = (&play.open, &play.end)
        else {
            return;
        };
        assert!(
            self.results.contains(&told.result),
            "told before it is recorded"
        );
    }
}

fn drawn(play: &Play, chance: &mut IdSource) -> Input {
    let all = replies(play);
    let id = play
        .open
        .as_ref()
        .map(|open| open.0)
        .or(play.run)
        .unwrap_or(7);
    let reply = |name: &str| {
        let reply = all.iter().find(|reply| reply.0 == name).unwrap();
        let reply = reply.1.clone();
        Input::Reply { id, reply }
    };
    match chance.bits() % 40 {
        0 => Input::Cancel,
        1 => Input::Shutdown,
        2..=10 => Input::Report(Progress::running(Some(text("1")))),
        // One that fits the step, where there is one.
        11..=36 => match TABLE.iter().find(|row| row.0 == play.step()) {
            Some((_, ways, ..)) if !ways.is_empty() => {
                let way = usize::try_from(chance.bits()).unwrap_or(0) % (ways.len() + 2);
                reply(ways.get(way).unwrap_or(&ways[0]).0)
            }
            _ => reply("recorded"),
        },
        _ => {
            let any = usize::try_from(chance.bits()).unwrap_or(0) % all.len();
            reply(all[any].0)
        }
    }
}

// spec: SAP-5-3, SAP-5-5, SAP-10-1
#[test]
fn random_walks_keep_the_order_of_results() {
    let mut ends = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let mut chance = IdSource::seeded(seed);
        let mut play = Play::new(&whole());
        let mut recorded = Recorded {
            lifecycle: Lifecycle::new(&play.task, Profile::Strict),
            results: Vec::new(),
        };
        let mut now = at(0);
        for _ in 0..60 {
            let input = drawn(&play, &mut chance);
            recorded.watch(&mut play, now, input);
            if chance.bits().is_multiple_of(12) {
                now = now.plus(Duration::from_secs(chance.bits() % 3_000));
            }
        }
        ends.insert(play.step());
    }
    for wanted in [
        "answer SUCCEEDED",
        "answer CANCELLED",
        "answer FAILED TIMEOUT",
        "lost",
    ] {
        assert!(ends.contains(wanted), "{wanted} in {ends:?}");
    }
}
