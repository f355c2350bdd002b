//! A plan mended by its first repairs.

use std::collections::BTreeSet;

use super::check_plan;
use super::repair::{Repair, repair_all};
use super::subject::{Config, Finding};
use crate::any::AnyMessage;
use crate::registry::Registry;

/// A message after its repairs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Mended {
    /// The message.
    pub message: AnyMessage,
    /// The repairs, in the order in which they were applied.
    pub repairs: Vec<Repair>,
    /// What no repair mends: questions to the sender, what nobody serves, and advice.
    pub findings: Vec<Finding>,
}

/// Applies the first repair of each finding until there is none, in at most as many rounds as there were findings.
///
/// No value is made up, and nothing is allowed that the sender did not allow. A round is one check of the plan.
///
/// ```
/// use sacp::AnyMessage;
/// use sacp::check::{Config, mend};
///
/// let text = br#"{"g":"X","ctx":{"budget":"100"},"plan":[["book","H_API",{"budget":250}]]}"#;
/// let mended = mend(AnyMessage::decode(text)?.0, None, &Config::default());
/// assert!(mended.findings.is_empty());
/// assert_eq!(mended.message.encode(), br#"{"g":"X","ctx":{"budget":100},"plan":[["book","H_API",{"budget":100}]]}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 8, 9
#[must_use]
pub fn mend(message: AnyMessage, registry: Option<&dyn Registry>, config: &Config) -> Mended {
    let findings = check_plan(&message, registry, config);
    let rounds = findings.len();
    let mut mended = Mended {
        message,
        repairs: Vec::new(),
        findings,
    };
    for _ in 0..rounds {
        let batch = batch(&mended.findings);
        let Some(message) = (!batch.is_empty())
            .then(|| repair_all(&mended.message, &batch).ok())
            .flatten()
        else {
            break;
        };
        mended.message = message;
        mended.repairs.extend(batch);
        mended.findings = check_plan(&mended.message, registry, config);
    }
    mended
}

/// First repairs that can be applied together: one a place, where none moves the others; else the first alone.
fn batch(findings: &[Finding]) -> Vec<Repair> {
    let firsts = || {
        findings
            .iter()
            .filter_map(|finding| finding.repairs.first())
    };
    let mut places = BTreeSet::new();
    let stays = firsts().filter(|repair| !repair.moves_others() && places.insert(repair.at()));
    let batch: Vec<Repair> = stays.cloned().collect();
    if batch.is_empty() {
        return firsts().take(1).cloned().collect();
    }
    batch
}
