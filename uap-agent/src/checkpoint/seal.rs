//! Encryption at rest, with a cipher that the application brings.

/// Encrypts what a store in files writes, and decrypts it again.
///
/// This crate brings no cipher. Take one that authenticates what it encrypts and binds data beside it (an AEAD), with a
/// fresh nonce for each call that stands in front of the sealed bytes: XChaCha20-Poly1305 of crate `chacha20poly1305`
/// (random nonces of 24 bytes), AES-256-GCM-SIV of crate `aes-gcm-siv`, or AES-256-GCM of `aws-lc-rs` where a validated
/// module is asked for. The key comes from where keys are kept, not from beside the files.
///
/// `bound` names the session, the kind of file and the place in it. It is not secret, need not be stored, and must be
/// authenticated: sealed bytes that are carried into another session or another place are then refused.
///
/// What is sealed are states and all that is known of them. Names of sessions are names of folders, and can be read, as can
/// sizes and times of files.
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::{FileCheckpoints, Seal, SealError};
///
/// /// Stands for a real cipher: it hides nothing.
/// struct Upside;
///
/// impl Seal for Upside {
///     fn seal(&self, _bound: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError> {
///         Ok(plain.iter().map(|byte| !byte).collect())
///     }
///     fn open(&self, bound: &[u8], sealed: &[u8]) -> Result<Vec<u8>, SealError> {
///         self.seal(bound, sealed)
///     }
/// }
///
/// # let folder = std::env::temp_dir().join(format!("doc-seal-{}", std::process::id()));
/// let store = FileCheckpoints::open(&folder)?.with_seal(Arc::new(Upside));
/// # drop(store);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), uap_agent::CheckpointError>(())
/// ```
///
/// Spec: UAP-1.1 15.1
pub trait Seal: Send + Sync {
    /// Encrypts `plain`, and authenticates it together with `bound`.
    ///
    /// # Errors
    ///
    /// [`SealError::Failed`]; nothing is written then.
    fn seal(&self, bound: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError>;

    /// Decrypts what was sealed with the same `bound`.
    ///
    /// # Errors
    ///
    /// [`SealError::Refused`] where it was not sealed so, with this key.
    fn open(&self, bound: &[u8], sealed: &[u8]) -> Result<Vec<u8>, SealError>;
}

/// An error of a seal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The key, the bytes or the place differ.
    #[error("it does not open with this key here")]
    Refused,
    /// The file is sealed, and the store has no seal.
    #[error("it is sealed, and no key is given")]
    NoKey,
    /// The file is not sealed, and the store has a seal: a writer without the key has written it.
    #[error("it is not sealed, though a key is given")]
    NotSealed,
    /// The cipher failed.
    #[error("the cipher failed: {0}")]
    Failed(Box<str>),
}

/// What a store in files seals with, where it does.
#[cfg(all(feature = "driver", feature = "os"))]
pub(super) mod sealing {
    use core::fmt;
    use core::panic::AssertUnwindSafe;
    use std::borrow::Cow;
    use std::sync::Arc;

    use super::{Seal, SealError};

    /// In front of all that is sealed: no JSON begins so.
    const MARK: &[u8] = b"uap-sealed:1\n";

    #[derive(Clone, Default)]
    pub(in super::super) struct Sealing(Option<Arc<dyn Seal>>);

    impl Sealing {
        pub(in super::super) fn new(seal: Arc<dyn Seal>) -> Self {
            Self(Some(seal))
        }

        // impl: UAP-15-1
        pub(in super::super) fn seal<'a>(
            &self,
            place: &Place<'_>,
            plain: &'a [u8],
        ) -> Result<Cow<'a, [u8]>, SealError> {
            let Some(seal) = &self.0 else {
                return Ok(plain.into());
            };
            let mut bytes = MARK.to_vec();
            bytes.append(&mut caught(|| seal.seal(&place.bound(), plain))?);
            Ok(bytes.into())
        }

        pub(in super::super) fn open<'a>(
            &self,
            place: &Place<'_>,
            bytes: &'a [u8],
        ) -> Result<Cow<'a, [u8]>, SealError> {
            match (&self.0, bytes.strip_prefix(MARK)) {
                (None, None) => Ok(bytes.into()),
                (None, Some(_)) => Err(SealError::NoKey),
                (Some(_), None) => Err(SealError::NotSealed),
                (Some(seal), Some(sealed)) => {
                    caught(|| seal.open(&place.bound(), sealed)).map(Cow::Owned)
                }
            }
        }
    }

    /// The cipher is the developer's: one that panics must not take the store's thread, and all sessions, with it.
    fn caught(cipher: impl FnOnce() -> Result<Vec<u8>, SealError>) -> Result<Vec<u8>, SealError> {
        let panicked = |_| Err(SealError::Failed("it panicked".into()));
        std::panic::catch_unwind(AssertUnwindSafe(cipher)).unwrap_or_else(panicked)
    }

    impl fmt::Debug for Sealing {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(if self.0.is_some() { "sealed" } else { "plain" })
        }
    }

    /// Where something stands that is sealed.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Place<'a> {
        pub(in super::super) session: &'a str,
        pub(in super::super) kind: &'a str,
        pub(in super::super) number: u64,
    }

    impl Place<'_> {
        /// No two places are alike: the session stands last, and nothing before it has a zero byte.
        fn bound(&self) -> Vec<u8> {
            let Self {
                session,
                kind,
                number,
            } = self;
            format!("uap-checkpoint:1\0{kind}\0{number}\0{session}").into_bytes()
        }
    }
}
