//! The choice of a key for each request.

use core::future::{Future, ready};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::error::Error;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use ubos_common::secret::Secret;

/// Chooses a key for each attempt of a request, so that a retry after a rate limit can use another key.
///
/// Spec: UPP-1.3 key strategies
pub trait KeyStrategy: Send + Sync {
    /// The key of the next request. `random` holds 64 random bits.
    fn key(&self, random: u64) -> BoxFuture<'_, Result<Secret<String>, KeyError>>;
}

/// Why there is no key. The error does not contain keys.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The list of keys is empty.
    #[error("the list of keys is empty, but needs at least one key")]
    Empty,
    /// No key has a weight above 0.
    #[error("every weight is 0, but at least one key needs a weight above 0")]
    NoWeight,
    /// The key function failed. The text of the cause must not contain a key.
    #[error("the key function failed")]
    Failed(#[source] Arc<dyn Error + Send + Sync>),
}

/// Uses one key for all requests.
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google", test))]
#[derive(Clone, Debug)]
pub(crate) struct OneKey(Secret<String>);

#[cfg(any(feature = "openai", feature = "anthropic", feature = "google", test))]
impl OneKey {
    /// A strategy with one key.
    pub(crate) fn new(key: impl Into<Secret<String>>) -> Self {
        Self(key.into())
    }
}

// impl: UPP-9
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google", test))]
impl KeyStrategy for OneKey {
    fn key(&self, _: u64) -> BoxFuture<'_, Result<Secret<String>, KeyError>> {
        Box::pin(ready(Ok(self.0.clone())))
    }
}

/// Uses the keys in turn.
///
/// ```
/// use futures::executor::block_on;
/// use upp::{KeyStrategy, RoundRobinKeys};
///
/// let keys = RoundRobinKeys::new(["one".to_owned(), "two".to_owned()])?;
/// assert_eq!(block_on(keys.key(0))?.expose(), "one");
/// assert_eq!(block_on(keys.key(0))?.expose(), "two");
/// assert_eq!(block_on(keys.key(0))?.expose(), "one");
/// # Ok::<(), upp::KeyError>(())
/// ```
#[derive(Debug)]
pub struct RoundRobinKeys {
    keys: Vec<Secret<String>>,
    next: AtomicUsize,
}

impl RoundRobinKeys {
    /// A strategy with these keys.
    ///
    /// # Errors
    ///
    /// [`KeyError::Empty`].
    pub fn new<K: Into<Secret<String>>>(
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Self, KeyError> {
        let keys: Vec<_> = keys.into_iter().map(Into::into).collect();
        if keys.is_empty() {
            return Err(KeyError::Empty);
        }
        Ok(Self {
            keys,
            next: AtomicUsize::new(0),
        })
    }
}

// impl: UPP-9
impl KeyStrategy for RoundRobinKeys {
    fn key(&self, _: u64) -> BoxFuture<'_, Result<Secret<String>, KeyError>> {
        let turn = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                Some((n + 1) % self.keys.len())
            })
            .unwrap_or(0);
        Box::pin(ready(self.keys.get(turn).cloned().ok_or(KeyError::Empty)))
    }
}

/// Chooses keys at random, in proportion to their weights.
#[derive(Debug)]
pub struct WeightedKeys(Vec<(Secret<String>, u32)>);

impl WeightedKeys {
    /// A strategy with these keys and weights.
    ///
    /// # Errors
    ///
    /// [`KeyError::Empty`], [`KeyError::NoWeight`].
    pub fn new<K: Into<Secret<String>>>(
        keys: impl IntoIterator<Item = (K, u32)>,
    ) -> Result<Self, KeyError> {
        let keys: Vec<_> = keys.into_iter().map(|(k, w)| (k.into(), w)).collect();
        if keys.is_empty() {
            return Err(KeyError::Empty);
        }
        if keys.iter().all(|(_, weight)| *weight == 0) {
            return Err(KeyError::NoWeight);
        }
        Ok(Self(keys))
    }

    fn pick(&self, random: u64) -> Option<&Secret<String>> {
        let total: u128 = self.0.iter().map(|(_, weight)| u128::from(*weight)).sum();
        let mut left = u128::from(random).saturating_mul(total) >> 64;
        for (key, weight) in &self.0 {
            match left.checked_sub((*weight).into()) {
                Some(rest) => left = rest,
                None => return Some(key),
            }
        }
        None
    }
}

// impl: UPP-9
impl KeyStrategy for WeightedKeys {
    fn key(&self, random: u64) -> BoxFuture<'_, Result<Secret<String>, KeyError>> {
        Box::pin(ready(self.pick(random).cloned().ok_or(KeyError::NoWeight)))
    }
}

/// A function that is called for each request, such as one that reads from a vault.
///
/// ```
/// use core::future::ready;
/// use futures::executor::block_on;
/// use upp::{KeyStrategy, ubos_common::secret::Secret};
///
/// let vault = || ready(Ok(Secret::new("a key".to_owned())));
/// assert_eq!(block_on(vault.key(0))?.expose(), "a key");
/// # Ok::<(), upp::KeyError>(())
/// ```
// impl: UPP-9
impl<F, R> KeyStrategy for F
where
    F: Fn() -> R + Send + Sync,
    R: Future<Output = Result<Secret<String>, KeyError>> + Send + 'static,
{
    fn key(&self, _: u64) -> BoxFuture<'_, Result<Secret<String>, KeyError>> {
        Box::pin(self())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;

    // spec: UPP-9
    #[test]
    fn lists_without_a_usable_key_are_errors() {
        let none: [String; 0] = [];
        assert!(matches!(RoundRobinKeys::new(none), Err(KeyError::Empty)));
        let none: [(String, u32); 0] = [];
        assert!(matches!(WeightedKeys::new(none), Err(KeyError::Empty)));
        let zero = [("a".to_owned(), 0)];
        assert!(matches!(WeightedKeys::new(zero), Err(KeyError::NoWeight)));
    }

    // spec: UPP-9
    #[test]
    fn weights_share_the_range_of_randomness() {
        let keys = [("a", 1), ("b", 0), ("c", 3)].map(|(key, weight)| (key.to_owned(), weight));
        let keys = WeightedKeys::new(keys).unwrap();
        let quarter = 1_u64 << 62;
        for (random, wanted) in [
            (0, "a"),
            (quarter - 1, "a"),
            (quarter, "c"),
            (u64::MAX, "c"),
        ] {
            assert_eq!(block_on(keys.key(random)).unwrap().expose(), wanted);
        }
    }

    // spec: UPP-9, UPP-8
    #[test]
    fn a_function_is_asked_each_time_and_nothing_is_printed() {
        let count = AtomicUsize::new(0);
        let keys = move || {
            let n = count.fetch_add(1, Ordering::Relaxed);
            ready(match n {
                0 | 1 => Ok(Secret::new(format!("key-{n}"))),
                _ => Err(KeyError::Failed(Arc::new(core::fmt::Error))),
            })
        };
        assert_eq!(block_on(keys.key(0)).unwrap().expose(), "key-0");
        assert_eq!(block_on(keys.key(0)).unwrap().expose(), "key-1");
        assert!(matches!(block_on(keys.key(0)), Err(KeyError::Failed(_))));
        let key = || "hidden".to_owned();
        let (one, many) = (
            OneKey::new(key()),
            RoundRobinKeys::new([key(), key()]).unwrap(),
        );
        let heavy = WeightedKeys::new([(key(), 1)]).unwrap();
        assert!(!format!("{one:?} {many:?} {heavy:?}").contains("hidden"));
    }
}
