//! What has to be sent back with reasoning.

use std::collections::BTreeMap;

use ubos_common::json::{MemberWriter, RawBuf, Write};

use crate::message::AssistantMessage;

/// What has to be sent back with a reasoning block.
pub(super) enum ThinkingBlock {
    Signed(Box<str>),
    Unsigned,
    Redacted(Box<str>),
}

impl Write for ThinkingBlock {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        match self {
            Self::Signed(signature) => object.member("signature", &**signature),
            Self::Unsigned => {}
            Self::Redacted(data) => object.member("redacted", &**data),
        }
        object.end();
    }
}

impl ThinkingBlock {
    /// The vendor's data about the reasoning blocks of a message, in their order.
    pub(super) fn of(answer: &AssistantMessage, provider: &str) -> Vec<Self> {
        let said = answer.metadata.as_ref().and_then(|all| all.get(provider));
        let said: BTreeMap<String, RawBuf> = said
            .and_then(|said| said.deserialize().ok())
            .unwrap_or_default();
        let thoughts: Vec<BTreeMap<String, String>> = said
            .get("thinking")
            .and_then(|list| list.deserialize().ok())
            .unwrap_or_default();
        let thought = |mut of: BTreeMap<String, String>| {
            if let Some(data) = of.remove("redacted") {
                return Self::Redacted(data.into());
            }
            match of.remove("signature") {
                Some(signature) => Self::Signed(signature.into()),
                None => Self::Unsigned,
            }
        };
        thoughts.into_iter().map(thought).collect()
    }
}
