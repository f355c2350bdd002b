//! The judges of recordings of hubs.

use std::collections::BTreeSet;

use super::super::all;
use super::{HubAction, HubLine};
use crate::Verdict;
use uap_hub_proto::{
    id::StreamId,
    role::{Rpc, agent::Inbound},
    status::{Code, Status},
    wire::{SessionProposal, listen_response::Event, session_proposal::Details},
};

fn registered(lines: &[HubLine]) -> impl Iterator<Item = &Result<String, Status>> {
    lines.iter().filter_map(|line| match line {
        HubLine::Registered(answer) => Some(answer),
        _ => None,
    })
}

/// The actions on the calls of a method, and `None` for each silence.
fn actions(lines: &[HubLine], rpc: Rpc) -> Vec<(StreamId, Option<&HubAction>)> {
    let is_of = |stream: &StreamId| lines.contains(&HubLine::Opened(*stream, rpc));
    let lines = lines.iter().filter_map(|line| match line {
        HubLine::Hub(stream, action) => Some((*stream, Some(action))),
        HubLine::Silence(stream) => Some((*stream, None)),
        _ => None,
    });
    lines.filter(|(stream, _)| is_of(stream)).collect()
}

fn ends(lines: &[HubLine]) -> Vec<(StreamId, Code)> {
    let lines = lines.iter().filter_map(|line| match line {
        HubLine::Hub(stream, HubAction::Ended(status)) => Some((*stream, status.code)),
        _ => None,
    });
    lines.collect()
}

fn proposals(lines: &[HubLine]) -> Vec<(StreamId, &SessionProposal)> {
    let listens = actions(lines, Rpc::Listen).into_iter();
    let proposals = listens.filter_map(|(stream, said)| match said? {
        HubAction::Sent(Inbound::Listen(message)) => match message.event.as_ref()? {
            Event::SessionProposal(proposal) => Some((stream, proposal)),
            Event::SessionReady(_) => None,
        },
        _ => None,
    });
    proposals.collect()
}

fn readies(lines: &[HubLine]) -> Vec<&str> {
    let listens = actions(lines, Rpc::Listen).into_iter();
    let readies = listens.filter_map(|(_, said)| match said? {
        HubAction::Sent(Inbound::Listen(message)) => match message.event.as_ref()? {
            Event::SessionReady(ready) => Some(ready.session_id.as_str()),
            Event::SessionProposal(_) => None,
        },
        _ => None,
    });
    readies.collect()
}

/// The jobs that were sent, each with its type.
fn jobs(lines: &[HubLine]) -> Vec<(StreamId, &str)> {
    let jobs = lines.iter().filter_map(|line| match line {
        HubLine::Hub(stream, HubAction::Sent(Inbound::Test(init))) => {
            Some((*stream, init.test_type.as_str()))
        }
        HubLine::Hub(stream, HubAction::Sent(Inbound::Translation(init))) => {
            Some((*stream, init.target_format.as_str()))
        }
        _ => None,
    });
    jobs.collect()
}

/// The actions on the streams of sessions.
fn on_sessions(lines: &[HubLine]) -> Vec<(StreamId, Option<&HubAction>)> {
    let tests = actions(lines, Rpc::Execute).into_iter();
    tests.chain(actions(lines, Rpc::Translate)).collect()
}

/// A verdict of what needs a session that came so far.
fn with_proposal(lines: &[HubLine], judge: impl FnOnce(&SessionProposal) -> Verdict) -> Verdict {
    match proposals(lines).first() {
        Some((_, proposal)) => judge(proposal),
        None => Verdict::not_applicable("the hub proposed no job"),
    }
}

fn with_stream(lines: &[HubLine], judge: impl FnOnce() -> Verdict) -> Verdict {
    let opened = lines
        .iter()
        .any(|line| matches!(line, HubLine::Opened(_, Rpc::Execute | Rpc::Translate)));
    match opened {
        true => judge(),
        false => Verdict::not_applicable("no session became ready"),
    }
}

pub(super) fn fresh_ids(lines: &[HubLine]) -> Verdict {
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

pub(super) fn taken(lines: &[HubLine]) -> Verdict {
    all(registered(lines).map(|answer| (answer.is_ok(), "Register", format!("{answer:?}"))))
}

pub(super) fn invalid_field(lines: &[HubLine]) -> Verdict {
    all(registered(lines).map(|answer| {
        let holds = answer.as_ref().is_err_and(|status| {
            status.code == Code::InvalidArgument && status.message.contains("capabilit")
        });
        let seen = format!("{answer:?} where INVALID_ARGUMENT with the field is wanted");
        (holds, "Register", seen)
    }))
}

fn each_ends(lines: &[HubLine], rpc: Rpc, wanted: &[Code]) -> Verdict {
    let seen = actions(lines, rpc).into_iter().zip(wanted);
    all(seen.map(|((_, said), wanted)| {
        let holds = matches!(said, Some(HubAction::Ended(status)) if status.code == *wanted);
        let told = match said {
            Some(HubAction::Ended(status)) => format!("{:?}", status.code),
            Some(HubAction::Sent(_)) => "a message".to_owned(),
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

pub(super) fn not_found(lines: &[HubLine]) -> Verdict {
    each_ends(lines, Rpc::Listen, &[Code::NotFound; 3])
}

pub(super) fn no_session(lines: &[HubLine]) -> Verdict {
    let wanted = [Code::InvalidArgument, Code::InvalidArgument, Code::NotFound];
    match each_ends(lines, Rpc::Execute, &wanted) {
        Verdict::Pass => each_ends(lines, Rpc::Translate, &wanted),
        fault => fault,
    }
}

/// One call was refused, and the right one got the job.
pub(super) fn precondition_then_job(lines: &[HubLine]) -> Verdict {
    let tried = lines
        .iter()
        .filter(|line| matches!(line, HubLine::Opened(_, Rpc::Execute | Rpc::Translate)))
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

pub(super) fn precondition_beside_job(lines: &[HubLine]) -> Verdict {
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

pub(super) fn aborted_for_the_second(lines: &[HubLine]) -> Verdict {
    replaced(lines, |ends| match ends {
        [(_, Code::Aborted)] => Verdict::Pass,
        other => Verdict::fail("Listen", format!("ended {other:?}")),
    })
}

pub(super) fn not_ok(lines: &[HubLine]) -> Verdict {
    replaced(lines, |ends| {
        let ok = ends.iter().any(|(_, code)| *code == Code::Ok);
        all([(!ok, "Listen", "ended OK".to_owned())])
    })
}

fn replaced(lines: &[HubLine], judge: impl FnOnce(&[(StreamId, Code)]) -> Verdict) -> Verdict {
    if actions(lines, Rpc::Listen).is_empty() {
        return Verdict::not_applicable("the agent could not listen");
    }
    judge(&ends(lines))
}

// Proposed, then accepted, then ready: once each, all with one name and one detail.
pub(super) fn proposal_before_ready(lines: &[HubLine]) -> Verdict {
    with_proposal(lines, |proposal| {
        let id = proposal.session_id.as_str();
        let at = |wanted: &dyn Fn(&HubLine) -> bool| lines.iter().position(wanted);
        let accepted = at(&|line| matches!(line, HubLine::Accepted(_, session) if session == id));
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

fn says_ready(line: &HubLine) -> bool {
    matches!(
        line,
        HubLine::Hub(_, HubAction::Sent(Inbound::Listen(message)))
            if matches!(message.event, Some(Event::SessionReady(_)))
    )
}

pub(super) fn offered_anew(lines: &[HubLine]) -> Verdict {
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

pub(super) fn proposed_without_ready(lines: &[HubLine]) -> Verdict {
    let listens = actions(lines, Rpc::Listen);
    match (listens.first(), proposals(lines).is_empty()) {
        (None | Some((_, None)), true) => Verdict::not_applicable("the hub proposed no job"),
        (Some((_, None)), false) => Verdict::fail("Listen", "a proposal only after ready"),
        (_, false) => Verdict::Pass,
        (Some((_, Some(said))), true) => Verdict::fail("Listen", format!("{said:?}")),
    }
}

pub(super) fn incapable_unasked(lines: &[HubLine]) -> Verdict {
    let listens = actions(lines, Rpc::Listen);
    match listens.first() {
        None => Verdict::not_applicable("the agent could not listen"),
        Some((stream, _)) if proposals(lines).iter().any(|(asked, _)| asked == stream) => {
            Verdict::fail("Listen", "a proposal to an agent without the capability")
        }
        Some(_) => with_proposal(lines, |_| Verdict::Pass),
    }
}

pub(super) fn listen_goes_on(lines: &[HubLine]) -> Verdict {
    match (actions(lines, Rpc::Listen).is_empty(), ends(lines).first()) {
        (true, _) => Verdict::not_applicable("the agent could not listen"),
        (false, Some((_, code))) => Verdict::fail("Listen", format!("ended {code:?}")),
        (false, None) => Verdict::Pass,
    }
}

pub(super) fn not_ready_for_a_stranger(lines: &[HubLine]) -> Verdict {
    let tried = lines
        .iter()
        .any(|line| matches!(line, HubLine::Accepted(..)));
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

pub(super) fn job_at_once(lines: &[HubLine]) -> Verdict {
    with_stream(lines, || match on_sessions(lines).first() {
        Some((_, Some(HubAction::Sent(_)))) => Verdict::Pass,
        other => Verdict::fail(
            "Execute",
            format!("{:?} where the job is wanted", other.map(|(_, said)| said)),
        ),
    })
}

pub(super) fn one_job(lines: &[HubLine]) -> Verdict {
    with_stream(lines, || {
        let jobs = jobs(lines).len();
        all([(jobs == 1, "Execute", format!("{jobs} jobs on one stream"))])
    })
}

pub(super) fn ends_ok(lines: &[HubLine]) -> Verdict {
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

pub(super) fn job_as_proposed(lines: &[HubLine]) -> Verdict {
    with_proposal(lines, |proposal| {
        let jobs = jobs(lines);
        let (Some(details), Some((_, sent))) = (&proposal.details, jobs.first()) else {
            return Verdict::not_applicable("no job came so far");
        };
        let proposed = match details {
            Details::Test(test) => &test.r#type,
            Details::Translation(translation) => &translation.r#type,
        };
        all([(
            sent == proposed,
            "the type",
            "another than the proposal's".to_owned(),
        )])
    })
}
