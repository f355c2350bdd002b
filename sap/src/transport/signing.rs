//! What clients and servers of all transports do about signatures. Without the feature `sign` it is nothing.

use super::{Message, SendError};
use crate::processor::Peer;
use crate::task::Task;

/// How a client signs its tasks, and whose results it takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Signing {
    #[cfg(feature = "sign")]
    pub(super) key: Option<std::sync::Arc<crate::sign::SigningKey>>,
    #[cfg(feature = "sign")]
    pub(super) keys: Option<std::sync::Arc<crate::sign::Keys>>,
}

/// The header, or the member of `_meta`, that carries a signature.
pub(super) const NAME: &str = "sap-signature";

#[cfg(feature = "sign")]
impl Signing {
    /// The signature of a task, where this client signs.
    pub(super) fn sign(&self, task: &Task) -> Result<Option<String>, SendError> {
        let signed = self.key.as_ref().map(|key| key.sign_task(task));
        let signed = signed.transpose().map_err(SendError::carrier)?;
        Ok(signed.map(|signature| signature.to_string()))
    }

    /// Whether results are taken signed only, so that each has to come with its signature.
    #[cfg(feature = "http")]
    pub(super) const fn is_strict(&self) -> bool {
        self.keys.is_some()
    }

    /// Refuses a result that its producer has not signed, where this client asks for that.
    pub(super) fn check(
        &self,
        message: &Message,
        signature: Option<&str>,
    ) -> Result<(), SendError> {
        use crate::sign::SignatureError;
        let (Some(keys), Message::Result(result)) = (&self.keys, message) else {
            return Ok(());
        };
        signature
            .ok_or(SignatureError::Missing)
            .and_then(str::parse)
            .and_then(|signature| keys.check_result(result, &signature))
            .map_err(SendError::Unsigned)
    }
}

#[cfg(not(feature = "sign"))]
#[expect(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "the feature does it"
)]
impl Signing {
    pub(super) const fn sign(&self, _: &Task) -> Result<Option<String>, SendError> {
        Ok(None)
    }

    #[cfg(feature = "http")]
    pub(super) const fn is_strict(&self) -> bool {
        false
    }

    pub(super) const fn check(&self, _: &Message, _: Option<&str>) -> Result<(), SendError> {
        Ok(())
    }
}

/// Puts the signature that came beside a task to what is known of its peer. One that cannot be read is none.
#[cfg(feature = "sign")]
pub(super) fn signed(mut peer: Peer, signature: Option<&str>) -> Peer {
    peer.signature = signature.and_then(|text| text.parse().ok());
    peer
}

#[cfg(not(feature = "sign"))]
pub(super) const fn signed(peer: Peer, _: Option<&str>) -> Peer {
    peer
}
