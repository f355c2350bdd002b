//! Server-sent events: however the bytes are split, the events are the same.

use upp::arbitrary::server_sent_events as read;

/// The first byte says how the others are split.
pub fn check(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else {
        return;
    };
    let whole = read([text]);
    assert_eq!(read(text.chunks(1)), whole);
    assert_eq!(read(text.chunks(usize::from(*choice).max(1))), whole);
    let (head, tail) = text.split_at(usize::from(*choice).min(text.len()));
    assert_eq!(read([head, &[], tail]), whole);
    if let (events, true) = &whole {
        // An event has no more than what came, but for the ends of its lines.
        assert!(events.iter().map(String::len).sum::<usize>() <= text.len());
        assert!(!events.iter().any(|event| event.contains('\r')));
    }
}
