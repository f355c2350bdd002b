//! Whether a message says what it said when its raw form was kept.

use ubos_common::canon::{Digest, Domain, digest_str};
use ubos_common::json::to_string;

use super::vendor_json::Object;
use crate::message::AssistantMessage;

/// The member of the metadata with the digest.
pub(super) const DIGEST: &str = "digest";

/// The digest of the content and the calls of a message. A store that orders the members of JSON does not change it.
pub(super) fn digest(answer: &AssistantMessage) -> String {
    let calls = to_string(answer.calls());
    let said = format!("[{},{calls}]", to_string(&answer.content));
    let domain = Domain::new("upp 2026 content and calls of a message");
    let digest = digest_str(&domain, &said);
    // Text without a canonical form is compared as it is.
    let digest = digest.unwrap_or_else(|_| Digest::of(&domain, said.as_bytes()));
    digest.to_string()
}

/// Whether the message is as it was when these members were kept.
pub(super) fn is_unchanged(answer: &AssistantMessage, kept: &Object) -> bool {
    let then: Option<String> = kept.read_member(DIGEST);
    then.is_some_and(|then| then == digest(answer))
}
