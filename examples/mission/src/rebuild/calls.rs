//! The audit: calls of the tool process.

use std::collections::VecDeque;
use std::path::Path;

use opensentience_wire::{AuditEvent, AuditName};
use ubos_common::json::{self, Limits};
use ubos_common::violation::Profile;

use super::build::{Begins, Builder, When, is_id};
use super::read::{Condition, records};
use crate::screen::Who;
use crate::step_id;
use crate::step_words;
use crate::stores::Store;

/// Connections that are remembered, the last ones. A mission has one, and one more for each process that died.
const MOST_CONNECTIONS: usize = 1_024;

/// The calls of the chosen runs.
pub(super) fn read(folder: &Path, builder: &mut Builder) -> Condition {
    let store = Store::Audit;
    let mut opened = VecDeque::new();
    records(folder, store, store.name(), &mut |bytes| {
        let event = json::decode::<AuditEvent>(bytes, &Limits::default(), Profile::Lenient);
        let Ok((event, _)) = event else {
            return false;
        };
        let ids = [
            &event.session_id,
            &event.call_id,
            &event.request_id,
            &event.correlation_id,
        ];
        if !ids.into_iter().flatten().map(String::as_str).all(is_id) {
            return false;
        }
        match &event.name {
            AuditName::Connected => {
                if opened.len() == MOST_CONNECTIONS {
                    opened.pop_front();
                }
                opened.extend(event.session_id.clone());
                Some(())
            }
            AuditName::CallRouted => routed(&event, &opened, builder),
            AuditName::CallCompleted => completed(&event, builder),
            _ => Some(()),
        }
        .is_some()
    })
}

/// A call, which names its task, its mission and its connection; of that the record comes before.
fn routed(event: &AuditEvent, opened: &VecDeque<String>, builder: &mut Builder) -> Option<()> {
    let tool = event.tool_id.as_deref()?;
    let run = event.correlation_id.as_deref();
    let mut causes = vec![step_id::task(event.request_id.as_ref()?)];
    causes.extend(run.map(step_id::mission));
    let session = event.session_id.as_ref();
    let lost = session.filter(|session| !opened.contains(session));
    causes.extend(lost.map(|session| format!("connection {session}")));
    builder.begin(Begins {
        who: Who::Wire,
        id: step_id::call(event.call_id.as_ref()?),
        name: tool.rsplit('/').next().unwrap_or(tool),
        start: When::At(event.at),
        run,
        causes,
    });
    Some(())
}

fn completed(event: &AuditEvent, builder: &mut Builder) -> Option<()> {
    let id = step_id::call(event.call_id.as_ref()?);
    // Of what went wrong an audit has the code, not the words.
    let why = event.code.as_ref().map_or("", |code| code.as_str());
    let outcome = step_words::call_end(event.status.as_ref()?, why);
    let of = (Who::Wire, "end", event.correlation_id.as_deref());
    builder.end(of, &id, When::At(event.at), &outcome);
    Some(())
}
