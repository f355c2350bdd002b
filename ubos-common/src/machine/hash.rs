//! Hashing of ids.

use core::hash::{BuildHasher, Hasher};
use std::{collections::HashMap, hash::RandomState};

/// A hash map of ids, which are short: several times faster than with the hasher of the standard library. Each has seeds of its
/// own, so that peers who choose ids cannot make them collide. Its order is nobody's to see.
pub type IdMap<K, V> = HashMap<K, V, IdHash>;

/// The seeds of an [`IdMap`].
#[derive(Clone, Debug)]
pub struct IdHash([u64; 2]);

impl Default for IdHash {
    fn default() -> Self {
        let seeds = RandomState::new();
        Self([seeds.hash_one(0_u8), seeds.hash_one(1_u8)])
    }
}

impl BuildHasher for IdHash {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        let Self([state, key]) = *self;
        IdHasher { state, key }
    }
}

/// Mixes eight bytes at a time, by a product of twice their length that is folded.
#[derive(Debug)]
pub struct IdHasher {
    state: u64,
    key: u64,
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if let [_, ..] = rest {
            let mut word = [0; 8];
            word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            // Which zeros are bytes is told by their number.
            self.write_u64(u64::from_le_bytes(word) ^ ((rest.len() as u64) << 56));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.state = folded(self.state ^ number, self.key | 1);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        // The last word has been multiplied once: once more, and each of its bits reaches all.
        folded(self.state, self.key.rotate_left(32) | 1)
    }
}

/// Both halves of the product.
const fn folded(a: u64, b: u64) -> u64 {
    let product = (a as u128) * (b as u128);
    let [low, high] = [product & u64::MAX as u128, product >> 64];
    #[expect(clippy::cast_possible_truncation, reason = "both are halves")]
    let folded = (low ^ high) as u64;
    folded
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// How many of 4,096 places 4,096 keys reach by the low bits of their hashes, and by the high ones; by chance 63 %.
    fn reached<K: core::hash::Hash>(keys: impl Iterator<Item = K>) -> [usize; 2] {
        let hash = IdHash::default();
        let hashes: Vec<u64> = keys.take(4096).map(|key| hash.hash_one(key)).collect();
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), 4096);
        [0, 52].map(|shift| {
            let places = hashes.iter().map(|hash| (hash >> shift) & 0xfff);
            places.collect::<HashSet<_>>().len()
        })
    }

    #[test]
    fn ids_of_every_kind_are_spread() {
        let kinds = [
            reached(0_u64..),
            reached((0_u64..).map(|n| n << 40)),
            reached((0_u32..).map(|n| (n / 64, n % 64))),
            reached((0_u64..).map(|n| format!("JOB-00000000-0000-4000-8000-{n:012}"))),
            reached((0_u64..).map(|n| "x".repeat(1 + usize::try_from(n).unwrap()))),
            reached((0_u128..).map(|n| (n << 64).to_be_bytes())),
        ];
        for places in kinds.as_flattened() {
            assert!((2300..3000).contains(places), "{kinds:?}");
        }
    }

    #[test]
    fn where_bytes_end_counts() {
        let hash = IdHash::default();
        let of = |bytes: &[u8]| {
            let mut hasher = hash.build_hasher();
            hasher.write(bytes);
            hasher.finish()
        };
        assert_eq!(of(b"abcdefghij"), of(b"abcdefghij"));
        let all = [
            &b"\0"[..],
            b"\0\0",
            b"",
            b"\0\0\0\0\0\0\0\0\0",
            b"a",
            b"a\0",
        ];
        let hashes: HashSet<u64> = all.iter().map(|bytes| of(bytes)).collect();
        assert_eq!(hashes.len(), all.len());
    }

    #[test]
    fn each_map_has_its_own_seeds() {
        assert_ne!(
            IdHash::default().hash_one(7_u64),
            IdHash::default().hash_one(7_u64)
        );
    }
}
