//! What verbs declare about their inputs and outputs.

use ubos_common::json::{Kind, RawBuf};

use crate::tree::Node;

/// Kinds of JSON values that a declaration allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Type(u8);

impl Type {
    const TEXT: u8 = 1;
    const NUMBER: u8 = 2;
    const BOOL: u8 = 4;
    const LIST: u8 = 8;
    const OBJECT: u8 = 16;
    const NULL: u8 = 32;
    /// A number without a fraction; together with NUMBER it means nothing more.
    const INTEGER: u8 = 64;
    /// Binds nothing.
    pub(super) const ANY: Self = Self(127);

    /// The type of a word; a word that is not known binds nothing.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        Some(Self(match word {
            "string" | "text" | "str" => Self::TEXT,
            "number" | "float" | "double" => Self::NUMBER,
            "integer" | "int" => Self::INTEGER,
            "boolean" | "bool" => Self::BOOL,
            "array" | "list" => Self::LIST,
            "object" | "map" | "dict" => Self::OBJECT,
            "null" => Self::NULL,
            "any" => return Some(Self::ANY),
            _ => return None,
        }))
    }

    fn of_node(node: Option<&Node>) -> Self {
        match node {
            Some(Node::Text(word)) => Self::of_word(word).unwrap_or(Self::ANY),
            Some(Node::List(words)) => {
                let each = words.iter().map(|word| Self::of_node(Some(word)).0);
                Self(each.fold(0, |all, one| all | one))
            }
            _ => Self::ANY,
        }
    }

    /// Whether a value is of the type.
    pub(super) fn takes(self, value: &RawBuf) -> bool {
        let bit = match value.kind() {
            Kind::String => Self::TEXT,
            Kind::Number if is_integer(value.as_str()) => Self::NUMBER | Self::INTEGER,
            Kind::Number => Self::NUMBER,
            Kind::Bool => Self::BOOL,
            Kind::Array => Self::LIST,
            Kind::Object => Self::OBJECT,
            Kind::Null => Self::NULL,
        };
        self.0 & bit != 0
    }

    /// Whether a value of the other type may be one of this.
    pub(super) const fn overlaps(self, other: Self) -> bool {
        let numbers = Self::NUMBER | Self::INTEGER;
        self.0 & other.0 != 0 || (self.0 & numbers != 0 && other.0 & numbers != 0)
    }

    /// The word for it.
    pub(super) const fn word(self) -> &'static str {
        match self.0 {
            Self::TEXT => "string",
            Self::NUMBER => "number",
            Self::INTEGER => "integer",
            Self::BOOL => "boolean",
            Self::LIST => "array",
            Self::OBJECT => "object",
            Self::NULL => "null",
            127 => "any",
            _ => "one of several types",
        }
    }

    /// The same value in another spelling that is of the type.
    pub(super) fn coerce(self, value: &RawBuf) -> Option<RawBuf> {
        let (text, kind) = (value.as_str(), value.kind());
        // The text `[]` or `null` names nothing, and no more does a list of `null`: the sender meant neither.
        let is_said = matches!(kind, Kind::Number | Kind::Bool);
        let spellings = [
            value.deserialize::<String>().ok(),
            is_said.then(|| format!("\"{text}\"")),
            (kind != Kind::Null).then(|| format!("[{text}]")),
        ];
        let sound = |text: &String| RawBuf::parse(text).ok();
        let mut sound = spellings.iter().flatten().filter_map(sound);
        sound.find(|other| self.takes(other))
    }
}

fn is_integer(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

/// One thing that a verb needs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) ty: Type,
    /// What its absence is.
    pub(super) absence: Absence,
}

/// What the absence of an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// A fault: its verb says what it must be.
    Refused,
    /// Worth saying: a bare name binds nothing.
    Told,
    /// Fine: its verb says that it may be absent.
    Fine,
}

/// The inputs of a verb, of which each entry is a name, `{name, type}`, `{name, schema}` or an object schema.
pub(super) fn inputs(declared: &[RawBuf]) -> Vec<Input> {
    let mut inputs = Vec::new();
    for entry in declared {
        match Node::of_raw(entry.as_raw()) {
            Ok(Node::Text(name)) => inputs.push(Input {
                name,
                ty: Type::ANY,
                absence: Absence::Told,
            }),
            Ok(node @ Node::Object(_)) => add_input(&node, &mut inputs),
            _ => {}
        }
    }
    inputs
}

fn add_input(node: &Node, inputs: &mut Vec<Input>) {
    let is_true =
        |name: &str| matches!(node.member(name), Some(Node::Plain(word)) if &**word == "true");
    let is_false =
        |name: &str| matches!(node.member(name), Some(Node::Plain(word)) if &**word == "false");
    if let Some(name) = node.member("name").and_then(Node::as_text) {
        let schema = node
            .member("schema")
            .and_then(|schema| schema.member("type"));
        let ty = Type::of_node(node.member("type").or(schema));
        inputs.push(Input {
            name: name.to_owned(),
            ty,
            absence: if is_false("required") || is_true("optional") {
                Absence::Fine
            } else if ty == Type::ANY {
                Absence::Told
            } else {
                Absence::Refused
            },
        });
        return;
    }
    let required = |name: &str| match node.member("required") {
        Some(Node::List(names)) => names.iter().any(|n| n.as_text() == Some(name)),
        _ => false,
    };
    let properties = node.member("properties").and_then(Node::as_object);
    for (name, schema) in properties.unwrap_or_default() {
        inputs.push(Input {
            name: name.clone(),
            ty: Type::of_node(schema.member("type")),
            absence: if required(name) {
                Absence::Refused
            } else {
                Absence::Fine
            },
        });
    }
}

/// What a verb gives.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outputs {
    /// The type of the whole.
    pub(super) whole: Type,
    /// Its parts by name.
    pub(super) named: Vec<(String, Type)>,
}

/// The outputs of a verb: a type or name, a list of names, or an object of names and types.
pub(super) fn outputs(declared: &RawBuf) -> Outputs {
    let mut outputs = Outputs {
        whole: Type::ANY,
        named: Vec::new(),
    };
    match Node::of_raw(declared.as_raw()) {
        Ok(Node::Text(word)) => match Type::of_word(&word) {
            Some(ty) => outputs.whole = ty,
            None => outputs.named.push((word, Type::ANY)),
        },
        Ok(Node::List(entries)) => {
            for entry in &entries {
                match entry {
                    Node::Text(name) => outputs.named.push((name.clone(), Type::ANY)),
                    other => {
                        let name = other.member("name").and_then(Node::as_text);
                        let ty = Type::of_node(other.member("type"));
                        outputs.named.extend(name.map(|name| (name.to_owned(), ty)));
                    }
                }
            }
        }
        Ok(node @ Node::Object(_)) => add_outputs(&node, &mut outputs),
        _ => {}
    }
    outputs
}

fn add_outputs(node: &Node, outputs: &mut Outputs) {
    outputs.whole = Type::of_word("object").unwrap_or(Type::ANY);
    let typed = |(name, value): &(String, Node)| {
        let ty = value.member("type").or(Some(value));
        (name.clone(), Type::of_node(ty))
    };
    if let Some(properties) = node.member("properties").and_then(Node::as_object) {
        outputs.named.extend(properties.iter().map(typed));
    } else if node.member("type").is_some() {
        outputs.whole = Type::of_node(node.member("type"));
    } else if let Some(members) = node.as_object() {
        outputs.named.extend(members.iter().map(typed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> RawBuf {
        RawBuf::parse(text).unwrap()
    }

    #[test]
    fn inputs_are_names_or_typed() {
        let declared = [
            raw("\"city\""),
            raw(r#"{"name":"n","type":"integer"}"#),
            raw(r#"{"name":"m","schema":{"type":["string","null"]},"required":false}"#),
            raw(r#"{"properties":{"a":{"type":"boolean"},"b":{}},"required":["a"]}"#),
        ];
        let seen: Vec<_> = inputs(&declared)
            .into_iter()
            .map(|input| (input.name, input.ty.word(), input.absence))
            .collect();
        let wanted = [
            ("city", "any", Absence::Told),
            ("n", "integer", Absence::Refused),
            ("m", "one of several types", Absence::Fine),
            ("a", "boolean", Absence::Refused),
            ("b", "any", Absence::Fine),
        ];
        assert_eq!(seen, wanted.map(|(n, t, r)| (n.to_owned(), t, r)));
    }

    #[test]
    fn outputs_have_a_type_or_names() {
        let names = |text: &str| {
            let outputs = outputs(&raw(text));
            let named: Vec<_> = outputs
                .named
                .iter()
                .map(|(n, t)| format!("{n}:{}", t.word()))
                .collect();
            format!("{} {}", outputs.whole.word(), named.join(" "))
        };
        assert_eq!(names("\"string\""), "string ");
        assert_eq!(names("\"predictions\""), "any predictions:any");
        assert_eq!(
            names(r#"["a",{"name":"b","type":"number"}]"#),
            "any a:any b:number"
        );
        assert_eq!(names(r#"{"a":"number"}"#), "object a:number");
        assert_eq!(names(r#"{"type":"array"}"#), "array ");
        // A type, and no name.
        assert_eq!(names(r#""any""#), "any ");
        assert_eq!(
            names(r#"{"type":"object","properties":{"a":{"type":"string"}}}"#),
            "object a:string"
        );
    }

    #[test]
    fn values_are_respelled_where_they_mean_the_same() {
        let coerce = |word: &str, text: &str| {
            let ty = Type::of_word(word).unwrap();
            ty.coerce(&raw(text)).map(|value| value.as_str().to_owned())
        };
        assert_eq!(coerce("number", "\"5\"").as_deref(), Some("5"));
        assert_eq!(coerce("string", "5").as_deref(), Some("\"5\""));
        assert_eq!(coerce("array", "\"x\"").as_deref(), Some("[\"x\"]"));
        assert_eq!(coerce("boolean", "\"maybe\""), None);
        assert!(!Type::of_word("integer").unwrap().takes(&raw("1.5")));
    }
}
