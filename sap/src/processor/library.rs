//! What was learned, as a capability.

use std::sync::Arc;

use futures::future::BoxFuture;
use ubos_common::json::{self, RawBuf};
use ubos_common::violation::Profile;

use super::handler::{Context, Handler};
use crate::evidence::Fingerprint;
use crate::ident::Capability;
use crate::learning::SignalKey;
use crate::limits::unbounded;
use crate::role::consumer::{HandlerError, Outcome};
use crate::store::Library;

ubos_common::wire! {
    /// What a task asks a library for.
    struct Question {
        /// What is done.
        required capability: Capability = "capability", "SAP-7-3";
        /// The domain.
        optional territory: String = "territory", "SAP-7-3";
        /// The essence of a payload.
        optional fingerprint: Fingerprint = "fingerprint", "SAP-7-3";
    }
}

/// Gives out playbooks and punch-cards, each citing its digest.
impl Handler for Arc<Library> {
    fn run(&self, context: Context) -> BoxFuture<'_, Result<Outcome, HandlerError>> {
        Box::pin(async move {
            let asked = context.task.payload.as_raw();
            let question = json::read_raw::<Question>(asked, &unbounded(), Profile::Strict);
            let (question, _) = question.map_err(|_| {
                let wanted = "a capability, and perhaps a territory and a fingerprint";
                HandlerError::unprocessable(wanted)
            })?;
            let about = SignalKey {
                capability: question.capability,
                territory: question.territory,
                fingerprint: question.fingerprint,
            };
            let Some(artifact) = self.newest(&about).await? else {
                return Ok(Outcome::new(RawBuf::parse("null")?));
            };
            let cites = format!("blake3:{}", artifact.digest);
            let output = RawBuf::parse(&json::to_string(&artifact))?;
            Ok(Outcome::new(output).citing(vec![cites]))
        })
    }
}
