//! Frames and messages of OpenSentience: any split gives the same, and what is read writes back.

use arbitrary::Unstructured;
use opensentience_wire::Envelope;
use opensentience_wire::Limits;
use opensentience_wire::message::Message;
use opensentience_wire::validate;
use opensentience_wire::{FrameDecoder, encode_frame};
use ubos_common::json;

/// A limit that short inputs reach.
const LIMIT: usize = 512;

/// The first byte chooses what the others are: a byte stream, a message, or what a generator draws from.
pub fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    match choice % 3 {
        0 => frames(rest, usize::from(choice / 3) % 9 + 1),
        1 => message(rest),
        _ => generated(rest),
    }
}

/// What a decoder makes of pieces: the frames, and whether it went wrong or broke off.
fn read(pieces: &mut dyn Iterator<Item = &[u8]>) -> (Vec<Vec<u8>>, String) {
    let mut decoder = FrameDecoder::new(LIMIT);
    let mut frames = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.decode(piece) {
                Ok((_, None)) => break,
                Ok((taken, Some(frame))) => {
                    frames.push(frame.to_vec());
                    piece = &piece[taken..];
                }
                Err(error) => return (frames, error.to_string()),
            }
        }
    }
    let end = decoder.finish().err().map(|error| error.to_string());
    (frames, end.unwrap_or_default())
}

fn frames(bytes: &[u8], size: usize) {
    let whole = read(&mut std::iter::once(bytes));
    assert_eq!(read(&mut bytes.chunks(size)), whole);
    let mut again = Vec::new();
    for frame in &whole.0 {
        encode_frame(&mut again, LIMIT, |out| out.extend_from_slice(frame)).expect("it fitted");
        message(frame);
    }
    assert!(bytes.starts_with(&again));
    let limits = Limits::default().with_max_frame_bytes(LIMIT);
    let report = validate::stream(bytes, &limits);
    assert!(whole.1.is_empty() || !report.is_valid());
}

fn message(text: &[u8]) {
    let limits = json::Limits::default();
    let report = validate::message(text, &Limits::default());
    let Ok((envelope, _)) = Envelope::decode(text, &limits) else {
        assert!(!report.is_valid());
        return;
    };
    let written = json::to_vec(&envelope);
    let (again, _) = Envelope::decode(&written, &limits).expect("what was written is read");
    assert_eq!(json::to_vec(&again), written);
    let Ok((read, _)) = envelope.message(&limits) else {
        assert!(!report.is_valid());
        return;
    };
    // A payload alone is compared as text: of tokens and errors only the encoder sees everything.
    let payload = json::to_vec(&read);
    let (again, _) = again.message(&limits).expect("what was written is read");
    assert_eq!(json::to_vec(&again), payload);
    if !matches!(read, Message::Refused(_)) {
        assert_eq!(again, read);
    }
}

fn generated(bytes: &[u8]) {
    let mut source = Unstructured::new(bytes);
    while let Ok(text) = opensentience_wire::arbitrary::message(&mut source) {
        let report = validate::message(&text, &Limits::default());
        assert!(report.is_valid(), "{report}");
        message(&text);
        if source.is_empty() {
            return;
        }
    }
}
