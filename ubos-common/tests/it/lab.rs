use core::time::Duration;
use std::collections::VecDeque;

use ubos_common::machine::Machine;
use ubos_common::testing::*;
use ubos_common::time::{Mono, Now};

/// Tells what it hears, and sends what the test puts in.
#[derive(Default)]
struct Ear {
    out: VecDeque<Out>,
    deaf: bool,
    alarm: Option<Mono>,
    /// Bytes that were stored before this life.
    restored: usize,
}

enum Out {
    Send(Vec<u8>),
    HalfClose,
    Tell(Heard),
    Store(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Bytes(Vec<u8>),
    End,
    Broken,
    Alarm,
    Stored(usize),
}

impl Machine for Ear {
    type Input<'a> = Heard;
    type Output = Out;
    type Error = core::convert::Infallible;

    fn handle_input(&mut self, _: Now, heard: Heard) -> Result<(), Self::Error> {
        self.out.push_back(Out::Tell(heard));
        Ok(())
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.alarm.take_if(|at| *at <= now.mono).is_some() {
            self.out.push_back(Out::Tell(Heard::Alarm));
        }
    }

    fn poll_output(&mut self) -> Option<Out> {
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.alarm
    }

    fn accepts_input(&self) -> bool {
        !self.deaf
    }

    fn is_closed(&self) -> bool {
        false
    }
}

const LINK: LinkId = LinkId::new(0);

/// One link, and a store that may crash the process behind a write.
struct World {
    stored: Vec<u8>,
    crash: CrashPoint,
}

impl World {
    fn new() -> Self {
        Self {
            stored: Vec::new(),
            crash: CrashPoint::never(),
        }
    }
}

impl Wiring<Ear> for World {
    type Event = Heard;
    type Answer = usize;

    fn deliver(&mut self, ear: &mut Ear, now: Now, arrival: Arrival<'_, usize>) {
        let heard = match arrival {
            Arrival::Bytes(_, bytes) => Heard::Bytes(bytes.to_vec()),
            Arrival::HalfClosed(_) => Heard::End,
            Arrival::Broken(_) => Heard::Broken,
            Arrival::Answer(bytes) => Heard::Stored(bytes),
            other => panic!("{other:?}"),
        };
        ear.handle_input(now, heard).unwrap();
    }

    fn perform(&mut self, _: &mut Ear, _: Now, out: Out, actions: &mut Actions<Heard, usize>) {
        match out {
            Out::Send(bytes) => actions.send(LINK, bytes),
            Out::HalfClose => actions.half_close(LINK),
            Out::Tell(heard) => actions.event(heard),
            Out::Store(bytes) => {
                self.stored.extend(bytes);
                if self.crash.is_now() {
                    actions.crash(Duration::from_secs(1));
                }
                actions.answer(Duration::from_millis(5), self.stored.len());
            }
        }
    }

    fn restart(&mut self, _: Now, _: &mut Actions<Heard, usize>) -> Option<Ear> {
        Some(Ear {
            restored: self.stored.len(),
            ..Ear::default()
        })
    }
}

type Pair = (Lab<Heard>, [NodeId<Ear>; 2]);

fn pair(seed: u64, kind: LinkKind, faults: Faults) -> Pair {
    let mut lab = Lab::new(seed);
    let ears = [0, 1].map(|_| lab.add(Ear::default(), World::new()));
    lab.connect(ears[0], ears[1], kind, faults);
    (lab, ears)
}

fn send(lab: &mut Lab<Heard>, ear: NodeId<Ear>, bytes: Vec<u8>) {
    lab.with(ear, |ear, _| ear.out.push_back(Out::Send(bytes)));
}

fn send_all(lab: &mut Lab<Heard>, ear: NodeId<Ear>) {
    for n in 0..50u8 {
        send(lab, ear, vec![n; 3]);
    }
    lab.with(ear, |ear, _| ear.out.push_back(Out::HalfClose));
    lab.run(10_000);
}

fn heard(lab: &Lab<Heard>) -> Vec<Heard> {
    lab.events()
        .iter()
        .filter(|(_, node, _)| *node == 1)
        .map(|(_, _, what)| what.clone())
        .collect()
}

#[test]
fn a_stream_keeps_its_bytes_whatever_the_pieces() {
    let sent: Vec<u8> = (0..50u8).flat_map(|n| [n; 3]).collect();
    let mut pieces = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let (mut lab, ears) = pair(seed, LinkKind::Stream, Faults::rough());
        send_all(&mut lab, ears[0]);
        let mut got = heard(&lab);
        assert_eq!(got.pop(), Some(Heard::End));
        pieces.insert(got.len());
        let bytes: Vec<u8> = got
            .into_iter()
            .flat_map(|h| if let Heard::Bytes(b) = h { b } else { vec![] })
            .collect();
        assert_eq!(bytes, sent);
    }
    assert!(
        pieces.len() > 5,
        "pieces differ from seed to seed: {pieces:?}"
    );
}

#[test]
fn one_seed_is_one_run() {
    let run = |seed| {
        let (mut lab, ears) = pair(
            seed,
            LinkKind::Messages,
            Faults::rough().with_losses(200, 200, 200),
        );
        send_all(&mut lab, ears[0]);
        lab.take_events()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn messages_are_lost_doubled_and_reordered_but_never_split() {
    let (mut lab, ears) = pair(
        3,
        LinkKind::Messages,
        Faults::rough().with_losses(200, 200, 200),
    );
    send_all(&mut lab, ears[0]);
    let firsts: Vec<u8> = heard(&lab)
        .into_iter()
        .filter_map(|h| {
            if let Heard::Bytes(b) = h {
                Some(b)
            } else {
                None
            }
        })
        .map(|b| {
            assert_eq!(b, [b[0]; 3]);
            b[0]
        })
        .collect();
    let distinct: std::collections::BTreeSet<_> = firsts.iter().collect();
    assert!(distinct.len() < 50, "some are lost");
    assert!(distinct.len() < firsts.len(), "some come twice");
    assert!(!firsts.is_sorted(), "some overtake");
}

#[test]
fn a_broken_link_is_heard_at_both_ends_and_carries_nothing_more() {
    let (mut lab, ears) = pair(1, LinkKind::Stream, Faults::none());
    send(&mut lab, ears[0], vec![1]);
    lab.sever(LINK);
    send(&mut lab, ears[0], vec![2]);
    lab.run(100);
    let all: Vec<_> = lab
        .events()
        .iter()
        .map(|(_, node, what)| (*node, what.clone()))
        .collect();
    assert!(
        all.contains(&(0, Heard::Broken)) && all.contains(&(1, Heard::Broken)) && all.len() == 2,
        "{all:?}"
    );
    let (mut lab, ears) = pair(1, LinkKind::Stream, Faults::none().with_sever(1000));
    send(&mut lab, ears[0], vec![1]);
    lab.run(100);
    assert_eq!(heard(&lab), [Heard::Broken]);
}

#[test]
fn a_node_that_reads_nothing_loses_nothing() {
    let (mut lab, ears) = pair(1, LinkKind::Stream, Faults::none());
    lab.with(ears[1], |ear, _| ear.deaf = true);
    send(&mut lab, ears[0], vec![7]);
    assert_eq!(lab.run(100), 0);
    lab.with(ears[1], |ear, _| ear.deaf = false);
    lab.run(100);
    assert_eq!(heard(&lab), [Heard::Bytes(vec![7])]);
}

#[test]
fn nothing_is_sent_behind_an_end_and_time_never_goes_back() {
    let (mut lab, ears) = pair(1, LinkKind::Stream, Faults::none());
    lab.with(ears[1], |ear, _| ear.deaf = true);
    lab.with(ears[0], |ear, _| {
        ear.out.extend([Out::HalfClose, Out::Send(vec![7])]);
    });
    lab.run_for(Duration::from_secs(1), 10);
    let before = lab.now();
    lab.with(ears[1], |ear, _| ear.deaf = false);
    lab.run(10);
    assert_eq!(heard(&lab), [Heard::End]);
    assert_eq!(lab.now(), before);
}

#[test]
fn time_goes_to_what_is_due_and_walls_may_jump() {
    let (mut lab, ears) = pair(1, LinkKind::Stream, Faults::none());
    let start = lab.now();
    lab.with(ears[0], |ear, now| {
        ear.alarm = Some(now.mono.saturating_add(Duration::from_secs(5)))
    });
    assert_eq!(lab.run_for(Duration::from_secs(4), 10), 0);
    assert_eq!(lab.now(), start.plus(Duration::from_secs(4)));
    lab.jump_wall(100);
    lab.jump_wall(-40);
    lab.run(10);
    assert_eq!(
        lab.events().first().unwrap().0,
        start.plus(Duration::from_secs(5)).mono
    );
    assert_eq!(lab.now().wall.saturating_since(start.wall).as_secs(), 65);
}

#[test]
fn nothing_arrives_before_its_latency() {
    let latency = Duration::from_millis(10);
    let faults = Faults::rough().with_latency(latency..=latency);
    let (mut lab, ears) = pair(1, LinkKind::Stream, faults);
    for _ in 0..20 {
        let sent = lab.now().mono;
        send(&mut lab, ears[0], vec![1; 4]);
        lab.run_for(Duration::from_millis(1), 100);
        assert!(lab.now().mono > sent);
    }
    let mut heard_by = [0; 64];
    lab.run(1_000);
    for (at, _, heard) in lab.events() {
        if let Heard::Bytes(bytes) = heard {
            let ms = usize::try_from(at.as_nanos() / 1_000_000).unwrap();
            heard_by[ms] += bytes.len();
        }
    }
    let mut sum = 0;
    for (ms, bytes) in heard_by.iter().enumerate() {
        sum += bytes;
        // Four bytes are sent at 0, 1, 2 ... ms.
        assert!(
            sum <= 4 * (ms + 1).saturating_sub(10),
            "{sum} bytes by {ms} ms"
        );
    }
    assert_eq!(sum, 80);
}

#[test]
fn the_world_answers_and_a_machine_that_reads_nothing_gets_it_later() {
    let (mut lab, ears) = pair(1, LinkKind::Stream, Faults::none());
    lab.with(ears[1], |ear, _| {
        ear.deaf = true;
        ear.out.push_back(Out::Store(vec![1, 2]));
    });
    assert_eq!(lab.run(100), 0);
    lab.with(ears[1], |ear, _| ear.deaf = false);
    lab.run(100);
    assert_eq!(heard(&lab), [Heard::Stored(2)]);
}

#[test]
fn a_crash_ends_links_and_answers_and_the_store_lives_on() {
    let mut lab = Lab::new(1);
    let one = lab.add(Ear::default(), World::new());
    let crash = CrashPoint::at(1);
    let other = lab.add(
        Ear::default(),
        World {
            crash: crash.clone(),
            ..World::new()
        },
    );
    lab.connect(one, other, LinkKind::Stream, Faults::none());
    for n in 0..3 {
        if lab.is_up(other) {
            lab.with(other, |ear, _| ear.out.push_back(Out::Store(vec![n])));
        }
    }
    assert!(!lab.is_up(other));
    lab.run(100);
    assert_eq!(lab.events()[0], (Mono::ZERO, one.index(), Heard::Broken));
    assert_eq!((crash.seen(), lab.machine(other).restored), (2, 2));
    assert_eq!(lab.now().mono, Mono::from_millis(1_000));
    assert_eq!(heard(&lab), [], "answers to the life before are gone");
}
