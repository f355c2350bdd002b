//! Frames: four bytes of length, most significant first, then as many bytes of JSON.
//!
//! ```
//! use opensentience_wire::{FrameDecoder, encode_frame};
//!
//! let mut bytes = Vec::new();
//! encode_frame(&mut bytes, 100, |out| out.extend_from_slice(b"{}"))?;
//! assert_eq!(bytes, b"\0\0\0\x02{}");
//!
//! let mut decoder = FrameDecoder::new(100);
//! assert_eq!(decoder.decode(&bytes[..5])?, (5, None)); // the stream may be cut anywhere
//! assert_eq!(decoder.decode(&bytes[5..])?, (1, Some(&b"{}"[..])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Spec: OpenSentience 2.1

use crate::error::{EncodeError, FrameError};

/// Bytes of the length.
const PREFIX_BYTES: usize = 4;

/// Cuts a byte stream into frames, however it is split.
///
/// A frame that lies whole in the input is lent from there; only the frame that the input cuts is copied,
/// and memory grows with the bytes that came, never with the length that was announced.
#[derive(Default)]
pub struct FrameDecoder {
    limit: usize,
    partial: Vec<u8>,
    /// The frame in `partial` was given out and makes room at the next call.
    spent: bool,
}

impl FrameDecoder {
    /// A decoder that takes frames of up to `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            partial: Vec::new(),
            spent: false,
        }
    }

    /// Changes the limit, from the next frame on.
    pub const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// How many bytes of `input` were taken, and the frame that they complete. Call it again with the
    /// rest; no frame means that all of it was taken.
    ///
    /// # Errors
    ///
    /// A frame of no bytes or over the limit. The stream cannot be read on.
    ///
    /// Spec: OpenSentience 2.1, 2.2
    // impl: OSW-2-2
    pub fn decode<'a>(
        &'a mut self,
        input: &'a [u8],
    ) -> Result<(usize, Option<&'a [u8]>), FrameError> {
        if core::mem::take(&mut self.spent) {
            self.recycle();
        }
        if self.partial.is_empty()
            && let Some((prefix, rest)) = input.split_first_chunk::<PREFIX_BYTES>()
        {
            let length = self.length(*prefix)?;
            if let Some(frame) = rest.get(..length) {
                return Ok((PREFIX_BYTES + length, Some(frame)));
            }
        }
        self.decode_partial(input)
    }

    /// Whether the stream may end here.
    ///
    /// # Errors
    ///
    /// It ends inside a frame.
    // impl: OSW-2-5
    pub const fn finish(&self) -> Result<(), FrameError> {
        if self.spent || self.partial.is_empty() {
            return Ok(());
        }
        Err(FrameError::Truncated {
            received: self.partial.len(),
        })
    }

    // impl: OSW-2-2
    fn decode_partial(&mut self, input: &[u8]) -> Result<(usize, Option<&[u8]>), FrameError> {
        let taken = self.take(input, PREFIX_BYTES);
        let Some(prefix) = self.partial.first_chunk::<PREFIX_BYTES>() else {
            return Ok((taken, None));
        };
        let whole = PREFIX_BYTES + self.length(*prefix)?;
        let body = input.get(taken..).unwrap_or_default();
        let taken = taken + self.take(body, whole);
        if self.partial.len() < whole {
            return Ok((taken, None));
        }
        self.spent = true;
        Ok((taken, self.partial.get(PREFIX_BYTES..)))
    }

    /// Keeps bytes until `wanted` are here; gives how many it took.
    // impl: OSW-2-9
    fn take(&mut self, input: &[u8], wanted: usize) -> usize {
        let missing = wanted.saturating_sub(self.partial.len());
        let now = input.get(..missing).unwrap_or(input);
        self.partial.extend_from_slice(now);
        now.len()
    }

    // impl: OSW-2-3, OSW-2-4
    fn length(&self, prefix: [u8; PREFIX_BYTES]) -> Result<usize, FrameError> {
        let length = u32::from_be_bytes(prefix) as usize;
        match length {
            0 => Err(FrameError::Empty),
            _ if length > self.limit => Err(FrameError::TooLarge {
                length,
                limit: self.limit,
            }),
            _ => Ok(length),
        }
    }

    /// Keeps the buffer for the next frame unless an unusually large one left it.
    fn recycle(&mut self) {
        const KEPT: usize = 64 << 10;
        self.partial.clear();
        self.partial.shrink_to(KEPT);
    }
}

/// Sizes alone: what is here may be a hello with its token.
impl core::fmt::Debug for FrameDecoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FrameDecoder")
            .field("limit", &self.limit)
            .field("partial_bytes", &self.partial.len())
            .finish_non_exhaustive()
    }
}

/// Appends one frame whose body `write` writes.
///
/// # Errors
///
/// The body is longer than `limit` or than the prefix can say; `out` is as it was.
///
/// Spec: OpenSentience 2.1, 2.2
pub fn encode_frame(
    out: &mut Vec<u8>,
    limit: usize,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    write(out);
    let length = out.len() - start - PREFIX_BYTES;
    let prefix = u32::try_from(length)
        .ok()
        .filter(|_| length <= limit)
        .map(u32::to_be_bytes);
    match (prefix, out.get_mut(start..start + PREFIX_BYTES)) {
        (Some(prefix), Some(place)) => {
            place.copy_from_slice(&prefix);
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(EncodeError::TooLarge { length, limit })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for body in bodies {
            encode_frame(&mut out, usize::MAX, |out| out.extend_from_slice(body)).unwrap();
        }
        out
    }

    fn feed(decoder: &mut FrameDecoder, mut input: &[u8]) -> Result<Vec<Vec<u8>>, FrameError> {
        let mut got = Vec::new();
        loop {
            let (taken, frame) = decoder.decode(input)?;
            input = &input[taken..];
            match frame {
                Some(frame) => got.push(frame.to_vec()),
                None => break,
            }
        }
        assert!(input.is_empty());
        Ok(got)
    }

    proptest! {
        // spec: OSW-2-2
        #[test]
        fn any_split_gives_the_same_frames(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            cuts in prop::collection::vec(1usize..9, 1..60),
        ) {
            let bytes = frames(&bodies);
            let mut decoder = FrameDecoder::new(40);
            let (mut got, mut at, mut cuts) = (Vec::new(), 0, cuts.iter().cycle());
            while at < bytes.len() {
                let end = (at + cuts.next().unwrap()).min(bytes.len());
                got.extend(feed(&mut decoder, &bytes[at..end]).unwrap());
                at = end;
            }
            prop_assert_eq!(got, bodies);
            prop_assert_eq!(decoder.finish(), Ok(()));
        }
    }

    // spec: OSW-2-3
    #[test]
    fn one_byte_over_the_limit_is_refused_before_its_body() {
        let mut decoder = FrameDecoder::new(5);
        assert_eq!(feed(&mut decoder, b"\0\0\0\x0512345").unwrap(), [b"12345"]);
        let refused = feed(&mut decoder, b"\0\0\0\x06").unwrap_err();
        assert_eq!(
            refused,
            FrameError::TooLarge {
                length: 6,
                limit: 5
            }
        );
        let mut decoder = FrameDecoder::new(5);
        feed(&mut decoder, b"\xff\xff").unwrap();
        assert!(feed(&mut decoder, b"\xff\xff").is_err());
        assert!(decoder.partial.capacity() < 64);
        let mut out = b"kept".to_vec();
        assert!(encode_frame(&mut out, 2, |out| out.extend_from_slice(b"{ }")).is_err());
        assert_eq!(out, b"kept");
        assert!(encode_frame(&mut out, 2, |out| out.extend_from_slice(b"{}")).is_ok());
    }

    // spec: OSW-2-4
    #[test]
    fn a_frame_of_no_bytes_is_refused() {
        let mut decoder = FrameDecoder::new(5);
        assert_eq!(feed(&mut decoder, &[0; 4]), Err(FrameError::Empty));
        let mut decoder = FrameDecoder::new(5);
        feed(&mut decoder, &[0; 3]).unwrap();
        assert_eq!(feed(&mut decoder, &[0]), Err(FrameError::Empty));
    }

    // spec: OSW-2-5
    #[test]
    fn an_end_inside_a_frame_is_no_clean_end() {
        let mut decoder = FrameDecoder::new(5);
        assert_eq!(decoder.finish(), Ok(()));
        for (n, byte) in b"\0\0\0\x02{".iter().enumerate() {
            feed(&mut decoder, &[*byte]).unwrap();
            assert_eq!(
                decoder.finish(),
                Err(FrameError::Truncated { received: n + 1 })
            );
        }
        feed(&mut decoder, b"}").unwrap();
        assert_eq!(decoder.finish(), Ok(()));
    }

    // spec: OSW-2-9
    #[test]
    fn memory_grows_with_what_came_and_not_with_what_is_announced() {
        let mut decoder = FrameDecoder::new(4 << 20);
        feed(&mut decoder, b"\0\x3f\xff\xff{").unwrap();
        assert!(decoder.partial.capacity() < 64);
        let rest = vec![b' '; (4 << 20) - 2];
        assert_eq!(feed(&mut decoder, &rest).unwrap().len(), 1);
        assert!(
            decoder.partial.capacity() <= 64 << 10,
            "a large frame leaves no large buffer"
        );
    }
}
