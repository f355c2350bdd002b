//! The messages of the kit, written without the encoder of the library: what a kit checks must not be what it uses.

use opensentience_wire::message::{Actor, MessageType};
use opensentience_wire::{Correlation, ErrorObject};
use ubos_common::id::IdSource;
use ubos_common::json::{MemberWriter, Write};
use ubos_common::time::Timestamp;

/// The members of an envelope beside those that every message has.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub(super) kind: MessageType,
    pub(super) in_reply_to: Option<&'a str>,
    pub(super) correlation: Option<&'a Correlation>,
    pub(super) actor: Option<&'a Actor>,
    pub(super) error: Option<&'a ErrorObject>,
}

impl Head<'_> {
    /// A message of a type that answers nothing.
    pub(super) const fn new(kind: MessageType) -> Self {
        Self {
            kind,
            in_reply_to: None,
            correlation: None,
            actor: None,
            error: None,
        }
    }
}

/// An envelope with some of its members set.
pub(super) fn head<'a>(kind: MessageType, set: impl FnOnce(&mut Head<'a>)) -> Head<'a> {
    let mut head = Head::new(kind);
    set(&mut head);
    head
}

/// Writes messages as frames, each with a fresh id.
#[derive(Debug)]
pub(super) struct Writer(IdSource);

impl Writer {
    pub(super) const fn new(ids: IdSource) -> Self {
        Self(ids)
    }

    pub(super) fn write<P: Write + ?Sized>(
        &mut self,
        at: Timestamp,
        head: &Head<'_>,
        payload: &P,
    ) -> Vec<u8> {
        let id = self.0.uuid();
        let mut body = Vec::new();
        let mut object = MemberWriter::begin(&mut body);
        object.member("v", &1_u64);
        object.member("type", &head.kind);
        object.member("id", &id);
        object.member("ts", &at);
        object.optional("in_reply_to", head.in_reply_to.as_ref());
        if let Some(ids) = head.correlation {
            object.optional("request_id", ids.request_id.as_ref());
            object.optional("correlation_id", ids.correlation_id.as_ref());
            object.optional("causation_id", ids.causation_id.as_ref());
        }
        object.optional("actor", head.actor);
        object.optional("error", head.error);
        object.member("payload", payload);
        object.end();
        frame(&body)
    }
}

/// A frame of any bytes.
pub(super) fn frame(body: &[u8]) -> Vec<u8> {
    // No body of the kit comes near 4 GiB.
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut out = length.to_be_bytes().to_vec();
    out.extend_from_slice(body);
    out
}
