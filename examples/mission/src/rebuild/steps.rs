//! The log of steps.

use std::path::Path;

use super::build::{Begins, Builder, When, is_id};
use super::read::{Condition, records};
use crate::screen::Who;
use crate::step_id;
use crate::steps::{Begin, Record};
use crate::stores::Store;

/// The missions that were begun, in their order.
pub(super) fn runs(folder: &Path, found: &mut dyn FnMut(&str)) {
    let store = Store::Steps;
    records(folder, store, store.name(), &mut |bytes| {
        let record = record(bytes);
        if let Some(record) = &record
            && record.begin.is_some()
            && record.id == step_id::mission(&record.run)
        {
            found(&record.run);
        }
        record.is_some()
    });
}

/// The steps of the chosen ones.
pub(super) fn read(folder: &Path, builder: &mut Builder) -> Condition {
    let store = Store::Steps;
    records(folder, store, store.name(), &mut |bytes| {
        let Some(record) = record(bytes) else {
            return false;
        };
        let Record {
            run,
            id,
            begin,
            end,
        } = &record;
        if let Some(begin) = begin
            && !begun(run, id, begin, builder)
        {
            return false;
        }
        if let Some(end) = end {
            let who = builder.step(id).map_or(Who::Mission, |step| step.span.who);
            let of = (who, "end", Some(run.as_str()));
            builder.end(of, id, When::told(&end.at), &end.outcome);
        }
        true
    })
}

fn begun(run: &str, id: &str, begin: &Begin, builder: &mut Builder) -> bool {
    let Some(who) = Who::named(&begin.who) else {
        return false;
    };
    let takes = builder.takes(Some(run));
    builder.begin(Begins {
        who,
        id: id.to_owned(),
        name: &begin.name,
        start: When::told(&begin.at),
        run: Some(run),
        causes: begin.parent.iter().cloned().collect(),
    });
    if takes && let Some(step) = builder.step(id) {
        step.span.in_tools = begin.in_tools;
    }
    true
}

fn record(bytes: &[u8]) -> Option<Record> {
    let record: Record = serde_json::from_slice(bytes).ok()?;
    let parent = record
        .begin
        .as_ref()
        .and_then(|begin| begin.parent.as_deref());
    let ids = [&record.run, &record.id].map(String::as_str);
    let fit = ids.into_iter().chain(parent).all(is_id);
    fit.then_some(record)
}
