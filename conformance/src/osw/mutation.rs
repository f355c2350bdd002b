//! How mutants differ from the reference: by what they send and by what they read.

use std::collections::VecDeque;
use std::sync::Arc;

use super::writer::frame;
use opensentience_wire::FrameDecoder;

/// What a mutant remembers between messages.
#[derive(Debug, Default)]
pub(super) struct MutationMemory {
    pub(super) count: usize,
    pub(super) text: String,
}

type Outgoing = dyn Fn(&mut MutationMemory, String) -> Vec<String> + Send + Sync;
type Incoming = dyn Fn(&mut MutationMemory, Vec<u8>) -> Vec<u8> + Send + Sync;

/// One way to break a clause. The default changes nothing.
#[derive(Clone)]
pub(super) struct Mutation {
    outgoing: Arc<Outgoing>,
    incoming: Arc<Incoming>,
}

impl Default for Mutation {
    fn default() -> Self {
        Self {
            outgoing: Arc::new(|_, text| vec![text]),
            incoming: Arc::new(|_, bytes| bytes),
        }
    }
}

impl Mutation {
    /// Sends other messages than the reference; each call gets one message.
    pub(super) fn outgoing(
        outgoing: impl Fn(&mut MutationMemory, String) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        Self::default().and_outgoing(outgoing)
    }

    pub(super) fn and_outgoing(
        mut self,
        outgoing: impl Fn(&mut MutationMemory, String) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.outgoing = Arc::new(outgoing);
        self
    }

    /// Reads other bytes than were sent; each call gets the bytes of one write.
    pub(super) fn incoming(
        incoming: impl Fn(&mut MutationMemory, Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self {
            incoming: Arc::new(incoming),
            ..Self::default()
        }
    }

    /// Replaces a text in what it sends.
    pub(super) fn replaces(from: &'static str, to: &'static str) -> Self {
        Self::outgoing(move |_, text| vec![text.replace(from, to)])
    }

    /// Replaces a text in what it reads.
    pub(super) fn misreads(from: &'static str, to: &'static str) -> Self {
        Self::incoming(move |_, bytes| replaced(&bytes, from, to))
    }

    /// Does not read the bytes that `which` picks.
    pub(super) fn ignores(which: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self::incoming(move |_, bytes| if which(&bytes) { Vec::new() } else { bytes })
    }

    /// Reads an empty frame, which ends the connection, in place of the bytes that `which` picks.
    pub(super) fn rejects(which: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self::incoming(move |_, bytes| if which(&bytes) { vec![0; 4] } else { bytes })
    }
}

/// The bytes to and from a reference, with a mutation between.
pub(super) struct MutatingTransport {
    decoder: FrameDecoder,
    mutation: Mutation,
    memory: MutationMemory,
    out: VecDeque<Vec<u8>>,
}

impl MutatingTransport {
    pub(super) fn new(mutation: Mutation) -> Self {
        Self {
            decoder: FrameDecoder::new(usize::MAX),
            mutation,
            memory: MutationMemory::default(),
            out: VecDeque::new(),
        }
    }

    /// Drops everything that belongs to the last connection.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.mutation.clone());
    }

    pub(super) fn send(&mut self, mut bytes: &[u8]) {
        while let Ok((taken, Some(body))) = self.decoder.decode(bytes) {
            let text = String::from_utf8_lossy(body).into_owned();
            let texts = (self.mutation.outgoing)(&mut self.memory, text);
            let frames = texts.iter().map(|text| frame(text.as_bytes()));
            self.out.extend(frames.filter(|frame| frame.len() > 4));
            bytes = bytes.get(taken..).unwrap_or_default();
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) -> Vec<u8> {
        (self.mutation.incoming)(&mut self.memory, bytes.to_vec())
    }

    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }
}

/// Whether bytes are one message of a type.
pub(super) fn is(bytes: &[u8], kind: &str) -> bool {
    contains(bytes, &format!("\"type\":\"{kind}\""))
}

pub(super) fn contains(bytes: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(text)
}

/// One frame with a text in it replaced.
pub(super) fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    match bytes.get(4..).map(String::from_utf8_lossy) {
        Some(body) if body.contains(from) => frame(body.replace(from, to).as_bytes()),
        _ => bytes.to_vec(),
    }
}

/// A message with another value in a member of its envelope.
pub(super) fn with_member(text: &str, name: &str, value: &str) -> String {
    let before = format!("\"{name}\":\"");
    let parts = text
        .split_once(&before)
        .and_then(|(head, rest)| Some((head, rest.split_once('"')?.1)));
    match parts {
        Some((head, tail)) => format!("{head}{before}{value}\"{tail}"),
        None => text.to_owned(),
    }
}

/// Of several frames in one write only the first.
pub(super) fn first_frame_only(_: &mut MutationMemory, bytes: Vec<u8>) -> Vec<u8> {
    let first = first_length(&bytes).and_then(|length| bytes.get(..length));
    first.map_or_else(|| bytes.clone(), <[u8]>::to_vec)
}

/// Of two frames in one write the second before the first.
pub(super) fn second_frame_first(_: &mut MutationMemory, bytes: Vec<u8>) -> Vec<u8> {
    match first_length(&bytes).and_then(|length| bytes.split_at_checked(length)) {
        Some((first, second)) => [second, first].concat(),
        None => bytes,
    }
}

/// Bytes of the first frame, its prefix counted.
fn first_length(bytes: &[u8]) -> Option<usize> {
    let prefix = bytes.first_chunk()?;
    Some(u32::from_be_bytes(*prefix) as usize + 4)
}
