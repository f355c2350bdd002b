//! Where a shape may begin: most bytes of most texts are passed over at a look.

use super::key::begins_key;
use super::scan::{Barren, starts_word};

/// The next place from `from` on where a shape may begin; the end where there is none.
pub(super) fn next_beginning(barren: &Barren, bytes: &[u8], from: usize) -> usize {
    // The secret of an AWS key begins with any byte.
    if barren.aws_id.is_some() {
        return from;
    }
    let mut starts_word = starts_word(bytes, from);
    let rest = bytes.get(from..).unwrap_or_default();
    for (n, byte) in rest.iter().enumerate() {
        match CLASSES.get(usize::from(*byte)) {
            Some(Class::Sign) => return from + n,
            Some(Class::Letter { begins }) => {
                if *begins && starts_word {
                    return from + n;
                }
                starts_word = false;
            }
            Some(Class::Other) | None => starts_word = true,
        }
    }
    bytes.len()
}

/// What a byte is to a text that is looked through.
#[derive(Clone, Copy)]
enum Class {
    /// A shape may begin with it, wherever it stands.
    Sign,
    /// It belongs to a word; a shape may begin with it at the start of one.
    Letter {
        begins: bool,
    },
    Other,
}

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "made when it is compiled, of 256 bytes"
)]
static CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut n = 0;
    while n < classes.len() {
        let byte = n as u8;
        classes[n] = match byte {
            b'-' | b':' | b'=' => Class::Sign,
            b'_' => Class::Letter { begins: false },
            _ if byte.is_ascii_alphanumeric() => Class::Letter {
                begins: matches!(byte, b'B' | b'b' | b'e') || begins_key(byte),
            },
            _ => Class::Other,
        };
        n += 1;
    }
    classes
};
