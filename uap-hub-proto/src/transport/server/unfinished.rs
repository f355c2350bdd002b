//! Bytes of messages that are not complete: what strangers could make the hub keep.
//!
//! The gRPC library collects a message until it has all of it. Each call counts what of its current message has come; a
//! connection and the port have a bound. Control calls, which anybody can make, and sessions are counted apart, so that
//! strangers do not use up the bytes of agents that work.

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
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;

use super::{
    budget::{Account, Full, Held, Pool},
    open::OpenCall,
};
use crate::transport::STREAM_WINDOW;

/// How fast a message must come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    time: Duration,
    /// So many bytes of the message, or what is left of it, in that time.
    bytes: usize,
}

impl Pace {
    /// The whole message in that time.
    pub(super) const fn whole(time: Duration) -> Self {
        let bytes = usize::MAX;
        Self { time, bytes }
    }

    /// As much as a stream's window in that time. When a stream that was not read for long is read again, all that could be
    /// sent on it meanwhile is there.
    pub(super) const fn steps(time: Duration) -> Self {
        let bytes = STREAM_WINDOW as usize;
        Self { time, bytes }
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
            if self.headed == 0
                && let Some((header, rest)) = piece.split_first_chunk()
            {
                // Mostly it comes whole.
                piece = rest;
                begun += header.len();
                self.head(*header);
            } else if let Some(slot) = self.header.get_mut(self.headed) {
                *slot = piece.first().copied().unwrap_or_default();
                piece = piece.get(1..).unwrap_or_default();
                (self.headed, begun) = (self.headed + 1, begun + 1);
                if self.headed == self.header.len() {
                    self.head(self.header);
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

    /// The header of a message is there.
    fn head(&mut self, header: [u8; 5]) {
        let [_, length @ ..] = header;
        self.header = header;
        self.headed = header.len();
        self.missing = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
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

    /// Notes how a body ended. An error is one of the connection, unless the peer cancelled the call. A connection that did not answer
    /// pings in time is given up with the reason that no error has, which the HTTP library takes for the end of the messages.
    fn note<T>(&self, frame: Option<&Result<T, Status>>, is_end: impl FnOnce() -> bool) {
        match frame {
            Some(Ok(_)) => {}
            // What stands between resets calls for reasons of its own when it loses its connection; who gives a call up cancels it.
            Some(Err(status)) => self.set(status.code() != tonic::Code::Cancelled),
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
    pace: Pace,
    /// Bytes of the message that have come in the time that runs.
    come: usize,
    late: Option<Pin<Box<Sleep>>>,
    /// The call that keeps its connection.
    _call: Option<OpenCall>,
}

impl<B> Counted<B> {
    pub(super) fn new(body: B, broken: Broken, pool: Arc<Pool>, of: Held, pace: Pace) -> Self {
        Self {
            body,
            broken,
            account: Account::new(pool, of),
            framing: Framing::default(),
            pace,
            come: 0,
            late: None,
            _call: None,
        }
    }

    /// Has the call keep its connection until its messages are read or dropped; what it still sends then is soon sent.
    pub(super) fn with_call(mut self, call: Option<OpenCall>) -> Self {
        self._call = call;
        self
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
        // A time that was over before the call was read again passed while the hub paused it: that is not its peer's fault.
        let is_running = (self.late.as_ref()).is_some_and(|late| late.deadline() > Instant::now());
        self.come = match is_running {
            true => self.come.saturating_add(begun),
            false => begun,
        };
        if !is_running || self.come >= self.pace.bytes {
            self.come = 0;
            self.late = Some(Box::pin(sleep(self.pace.time)));
        }
        let full = || Status::resource_exhausted("too many bytes of unfinished messages");
        self.account.add(begun).map_err(|Full| full())
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
        let between = Some(Err(Status::internal("reset by what stands between")));
        assert_eq!(noted(between, false), (true, true));
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

    const TIME: Duration = Duration::from_secs(10);

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
            Pace::whole(TIME),
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
        (pool.used(), connection.bytes())
    }

    // spec: HUB-4-6
    #[tokio::test]
    async fn what_is_unfinished_is_counted_wherever_it_is_cut() {
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

    // spec: HUB-4-6
    #[tokio::test]
    async fn connection_and_port_have_bounds_and_small_messages_pass() {
        let piece = [&[0, 0, 0, 4, 0][..], &[7; 1024]].concat();
        // All have 1,024 bytes beyond the shares, of which there are two.
        let (pool, [one, two, three]) = (Pool::new(1024, 3, 2, 2), <[Held; 3]>::default());
        assert_eq!(pool.bounds(), (512, 1024));
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
        let next = async |pieces: &[&[u8]]| {
            let mut call = call(pieces, &pool, &connection);
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

    // spec: HUB-4-4, HUB-4-6
    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_message_does_not_run_while_the_hub_does_not_read_it() {
        let (pool, connection) = (Pool::new(1000, 1, 1, 1), Held::default());
        let message = message(9);
        let mut call = call(&[&message[..6]], &pool, &connection);
        assert_eq!(read(&mut call), Ok(()));
        tokio::time::advance(2 * TIME).await;
        let piece = Bytes::copy_from_slice(&message[6..8]);
        call.body.0.push_back(piece);
        assert_eq!(read(&mut call), Ok(()), "it came meanwhile");
        tokio::time::advance(TIME).await;
        assert_eq!(read(&mut call), Err(tonic::Code::DeadlineExceeded));
    }

    /// Gives a piece, and another whenever some time has passed.
    struct Slow {
        pieces: VecDeque<Bytes>,
        next: Pin<Box<Sleep>>,
    }

    impl Body for Slow {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            ready!(self.next.as_mut().poll(cx));
            let Some(piece) = self.pieces.pop_front() else {
                return Poll::Pending;
            };
            self.next = Box::pin(sleep(TIME - Duration::from_secs(1)));
            Poll::Ready(Some(Ok(Frame::data(piece))))
        }
    }

    // spec: HUB-4-6
    #[tokio::test(start_paused = true)]
    async fn a_large_message_may_take_long_and_must_not_stop() {
        let (pool, of) = (Pool::new(1 << 20, 1, 16, 1), Held::default());
        let step = Pace::steps(TIME).bytes;
        let mut begin = [&[0][..], &u32::try_from(3 * step).unwrap().to_be_bytes()].concat();
        begin.resize(step, 7);
        let read = async |pieces: &[&[u8]]| {
            let body = Slow {
                pieces: (pieces.iter().map(|piece| Bytes::copy_from_slice(piece))).collect(),
                next: Box::pin(sleep(Duration::ZERO)),
            };
            let (broken, pace) = (Broken::default(), Pace::steps(TIME));
            let mut call = Counted::new(body, broken, pool.clone(), of.clone(), pace);
            let mut read = 0;
            loop {
                let frame = std::future::poll_fn(|cx| Pin::new(&mut call).poll_frame(cx));
                match tokio::time::timeout(10 * TIME, frame).await {
                    Ok(Some(Ok(_))) => read += 1,
                    Ok(Some(Err(status))) => return (read, Some(status.code())),
                    Ok(None) | Err(_) => return (read, None),
                }
            }
        };
        let late = Some(tonic::Code::DeadlineExceeded);
        let (whole, little) = (vec![7; step], vec![7; step / 2]);
        let end = vec![7; 5];
        assert_eq!(read(&[&begin, &whole, &whole, &end]).await, (4, None));
        assert_eq!(read(&[&begin, &whole]).await, (2, late), "it stops");
        let slow = read(&[&begin, &little, &little, &whole, &end]).await;
        assert_eq!(slow, (2, late), "too little comes");
        assert_eq!(pool.used(), 0);
    }
}
