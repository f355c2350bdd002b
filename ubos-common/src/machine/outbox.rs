//! The queue of outputs.

use std::collections::VecDeque;

/// A machine's queue of outputs, with a bound.
///
/// Nothing pushed is dropped: a machine must be able to say its farewell. At the bound
/// [`Outbox::is_full`] is true, the machine stops accepting input, and what one input may still push is
/// all that lies above it.
#[derive(Clone, Debug)]
pub struct Outbox<T> {
    queue: VecDeque<T>,
    bound: usize,
}

impl<T> Outbox<T> {
    /// An empty queue that is full from `bound` outputs on.
    #[must_use]
    pub const fn new(bound: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            bound,
        }
    }

    /// Adds an output behind the others.
    pub fn push(&mut self, output: T) {
        self.queue.push_back(output);
    }

    /// Takes the oldest output.
    pub fn pop(&mut self) -> Option<T> {
        self.queue.pop_front()
    }

    /// Outputs that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no output waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the bound is reached.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queue.len() >= self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_keeps_order_and_says_when_it_is_full() {
        let mut outbox = Outbox::new(2);
        assert!(outbox.is_empty());
        outbox.push(1);
        assert!(!outbox.is_full() && !outbox.is_empty());
        outbox.push(2);
        outbox.push(3);
        assert!(outbox.is_full());
        assert_eq!(outbox.len(), 3);
        assert_eq!(
            [outbox.pop(), outbox.pop(), outbox.pop(), outbox.pop()],
            [Some(1), Some(2), Some(3), None]
        );
    }
}
