//! The queue of a job's events, between the hub and its reader.

use std::{collections::VecDeque, sync::Mutex};

use tokio::sync::Notify;

use super::lock;
use crate::role::hub::JobEvent;

/// A queue with one reader. The hub counts its events and pauses the stream of the job at the limit: the queue
/// never holds more than the limit, one message, and a few small events of the hub itself.
#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<State>,
    news: Notify,
    /// The events and bytes that may be read before they are reported to the hub.
    quarter: Taken,
}

/// Events that the reader has read and the hub does not know of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<JobEvent>,
    taken: Taken,
    /// Nothing more will come.
    is_closed: bool,
    reader: Reader,
}

/// Who reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reader {
    /// All events, one after the other.
    #[default]
    There,
    /// Nobody yet: all events but the end are dropped, and count as read.
    Expected,
    /// Of all events the end alone.
    AtEnd,
    /// Nobody any more.
    Gone,
}

impl Inbox {
    pub(super) fn new(max_events: usize, max_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            news: Notify::new(),
            quarter: Taken {
                events: max_events / 4,
                bytes: max_bytes / 4,
            },
        }
    }

    /// A queue whose reader may never come: until then it keeps the end alone.
    pub(super) fn unclaimed(max_events: usize, max_bytes: usize) -> Self {
        let inbox = Self::new(max_events, max_bytes);
        lock(&inbox.state).reader = Reader::Expected;
        inbox
    }

    /// The reader waits for the end, and nothing else is kept. The hub is to be told, so that it counts no more what is unread.
    pub(super) fn wait_for_end(&self) {
        let mut state = lock(&self.state);
        state.reader = Reader::AtEnd;
        state.taken = Taken::default();
        state
            .events
            .retain(|event| matches!(event, JobEvent::Ended(_)));
    }

    /// The reader is there.
    pub(super) fn claim(&self) {
        lock(&self.state).reader = Reader::There;
    }

    /// Adds an event; the end closes the queue. Returns what counts as read though nobody will read it.
    pub(super) fn push(&self, event: JobEvent) -> Option<Taken> {
        {
            let mut state = lock(&self.state);
            let is_end = matches!(event, JobEvent::Ended(_));
            state.is_closed |= is_end;
            match state.reader {
                Reader::Expected if !is_end => {
                    let (events, bytes) = (1, event.weight());
                    return Some(Taken { events, bytes });
                }
                Reader::AtEnd if !is_end => return None,
                Reader::Gone => {}
                Reader::There | Reader::Expected | Reader::AtEnd => state.events.push_back(event),
            }
        }
        self.news.notify_one();
        None
    }

    /// The next event, or `None` after the end; and the counts to report to the hub.
    pub(super) async fn next(&self) -> (Option<JobEvent>, Option<Taken>) {
        loop {
            {
                let mut state = lock(&self.state);
                if let Some(event) = state.events.pop_front() {
                    state.taken.events += 1;
                    state.taken.bytes += event.weight();
                    let taken = state.taken;
                    let is_due =
                        taken.events > self.quarter.events || taken.bytes > self.quarter.bytes;
                    let due = is_due.then(|| std::mem::take(&mut state.taken));
                    return (Some(event), due);
                }
                if state.is_closed {
                    return (None, None);
                }
            }
            self.news.notified().await;
        }
    }

    /// No further event comes, although the end is missing.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.news.notify_one();
    }

    /// The reader is gone. Returns whether the end has not come.
    pub(super) fn detach(&self) -> bool {
        let mut state = lock(&self.state);
        let was_open = !state.is_closed;
        *state = State {
            is_closed: state.is_closed,
            reader: Reader::Gone,
            ..State::default()
        };
        was_open
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

    fn next(inbox: &Inbox) -> (Option<JobEvent>, Option<Taken>) {
        let mut cx = Context::from_waker(Waker::noop());
        match pin!(inbox.next()).poll(&mut cx) {
            Poll::Ready(news) => news,
            Poll::Pending => panic!("nothing there"),
        }
    }

    // spec: HUB-4-4
    #[test]
    fn reads_are_reported_before_half_of_the_bound() {
        for (max_events, max_bytes) in [(8, 1 << 20), (1000, 800)] {
            let inbox = Inbox::new(max_events, max_bytes);
            for _ in 0..8 {
                assert_eq!(inbox.push(line(92)), None);
            }
            let mut unreported = Taken::default();
            for _ in 0..8 {
                let (event, reported) = next(&inbox);
                unreported.events += 1;
                unreported.bytes += event.unwrap().weight();
                if let Some(reported) = reported {
                    assert_eq!(reported, unreported);
                    unreported = Taken::default();
                }
                assert!(unreported.events <= max_events / 4 && unreported.bytes <= max_bytes / 4);
            }
        }
    }

    // spec: HUB-4-4
    #[test]
    fn whoever_waits_for_the_end_is_given_nothing_else() {
        let end = JobEvent::Ended(Outcome::new(Verdict::Failed, ""));
        for comes_first in [true, false] {
            let inbox = Inbox::new(4, 8_000);
            inbox.push(line(9));
            assert!(next(&inbox).0.is_some());
            inbox.push(line(70));
            if comes_first {
                inbox.push(end.clone());
            }
            inbox.wait_for_end();
            if !comes_first {
                assert_eq!(inbox.push(line(9)), None, "the hub does not count it");
                inbox.push(end.clone());
            }
            // What was read before that is counted no more.
            assert_eq!(next(&inbox), (Some(end.clone()), None));
        }
    }

    // spec: HUB-4-4
    #[test]
    fn the_words_of_a_status_count() {
        let status = JobEvent::Status {
            state: crate::state::State::Running,
            message: "x".repeat(700),
            at: None,
        };
        assert_eq!(status.weight(), 700);
    }

    // spec: HUB-6-1
    #[test]
    fn what_nobody_has_claimed_keeps_its_end_alone() {
        let inbox = Inbox::unclaimed(8, 800);
        let (events, bytes) = (1, line(9).weight());
        assert_eq!(inbox.push(line(9)), Some(Taken { events, bytes }));
        inbox.claim();
        assert_eq!(inbox.push(line(7)), None);
        assert_eq!(next(&inbox).0, Some(line(7)));
        let inbox = Inbox::unclaimed(8, 800);
        let end = JobEvent::Ended(Outcome::new(Verdict::Failed, ""));
        assert_eq!(inbox.push(end.clone()), None);
        inbox.claim();
        assert_eq!(next(&inbox).0, Some(end));
    }

    // spec: HUB-4-4
    #[test]
    fn reads_are_reported_beyond_a_quarter_of_the_bound() {
        let size = line(92).weight();
        for (max_events, max_bytes) in [(8, 1 << 20), (1000, 8 * size)] {
            let inbox = Inbox::new(max_events, max_bytes);
            for _ in 0..3 {
                inbox.push(line(92));
            }
            assert_eq!((next(&inbox).1, next(&inbox).1), (None, None));
            let (events, bytes) = (3, 3 * size);
            assert_eq!(next(&inbox).1, Some(Taken { events, bytes }));
        }
    }

    #[test]
    fn a_reader_that_waits_is_told_that_nothing_more_comes() {
        let inbox = Inbox::new(8, 800);
        let mut cx = Context::from_waker(Waker::noop());
        let mut waits = pin!(inbox.next());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        inbox.close();
        assert_eq!(waits.poll(&mut cx), Poll::Ready((None, None)));
    }

    #[test]
    fn the_end_comes_last_and_a_detached_inbox_is_empty() {
        let inbox = Inbox::new(1, 1);
        inbox.push(line(9));
        inbox.push(JobEvent::Ended(Outcome::new(Verdict::Failed, "")));
        assert!(next(&inbox).0.is_some() && next(&inbox).0.is_some());
        assert_eq!(next(&inbox), (None, None));
        let inbox = Inbox::new(1, 1);
        inbox.push(line(9));
        assert!(inbox.detach());
        inbox.push(line(9));
        assert!(lock(&inbox.state).events.is_empty());
        inbox.close();
        assert_eq!(next(&inbox), (None, None));
    }
}
