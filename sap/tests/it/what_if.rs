//! What another context makes of a whole transcript.

use std::future::ready;

use futures::executor::block_on;
use sap::alignment::{Rules, WhatIfTable};
use sap::store::MemoryTranscript;
use sap::transcript::{Entry, EntryKind, Head, Proof, Transcript, TranscriptError};
use sap::{Alignment, BoxFuture, ConstitutionalContext, Whole};
use serde_json::{Value, json};
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::Timestamp;

use crate::samples::{result, task, with};

/// A transcript that is written entry by entry.
#[derive(Default)]
struct Written(MemoryTranscript);

impl Written {
    fn write(&self, kind: &str, message: &Value, task: Option<u64>) -> u64 {
        block_on(self.0.record(&entry(kind, message, task))).unwrap()
    }

    fn task(&self, id: u64, territory: &str) -> u64 {
        let pointer = "/constitutionalContext/territory";
        self.write(
            "task",
            &with(named(task(), id), pointer, Some(json!(territory))),
            None,
        )
    }

    fn result(&self, id: u64, task: Option<u64>, changes: &[(&str, Option<Value>)]) -> u64 {
        let changed = changes
            .iter()
            .fold(named(result(), id), |result, (pointer, value)| {
                with(result, pointer, value.clone())
            });
        self.write("result", &changed, task)
    }

    fn table(&self, principle: &str) -> WhatIfTable {
        table(&self.0, principle)
    }
}

fn entry(kind: &str, message: &Value, task: Option<u64>) -> Entry {
    let body = RawObject::from_serialize(message).unwrap().unwrap();
    let mut entry = Entry::new(EntryKind::from(kind), Timestamp::EPOCH.into(), body);
    entry.task = task.map(|number| Whole::try_from(number).unwrap());
    entry
}

fn table(transcript: &dyn Transcript, principle: &str) -> WhatIfTable {
    let rules = Rules::default().forbid("strategic_pause", "learning");
    let other = |context: &ConstitutionalContext| {
        let mut other = context.clone();
        other.principles = Some(vec![principle.to_owned()]);
        other
    };
    block_on(WhatIfTable::of(transcript, &rules, other)).unwrap()
}

fn named(message: Value, id: u64) -> Value {
    let id = format!("00000000-0000-0000-0000-{id:012}");
    with(message, "/taskId", Some(json!(id)))
}

fn status(word: &str) -> (&'static str, Option<Value>) {
    ("/status", Some(json!(word)))
}

#[test]
fn a_whole_transcript_is_one_table() {
    let log = Written::default();
    // More than is read at once; each has its end far from its beginning.
    let tasks: Vec<u64> = (0..300).map(|id| log.task(id, "EUFM")).collect();
    for (id, task) in (0..).zip(&tasks) {
        log.result(id, Some(*task), &[status("RUNNING"), ("/output", None)]);
    }
    for (id, task) in (0..).zip(&tasks) {
        log.result(id, Some(*task), &[]);
    }
    // The output was not handed out; the task has only come so far; its end says nothing of its part.
    let task = log.task(400, "EUFM");
    let refused = [
        status("FAILED"),
        ("/output", None),
        (
            "/error",
            Some(json!({"code": "NON_CONSTITUTIONAL", "message": "no"})),
        ),
        (
            "/constitutionalEvidence/alignment",
            Some(json!("NON_CONSTITUTIONAL")),
        ),
    ];
    log.result(400, Some(task), &refused);
    let task = log.task(401, "elsewhere");
    let partial = log.result(401, Some(task), &[status("PARTIAL")]);
    let task = log.task(402, "elsewhere");
    let late = [
        status("FAILED"),
        ("/output", None),
        (
            "/error",
            Some(json!({"code": "TIMEOUT", "message": "late"})),
        ),
    ];
    let part = log.result(402, Some(task), &[status("PARTIAL")]);
    log.result(402, Some(task), &late);
    let table = log.table("strategic_pause");
    let row = |territory: &str| {
        let key = ("consult.align".parse().unwrap(), Some(territory.to_owned()));
        table.rows[&key].clone()
    };
    let flip = (Alignment::Valid, Alignment::NonConstitutional);
    let here = row("EUFM");
    assert_eq!(
        (here.same, here.unknown, here.flips[&flip].outcomes),
        (0, 1, 300)
    );
    assert_eq!(here.flips[&flip].samples, (600..608).collect::<Vec<u64>>());
    let elsewhere = row("elsewhere");
    assert_eq!(elsewhere.flips[&flip].samples, [part, partial]);
    assert_eq!(
        (table.flips(), table.left_out, table.passed_over),
        (302, 0, 0)
    );
    let shown = "\
capability     territory  same  unknown  flips
consult.align  EUFM          0        1  300 VALID to NON_CONSTITUTIONAL (entries 600, 601, 602, 603, 604, 605, 606, 607, ...)
consult.align  elsewhere     0        0  2 VALID to NON_CONSTITUTIONAL (entries 905, 903)
";
    assert_eq!(table.to_string(), shown);
    let same = log.table("blueprint_thinking");
    assert_eq!((same.flips(), same.rows.len()), (0, 2));
    assert!(
        same.to_string().contains("EUFM        300        1  -\n"),
        "{same}"
    );
}

#[test]
fn a_result_belongs_to_the_task_whose_entry_it_names() {
    let log = Written::default();
    // Two issuers have the same id at the same time.
    let one = log.task(1, "one");
    let other = log.task(1, "other");
    log.result(1, Some(one), &[]);
    log.result(1, Some(other), &[("/output", Some(json!("harmless")))]);
    // Older transcripts name no entry: the latest task of the id is meant.
    log.task(2, "third");
    log.result(2, None, &[]);
    // Nobody knows whose these are.
    log.result(1, Some(other), &[]);
    log.result(3, Some(one), &[]);
    // Nobody can read these.
    log.write("task", &json!({"taskId": "none"}), None);
    log.write("result", &json!({"taskId": "none"}), None);
    let table = log.table("strategic_pause");
    let flips = table.rows.iter().map(|((_, territory), row)| {
        (
            territory.as_deref().unwrap_or_default(),
            row.same,
            row.flips.len(),
        )
    });
    let flips: Vec<(&str, u64, usize)> = flips.collect();
    assert_eq!(flips, [("one", 0, 1), ("other", 1, 0), ("third", 0, 1)]);
    assert_eq!(table.passed_over, 4);
    assert!(table.to_string().ends_with("left out: 0, passed over: 4\n"));
}

#[test]
fn an_end_takes_no_result_from_a_later_task_of_the_same_id() {
    let log = Written::default();
    let one = log.task(1, "one");
    log.task(1, "other");
    log.result(1, Some(one), &[]);
    // It names no entry, and the later task is still open.
    log.result(1, None, &[]);
    let table = log.table("strategic_pause");
    assert_eq!(
        (table.rows.len(), table.flips(), table.passed_over),
        (2, 2, 0)
    );
}

/// What is left of a transcript after archiving.
#[derive(Debug)]
struct Left {
    first: u64,
    entries: Vec<Entry>,
}

impl Transcript for Left {
    fn record(&self, _: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        unreachable!("it is only read")
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        let first = self.first;
        let Some(skipped) = from.checked_sub(first) else {
            return Box::pin(ready(Err(TranscriptError::Archived { first })));
        };
        let entries = self.entries.iter().skip(usize::try_from(skipped).unwrap());
        Box::pin(ready(Ok(entries.take(max).cloned().collect())))
    }

    fn verify(&self, _: Option<&Head>) -> Result<Proof, TranscriptError> {
        unreachable!("it is only read")
    }
}

#[test]
fn what_was_archived_is_left_out() {
    let entries = vec![
        entry("result", &named(result(), 1), Some(0)),
        entry("task", &named(task(), 2), None),
        entry("result", &named(result(), 2), Some(1_001)),
    ];
    let first = 1_000;
    let table = table(&Left { first, entries }, "strategic_pause");
    assert_eq!((table.flips(), table.passed_over), (1, 1));
}

#[test]
fn rows_have_a_bound_and_what_is_of_others_is_counted() {
    let [asked, said] = [
        entry("task", &named(task(), 1), None),
        entry("result", &named(result(), 1), None),
    ];
    let pair = |n: u32| {
        let mut asked = asked.clone();
        let body = asked.body.as_str().replace("EUFM", &n.to_string());
        asked.body = RawObject::new(RawBuf::parse(&body).unwrap()).unwrap();
        [asked, said.clone()]
    };
    let entries = (0..10_001).chain([0]).flat_map(pair).collect();
    let table = table(&Left { first: 0, entries }, "blueprint_thinking");
    assert_eq!((table.rows.len(), table.left_out), (10_000, 1));
}

#[test]
fn a_task_that_has_ended_leaves_its_room_to_others() {
    // So many of them at a time are over the bound of 64 MiB.
    let payload = json!({"text": "long ".repeat(800_000)});
    let long = entry(
        "task",
        &with(named(task(), 1), "/payload", Some(payload)),
        None,
    );
    let entries = vec![long.clone(); 17];
    let open = table(&Left { first: 0, entries }, "strategic_pause");
    assert_eq!(open.left_out, 1);
    let pair = |number| {
        [
            long.clone(),
            entry("result", &named(result(), 1), Some(number)),
        ]
    };
    let entries = (0..18).step_by(2).flat_map(pair).collect();
    let table = table(&Left { first: 0, entries }, "strategic_pause");
    assert_eq!(
        (table.flips(), table.left_out, table.passed_over),
        (9, 0, 0)
    );
}
