//! Canonical JSON: from text, from a tree and by another implementation, byte for byte.

use serde_json::Value;
use ubos_common::canon::{self, Domain, Mode};

/// The first byte chooses the mode.
pub fn check(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else {
        return;
    };
    let mut out = Vec::new();
    let mode = if choice % 2 == 0 {
        Mode::Jcs
    } else {
        Mode::Exact
    };
    match canon::write_slice(&mut out, mode, text) {
        Ok(()) => taken(text, &out, mode),
        Err(refused) => {
            assert!(out.is_empty() && !refused.to_string().is_empty());
        }
    }
}

/// Names that serde_json gives a meaning of its own: its trees cannot hold an object with such a member.
const OF_SERDE_JSON: &[u8] = b"$serde_json::private::";

fn taken(text: &[u8], ours: &[u8], mode: Mode) {
    if !ours
        .windows(OF_SERDE_JSON.len())
        .any(|part| part == OF_SERDE_JSON)
    {
        agrees_with_a_tree(text, ours);
    }
    // Canonical is canonical.
    assert_eq!(
        canon::slice_to_vec(ours).expect("canonical text is taken"),
        ours
    );
    if mode == Mode::Exact {
        let domain = Domain::new("fuzz");
        let of_text = canon::digest_slice(&domain, text).expect("taken once, taken twice");
        assert_eq!(
            of_text,
            canon::digest_slice(&domain, ours).expect("canonical text is exact")
        );
    }
}

fn agrees_with_a_tree(text: &[u8], ours: &[u8]) {
    let value: Value = serde_json::from_slice(text).expect("what is taken is JSON");
    assert_eq!(
        canon::value_to_vec(&value).expect("a tree without faults"),
        ours
    );
    assert_eq!(canon::to_vec(&value).expect("a tree without faults"), ours);
    assert_eq!(
        serde_json_canonicalizer::to_vec(&value).expect("a tree without faults"),
        ours
    );
}
