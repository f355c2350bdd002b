//! What both drivers share: the clock, the two halves of a stream, the bytes that wait to be sent.

use core::pin::Pin;
use core::time::Duration;

use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::time::Sleep;
use ubos_common::os::Clock;
use ubos_common::time::{Mono, Now};

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

/// A stream and a clock.
pub(super) struct Wire<S> {
    read: ReadHalf<S>,
    write: WriteHalf<S>,
    clock: Clock,
    /// As long as the stream is busy: most connections are idle.
    buffer: Vec<u8>,
    calm: u8,
    unsent: Vec<u8>,
    sent: usize,
}

/// What happened on a stream.
pub(super) enum Moved {
    /// So many bytes came; 0 is the end.
    Read(usize),
    /// Bytes were sent.
    Sent,
    /// The stream takes no more bytes.
    Broken,
}

impl<S: AsyncRead + AsyncWrite> Wire<S> {
    pub(super) fn new(stream: S, clock: Clock) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self {
            read,
            write,
            clock,
            buffer: vec![0; READ.0],
            calm: 0,
            unsent: Vec::new(),
            sent: 0,
        }
    }

    pub(super) fn now(&self) -> Now {
        self.clock.now()
    }

    pub(super) const fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        if self.sent > HIGH_WATER {
            self.unsent.drain(..core::mem::take(&mut self.sent));
        }
        self.unsent.extend_from_slice(bytes);
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting() < HIGH_WATER
    }

    /// Bytes that wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.unsent.len() - self.sent
    }

    pub(super) fn received(&self, count: usize) -> &[u8] {
        self.buffer.get(..count).unwrap_or_default()
    }

    /// Reads if wanted and writes if needed, whichever comes first. May be dropped at any time.
    pub(super) async fn move_bytes(&mut self, reading: bool) -> Moved {
        if reading {
            self.fit();
        }
        let unsent = self.unsent.get(self.sent..).unwrap_or_default();
        let writing = !unsent.is_empty();
        tokio::select! {
            count = self.read.read(&mut self.buffer), if reading => {
                let count = count.unwrap_or(0);
                self.calm = match count {
                    _ if count == self.buffer.len() => FULL,
                    _ if count > READ.0 => 0,
                    _ => self.calm.saturating_add(1).min(CALM),
                };
                Moved::Read(count)
            }
            count = self.write.write(unsent), if writing => match count {
                Ok(0) | Err(_) => Moved::Broken,
                Ok(count) => {
                    self.sent += count;
                    if self.sent == self.unsent.len() {
                        self.unsent.clear();
                        if self.unsent.capacity() > UNSENT {
                            self.unsent = Vec::new();
                        }
                        self.sent = 0;
                    }
                    Moved::Sent
                }
            },
            else => std::future::pending().await,
        }
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
        let unsent = self.unsent.get(self.sent..).unwrap_or_default();
        let farewell = async {
            self.write.write_all(unsent).await?;
            self.write.shutdown().await
        };
        // A peer that is gone hears no farewell.
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }
}

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
        let Some(at) = deadline else {
            return std::future::pending().await;
        };
        if self.set.is_none_or(|set| at < set) {
            let span = at.saturating_since(self.clock.now().mono);
            self.sleep.set(tokio::time::sleep(span));
            self.set = Some(at);
        }
        self.sleep.as_mut().await;
        self.set = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An alarm that kept to the first deadline would not ring within an hour.
    #[tokio::test]
    async fn an_alarm_rings_for_a_deadline_that_came_closer() {
        let clock = Clock::start();
        let mut alarm = Alarm::new(clock);
        let late = clock.now().mono.saturating_add(Duration::from_secs(3_600));
        tokio::select! {
            biased;
            () = alarm.ring(Some(late)) => panic!("it rang at once"),
            () = std::future::ready(()) => {}
        }
        alarm.ring(Some(clock.now().mono)).await;
    }
}
