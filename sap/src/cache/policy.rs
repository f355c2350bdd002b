//! Whether a record answers a task.

use ubos_common::time::Timestamp;

use super::{CacheRecord, SAP_VERSION};
use crate::context::{CacheMode, CachePolicy};
use crate::evidence::Alignment;

/// What the cache has for a task.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Found<'a> {
    /// The task has no key.
    NoKey,
    /// No intact record.
    Nothing,
    /// The newest intact record.
    Record(&'a CacheRecord),
}

/// What to do about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// The record answers.
    Hit {
        /// Its age in seconds.
        age_sec: u64,
    },
    /// The task is computed.
    Compute {
        /// Why no record answers.
        why: MissReason,
        /// Whether a good outcome is written.
        write: bool,
    },
    /// The task fails with the code `CACHE_MISS`, and nothing is computed.
    Refuse {
        /// Why no record answers.
        why: MissReason,
    },
}

/// Why no record answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MissReason {
    /// The policy does without the cache.
    #[error("the cache is not used")]
    Bypassed,
    /// The task has no key.
    #[error("the task has no cache key")]
    NoKey,
    /// There is no intact record.
    #[error("no record")]
    Absent,
    /// The record is of another version of the protocol.
    #[error("a record of another version of the protocol")]
    OtherVersion,
    /// The record was not stored as VALID.
    #[error("a record that was not stored as VALID")]
    NotValid,
    /// The record is not younger than it must be.
    #[error("a record {age_sec} s old where less than {max_age_sec} s is wanted")]
    Stale {
        /// Its age in seconds.
        age_sec: u64,
        /// The bound in seconds.
        max_age_sec: u64,
    },
    /// The record was checked against the task's context, and the verdict is not VALID.
    #[error("a record that does not keep the task's principles")]
    Misaligned,
}

/// Whether the cache is looked at.
///
/// Without a policy it is not, without a mode it is preferred. Spec: SAP 6
// impl: SAP-6-14
#[must_use]
pub fn is_read(policy: Option<&CachePolicy>) -> bool {
    policy
        .is_some_and(|policy| !matches!(policy.mode, Some(CacheMode::Bypass | CacheMode::Other(_))))
}

/// Decides about a task: `recheck` is the verdict on a record in the task's own context, and is asked last and
/// only where the policy demands it.
///
/// ```
/// use sap::cache::{Decision, Found, MissReason, decide};
/// use sap::{Alignment, CacheMode, CachePolicy};
/// use sap::ubos_common::time::Timestamp;
///
/// let mut policy = CachePolicy::new();
/// policy.mode = Some(CacheMode::Only);
/// let decision = decide(Some(&policy), Found::Nothing, Timestamp::EPOCH, |_| Alignment::Valid);
/// assert_eq!(decision, Decision::Refuse { why: MissReason::Absent });
/// ```
///
/// Spec: SAP 6
// impl: SAP-6-3, SAP-6-4, SAP-6-5, SAP-6-9, SAP-6-12
#[must_use]
pub fn decide(
    policy: Option<&CachePolicy>,
    found: Found<'_>,
    now: Timestamp,
    recheck: impl FnOnce(&CacheRecord) -> Alignment,
) -> Decision {
    let Some(policy) = policy.filter(|policy| is_read(Some(policy))) else {
        return Decision::Compute {
            why: MissReason::Bypassed,
            write: false,
        };
    };
    let why = match found {
        Found::NoKey => MissReason::NoKey,
        Found::Nothing => MissReason::Absent,
        Found::Record(record) => match judge(policy, record, now, recheck) {
            Ok(age_sec) => return Decision::Hit { age_sec },
            Err(why) => why,
        },
    };
    if policy.mode == Some(CacheMode::Only) {
        return Decision::Refuse { why };
    }
    let write = why != MissReason::NoKey;
    Decision::Compute { why, write }
}

fn judge(
    policy: &CachePolicy,
    record: &CacheRecord,
    now: Timestamp,
    recheck: impl FnOnce(&CacheRecord) -> Alignment,
) -> Result<u64, MissReason> {
    if record.sap_version != SAP_VERSION {
        return Err(MissReason::OtherVersion);
    }
    if record.alignment != Alignment::Valid {
        return Err(MissReason::NotValid);
    }
    let age_sec = record.age_sec(now);
    if let Some(max) = &policy.max_age_sec
        && age_sec >= max.value()
    {
        return Err(MissReason::Stale {
            age_sec,
            max_age_sec: max.value(),
        });
    }
    if policy.must_align == Some(true) && recheck(record) != Alignment::Valid {
        return Err(MissReason::Misaligned);
    }
    Ok(age_sec)
}
