//! The consumer's side of a task: every event at every step, time, and random walks.

mod table;
mod time;
mod walks;

use std::sync::Arc;
use std::time::Duration;

use sap::alignment::Assessment;
use sap::cache::{CacheRecord, Keys, WholePayload};
use sap::role::consumer::{
    Access, Admission, Config, ContractFinding, End, Ended, Error, HandlerError, Input, Message,
    Outcome, Output, Progress, Proposed, ReceivedTask, Record, Reply, Request, StopReason,
};
use sap::validate::Options;
use sap::{Alignment, Producer, ProducerKind, Status, Task, TaskResult};
use serde_json::Value;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::{Mono, Now, Timestamp};

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
