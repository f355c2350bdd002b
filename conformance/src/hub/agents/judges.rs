//! The judges of recordings of agents.

use std::time::Duration;

use ubos_common::violation::Level;

use super::super::all;
use super::{AgentAction, AgentLine, LineKind};
use crate::Verdict;
use uap_hub_proto::{
    capability::Kind,
    id::StreamId,
    message::JobResult,
    role::{
        Rpc,
        hub::{Inbound, Outbound},
    },
    state::State,
    validate::Validate as _,
    wire::{
        SessionAcceptance, listen_request, listen_response, test_response, translation_response,
    },
};

fn actions(lines: &[AgentLine]) -> impl Iterator<Item = (Duration, &AgentAction)> {
    lines.iter().filter_map(|line| match &line.kind {
        LineKind::Agent(action) => Some((line.at, action)),
        _ => None,
    })
}

fn answers(lines: &[AgentLine]) -> Vec<&SessionAcceptance> {
    let answers = actions(lines).filter_map(|(_, action)| match action {
        AgentAction::Sent(_, Inbound::Listen(message)) => match message.event.as_ref()? {
            listen_request::Event::SessionAcceptance(answer) => Some(answer),
            listen_request::Event::Ready(()) => None,
        },
        _ => None,
    });
    answers.collect()
}

/// The calls of sessions, with their keys.
fn sessions(lines: &[AgentLine]) -> Vec<(StreamId, Rpc, Option<&str>)> {
    let opened = actions(lines).filter_map(|(_, action)| match action {
        AgentAction::Opened { stream, rpc, key } if *rpc != Rpc::Listen => {
            Some((*stream, *rpc, key.as_deref()))
        }
        _ => None,
    });
    opened.collect()
}

fn with_listen(lines: &[AgentLine], judge: impl FnOnce(Option<&str>) -> Verdict) -> Verdict {
    let key = actions(lines).find_map(|(_, action)| match action {
        AgentAction::Opened {
            rpc: Rpc::Listen,
            key,
            ..
        } => Some(key.as_deref()),
        _ => None,
    });
    match key {
        Some(key) => judge(key),
        None => Verdict::not_applicable("the agent did not come, or did not listen"),
    }
}

fn with_session(lines: &[AgentLine], judge: impl FnOnce(StreamId) -> Verdict) -> Verdict {
    match sessions(lines).first() {
        Some((stream, ..)) => judge(*stream),
        None => Verdict::not_applicable("no session came so far: the agent opened no stream"),
    }
}

fn with_answer(lines: &[AgentLine], judge: impl FnOnce() -> Verdict) -> Verdict {
    let asked = lines.iter().any(|line| match &line.kind {
        LineKind::Sent(_, Outbound::Listen(message)) => matches!(
            message.event,
            Some(listen_response::Event::SessionProposal(_))
        ),
        _ => false,
    });
    match asked {
        true => judge(),
        false => Verdict::not_applicable("the agent has no capability, or did not listen"),
    }
}

pub(super) fn good_registration(lines: &[AgentLine]) -> Verdict {
    let registration = actions(lines).find_map(|(_, action)| match action {
        AgentAction::Registered(registration) => Some(registration),
        _ => None,
    });
    let Some(registration) = registration else {
        return Verdict::not_applicable("the agent did not come");
    };
    let report = registration.validate();
    let worst = report.iter().find(|finding| finding.level == Level::Must);
    match worst {
        Some(finding) => Verdict::fail(finding.pointer.clone(), finding.message.clone()),
        None => Verdict::Pass,
    }
}

pub(super) fn ready_first(lines: &[AgentLine]) -> Verdict {
    with_listen(lines, |_| {
        let first = actions(lines).find_map(|(_, action)| match action {
            AgentAction::Sent(_, Inbound::Listen(message)) => Some(message.event.as_ref()),
            _ => None,
        });
        match first {
            Some(Some(listen_request::Event::Ready(()))) => Verdict::Pass,
            Some(_) => Verdict::fail("Listen", "something else first"),
            None => Verdict::fail("Listen", "silence"),
        }
    })
}

pub(super) fn own_name(lines: &[AgentLine]) -> Verdict {
    let given = lines.iter().find_map(|line| match &line.kind {
        LineKind::Answered(Ok(id)) => Some(id.as_str()),
        _ => None,
    });
    with_listen(lines, |key| {
        let seen = format!("{key:?} where {given:?} was given");
        all([(key == given, "x-client-id", seen)])
    })
}

pub(super) fn session_named(lines: &[AgentLine]) -> Verdict {
    with_session(lines, |_| {
        let wanted = answers(lines)
            .first()
            .map(|answer| answer.session_id.as_str());
        all(sessions(lines).into_iter().map(|(_, _, key)| {
            let seen = format!("{key:?} where {wanted:?} is wanted");
            (key == wanted, "x-session-id", seen)
        }))
    })
}

pub(super) fn no_stream_yet(lines: &[AgentLine]) -> Verdict {
    with_answer(lines, || {
        let opened = sessions(lines);
        all([(
            opened.is_empty(),
            "Execute",
            "opened before SessionReady".to_owned(),
        )])
    })
}

pub(super) fn one_answer(lines: &[AgentLine]) -> Verdict {
    with_answer(lines, || {
        let answers = answers(lines).len();
        all([(
            answers == 1,
            "Listen",
            format!("{answers} answers to one proposal"),
        )])
    })
}

pub(super) fn refuses(lines: &[AgentLine]) -> Verdict {
    with_answer(lines, || {
        let answers = answers(lines);
        let sent = ["JOB-odd", "JOB-nothing"];
        all(sent.into_iter().map(|session| {
            let of: Vec<_> = answers
                .iter()
                .filter(|one| one.session_id == session)
                .collect();
            let holds = of.len() == 1 && of.iter().all(|answer| !answer.accepted);
            let seen = match of.first() {
                None => format!("{session} was not answered"),
                Some(_) => format!("{session} was not refused once"),
            };
            (holds, "Listen", seen)
        }))
    })
}

pub(super) fn opens_nothing(lines: &[AgentLine]) -> Verdict {
    with_listen(lines, |_| {
        let opened = sessions(lines).len();
        all([(
            opened == 0,
            "Execute",
            "opened for a session never accepted".to_owned(),
        )])
    })
}

/// A report of a session.
enum Report {
    /// A status, with its state if that is known.
    Status(Option<State>),
    Telemetry,
    /// A result, with its state if that is known.
    Result(Option<State>),
}

impl Report {
    fn of(message: &Inbound) -> Option<Self> {
        Some(match message {
            Inbound::Test(message) => match message.event.as_ref()? {
                test_response::Event::Status(status) => {
                    Self::Status(State::from_wire(Kind::Test, status.state))
                }
                test_response::Event::Telemetry(_) => Self::Telemetry,
                test_response::Event::Result(result) => {
                    Self::Result(JobResult::from(result.clone()).state())
                }
            },
            Inbound::Translation(message) => match message.event.as_ref()? {
                translation_response::Event::Status(status) => {
                    Self::Status(State::from_wire(Kind::Translation, status.state))
                }
                translation_response::Event::Telemetry(_) => Self::Telemetry,
                translation_response::Event::Result(result) => {
                    Self::Result(JobResult::from(result.clone()).state())
                }
            },
            Inbound::Listen(_) => return None,
        })
    }
}

/// The reports of a call, in order.
fn reports(lines: &[AgentLine], wanted: StreamId) -> Vec<(usize, Report)> {
    let said = lines.iter().enumerate().filter_map(|(n, line)| {
        let LineKind::Agent(AgentAction::Sent(stream, message)) = &line.kind else {
            return None;
        };
        Report::of(message)
            .filter(|_| *stream == wanted)
            .map(|report| (n, report))
    });
    said.collect()
}

fn job_sent(lines: &[AgentLine], wanted: StreamId) -> Option<usize> {
    lines.iter().position(|line| match &line.kind {
        LineKind::Sent(stream, message) => {
            *stream == wanted && !matches!(message, Outbound::Listen(_))
        }
        _ => false,
    })
}

pub(super) fn acknowledges(lines: &[AgentLine]) -> Verdict {
    with_session(lines, |stream| {
        let job = job_sent(lines, stream).unwrap_or(lines.len());
        let first = reports(lines, stream).into_iter().next();
        match first {
            Some((at, _)) if at < job => Verdict::Pass,
            _ => Verdict::fail("Execute", "nothing said before the job came"),
        }
    })
}

fn state_of(report: &Report) -> Option<Option<State>> {
    match report {
        Report::Status(state) | Report::Result(state) => Some(*state),
        Report::Telemetry => None,
    }
}

pub(super) fn forward(lines: &[AgentLine]) -> Verdict {
    with_session(lines, |stream| {
        let mut last: Option<State> = None;
        for (_, report) in reports(lines, stream) {
            // A result that says no state is another case's.
            let Some(state) = state_of(&report) else {
                continue;
            };
            let Some(next) = state else {
                match report {
                    Report::Result(_) => continue,
                    _ => return Verdict::fail("status", "a state that is unspecified or unknown"),
                }
            };
            let is_repeated_end = last == Some(next) && next.is_terminal();
            if last.is_some_and(|last| !last.may_become(next)) && !is_repeated_end {
                return Verdict::fail("status", format!("{next:?} after {last:?}"));
            }
            last = Some(next);
        }
        match last {
            Some(_) => Verdict::Pass,
            None => Verdict::not_applicable("the agent reported no state"),
        }
    })
}

pub(super) fn terminal_result(lines: &[AgentLine]) -> Verdict {
    with_session(lines, |stream| {
        let states: Vec<_> = reports(lines, stream)
            .iter()
            .filter_map(|(_, report)| state_of(report))
            .collect();
        let results = reports(lines, stream);
        let bad = results.iter().any(|(_, report)| {
            matches!(report, Report::Result(state) if !state.is_some_and(State::is_terminal))
        });
        let ended = states.iter().flatten().any(|state| state.is_terminal());
        all([
            (!bad, "result", "its status is not terminal".to_owned()),
            (ended, "the session", "no terminal state".to_owned()),
        ])
    })
}

/// Where the agent half-closed a call.
fn half_close(lines: &[AgentLine], wanted: StreamId) -> Option<usize> {
    lines
        .iter()
        .position(|line| line.kind == LineKind::Agent(AgentAction::HalfClosed(wanted)))
}

pub(super) fn half_closes(lines: &[AgentLine]) -> Verdict {
    with_session(lines, |stream| {
        let Some(closed) = half_close(lines, stream) else {
            return Verdict::fail("the session's stream", "never half-closed");
        };
        let ended = reports(lines, stream).into_iter().find_map(|(at, report)| {
            let state = state_of(&report)??;
            state.is_terminal().then_some(at)
        });
        all([(
            ended.is_some_and(|ended| ended < closed),
            "the session's stream",
            "half-closed before its end".to_owned(),
        )])
    })
}

pub(super) fn ends_well(lines: &[AgentLine]) -> Verdict {
    with_session(lines, |stream| {
        let reset = actions(lines).any(|(_, action)| *action == AgentAction::Reset(stream));
        all([
            (!reset, "the session's stream", "reset".to_owned()),
            (
                half_close(lines, stream).is_some(),
                "the session's stream",
                "not ended".to_owned(),
            ),
        ])
    })
}

pub(super) fn call_kept(lines: &[AgentLine]) -> Verdict {
    with_session(lines, |stream| {
        if half_close(lines, stream).is_none() {
            return Verdict::not_applicable("the agent did not half-close");
        }
        let ended = lines
            .iter()
            .position(|line| matches!(line.kind, LineKind::Ended(of, _) if of == stream))
            .unwrap_or(lines.len());
        let reset = lines
            .iter()
            .position(|line| line.kind == LineKind::Agent(AgentAction::Reset(stream)));
        all([(
            reset.is_none_or(|reset| reset > ended),
            "the session's stream",
            "broken off before the hub's end of it".to_owned(),
        )])
    })
}

pub(super) fn two_streams(lines: &[AgentLine]) -> Verdict {
    with_answer(lines, || {
        if answers(lines).iter().any(|answer| !answer.accepted) {
            return Verdict::not_applicable("the agent takes one session at a time, and said so");
        }
        let streams = sessions(lines);
        let done = |stream| half_close(lines, stream).is_some();
        all([
            (
                streams.len() == 2,
                "sessions",
                format!("{} streams for two sessions", streams.len()),
            ),
            (
                streams.iter().all(|(stream, ..)| done(*stream)),
                "sessions",
                "not both came to their end".to_owned(),
            ),
        ])
    })
}

/// The pauses before each registration but the first.
fn pauses(lines: &[AgentLine]) -> Vec<Duration> {
    let mut pauses = Vec::new();
    let mut turned_away = None;
    for line in lines {
        match &line.kind {
            LineKind::Answered(Err(_)) | LineKind::Ended(..) => turned_away = Some(line.at),
            LineKind::Agent(AgentAction::Registered(_)) => {
                pauses.extend(turned_away.take().map(|at| line.at.saturating_sub(at)));
            }
            _ => {}
        }
    }
    pauses
}

/// Each pause is as long as is wanted, give or take what a busy machine takes.
fn paused(lines: &[AgentLine], wanted: &[u64]) -> Verdict {
    with_listen(lines, |_| {
        let pauses = pauses(lines);
        if pauses.len() < wanted.len() {
            let seen = format!("it came back {} times of {}", pauses.len(), wanted.len());
            return Verdict::fail("Register", seen);
        }
        all(pauses.iter().zip(wanted).map(|(seen, wanted)| {
            let wanted = Duration::from_secs(*wanted);
            let holds = *seen >= wanted * 4 / 5 && *seen <= wanted * 2 + Duration::from_secs(5);
            (
                holds,
                "Register",
                format!("after {seen:?} where {wanted:?} is wanted"),
            )
        }))
    })
}

pub(super) fn pauses_grow(lines: &[AgentLine]) -> Verdict {
    paused(lines, &[1, 2, 4])
}

pub(super) fn pause_of_a_second(lines: &[AgentLine]) -> Verdict {
    paused(lines, &[1])
}
