//! The key of a task, and the essence of its payload.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use ubos_common::canon::{self, CanonError, Domain, Mode};
use ubos_common::json::{RawBuf, RawObject, Write};

use super::record::SAP_VERSION;
use super::{CacheKey, Fingerprint};
use crate::ident::AgentId;
use crate::task::Task;

/// Takes from a payload what its outcome depends on.
///
/// Equal essences of one version share key and fingerprint. Whoever changes what is taken changes the version.
pub trait Essence: fmt::Debug + Send + Sync {
    /// Names the extractor and its version.
    fn version(&self) -> &str;

    /// The essence of a payload.
    ///
    /// # Errors
    ///
    /// [`KeyError::Essence`]: the payload has none. The task then has no key and is computed.
    fn extract(&self, payload: &RawObject) -> Result<RawBuf, KeyError>;
}

/// The whole payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholePayload;

impl Essence for WholePayload {
    fn version(&self) -> &'static str {
        "whole/1"
    }

    fn extract(&self, payload: &RawObject) -> Result<RawBuf, KeyError> {
        Ok(payload.clone().into())
    }
}

/// The payload less some of its own members, such as a time of asking.
///
/// Where a member matters after all, a task is given the outcome of another. So somebody answers for each of these: there is
/// one where an operator [says so](Self::approved), and where an operator has adopted a trial that was passed
/// ([`Trial::adopted`](crate::learning::Trial::adopted)). A suggestion alone makes none.
///
/// ```
/// use sap::cache::{DropMembers, Essence as _};
/// use sap::ubos_common::json::{RawBuf, RawObject};
///
/// let essence = DropMembers::approved("ada".parse()?, ["askedAt"]);
/// let payload = RawObject::new(RawBuf::parse(r#"{"q":"When?","askedAt":7}"#)?).ok_or("an object")?;
/// assert_eq!(essence.extract(&payload)?.as_str(), r#"{"q":"When?"}"#);
/// assert_eq!(essence.approved_by().as_str(), "ada");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropMembers {
    names: BTreeSet<String>,
    version: String,
    approved_by: AgentId,
}

impl DropMembers {
    /// Leaves out the members of these names, for which the operator answers: no trial is asked.
    #[must_use]
    pub fn approved<'a>(operator: AgentId, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
        // Written as JSON, so that no name can pass for two.
        let list = names.iter().cloned().collect::<Vec<String>>();
        let version = format!("drop/1:{}", ubos_common::json::to_string(&list));
        Self {
            names,
            version,
            approved_by: operator,
        }
    }

    /// The operator who answers for it.
    #[must_use]
    pub const fn approved_by(&self) -> &AgentId {
        &self.approved_by
    }
}

impl Essence for DropMembers {
    fn version(&self) -> &str {
        &self.version
    }

    fn extract(&self, payload: &RawObject) -> Result<RawBuf, KeyError> {
        let members = payload.deserialize::<BTreeMap<String, RawBuf>>();
        let mut members = members.map_err(|_| unreadable())?;
        members.retain(|name, _| !self.names.contains(name));
        let text = ubos_common::json::to_string(&members);
        RawBuf::parse(&text).map_err(|_| unreadable())
    }
}

/// The two names that a task has in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keys {
    /// The key.
    pub key: CacheKey,
    /// The essence and its extractor's version alone.
    pub fingerprint: Fingerprint,
}

/// Why a task has no key. It is computed then, and not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A part has no exact canonical form, such as a number that no double holds.
    #[error("no exact canonical form: {0}")]
    Inexact(#[from] CanonError),
    /// An extractor finds no essence in the payload.
    #[error("payload has no essence: {reason}")]
    Essence {
        /// What was wanted, without a value of the payload.
        reason: String,
    },
}

impl Keys {
    /// The names of a task under an extractor.
    ///
    /// ```
    /// use sap::cache::{Keys, WholePayload};
    /// # use sap::*;
    /// # use sap::ubos_common::{id::IdSource, json::RawObject, time::Timestamp};
    /// # let mut task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("a".parse()?, AgentKind::Agent),
    /// #     Target::new("a.b".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
    /// let one = Keys::of(&task, &WholePayload)?;
    /// task.tags = Some(vec!["other".into()]);
    /// assert_eq!(Keys::of(&task, &WholePayload)?, one);
    /// task.constitutional_context.territory = Some("EUFM".into());
    /// assert_ne!(Keys::of(&task, &WholePayload)?.key, one.key);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyError`]. Spec: SAP 6
    // impl: SAP-6-1, SAP-6-2, SAP-6-12, SAP-6-13
    pub fn of(task: &Task, extractor: &dyn Essence) -> Result<Self, KeyError> {
        Self::within(task, extractor, false)
    }

    /// The same, where an outcome may answer only tasks of the same issuer: the issuer is then part of the essence
    /// that the key is made of.
    pub(crate) fn within(
        task: &Task,
        extractor: &dyn Essence,
        is_own: bool,
    ) -> Result<Self, KeyError> {
        let context = &task.constitutional_context;
        // The principles are a set; absent and empty are told apart.
        let principles = context.principles.as_ref().map(|list| {
            let set: BTreeSet<&str> = list.iter().map(String::as_str).collect();
            set.into_iter().collect::<Vec<&str>>()
        });
        // It may be large, and is in both.
        let essence = canonical(&extractor.extract(&task.payload)?)?;
        let mut fingerprint = Parts::with_capacity(essence.len());
        fingerprint.canonical("essence", &essence);
        fingerprint.part("extractor", &extractor.version())?;
        let mut key = Parts::with_capacity(essence.len());
        key.part("capability", &task.target.capability)?;
        if is_own {
            let mut own = Parts::with_capacity(essence.len());
            own.canonical("essence", &essence);
            own.part("issuer", &task.issuer.agent_id)?;
            key.canonical("essence", own.end());
        } else {
            key.canonical("essence", &essence);
        }
        key.part("outputContract", &task.output_contract)?;
        key.part("principles", &principles)?;
        key.part("sapVersion", &SAP_VERSION)?;
        key.part("territory", &context.territory)?;
        Ok(Self {
            key: CacheKey(key.digest()),
            fingerprint: Fingerprint(fingerprint.digest()),
        })
    }
}

fn unreadable() -> KeyError {
    KeyError::Essence {
        reason: "members that can be read".into(),
    }
}

/// The canonical form of one part.
fn canonical(part: &RawBuf) -> Result<Vec<u8>, CanonError> {
    let mut canonical = Vec::with_capacity(part.as_str().len());
    canon::write_str(&mut canonical, Mode::Exact, part.as_str())?;
    Ok(canonical)
}

/// A canonical object of parts, which come in the order of their names.
struct Parts {
    object: Vec<u8>,
    /// A part before it is canonical.
    written: Vec<u8>,
}

impl Parts {
    /// Room for a part of so many bytes, and for those that are short.
    fn with_capacity(bytes: usize) -> Self {
        /// Bytes of the short ones, mostly.
        const SHORT: usize = 256;
        Self {
            object: Vec::with_capacity(bytes + SHORT),
            written: Vec::with_capacity(SHORT),
        }
    }

    /// A part that is canonical.
    fn canonical(&mut self, name: &str, part: &[u8]) {
        self.name(name);
        self.object.extend_from_slice(part);
    }

    /// Another part; one that is absent is null.
    fn part(&mut self, name: &str, part: &dyn Write) -> Result<(), CanonError> {
        self.name(name);
        self.written.clear();
        part.write(&mut self.written);
        canon::write_slice(&mut self.object, Mode::Exact, &self.written)
    }

    fn name(&mut self, name: &str) {
        let opening: &[u8] = if self.object.is_empty() {
            b"{\""
        } else {
            b",\""
        };
        self.object.extend_from_slice(opening);
        self.object.extend_from_slice(name.as_bytes());
        self.object.extend_from_slice(b"\":");
    }

    fn end(&mut self) -> &[u8] {
        self.object.push(b'}');
        &self.object
    }

    fn digest(mut self) -> canon::Digest {
        canon::Digest::of(&Domain::plain(), self.end())
    }
}
