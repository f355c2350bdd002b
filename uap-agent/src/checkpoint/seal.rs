//! Encryption at rest, with a cipher of the application.

/// Encrypts and decrypts the files of a store.
///
/// This crate has no cipher. Use one that authenticates the plain text together with associated data (an AEAD), with a fresh
/// nonce for each call in front of the sealed bytes: XChaCha20-Poly1305 of the crate `chacha20poly1305` (random nonces of 24
/// bytes), AES-256-GCM-SIV of `aes-gcm-siv`, or AES-256-GCM of `aws-lc-rs` if a validated module is required. Do not keep
/// the key beside the files.
///
/// `bound` names the session, the kind of file and the place in it. It is not secret and need not be stored, but it must be
/// authenticated: sealed bytes are then refused in another session or another place.
///
/// States and their metadata are sealed. The names of sessions are names of folders and stay readable, and so do the sizes and
/// times of files.
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

    /// Decrypts bytes that were sealed with the same `bound`.
    ///
    /// # Errors
    ///
    /// [`SealError::Refused`] if the key, the bytes or `bound` differ.
    fn open(&self, bound: &[u8], sealed: &[u8]) -> Result<Vec<u8>, SealError>;
}

/// An error of a seal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The key, the bytes or the place differ.
    #[error("it cannot be opened with this key in this place")]
    Refused,
    /// The file is sealed, and the store has no seal.
    #[error("it is sealed, but the store has no seal")]
    NoKey,
    /// The file is not sealed, and the store has a seal: a writer without the key has written it.
    #[error("it is not sealed, but the store has a seal")]
    NotSealed,
    /// The cipher failed.
    #[error("the cipher failed: {0}")]
    Failed(Box<str>),
}

/// The seal of a store, if it has one.
#[cfg(all(feature = "driver", feature = "os"))]
pub(super) mod sealing {
    use core::fmt;
    use core::panic::AssertUnwindSafe;
    use std::borrow::Cow;
    use std::sync::Arc;

    use super::{Seal, SealError};

    /// The first bytes of every sealed file: no JSON starts with them.
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

    /// A cipher that panics must not end the store's thread, and all sessions with it.
    fn caught(cipher: impl FnOnce() -> Result<Vec<u8>, SealError>) -> Result<Vec<u8>, SealError> {
        let panicked = |_| Err(SealError::Failed("it panicked".into()));
        std::panic::catch_unwind(AssertUnwindSafe(cipher)).unwrap_or_else(panicked)
    }

    impl fmt::Debug for Sealing {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Sealing")
        }
    }

    /// The place of sealed bytes.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Place<'a> {
        pub(in super::super) session: &'a str,
        pub(in super::super) kind: &'a str,
        pub(in super::super) number: u64,
    }

    impl Place<'_> {
        /// Every place has its own bytes: the session comes last, and nothing before it has a zero byte.
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
