//! Detached signatures of tasks, results and transcripts: Ed25519 over the canonical form.
//!
//! A signature goes beside the message and never in it (SAP-2-4): a header of HTTP and NATS, `_meta` of MCP, all
//! named [`Signature::NAME`]. What is signed is one line that says what it is, and the RFC 8785 form of the message:
//!
//! | what | the line before it |
//! |---|---|
//! | a task | `SAP V2.0 task` |
//! | a result | `SAP V2.0 result` |
//! | the head of a transcript, as its text | `SAP V2.0 transcript` |
//!
//! ```
//! # use sap::*;
//! # use sap::ubos_common::{id::IdSource, json::RawObject, secret::Secret, time::Timestamp};
//! use sap::sign::{Keys, SigningKey};
//!
//! # let mut task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("A-desk".parse()?, AgentKind::Agent),
//! #     Target::new("text.upper".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
//! let key = SigningKey::from_seed("desk-2026", &Secret::new([7; 32]))?; // 32 random bytes
//! let keys = Keys::default().trust("desk-2026", key.public_key(), "A-desk".parse()?);
//! let signature = key.sign_task(&task)?.to_string(); // as it is carried
//! assert_eq!(keys.check_task(&task, &signature.parse()?), Ok(()));
//! task.target = Target::new("text.burn".parse()?);
//! assert!(keys.check_task(&task, &signature.parse()?).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeMap;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use ubos_common::canon::{self, CanonError};
use ubos_common::secret::Secret;

use crate::ident::AgentId;
use crate::result::TaskResult;
use crate::task::Task;
use crate::transcript::Head;

/// A key that signs, with the name by which others know it.
pub struct SigningKey {
    id: Box<str>,
    pair: Ed25519KeyPair,
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A name has 1 to 128 visible ASCII characters, and no colon.
    #[error("a key is named with 1 to 128 visible ASCII characters other than ':'")]
    Id,
    /// The seed is no Ed25519 key.
    #[error("the seed gives no Ed25519 key")]
    Seed,
}

impl SigningKey {
    /// The key of a seed: 32 random bytes.
    ///
    /// # Errors
    ///
    /// [`KeyError`].
    pub fn from_seed(id: &str, seed: &Secret<[u8; 32]>) -> Result<Self, KeyError> {
        if !is_key_id(id) {
            return Err(KeyError::Id);
        }
        let pair = Ed25519KeyPair::from_seed_unchecked(seed.expose());
        Ok(Self {
            id: id.into(),
            pair: pair.map_err(|_| KeyError::Seed)?,
        })
    }

    /// What others check its signatures with.
    #[must_use]
    pub fn public_key(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let public = self.pair.public_key().as_ref();
        for (to, from) in bytes.iter_mut().zip(public) {
            *to = *from;
        }
        bytes
    }

    /// Signs a task.
    ///
    /// # Errors
    ///
    /// It has no canonical form, because of a number that has no exact one.
    pub fn sign_task(&self, task: &Task) -> Result<Signature, CanonError> {
        Ok(self.sign(&of_message(TASK, &task.encode())?))
    }

    /// Signs a result.
    ///
    /// # Errors
    ///
    /// It has no canonical form, because of a number that has no exact one.
    pub fn sign_result(&self, result: &TaskResult) -> Result<Signature, CanonError> {
        Ok(self.sign(&of_message(RESULT, &result.encode())?))
    }

    /// Signs the head of a transcript. Whoever holds the signature can prove what the transcript held.
    #[must_use]
    pub fn sign_head(&self, head: &Head) -> Signature {
        self.sign(&of_head(head))
    }

    fn sign(&self, signed: &[u8]) -> Signature {
        let mut bytes = [0; SIGNATURE_BYTES];
        let made = self.pair.sign(signed);
        for (to, from) in bytes.iter_mut().zip(made.as_ref()) {
            *to = *from;
        }
        Signature {
            key: self.id.clone(),
            bytes,
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.id).finish()
    }
}

/// A signature, with the name of its key. Its text is the name, a colon, and 128 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    key: Box<str>,
    bytes: [u8; SIGNATURE_BYTES],
}

impl Signature {
    /// The header, or the member of `_meta`, that carries it.
    pub const NAME: &str = "sap-signature";
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.key)?;
        self.bytes
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Signature {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<Self, SignatureError> {
        let (key, digits) = text.split_once(':').ok_or(SignatureError::Syntax)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_key_id(key) || !is_hex || digits.len() != 2 * SIGNATURE_BYTES {
            return Err(SignatureError::Syntax);
        }
        let mut bytes = [0; SIGNATURE_BYTES];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let digits = digits.get(2 * at..2 * at + 2).unwrap_or_default();
            *byte = u8::from_str_radix(digits, 16).map_err(|_| SignatureError::Syntax)?;
        }
        Ok(Self {
            key: key.into(),
            bytes,
        })
    }
}

/// Why a signature does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// There is none.
    #[error("not signed")]
    Missing,
    /// It is not written as one.
    #[error("not a signature: a key, ':' and 128 hexadecimal digits are wanted")]
    Syntax,
    /// Its key is not trusted.
    #[error("signed with a key that is not trusted")]
    UnknownKey,
    /// Its key is that of another agent.
    #[error("signed with the key of another agent")]
    OtherAgent,
    /// The message has a number without an exact canonical form.
    #[error("the message has no canonical form")]
    NotCanonical,
    /// It is of another message, or made with another key.
    #[error("the signature does not match the message")]
    Mismatch,
}

/// The keys that are trusted, and whose they are.
#[derive(Clone, Debug, Default)]
pub struct Keys(BTreeMap<Box<str>, ([u8; 32], AgentId)>);

impl Keys {
    /// Trusts a key of an agent. An agent may have many keys; a key of the same name is replaced.
    #[must_use]
    pub fn trust(mut self, id: impl Into<Box<str>>, public_key: [u8; 32], agent: AgentId) -> Self {
        self.0.insert(id.into(), (public_key, agent));
        self
    }

    /// Whether the issuer of a task has signed it.
    ///
    /// # Errors
    ///
    /// [`SignatureError`].
    pub fn check_task(&self, task: &Task, signature: &Signature) -> Result<(), SignatureError> {
        let signed = of_message(TASK, &task.encode());
        let signed = signed.map_err(|_| SignatureError::NotCanonical)?;
        self.check(&signed, signature, Some(&task.issuer.agent_id))
            .map(drop)
    }

    /// Whether the producer of a result has signed it.
    ///
    /// # Errors
    ///
    /// [`SignatureError`].
    pub fn check_result(
        &self,
        result: &TaskResult,
        signature: &Signature,
    ) -> Result<(), SignatureError> {
        let signed = of_message(RESULT, &result.encode());
        let signed = signed.map_err(|_| SignatureError::NotCanonical)?;
        self.check(&signed, signature, Some(&result.producer.agent_id))
            .map(drop)
    }

    /// Which agent has signed the head of a transcript.
    ///
    /// # Errors
    ///
    /// [`SignatureError`].
    pub fn check_head(
        &self,
        head: &Head,
        signature: &Signature,
    ) -> Result<&AgentId, SignatureError> {
        self.check(&of_head(head), signature, None)
    }

    /// Whether a signature names a key of an agent, which costs nothing to see.
    #[cfg(feature = "driver")]
    pub(crate) fn is_of(
        &self,
        signature: &Signature,
        agent: &AgentId,
    ) -> Result<(), SignatureError> {
        self.trusted(signature, Some(agent)).map(drop)
    }

    fn trusted(
        &self,
        signature: &Signature,
        wanted: Option<&AgentId>,
    ) -> Result<(&[u8; 32], &AgentId), SignatureError> {
        let trusted = self.0.get(&signature.key);
        let (public_key, agent) = trusted.ok_or(SignatureError::UnknownKey)?;
        if wanted.is_some_and(|wanted| wanted != agent) {
            return Err(SignatureError::OtherAgent);
        }
        Ok((public_key, agent))
    }

    fn check(
        &self,
        signed: &[u8],
        signature: &Signature,
        wanted: Option<&AgentId>,
    ) -> Result<&AgentId, SignatureError> {
        let (public_key, agent) = self.trusted(signature, wanted)?;
        let verified =
            UnparsedPublicKey::new(&ED25519, public_key).verify(signed, &signature.bytes);
        verified.map_err(|_| SignatureError::Mismatch)?;
        Ok(agent)
    }
}

fn is_key_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    (1..=MAX_KEY_ID).contains(&id.len()) && id.bytes().all(is_plain)
}

fn of_message(what: &str, encoded: &[u8]) -> Result<Vec<u8>, CanonError> {
    let mut signed = what.as_bytes().to_vec();
    canon::write_slice(&mut signed, canon::Mode::Exact, encoded)?;
    Ok(signed)
}

fn of_head(head: &Head) -> Vec<u8> {
    [TRANSCRIPT.as_bytes(), head.as_ref().as_bytes()].concat()
}

const TASK: &str = "SAP V2.0 task\n";
const RESULT: &str = "SAP V2.0 result\n";
const TRANSCRIPT: &str = "SAP V2.0 transcript\n";
const SIGNATURE_BYTES: usize = 64;
/// Characters of a key's name.
const MAX_KEY_ID: usize = 128;
