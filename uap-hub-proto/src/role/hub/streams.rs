//! The open streams.

use std::collections::VecDeque;

use super::{Outbound, session::SessionKey};
use crate::{
    hash::ById,
    id::{ClientId, StreamId},
};

/// The purpose of an open stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Listen(ClientId),
    Session(SessionKey),
}

/// The open streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) open: ById<StreamId, Flow>,
    /// Those whose queue is over its bound.
    pub(super) overflown: Vec<StreamId>,
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) purpose: Use,
    /// It takes no messages for now; they wait in `unsent`.
    pub(super) is_blocked: bool,
    pub(super) unsent: VecDeque<Outbound>,
    /// The driver was told not to read it.
    pub(super) is_paused: bool,
}

impl Streams {
    pub(super) fn open(&mut self, stream: StreamId, purpose: Use) {
        let flow = Flow {
            purpose,
            is_blocked: false,
            unsent: VecDeque::new(),
            is_paused: false,
        };
        self.open.insert(stream, flow);
    }

    pub(super) fn purpose(&self, stream: StreamId) -> Option<&Use> {
        self.open.get(&stream).map(|flow| &flow.purpose)
    }

    pub(super) fn close(&mut self, stream: StreamId) {
        self.open.remove(&stream);
    }

    /// Closes all; returns them in the order in which they were opened.
    pub(super) fn close_all(&mut self) -> Vec<StreamId> {
        let mut all: Vec<_> = std::mem::take(&mut self.open).into_keys().collect();
        all.sort_unstable();
        all
    }

    pub(super) fn block(&mut self, stream: StreamId) {
        if let Some(flow) = self.open.get_mut(&stream) {
            flow.is_blocked = true;
        }
    }

    pub(super) fn is_blocked(&self, stream: StreamId) -> bool {
        self.open.get(&stream).is_some_and(|flow| flow.is_blocked)
    }

    pub(super) fn take_overflown(&mut self) -> Option<StreamId> {
        self.overflown.pop()
    }

    pub(super) fn is_paused(&self, stream: StreamId) -> bool {
        self.open.get(&stream).is_some_and(|flow| flow.is_paused)
    }

    /// Returns whether that changed it.
    pub(super) fn set_paused(&mut self, stream: StreamId, is_paused: bool) -> bool {
        let flow = self.open.get_mut(&stream);
        flow.is_some_and(|flow| std::mem::replace(&mut flow.is_paused, is_paused) != is_paused)
    }
}
