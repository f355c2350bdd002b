//! How bad twins go wrong: by what they say and by what they do not hear.

use std::collections::VecDeque;

use super::session::frame;
use crate::frame::FrameDecoder;

/// What a bad twin remembers.
#[derive(Debug, Default)]
pub(super) struct Memo {
    pub(super) count: usize,
    pub(super) text: String,
}

/// One way to go wrong. The good twin has none.
#[derive(Clone, Copy)]
pub(super) struct Fault {
    /// What becomes of a message that the twin would send.
    pub(super) says: fn(&mut Memo, String) -> Vec<String>,
    /// What becomes of bytes that it would take, as they were sent.
    pub(super) hears: fn(&mut Memo, Vec<u8>) -> Vec<u8>,
}

impl Fault {
    pub(super) const NONE: Self = Self {
        says: |_, text| vec![text],
        hears: |_, bytes| bytes,
    };

    /// Says something else than it should.
    pub(super) const fn says(says: fn(&mut Memo, String) -> Vec<String>) -> Self {
        Self { says, ..Self::NONE }
    }

    /// Hears something else than was said.
    pub(super) const fn hears(hears: fn(&mut Memo, Vec<u8>) -> Vec<u8>) -> Self {
        Self {
            hears,
            ..Self::NONE
        }
    }
}

/// The bytes of a machine on their way out, through a fault.
pub(super) struct Mouth {
    decoder: FrameDecoder,
    fault: Fault,
    memo: Memo,
    out: VecDeque<Vec<u8>>,
}

impl Mouth {
    pub(super) fn new(fault: Fault) -> Self {
        Self {
            decoder: FrameDecoder::new(usize::MAX),
            fault,
            memo: Memo::default(),
            out: VecDeque::new(),
        }
    }

    pub(super) fn say(&mut self, mut bytes: &[u8]) {
        while let Ok((taken, Some(body))) = self.decoder.decode(bytes) {
            let text = String::from_utf8_lossy(body).into_owned();
            let said = (self.fault.says)(&mut self.memo, text);
            let frames = said.iter().map(|text| frame(text.as_bytes()));
            self.out.extend(frames.filter(|frame| frame.len() > 4));
            bytes = bytes.get(taken..).unwrap_or_default();
        }
    }

    pub(super) fn hear(&mut self, bytes: &[u8]) -> Vec<u8> {
        (self.fault.hears)(&mut self.memo, bytes.to_vec())
    }

    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }
}

/// Whether bytes are one message of a type.
pub(super) fn is(bytes: &[u8], kind: &str) -> bool {
    let wanted = format!("\"type\":\"{kind}\"");
    String::from_utf8_lossy(bytes).contains(&wanted)
}

/// One frame with a text in it replaced.
pub(super) fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    match bytes.get(4..).map(String::from_utf8_lossy) {
        Some(body) if body.contains(from) => frame(body.replace(from, to).as_bytes()),
        _ => bytes.to_vec(),
    }
}
