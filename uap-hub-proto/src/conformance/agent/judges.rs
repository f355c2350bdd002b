//! What an agent must have done.

use std::time::Duration;

use ubos_common::{conformance::Verdict, violation::Level};

use super::{Did, Line, What};
use crate::{
    conformance::all,
    id::StreamId,
    role::{
        Rpc,
        hub::{Inbound, Outbound},
        report::Report,
    },
    state::State,
    validate::Validate as _,
    wire::{SessionAcceptance, listen_request, listen_response},
};

fn did(lines: &[Line]) -> impl Iterator<Item = (Duration, &Did)> {
    lines.iter().filter_map(|line| match &line.what {
        What::Agent(did) => Some((line.at, did)),
        _ => None,
    })
}

fn answers(lines: &[Line]) -> Vec<&SessionAcceptance> {
    let answers = did(lines).filter_map(|(_, did)| match did {
        Did::Says(_, Inbound::Listen(message)) => match message.event.as_ref()? {
            listen_request::Event::SessionAcceptance(answer) => Some(answer),
            listen_request::Event::Ready(()) => None,
        },
        _ => None,
    });
    answers.collect()
}

/// The calls of sessions, with their keys.
fn sessions(lines: &[Line]) -> Vec<(StreamId, Rpc, Option<&str>)> {
    let opened = did(lines).filter_map(|(_, did)| match did {
        Did::Opens { stream, rpc, key } if *rpc != Rpc::Listen => {
            Some((*stream, *rpc, key.as_deref()))
        }
        _ => None,
    });
    opened.collect()
}

fn with_listen(lines: &[Line], judge: impl FnOnce(Option<&str>) -> Verdict) -> Verdict {
    let key = did(lines).find_map(|(_, did)| match did {
        Did::Opens {
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

fn with_session(lines: &[Line], judge: impl FnOnce(StreamId) -> Verdict) -> Verdict {
    match sessions(lines).first() {
        Some((stream, ..)) => judge(*stream),
        None => Verdict::not_applicable("no session came so far: the agent opened no stream"),
    }
}

fn with_answer(lines: &[Line], judge: impl FnOnce() -> Verdict) -> Verdict {
    let asked = lines.iter().any(|line| match &line.what {
        What::Sent(_, Outbound::Listen(message)) => matches!(
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

pub(super) fn good_registration(lines: &[Line]) -> Verdict {
    let registration = did(lines).find_map(|(_, did)| match did {
        Did::Registers(registration) => Some(registration),
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

pub(super) fn ready_first(lines: &[Line]) -> Verdict {
    with_listen(lines, |_| {
        let first = did(lines).find_map(|(_, did)| match did {
            Did::Says(_, Inbound::Listen(message)) => Some(message.event.as_ref()),
            _ => None,
        });
        match first {
            Some(Some(listen_request::Event::Ready(()))) => Verdict::Pass,
            Some(_) => Verdict::fail("Listen", "something else first"),
            None => Verdict::fail("Listen", "silence"),
        }
    })
}

pub(super) fn own_name(lines: &[Line]) -> Verdict {
    let given = lines.iter().find_map(|line| match &line.what {
        What::Answered(Ok(id)) => Some(id.as_str()),
        _ => None,
    });
    with_listen(lines, |key| {
        let seen = format!("{key:?} where {given:?} was given");
        all([(key == given, "x-client-id", seen)])
    })
}

pub(super) fn session_named(lines: &[Line]) -> Verdict {
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

pub(super) fn no_stream_yet(lines: &[Line]) -> Verdict {
    with_answer(lines, || {
        let opened = sessions(lines);
        all([(
            opened.is_empty(),
            "Execute",
            "opened before SessionReady".to_owned(),
        )])
    })
}

pub(super) fn one_answer(lines: &[Line]) -> Verdict {
    with_answer(lines, || {
        let answers = answers(lines).len();
        all([(
            answers == 1,
            "Listen",
            format!("{answers} answers to one proposal"),
        )])
    })
}

pub(super) fn refuses(lines: &[Line]) -> Verdict {
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

pub(super) fn opens_nothing(lines: &[Line]) -> Verdict {
    with_listen(lines, |_| {
        let opened = sessions(lines).len();
        all([(
            opened == 0,
            "Execute",
            "opened for a session never accepted".to_owned(),
        )])
    })
}

/// The reports of a call, in order.
fn reports(lines: &[Line], wanted: StreamId) -> Vec<(usize, Report)> {
    let said = lines.iter().enumerate().filter_map(|(n, line)| {
        let What::Agent(Did::Says(stream, message)) = &line.what else {
            return None;
        };
        let report = match message {
            Inbound::Test(message) => Report::of_test(message.clone()).1,
            Inbound::Translation(message) => Report::of_translation(message.clone()).1,
            Inbound::Listen(_) => None,
        };
        report
            .filter(|_| *stream == wanted)
            .map(|report| (n, report))
    });
    said.collect()
}

fn job_sent(lines: &[Line], wanted: StreamId) -> Option<usize> {
    lines.iter().position(|line| match &line.what {
        What::Sent(stream, message) => *stream == wanted && !matches!(message, Outbound::Listen(_)),
        _ => false,
    })
}

pub(super) fn acknowledges(lines: &[Line]) -> Verdict {
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
        Report::Status { kind, state, .. } => Some(State::from_wire(*kind, *state)),
        Report::Telemetry(..) => None,
        Report::Result(result) => Some(result.state()),
    }
}

pub(super) fn forward(lines: &[Line]) -> Verdict {
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

pub(super) fn terminal_result(lines: &[Line]) -> Verdict {
    with_session(lines, |stream| {
        let states: Vec<_> = reports(lines, stream)
            .iter()
            .filter_map(|(_, report)| state_of(report))
            .collect();
        let results = reports(lines, stream);
        let bad = results.iter().any(|(_, report)| {
            matches!(report, Report::Result(result) if !result.state().is_some_and(State::is_terminal))
        });
        let ended = states.iter().flatten().any(|state| state.is_terminal());
        all([
            (!bad, "result", "its status is not terminal".to_owned()),
            (ended, "the session", "no terminal state".to_owned()),
        ])
    })
}

/// Where the agent half-closed a call.
fn half_close(lines: &[Line], wanted: StreamId) -> Option<usize> {
    lines
        .iter()
        .position(|line| line.what == What::Agent(Did::HalfCloses(wanted)))
}

pub(super) fn half_closes(lines: &[Line]) -> Verdict {
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

pub(super) fn ends_well(lines: &[Line]) -> Verdict {
    with_session(lines, |stream| {
        let reset = did(lines).any(|(_, did)| *did == Did::Resets(stream));
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

pub(super) fn call_kept(lines: &[Line]) -> Verdict {
    with_session(lines, |stream| {
        if half_close(lines, stream).is_none() {
            return Verdict::not_applicable("the agent did not half-close");
        }
        let ended = lines
            .iter()
            .position(|line| matches!(line.what, What::Ended(of, _) if of == stream))
            .unwrap_or(lines.len());
        let reset = lines
            .iter()
            .position(|line| line.what == What::Agent(Did::Resets(stream)));
        all([(
            reset.is_none_or(|reset| reset > ended),
            "the session's stream",
            "broken off before the hub's end of it".to_owned(),
        )])
    })
}

pub(super) fn two_streams(lines: &[Line]) -> Verdict {
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
fn pauses(lines: &[Line]) -> Vec<Duration> {
    let mut pauses = Vec::new();
    let mut turned_away = None;
    for line in lines {
        match &line.what {
            What::Answered(Err(_)) | What::Ended(..) => turned_away = Some(line.at),
            What::Agent(Did::Registers(_)) => {
                pauses.extend(turned_away.take().map(|at| line.at.saturating_sub(at)));
            }
            _ => {}
        }
    }
    pauses
}

/// Each pause is as long as is wanted, give or take what a busy machine takes.
fn paused(lines: &[Line], wanted: &[u64]) -> Verdict {
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

pub(super) fn pauses_grow(lines: &[Line]) -> Verdict {
    paused(lines, &[1, 2, 4])
}

pub(super) fn pause_of_a_second(lines: &[Line]) -> Verdict {
    paused(lines, &[1])
}
