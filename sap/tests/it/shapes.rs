//! The messages once more, as a table of members: values that fit each, and values that do not.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// What a member may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Version,
    Id,
    IdOrNull,
    Time,
    NotBlank,
    Capability,
    Text,
    Digest,
    Word(&'static [&'static str]),
    /// A number from 0 to 100.
    Psi,
    /// A number from 0.
    Amount,
    Number,
    Whole,
    Bool,
    Any,
    /// An object that nobody looks into.
    Free,
    Object(&'static [Field]),
    Map(&'static Self),
    List(&'static Self),
}

/// Name, whether it must be there, what it may hold.
pub(crate) type Field = (&'static str, bool, Shape);

use Shape::{
    Amount, Any, Bool, Capability, Digest, Free, Id, IdOrNull, List, NotBlank, Number, Object, Psi,
    Text, Time, Version, Whole, Word,
};

const KINDS: Shape = Word(&["user", "system", "agent"]);
const VERDICTS: Shape = Word(&["VALID", "NON_CONSTITUTIONAL", "ESCALATE"]);
const TEXTS: Shape = List(&Text);

pub(crate) const CONTEXT: &[Field] = &[
    (
        "pressureLevel",
        true,
        Word(&["instant", "consulted", "deliberated"]),
    ),
    ("principles", false, TEXTS),
    ("pressure", false, Shape::Map(&Psi)),
    ("objectives", false, TEXTS),
    ("constraints", false, TEXTS),
    ("riskTolerance", false, Word(&["low", "medium", "high"])),
    ("territory", false, Text),
    ("references", false, TEXTS),
    (
        "cachePolicy",
        false,
        Object(&[
            ("mode", false, Word(&["prefer", "only", "bypass"])),
            ("maxAgeSec", false, Whole),
            ("mustAlign", false, Bool),
        ]),
    ),
];

pub(crate) const TASK: &[Field] = &[
    ("protocolVersion", true, Version),
    ("taskId", true, Id),
    ("parentTaskId", false, IdOrNull),
    ("correlationId", true, Id),
    ("issuedAt", true, Time),
    (
        "issuer",
        true,
        Object(&[
            ("agentId", true, NotBlank),
            ("agentKind", true, KINDS),
            ("name", false, Text),
        ]),
    ),
    (
        "target",
        true,
        Object(&[
            ("capability", true, Capability),
            ("agentId", false, Text),
            ("routingHints", false, Free),
        ]),
    ),
    ("constitutionalContext", true, Object(CONTEXT)),
    ("payload", true, Free),
    (
        "outputContract",
        false,
        Object(&[("schema", false, Free), ("format", false, Text)]),
    ),
    (
        "telemetry",
        false,
        Object(&[
            (
                "priority",
                false,
                Word(&["low", "normal", "high", "urgent"]),
            ),
            ("deadline", false, Time),
            (
                "budget",
                false,
                Object(&[("tokens", false, Amount), ("seconds", false, Amount)]),
            ),
            ("trace", false, Bool),
        ]),
    ),
    (
        "replyTo",
        false,
        Object(&[("endpoint", false, Text), ("expectAck", false, Bool)]),
    ),
    (
        "attachments",
        false,
        List(&Object(&[
            ("uri", false, Text),
            ("kind", false, Text),
            ("digest", false, Text),
        ])),
    ),
    ("tags", false, TEXTS),
    ("meta", false, Free),
];

pub(crate) const RESULT: &[Field] = &[
    ("protocolVersion", true, Version),
    ("taskId", true, Id),
    ("correlationId", true, Id),
    ("reportedAt", true, Time),
    (
        "producer",
        true,
        Object(&[
            ("agentId", true, NotBlank),
            ("agentKind", true, Word(&["agent", "system"])),
        ]),
    ),
    (
        "status",
        true,
        Word(&[
            "QUEUED",
            "RUNNING",
            "SUCCEEDED",
            "FAILED",
            "CANCELLED",
            "ESCALATED",
            "PARTIAL",
        ]),
    ),
    ("output", false, Any),
    ("artifacts", false, List(&Free)),
    ("metrics", false, Free),
    (
        "constitutionalEvidence",
        true,
        Object(&[
            ("alignment", true, VERDICTS),
            ("pressureReadings", false, Shape::Map(&Number)),
            (
                "policyChecks",
                false,
                List(&Object(&[
                    ("principle", false, Text),
                    ("status", false, Text),
                    ("notes", false, Text),
                ])),
            ),
            (
                "violations",
                false,
                List(&Object(&[
                    ("principle", false, Text),
                    ("severity", false, Text),
                    ("evidence", false, Text),
                ])),
            ),
            ("citations", false, TEXTS),
            (
                "cache",
                false,
                Object(&[
                    ("hit", false, Bool),
                    ("cacheKey", false, Text),
                    ("ageSec", false, Whole),
                ]),
            ),
        ]),
    ),
    (
        "error",
        false,
        Object(&[
            ("code", false, Text),
            ("message", false, Text),
            ("details", false, Free),
        ]),
    ),
    ("nextActions", false, List(&Free)),
    ("meta", false, Free),
];

pub(crate) const RECORD: &[Field] = &[
    ("cacheKey", true, Digest),
    ("storedAt", true, Time),
    ("producer", true, NotBlank),
    ("alignment", true, VERDICTS),
    ("output", true, Any),
    ("citations", true, TEXTS),
    ("fingerprint", true, Digest),
    ("sapVersion", true, Text),
];

impl Shape {
    /// Values that fit, the corners among them. The first is the plainest.
    pub(crate) fn fitting(self) -> Vec<Value> {
        let words = |list: &[&str]| list.iter().map(|word| json!(word)).collect();
        match self {
            Version => words(&["2.0"]),
            Id => words(&[
                "7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a",
                "7FBB32B6-0D2C-0C1A-FB75-2A4B3B0B6C0A",
                "00000000-0000-0000-0000-000000000000",
            ]),
            IdOrNull => [Id.fitting(), vec![Value::Null]].concat(),
            Time => words(&[
                "2025-09-28T10:15:23Z",
                "2024-02-29T23:59:59Z",
                "0001-01-01T00:00:00Z",
                "9999-12-31T00:00:00Z",
            ]),
            NotBlank => words(&["A-prime", " \u{fffd}", "\u{feff}", "\u{0}"]),
            Capability => words(&["consult.align", "a.b.c", "-._", "é.\u{feff}"]),
            Text => words(&["text", "", " ", "é\u{1f600}\n"]),
            Digest => vec![json!("0123456789abcdef".repeat(4))],
            Word(list) => words(list),
            Psi => vec![
                json!(50),
                json!(0),
                json!(100),
                json!(0.5),
                json!(100.0),
                json!(-0.0),
            ],
            Amount => vec![json!(8000), json!(0), json!(0.5), json!(1e300)],
            Number => vec![json!(52), json!(-7.5), json!(1e300)],
            Whole => vec![
                json!(86400),
                json!(0),
                json!(60.0),
                json!(9_007_199_254_740_991_u64),
            ],
            Bool => vec![json!(true), json!(false)],
            Any => vec![json!({"a": [1]}), Value::Null, json!("text"), json!(false)],
            Free => vec![json!({"any": [1, {"x": null}]}), json!({})],
            Object(fields) => vec![full(fields)],
            Self::Map(value) => vec![json!({"one": value.fitting()[0]}), json!({})],
            List(item) => vec![json!([item.fitting()[0]]), json!([])],
        }
    }

    /// Values that do not fit, one for every kind of fault.
    pub(crate) fn unfit(self) -> Vec<Value> {
        let strings: &[&str] = match self {
            Version => &["2", "2.1", "", "2.0 "],
            Id | IdOrNull => &[
                "",
                "{7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a}",
                "urn:uuid:7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a",
                "7fbb32b60d2c4c1a9b752a4b3b0b6c0a",
                "7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0",
                "7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0g",
                "7fbb32b6-0d2c-4c1a-9b752-a4b3b0b6c0a",
            ],
            Time => &[
                "",
                "2025-09-28T10:15:23.0Z",
                "2025-09-28T10:15:23+00:00",
                "2025-09-28 10:15:23Z",
                "2025-09-28t10:15:23Z",
                "2025-09-28T10:15:23z",
                "2025-02-29T10:15:23Z",
                "2025-04-31T10:15:23Z",
                "2025-13-01T10:15:23Z",
                "2025-09-28T24:00:00Z",
                "2025-09-28T23:59:60Z",
                "-001-09-28T10:15:23Z",
                "02025-09-28T10:15:23Z",
            ],
            NotBlank => &["", " ", "\t\n", "\u{85}\u{a0}\u{2003}\u{3000}"],
            Capability => &["", "echo", ".a", "a.", "a..b", "a b.c", "a.\u{2028}"],
            Digest => &[
                "",
                "0",
                "0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF",
            ],
            Word(_) => &["", "Agent", "valid", "other"],
            _ => &[],
        };
        let numbers = match self {
            Psi => vec![json!(-0.1), json!(100.1)],
            Amount => vec![json!(-1)],
            Whole => vec![
                json!(-1),
                json!(60.5),
                json!(9_007_199_254_740_992_u64),
                json!(1e300),
            ],
            _ => Vec::new(),
        };
        let other_types = [
            json!(null),
            json!(true),
            json!(7),
            json!("x"),
            json!([]),
            json!({}),
        ];
        let own = |value: &Value| match self {
            Any => true,
            IdOrNull => value.is_null(),
            Text => value.is_string(),
            NotBlank => *value == json!("x"),
            Psi | Amount | Number | Whole => value.is_number(),
            Bool => value.is_boolean(),
            Free | Self::Map(_) => value.is_object(),
            // Without its members: whether that fits is another fault.
            Object(_) => value.is_object(),
            List(_) => value.is_array(),
            _ => false,
        };
        let others = other_types.into_iter().filter(|value| !own(value));
        let strings = strings.iter().map(|text| json!(text));
        strings.chain(numbers).chain(others).collect()
    }

    /// Any value that fits.
    pub(crate) fn strategy(self) -> BoxedStrategy<Value> {
        match self {
            Text | Any | Free => prop_oneof![
                proptest::sample::select(self.fitting()),
                ".{0,12}".prop_map(move |text| match self {
                    Free => json!({"k": text}),
                    _ => json!(text),
                }),
            ]
            .boxed(),
            Psi => (0.0..=100.0_f64).prop_map(|psi| json!(psi)).boxed(),
            Object(fields) => object(fields),
            Self::Map(value) => proptest::collection::btree_map(".{0,6}", value.strategy(), 0..3)
                .prop_map(|map| json!(map))
                .boxed(),
            List(item) => proptest::collection::vec(item.strategy(), 0..3)
                .prop_map(|list| json!(list))
                .boxed(),
            _ => proptest::sample::select(self.fitting()).boxed(),
        }
    }
}

/// Objects with all that must be there, some of the rest, and now and then a member that nobody knows.
pub(crate) fn object(fields: &'static [Field]) -> BoxedStrategy<Value> {
    let members: Vec<_> = fields
        .iter()
        .map(|(name, must, shape)| {
            let there = if *must {
                Just(true).boxed()
            } else {
                any::<bool>().boxed()
            };
            (Just(*name), there, shape.strategy())
        })
        .collect();
    let unknown = proptest::option::of(Any.strategy());
    (members, unknown)
        .prop_map(|(members, unknown)| {
            let known = members.into_iter().filter(|(_, there, _)| *there);
            let known = known.map(|(name, _, value)| (name.to_owned(), value));
            let unknown = unknown.map(|value| ("x-unknown".to_owned(), value));
            Value::Object(known.chain(unknown).collect())
        })
        .boxed()
}

/// The object with every member, plainly filled.
pub(crate) fn full(fields: &[Field]) -> Value {
    let members = fields
        .iter()
        .map(|(name, _, shape)| ((*name).to_owned(), shape.fitting()[0].clone()));
    Value::Object(members.collect::<Map<_, _>>())
}

/// One fault, and where it is.
pub(crate) struct Fault {
    pub(crate) pointer: String,
    pub(crate) message: Value,
}

/// Every message that differs from the full one by one fault.
pub(crate) fn faults(fields: &'static [Field]) -> Vec<Fault> {
    let whole = full(fields);
    let mut faults = Vec::new();
    visit(fields, "", &mut |pointer, must, shape| {
        let mut push = |value: Option<Value>| {
            let message = crate::samples::with(whole.clone(), pointer, value);
            faults.push(Fault {
                pointer: pointer.to_owned(),
                message,
            });
        };
        if must {
            push(None);
        }
        shape
            .unfit()
            .into_iter()
            .for_each(|value| push(Some(value)));
    });
    faults
}

/// Every message that differs from the full one by one other value that fits, or by one absence.
pub(crate) fn variants(fields: &'static [Field]) -> Vec<Value> {
    let whole = full(fields);
    let mut variants = vec![whole.clone()];
    visit(fields, "", &mut |pointer, must, shape| {
        let mut push = |value: Option<Value>| {
            variants.push(crate::samples::with(whole.clone(), pointer, value))
        };
        // An element of a list or map cannot be removed by its name alone.
        if !must && !pointer.ends_with("/0") {
            push(None);
        }
        shape
            .fitting()
            .into_iter()
            .for_each(|value| push(Some(value)));
    });
    variants
}

fn visit(fields: &'static [Field], above: &str, see: &mut dyn FnMut(&str, bool, Shape)) {
    for (name, must, shape) in fields {
        visit_one(*shape, &format!("{above}/{name}"), *must, see);
    }
}

fn visit_one(shape: Shape, pointer: &str, must: bool, see: &mut dyn FnMut(&str, bool, Shape)) {
    see(pointer, must, shape);
    match shape {
        Object(fields) => visit(fields, pointer, see),
        List(item) => visit_one(*item, &format!("{pointer}/0"), false, see),
        Shape::Map(value) => visit_one(*value, &format!("{pointer}/one"), false, see),
        _ => {}
    }
}
