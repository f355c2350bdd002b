//! Bounded JSON: what is taken is what `serde_json` takes, and reads back as it was written.

use ubos_common::json::{self, Limits, RawBuf};
use ubos_common::time::{Rfc3339, Timestamp};
use ubos_common::violation::Profile;

ubos_common::words! {
    /// A closed set.
    closed pub enum Word {
        /// One.
        One = "one",
        /// Two.
        Two = "two",
    }
}

ubos_common::wire! {
    /// A member of every sort.
    pub struct Sample {
        /// Text.
        required name: String = "name", "F-1";
        /// Integer.
        optional count: u64 = "count", "F-2";
        /// Double.
        nullable share: f64 = "share", "F-3";
        /// List.
        advised words: Vec<Word> = "words", "F-4", "F-5";
        /// Strict time.
        optional at: Timestamp = "at", "F-6";
        /// Any time.
        optional seen: Rfc3339 = "seen", "F-7";
        /// Anything.
        optional payload: RawBuf = "payload", "F-8";
        /// Itself.
        optional inner: Box<Sample> = "inner", "F-9";
    }
}

/// The first byte chooses what the rest is read as.
pub fn check(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else {
        return;
    };
    let limits = Limits::default().with_max_depth(usize::from(choice >> 1));
    match choice % 2 {
        0 => any_value(text, &limits),
        _ => wire_struct(text, &limits),
    }
}

fn any_value(text: &[u8], limits: &Limits) {
    let ours = json::decode::<RawBuf>(text, limits, Profile::Strict);
    if let Ok((value, _)) = &ours {
        // As text: a number beyond the range of a double is no value to them.
        let parsed: Result<&serde_json::value::RawValue, _> = serde_json::from_str(value.as_str());
        assert!(parsed.is_ok(), "taken, and no JSON to serde_json");
    } else if let Err(error) = ours {
        assert!(!error.to_string().is_empty());
    }
}

fn wire_struct(text: &[u8], limits: &Limits) {
    for profile in [Profile::Strict, Profile::Lenient] {
        if let Ok((sample, _)) = json::decode::<Sample>(text, limits, profile) {
            let written = json::to_vec(&sample);
            let (again, _) = json::decode::<Sample>(&written, limits, profile)
                .expect("what is written reads back");
            assert_eq!(again, sample);
            assert_eq!(json::to_vec(&again), written);
        }
    }
}
