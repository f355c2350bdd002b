//! Signals, what they teach, and what they leave alone.

#[cfg(feature = "log")]
mod cache;
mod heuristics;
mod publishing;
mod signals;

use futures::executor::block_on;
use std::sync::Mutex;

use sap::cache::{Keys, WholePayload};
use sap::learning::{
    Aggregate, Artifact, Heuristics, Librarian, Publisher, Signal, SignalSink as _, Support,
};
use sap::transcript::{Head, Proof, Verdict};
use sap::validate::Options;
use sap::{BoxFuture, StoreError, Task, TaskResult};
use serde_json::{Value, json};
use ubos_common::time::Timestamp;
use ubos_common::violation::Profile;

use crate::samples::{read_result, read_task, result, task, with};

/// A task of number `n` of one of five issuers and its result, with changes.
pub(crate) fn pair(
    n: u64,
    on_task: &[(&str, Value)],
    on_result: &[(&str, Value)],
) -> (Task, TaskResult) {
    let id = json!(format!("00000000-0000-0000-0000-{n:012}"));
    let issuer = ("/issuer/agentId", json!(format!("A-{}", n % 5)));
    let on_task: Vec<_> = [issuer]
        .into_iter()
        .chain(on_task.iter().cloned())
        .collect();
    let change = |message: Value, changes: &[(&str, Value)]| {
        let message = with(message, "/taskId", Some(id.clone()));
        changes.iter().fold(message, |m, (pointer, value)| {
            with(m, pointer, Some(value.clone()))
        })
    };
    let options = Options::from(Profile::Lenient);
    let task = read_task(&change(task(), &on_task), &options).unwrap().0;
    let result = read_result(&change(result(), on_result), &options)
        .unwrap()
        .0;
    (task, result)
}

fn signal(n: u64, on_task: &[(&str, Value)], on_result: &[(&str, Value)]) -> Signal {
    let (task, result) = pair(n, on_task, on_result);
    let fingerprint = Keys::of(&task, &WholePayload).unwrap().fingerprint;
    Signal::of_result(&task, Some(fingerprint), &result).unwrap()
}

const PRESSURE: &str = "/constitutionalEvidence/pressureReadings/strategic_pause";

/// A decision under pressure that went well or broke the principle.
pub(crate) fn decision(n: u64, psi: f64, is_good: bool) -> Signal {
    let mut changes = vec![(PRESSURE, json!(psi))];
    if !is_good {
        let violation =
            json!([{"principle": "strategic_pause", "severity": "high", "evidence": "e"}]);
        changes.push(("/constitutionalEvidence/violations", violation));
        changes.push(("/constitutionalEvidence/alignment", json!("ESCALATE")));
        changes.push(("/status", json!("ESCALATED")));
    }
    signal(n, &[], &changes)
}

pub(crate) fn learned(signals: impl IntoIterator<Item = Signal>) -> (Aggregate, Heuristics) {
    let learner = Mutex::<Aggregate>::default();
    signals
        .into_iter()
        .for_each(|signal| learner.emit(signal).unwrap());
    let proof = Proof {
        records: 7,
        head: Head::from("head".to_owned()),
        verdict: Verdict::Intact,
    };
    let aggregate = learner.into_inner().unwrap();
    let heuristics = Heuristics::derive(&aggregate, Support::default(), Some(&proof));
    (aggregate, heuristics)
}

/// Good up to 40 PSI, bad above, with one of each on the wrong side.
fn decisions() -> impl Iterator<Item = Signal> {
    (0..20).map(|n| {
        let psi = 4.0 * n as f64 + 1.0;
        decision(n, psi, (psi < 41.5) != (n == 2 || n == 18))
    })
}

pub(crate) fn computed(n: u64, payload: Value, output: Value) -> Signal {
    signal(n, &[("/payload", payload)], &[("/output", output)])
}

#[derive(Debug, Default)]
pub(crate) struct Shelf(Mutex<Vec<Artifact>>, bool);

impl Librarian for Shelf {
    fn file<'a>(&'a self, artifact: &'a Artifact) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async {
            if self.1 {
                return Err(Box::<dyn std::error::Error + Send + Sync>::from("closed").into());
            }
            self.0.lock().unwrap().push(artifact.clone());
            Ok(())
        })
    }
}

pub(crate) fn published(
    aggregate: &Aggregate,
    heuristics: &Heuristics,
    by: &mut Publisher,
) -> Vec<Artifact> {
    let (now, shelf) = (Timestamp::EPOCH, Shelf::default());
    let support = Support::default();
    block_on(by.publish(now, aggregate, heuristics, support, &shelf)).unwrap()
}
