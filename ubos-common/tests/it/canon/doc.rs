//! Generated documents that know three ways to be written: typed, parsed, and as untidy text.

use proptest::collection::vec;
use proptest::prelude::*;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// A JSON document; members keep the order in which they were drawn.
#[derive(Debug, Clone)]
pub(crate) enum Doc {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Double(f64),
    Text(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Serialize for Doc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Signed(value) => serializer.serialize_i64(*value),
            Self::Double(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(members) => {
                let mut map = serializer.serialize_map(None)?;
                for (name, value) in members {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl Doc {
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap()
    }

    /// JSON text of this document, with spellings and white space drawn from `seed`.
    pub(crate) fn untidy(&self, seed: u64) -> String {
        let mut scribe = Scribe {
            out: String::new(),
            seed,
        };
        scribe.doc(self);
        scribe.out
    }
}

struct Scribe {
    out: String,
    seed: u64,
}

impl Scribe {
    fn draw(&mut self, sides: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.seed >> 33) % sides
    }

    fn space(&mut self) {
        let spaces = ["", "", "", " ", "\n", "\t", "\r\n  "];
        let at = usize::try_from(self.draw(7)).unwrap();
        self.out.push_str(spaces[at]);
    }

    fn mark(&mut self, mark: char) {
        self.space();
        self.out.push(mark);
        self.space();
    }

    fn doc(&mut self, doc: &Doc) {
        match doc {
            Doc::Double(value) => self.double(*value),
            Doc::Text(text) => self.text(text),
            Doc::Array(items) => {
                self.mark('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.mark(',');
                    }
                    self.doc(item);
                }
                self.mark(']');
            }
            Doc::Object(members) => {
                self.mark('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        self.mark(',');
                    }
                    self.text(name);
                    self.mark(':');
                    self.doc(value);
                }
                self.mark('}');
            }
            simple => self.out.push_str(&serde_json::to_string(simple).unwrap()),
        }
    }

    fn double(&mut self, value: f64) {
        let text = match self.draw(4) {
            0 => format!("{value:e}"),
            1 => format!("{value:E}"),
            2 => format!("{value}"),
            _ => format!("{value:e}00")
                .replace("e-", "0000e-0")
                .replace("00e-0", "00E-0"),
        };
        // Only the first three are sure to be JSON of the same value.
        match text.parse::<f64>() {
            Ok(read) if read == value && text.contains(['E', '.']) => self.out.push_str(&text),
            _ => self.out.push_str(&format!("{value:e}")),
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match self.draw(4) {
                0 => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                1 if character == '/' => self.out.push_str("\\/"),
                2 => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04X}"));
                    }
                }
                _ => {
                    let quoted = serde_json::to_string(&character).unwrap();
                    self.out.push_str(&quoted[1..quoted.len() - 1]);
                }
            }
        }
        self.out.push('"');
    }
}

/// Documents up to eight levels deep.
pub(crate) fn docs() -> impl Strategy<Value = Doc> {
    let leaf = prop_oneof![
        1 => Just(Doc::Null),
        1 => any::<bool>().prop_map(Doc::Bool),
        1 => any::<u64>().prop_map(Doc::Unsigned),
        1 => any::<i64>().prop_map(Doc::Signed),
        2 => (-2000i64..2000).prop_map(Doc::Signed),
        3 => doubles().prop_map(Doc::Double),
        4 => texts().prop_map(Doc::Text),
    ];
    leaf.prop_recursive(8, 64, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..8).prop_map(Doc::Array),
            vec((texts(), inner), 0..8).prop_map(|mut members| {
                let mut seen = std::collections::HashSet::new();
                members.retain(|(name, _)| seen.insert(name.clone()));
                Doc::Object(members)
            }),
        ]
    })
}

fn doubles() -> impl Strategy<Value = f64> {
    let near = |value: f64| {
        (-9i64..9).prop_map(move |step| f64::from_bits(value.to_bits().wrapping_add_signed(step)))
    };
    let any_bits = any::<u64>().prop_map(f64::from_bits);
    prop_oneof![
        any_bits.prop_filter("finite", |value| value.is_finite()),
        near(1e21),
        near(-1e21),
        near(1e-7),
        near(1e-6),
        (1u64..4096).prop_map(f64::from_bits),
        (any::<i16>(), -6i32..6).prop_map(|(m, e)| f64::from(m) * 10f64.powi(e)),
        Just(-0.0),
    ]
}

/// Characters of all planes, and more than their share of those with a rule of their own.
fn texts() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        6 => proptest::char::range('a', 'f'),
        1 => proptest::char::range('\u{0}', '\u{2f}'),
        1 => prop::sample::select(vec!['"', '\\', '/', '\u{7f}', '\u{80}', '\u{2028}']),
        1 => prop::sample::select(vec!['\u{d7ff}', '\u{e000}', '\u{ffff}', '\u{10000}', '\u{10ffff}']),
        1 => any::<char>(),
    ];
    vec(character, 0..12).prop_map(String::from_iter)
}
