//! What vendors take of JSON Schema where they enforce a schema.

use serde_json::{Map, Value};
use ubos_common::json::RawObject;

/// What a vendor takes of JSON Schema where it enforces a schema.
pub(super) struct Dialect {
    /// Beside those of every dialect.
    pub(super) keywords: &'static [&'static str],
    /// Whether every property must be required.
    pub(super) requires_all: bool,
    pub(super) is_recursive: bool,
}

/// Keywords of every dialect.
const KEYWORDS: [&str; 15] = [
    "$defs",
    "$ref",
    "$schema",
    "additionalProperties",
    "anyOf",
    "const",
    "definitions",
    "description",
    "enum",
    "format",
    "items",
    "properties",
    "required",
    "title",
    "type",
];

/// Subschemas that are looked at.
const MAX_STEPS: usize = 10_000;

impl Dialect {
    /// Whether a vendor that enforces schemas takes this one: objects are closed, and no keyword is unknown.
    pub(super) fn takes(&self, schema: &RawObject) -> bool {
        let Ok(root) = serde_json::from_str::<Value>(schema.as_str()) else {
            return false;
        };
        let mut walk = Walk {
            dialect: self,
            root: &root,
            open: Vec::new(),
            steps: 0,
        };
        root.get("type").is_some_and(|kind| kind == "object") && walk.takes(&root)
    }
}

struct Walk<'a> {
    dialect: &'a Dialect,
    root: &'a Value,
    /// References that are being followed.
    open: Vec<&'a str>,
    steps: usize,
}

impl<'a> Walk<'a> {
    fn takes(&mut self, schema: &'a Value) -> bool {
        self.steps += 1;
        let Value::Object(schema) = schema else {
            return false;
        };
        let is_known =
            |name: &String| KEYWORDS.contains(&&**name) || self.dialect.keywords.contains(&&**name);
        self.steps < MAX_STEPS
            && schema.keys().all(is_known)
            && self.takes_object(schema)
            && self.takes_reference(schema)
            && schema.get("items").is_none_or(|items| self.takes(items))
            && ["anyOf", "allOf"]
                .into_iter()
                .all(|name| match schema.get(name) {
                    Some(Value::Array(all)) => all.iter().all(|one| self.takes(one)),
                    other => other.is_none(),
                })
            && ["properties", "$defs", "definitions"]
                .into_iter()
                .all(|name| match schema.get(name) {
                    Some(Value::Object(all)) => all.values().all(|one| self.takes(one)),
                    other => other.is_none(),
                })
    }

    fn takes_object(&self, schema: &Map<String, Value>) -> bool {
        let properties = schema.get("properties");
        let is_object = match schema.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
            kind => properties.is_some() || kind.is_some_and(|kind| kind == "object"),
        };
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &String| {
            required.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(name)))
        };
        let mut names = properties
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::keys);
        let has_all = !self.dialect.requires_all || names.all(is_required);
        let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        !is_object || is_closed && has_all
    }

    fn takes_reference(&mut self, schema: &'a Map<String, Value>) -> bool {
        let Some(reference) = schema.get("$ref") else {
            return true;
        };
        let Some(reference) = reference.as_str() else {
            return false;
        };
        if self.open.contains(&reference) {
            return self.dialect.is_recursive;
        }
        let root = self.root;
        let target = reference.strip_prefix('#').and_then(|at| root.pointer(at));
        let Some(target) = target else {
            return false;
        };
        self.open.push(reference);
        let is_taken = self.takes(target);
        self.open.pop();
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Dialect = Dialect {
        keywords: &["minimum"],
        requires_all: true,
        is_recursive: true,
    };
    const PLAIN: Dialect = Dialect {
        keywords: &["allOf"],
        requires_all: false,
        is_recursive: false,
    };

    #[test]
    fn schemas_are_told_apart_by_what_vendors_enforce() {
        let closed =
            |members: &str| format!(r#"{{"type":"object","additionalProperties":false{members}}}"#);
        let property = |inner: &str| {
            closed(&format!(
                r#","properties":{{"a":{inner}}},"required":["a"]"#
            ))
        };
        let recursive = closed(
            r##","properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"],"$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"}}}"##,
        );
        let twice = closed(
            r##","properties":{"a":{"$ref":"#/$defs/n"},"b":{"$ref":"#/$defs/n"}},"required":["a","b"],"$defs":{"n":{"type":"integer"}}"##,
        );
        for (schema, taken) in [
            (closed(""), [true, true]),
            (r#"{"type":"object"}"#.to_owned(), [false, false]),
            (r#"{"type":"array","items":{}}"#.to_owned(), [false, false]),
            (property(r#"{"type":"integer"}"#), [true, true]),
            (property(r#"{"type":"integer","minimum":0}"#), [true, false]),
            (property(r#"{"allOf":[{}]}"#), [false, true]),
            (property(r#"{"type":"object"}"#), [false, false]),
            (property(r#"{"type":["object","null"]}"#), [false, false]),
            (property(r#"{"anyOf":[{"properties":{}}]}"#), [false, false]),
            (property(r#"{"not":{}}"#), [false, false]),
            (property("true"), [false, false]),
            (property(r##"{"$ref":"#/none"}"##), [false, false]),
            (
                property(r#"{"$ref":"https://example.org"}"#),
                [false, false],
            ),
            (recursive, [true, false]),
            // One definition at two places goes on nowhere.
            (twice, [true, true]),
            (closed(r#","properties":{"a":{}}"#), [false, true]),
        ] {
            let object = crate::tool::object(&schema).unwrap();
            assert_eq!(
                [STRICT.takes(&object), PLAIN.takes(&object)],
                taken,
                "{schema}"
            );
        }
    }
}
