//! The transcript: tasks, and their results.

use std::path::Path;

use sap::Status;
use serde::Deserialize;

use super::build::{Begins, Builder, When, is_id};
use super::read::{Condition, records};
use crate::screen::Who;
use crate::step_id;
use crate::step_words;
use crate::stores::Store;

/// What is wanted of an entry, whatever else it holds: outputs of many megabytes, too.
#[derive(Deserialize)]
struct Entry {
    kind: String,
    at: String,
    body: Body,
}

/// A task, a result or a Nack.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(alias = "messageId")]
    task_id: Option<String>,
    correlation_id: Option<String>,
    parent_task_id: Option<String>,
    target: Option<Target>,
    meta: Option<Meta>,
    status: Option<String>,
    code: Option<String>,
    constitutional_evidence: Option<Evidence>,
}

#[derive(Deserialize)]
struct Target {
    capability: String,
}

/// What this program's tasks say beside what the protocol has a place for.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    cause: Option<String>,
    issued_at: Option<String>,
}

#[derive(Deserialize)]
struct Evidence {
    cache: Option<Cache>,
}

#[derive(Deserialize)]
struct Cache {
    hit: Option<bool>,
}

/// The missions whose tasks are here, in their order.
pub(super) fn runs(folder: &Path, found: &mut dyn FnMut(&str)) {
    let store = Store::Transcript;
    records(folder, store, store.name(), &mut |bytes| {
        let entry = entry(bytes);
        if let Some(run) = entry
            .as_ref()
            .and_then(|entry| entry.body.correlation_id.as_deref())
        {
            found(run);
        }
        entry.is_some()
    });
}

/// The tasks of the chosen ones.
pub(super) fn read(folder: &Path, builder: &mut Builder) -> Condition {
    let store = Store::Transcript;
    records(folder, store, store.name(), &mut |bytes| {
        let Some(entry) = entry(bytes) else {
            return false;
        };
        match entry.kind.as_str() {
            "task" => task(&entry, builder),
            "result" => result(&entry, builder),
            "nack" => nack(&entry, builder),
            _ => None,
        }
        .is_some()
    })
}

fn task(entry: &Entry, builder: &mut Builder) -> Option<()> {
    let body = &entry.body;
    let (id, run) = (body.task_id.as_ref()?, body.correlation_id.as_ref()?);
    let meta = body.meta.as_ref();
    let cause = meta.and_then(|meta| meta.cause.clone());
    let parent = body.parent_task_id.as_ref().map(step_id::task);
    let mut causes: Vec<String> = cause.into_iter().chain(parent).collect();
    causes.push(step_id::mission(run));
    causes.dedup();
    builder.begin(Begins {
        who: Who::Sap,
        id: step_id::task(id),
        name: &body.target.as_ref()?.capability,
        start: meta
            .and_then(|meta| meta.issued_at.as_deref())
            .map_or_else(|| in_second(&entry.at), When::told),
        run: Some(run),
        causes,
    });
    Some(())
}

fn result(entry: &Entry, builder: &mut Builder) -> Option<()> {
    let body = &entry.body;
    let status = Status::from(body.status.as_deref()?);
    let id = step_id::task(body.task_id.as_ref()?);
    let evidence = body.constitutional_evidence.as_ref();
    let cache = evidence.and_then(|evidence| evidence.cache.as_ref());
    let outcome = step_words::task_end(&status, cache.and_then(|cache| cache.hit));
    if status.is_terminal() {
        let of = (Who::Sap, "result", body.correlation_id.as_deref());
        builder.end(of, &id, in_second(&entry.at), &outcome);
    }
    Some(())
}

/// A task that was turned away: its body is not kept, and its Nack is all that there is.
fn nack(entry: &Entry, builder: &mut Builder) -> Option<()> {
    let body = &entry.body;
    let code = body.code.as_deref()?;
    let (Some(id), Some(run)) = (&body.task_id, body.correlation_id.as_deref()) else {
        return Some(());
    };
    let (id, name) = (step_id::task(id), format!("turned away: {code}"));
    let end = in_second(&entry.at);
    builder.begin(Begins {
        who: Who::Sap,
        id: id.clone(),
        name: &name,
        start: end,
        run: Some(run),
        causes: vec![step_id::mission(run)],
    });
    builder.end(
        (Who::Sap, "Nack", Some(run)),
        &id,
        end,
        &step_words::failed("turned away"),
    );
    Some(())
}

fn in_second(text: &str) -> When {
    text.parse().map_or(When::Unknown, When::InSecond)
}

fn entry(bytes: &[u8]) -> Option<Entry> {
    let entry: Entry = serde_json::from_slice(bytes).ok()?;
    let body = &entry.body;
    let meta = body.meta.as_ref().and_then(|meta| meta.cause.as_ref());
    let ids = [&body.task_id, &body.correlation_id, &body.parent_task_id];
    let named = ids.into_iter().flatten().chain(meta);
    let fit = named.map(String::as_str).all(is_id);
    fit.then_some(entry)
}
