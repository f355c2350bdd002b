//! The lab itself: virtual time, and the order of what happens.

use core::fmt;
use core::time::Duration;

use super::link::{Dice, Faults, Link, LinkId, LinkKind, Packet};
use super::node::{AnyNode, Arrival, Node, NodeId, Outside, Wiring};
use crate::id::IdSource;
use crate::machine::Machine;
use crate::time::{Mono, Now, Timestamp};

/// What happened in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A node took bytes, an end or a break of a link.
    Delivered(usize, LinkId),
    /// A node was woken: for a timeout, an answer of the world, its start after a crash, or for nothing.
    Woken(usize),
}

/// Nodes, links and one clock. See the [module](super).
pub struct Lab<E> {
    nodes: Vec<Box<dyn AnyNode<E>>>,
    /// Nodes whose first outputs wait for their links.
    fresh: Vec<usize>,
    links: Vec<Link>,
    now: Mono,
    start: Timestamp,
    wall_shift: i64,
    dice: Dice,
    events: Vec<(Mono, usize, E)>,
}

impl<E: 'static> Lab<E> {
    /// A lab whose chance comes from `seed`. The wall clock starts at 2025-01-01T00:00:00Z.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        const START: i64 = 1_735_689_600;
        Self {
            nodes: Vec::new(),
            fresh: Vec::new(),
            links: Vec::new(),
            now: Mono::ZERO,
            start: Timestamp::from_unix(START).unwrap_or(Timestamp::EPOCH),
            wall_shift: 0,
            dice: Dice(IdSource::seeded(seed)),
            events: Vec::new(),
        }
    }

    /// Adds a node: a machine and its world. What the machine wants done happens with the next step, so that
    /// its links can be made first.
    pub fn add<M, W>(&mut self, machine: M, wiring: W) -> NodeId<M>
    where
        M: Machine + 'static,
        W: Wiring<M, Event = E> + 'static,
    {
        self.nodes.push(Box::new(Node::new(machine, wiring)));
        let node = self.nodes.len() - 1;
        self.fresh.push(node);
        NodeId::new(node)
    }

    /// The id that the next call of [`Lab::connect`] gives, for wirings that are made before their link.
    #[must_use]
    pub const fn next_link(&self) -> LinkId {
        LinkId(self.links.len())
    }

    /// Connects two nodes.
    pub fn connect<M, N>(
        &mut self,
        one: NodeId<M>,
        other: NodeId<N>,
        kind: LinkKind,
        faults: Faults,
    ) -> LinkId {
        self.links.push(Link::new([one.0, other.0], kind, faults));
        LinkId(self.links.len() - 1)
    }

    /// The time in the lab.
    #[must_use]
    pub fn now(&self) -> Now {
        let true_wall = self
            .start
            .saturating_add(self.now.saturating_since(Mono::ZERO));
        let shifted = true_wall.unix().saturating_add(self.wall_shift);
        let nearest = if self.wall_shift < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        };
        let wall = Timestamp::new(shifted, true_wall.subsec_nanos()).unwrap_or(nearest);
        Now::new(self.now, wall)
    }

    /// Lets the wall clock jump, ahead or back, as after a sleep or a correction; the monotonic clock does not.
    pub const fn jump_wall(&mut self, seconds: i64) {
        self.wall_shift = self.wall_shift.saturating_add(seconds);
    }

    /// The machine of a node.
    ///
    /// # Panics
    ///
    /// The node is down after a crash.
    #[must_use]
    pub fn machine<M: 'static>(&self, node: NodeId<M>) -> &M {
        let machine = self.nodes.get(node.0).and_then(|node| node.machine_ref());
        #[expect(
            clippy::expect_used,
            reason = "a test that asks for a dead machine is wrong"
        )]
        machine
            .and_then(|machine| machine.downcast_ref())
            .expect("the node is up")
    }

    /// Whether a node is up: not between a crash and its restart.
    #[must_use]
    pub fn is_up<M>(&self, node: NodeId<M>) -> bool {
        let node = self.nodes.get(node.0);
        node.is_some_and(|node| node.machine_ref().is_some())
    }

    /// Gives a machine a command, then carries out what it does.
    ///
    /// # Panics
    ///
    /// The node is down after a crash.
    pub fn with<M: 'static, R>(
        &mut self,
        node: NodeId<M>,
        command: impl FnOnce(&mut M, Now) -> R,
    ) -> R {
        let now = self.now();
        let machine = self.nodes.get_mut(node.0).and_then(|node| node.machine());
        #[expect(
            clippy::expect_used,
            reason = "a test that commands a dead machine is wrong"
        )]
        let machine = machine
            .and_then(|machine| machine.downcast_mut())
            .expect("the node is up");
        let result = command(machine, now);
        self.drain(node.0);
        result
    }

    /// Breaks a link under both nodes.
    pub fn sever(&mut self, link: LinkId) {
        let now = self.now;
        if let Some(link) = self.links.get_mut(link.0) {
            link.sever(now, &[0, 1]);
        }
    }

    /// What the nodes told their applications so far: when, which node, what.
    #[must_use]
    pub fn events(&self) -> &[(Mono, usize, E)] {
        &self.events
    }

    /// Takes the events told so far.
    pub fn take_events(&mut self) -> Vec<(Mono, usize, E)> {
        core::mem::take(&mut self.events)
    }

    /// Lets the next thing happen: of all that is due first, one by chance. `None` when nothing will.
    pub fn step(&mut self) -> Option<Step> {
        self.drain_fresh();
        let due = self.candidates();
        let first = due.iter().map(|(at, _)| *at).min()?;
        let now = self.now.max(first);
        let tied: Vec<Candidate> = due
            .into_iter()
            .filter(|(at, _)| *at <= now)
            .map(|(_, what)| what)
            .collect();
        let pick = self.dice.below(tied.len());
        let chosen = *tied.get(pick)?;
        self.now = now;
        // Drivers may wake a machine too early; that must change nothing.
        if self.dice.hits(EARLY_WAKES) {
            let node = self.dice.below(self.nodes.len());
            let due = self.nodes.get(node).and_then(|node| node.next_wake());
            if due.is_none_or(|at| at > now) {
                self.wake(node);
            }
        }
        Some(match chosen {
            Candidate::Wake(node) => self.wake(node),
            Candidate::Packet { link, from } => self.deliver(link, from),
        })
    }

    /// Lets at most `steps` things happen; gives how many did. Fewer means that the lab is at rest.
    pub fn run(&mut self, steps: usize) -> usize {
        (0..steps).take_while(|_| self.step().is_some()).count()
    }

    /// Runs until the clock has gone `span` ahead, or at most `steps` steps.
    pub fn run_for(&mut self, span: Duration, steps: usize) -> usize {
        self.drain_fresh();
        let end = self.now.saturating_add(span);
        let mut done = 0;
        while done < steps && self.candidates().iter().any(|(at, _)| *at <= end) {
            self.step();
            done += 1;
        }
        if done < steps {
            self.now = self.now.max(end);
        }
        done
    }

    fn candidates(&self) -> Vec<(Mono, Candidate)> {
        let nodes = self.nodes.iter().enumerate();
        let wakes = nodes.filter_map(|(n, node)| Some((node.next_wake()?, Candidate::Wake(n))));
        let mut due: Vec<_> = wakes.collect();
        for (n, link) in self.links.iter().enumerate() {
            for (from, direction) in link.directions.iter().enumerate() {
                let Some((at, packet)) = direction.queue.front() else {
                    continue;
                };
                let to = link
                    .ends
                    .get(1 - from)
                    .and_then(|node| self.nodes.get(*node));
                // A break is heard even by a node that reads nothing.
                if matches!(packet, Packet::Broken)
                    || to.is_some_and(|node| node.accepts(LinkId(n)))
                {
                    due.push((*at, Candidate::Packet { link: n, from }));
                }
            }
        }
        due
    }

    fn wake(&mut self, node: usize) -> Step {
        let now = self.now();
        if let Some(machine) = self.nodes.get_mut(node) {
            machine.wake(now);
        }
        self.drain(node);
        Step::Woken(node)
    }

    fn deliver(&mut self, link: usize, from: usize) -> Step {
        let now = self.now();
        let id = LinkId(link);
        let Some(carrier) = self.links.get_mut(link) else {
            return Step::Delivered(0, id);
        };
        let to = carrier.ends.get(1 - from).copied().unwrap_or_default();
        let packet = carrier.take(from, &mut self.dice);
        if let (Some(node), Some(packet)) = (self.nodes.get_mut(to), packet) {
            match packet {
                Packet::Bytes(bytes) => node.arrive(now, Arrival::Bytes(id, &bytes)),
                Packet::HalfClose => node.arrive(now, Arrival::HalfClosed(id)),
                Packet::Broken => node.arrive(now, Arrival::Broken(id)),
            }
        }
        self.drain(to);
        Step::Delivered(to, id)
    }

    fn drain_fresh(&mut self) {
        for node in core::mem::take(&mut self.fresh) {
            self.drain(node);
        }
    }

    /// Carries out everything a node wants done.
    fn drain(&mut self, node: usize) {
        let Now {
            mono: now, wall, ..
        } = self.now();
        while let Some(outside) = self
            .nodes
            .get_mut(node)
            .and_then(|node| node.poll(Now::new(now, wall)))
        {
            match outside {
                Outside::Event(event) => self.events.push((now, node, event)),
                Outside::Send(link, bytes) => {
                    let Self { links, dice, .. } = self;
                    if let Some((link, from)) = end_of(links, link, node)
                        && link.send(now, from, bytes, dice)
                    {
                        link.sever(now, &[0, 1]);
                    }
                }
                Outside::HalfClose(link) => {
                    if let Some((link, from)) = end_of(&mut self.links, link, node) {
                        link.half_close(now, from);
                    }
                }
                Outside::Close(link) => {
                    if let Some((link, from)) = end_of(&mut self.links, link, node) {
                        link.sever(now, &[1 - from]);
                    }
                }
                Outside::Crashed => {
                    for link in &mut self.links {
                        if let Some(from) = link.ends.iter().position(|end| *end == node) {
                            link.sever(now, &[1 - from]);
                        }
                    }
                }
            }
        }
    }
}

/// Chance in a thousand that a step is preceded by an early wake-up.
const EARLY_WAKES: u16 = 50;

/// A link and which of its ends a node holds.
fn end_of(links: &mut [Link], link: LinkId, node: usize) -> Option<(&mut Link, usize)> {
    let link = links.get_mut(link.0)?;
    let from = link.ends.iter().position(|end| *end == node)?;
    Some((link, from))
}

#[derive(Clone, Copy)]
enum Candidate {
    Wake(usize),
    Packet { link: usize, from: usize },
}

impl<E> fmt::Debug for Lab<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab")
            .field("now", &self.now)
            .field("nodes", &self.nodes.len())
            .field("links", &self.links.len())
            .field("events", &self.events.len())
            .finish()
    }
}
