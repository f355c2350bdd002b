//! What both drivers share: a stream with the bytes that wait to be sent, and an alarm.

use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::Sleep;
use ubos_common::os::Clock;
use ubos_common::time::Mono;

/// Bytes that wait to be sent before nothing more is taken that adds to them.
pub(super) const HIGH_WATER: usize = 1 << 20;

/// Bytes of room that an empty queue of bytes keeps.
const UNSENT: usize = 64 << 10;

/// What is read at once: at first, and at most.
const READ: (usize, usize) = (4 << 10, 64 << 10);

/// Short reads in a row after which a long buffer is given back.
const CALM: u8 = 64;

/// The last read filled the buffer.
const FULL: u8 = u8::MAX;

/// How long a farewell may take to be sent.
const FAREWELL: Duration = Duration::from_secs(1);

/// A stream, and the bytes that wait to be sent on it.
pub(super) struct Wire<S: ?Sized> {
    /// As long as the stream is busy: most connections are idle.
    buffer: Vec<u8>,
    calm: u8,
    unsent: Vec<u8>,
    sent: usize,
    /// Nothing was taken since the stream was last flushed: a socket is not asked again.
    is_flushed: bool,
    stream: Pin<Box<S>>,
}

/// What happened on a stream.
pub(super) enum Moved {
    /// So many bytes came; 0 is the end.
    Read(usize),
    /// Bytes were sent, and there is room again.
    Sent,
    /// The stream takes no more bytes.
    Broken,
}

impl<S: AsyncRead + AsyncWrite + ?Sized> Wire<S> {
    // impl: OSW-1-1
    pub(super) fn new(stream: Pin<Box<S>>) -> Self {
        Self {
            buffer: vec![0; READ.0],
            calm: 0,
            unsent: Vec::new(),
            sent: 0,
            is_flushed: true,
            stream,
        }
    }

    /// Takes a frame; it is sent with the next move. Gives memory that is not needed any more.
    pub(super) fn send(&mut self, frame: Vec<u8>) -> Vec<u8> {
        self.is_flushed = false;
        if self.waiting() == 0 {
            // A frame alone is sent from where it was written.
            self.sent = 0;
            return core::mem::replace(&mut self.unsent, frame);
        }
        if self.sent > HIGH_WATER {
            self.unsent.drain(..core::mem::take(&mut self.sent));
        }
        self.unsent.extend_from_slice(&frame);
        frame
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting() < HIGH_WATER
    }

    /// Bytes that wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Whether all was written, and does not stay in the stream either.
    pub(super) fn is_sent(&self) -> bool {
        self.waiting() == 0 && self.is_flushed
    }

    pub(super) fn received(&self, count: usize) -> &[u8] {
        self.buffer.get(..count).unwrap_or_default()
    }

    /// Writes what waits, as far as the stream takes it, and has it pass that on; an error where it takes no more.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        loop {
            let unsent = self.unsent.get(self.sent..).unwrap_or_default();
            if unsent.is_empty() {
                break;
            }
            match ready!(self.stream.as_mut().poll_write(context, unsent)) {
                Ok(0) | Err(_) => return Poll::Ready(Err(Broken)),
                Ok(count) => self.sent += count,
            }
        }
        self.sent = 0;
        self.unsent.clear();
        self.unsent.shrink_to(UNSENT);
        // TLS, or a buffer, may keep the end of a frame for ever.
        if !self.is_flushed {
            ready!(self.stream.as_mut().poll_flush(context)).map_err(|_| Broken)?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what waits, and reads if wanted.
    pub(super) fn poll_move(&mut self, context: &mut Context<'_>, reading: bool) -> Poll<Moved> {
        let had_room = self.has_room();
        if let Poll::Ready(Err(Broken)) = self.poll_flush(context) {
            return Poll::Ready(Moved::Broken);
        }
        if !had_room && self.has_room() {
            return Poll::Ready(Moved::Sent);
        }
        if !reading {
            return Poll::Pending;
        }
        self.poll_read(context).map(Moved::Read)
    }

    /// Reads alone.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        self.fit();
        let mut buffer = ReadBuf::new(&mut self.buffer);
        let done = ready!(self.stream.as_mut().poll_read(context, &mut buffer));
        let count = done.map_or(0, |()| buffer.filled().len());
        self.calm = match count {
            _ if count == self.buffer.len() => FULL,
            _ if count > READ.0 => 0,
            _ => self.calm.saturating_add(1).min(CALM),
        };
        Poll::Ready(count)
    }

    /// As [`poll_move`](Self::poll_move). May be dropped at any time.
    pub(super) async fn move_bytes(&mut self, reading: bool) -> Moved {
        poll_fn(|context| self.poll_move(context, reading)).await
    }

    /// Grows the buffer after a read that filled it, and gives it back after many short ones.
    fn fit(&mut self) {
        let len = self.buffer.len();
        if self.calm == FULL {
            self.calm = 0;
            self.buffer.resize((len * 2).min(READ.1), 0);
        } else if self.calm == CALM && len > READ.0 {
            self.buffer = vec![0; READ.0];
        }
    }

    /// Sends what waits, as far as that goes in a second, and closes.
    pub(super) async fn close(&mut self) {
        let farewell = async {
            // A peer that takes no more hears no farewell.
            if poll_fn(|context| self.poll_flush(context)).await.is_ok() {
                let _ = self.stream.as_mut().shutdown().await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }
}

/// The stream takes no more bytes.
pub(super) struct Broken;

/// Waits for the deadlines of a machine.
pub(super) struct Alarm {
    clock: Clock,
    sleep: Pin<Box<Sleep>>,
    /// When it rings, if it was set: never later than the machine's deadline.
    set: Option<Mono>,
}

impl Alarm {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            set: None,
        }
    }

    /// Waits until a deadline, or to an earlier one that was dropped since: setting the timer anew for every call
    /// would cost more than a ring too many. May be dropped at any time.
    pub(super) async fn ring(&mut self, deadline: Option<Mono>) {
        poll_fn(|context| self.poll_ring(context, deadline)).await;
    }

    /// As [`ring`](Self::ring).
    pub(super) fn poll_ring(
        &mut self,
        context: &mut Context<'_>,
        deadline: Option<Mono>,
    ) -> Poll<()> {
        let Some(at) = deadline else {
            return Poll::Pending;
        };
        if self.set.is_none_or(|set| at < set) {
            let span = at.saturating_since(self.clock.mono());
            self.sleep.set(tokio::time::sleep(span));
            self.set = Some(at);
        }
        ready!(self.sleep.as_mut().poll(context));
        self.set = None;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_alarm_rings_no_sooner_than_it_is_due() {
        let clock = Clock::start();
        let mut alarm = Alarm::new(clock);
        let late = clock.mono().saturating_add(Duration::from_secs(3_600));
        for _ in 0..2 {
            let rung = tokio::time::timeout(Duration::from_secs(60), alarm.ring(Some(late)));
            assert!(rung.await.is_err());
        }
    }

    /// A stream that takes one byte less of each frame than it has, and gives nothing.
    struct Slow;

    const FRAME: usize = 10_000;

    impl AsyncWrite for Slow {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            match bytes.len() > FRAME {
                true => Poll::Ready(Ok(FRAME - 1)),
                false => Poll::Pending,
            }
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncRead for Slow {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            Poll::Pending
        }
    }

    #[test]
    fn what_was_sent_is_not_kept_while_more_waits() {
        let mut wire = Wire::new(Box::pin(Slow));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let frames = core::iter::repeat_n(FRAME, 1_000);
        for bytes in core::iter::once(2 * HIGH_WATER).chain(frames) {
            wire.send(vec![0; bytes]);
            assert!(wire.poll_flush(&mut context).is_pending());
            assert!((1..=FRAME).contains(&wire.waiting()));
            let kept = wire.unsent.len();
            assert!(kept < 2 * HIGH_WATER + 2 * FRAME, "{kept}");
        }
    }

    #[tokio::test]
    async fn what_is_read_at_once_grows_while_reads_are_full_and_shrinks_when_they_are_short() {
        let (near, mut far) = tokio::io::duplex(READ.1);
        let mut wire = Wire::new(Box::pin(near));
        // Reads so many bytes; gives how many could have been read.
        let mut read = async |bytes: usize| {
            far.write_all(&vec![0; bytes]).await.unwrap();
            let moved = wire.move_bytes(true).await;
            assert!(matches!(moved, Moved::Read(it) if it == bytes));
            wire.buffer.len()
        };
        for kib in [4, 8, 16, 32, 64, 64] {
            assert_eq!(read(kib << 10).await, kib << 10);
        }
        for _ in 1..CALM {
            read(READ.0).await;
        }
        read(READ.0 + 1).await;
        for _ in 0..CALM {
            assert_eq!(read(READ.0).await, READ.1);
        }
        assert_eq!(read(READ.0).await, READ.0);
    }

    /// An alarm that kept to the first deadline would not ring within an hour.
    #[tokio::test]
    async fn an_alarm_rings_for_a_deadline_that_came_closer() {
        let clock = Clock::start();
        let mut alarm = Alarm::new(clock);
        let late = clock.mono().saturating_add(Duration::from_secs(3_600));
        tokio::select! {
            biased;
            () = alarm.ring(Some(late)) => panic!("it rang at once"),
            () = std::future::ready(()) => {}
        }
        alarm.ring(Some(clock.mono())).await;
    }
}
