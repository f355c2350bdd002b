//! Bytes of messages that are not complete: what strangers could make the hub keep.
//!
//! The gRPC library collects a message until it has all of it. Each call counts what of its current message has come; a
//! connection and the port have a bound. Control calls, which anybody can make, and sessions are counted apart, so that
//! strangers do not use up the bytes of agents that work.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;

/// What a connection may keep at most of its own, even when the others fill the port.
const MAX_SHARE: usize = 64 << 10;

/// The bytes that unfinished messages of one kind of call take on the whole port, and their bounds. Each connection that there
/// may be has a small share of its own, so that small messages always pass; what a connection keeps beyond it is taken of what
/// all have together.
#[derive(Debug)]
pub(super) struct Pool {
    /// Bytes beyond the shares.
    used: AtomicUsize,
    most: usize,
    share: usize,
    most_of_connection: usize,
}

impl Pool {
    /// A pool for messages of at most `bytes`: `a_connection` of them on a connection, `in_all` on the port with so many
    /// connections. Half of all that goes into the shares.
    pub(super) fn new(
        bytes: usize,
        a_connection: usize,
        in_all: usize,
        connections: usize,
    ) -> Arc<Self> {
        let all = bytes.saturating_mul(in_all);
        let share = (all / 2 / connections.max(1)).min(MAX_SHARE);
        Arc::new(Self {
            used: AtomicUsize::new(0),
            most: all - share.saturating_mul(connections),
            share,
            most_of_connection: bytes.saturating_mul(a_connection),
        })
    }

    /// How much of what a connection keeps is beyond its share.
    const fn beyond(&self, kept: usize) -> usize {
        kept.saturating_sub(self.share)
    }
}

/// The bytes that unfinished messages of one kind of call take on a connection.
pub(super) type Held = Arc<AtomicUsize>;

/// The bytes of one call, given back when it is dropped.
#[derive(Debug)]
struct Account {
    pool: Arc<Pool>,
    connection: Held,
    held: usize,
}

impl Account {
    fn add(&mut self, bytes: usize) -> Result<(), Status> {
        self.held += bytes;
        let pool = &self.pool;
        let before = self.connection.fetch_add(bytes, Ordering::Relaxed);
        let own = before + bytes;
        let beyond = pool.beyond(own) - pool.beyond(before);
        let all = pool.used.fetch_add(beyond, Ordering::Relaxed) + beyond;
        if own > pool.most_of_connection || (beyond > 0 && all > pool.most) {
            return Err(Status::resource_exhausted(
                "too many bytes of unfinished messages",
            ));
        }
        Ok(())
    }

    fn give_back(&mut self) {
        let held = std::mem::take(&mut self.held);
        let before = self.connection.fetch_sub(held, Ordering::Relaxed);
        let beyond = self.pool.beyond(before) - self.pool.beyond(before - held);
        self.pool.used.fetch_sub(beyond, Ordering::Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Where in gRPC's framing a call is: a flag, four bytes of length, the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Framing {
    header: [u8; 5],
    /// Bytes of the header that have come.
    headed: usize,
    /// Bytes of the message that have not come.
    missing: usize,
}

impl Framing {
    /// Reads a piece; returns whether a message ended in it, and the bytes of it that belong to the unfinished one.
    fn read(&mut self, mut piece: &[u8]) -> (bool, usize) {
        let (mut has_ended, mut begun) = (false, 0);
        while !piece.is_empty() {
            if let Some(slot) = self.header.get_mut(self.headed) {
                *slot = piece.first().copied().unwrap_or_default();
                piece = piece.get(1..).unwrap_or_default();
                (self.headed, begun) = (self.headed + 1, begun + 1);
                if self.headed == self.header.len() {
                    let [_, length @ ..] = self.header;
                    self.missing =
                        usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                }
            } else {
                let taken = self.missing.min(piece.len());
                piece = piece.get(taken..).unwrap_or_default();
                (self.missing, begun) = (self.missing - taken, begun + taken);
            }
            if self.headed == self.header.len() && self.missing == 0 {
                (self.headed, begun, has_ended) = (0, 0, true);
            }
        }
        (has_ended, begun)
    }

    const fn is_between_messages(&self) -> bool {
        self.headed == 0
    }
}

/// Whether reading a call failed. The gRPC library ends the messages of a broken call as if it were half-closed.
#[derive(Clone, Debug, Default)]
pub(super) struct Broken(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    is_set: AtomicBool,
    is_lost: AtomicBool,
}

impl Broken {
    pub(super) fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Relaxed)
    }

    /// Whether it failed because its connection did.
    pub(super) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Relaxed)
    }

    fn set(&self, is_lost: bool) {
        self.0.is_lost.fetch_or(is_lost, Ordering::Relaxed);
        self.0.is_set.store(true, Ordering::Relaxed);
    }

    /// Notes how a body ended. An error without a reason of HTTP/2 is one of the connection. A connection that did not answer
    /// pings in time is given up with the reason that no error has, which the HTTP library takes for the end of the messages.
    fn note<T>(&self, frame: Option<&Result<T, Status>>, is_end: impl FnOnce() -> bool) {
        match frame {
            Some(Ok(_)) => {}
            Some(Err(status)) => self.set(status.code() == tonic::Code::Unknown),
            None if is_end() => {}
            None => self.set(true),
        }
    }
}

/// The body of a call, counted.
#[derive(Debug)]
pub(super) struct Counted<B> {
    body: B,
    broken: Broken,
    account: Account,
    framing: Framing,
    /// How long a message may take from its first byte to its last, where that is limited.
    time: Option<Duration>,
    late: Option<Pin<Box<Sleep>>>,
}

impl<B> Counted<B> {
    pub(super) fn new(
        body: B,
        broken: Broken,
        pool: Arc<Pool>,
        connection: Held,
        time: Option<Duration>,
    ) -> Self {
        Self {
            body,
            broken,
            account: Account {
                pool,
                connection,
                held: 0,
            },
            framing: Framing::default(),
            time,
            late: None,
        }
    }

    fn count(&mut self, piece: &[u8]) -> Result<(), Status> {
        let (has_ended, begun) = self.framing.read(piece);
        if has_ended {
            self.account.give_back();
            self.late = None;
        }
        if self.framing.is_between_messages() {
            return Ok(());
        }
        if self.late.is_none() {
            self.late = self.time.map(|time| Box::pin(sleep(time)));
        }
        self.account.add(begun)
    }
}

impl<B> Body for Counted<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    // impl: HUB-4-6
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.broken
                .note(frame.as_ref(), || self.body.is_end_stream());
            return Poll::Ready(match frame {
                Some(Ok(frame)) => Some(match frame.data_ref().map(|piece| self.count(piece)) {
                    Some(Err(refused)) => Err(refused),
                    Some(Ok(())) | None => Ok(frame),
                }),
                other => other,
            });
        }
        let Some(late) = &mut self.late else {
            return Poll::Pending;
        };
        ready!(late.as_mut().poll(cx));
        let why = "the message was not complete in time";
        Poll::Ready(Some(Err(Status::deadline_exceeded(why))))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, task::Waker};

    use super::*;

    // spec: HUB-5-1
    #[test]
    fn what_ends_before_its_last_frame_was_lost_with_its_connection() {
        let noted = |frame: Option<Result<(), Status>>, is_end| {
            let broken = Broken::default();
            broken.note(frame.as_ref(), || is_end);
            (broken.is_set(), broken.is_lost())
        };
        assert_eq!(noted(Some(Ok(())), false), (false, false));
        assert_eq!(noted(None, true), (false, false), "half-closed");
        assert_eq!(noted(None, false), (true, true));
        let reset = Some(Err(Status::cancelled("")));
        assert_eq!(noted(reset, false), (true, false));
        let closed = Some(Err(Status::unknown("broken pipe")));
        assert_eq!(noted(closed, false), (true, true));
    }

    /// Gives its pieces, and then nothing for ever.
    struct Pieces(VecDeque<Bytes>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match self.0.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                None => Poll::Pending,
            }
        }
    }

    fn message(bytes: u8) -> Vec<u8> {
        let mut message = vec![0, 0, 0, 0, bytes];
        message.resize(5 + usize::from(bytes), 7);
        message
    }

    fn call(pieces: &[&[u8]], pool: &Arc<Pool>, connection: &Held) -> Counted<Pieces> {
        let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece));
        Counted::new(
            Pieces(pieces.collect()),
            Broken::default(),
            pool.clone(),
            connection.clone(),
            None,
        )
    }

    /// Reads all pieces; how that ended.
    fn read(call: &mut Counted<Pieces>) -> Result<(), tonic::Code> {
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            match Pin::new(&mut *call).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(status))) => return Err(status.code()),
                Poll::Ready(None) | Poll::Pending => return Ok(()),
            }
        }
    }

    fn used(pool: &Pool, connection: &Held) -> (usize, usize) {
        (
            pool.used.load(Ordering::Relaxed),
            connection.load(Ordering::Relaxed),
        )
    }

    // spec: HUB-4-6
    #[test]
    fn what_is_unfinished_is_counted_wherever_it_is_cut() {
        let stream = [message(3), message(0), message(9)].concat();
        let ends = [8, 13, stream.len()];
        for cut in 0..=stream.len() {
            // Shares of four bytes.
            let (pool, connection) = (Pool::new(1000, 1, 1, 125), Held::default());
            let mut call = call(
                &[&stream[..cut / 2], &stream[cut / 2..cut]],
                &pool,
                &connection,
            );
            assert_eq!(read(&mut call), Ok(()));
            let begin = ends.iter().rfind(|end| **end <= cut).unwrap_or(&0);
            let kept = cut - begin;
            let beyond = kept.saturating_sub(4);
            assert_eq!(used(&pool, &connection), (beyond, kept), "{cut}");
            drop(call);
            assert_eq!(used(&pool, &connection), (0, 0));
        }
    }

    fn account(pool: &Arc<Pool>) -> Account {
        Account {
            pool: pool.clone(),
            connection: Held::default(),
            held: 0,
        }
    }

    // spec: HUB-4-6
    #[test]
    fn what_reaches_a_bound_is_not_beyond_it() {
        let is_at_bound = |mut account: Account, bytes| {
            assert!(account.add(bytes).is_ok());
            assert!(account.add(1).is_err());
        };
        is_at_bound(account(&Pool::new(1000, 2, 8, 1)), 2000);
        is_at_bound(account(&Pool::new(1000, 4, 2, 1)), 2000);
        let pool = Pool::new(1000, 4, 2, 4);
        let mut first = account(&pool);
        assert!(first.add(1250).is_ok());
        is_at_bound(account(&pool), 250);
    }

    // spec: HUB-4-6
    #[test]
    fn all_connections_together_keep_no_more_than_is_said() {
        const CONNECTIONS: usize = 16_384;
        let pool = Pool::new(1 << 20, 4, 64, CONNECTIONS);
        let mut accounts: Vec<_> = (0..CONNECTIONS).map(|_| account(&pool)).collect();
        assert_eq!(pool.share, 2 << 10);
        assert!(accounts.iter_mut().all(|one| one.add(2 << 10).is_ok()));
        let mut more = 0;
        while accounts[more % CONNECTIONS].add(1 << 10).is_ok() {
            more += 1;
        }
        assert_eq!(more, 32 << 10, "the other half");
    }

    // spec: HUB-4-6
    #[test]
    fn connection_and_port_have_bounds_and_small_messages_pass() {
        let piece = [&[0, 0, 0, 4, 0][..], &[7; 1024]].concat();
        // All have 1,024 bytes beyond the shares, of which there are two.
        let (pool, [one, two, three]) = (Pool::new(1024, 3, 2, 2), <[Held; 3]>::default());
        assert_eq!((pool.share, pool.most), (512, 1024));
        let mut first = call(&[&piece[..1000]], &pool, &one);
        assert_eq!(read(&mut first), Ok(()));
        let mut beyond = call(&[&piece[..1000]], &pool, &one);
        assert_eq!(read(&mut beyond), Err(tonic::Code::ResourceExhausted));
        drop(beyond);
        let mut other = call(&[&piece[..1000], &piece[1000..]], &pool, &two);
        assert_eq!(read(&mut other), Ok(()), "complete in the end");
        let mut begun = call(&[&piece[..1000]], &pool, &two);
        assert_eq!(read(&mut begun), Ok(()));
        let mut small = call(&[&message(200), &message(200)[..9]], &pool, &three);
        assert_eq!(
            read(&mut small),
            Ok(()),
            "the port is full, and this is little"
        );
        let mut large = call(&[&piece[..1000]], &pool, &two);
        assert_eq!(read(&mut large), Err(tonic::Code::ResourceExhausted));
        drop((first, large, begun));
        assert_eq!(used(&pool, &one), (0, 0));
        let mut again = call(&[&piece[..1000]], &pool, &one);
        assert_eq!(read(&mut again), Ok(()));
        let crowded = Pool::new(1024, 1, 8, 1);
        let mut more = call(&[&piece[..1000]], &crowded, &three);
        assert_eq!(read(&mut more), Ok(()));
        let mut most = call(&[&piece[..1000]], &crowded, &three);
        assert_eq!(read(&mut most), Err(tonic::Code::ResourceExhausted));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_stops_is_late_and_silence_between_messages_is_not() {
        let (pool, connection) = (Pool::new(1000, 1, 1, 1), Held::default());
        let time = Some(Duration::from_secs(10));
        let next = async |pieces: &[&[u8]]| {
            let mut call = call(pieces, &pool, &connection);
            call.time = time;
            let frames = async {
                loop {
                    let frame = std::future::poll_fn(|cx| Pin::new(&mut call).poll_frame(cx)).await;
                    if let Some(Err(status)) = frame {
                        return status.code();
                    }
                }
            };
            tokio::time::timeout(Duration::from_secs(60), frames).await
        };
        let late = next(&[&message(9)[..3]]).await;
        assert_eq!(late.unwrap(), tonic::Code::DeadlineExceeded);
        assert!(next(&[&message(9)[..3], &message(9)[3..]]).await.is_err());
    }
}
