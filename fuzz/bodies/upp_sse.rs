//! Server-sent events: however the bytes are split, the events are the same.

use upp::transport::{SseError, SseReader};

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
    if let (events, Ok(())) = &whole {
        // An event has no more than what came, but for the ends of its lines.
        assert!(events.iter().map(String::len).sum::<usize>() <= text.len());
        assert!(!events.iter().any(|event| event.contains('\r')));
    }
}

type Seen = (Vec<String>, Result<(), SseError>);

fn read<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let (mut reader, mut events) = (SseReader::default(), Vec::new());
    for part in parts {
        let fed = reader.feed(part);
        events.extend(core::iter::from_fn(|| reader.next_data()));
        if fed.is_err() {
            return (events, fed);
        }
    }
    let finished = reader.finish();
    events.extend(core::iter::from_fn(|| reader.next_data()));
    (events, finished)
}
