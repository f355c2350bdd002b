use core::time::Duration;

use super::*;
use crate::time::{Mono, Now};

/// Tells what it hears, and sends what the test puts in.
#[derive(Default)]
struct Ear {
    out: Vec<Action<Heard>>,
    deaf: bool,
    alarm: Option<Mono>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Bytes(Vec<u8>),
    End,
    Broken,
    Alarm,
}

impl Node for Ear {
    type Event = Heard;

    fn receive(&mut self, _: Now, _: LinkId, bytes: &[u8]) {
        self.out.push(Action::Event(Heard::Bytes(bytes.to_vec())));
    }

    fn half_closed(&mut self, _: Now, _: LinkId) {
        self.out.push(Action::Event(Heard::End));
    }

    fn broken(&mut self, _: Now, _: LinkId) {
        self.out.push(Action::Event(Heard::Broken));
    }

    fn timeout(&mut self, now: Now) {
        if self.alarm.take_if(|at| *at <= now.mono).is_some() {
            self.out.push(Action::Event(Heard::Alarm));
        }
    }

    fn next_timeout(&self) -> Option<Mono> {
        self.alarm
    }

    fn accepts(&self, _: LinkId) -> bool {
        !self.deaf
    }

    fn poll(&mut self) -> Option<Action<Heard>> {
        if self.out.is_empty() {
            None
        } else {
            Some(self.out.remove(0))
        }
    }
}

fn pair(seed: u64, kind: LinkKind, faults: Faults) -> (Lab<Ear>, LinkId) {
    let mut lab = Lab::new(seed, [Ear::default(), Ear::default()]);
    let link = lab.connect(0, 1, kind, faults);
    (lab, link)
}

fn send_all(lab: &mut Lab<Ear>, link: LinkId) {
    for n in 0..50u8 {
        lab.with(0, |ear, _| ear.out.push(Action::Send(link, vec![n; 3])));
    }
    lab.with(0, |ear, _| ear.out.push(Action::HalfClose(link)));
    lab.run(10_000);
}

fn heard(lab: &Lab<Ear>) -> Vec<Heard> {
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
        let (mut lab, link) = pair(seed, LinkKind::Stream, Faults::rough());
        send_all(&mut lab, link);
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
        let (mut lab, link) = pair(
            seed,
            LinkKind::Messages,
            Faults::rough().with_losses(200, 200, 200),
        );
        send_all(&mut lab, link);
        lab.take_events()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn messages_are_lost_doubled_and_reordered_but_never_split() {
    let (mut lab, link) = pair(
        3,
        LinkKind::Messages,
        Faults::rough().with_losses(200, 200, 200),
    );
    send_all(&mut lab, link);
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
    let (mut lab, link) = pair(1, LinkKind::Stream, Faults::none());
    lab.with(0, |ear, _| ear.out.push(Action::Send(link, vec![1])));
    lab.sever(link);
    lab.with(0, |ear, _| ear.out.push(Action::Send(link, vec![2])));
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
    let (mut lab, link) = pair(1, LinkKind::Stream, Faults::none().with_sever(1000));
    lab.with(0, |ear, _| ear.out.push(Action::Send(link, vec![1])));
    lab.run(100);
    assert_eq!(heard(&lab), [Heard::Broken]);
}

#[test]
fn a_node_that_reads_nothing_loses_nothing() {
    let (mut lab, link) = pair(1, LinkKind::Stream, Faults::none());
    lab.with(1, |ear, _| ear.deaf = true);
    lab.with(0, |ear, _| ear.out.push(Action::Send(link, vec![7])));
    assert_eq!(lab.run(100), 0);
    lab.with(1, |ear, _| ear.deaf = false);
    lab.run(100);
    assert_eq!(heard(&lab), [Heard::Bytes(vec![7])]);
}

#[test]
fn nothing_is_sent_behind_an_end_and_time_never_goes_back() {
    let (mut lab, link) = pair(1, LinkKind::Stream, Faults::none());
    lab.with(1, |ear, _| ear.deaf = true);
    lab.with(0, |ear, _| {
        ear.out
            .extend([Action::HalfClose(link), Action::Send(link, vec![7])]);
    });
    lab.run_for(Duration::from_secs(1), 10);
    let before = lab.now();
    lab.with(1, |ear, _| ear.deaf = false);
    lab.run(10);
    assert_eq!(heard(&lab), [Heard::End]);
    assert_eq!(lab.now(), before);
}

#[test]
fn time_goes_to_what_is_due_and_walls_may_jump() {
    let (mut lab, _) = pair(1, LinkKind::Stream, Faults::none());
    let start = lab.now();
    lab.with(0, |ear, now| {
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
    assert_eq!(lab.now().wall.saturating_since(start.wall), 65);
}

#[test]
fn nothing_arrives_before_its_latency() {
    let latency = Duration::from_millis(10);
    let faults = Faults::rough().with_latency(latency..=latency);
    let (mut lab, link) = pair(1, LinkKind::Stream, faults);
    for _ in 0..20 {
        let sent = lab.now().mono;
        lab.with(0, |ear, _| ear.out.push(Action::Send(link, vec![1; 4])));
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
