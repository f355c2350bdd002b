//! Messages and events of UPP: whatever is read writes back, and adds up without a panic.

use arbitrary::{Arbitrary as _, Unstructured};
use ubos_common::json::{Limits, Read, Write, decode, to_vec};
use ubos_common::violation::Profile;
use upp::{Accumulator, Message, Stamp, StreamEvent};

/// The first byte chooses what the rest is: a message, an event, what messages are drawn from, a stream of events.
pub fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    match choice % 4 {
        0 => {
            if let Some(message) = same_again::<Message>(rest) {
                looked_at(&message);
            }
        }
        1 => drop(same_again::<StreamEvent>(rest)),
        2 => drawn(rest),
        _ => stream(rest),
    }
}

/// What is read is written so that it is read as the same, and written as before.
fn same_again<T: for<'a> Read<'a> + Write + PartialEq + core::fmt::Debug>(
    text: &[u8],
) -> Option<T> {
    let limits = Limits::default().with_max_depth(24);
    let mut found = None;
    for profile in [Profile::Strict, Profile::Lenient] {
        if let Ok((read, report)) = decode::<T>(text, &limits, profile) {
            assert!(profile == Profile::Lenient || report.is_valid());
            let written = to_vec(&read);
            let (again, _) =
                decode::<T>(&written, &limits, profile).expect("what is written is read");
            assert_eq!(again, read);
            assert_eq!(to_vec(&again), written);
            found = Some(read);
        }
    }
    found
}

fn looked_at(message: &Message) {
    let text = message.text();
    assert!(!message.id().is_empty());
    let blocks: usize = message
        .content()
        .iter()
        .filter_map(|block| block.as_text())
        .map(str::len)
        .sum();
    assert!(matches!(message, Message::ToolResult(_)) || text.len() >= blocks);
}

fn drawn(bytes: &[u8]) {
    let mut source = Unstructured::new(bytes);
    if let Ok(message) = Message::arbitrary(&mut source) {
        let again = same_again::<Message>(&to_vec(&message));
        assert_eq!(again.as_ref(), Some(&message));
        looked_at(&message);
    }
    if let Ok(event) = StreamEvent::arbitrary(&mut source) {
        assert_eq!(same_again(&to_vec(&event)), Some(event));
    }
}

/// Events in any order add up to a message, or to an error.
fn stream(bytes: &[u8]) {
    let mut source = Unstructured::new(bytes);
    let mut sum = Accumulator::new("fuzz");
    while !source.is_empty() {
        let Ok(event) = StreamEvent::arbitrary(&mut source) else {
            break;
        };
        if sum.add(&event).is_err() {
            return;
        }
    }
    let stamp = Stamp::with_id("m", ubos_common::time::Timestamp::EPOCH);
    if let Ok((message, _)) = sum.finish(stamp) {
        let message = Message::from(message);
        assert_eq!(same_again::<Message>(&to_vec(&message)), Some(message));
    }
}
