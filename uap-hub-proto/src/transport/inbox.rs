//! The news of one job, between the hub and whoever waits for it.

use std::{collections::VecDeque, sync::Mutex};

use prost::Message as _;
use tokio::sync::Notify;

use super::lock;
use crate::{message::JobResult, role::hub::JobEvent};

/// A queue with one reader. At its bound the writer's stream is not read until there is room again, so it
/// never holds more than the bound and one message; what the hub itself says is a handful of small events.
#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<State>,
    news: Notify,
    room: Notify,
    max_events: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<(JobEvent, usize)>,
    bytes: usize,
    /// Nothing more will come.
    is_closed: bool,
    /// Nobody reads: news is dropped.
    is_detached: bool,
}

impl Inbox {
    pub(super) fn new(max_events: usize, max_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            news: Notify::new(),
            room: Notify::new(),
            max_events,
            max_bytes,
        }
    }

    /// Adds an event; the end closes the queue.
    pub(super) fn push(&self, event: JobEvent) {
        let mut state = lock(&self.state);
        state.is_closed |= matches!(event, JobEvent::Ended(_));
        if !state.is_detached {
            let bytes = weight(&event);
            state.bytes += bytes;
            state.events.push_back((event, bytes));
        }
        drop(state);
        self.news.notify_one();
    }

    /// The next event, or `None` after the end.
    pub(super) async fn next(&self) -> Option<JobEvent> {
        loop {
            {
                let mut state = lock(&self.state);
                if let Some((event, bytes)) = state.events.pop_front() {
                    state.bytes -= bytes;
                    drop(state);
                    self.room.notify_one();
                    return Some(event);
                }
                if state.is_closed {
                    return None;
                }
            }
            self.news.notified().await;
        }
    }

    /// Waits until there is room for another message.
    pub(super) async fn has_room(&self) {
        loop {
            {
                let state = lock(&self.state);
                let is_full =
                    state.events.len() >= self.max_events || state.bytes >= self.max_bytes;
                if state.is_closed || state.is_detached || !is_full {
                    return;
                }
            }
            self.room.notified().await;
        }
    }

    /// Nothing more will come, though no end came.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.news.notify_one();
        self.room.notify_one();
    }

    /// Nobody will read.
    pub(super) fn detach(&self) {
        let mut state = lock(&self.state);
        *state = State {
            is_closed: state.is_closed,
            is_detached: true,
            ..State::default()
        };
        drop(state);
        self.room.notify_one();
    }
}

/// About how many bytes an event holds.
fn weight(event: &JobEvent) -> usize {
    match event {
        JobEvent::Status { message, .. } => message.len(),
        JobEvent::Telemetry { telemetry, .. } => telemetry.encoded_len(),
        JobEvent::Ended(outcome) => match &outcome.result {
            Some(JobResult::Test(result)) => result.encoded_len(),
            Some(JobResult::Translation(result)) => result.encoded_len(),
            None => 0,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::{
        role::hub::{Outcome, Verdict},
        wire::{Severity, Telemetry},
    };

    fn line(size: usize) -> JobEvent {
        let telemetry = Telemetry::new(Severity::Info, "x".repeat(size));
        JobEvent::Telemetry {
            telemetry,
            at: None,
        }
    }

    fn has_room(inbox: &Inbox) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(inbox.has_room()).poll(&mut cx) == Poll::Ready(())
    }

    fn next(inbox: &Inbox) -> Option<JobEvent> {
        let mut cx = Context::from_waker(Waker::noop());
        match pin!(inbox.next()).poll(&mut cx) {
            Poll::Ready(event) => event,
            Poll::Pending => panic!("nothing there"),
        }
    }

    // spec: HUB-4-4
    #[test]
    fn a_full_inbox_has_no_room_until_it_is_read() {
        for (events, bytes) in [(2, 1 << 20), (100, 200)] {
            let inbox = Inbox::new(events, bytes);
            inbox.push(line(120));
            assert!(has_room(&inbox));
            inbox.push(line(120));
            assert!(!has_room(&inbox));
            assert_eq!(next(&inbox), Some(line(120)));
            assert!(has_room(&inbox));
        }
    }

    #[test]
    fn the_end_is_the_last_event_and_a_detached_inbox_holds_nothing() {
        let inbox = Inbox::new(1, 1);
        inbox.push(line(9));
        inbox.push(JobEvent::Ended(Outcome::new(Verdict::Failed, "")));
        assert!(has_room(&inbox), "nothing more will come");
        assert!(next(&inbox).is_some() && next(&inbox).is_some());
        assert_eq!(next(&inbox), None);
        let inbox = Inbox::new(1, 1);
        inbox.push(line(9));
        inbox.detach();
        inbox.push(line(9));
        assert!(has_room(&inbox) && lock(&inbox.state).events.is_empty());
        inbox.close();
        assert_eq!(next(&inbox), None);
    }
}
