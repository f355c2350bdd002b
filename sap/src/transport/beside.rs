//! What goes beside a message, in headers or `_meta`: its signature, with the feature `sign`, and its place in a trace.

use ubos_common::trace_context::TraceContext;

use super::exchange::Received;
use super::{Message, SendError};
use crate::lifecycle::digest_of;
use crate::processor::Peer;
#[cfg(any(feature = "sign", feature = "http"))]
use crate::result::TaskResult;
use crate::task::Task;
use crate::validate::Options;
use crate::work::{self, For};

/// How a client signs its tasks, whose results it takes, and the place in a trace that it sends them from.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    #[cfg(feature = "sign")]
    pub(super) key: Option<std::sync::Arc<crate::sign::SigningKey>>,
    #[cfg(feature = "sign")]
    pub(super) keys: Option<std::sync::Arc<crate::sign::Keys>>,
    pub(super) trace: Option<TraceContext>,
}

/// The header, or the member of `_meta`, that carries a signature.
pub(super) const SIGNATURE: &str = "sap-signature";

impl Beside {
    /// What goes beside a task.
    #[cfg_attr(
        not(feature = "sign"),
        expect(
            clippy::unused_async,
            unused_variables,
            reason = "only a signature is made of the task"
        )
    )]
    pub(super) async fn of(&self, task: &Task) -> Result<Vec<(&'static str, String)>, SendError> {
        let trace = self.trace.iter().flat_map(TraceContext::to_carry);
        #[cfg(feature = "sign")]
        let trace = {
            let signature = self.sign(task).await?;
            signature
                .map(|text| (SIGNATURE, text))
                .into_iter()
                .chain(trace)
        };
        Ok(trace.collect())
    }

    /// Reads what a server says, and refuses a result that its producer has not signed where this client asks for that:
    /// at once where it is short, on another thread where it is not.
    pub(super) async fn read(
        &self,
        bytes: impl AsRef<[u8]> + Send + 'static,
        signature: Option<&str>,
    ) -> Result<Received, SendError> {
        let (beside, signature) = (self.clone(), signature.map(str::to_owned));
        work::done(For::Task, bytes.as_ref().len(), move || {
            let message = Message::decode(bytes.as_ref(), &Options::default());
            let message = message.map_err(SendError::Answer)?;
            beside.check(&message, signature.as_deref())?;
            let digest = match &message {
                Message::Result(result) => Some(digest_of(result)),
                Message::Ack(_) | Message::Nack(_) => None,
            };
            Ok(Received { message, digest })
        })
        .await
    }
}

#[cfg(feature = "sign")]
impl Beside {
    /// The signature of a task, where this client signs; made on another thread where the task is long.
    async fn sign(&self, task: &Task) -> Result<Option<String>, SendError> {
        let Some(key) = self.key.clone() else {
            return Ok(None);
        };
        // Any part of it may be long.
        let (task, bytes) = (task.clone(), task.encode().len());
        let signed = work::done(For::Task, bytes, move || key.sign_task(&task)).await;
        let signature = signed.map_err(SendError::carrier)?;
        Ok(Some(signature.to_string()))
    }

    /// Whether results are taken signed only, so that each has to come with its signature.
    #[cfg(feature = "http")]
    pub(super) const fn is_strict(&self) -> bool {
        self.keys.is_some()
    }

    fn check(&self, message: &Message, signature: Option<&str>) -> Result<(), SendError> {
        match message {
            Message::Result(result) => self.check_result(result, signature),
            Message::Ack(_) | Message::Nack(_) => Ok(()),
        }
    }

    /// Whether a result is signed by its producer, where that is asked for.
    pub(super) fn check_result(
        &self,
        result: &TaskResult,
        signature: Option<&str>,
    ) -> Result<(), SendError> {
        use crate::sign::SignatureError;
        let Some(keys) = &self.keys else {
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
impl Beside {
    #[cfg(feature = "http")]
    pub(super) const fn is_strict(&self) -> bool {
        false
    }

    const fn check(&self, _: &Message, _: Option<&str>) -> Result<(), SendError> {
        Ok(())
    }

    #[cfg(feature = "http")]
    pub(super) const fn check_result(
        &self,
        _: &TaskResult,
        _: Option<&str>,
    ) -> Result<(), SendError> {
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

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    // spec: SAP-2-4
    #[cfg(feature = "sign")]
    #[test]
    fn a_task_is_signed_on_another_thread_whatever_part_of_it_is_long() {
        let seed = ubos_common::secret::Secret::new([1; 32]);
        let key = crate::sign::SigningKey::from_seed("desk", &seed).unwrap();
        let beside = Beside {
            key: Some(std::sync::Arc::new(key)),
            ..Beside::default()
        };
        for (bytes, threads) in [(1, 0), (work::HEAVY, 1)] {
            let mut task = crate::samples::task();
            task.issuer.agent_id = "A-prime".parse().unwrap();
            task.tags = Some(vec!["x".repeat(bytes)]);
            let (signed, handed_over) = work::handed_over(|| block_on(beside.sign(&task)));
            assert!(signed.unwrap().is_some());
            assert_eq!(handed_over, threads);
        }
    }

    // spec: SAP-5-5
    #[test]
    fn a_long_answer_is_read_on_another_thread_and_a_short_one_here() {
        let answer = |text: &str| {
            format!(
                r#"{{"protocolVersion":"2.0","taskId":"00000000-0000-0000-0000-000000000001","correlationId":"00000000-0000-0000-0000-000000000002","reportedAt":"1970-01-01T00:00:00Z","producer":{{"agentId":"A-1","agentKind":"agent"}},"status":"SUCCEEDED","output":"{text}","constitutionalEvidence":{{"alignment":"VALID"}}}}"#
            )
        };
        let long = "long ".repeat(work::HEAVY / 5);
        for (text, threads) in [("short", 0), (&*long, 1)] {
            let read = || block_on(Beside::default().read(answer(text), None));
            let (received, handed_over) = work::handed_over(read);
            let Received { message, digest } = received.unwrap();
            let Message::Result(result) = message else {
                panic!("a result")
            };
            assert_eq!(handed_over, threads);
            assert_eq!(digest, Some(digest_of(&result)));
        }
        let refused = block_on(Beside::default().read("no message", None));
        assert!(matches!(refused, Err(SendError::Answer(_))));
    }
}
