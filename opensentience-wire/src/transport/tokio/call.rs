//! One call of an agent's tool: what its handle and its driver share.

use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use super::sync::{Mutex, MutexGuard};
use crate::error::{ErrorCode, ErrorObject};
use crate::ledger::Charge;
use crate::message::ToolStream;
use crate::role::CallId;
use crate::role::core::Outcome;

/// A piece of output, and its entry in the ledger of its agent.
pub(super) struct Piece {
    pub(super) chunk: Box<ToolStream>,
    #[expect(dead_code, reason = "gives its bytes back where it is dropped")]
    pub(super) charge: Charge,
}

/// How much output of one call waits for its reader. When there is more, nothing is read from the agent.
#[derive(Clone, Copy, Default)]
pub(super) struct Room {
    pieces: usize,
    bytes: usize,
}

impl Room {
    /// Of a call at its connection.
    const CONNECTION: Self = Self {
        pieces: 64,
        bytes: 1 << 20,
    };

    /// Of a call behind a router, whose connection keeps the rest.
    #[cfg(unix)]
    const ROUTER: Self = Self {
        pieces: 8,
        bytes: 64 << 10,
    };
}

/// What a call and its driver share.
#[derive(Default)]
struct SharedCall(Mutex<CallState>);

#[derive(Default)]
struct CallState {
    room: Room,
    pieces: VecDeque<Piece>,
    /// What the pieces hold together.
    bytes: usize,
    outcome: Option<Box<Outcome>>,
    /// The end came, whoever took it.
    has_ended: bool,
    /// Nobody takes output any more.
    is_deaf: bool,
    /// The handle wants nothing more of its driver: the call has ended and its output is taken, or nobody wants it.
    is_settled: bool,
    /// More pieces wait than may.
    is_full: bool,
    reader: Option<Waker>,
    /// Who waits for room.
    writer: Option<Waker>,
}

impl SharedCall {
    fn lock(&self) -> MutexGuard<'_, CallState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes output with `take`, and says what that changed.
    fn take<T>(&self, take: impl FnOnce(&mut CallState) -> T) -> (T, Change) {
        let mut state = self.lock();
        let taken = take(&mut state);
        let change = state.look();
        let writer = state.writer.take_if(|_| change.has_room);
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
        (taken, change)
    }
}

impl CallState {
    fn push(&mut self, piece: Piece) {
        self.bytes = self.bytes.saturating_add(piece.chunk.weight());
        self.pieces.push_back(piece);
    }

    fn pop(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop_front()?;
        self.bytes = self.bytes.saturating_sub(piece.chunk.weight());
        Some(piece)
    }

    /// What has become of the call since the last look.
    fn look(&mut self) -> Change {
        // After the end no more pieces come.
        let is_over = self.pieces.len() > self.room.pieces || self.bytes > self.room.bytes;
        let is_full = !self.has_ended && is_over;
        let was_full = core::mem::replace(&mut self.is_full, is_full);
        let is_settled = self.has_ended && self.pieces.is_empty();
        let was_settled = core::mem::replace(&mut self.is_settled, is_settled);
        Change {
            is_full: is_full && !was_full,
            has_room: was_full && !is_full,
            is_settled: is_settled && !was_settled,
        }
    }
}

/// What has become of a call, each said once.
#[derive(Clone, Copy, Default)]
pub(super) struct Change {
    /// More pieces wait than may.
    pub(super) is_full: bool,
    /// There is room for pieces again.
    pub(super) has_room: bool,
    /// It has ended, and nothing waits for its reader.
    pub(super) is_settled: bool,
}

/// The driver's end of a call. A call whose driver is gone has failed.
pub(super) struct CallDriver(Arc<SharedCall>);

impl CallDriver {
    /// Adds a piece of output; what nobody takes is dropped. The reader is to be woken.
    pub(super) fn push(&self, piece: Piece) -> (Change, Option<Waker>) {
        let mut state = self.0.lock();
        // One that nobody takes is dropped behind the lock, as an argument is.
        if !state.is_deaf {
            state.push(piece);
        }
        (state.look(), state.reader.take())
    }

    /// Ends the call. The reader is to be woken.
    pub(super) fn end(&self, outcome: Box<Outcome>) -> (Change, Option<Waker>) {
        let mut state = self.0.lock();
        state.outcome = Some(outcome);
        state.has_ended = true;
        (state.look(), state.reader.take())
    }

    /// Waits until there is room for another piece.
    // impl: OSW-4.3-11
    #[cfg(unix)]
    pub(super) async fn room(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if !state.is_full {
                return Poll::Ready(());
            }
            wait(&mut state.writer, context);
            Poll::Pending
        })
        .await;
    }
}

impl Drop for CallDriver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.has_ended {
            return;
        }
        state.has_ended = true;
        let error = ErrorObject::of(ErrorCode::AgentDisconnected, "the driver has ended");
        state.outcome = Some(Box::new(Outcome::failed(error)));
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// What a call asks of its driver.
pub(super) trait Link<I>: Send + Sync {
    /// Cancels the call, if it has not ended.
    fn cancel(&self, id: &I);

    /// Output was taken or given up.
    fn on_change(&self, change: Change);
}

/// A call that runs. Dropping it before its result cancels it.
///
/// A connection names it by its [`CallId`], a router by a [`RouteId`](crate::role::router::RouteId).
pub struct RunningCall<I = CallId> {
    id: I,
    shared: Arc<SharedCall>,
    link: Arc<dyn Link<I>>,
    is_canceled: core::sync::atomic::AtomicBool,
}

impl<I> RunningCall<I> {
    /// Both ends of a call.
    pub(super) fn new(id: I, link: Arc<dyn Link<I>>) -> (Self, CallDriver) {
        Self::within(Room::CONNECTION, id, link)
    }

    /// Both ends of a call behind a router.
    #[cfg(unix)]
    pub(super) fn routed(id: I, link: Arc<dyn Link<I>>) -> (Self, CallDriver) {
        Self::within(Room::ROUTER, id, link)
    }

    fn within(room: Room, id: I, link: Arc<dyn Link<I>>) -> (Self, CallDriver) {
        let state = CallState {
            room,
            ..CallState::default()
        };
        let shared = Arc::new(SharedCall(Mutex::new(state)));
        let driver = CallDriver(Arc::clone(&shared));
        let call = Self {
            id,
            shared,
            link,
            is_canceled: false.into(),
        };
        (call, driver)
    }

    /// The call's id.
    #[must_use]
    pub const fn id(&self) -> &I {
        &self.id
    }

    /// The next piece of output, or `None` when no more come. Cancel safe. A call that waits for another with its
    /// idempotency key has none.
    ///
    /// Take them, or take the result: an agent whose output nobody takes is not read from.
    pub async fn next_chunk(&mut self) -> Option<ToolStream> {
        self.next_piece().await.map(|piece| *piece.chunk)
    }

    /// As [`next_chunk`](Self::next_chunk), with the entry of the piece for whoever keeps it.
    pub(super) async fn next_piece(&mut self) -> Option<Piece> {
        poll_fn(|context| {
            let (piece, change) = self.shared.take(|state| match state.pop() {
                None if !state.has_ended => {
                    wait(&mut state.reader, context);
                    Poll::Pending
                }
                piece => Poll::Ready(piece),
            });
            self.link.on_change(change);
            piece
        })
        .await
    }

    /// Waits for the end of the call, which it leaves there.
    #[cfg(unix)]
    pub(super) async fn ended(&self) {
        poll_fn(|context| {
            let mut state = self.shared.lock();
            if state.has_ended {
                return Poll::Ready(());
            }
            wait(&mut state.reader, context);
            Poll::Pending
        })
        .await;
    }

    /// Asks the agent to stop. The result still comes; asking again changes nothing.
    pub fn cancel(&self) {
        if !self
            .is_canceled
            .swap(true, core::sync::atomic::Ordering::Relaxed)
        {
            self.link.cancel(&self.id);
        }
    }

    /// How the call ended. Output that was not taken is dropped.
    pub async fn result(self) -> Outcome {
        let mut outcome = self.end().await;
        // From now on it counts for the application.
        outcome.charge = Charge::default();
        *outcome
    }

    /// As [`result`](Self::result), for whoever keeps it for somebody else.
    pub(super) async fn end(self) -> Box<Outcome> {
        self.give_up_output();
        poll_fn(|context| {
            let mut state = self.shared.lock();
            match state.outcome.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => {
                    wait(&mut state.reader, context);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Drops the output that waits, and what is still to come; gives whether the call has ended.
    fn give_up_output(&self) -> bool {
        let ((pieces, has_ended), change) = self.shared.take(|state| {
            state.is_deaf = true;
            state.bytes = 0;
            (core::mem::take(&mut state.pieces), state.has_ended)
        });
        drop(pieces);
        self.link.on_change(change);
        has_ended
    }
}

/// Has the task woken by whoever takes this place.
pub(super) fn wait(place: &mut Option<Waker>, context: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(context.waker()),
        None => *place = Some(context.waker().clone()),
    }
}

impl<I> Drop for RunningCall<I> {
    fn drop(&mut self) {
        // A call that has ended needs no cancel.
        if !self.give_up_output() {
            self.cancel();
        }
    }
}

impl<I: fmt::Debug> fmt::Debug for RunningCall<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunningCall({:?})", self.id)
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use core::pin::pin;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::ledger::{Ledger, Share};
    use crate::message::{Channel, ChunkData};

    struct NoDriver;

    impl Link<CallId> for NoDriver {
        fn cancel(&self, _: &CallId) {}

        fn on_change(&self, _: Change) {}
    }

    fn piece(ledger: &Ledger, text: &str) -> Piece {
        let mut data = ChunkData::new();
        data.text = Some(text.to_owned());
        let chunk = Box::new(ToolStream::new(String::new(), 1, Channel::Stdout, data));
        let charge = ledger.take(Share::Output, chunk.weight()).unwrap();
        Piece { chunk, charge }
    }

    #[tokio::test]
    async fn output_counts_once_until_it_is_taken_and_a_router_keeps_little_of_it() {
        let ledger = Ledger::new(160 << 20);
        let link = || Arc::new(NoDriver);
        let pushed = |driver: &CallDriver, text: &str| {
            let full = (1..).find(|_| driver.push(piece(&ledger, text)).0.is_full);
            full.unwrap()
        };
        let long = "x".repeat(100_000);
        let beside = piece(&ledger, "").chunk.weight();
        // As much as there is room for.
        let exact = "x".repeat(Room::CONNECTION.bytes - beside);
        for (is_routed, text, most) in [
            (false, "x", 65),
            (false, &*exact, 2),
            (false, &*long, 11),
            (true, "x", 9),
            (true, &*long, 1),
        ] {
            let id = CallId::from("c");
            let (mut call, driver) = match is_routed {
                true => RunningCall::routed(id, link()),
                false => RunningCall::new(id, link()),
            };
            assert_eq!(pushed(&driver, text), most);
            let one = ledger.held_bytes() / most;
            assert!(one > text.len());
            call.next_chunk().await.unwrap();
            assert_eq!(ledger.held_bytes(), (most - 1) * one);
            driver.end(Box::new(Outcome::canceled("enough")));
            let piece = call.next_piece().await;
            // Whoever keeps it has its entry.
            let left = most.saturating_sub(2) * one;
            let kept = piece.as_ref().map_or(0, |_| one);
            assert_eq!(ledger.held_bytes(), left + kept);
            drop(piece);
            drop(call);
            driver.push(self::piece(&ledger, text));
            assert_eq!(ledger.held_bytes(), 0, "nobody takes it");
        }
    }

    #[tokio::test]
    async fn who_waits_for_the_end_of_a_call_is_woken_by_it() {
        let (call, driver) = RunningCall::new(CallId::from("c"), Arc::new(NoDriver));
        let end = async {
            let (_, reader) = driver.end(Box::new(Outcome::canceled("enough")));
            reader.expect("somebody waits").wake();
        };
        tokio::join!(biased; call.ended(), end);
    }

    /// Looks at its call when it is woken, as an executor may that polls at once.
    struct Looks(Arc<SharedCall>, AtomicUsize);

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            let is_free = self.0.0.try_lock().is_ok();
            self.1.fetch_add(usize::from(is_free), Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn who_is_woken_may_look_at_the_call_at_once() {
        let ledger = Ledger::new(160 << 20);
        let (mut call, driver) = RunningCall::new(CallId::from("c"), Arc::new(NoDriver));
        while !driver.push(piece(&ledger, "x")).0.is_full {}
        let looks = Arc::new(Looks(Arc::clone(&call.shared), 0.into()));
        let waker = Waker::from(Arc::clone(&looks));
        let context = &mut Context::from_waker(&waker);
        assert!(pin!(driver.room()).poll(context).is_pending());
        call.next_chunk().await.unwrap();
        assert_eq!(looks.1.load(Ordering::SeqCst), 1, "there is room");
        assert!(pin!(call.ended()).poll(context).is_pending());
        drop(driver);
        assert_eq!(looks.1.load(Ordering::SeqCst), 2, "it has ended");
    }
}

/// Handle and driver under every order of their threads that a scheduler finds: `RUSTFLAGS="--cfg shuttle"`.
#[cfg(all(test, unix, shuttle))]
mod model {
    use shuttle::future::block_on;
    use shuttle::thread;

    use super::*;
    use crate::message::{Channel, ChunkData, Status};

    const ORDERS: usize = 1_000;

    /// What a driver is told.
    #[derive(Default)]
    struct Told(Mutex<(usize, Vec<Change>)>);

    impl Link<u8> for Told {
        fn cancel(&self, _: &u8) {
            self.0.lock().unwrap().0 += 1;
        }

        fn on_change(&self, change: Change) {
            self.0.lock().unwrap().1.push(change);
        }
    }

    fn call() -> (Arc<Told>, RunningCall<u8>, CallDriver) {
        let told = Arc::<Told>::default();
        let (call, driver) = RunningCall::new(0, Arc::<Told>::clone(&told));
        (told, call, driver)
    }

    fn chunk(seq: u64) -> Piece {
        let chunk = ToolStream::new(String::new(), seq, Channel::Stdout, ChunkData::new());
        Piece {
            chunk: Box::new(chunk),
            charge: Charge::default(),
        }
    }

    /// Wakes whom a change of the driver's wakes.
    fn woken((change, reader): (Change, Option<Waker>)) -> Change {
        reader.into_iter().for_each(Waker::wake);
        change
    }

    #[test]
    fn every_piece_comes_and_the_end_behind_them() {
        let order = || {
            let (told, mut call, driver) = call();
            let driver = thread::spawn(move || {
                let mut changes: Vec<_> =
                    (1..=3).map(|seq| woken(driver.push(chunk(seq)))).collect();
                changes.push(woken(driver.end(Box::new(Outcome::canceled("enough")))));
                changes
            });
            let reader = async {
                let mut seen = Vec::new();
                while let Some(chunk) = call.next_chunk().await {
                    seen.push(chunk.seq);
                }
                assert_eq!(seen, [1, 2, 3]);
                call.result().await
            };
            assert_eq!(block_on(reader).status, Status::Canceled);
            let changes = driver.join().unwrap();
            let told = core::mem::take(&mut *told.0.lock().unwrap());
            assert_eq!(told.0, 0, "it has ended by itself");
            let settled = changes
                .iter()
                .chain(&told.1)
                .filter(|change| change.is_settled);
            assert_eq!(settled.count(), 1);
        };
        shuttle::check_random(order, ORDERS);
    }

    #[test]
    fn a_driver_without_room_gets_it_from_whoever_takes_or_leaves() {
        const PIECES: u64 = Room::CONNECTION.pieces as u64 + 2;
        for taken in [0, 1, PIECES] {
            let order = move || {
                let (told, mut call, driver) = call();
                for seq in 1..PIECES {
                    assert_eq!(woken(driver.push(chunk(seq))).is_full, seq == PIECES - 1);
                }
                let driver = thread::spawn(move || {
                    block_on(driver.room());
                    woken(driver.push(chunk(PIECES)));
                    woken(driver.end(Box::new(Outcome::canceled("enough"))));
                });
                for seq in 1..=taken {
                    let chunk = block_on(call.next_chunk()).expect("another piece");
                    assert_eq!(chunk.seq, seq);
                }
                drop(call);
                driver.join().unwrap();
                assert!(told.0.lock().unwrap().0 <= 1, "canceled once");
            };
            shuttle::check_random(order, ORDERS);
        }
    }

    #[test]
    fn a_call_fails_whose_driver_is_gone() {
        let order = || {
            let (_, call, driver) = call();
            let driver = thread::spawn(move || drop(driver));
            let outcome = block_on(async {
                call.ended().await;
                call.result().await
            });
            let error = outcome.error.expect("it failed");
            assert_eq!(error.code, ErrorCode::AgentDisconnected);
            driver.join().unwrap();
        };
        shuttle::check_random(order, ORDERS);
    }
}
