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
