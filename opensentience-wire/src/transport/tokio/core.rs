//! The driver of a [`CoreConnection`]: the machine behind a lock that handles and one task share.
//!
//! A call goes into the machine on its caller's task, which writes the frame itself while nothing else waits to be sent. The
//! task reads, and does all the rest: one wake for an answer, one for its caller.

use core::future::poll_fn;
use core::mem;
use core::task::{Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use tokio::sync::{Notify, mpsc, watch};
use ubos_common::os::Clock;

use super::audit::Listeners;
use super::call::{Change, Link, RunningCall, wait};
use super::connection::{Connection, Counts, Duplex, Slot, Turn};
use super::io::Alarm;
use super::trace;
use crate::audit::AuditEvent;
use crate::error::CommandError;
use crate::ledger::{Ledger, Share};
use crate::message::SharedTools;
use crate::role::core::{CallRequest, CoreConnection};
use crate::role::{CallId, CloseReason};
use crate::token::Grant;

/// How long nothing is read while many results wait for their readers, before each piece that is.
const CROWDED: Duration = Duration::from_millis(2);

/// What handles and driver share.
pub(super) struct SharedConnection {
    clock: Clock,
    connection: Mutex<Connection>,
    /// The driver's task, where it waits. Apart from the connection, so that whoever is told of an event may drop a call.
    driver: Mutex<Option<Waker>>,
    dropped: Mutex<Dropped>,
    counts: Counts,
    ledger: Ledger,
    call_timeout: Option<Duration>,
    room_timeout: Duration,
    /// Notified when there is room for calls again, and at the end.
    room: Notify,
}

/// What callers want no more, since the driver last looked.
#[derive(Default)]
struct Dropped {
    /// At most one for each call that was taken.
    calls: Vec<CallId>,
    /// Requests that found no room, and the connection locked: at most one for each.
    requests: Vec<CallRequest>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees the lock, and then wakes the readers of calls. `spare` is an empty vector whose room is used again.
fn unlock_and_wake(mut connection: MutexGuard<'_, Connection>, spare: &mut Vec<Waker>) {
    mem::swap(connection.readers_mut(), spare);
    drop(connection);
    spare.drain(..).for_each(Waker::wake);
}

impl SharedConnection {
    pub(super) fn new(
        stream: impl Duplex + 'static,
        clock: Clock,
        conn: CoreConnection,
        listeners: Listeners,
        tools: watch::Sender<SharedTools>,
    ) -> Arc<Self> {
        let (call_timeout, ledger) = (conn.call_timeout(), conn.ledger().clone());
        let room_timeout = conn.room_timeout();
        let connection = Connection::new(Box::pin(stream), clock, conn, listeners, tools);
        Arc::new(Self {
            clock,
            connection: Mutex::new(connection),
            driver: Mutex::new(None),
            dropped: Mutex::default(),
            counts: Counts::default(),
            ledger,
            call_timeout,
            room_timeout,
            room: Notify::new(),
        })
    }

    pub(super) fn pending_calls(&self) -> usize {
        self.counts.pending()
    }

    pub(super) fn has_rejected_tools(&self) -> bool {
        lock(&self.connection).has_rejected_tools()
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The time that a call has.
    fn time_of(&self, asked: Option<Duration>) -> Option<Duration> {
        asked.into_iter().chain(self.call_timeout).min()
    }

    /// Calls a tool. While too much waits to be sent, this waits, in the time that the call has and the core gives it.
    pub(super) async fn call(
        self: &Arc<Self>,
        request: Box<CallRequest>,
    ) -> Result<RunningCall, CommandError> {
        let began = self.clock.mono();
        let span = self.time_of(request.timeout);
        let mut unsent = Unsent(self, Some(request));
        let within = self.room_timeout;
        let (wait, error) = match span {
            Some(span) if span <= within => (span, CommandError::Late),
            _ => (within, CommandError::NoRoom { within }),
        };
        let late = tokio::time::sleep(wait);
        tokio::pin!(late);
        loop {
            let waited = self.clock.mono().saturating_since(began);
            let left = span.map(|span| span.saturating_sub(waited));
            // Made before the look, so that no room that comes in between is missed.
            let room = self.room.notified();
            if let Some(mut request) = unsent.1.take() {
                request.timeout = left;
                match self.try_call(*request) {
                    Ok(taken) => return taken,
                    Err(request) => unsent.1 = Some(request),
                }
            }
            tokio::select! {
                biased;
                () = room => {}
                () = &mut late => {
                    let mut connection = lock(&self.connection);
                    if let Some(request) = unsent.1.take() {
                        connection.refuse_call(&self.counts, &request, &error);
                    }
                    unlock_and_wake(connection, &mut Vec::new());
                    return Err(error);
                }
            }
        }
    }

    /// Calls a tool, or gives the request back where too much waits to be sent.
    pub(super) fn try_call(
        self: &Arc<Self>,
        request: CallRequest,
    ) -> Result<Result<RunningCall, CommandError>, Box<CallRequest>> {
        let mut connection = lock(&self.connection);
        if !connection.has_room() {
            return Err(Box::new(request));
        }
        let taken = connection.call_tool(&self.counts, request).map(|id| {
            let span = connection.span_of(&id);
            let link: Arc<dyn Link<CallId>> = Arc::<Self>::clone(self);
            let (running, call) = RunningCall::new(id.clone(), link);
            connection.add(&self.counts, id, Slot { call, span });
            running
        });
        let must_wake = taken.is_ok() && connection.send_now(&self.counts);
        unlock_and_wake(connection, &mut Vec::new());
        if must_wake {
            self.wake_driver();
        }
        Ok(taken)
    }

    /// Leaves the token out of a record that another made.
    pub(super) fn leave_out_token(&self, event: &mut AuditEvent) {
        lock(&self.connection).leave_out_token(event);
    }

    /// The agent is gone: the connection ends with what it has sent, once its driver goes on.
    #[cfg(unix)]
    pub(super) fn agent_is_gone(&self) {
        lock(&self.connection).read_last();
    }

    fn wake_driver(&self) {
        let driver = lock(&self.driver).take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Drives until the handshake is decided; gives whether it succeeded.
    pub(super) async fn handshake(&self) -> bool {
        let span = trace::handshake();
        let open = trace::within(span.clone(), async {
            let (mut alarm, mut readers) = (Alarm::new(self.clock), Vec::new());
            loop {
                match self.turn(&mut alarm, &mut readers, None, true).await {
                    Turn::Again | Turn::Crowded => {}
                    Turn::Open => return true,
                    Turn::Closed(_) => return false,
                }
            }
        });
        let open = open.await;
        trace::decided(&span, open);
        open
    }

    /// Sends the refusal and closes; gives the grant back.
    pub(super) async fn refuse(self: Arc<Self>) -> Option<Grant> {
        let connection = Arc::into_inner(self)?.connection.into_inner();
        let connection = connection.unwrap_or_else(PoisonError::into_inner);
        connection.refuse().await
    }

    /// Drives until the connection ends. `shutdown` asks to end, or ends when all handles are gone.
    pub(super) fn run(
        self: Arc<Self>,
        shutdown: mpsc::Receiver<()>,
    ) -> impl Future<Output = CloseReason> + Send {
        // Made before the first poll: a task that never runs ends the connection, too.
        let driver = Driver(self);
        async move { driver.0.drive(shutdown).await }
    }

    async fn drive(&self, shutdown: mpsc::Receiver<()>) -> CloseReason {
        let (mut alarm, mut readers) = (Alarm::new(self.clock), Vec::new());
        let mut shutdown = Some(shutdown);
        loop {
            let turn = self.turn(&mut alarm, &mut readers, Some(&mut shutdown), false);
            match turn.await {
                Turn::Open => {}
                // One that always has more to say keeps its neighbours from nothing.
                Turn::Again => tokio::task::yield_now().await,
                Turn::Crowded => self.let_readers_run().await,
                Turn::Closed(reason) => {
                    // Handles and calls know the end already.
                    let mut wire = lock(&self.connection).end();
                    wire.close().await;
                    return reason;
                }
            }
        }
    }

    /// Lets those run who wait for results, and gives them a little time on a busy machine. It only slows reading down: a result
    /// that somebody waits for may stand behind those that nobody takes.
    async fn let_readers_run(&self) {
        tokio::task::yield_now().await;
        if self.ledger.is_half_full(Share::Results) {
            tokio::time::sleep(CROWDED).await;
        }
    }

    /// Moves bytes and carries out what the machine wants, until something of it ends the turn.
    async fn turn(
        &self,
        alarm: &mut Alarm,
        readers: &mut Vec<Waker>,
        mut shutdown: Option<&mut Option<mpsc::Receiver<()>>>,
        greeting: bool,
    ) -> Turn {
        poll_fn(|context| {
            wait(&mut lock(&self.driver), context);
            let dropped = mem::take(&mut *lock(&self.dropped));
            let mut connection = lock(&self.connection);
            let had_room = connection.has_room();
            connection.cancel(&dropped.calls);
            connection.give_up(&self.counts, &dropped.requests);
            if let Some(shutdown) = &mut shutdown {
                connection.poll_shutdown(context, shutdown);
            }
            let mut turn = connection.poll_turn(&self.counts, context, greeting);
            // Also of one that always has more to say: its calls have deadlines.
            let may_go_on = match turn {
                Poll::Pending | Poll::Ready(Turn::Again | Turn::Crowded) => true,
                Poll::Ready(Turn::Open | Turn::Closed(_)) => false,
            };
            let rang = may_go_on && connection.poll_alarm(context, alarm).is_ready();
            if rang && turn.is_pending() {
                turn = Poll::Ready(Turn::Again);
            }
            let has_room = !had_room && connection.has_room();
            unlock_and_wake(connection, readers);
            if has_room || matches!(turn, Poll::Ready(Turn::Closed(_))) {
                self.room.notify_waiters();
            }
            turn
        })
        .await
    }
}

/// A request that waits for room. Whoever drops it has given the call up, which is recorded.
struct Unsent<'a>(&'a SharedConnection, Option<Box<CallRequest>>);

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        let Some(request) = self.1.take() else {
            return;
        };
        let shared = self.0;
        let connection = match shared.connection.try_lock() {
            Ok(connection) => Some(connection),
            Err(TryLockError::Poisoned(connection)) => Some(connection.into_inner()),
            // By a sink that drops it, maybe.
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut connection) = connection {
            connection.give_up(&shared.counts, [&*request]);
        } else {
            lock(&shared.dropped).requests.push(*request);
            shared.wake_driver();
        }
    }
}

impl Link<CallId> for SharedConnection {
    fn cancel(&self, id: &CallId) {
        lock(&self.dropped).calls.push(id.clone());
        self.wake_driver();
    }

    fn on_change(&self, change: Change) {
        if self.counts.count(change) {
            self.wake_driver();
        }
    }
}

/// The task that drives a connection. Without it the connection is gone.
struct Driver(Arc<SharedConnection>);

impl Drop for Driver {
    fn drop(&mut self) {
        let mut connection = lock(&self.0.connection);
        connection.abandon(&self.0.counts);
        unlock_and_wake(connection, &mut Vec::new());
        self.0.room.notify_waiters();
    }
}
