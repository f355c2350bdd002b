//! What a hub must have done.

use std::collections::BTreeSet;

use ubos_common::conformance::Verdict;

use super::{Line, Said};
use crate::{
    conformance::all,
    id::StreamId,
    role::{Rpc, agent::Inbound},
    status::{Code, Status},
    wire::{SessionProposal, TestInit, listen_response::Event, session_proposal::Details},
};

fn registered(lines: &[Line]) -> impl Iterator<Item = &Result<String, Status>> {
    lines.iter().filter_map(|line| match line {
        Line::Registered(answer) => Some(answer),
        _ => None,
    })
}

/// What was said on the calls of a kind, and `None` for each time that nothing was.
fn said(lines: &[Line], rpc: Rpc) -> Vec<(StreamId, Option<&Said>)> {
    let is_of = |stream: &StreamId| lines.contains(&Line::Opened(*stream, rpc));
    let lines = lines.iter().filter_map(|line| match line {
        Line::Said(stream, said) => Some((*stream, Some(said))),
        Line::Silence(stream) => Some((*stream, None)),
        _ => None,
    });
    lines.filter(|(stream, _)| is_of(stream)).collect()
}

fn ends(lines: &[Line]) -> Vec<(StreamId, Code)> {
    let lines = lines.iter().filter_map(|line| match line {
        Line::Said(stream, Said::Ended(status)) => Some((*stream, status.code)),
        _ => None,
    });
    lines.collect()
}

fn proposals(lines: &[Line]) -> Vec<(StreamId, &SessionProposal)> {
    let listens = said(lines, Rpc::Listen).into_iter();
    let proposals = listens.filter_map(|(stream, said)| match said? {
        Said::Message(Inbound::Listen(message)) => match message.event.as_ref()? {
            Event::SessionProposal(proposal) => Some((stream, proposal)),
            Event::SessionReady(_) => None,
        },
        _ => None,
    });
    proposals.collect()
}

fn readies(lines: &[Line]) -> Vec<&str> {
    let listens = said(lines, Rpc::Listen).into_iter();
    let readies = listens.filter_map(|(_, said)| match said? {
        Said::Message(Inbound::Listen(message)) => match message.event.as_ref()? {
            Event::SessionReady(ready) => Some(ready.session_id.as_str()),
            Event::SessionProposal(_) => None,
        },
        _ => None,
    });
    readies.collect()
}

fn jobs(lines: &[Line]) -> Vec<(StreamId, &TestInit)> {
    let jobs = lines.iter().filter_map(|line| match line {
        Line::Said(stream, Said::Message(Inbound::Test(init))) => Some((*stream, init)),
        _ => None,
    });
    jobs.collect()
}

/// A verdict of what needs a session that came so far.
fn with_proposal(lines: &[Line], judge: impl FnOnce(&SessionProposal) -> Verdict) -> Verdict {
    match proposals(lines).first() {
        Some((_, proposal)) => judge(proposal),
        None => Verdict::not_applicable("the hub proposed no job"),
    }
}

fn with_stream(lines: &[Line], judge: impl FnOnce() -> Verdict) -> Verdict {
    let opened = lines
        .iter()
        .any(|line| matches!(line, Line::Opened(_, Rpc::Execute)));
    match opened {
        true => judge(),
        false => Verdict::not_applicable("no session became ready"),
    }
}

pub(super) fn fresh_ids(lines: &[Line]) -> Verdict {
    let answers: Vec<_> = registered(lines).collect();
    let ids: BTreeSet<_> = answers
        .iter()
        .filter_map(|answer| answer.as_ref().ok())
        .collect();
    all([
        (
            answers.iter().all(|answer| answer.is_ok()),
            "Register",
            format!("{answers:?}"),
        ),
        (
            ids.len() == answers.len() && !ids.iter().any(|id| id.is_empty()),
            "client_id",
            "one id twice, or an empty one".to_owned(),
        ),
    ])
}

pub(super) fn taken(lines: &[Line]) -> Verdict {
    all(registered(lines).map(|answer| (answer.is_ok(), "Register", format!("{answer:?}"))))
}

pub(super) fn invalid_field(lines: &[Line]) -> Verdict {
    all(registered(lines).map(|answer| {
        let holds = answer.as_ref().is_err_and(|status| {
            status.code == Code::InvalidArgument && status.message.contains("capabilit")
        });
        let seen = format!("{answer:?} where INVALID_ARGUMENT with the field is wanted");
        (holds, "Register", seen)
    }))
}

fn each_ends(lines: &[Line], rpc: Rpc, wanted: &[Code]) -> Verdict {
    let seen = said(lines, rpc).into_iter().zip(wanted);
    all(seen.map(|((_, said), wanted)| {
        let holds = matches!(said, Some(Said::Ended(status)) if status.code == *wanted);
        let told = match said {
            Some(Said::Ended(status)) => format!("{:?}", status.code),
            Some(Said::Message(_)) => "a message".to_owned(),
            None => "silence".to_owned(),
        };
        let place = match rpc {
            Rpc::Listen => "Listen",
            Rpc::Execute => "Execute",
            Rpc::Translate => "Translate",
        };
        (holds, place, format!("{told} where {wanted:?} is wanted"))
    }))
}

pub(super) fn not_found(lines: &[Line]) -> Verdict {
    each_ends(lines, Rpc::Listen, &[Code::NotFound; 3])
}

pub(super) fn no_session(lines: &[Line]) -> Verdict {
    let wanted = [Code::InvalidArgument, Code::InvalidArgument, Code::NotFound];
    match each_ends(lines, Rpc::Execute, &wanted) {
        Verdict::Pass => each_ends(lines, Rpc::Translate, &wanted),
        fault => fault,
    }
}

/// One call was refused, and the right one got the job.
pub(super) fn precondition_then_job(lines: &[Line]) -> Verdict {
    let tried = lines
        .iter()
        .filter(|line| matches!(line, Line::Opened(_, Rpc::Execute | Rpc::Translate)))
        .count();
    if tried == 0 {
        return Verdict::not_applicable("no session came so far");
    }
    let refused = ends(lines)
        .iter()
        .any(|(_, code)| *code == Code::FailedPrecondition);
    all([
        (
            refused,
            "the wrong call",
            "it was not ended FAILED_PRECONDITION".to_owned(),
        ),
        (
            !jobs(lines).is_empty(),
            "the right call",
            "it got no job".to_owned(),
        ),
    ])
}

pub(super) fn precondition_beside_job(lines: &[Line]) -> Verdict {
    with_stream(lines, || {
        let jobs = jobs(lines);
        let Some((first, _)) = jobs.first() else {
            return Verdict::not_applicable("the first stream got no job");
        };
        let of_first = |ended: &&(StreamId, Code)| ended.0 == *first;
        let ends = ends(lines);
        all([
            (
                ends.iter()
                    .any(|(stream, code)| stream != first && *code == Code::FailedPrecondition),
                "the second stream",
                format!("{} jobs, and no FAILED_PRECONDITION", jobs.len()),
            ),
            (
                ends.iter()
                    .filter(of_first)
                    .all(|(_, code)| *code == Code::Ok),
                "the first stream",
                "it was ended".to_owned(),
            ),
        ])
    })
}

pub(super) fn aborted_for_the_second(lines: &[Line]) -> Verdict {
    replaced(lines, |ends| match ends {
        [(_, Code::Aborted)] => Verdict::Pass,
        other => Verdict::fail("Listen", format!("ended {other:?}")),
    })
}

pub(super) fn not_ok(lines: &[Line]) -> Verdict {
    replaced(lines, |ends| {
        let ok = ends.iter().any(|(_, code)| *code == Code::Ok);
        all([(!ok, "Listen", "ended OK".to_owned())])
    })
}

fn replaced(lines: &[Line], judge: impl FnOnce(&[(StreamId, Code)]) -> Verdict) -> Verdict {
    if said(lines, Rpc::Listen).is_empty() {
        return Verdict::not_applicable("the agent could not listen");
    }
    judge(&ends(lines))
}

// Proposed, then accepted, then ready: once each, all with one name and one detail.
pub(super) fn proposal_before_ready(lines: &[Line]) -> Verdict {
    with_proposal(lines, |proposal| {
        let id = proposal.session_id.as_str();
        let at = |wanted: &dyn Fn(&Line) -> bool| lines.iter().position(wanted);
        let accepted = at(&|line| matches!(line, Line::Accepted(_, session) if session == id));
        let ready = at(&|line| !readies(std::slice::from_ref(line)).is_empty() || says_ready(line));
        all([
            (!id.is_empty(), "session_id", "it is empty".to_owned()),
            (
                proposal.details.is_some(),
                "details",
                "neither test nor translation".to_owned(),
            ),
            (
                accepted.is_some() && ready > accepted,
                "SessionReady",
                "it did not follow the acceptance".to_owned(),
            ),
            (
                readies(lines) == [id],
                "SessionReady",
                format!("{:?} for {id:?}", readies(lines)),
            ),
        ])
    })
}

fn says_ready(line: &Line) -> bool {
    matches!(
        line,
        Line::Said(_, Said::Message(Inbound::Listen(message)))
            if matches!(message.event, Some(Event::SessionReady(_)))
    )
}

pub(super) fn offered_anew(lines: &[Line]) -> Verdict {
    with_proposal(lines, |first| {
        let proposals = proposals(lines);
        let asked = proposals.first().map(|(listen, _)| *listen);
        let mut others = proposals
            .iter()
            .filter(|(listen, _)| Some(*listen) != asked);
        let Some((_, second)) = others.next() else {
            return Verdict::fail("the second agent", "the job was not offered to it");
        };
        all([(
            second.session_id != first.session_id,
            "session_id",
            "the old one again".to_owned(),
        )])
    })
}

pub(super) fn proposed_without_ready(lines: &[Line]) -> Verdict {
    let listens = said(lines, Rpc::Listen);
    match (listens.first(), proposals(lines).is_empty()) {
        (None | Some((_, None)), true) => Verdict::not_applicable("the hub proposed no job"),
        (Some((_, None)), false) => Verdict::fail("Listen", "a proposal only after ready"),
        (_, false) => Verdict::Pass,
        (Some((_, Some(said))), true) => Verdict::fail("Listen", format!("{said:?}")),
    }
}

pub(super) fn incapable_unasked(lines: &[Line]) -> Verdict {
    let listens = said(lines, Rpc::Listen);
    match listens.first() {
        None => Verdict::not_applicable("the agent could not listen"),
        Some((stream, _)) if proposals(lines).iter().any(|(asked, _)| asked == stream) => {
            Verdict::fail("Listen", "a proposal to an agent without the capability")
        }
        Some(_) => with_proposal(lines, |_| Verdict::Pass),
    }
}

pub(super) fn listen_goes_on(lines: &[Line]) -> Verdict {
    match (said(lines, Rpc::Listen).is_empty(), ends(lines).first()) {
        (true, _) => Verdict::not_applicable("the agent could not listen"),
        (false, Some((_, code))) => Verdict::fail("Listen", format!("ended {code:?}")),
        (false, None) => Verdict::Pass,
    }
}

pub(super) fn not_ready_for_a_stranger(lines: &[Line]) -> Verdict {
    let tried = lines.iter().any(|line| matches!(line, Line::Accepted(..)));
    if !tried {
        return Verdict::not_applicable("the hub proposed no job");
    }
    all([
        (
            readies(lines).is_empty(),
            "SessionReady",
            "another agent's acceptance counted".to_owned(),
        ),
        (
            ends(lines).is_empty(),
            "Listen",
            format!("{:?}", ends(lines)),
        ),
    ])
}

pub(super) fn job_at_once(lines: &[Line]) -> Verdict {
    with_stream(lines, || match said(lines, Rpc::Execute).first() {
        Some((_, Some(Said::Message(_)))) => Verdict::Pass,
        other => Verdict::fail(
            "Execute",
            format!("{:?} where the job is wanted", other.map(|(_, said)| said)),
        ),
    })
}

pub(super) fn one_job(lines: &[Line]) -> Verdict {
    with_stream(lines, || {
        let jobs = jobs(lines).len();
        all([(jobs == 1, "Execute", format!("{jobs} jobs on one stream"))])
    })
}

pub(super) fn ends_ok(lines: &[Line]) -> Verdict {
    with_stream(lines, || {
        let jobs = jobs(lines);
        let Some((stream, _)) = jobs.first() else {
            return Verdict::not_applicable("the stream got no job");
        };
        match ends(lines).into_iter().find(|(of, _)| of == stream) {
            Some((_, Code::Ok)) => Verdict::Pass,
            Some((_, code)) => Verdict::fail("Execute", format!("ended {code:?}")),
            None => Verdict::fail("Execute", "not ended after the half-close"),
        }
    })
}

pub(super) fn job_as_proposed(lines: &[Line]) -> Verdict {
    with_proposal(lines, |proposal| {
        let jobs = jobs(lines);
        let (Some(Details::Test(test)), Some((_, init))) = (&proposal.details, jobs.first()) else {
            return Verdict::not_applicable("no test came so far");
        };
        all([(
            init.test_type == test.r#type,
            "test_type",
            "another than the proposal's".to_owned(),
        )])
    })
}
