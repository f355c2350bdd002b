//! Checkpoints in files, sealed.

use uap_agent::checkpoint::{Seal, SealError};

/// A toy: it hides and binds enough for tests, and protects nothing from anybody. Never take it for a cipher.
pub(crate) struct Toy {
    key: u64,
    calls: std::sync::atomic::AtomicU64,
}

impl Toy {
    pub(crate) fn new(key: u64) -> Self {
        Self {
            key,
            calls: std::sync::atomic::AtomicU64::new(1),
        }
    }

    fn stream(&self, nonce: u64) -> impl Iterator<Item = u8> {
        let mut ids = ubos_common::id::IdSource::seeded(self.key ^ nonce.rotate_left(32));
        std::iter::repeat_with(move || ids.bits().to_le_bytes()).flatten()
    }

    fn tag(&self, bound: &[u8], nonce: u64, plain: &[u8]) -> [u8; 32] {
        let mut text = [&self.key.to_le_bytes()[..], &nonce.to_le_bytes()].concat();
        text.extend((bound.len() as u64).to_le_bytes());
        text.extend(bound);
        text.extend(plain);
        *ubos_common::canon::Digest::of_bytes(&text).as_bytes()
    }
}

impl Seal for Toy {
    fn seal(&self, bound: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let nonce = self.calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let mut sealed = nonce.to_le_bytes().to_vec();
        sealed.extend(self.tag(bound, nonce, plain));
        sealed.extend(plain.iter().zip(self.stream(nonce)).map(|(a, b)| a ^ b));
        Ok(sealed)
    }

    fn open(&self, bound: &[u8], sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (nonce, rest) = sealed.split_first_chunk().ok_or(SealError::Refused)?;
        let (tag, hidden) = rest.split_first_chunk::<32>().ok_or(SealError::Refused)?;
        let nonce = u64::from_le_bytes(*nonce);
        let plain: Vec<u8> = hidden
            .iter()
            .zip(self.stream(nonce))
            .map(|(a, b)| a ^ b)
            .collect();
        if self.tag(bound, nonce, &plain) == *tag {
            Ok(plain)
        } else {
            Err(SealError::Refused)
        }
    }
}
