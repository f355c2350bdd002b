//! Objects of plain members, the common schema of a tool's input: a value is held against one without being parsed into a tree.
//!
//! Only a fit is decided here. What does not fit, and what is not looked at closely (a float, a member named twice), is left to
//! the validator, which also says why.

use serde_json::{Map, Value};

use crate::json::{Fault, Kind, Limits, Raw, Reader};
use crate::violation::Profile;

/// Keywords that say nothing of a value.
const ANNOTATIONS: [&str; 6] = [
    "$comment",
    "$schema",
    "default",
    "description",
    "examples",
    "title",
];

/// Members of a schema that is simple: each has a bit of a word.
const MAX_MEMBERS: usize = 64;

/// An object whose members are texts, whole numbers and booleans.
#[derive(Debug)]
pub(super) struct Simple {
    members: Vec<(Box<str>, Member)>,
    /// A bit for each member that must be there.
    required: u64,
    is_closed: bool,
}

#[derive(Debug)]
enum Member {
    Any,
    Boolean,
    /// Whole, written without a fraction or exponent.
    Integer {
        least: i64,
        most: i64,
    },
    /// So many characters.
    Text {
        least: usize,
        most: usize,
    },
    OneOf(Vec<Box<str>>),
}

impl Simple {
    /// `None` for a schema that says anything else.
    pub(super) fn of(schema: &Value) -> Option<Self> {
        let schema = schema.as_object()?;
        let mut simple = Self {
            members: Vec::new(),
            required: 0,
            is_closed: false,
        };
        let mut is_object = false;
        for (keyword, value) in schema {
            match keyword.as_str() {
                "type" => is_object = value.as_str()? == "object",
                "additionalProperties" => simple.is_closed = !value.as_bool()?,
                "properties" => {
                    for (name, member) in value.as_object()? {
                        let n = simple.position(name)?;
                        simple.members.get_mut(n)?.1 = Member::of(member.as_object()?)?;
                    }
                }
                "required" => {}
                annotation => ANNOTATIONS.contains(&annotation).then_some(())?,
            }
        }
        // A member that is required and no property must not be one that is unknown, for a closed object has none.
        for name in schema
            .get("required")
            .map_or(Some(&Vec::new()), Value::as_array)?
        {
            let known = simple.members.len();
            let n = simple.position(name.as_str()?)?;
            if n == known && simple.is_closed {
                return None;
            }
            simple.required |= 1 << n;
        }
        is_object.then_some(simple)
    }

    /// Where a member stands, added where it did not.
    fn position(&mut self, name: &str) -> Option<usize> {
        let found = self.members.iter().position(|(known, _)| **known == *name);
        let n = found.unwrap_or(self.members.len());
        if found.is_none() {
            self.members.push((name.into(), Member::Any));
        }
        (n < MAX_MEMBERS).then_some(n)
    }

    /// Whether a value fits for certain.
    pub(super) fn fits(&self, value: Raw<'_>) -> bool {
        let mut reader = Reader::of_raw(value, &Limits::default(), Profile::Strict);
        let (mut seen, mut fits) = (0, true);
        let read = reader.fields(|reader, name, _| {
            let found = self.members.iter().position(|(known, _)| **known == *name);
            match found.and_then(|n| Some((n, self.members.get(n)?))) {
                Some((n, (_, member))) => {
                    fits &= seen & (1 << n) == 0 && member.fits(reader)?;
                    seen |= 1 << n;
                }
                None => {
                    fits &= !self.is_closed;
                    reader.skip()?;
                }
            }
            Ok(())
        });
        read.is_ok() && fits && seen & self.required == self.required
    }
}

impl Member {
    fn of(schema: &Map<String, Value>) -> Option<Self> {
        let said = |keyword: &str| schema.get(keyword);
        let whole =
            |keyword: &str, default: i64| said(keyword).map_or(Some(default), Value::as_i64);
        let count = |keyword: &str, default: usize| {
            said(keyword).map_or(Some(default), |value| usize::try_from(value.as_u64()?).ok())
        };
        let (kind, keywords): (Self, &[&str]) = match said("type")?.as_str()? {
            "boolean" => (Self::Boolean, &["type"]),
            "integer" => {
                let (least, most) = (whole("minimum", i64::MIN)?, whole("maximum", i64::MAX)?);
                (
                    Self::Integer { least, most },
                    &["type", "minimum", "maximum"],
                )
            }
            "string" if said("enum").is_some() => {
                let words = said("enum")?.as_array()?;
                let words: Option<Vec<_>> = words
                    .iter()
                    .map(|word| Some(word.as_str()?.into()))
                    .collect();
                (Self::OneOf(words?), &["type", "enum"])
            }
            "string" => {
                let (least, most) = (count("minLength", 0)?, count("maxLength", usize::MAX)?);
                (
                    Self::Text { least, most },
                    &["type", "minLength", "maxLength"],
                )
            }
            _ => return None,
        };
        let is_known =
            |keyword: &str| keywords.contains(&keyword) || ANNOTATIONS.contains(&keyword);
        schema
            .keys()
            .all(|keyword| is_known(keyword))
            .then_some(kind)
    }

    /// Takes one value.
    fn fits(&self, reader: &mut Reader<'_>) -> Result<bool, Fault> {
        let kind = reader.peek()?;
        Ok(match (self, kind) {
            (Self::Boolean, Kind::Bool) => {
                reader.bool()?;
                true
            }
            (Self::Integer { least, most }, Kind::Number) => {
                let number = reader.number()?.parse::<i64>();
                number.is_ok_and(|number| (*least..=*most).contains(&number))
            }
            (Self::Text { least, most }, Kind::String) => {
                let text = reader.str()?;
                // A character has at most four bytes, so most lengths need no count.
                let is_between = |length: usize| (*least..=*most).contains(&length);
                (text.len() <= *most && text.len() / 4 >= *least)
                    || is_between(text.chars().count())
            }
            (Self::OneOf(words), Kind::String) => {
                let text = reader.str()?;
                words.iter().any(|word| **word == *text)
            }
            (any, _) => {
                reader.skip()?;
                matches!(any, Self::Any)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::RawBuf;
    use proptest::prelude::*;
    use serde_json::json;

    fn member() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(json!({"type": "boolean", "title": "t"})),
            (-3i64..3, -3i64..3)
                .prop_map(|(a, b)| json!({"type": "integer", "minimum": a, "maximum": b})),
            (0u64..3, 0u64..4)
                .prop_map(|(a, b)| json!({"type": "string", "minLength": a, "maxLength": b})),
            Just(json!({"type": "string", "enum": ["a", "é"]})),
            Just(json!({"type": "string", "pattern": "^a"})),
            Just(json!({"type": "integer", "multipleOf": 2})),
            Just(json!({"type": ["string", "null"]})),
        ]
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<bool>().prop_map(Value::from),
            (-5i64..5).prop_map(Value::from),
            "[aé]{0,5}".prop_map(Value::from),
            Just(json!(1.0)),
            Just(json!(1.5)),
            Just(Value::Null),
            Just(json!([1])),
        ]
    }

    #[test]
    fn a_text_is_counted_in_characters() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 2, "maxLength": 3}}});
        let simple = Simple::of(&schema).unwrap();
        for (text, fits) in [
            ("ab", true),
            ("abcdefghij", false),
            ("é", false),
            ("ééé", true),
            ("🦀🦀🦀🦀", false),
            ("a", false),
        ] {
            let value = RawBuf::parse(&json!({ "a": text }).to_string()).unwrap();
            assert_eq!(simple.fits(value.as_raw()), fits, "{text}");
        }
    }

    proptest! {
        /// Where it is decided here, the validator says the same; floats alone are left to it.
        #[test]
        fn a_fit_is_one_for_the_validator(
            properties in prop::collection::btree_map("[abc]", member(), 0..3),
            required in prop::collection::btree_set("[abc]", 0..3),
            is_open in any::<bool>(),
            values in prop::collection::btree_map("[abcd]", value(), 0..4),
        ) {
            let schema = json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": is_open,
            });
            let value = Value::from(values.into_iter().collect::<Map<_, _>>());
            let text = RawBuf::parse(&value.to_string()).unwrap();
            let is_valid = jsonschema::validator_for(&schema).unwrap().is_valid(&value);
            if let Some(simple) = Simple::of(&schema) {
                let fits = simple.fits(text.as_raw());
                prop_assert!(is_valid || !fits, "{schema} {value}");
                prop_assert!(fits || !is_valid || text.as_str().contains("1.0"), "{schema} {value}");
            }
        }
    }

    #[test]
    fn what_says_more_is_not_simple() {
        for schema in [
            json!(true),
            json!({"properties": {}}),
            json!({"type": "object", "minProperties": 1}),
            json!({"type": "object", "properties": {"a": {}}}),
            json!({"type": "object", "properties": {"a": {"type": "string", "format": "date"}}}),
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"type": "object", "additionalProperties": false, "required": ["a"]}),
        ] {
            assert!(Simple::of(&schema).is_none(), "{schema}");
        }
    }

    #[test]
    fn a_member_named_twice_is_left_to_the_validator() {
        let simple =
            Simple::of(&json!({"type": "object", "properties": {"a": {"type": "boolean"}}}))
                .unwrap();
        let twice = RawBuf::assume_sound(r#"{"a":true,"a":true}"#.to_owned());
        assert!(!simple.fits(twice.as_raw()));
    }
}
