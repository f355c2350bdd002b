//! What a verdict costs, and what a dear one takes along to another thread.

use ubos_common::json::{Raw, RawBuf};

use super::Subject;
use crate::context::ConstitutionalContext;
use crate::ident::Capability;

/// Steps of a verdict that is made at once: at most 2 or 3 ms.
pub(super) const DEAR: usize = 512 << 10;

/// About how many steps a verdict takes that looks at all of the output so often, and at each reading of pressure so often.
pub(super) fn price(subject: &Subject<'_>, looks: usize, readings: usize) -> usize {
    let context = subject.context;
    let principles = context.principles.as_deref().map_or(0, <[String]>::len);
    let pressure = context.pressure.as_ref();
    let pressure = pressure.map_or(0, |pressure| pressure.len());
    let output = subject.output.map_or(0, |output| output.as_str().len());
    output.saturating_mul(looks) + principles + pressure.saturating_mul(readings)
}

/// A subject for another thread.
pub(super) struct Owned {
    capability: Capability,
    context: ConstitutionalContext,
    output: Option<RawBuf>,
    citations: Vec<String>,
}

impl Owned {
    pub(super) fn of(subject: &Subject<'_>) -> Self {
        Self {
            capability: subject.capability.clone(),
            context: subject.context.clone(),
            output: subject.output.map(Raw::to_owned),
            citations: subject.citations.to_vec(),
        }
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        let output = self.output.as_ref().map(RawBuf::as_raw);
        Subject::admission(&self.capability, &self.context).proposing(output, &self.citations)
    }
}
