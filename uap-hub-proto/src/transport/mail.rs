//! The messages that wait to be sent on a call.
//!
//! A call has few of them, and there are many calls: a channel that makes room for 32 messages at a time costs each some
//! kilobytes.

use std::{
    collections::VecDeque,
    sync::{Arc, PoisonError},
    task::{Context, Poll, Waker},
};

use super::sync::Mutex;

/// A queue of at most `most` messages.
pub(super) fn mail<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Mutex::new(Queue {
        messages: VecDeque::new(),
        most,
        is_over: false,
        receiver: None,
    }));
    (Sender(shared.clone()), Receiver(shared))
}

#[derive(Debug)]
struct Queue<T> {
    messages: VecDeque<T>,
    most: usize,
    /// The sender is gone, or the receiver.
    is_over: bool,
    /// Waits for a message.
    receiver: Option<Waker>,
}

/// Puts messages in. The receiver sees the end behind the last one when this is dropped.
#[derive(Debug)]
pub(super) struct Sender<T>(Arc<Mutex<Queue<T>>>);

/// Takes them out, in their order.
#[derive(Debug)]
pub(super) struct Receiver<T>(Arc<Mutex<Queue<T>>>);

impl<T> Sender<T> {
    /// Returns whether there was room. What is sent to a receiver that is gone is dropped.
    #[cfg(any(feature = "client", test))]
    pub(super) fn send(&self, message: T) -> bool {
        self.put(message, Queue::has_room)
    }

    /// Sends also where there is no room: for whoever stops once [`has_room`](Self::has_room) says no.
    #[cfg(feature = "server")]
    pub(super) fn push(&self, message: T) {
        self.put(message, |_| true);
    }

    #[cfg(feature = "server")]
    pub(super) fn has_room(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .has_room()
    }

    fn put(&self, message: T, takes: impl FnOnce(&Queue<T>) -> bool) -> bool {
        let receiver = {
            let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.is_over {
                return true;
            }
            if !takes(&queue) {
                return false;
            }
            queue.messages.push_back(message);
            queue.receiver.take()
        };
        receiver.into_iter().for_each(Waker::wake);
        true
    }
}

impl<T> Queue<T> {
    fn has_room(&self) -> bool {
        self.messages.len() < self.most
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let receiver = {
            let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            queue.is_over = true;
            queue.receiver.take()
        };
        receiver.into_iter().for_each(Waker::wake);
    }
}

impl<T> Receiver<T> {
    /// Whether one message is there, and others may come.
    #[cfg(feature = "client")]
    pub(super) fn is_alone(&self) -> bool {
        let queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.messages.len() == 1 && !queue.is_over
    }

    /// Whether one of the messages is so.
    #[cfg(feature = "server")]
    pub(super) fn any(&self, is_so: impl FnMut(&T) -> bool) -> bool {
        let queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.messages.iter().any(is_so)
    }

    /// Whether one message more has room.
    #[cfg(feature = "server")]
    pub(super) fn has_room(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .has_room()
    }

    /// The next message, or `None` behind the last one.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match queue.messages.pop_front() {
            None if !queue.is_over => {
                queue.receiver = Some(cx.waker().clone());
                Poll::Pending
            }
            next => Poll::Ready(next),
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            queue.is_over = true;
            std::mem::take(&mut queue.messages)
        };
        // What drops with them may send.
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn messages_come_in_their_order_and_the_end_behind_them() {
        let (sender, receiver) = mail(2);
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        let cx = Context::from_waker(&waker);
        let woken = || wakes.0.load(Ordering::Relaxed);
        assert!(receiver.poll(&cx).is_pending());
        assert!(sender.send(1) && sender.send(2));
        assert_eq!(woken(), 1, "it was awake at the second");
        assert_eq!(receiver.poll(&cx), Poll::Ready(Some(1)));
        assert!(sender.send(3));
        drop(sender);
        assert_eq!(receiver.poll(&cx), Poll::Ready(Some(2)));
        assert_eq!(receiver.poll(&cx), Poll::Ready(Some(3)));
        assert_eq!(receiver.poll(&cx), Poll::Ready(None));
    }

    #[test]
    fn a_receiver_that_waits_is_woken_by_the_end() {
        let (sender, receiver) = mail::<u8>(2);
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        assert!(receiver.poll(&Context::from_waker(&waker)).is_pending());
        drop(sender);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_full_queue_takes_nothing_until_one_is_taken_out() {
        let (sender, receiver) = mail(1);
        assert!(sender.send(1) && !sender.send(2));
        let cx = Context::from_waker(Waker::noop());
        assert_eq!(receiver.poll(&cx), Poll::Ready(Some(1)));
        assert!(sender.send(3));
        assert_eq!(receiver.poll(&cx), Poll::Ready(Some(3)));
    }

    #[test]
    fn nothing_is_kept_for_a_receiver_that_is_gone() {
        let (sender, receiver) = mail(1);
        let message = Arc::new(());
        assert!(sender.send(message.clone()));
        drop(receiver);
        assert_eq!(Arc::strong_count(&message), 1);
        assert!(sender.send(message.clone()) && sender.send(message.clone()));
        assert_eq!(Arc::strong_count(&message), 1);
    }
}

/// Both ends under every order of their threads that a scheduler finds: `RUSTFLAGS="--cfg shuttle"`.
#[cfg(all(test, shuttle))]
mod model {
    use std::future::poll_fn;

    use shuttle::{future::block_on, thread};

    use super::*;

    const ORDERS: usize = 2_000;

    #[test]
    fn every_message_comes_and_the_end_behind_them() {
        let order = || {
            let (sender, receiver) = mail(2);
            let sender = thread::spawn(move || {
                let taken = (1..=4).filter(|n| sender.send(*n)).collect();
                drop(sender);
                taken
            });
            let mut seen = Vec::new();
            while let Some(n) = block_on(poll_fn(|cx| receiver.poll(cx))) {
                seen.push(n);
            }
            let taken: Vec<u8> = sender.join().unwrap();
            assert_eq!(seen, taken);
            assert!(seen.starts_with(&[1, 2]));
        };
        shuttle::check_random(order, ORDERS);
    }

    #[test]
    fn nothing_is_kept_for_a_receiver_that_goes_meanwhile() {
        let order = || {
            let (sender, receiver) = mail(2);
            let message = Arc::new(());
            let sent = message.clone();
            let sender = thread::spawn(move || {
                assert!(sender.send(sent.clone()));
                sender.send(sent);
                sender
            });
            drop(receiver);
            let sender = sender.join().unwrap();
            assert_eq!(Arc::strong_count(&message), 1);
            assert!(sender.send(message.clone()), "and is told nothing");
        };
        shuttle::check_random(order, ORDERS);
    }
}
