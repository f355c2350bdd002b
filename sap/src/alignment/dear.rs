//! What a verdict costs, and what a dear one takes along to another thread.

use std::sync::Arc;

use ubos_common::json::{Raw, RawBuf};

use super::{Prepared, Subject};
use crate::context::ConstitutionalContext;
use crate::ident::Capability;

/// Steps of a verdict that is made at once: at most 2 or 3 ms.
pub(super) const DEAR: usize = 512 << 10;

/// About how many steps a verdict takes that looks at all of the output so often.
pub(super) fn price(subject: &Subject<'_>, looks: usize) -> usize {
    let context = subject.context;
    let principles = context.principles.as_deref().map_or(0, <[String]>::len);
    let pressure = context.pressure.as_ref();
    let pressure = pressure.map_or(0, |pressure| pressure.len());
    let output = subject.output.map_or(0, |output| output.as_str().len());
    output.saturating_mul(looks) + principles + pressure
}

/// About how many steps it takes to read an output as people do: of other letters than ASCII, also of those that are escaped, each
/// byte may become eleven.
pub(super) fn reading(subject: &Subject<'_>) -> usize {
    /// Steps of such a byte.
    const FOREIGN: usize = 64;
    let output = subject.output.map_or("", |output| output.as_str());
    match output.is_ascii() && !output.contains("\\u") {
        true => output.len(),
        false => output.len().saturating_mul(FOREIGN),
    }
}

/// A subject for another thread.
pub(super) struct Owned {
    capability: Capability,
    context: ConstitutionalContext,
    output: Option<RawBuf>,
    citations: Vec<String>,
    prepared: Option<Arc<Prepared>>,
}

impl Owned {
    pub(super) fn of(subject: &Subject<'_>) -> Self {
        Self {
            capability: subject.capability.clone(),
            context: subject.context.clone(),
            output: subject.output.map(Raw::to_owned),
            citations: subject.citations.to_vec(),
            prepared: subject.prepared.cloned(),
        }
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        let output = self.output.as_ref().map(RawBuf::as_raw);
        let subject = Subject::admission(&self.capability, &self.context);
        let subject = subject.proposing(output, &self.citations);
        match &self.prepared {
            Some(prepared) => subject.prepared_by(prepared),
            None => subject,
        }
    }
}
