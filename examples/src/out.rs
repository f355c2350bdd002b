//! Standard output, or standard error, behind a queue and a thread of its own: who says something never waits for who reads.

use std::collections::VecDeque;
use std::io::Write;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::Notify;

/// Bytes of lines that wait to be written, and one line more. Beyond it news is left out, and jobs wait.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// The queue of lines. Clones are one queue.
#[derive(Clone)]
pub(crate) struct Out(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// For the thread that writes: there is a line, or there will be none.
    written: Condvar,
    /// For those who wait: there is room again, all is written, or nobody reads.
    changed: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<String>,
    bytes: usize,
    /// Until half of the bytes are written.
    is_full: bool,
    /// Lines of news that found no room.
    left_out: u64,
    is_writing: bool,
    is_broken: bool,
}

impl Out {
    /// Starts the thread that writes, and lives as long as the program; `left_out` makes the line that says how many were left out.
    pub(crate) fn start(
        mut to: impl Write + Send + 'static,
        left_out: impl Fn(u64) -> String + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            written: Condvar::new(),
            changed: Notify::new(),
        });
        let writing = Arc::clone(&shared);
        let write = move || {
            while let Some(line) = writing.next(&left_out) {
                let is_broken = to
                    .write_all(line.as_bytes())
                    .and_then(|()| to.flush())
                    .is_err();
                writing.wrote(line.len(), is_broken);
            }
        };
        if thread::Builder::new()
            .name("lines".to_owned())
            .spawn(write)
            .is_err()
        {
            shared.lock().is_broken = true;
        }
        Self(shared)
    }

    /// Adds a line of news, or counts it where there is no room.
    pub(crate) fn news(&self, line: String) {
        let mut state = self.0.lock();
        if state.is_full {
            state.left_out += 1;
        } else {
            self.0.add(&mut state, line);
        }
    }

    /// Adds a line in any case: whoever calls waited for [`room`](Self::room), or has few.
    pub(crate) fn add(&self, line: String) {
        self.0.add(&mut self.0.lock(), line);
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.0.lock().is_full
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.0.lock().is_broken
    }

    /// Waits until lines may be added, or nobody reads them.
    pub(crate) async fn room(&self) {
        self.until(|state| !state.is_full || state.is_broken).await;
    }

    /// Waits until nobody reads.
    pub(crate) async fn broken(&self) {
        self.until(|state| state.is_broken).await;
    }

    /// Waits until all is written, or nobody reads.
    pub(crate) async fn flushed(&self) {
        self.until(State::is_over).await;
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // Before the look, so that no change is missed.
            changed.as_mut().enable();
            if is_so(&self.0.lock()) {
                return;
            }
            changed.await;
        }
    }
}

impl State {
    fn is_over(&self) -> bool {
        let is_written = self.waiting.is_empty() && !self.is_writing && self.left_out == 0;
        is_written || self.is_broken
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, state: &mut State, line: String) {
        // Nobody will read it.
        if state.is_broken {
            return;
        }
        state.bytes += line.len();
        state.waiting.push_back(line);
        state.is_full |= state.bytes >= MAX_WAITING_BYTES;
        self.written.notify_one();
    }

    /// The next line; `None` where nobody reads.
    fn next(&self, left_out: &impl Fn(u64) -> String) -> Option<String> {
        let mut state = self.lock();
        loop {
            if state.is_broken {
                return None;
            }
            if !state.is_full && state.left_out > 0 {
                let line = left_out(std::mem::take(&mut state.left_out));
                self.add(&mut state, line);
            }
            if let Some(line) = state.waiting.pop_front() {
                state.is_writing = true;
                return Some(line);
            }
            state = self
                .written
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wrote(&self, bytes: usize, is_broken: bool) {
        let mut state = self.lock();
        state.is_writing = false;
        state.bytes -= bytes;
        state.is_broken |= is_broken;
        if state.is_broken {
            state.waiting.clear();
        }
        let has_room_again = state.is_full && state.bytes <= MAX_WAITING_BYTES / 2;
        state.is_full &= !has_room_again;
        if has_room_again || state.is_broken || state.waiting.is_empty() {
            self.changed.notify_waiters();
        }
    }
}
