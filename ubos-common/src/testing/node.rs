//! Nodes of the lab: a machine, and what its inputs and outputs mean outside.

use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use super::link::LinkId;
use crate::machine::Machine;
use crate::time::{Mono, Now};

/// What arrives at a node.
#[derive(Debug)]
#[non_exhaustive]
pub enum Arrival<'a, A> {
    /// Bytes of a stream, or one message.
    Bytes(LinkId, &'a [u8]),
    /// The peer sends nothing more on this link.
    HalfClosed(LinkId),
    /// The link broke, and what was on its way is lost.
    Broken(LinkId),
    /// The world answers an effect.
    Answer(A),
}

/// The world of one machine in the lab: what arrivals mean to it, and what becomes of its outputs.
///
/// The state of a wiring survives a crash of its machine: it is the place for a store.
pub trait Wiring<M: Machine> {
    /// What the machine tells its application.
    type Event;
    /// What the world answers to an effect.
    type Answer;

    /// Hands an arrival to the machine, as an input or a command.
    fn deliver(&mut self, machine: &mut M, now: Now, arrival: Arrival<'_, Self::Answer>);

    /// Takes one output of the machine.
    fn perform(
        &mut self,
        machine: &mut M,
        now: Now,
        output: M::Output,
        actions: &mut Actions<Self::Event, Self::Answer>,
    );

    /// Whether the machine takes more from this link now. What it does not take waits.
    fn accepts(&self, machine: &M, _link: LinkId) -> bool {
        machine.accepts_input()
    }

    /// The machine of the process that starts after a crash, made of what was stored. With `None`, the
    /// default, the node stays down.
    fn restart(
        &mut self,
        _now: Now,
        _actions: &mut Actions<Self::Event, Self::Answer>,
    ) -> Option<M> {
        None
    }
}

/// What a wiring wants done, in this order.
#[derive(Debug)]
pub struct Actions<E, A> {
    pub(super) list: Vec<Action<E, A>>,
}

#[derive(Debug)]
pub(super) enum Action<E, A> {
    Send(LinkId, Vec<u8>),
    HalfClose(LinkId),
    Close(LinkId),
    Event(E),
    Answer(Duration, A),
    Crash(Duration),
}

impl<E, A> Actions<E, A> {
    pub(super) const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// Sends on a link.
    pub fn send(&mut self, link: LinkId, bytes: impl Into<Vec<u8>>) {
        self.list.push(Action::Send(link, bytes.into()));
    }

    /// Sends nothing more on a link.
    pub fn half_close(&mut self, link: LinkId) {
        self.list.push(Action::HalfClose(link));
    }

    /// Drops a link; the peer sees it broken.
    pub fn close(&mut self, link: LinkId) {
        self.list.push(Action::Close(link));
    }

    /// Records an event; see [`Lab::events`](super::Lab::events).
    pub fn event(&mut self, event: E) {
        self.list.push(Action::Event(event));
    }

    /// Answers an effect after a while.
    pub fn answer(&mut self, after: Duration, answer: A) {
        self.list.push(Action::Answer(after, answer));
    }

    /// The process dies here: the machine is dropped with the answers that it waits for, its links break,
    /// and what else is in this list does not happen. [`Wiring::restart`] is asked after `down_for`.
    pub fn crash(&mut self, down_for: Duration) {
        self.list.push(Action::Crash(down_for));
    }
}

/// Names a node of the lab and the type of its machine.
pub struct NodeId<M>(pub(super) usize, PhantomData<fn() -> M>);

impl<M> NodeId<M> {
    pub(super) const fn new(index: usize) -> Self {
        Self(index, PhantomData)
    }

    /// The number of the node, from 0 in the order of [`Lab::add`](super::Lab::add).
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

impl<M> Clone for NodeId<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for NodeId<M> {}

impl<M> fmt::Debug for NodeId<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({})", self.0)
    }
}

/// A node without the types of its machine and answers.
pub(super) trait AnyNode<E> {
    fn machine(&mut self) -> Option<&mut dyn Any>;
    fn machine_ref(&self) -> Option<&dyn Any>;
    fn arrive(&mut self, now: Now, arrival: Arrival<'_, ()>);
    fn wake(&mut self, now: Now);
    fn next_wake(&self) -> Option<Mono>;
    fn accepts(&self, link: LinkId) -> bool;
    /// The next thing to do outside, or `None` when there is none.
    fn poll(&mut self, now: Now) -> Option<Outside<E>>;
}

/// What a node wants of the lab.
pub(super) enum Outside<E> {
    Send(LinkId, Vec<u8>),
    HalfClose(LinkId),
    Close(LinkId),
    Event(E),
    Crashed,
}

/// A machine, its wiring, and what the world still owes it.
pub(super) struct Node<M: Machine, W: Wiring<M>> {
    machine: Option<M>,
    wiring: W,
    actions: Actions<W::Event, W::Answer>,
    /// Answers in flight: when they are due, and in which order they were promised.
    answers: Vec<(Mono, u64, W::Answer)>,
    promised: u64,
    up_again: Option<Mono>,
}

impl<M: Machine, W: Wiring<M>> Node<M, W> {
    pub(super) const fn new(machine: M, wiring: W) -> Self {
        Self {
            machine: Some(machine),
            wiring,
            actions: Actions::new(),
            answers: Vec::new(),
            promised: 0,
            up_again: None,
        }
    }

    /// The answer that comes next, if the machine takes one.
    fn next_answer(&self) -> Option<(usize, Mono)> {
        let machine = self.machine.as_ref()?;
        if !machine.accepts_input() {
            return None;
        }
        let answers = self.answers.iter().enumerate();
        let (index, (at, ..)) = answers.min_by_key(|(_, (at, order, _))| (*at, *order))?;
        Some((index, *at))
    }

    fn crash(&mut self, now: Now, down_for: Duration) {
        self.machine = None;
        self.actions.list.clear();
        self.answers.clear();
        self.up_again = Some(now.mono.saturating_add(down_for));
    }

    fn restart(&mut self, now: Now) {
        self.up_again = None;
        self.machine = self.wiring.restart(now, &mut self.actions);
    }

    fn next_action(&mut self) -> Option<Action<W::Event, W::Answer>> {
        // A short queue, drained at once: taking from its front costs nothing that matters.
        (!self.actions.list.is_empty()).then(|| self.actions.list.remove(0))
    }
}

impl<M: Machine + 'static, W: Wiring<M>> AnyNode<W::Event> for Node<M, W> {
    fn machine(&mut self) -> Option<&mut dyn Any> {
        self.machine.as_mut().map(|machine| machine as &mut dyn Any)
    }

    fn machine_ref(&self) -> Option<&dyn Any> {
        self.machine.as_ref().map(|machine| machine as &dyn Any)
    }

    fn arrive(&mut self, now: Now, arrival: Arrival<'_, ()>) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        let arrival = match arrival {
            Arrival::Bytes(link, bytes) => Arrival::Bytes(link, bytes),
            Arrival::HalfClosed(link) => Arrival::HalfClosed(link),
            Arrival::Broken(link) => Arrival::Broken(link),
            Arrival::Answer(()) => return,
        };
        self.wiring.deliver(machine, now, arrival);
    }

    fn wake(&mut self, now: Now) {
        if self.up_again.is_some_and(|at| at <= now.mono) {
            self.restart(now);
        }
        let due = self.next_answer().filter(|(_, at)| *at <= now.mono);
        let Some(machine) = &mut self.machine else {
            return;
        };
        // A timeout that is due comes before an answer, as in every driver.
        if machine.poll_timeout().is_some_and(|at| at <= now.mono) {
            machine.handle_timeout(now);
        } else if let Some((index, _)) = due {
            let (_, _, answer) = self.answers.remove(index);
            self.wiring.deliver(machine, now, Arrival::Answer(answer));
        } else {
            // An early wake-up, which must change nothing.
            machine.handle_timeout(now);
        }
    }

    fn next_wake(&self) -> Option<Mono> {
        let timeout = self.machine.as_ref().and_then(Machine::poll_timeout);
        let answer = self.next_answer().map(|(_, at)| at);
        timeout.into_iter().chain(answer).chain(self.up_again).min()
    }

    fn accepts(&self, link: LinkId) -> bool {
        let machine = self.machine.as_ref();
        machine.is_some_and(|machine| self.wiring.accepts(machine, link))
    }

    fn poll(&mut self, now: Now) -> Option<Outside<W::Event>> {
        loop {
            let Some(action) = self.next_action() else {
                let machine = self.machine.as_mut()?;
                let output = machine.poll_output()?;
                self.wiring.perform(machine, now, output, &mut self.actions);
                continue;
            };
            return Some(match action {
                Action::Send(link, bytes) => Outside::Send(link, bytes),
                Action::HalfClose(link) => Outside::HalfClose(link),
                Action::Close(link) => Outside::Close(link),
                Action::Event(event) => Outside::Event(event),
                Action::Answer(after, answer) => {
                    self.promised += 1;
                    let at = now.mono.saturating_add(after);
                    self.answers.push((at, self.promised, answer));
                    continue;
                }
                Action::Crash(down_for) => {
                    self.crash(now, down_for);
                    Outside::Crashed
                }
            });
        }
    }
}
