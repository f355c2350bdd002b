//! Hashing ids of this side's making.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher, RandomState},
};

/// Things by ids that a hub, its store or its callers make: jobs, sessions, streams.
///
/// Ids that the peer of a call chooses are hashed with the standard library's hasher, which withstands one who looks for ids that
/// collide. This one is several times as fast. Peers may look up any id here, but none is kept for them. Those who submit jobs may
/// choose the ids of jobs: both words of the key are secret, so that they cannot prepare ids that collide, and jobs are bounded.
pub(crate) type ById<K, V> = HashMap<K, V, OwnIds>;

/// Makes hashers with a random key, one for each map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnIds {
    start: u64,
    /// Odd, so that no bit of an id is lost.
    factor: u64,
}

impl Default for OwnIds {
    fn default() -> Self {
        let random = RandomState::new();
        Self::keyed(random.hash_one(0), random.hash_one(1))
    }
}

impl OwnIds {
    const fn keyed(start: u64, factor: u64) -> Self {
        let factor = factor | 1;
        Self { start, factor }
    }
}

impl BuildHasher for OwnIds {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        let (state, factor) = (self.start, self.factor);
        Folded { state, factor }
    }
}

/// Multiplies each eight bytes and folds the product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folded {
    state: u64,
    factor: u64,
}

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            self.write_u64(u64::from_le_bytes(*eight));
        }
        if !rest.is_empty() {
            let last = rest
                .iter()
                .rev()
                .fold(0, |n, byte| n << 8 | u64::from(*byte));
            self.write_u64(last);
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = self.state ^ number;
        let product = u128::from(mixed) * u128::from(self.factor);
        // Tables look at the highest bits and at the lowest.
        self.state = mixed.wrapping_mul(self.factor) ^ (product >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::id::{SessionId, StreamId};

    /// The fraction of the golden ratio has no pattern.
    const fn fixed() -> OwnIds {
        OwnIds::keyed(1, 0x9E37_79B9_7F4A_7C15)
    }

    /// How many different lowest and highest bits the hashes have.
    fn spread(hashes: impl Iterator<Item = u64>) -> (usize, usize) {
        let hashes: Vec<_> = hashes.collect();
        let low: BTreeSet<_> = hashes.iter().map(|hash| hash & 0xFFF).collect();
        let high: BTreeSet<_> = hashes.iter().map(|hash| hash >> 57).collect();
        (low.len(), high.len())
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn ids_are_spread() {
        let hasher = fixed();
        let streams = (0..4096).map(|n| hasher.hash_one(StreamId(n)));
        let (low, high) = spread(streams);
        assert!(low > 2048 && high == 128, "{low} {high}");
        let session = |n| SessionId::from(format!("JOB-00000000-0000-4000-8000-{n:012}"));
        let sessions = (0..4096).map(|n| hasher.hash_one(session(n)));
        let (low, high) = spread(sessions);
        assert!(low > 2048 && high == 128, "{low} {high}");
    }

    #[test]
    fn each_map_has_a_key_of_its_own() {
        let [one, other] = [(); 2].map(|()| OwnIds::default());
        assert!(one.start != other.start && one.factor != other.factor);
        assert_ne!(one.hash_one(StreamId(1)), other.hash_one(StreamId(1)));
    }

    #[test]
    fn every_byte_counts() {
        let hash = |bytes: &[u8]| {
            let mut hasher = fixed().build_hasher();
            hasher.write(bytes);
            hasher.finish()
        };
        let one_of = |n: usize| {
            let mut bytes = [0; 21];
            bytes[n] = 1;
            hash(&bytes)
        };
        let hashes: BTreeSet<_> = (0..21).map(one_of).collect();
        assert_eq!(hashes.len(), 21);
    }
}
