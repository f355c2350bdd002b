//! Bytes of messages that agents have not taken: what those that read nothing could make the hub keep.
//!
//! The gRPC library makes the bytes of a message at once, and the HTTP library takes all that it is given and keeps what the
//! windows of the peer do not let through. So it is given pieces: at most two of a call are with it, and it asks for the next
//! message when it has the last piece of this one. Until then a message counts, also where the hub has ended the call meanwhile.
//! One that finds no room waits as the hub has it, without bytes of its own.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use tokio::{sync::futures::OwnedNotified, time::sleep};
use tonic::{Status, body::Body};

use super::{
    call::CallState,
    connection::Peer,
    unfinished::{Account, Held, Pool},
};
use crate::transport::spawn;

/// A message of so many bytes is not counted: a stream itself takes as much.
const SMALL: usize = 4 << 10;

/// The bytes that the HTTP library is given at once.
const PIECE: usize = 64 << 10;

/// What the calls of sessions share.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pool: Arc<Pool>,
    /// How long the peer of a call that has ended may leave what it was sent.
    patience: Duration,
}

impl Outgoing {
    pub(super) const fn new(pool: Arc<Pool>, patience: Duration) -> Self {
        Self { pool, patience }
    }
}

/// What the peer of a call has not taken.
#[derive(Debug)]
pub(super) struct Unread {
    account: Account,
    outgoing: Outgoing,
    peer: Option<Peer>,
    /// While a message waits: there may be room.
    room: Option<Pin<Box<OwnedNotified>>>,
    /// Whether the message that was handed over was taken.
    was_taken: Option<Arc<AtomicBool>>,
}

impl Unread {
    pub(super) fn new(outgoing: Outgoing, peer: Option<Peer>) -> Self {
        let held = peer.as_ref().map(|peer| peer.held[2].clone());
        Self::of(outgoing, held.unwrap_or_default(), peer)
    }

    fn of(outgoing: Outgoing, held: Held, peer: Option<Peer>) -> Self {
        Self {
            account: Account::new(outgoing.pool.clone(), held),
            outgoing,
            peer,
            room: None,
            was_taken: None,
        }
    }

    /// What was handed over has found its way, or is dropped.
    pub(super) fn taken(&mut self) {
        self.account.give_back();
        if let Some(was_taken) = self.was_taken.take() {
            was_taken.store(true, Ordering::Relaxed);
        }
    }

    /// Counts a message that is to be handed over, where there is room for it.
    // impl: HUB-4-6
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        if bytes <= SMALL {
            return Poll::Ready(());
        }
        while !self.account.try_add(bytes) {
            // Made before the next look, so that nothing that is given back in between is missed.
            let is_first = self.room.is_none();
            let room = self
                .room
                .get_or_insert_with(|| Box::pin(self.outgoing.pool.room()));
            if room.as_mut().poll(cx).is_ready() {
                self.room = None;
            } else if !is_first {
                return Poll::Pending;
            }
        }
        self.room = None;
        Poll::Ready(())
    }

    /// Sees to it that a message which is handed over does not stay for long once its call has ended: then nobody can be told
    /// of anything on that call, and its connection is given up.
    pub(super) fn watch(&mut self, call: &CallState, bytes: usize) {
        let Some(peer) = self.peer.clone().filter(|_| bytes > SMALL) else {
            return;
        };
        let was_taken = Arc::new(AtomicBool::new(false));
        self.was_taken = Some(was_taken.clone());
        let (call, patience) = (call.clone(), self.outgoing.patience);
        spawn(async move {
            let mut had_ended = false;
            while !(had_ended && call.has_ended()) {
                had_ended = call.has_ended();
                sleep(patience).await;
                if was_taken.load(Ordering::Relaxed) {
                    return;
                }
            }
            peer.give_up();
        });
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.taken();
    }
}

/// The body of an answer, in pieces.
#[derive(Debug)]
pub(super) struct Pieces {
    body: Body,
    rest: Bytes,
}

impl Pieces {
    pub(super) const fn of(body: Body) -> Self {
        let rest = Bytes::new();
        Self { body, rest }
    }

    /// A piece of its own, so that the last one does not keep the bytes of all; a short message as it is.
    fn next(&mut self) -> Bytes {
        if self.rest.len() <= PIECE && self.rest.is_unique() {
            return std::mem::take(&mut self.rest);
        }
        let piece = self.rest.split_to(PIECE.min(self.rest.len()));
        Bytes::copy_from_slice(&piece)
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(bytes))) => self.rest = bytes,
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                None => return Poll::Ready(None),
            }
        }
        Poll::Ready(Some(Ok(Frame::data(self.next()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// So many calls of one connection, which may keep two messages of 10,000 bytes beside its share of as many.
    fn calls<const N: usize>() -> [Unread; N] {
        let outgoing = Outgoing::new(Pool::new(10_000, 4, 4, 1), Duration::ZERO);
        let held = Held::default();
        [(); N].map(|()| Unread::of(outgoing.clone(), held.clone(), None))
    }

    // spec: HUB-4-6
    #[test]
    fn a_message_waits_until_another_is_taken() {
        let [mut one, mut two, mut three] = calls();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(one.poll_room(&mut cx, 30_000).is_ready());
        assert!(two.poll_room(&mut cx, 10_001).is_pending());
        assert!(two.poll_room(&mut cx, 10_000).is_ready(), "to the byte");
        assert!(three.poll_room(&mut cx, SMALL).is_ready());
        assert!(three.poll_room(&mut cx, SMALL + 1).is_pending());
        assert!(three.poll_room(&mut cx, SMALL + 1).is_pending());
        assert!(!woken.0.load(Ordering::Relaxed), "nothing was given back");
        two.taken();
        assert!(woken.0.load(Ordering::Relaxed));
        assert!(three.poll_room(&mut cx, SMALL + 1).is_ready());
        assert!(two.poll_room(&mut cx, 10_000).is_pending());
        drop(one);
        assert!(two.poll_room(&mut cx, 10_000).is_ready());
    }
}
