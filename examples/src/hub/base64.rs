//! Bytes as text: base64 with the standard alphabet and padding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes to text.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let index = usize::try_from(bits >> (18 - 6 * at) & 63).unwrap_or_default();
            let letter = ALPHABET.get(index).copied().unwrap_or(b'=');
            let is_there = usize::try_from(at).is_ok_and(|at| at <= chunk.len());
            text.push(if is_there { char::from(letter) } else { '=' });
        }
    }
    text
}

/// Text to bytes; `None` for what is no base64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let pad = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let letters = text.get(..text.len() - pad).filter(|_| pad <= 2)?;
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in letters.chunks(4) {
        let mut bits = 0_u32;
        for at in 0..4 {
            let value = match chunk.get(at) {
                Some(letter) => ALPHABET.iter().position(|known| known == letter)?,
                None => 0,
            };
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        let [_, made @ ..] = bits.to_be_bytes();
        let (taken, rest) = made.split_at_checked(chunk.len() - 1)?;
        // What is behind the end is nothing: each text has one meaning, each meaning one text.
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(taken);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        for wrong in [
            "Z", "Zg=", "Zg==Zg==", "Zh==", "====", "Zg=a", "Z!==", "é==",
        ] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
