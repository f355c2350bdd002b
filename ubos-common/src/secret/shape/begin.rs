//! Where a shape may begin: most bytes of most texts are passed over at a look.

use super::azure::SIGNED;
use super::key::{PREFIXES, STARTS};
use super::name::letters;
use super::scan::{Barren, starts_word};

/// What a byte is to a text that is looked through: its letter, a bit for each, and what follows.
pub(in crate::secret) type Look = u32;

/// The bits of the letters.
pub(in crate::secret) const LETTERS: Look = (1 << 26) - 1;
/// It belongs to a word.
const WORD: Look = 1 << 26;
/// A shape may begin with it where a word does.
const BEGINS: Look = 1 << 27;
/// A shape may begin with it, wherever it stands: a name stands before a colon or a sign of equality, some characters of a
/// secret before a tilde, and hyphens come in pairs.
const SIGN: Look = 1 << 28;
const TILDE: Look = 1 << 29;
const HYPHEN: Look = 1 << 30;
/// It ends a JSON string, or cannot stand in one as it is, or is no ASCII.
const OTHER: Look = 1 << 31;

/// The next place from `from` on where a shape may begin; the end where there is none.
pub(super) fn next_beginning(barren: &Barren, bytes: &[u8], from: usize) -> usize {
    // The secret of an AWS key begins with any byte.
    if barren.aws_id.is_some() {
        return from;
    }
    let mut fresh = if starts_word(bytes, from) { BEGINS } else { 0 };
    let rest = bytes.get(from..).unwrap_or_default();
    for (n, byte) in rest.iter().enumerate() {
        let look = look_of(*byte);
        if look & (SIGN | TILDE | HYPHEN | fresh) != 0 && begins(look, *byte, rest.get(n + 1)) {
            return from + n;
        }
        fresh = fresh_behind(look);
    }
    bytes.len()
}

/// What a JSON string looks like, up to the quote that ends it.
#[derive(Clone, Copy)]
pub(in crate::secret) struct Looked {
    /// Its bytes.
    pub(in crate::secret) length: usize,
    /// Its letters, a bit for each.
    pub(in crate::secret) letters: Look,
    /// Whether a shape may be in it.
    pub(in crate::secret) may_have_shape: bool,
}

/// Looks at a string of which `bytes` is the rest of the text, with `may_name` telling whether letters may be those of a
/// secret's name. `None` where a character is escaped, or the string has no end.
pub(in crate::secret) fn look(bytes: &[u8], may_name: impl Fn(Look) -> bool) -> Option<Looked> {
    let (mut seen, mut fresh) = (0, BEGINS);
    let (mut may_have_shape, mut has_address) = (false, false);
    for (n, byte) in bytes.iter().enumerate() {
        let look = look_of(*byte);
        if look & (SIGN | TILDE | HYPHEN | OTHER | fresh) != 0 {
            let behind = bytes.get(n + 1);
            let is_behind = |word| bytes.get(..n).is_some_and(|before| before.ends_with(word));
            match *byte {
                b'"' => {
                    return Some(Looked {
                        length: n,
                        letters: seen & LETTERS,
                        may_have_shape: may_have_shape || has_address,
                    });
                }
                b'\\' | 0..0x20 => return None,
                // What is invisible may stand in the middle of a shape.
                0x80.. => may_have_shape = true,
                b':' if behind == Some(&b'/') => has_address = true,
                b'=' if is_behind(SIGNED) => may_have_shape = true,
                b':' | b'=' => may_have_shape |= may_name(seen & LETTERS),
                b'~' => may_have_shape |= is_behind(b"Q"),
                _ => may_have_shape |= begins(look, *byte, behind),
            }
        }
        seen |= look;
        fresh = fresh_behind(look);
    }
    None
}

/// `BEGINS` where a word begins behind a byte.
const fn fresh_behind(look: Look) -> Look {
    if look & WORD == 0 { BEGINS } else { 0 }
}

/// Whether a shape may begin with a byte that may begin one, by the byte behind it.
fn begins(look: Look, byte: u8, behind: Option<&u8>) -> bool {
    if look & (SIGN | TILDE) != 0 {
        return true;
    }
    let pairs = BEHIND.get(usize::from(byte)).copied().unwrap_or_default();
    behind.is_some_and(|behind| pairs & in_pairs(*behind) != 0)
}

fn look_of(byte: u8) -> Look {
    LOOKS.get(usize::from(byte)).copied().unwrap_or_default()
}

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "made when it is compiled, of 256 bytes"
)]
static LOOKS: [Look; 256] = {
    let mut looks = [0; 256];
    let mut n = 0;
    while n < looks.len() {
        let byte = n as u8;
        looks[n] = match byte {
            b':' | b'=' => SIGN,
            b'~' => TILDE,
            b'-' => HYPHEN,
            b'"' | b'\\' | 0..0x20 | 0x80.. => OTHER,
            _ if byte.is_ascii_alphanumeric() || byte == b'_' => {
                WORD | letters(&[byte]) | if BEHIND[n] == 0 { 0 } else { BEGINS }
            }
            _ => 0,
        };
        n += 1;
    }
    looks
};

/// The place of a byte among those that stand behind one: several share it.
const fn in_pairs(byte: u8) -> u64 {
    1 << (byte & 63)
}

/// Which bytes stand behind each, where a shape begins with it.
#[expect(
    clippy::indexing_slicing,
    reason = "made when it is compiled, of 256 bytes"
)]
static BEHIND: [u64; 256] = {
    let mut behind = [0; 256];
    let mut n = 0;
    while n < behind.len() {
        let (mut at, end) = STARTS[n];
        while at < end {
            behind[n] |= in_pairs(PREFIXES[at as usize].0.as_bytes()[1]);
            at += 1;
        }
        n += 1;
    }
    // `bearer` and `basic`, `eyJ`, and what begins with hyphens.
    let words = [
        (b'b', *b"eEaA"),
        (b'B', *b"eEaA"),
        (b'e', *b"yyyy"),
        (b'-', *b"----"),
    ];
    let mut word = 0;
    while word < words.len() {
        let (first, seconds) = words[word];
        let mut second = 0;
        while second < seconds.len() {
            behind[first as usize] |= in_pairs(seconds[second]);
            second += 1;
        }
        word += 1;
    }
    behind
};
