//! Messages that agents have not read, counted until the HTTP library lets go of them.
//!
//! The gRPC library copies a message into a buffer that lasts as long as its call, and the HTTP library keeps what the agent's
//! window does not take, also when the call has ended. An agent that reads nothing and opens its calls again and again would have
//! the hub keep a copy each time. Large messages therefore go past the gRPC library, in pieces: the files in them are those of the
//! job and no copies, and each piece counts until it is dropped.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body::Frame;
use prost::{Message, encode_length_delimiter};
use tonic::{Status, body::Body, codegen::http};

use super::{
    budget::{Account, Full, Held, Pool},
    config::ServerConfig,
};
use crate::{
    transport::lock,
    wire::{ListenResponse, Payload, TestInit, TranslationInit},
};

/// Up to so many bytes a message does not count: only a bounded number of them waits on a call. No message of a control stream is
/// larger.
const SMALL: usize = 4 << 10;

/// The number of the payloads in a job, of the file in a payload, and of the bytes in a file.
const PAYLOADS: u8 = 2;
const FILE: u8 = 2;
const DATA: u8 = 3;

/// What the agent at the other end of a connection has not read.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    pool: Arc<Pool>,
    of: Held,
}

impl Unread {
    /// What all connections may have: each as much as all jobs that run, so that who reads what it is sent is never refused, and one
    /// message at least.
    pub(super) fn pool(config: &ServerConfig) -> Arc<Pool> {
        let (jobs, message) = (config.hub.max_queued_bytes, config.hub.max_message_bytes);
        Pool::new(jobs.max(message), 1, 4, config.max_connections)
    }

    pub(super) const fn new(pool: Arc<Pool>, of: Held) -> Self {
        Self { pool, of }
    }

    /// A message that is sent now, if it may wait.
    pub(super) fn add<T: Message>(&self, message: T) -> Result<Sent<T>, Full> {
        let bytes = message.encoded_len();
        let mut charge = None;
        if bytes > SMALL {
            let mut account = Account::new(self.pool.clone(), self.of.clone());
            account.add(bytes)?;
            charge = Some(Arc::new(account));
        }
        Ok(Sent { message, charge })
    }
}

/// A message on its way, which counts if it is large.
#[derive(Debug)]
pub(super) struct Sent<T> {
    pub(super) message: T,
    pub(super) charge: Option<Arc<Account>>,
}

/// Large messages of one call, in pieces, on their way past the gRPC library.
#[derive(Clone, Debug, Default)]
pub(super) struct Large(Arc<Mutex<VecDeque<Bytes>>>);

impl Large {
    /// Adds a message, which counts until its last piece is dropped.
    pub(super) fn put<T: Split>(&self, message: T, charge: &Arc<Account>) -> Result<(), Status> {
        let counted = |bytes| {
            let charge = charge.clone();
            Bytes::from_owner(Piece { bytes, charge })
        };
        let pieces = pieces(message)?.into_iter().map(counted);
        lock(&self.0).extend(pieces);
        Ok(())
    }

    fn next(&self) -> Option<Frame<Bytes>> {
        lock(&self.0).pop_front().map(Frame::data)
    }

    /// The answer with these messages in their places, if it has any.
    pub(super) fn within(mut answer: http::Response<Body>) -> http::Response<Body> {
        match answer.extensions_mut().remove::<Self>() {
            Some(large) => answer.map(|body| Body::new(WithLarge { body, large })),
            None => answer,
        }
    }
}

/// A piece of a message that counts.
struct Piece {
    bytes: Bytes,
    #[expect(dead_code, reason = "counts until it is dropped")]
    charge: Arc<Account>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of an answer, with large messages between those of the gRPC library: it says that it has nothing more where one is to
/// come.
#[derive(Debug)]
struct WithLarge {
    body: Body,
    large: Large,
}

impl http_body::Body for WithLarge {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(piece) = self.large.next() {
            return Poll::Ready(Some(Ok(piece)));
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => match self.large.next() {
                Some(piece) => Poll::Ready(Some(Ok(piece))),
                None => Poll::Pending,
            },
            ready => ready,
        }
    }
}

/// A message that may have payloads.
pub(super) trait Split: Message {
    /// Its payloads, without which it is left.
    fn take_payloads(&mut self) -> Vec<Payload>;
}

impl Split for TestInit {
    fn take_payloads(&mut self) -> Vec<Payload> {
        std::mem::take(&mut self.payloads)
    }
}

impl Split for TranslationInit {
    fn take_payloads(&mut self) -> Vec<Payload> {
        std::mem::take(&mut self.payloads)
    }
}

impl Split for ListenResponse {
    fn take_payloads(&mut self) -> Vec<Payload> {
        Vec::new()
    }
}

/// A message as it goes over the wire, with the frame of gRPC around it: a flag, four bytes of length, the message.
fn pieces<T: Split>(mut message: T) -> Result<Vec<Bytes>, Status> {
    let too_long = |_| Status::resource_exhausted("the message is longer than gRPC can say");
    let length = u32::try_from(message.encoded_len()).map_err(too_long)?;
    let payloads = message.take_payloads();
    let mut rope = Rope::default();
    rope.last.put_u8(0);
    rope.last.put_u32(length);
    rope.message(&message);
    for payload in payloads {
        rope.payload(payload);
    }
    Ok(rope.into_pieces())
}

/// Bytes in pieces, of which large ones are as they were given.
#[derive(Default)]
struct Rope {
    pieces: Vec<Bytes>,
    last: BytesMut,
}

impl Rope {
    /// The fields of a message. It grows as it has to, and nothing fails.
    fn message(&mut self, message: &impl Message) {
        let _ = message.encode(&mut self.last);
    }

    /// The beginning of a field that has a length.
    fn field(&mut self, number: u8, length: usize) {
        self.last.put_u8(number << 3 | 2);
        let _ = encode_length_delimiter(length, &mut self.last);
    }

    /// A payload, with the bytes of its file behind all else: the order of fields is free.
    fn payload(&mut self, mut payload: Payload) {
        self.field(PAYLOADS, payload.encoded_len());
        let file = payload.attachment.take();
        self.message(&payload);
        let Some(mut file) = file else { return };
        self.field(FILE, file.encoded_len());
        let data = std::mem::take(&mut file.data);
        self.message(&file);
        if !data.is_empty() {
            self.field(DATA, data.len());
            self.data(data);
        }
    }

    fn data(&mut self, data: Bytes) {
        if data.len() <= SMALL {
            return self.last.put(data);
        }
        self.pieces.extend([self.last.split().freeze(), data]);
    }

    fn into_pieces(mut self) -> Vec<Bytes> {
        if !self.last.is_empty() {
            self.pieces.push(self.last.freeze());
        }
        self.pieces
    }
}

#[cfg(test)]
mod tests;
