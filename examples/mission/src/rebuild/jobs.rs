//! The hub's store: jobs, and in their results the sessions that ran them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};
use uap_hub_proto::convert::{from_duration, from_struct, from_timestamp};
use uap_hub_proto::id::JobId;
use uap_hub_proto::message::JobResult;
use uap_hub_proto::role::hub::{Job, Outcome, Record};
use uap_hub_proto::store::decode;

use super::build::{Begins, Builder, When, is_id};
use super::read::{Condition, records};
use crate::screen::Who;
use crate::step_id;
use crate::step_words;
use crate::stores::Store;

/// Jobs of other runs that are remembered, so that their ends are not taken for ends without a job.
const MOST_PASSED: usize = 1 << 20;

/// The jobs of the chosen runs.
pub(super) fn read(folder: &Path, builder: &mut Builder) -> Condition {
    let store = Store::Jobs;
    let mut passed = BTreeSet::new();
    records(folder, store, store.name(), &mut |bytes| {
        match decode(bytes) {
            Ok((id, Record::Accepted(job))) => {
                if !accepted(id, &job, builder) && passed.len() < MOST_PASSED {
                    passed.insert(id);
                }
            }
            Ok((id, Record::Ended(outcome))) => {
                if !passed.contains(&id) {
                    ended(id, &outcome, builder);
                }
            }
            _ => return false,
        }
        true
    })
}

/// Says whether the job is of a chosen run.
fn accepted(id: JobId, job: &Job, builder: &mut Builder) -> bool {
    let about = job
        .payloads
        .iter()
        .find_map(|payload| payload.metadata.as_ref());
    let about = about
        .and_then(|about| from_struct(about).ok())
        .unwrap_or_default();
    let run = text(&about, "correlationId");
    let share = about.get("share").and_then(Value::as_u64);
    let name = share.map_or_else(|| job.skill.name().to_owned(), step_words::share);
    let task = text(&about, "taskId").map_or_else(|| "a task, but no id".to_owned(), step_id::task);
    let mut causes = vec![task];
    causes.extend(run.map(step_id::mission));
    builder.begin(Begins {
        who: Who::Hub,
        id: step_id::job(id),
        name: &name,
        start: text(&about, "submittedAt").map_or(When::Unknown, When::told),
        run,
        causes,
    })
}

fn ended(id: JobId, outcome: &Outcome, builder: &mut Builder) {
    let end = step_words::job_end(outcome.verdict);
    let job = step_id::job(id);
    builder.end((Who::Hub, "end", None), &job, When::Unknown, &end);
    let Some(JobResult::Test(result)) = &outcome.result else {
        return;
    };
    let Some(summary) = &result.summary else {
        return;
    };
    let about = summary
        .metadata
        .as_ref()
        .and_then(|about| from_struct(about).ok());
    let about = about.unwrap_or_default();
    let Some(session) = text(&about, "session") else {
        return;
    };
    let started = summary
        .start_time
        .as_ref()
        .and_then(|at| from_timestamp(at).ok());
    let took = summary
        .total_duration
        .as_ref()
        .and_then(|took| from_duration(took).ok());
    let finished = started.zip(took).map(|(at, took)| at.saturating_add(took));
    let name = step_words::session(text(&about, "agent").unwrap_or("an agent"));
    let session = step_id::session(session);
    builder.begin(Begins {
        who: Who::Hub,
        id: session.clone(),
        name: &name,
        start: started.map_or(When::Unknown, When::At),
        run: None,
        causes: vec![job],
    });
    let finished = finished.map_or(When::Unknown, When::At);
    builder.end((Who::Hub, "end", None), &session, finished, &end);
}

fn text<'a>(about: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    about.get(name)?.as_str().filter(|text| is_id(text))
}
