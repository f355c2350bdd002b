//! Reading ahead: while one piece of a file is proven, a thread reads the next.

use super::file::{LogFile, read_full};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Room before a piece, for what is left of the one before it.
pub(crate) const HEADROOM: usize = 256 << 10;
/// Bytes of a piece.
const PIECE: usize = 1 << 20;

/// A thread that reads pieces of one file; it ends with this value.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    asked: SyncSender<(Vec<u8>, u64)>,
    read: Receiver<(Vec<u8>, io::Result<usize>)>,
    /// The piece that the thread reads, by its offset.
    pending: Option<u64>,
}

impl ReadAhead {
    /// A thread for a file, or `None` where the system gives no thread: then reads are not ahead.
    pub(crate) fn new(file: Arc<dyn LogFile>) -> Option<Self> {
        let (asked, questions) = sync_channel::<(Vec<u8>, u64)>(1);
        let (answers, read) = sync_channel(1);
        let serve = move || {
            for (mut buffer, offset) in questions {
                buffer.resize(HEADROOM + PIECE, 0);
                let piece = buffer.get_mut(HEADROOM..).unwrap_or_default();
                let count = read_full(file.as_ref(), piece, offset);
                if answers.send((buffer, count)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("log read ahead".to_owned())
            .spawn(serve)
            .ok()?;
        Some(Self {
            asked,
            read,
            pending: None,
        })
    }

    /// The piece at `offset` and how much of it there is, behind [`HEADROOM`] in its buffer; the thread goes
    /// on with the one behind it, in `spare`.
    pub(crate) fn piece(&mut self, offset: u64, spare: Vec<u8>) -> io::Result<(Vec<u8>, usize)> {
        let mut spare = spare;
        if self.pending.is_some_and(|pending| pending != offset) {
            // Somebody jumped: what is read now is not wanted.
            spare = self.receive()?.0;
        }
        if self.pending.is_none() {
            self.ask(core::mem::take(&mut spare), offset)?;
        }
        let (buffer, count) = self.receive()?;
        let count = count?;
        if count == PIECE {
            self.ask(spare, offset + PIECE as u64)?;
        }
        Ok((buffer, count))
    }

    fn ask(&mut self, buffer: Vec<u8>, offset: u64) -> io::Result<()> {
        self.pending = Some(offset);
        self.asked.send((buffer, offset)).map_err(|_| gone())
    }

    fn receive(&mut self) -> io::Result<(Vec<u8>, io::Result<usize>)> {
        self.pending = None;
        self.read.recv().map_err(|_| gone())
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that reads ahead is gone")
}
