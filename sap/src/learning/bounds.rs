//! How much the learning loop holds in memory.

use core::num::NonZeroUsize;

/// Bounds on what an [`Aggregate`](super::Aggregate) holds. At each of them what is new is refused or left out, and counted;
/// nothing held is dropped.
///
/// A bound of 0 refuses, or leaves out, everything.
///
/// | bound | default | at the bound |
/// |---|---|---|
/// | `max_keys` | 10,000 | a signal of a new key counts for all payloads of its kind together; of more than 64 such kinds it is refused |
/// | `max_capability_keys`, of one capability | 2,500 | the same |
/// | `max_signals` | 100,000 | a new signal is refused |
/// | `max_names` | 64 | further principles, notes, actions, metrics of a key are left out |
/// | `max_text_bytes` | 1,024 | a longer name, note or action is left out |
/// | `max_observed` | 16 | further observations of a key are left out |
/// | `max_issuers` | 64 | what further issuers say in one count is counted together, as one issuer's |
/// | `max_bytes` | 268,435,456 | a new signal is refused |
/// | `issuer_parts` | 2 | one issuer has at most one of so many parts of `max_signals`, and of `max_bytes` as his signals are written: a further one is refused |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Keys.
    pub(super) max_keys: usize,
    /// Keys of one capability: payloads that differ each time must not keep the others from being learned of.
    pub(super) max_capability_keys: usize,
    /// Signals whose ids are known.
    pub(super) max_signals: usize,
    /// Different names under one key, of each kind.
    pub(super) max_names: usize,
    /// Bytes of one name, note or action.
    pub(super) max_text_bytes: usize,
    /// Different observations of one key.
    pub(super) max_observed: usize,
    /// Issuers who are told apart in one count.
    pub(super) max_issuers: usize,
    /// About how many bytes are held; the signal that reaches the bound still counts.
    pub(super) max_bytes: usize,
    /// Parts of signals and bytes, of which one issuer has one.
    pub(super) issuer_parts: NonZeroUsize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_keys: 10_000,
            max_capability_keys: 2_500,
            max_signals: 100_000,
            max_names: 64,
            max_text_bytes: 1_024,
            max_observed: 16,
            max_issuers: 64,
            max_bytes: 268_435_456,
            issuer_parts: const { NonZeroUsize::new(2).expect("not 0") },
        }
    }
}

impl Bounds {
    /// Sets how many keys there are.
    #[must_use]
    pub const fn with_max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// Sets how many keys one capability has.
    #[must_use]
    pub const fn with_max_capability_keys(mut self, keys: usize) -> Self {
        self.max_capability_keys = keys;
        self
    }

    /// Sets how many signals count.
    #[must_use]
    pub const fn with_max_signals(mut self, signals: usize) -> Self {
        self.max_signals = signals;
        self
    }

    /// Sets about how many bytes are held.
    #[must_use]
    pub const fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets into how many parts the signals and the bytes are shared: one issuer has at most one of them, so that nobody stops
    /// the learning of others by sending much: no one issuer. Two of two parts have all between them, and issuers are who
    /// `Authorize` lets pass as one. With 1 he may have all, as where there is a single issuer. What operators say
    /// is nobody's part.
    #[must_use]
    pub const fn with_issuer_parts(mut self, parts: NonZeroUsize) -> Self {
        self.issuer_parts = parts;
        self
    }

    pub(super) const fn of_one_issuer(&self, all: usize) -> usize {
        all.div_ceil(self.issuer_parts.get())
    }

    /// Sets how many issuers are told apart in one count.
    #[must_use]
    pub const fn with_max_issuers(mut self, issuers: usize) -> Self {
        self.max_issuers = issuers;
        self
    }

    /// Sets how many different names one key has, of each kind.
    #[must_use]
    pub const fn with_max_names(mut self, names: usize) -> Self {
        self.max_names = names;
        self
    }
}
