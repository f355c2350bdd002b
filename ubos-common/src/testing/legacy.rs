//! The lab before it ran machines: goes with its last user.

use core::fmt;
use core::time::Duration;

use super::link::{Dice, Faults, Link, LinkId, LinkKind, Packet};
use crate::id::IdSource;
use crate::time::{Mono, Now, Timestamp};

/// A machine as the lab sees it.
pub trait Node {
    /// What the machine tells its application.
    type Event;

    /// Bytes of a stream, or one message, arrived.
    fn receive(&mut self, now: Now, link: LinkId, bytes: &[u8]);

    /// The peer sends nothing more on this link.
    fn half_closed(&mut self, _now: Now, _link: LinkId) {}

    /// The link is gone, with what was on its way.
    fn broken(&mut self, _now: Now, _link: LinkId) {}

    /// The time asked for has come.
    fn timeout(&mut self, _now: Now) {}

    /// When [`Node::timeout`] is due.
    fn next_timeout(&self) -> Option<Mono> {
        None
    }

    /// Whether the machine takes more from this link now. What it does not take waits.
    fn accepts(&self, _link: LinkId) -> bool {
        true
    }

    /// The next output.
    fn poll(&mut self) -> Option<Action<Self::Event>>;
}

impl<N: Node + ?Sized> Node for Box<N> {
    type Event = N::Event;

    fn receive(&mut self, now: Now, link: LinkId, bytes: &[u8]) {
        (**self).receive(now, link, bytes);
    }

    fn half_closed(&mut self, now: Now, link: LinkId) {
        (**self).half_closed(now, link);
    }

    fn broken(&mut self, now: Now, link: LinkId) {
        (**self).broken(now, link);
    }

    fn timeout(&mut self, now: Now) {
        (**self).timeout(now);
    }

    fn next_timeout(&self) -> Option<Mono> {
        (**self).next_timeout()
    }

    fn accepts(&self, link: LinkId) -> bool {
        (**self).accepts(link)
    }

    fn poll(&mut self) -> Option<Action<Self::Event>> {
        (**self).poll()
    }
}

/// What a machine does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action<E> {
    /// Sends on a link.
    Send(LinkId, Vec<u8>),
    /// Sends nothing more on a link.
    HalfClose(LinkId),
    /// Drops a link; the peer sees it broken.
    Close(LinkId),
    /// Tells its application.
    Event(E),
}

/// What happened in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A node took bytes, an end or a break of a link.
    Delivered(usize, LinkId),
    /// A node's timeout came.
    Timeout(usize),
}

/// Nodes, links and one clock. See the [module](super).
pub struct Lab<N: Node> {
    nodes: Vec<N>,
    links: Vec<Link>,
    now: Mono,
    start: Timestamp,
    wall_shift: i64,
    dice: Dice,
    events: Vec<(Mono, usize, N::Event)>,
}

impl<N: Node> Lab<N> {
    /// A lab whose chance comes from `seed`. The wall clock starts at 2025-01-01T00:00:00Z.
    pub fn new(seed: u64, nodes: impl IntoIterator<Item = N>) -> Self {
        const START: i64 = 1_735_689_600;
        Self {
            nodes: nodes.into_iter().collect(),
            links: Vec::new(),
            now: Mono::ZERO,
            start: Timestamp::from_unix(START).unwrap_or(Timestamp::EPOCH),
            wall_shift: 0,
            dice: Dice(IdSource::seeded(seed)),
            events: Vec::new(),
        }
    }

    /// Adds a node and gives its number.
    pub fn add(&mut self, node: N) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Connects two nodes.
    pub fn connect(&mut self, one: usize, other: usize, kind: LinkKind, faults: Faults) -> LinkId {
        self.links.push(Link::new([one, other], kind, faults));
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

    /// A node.
    ///
    /// # Panics
    ///
    /// There is no such node.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "a test's own number; wrong is a bug of the test"
    )]
    pub fn node(&self, node: usize) -> &N {
        &self.nodes[node]
    }

    /// Calls a node's commands, then carries out what it does.
    ///
    /// # Panics
    ///
    /// There is no such node.
    #[expect(
        clippy::indexing_slicing,
        reason = "a test's own number; wrong is a bug of the test"
    )]
    pub fn with<R>(&mut self, node: usize, command: impl FnOnce(&mut N, Now) -> R) -> R {
        let now = self.now();
        let result = command(&mut self.nodes[node], now);
        self.drain(node);
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
    pub fn events(&self) -> &[(Mono, usize, N::Event)] {
        &self.events
    }

    /// Takes the events told so far.
    pub fn take_events(&mut self) -> Vec<(Mono, usize, N::Event)> {
        core::mem::take(&mut self.events)
    }

    /// Lets the next thing happen: of all that is due first, one by chance. `None` when nothing will.
    pub fn step(&mut self) -> Option<Step> {
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
        Some(match chosen {
            Candidate::Timeout(node) => self.fire(node),
            Candidate::Packet { link, from } => self.deliver(link, from),
        })
    }

    /// Lets at most `steps` things happen; gives how many did. Fewer means that the lab is at rest.
    pub fn run(&mut self, steps: usize) -> usize {
        (0..steps).take_while(|_| self.step().is_some()).count()
    }

    /// Runs until the clock has gone `span` ahead, or at most `steps` steps.
    pub fn run_for(&mut self, span: Duration, steps: usize) -> usize {
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
        let timeouts = self.nodes.iter().enumerate();
        let timeouts = timeouts
            .filter_map(|(n, node)| node.next_timeout().map(|at| (at, Candidate::Timeout(n))));
        let mut due: Vec<_> = timeouts.collect();
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

    fn fire(&mut self, node: usize) -> Step {
        let now = self.now();
        if let Some(machine) = self.nodes.get_mut(node) {
            machine.timeout(now);
        }
        self.drain(node);
        Step::Timeout(node)
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
                Packet::Bytes(bytes) => node.receive(now, id, &bytes),
                Packet::HalfClose => node.half_closed(now, id),
                Packet::Broken => node.broken(now, id),
            }
        }
        self.drain(to);
        Step::Delivered(to, id)
    }

    /// Carries out everything a node wants done.
    fn drain(&mut self, node: usize) {
        while let Some(action) = self.nodes.get_mut(node).and_then(Node::poll) {
            let now = self.now;
            match action {
                Action::Event(event) => self.events.push((now, node, event)),
                Action::Send(link, bytes) => {
                    let Self { links, dice, .. } = self;
                    if let Some((link, from)) = end_of(links, link, node)
                        && link.send(now, from, bytes, dice)
                    {
                        link.sever(now, &[0, 1]);
                    }
                }
                Action::HalfClose(link) => {
                    if let Some((link, from)) = end_of(&mut self.links, link, node) {
                        link.half_close(now, from);
                    }
                }
                Action::Close(link) => {
                    if let Some((link, from)) = end_of(&mut self.links, link, node) {
                        link.sever(now, &[1 - from]);
                    }
                }
            }
        }
    }
}

/// A link and which of its ends a node holds.
fn end_of(links: &mut [Link], link: LinkId, node: usize) -> Option<(&mut Link, usize)> {
    let link = links.get_mut(link.0)?;
    let from = link.ends.iter().position(|end| *end == node)?;
    Some((link, from))
}

#[derive(Clone, Copy)]
enum Candidate {
    Timeout(usize),
    Packet { link: usize, from: usize },
}

impl<N: Node> fmt::Debug for Lab<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab")
            .field("now", &self.now)
            .field("nodes", &self.nodes.len())
            .field("links", &self.links.len())
            .field("events", &self.events.len())
            .finish()
    }
}
