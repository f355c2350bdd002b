//! What the outcomes of a capability may answer.

use std::sync::Arc;

use super::Essence;
use crate::ident::Capability;
use crate::learning::Trial;

/// That the outcomes of a capability may answer later tasks: for what they depend on, and for whom.
///
/// A capability without it is computed each time, whatever cache mode the sender of a task chooses: one that has side
/// effects, for example.
#[derive(Clone, Debug)]
pub struct Caching {
    essence: Arc<dyn Essence>,
    pub(crate) is_issuers_own: bool,
    trial: Option<Arc<Trial>>,
}

impl Caching {
    /// An outcome answers equal tasks of all issuers: what it says depends on the essence alone.
    #[must_use]
    pub fn shared(essence: impl Essence + 'static) -> Self {
        Self {
            essence: Arc::new(essence),
            is_issuers_own: false,
            trial: None,
        }
    }

    /// An outcome answers equal tasks of the same issuer only: it may depend on who asks.
    #[must_use]
    pub fn by_issuer(essence: impl Essence + 'static) -> Self {
        Self {
            is_issuers_own: true,
            ..Self::shared(essence)
        }
    }

    /// Tries another essence beside this one, which it follows once it is proven and adopted. What leads to that are
    /// the signals of the processor, so they must come to the trial, too. Its suggestion names all members that are left out then,
    /// those among them that this essence leaves out. One of another capability counts for nothing.
    #[must_use]
    pub fn with_trial(mut self, trial: Arc<Trial>) -> Self {
        self.trial = Some(trial);
        self
    }

    /// The essence that counts now for a capability.
    pub(crate) fn essence(&self, capability: &Capability) -> &dyn Essence {
        match self.trial(capability).and_then(Trial::adopted) {
            Some(adopted) => adopted,
            None => self.essence.as_ref(),
        }
    }

    /// Whether a task that the cache could answer is computed nevertheless, to see whether the answer would be right.
    pub(crate) fn doubts(&self, capability: &Capability) -> bool {
        let trial = self.trial(capability);
        trial.is_some_and(|trial| trial.adopted().is_some() && trial.draws())
    }

    /// The trial, where it is one of this capability: outcomes of another have proven nothing.
    fn trial(&self, capability: &Capability) -> Option<&Trial> {
        let trial = self.trial.as_deref();
        trial.filter(|trial| trial.suggestion().capability == *capability)
    }
}
