//! What the outcomes of a capability may answer.

use std::sync::Arc;

use super::Essence;

/// That the outcomes of a capability may answer later tasks: for what they depend on, and for whom.
///
/// A capability without it is computed each time, whatever cache mode the sender of a task chooses: one that has side
/// effects, for example.
#[derive(Clone, Debug)]
pub struct Caching {
    pub(crate) essence: Arc<dyn Essence>,
    pub(crate) is_issuers_own: bool,
}

impl Caching {
    /// An outcome answers equal tasks of all issuers: what it says depends on the essence alone.
    #[must_use]
    pub fn shared(essence: impl Essence + 'static) -> Self {
        Self {
            essence: Arc::new(essence),
            is_issuers_own: false,
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
}
