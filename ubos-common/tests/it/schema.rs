//! What a stranger's schema may cost, and what is said of a value.

use ubos_common::json::RawBuf;
use ubos_common::schema::{MAX_BYTES, Schema, SchemaError};

const MAX_FINDINGS: usize = 16;

fn refused(schema: &str) -> Option<SchemaError> {
    Schema::compile(schema).err()
}

fn check(schema: &str, value: &str) -> Result<usize, SchemaError> {
    let value = RawBuf::parse(value).unwrap();
    Schema::compile(schema)?
        .findings(value.as_raw())
        .map(|findings| findings.len())
}

fn nested(levels: usize, inner: &str, wrap: impl Fn(&str) -> String) -> String {
    (0..levels).fold(inner.to_owned(), |inside, _| wrap(&inside))
}

#[test]
fn unusable_schemas_are_told_apart() {
    let remote = r#"{"$ref":"https://example.com/schema.json"}"#;
    assert_eq!(refused(remote), Some(SchemaError::Remote));
    for schema in [
        r#"{"type":"jsonish"}"#,
        r#"{"pattern":"(?=a)b"}"#,
        "nothing",
    ] {
        assert_eq!(refused(schema), Some(SchemaError::NoSchema), "{schema}");
    }
    let long = format!(r#"{{"title":"{}"}}"#, "x".repeat(MAX_BYTES));
    assert_eq!(refused(&long), Some(SchemaError::TooLarge));
    assert!(Schema::compile_within(&long, long.len()).is_ok());
}

#[test]
fn references_that_multiply_are_refused() {
    let mut bomb = r##"{"$ref":"#/$defs/d0","$defs":{"##.to_owned();
    for level in 0..20 {
        let next = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, level + 1);
        bomb += &format!(r##""d{level}":{{"allOf":[{next},{next}]}},"##);
    }
    bomb += r#""d20":{}}}"#;
    assert_eq!(refused(&bomb), Some(SchemaError::TooLarge));
    // Nothing refers to it, so nothing multiplies.
    let unused = bomb.replacen(r##""$ref":"#/$defs/d0","##, "", 1);
    assert_eq!(refused(&unused), None);
}

#[test]
fn a_schema_without_a_step_into_the_value_is_endless() {
    for schema in [
        r##"{"$ref":"#"}"##,
        r##"{"anyOf":[{"not":{"$ref":"#"}}]}"##,
        r##"{"$ref":"#/%24defs/a","$defs":{"a":{"$ref":"#b"},"b":{"$anchor":"b","$ref":"#/$defs/a"}}}"##,
    ] {
        assert_eq!(refused(schema), Some(SchemaError::Endless), "{schema}");
    }
}

#[test]
fn a_recursive_schema_costs_what_the_value_holds() {
    let tree = r##"{"properties":{"l":{"$ref":"#"},"r":{"$ref":"#"}}}"##;
    let full = nested(10, "{}", |inside| {
        format!(r#"{{"l":{inside},"r":{inside}}}"#)
    });
    assert_eq!(check(tree, &full), Ok(0));
    let twice = r##"{"properties":{"l":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}"##;
    let list = |levels| nested(levels, "{}", |inside| format!(r#"{{"l":{inside}}}"#));
    assert_eq!(check(twice, &list(4)), Ok(0));
    assert_eq!(check(twice, &list(30)), Err(SchemaError::TooExpensive));
}

// The validator would need a stack of 3,600 levels.
#[test]
fn schemas_and_values_inside_one_another_are_bounded() {
    let again = r##"{"properties":{"a":{"$ref":"#"}}}"##;
    let deep = nested(60, again, |inside| format!(r#"{{"allOf":[{inside}]}}"#));
    let value = |levels| nested(levels, "{}", |inside| format!(r#"{{"a":{inside}}}"#));
    assert_eq!(check(&deep, &value(5)), Ok(0));
    assert_eq!(check(&deep, &value(60)), Err(SchemaError::TooExpensive));
}

#[test]
fn the_deepest_place_that_is_judged_is_512_schemas_and_values_inside() {
    let all_of =
        |levels, inner: &str| nested(levels, inner, |inside| format!(r#"{{"allOf":[{inside}]}}"#));
    // Each `a` is ten deep: eight branches, the member, the reference. So is what leads to `b`, without the reference.
    let value = nested(50, r#"{"b":1}"#, |inside| format!(r#"{{"a":{inside}}}"#));
    for (deeper, answer) in [(3, Ok(0)), (4, Err(SchemaError::TooExpensive))] {
        let last = all_of(deeper, "{}");
        let members = format!(r##"{{"properties":{{"a":{{"$ref":"#"}},"b":{last}}}}}"##);
        assert_eq!(check(&all_of(8, &members), &value), answer);
    }
}

#[test]
fn branches_under_unevaluated_are_paid_thrice_a_level() {
    let schema = |levels| {
        nested(levels, r#"{"properties":{"a":{}}}"#, |inside| {
            format!(r#"{{"anyOf":[{inside}],"unevaluatedProperties":false}}"#)
        })
    };
    assert_eq!(check(&schema(6), r#"{"a":1}"#), Ok(0));
    assert_eq!(refused(&schema(12)), Some(SchemaError::TooLarge));
    let many = format!("[{}{{}}]", r#"{"a":1},"#.repeat(500));
    let items = format!(r#"{{"items":{}}}"#, schema(6));
    assert_eq!(check(&items, &many), Err(SchemaError::TooExpensive));
}

#[test]
fn a_list_of_values_costs_its_length_for_each_value() {
    let listed = |count: usize| {
        let values: Vec<String> = (0..count).map(|n| format!(r#"{{"a":{n}}}"#)).collect();
        format!(r#"{{"items":{{"enum":[{}]}}}}"#, values.join(","))
    };
    let value = |count: usize| format!("[{}{{}}]", r#"{"a":-1},"#.repeat(count));
    assert_eq!(check(&listed(50), &value(100)), Ok(MAX_FINDINGS));
    assert_eq!(
        check(&listed(5_000), &value(2_000)),
        Err(SchemaError::TooExpensive)
    );
    let texts: Vec<String> = (0..5_000).map(|n| format!("\"{n}\"")).collect();
    let texts = format!(r#"{{"items":{{"enum":[{}]}}}}"#, texts.join(","));
    assert_eq!(
        check(&texts, &format!("[{}\"7\"]", "\"8\",".repeat(2_000))),
        Ok(0)
    );
}

#[test]
fn patterns_cost_their_states() {
    let pattern = |pattern: &str| format!(r#"{{"pattern":"{pattern}"}}"#);
    let text = |bytes: usize| format!("\"{}\"", "ab".repeat(bytes / 2));
    assert_eq!(check(&pattern("^[a-z]*$"), &text(1 << 20)), Ok(0));
    assert_eq!(check(&pattern("^\\\\w{1,64}$"), &text(64)), Ok(0));
    let states = pattern("[ab]*a[ab]{800}c");
    assert_eq!(check(&states, &text(1_000)), Ok(1));
    assert_eq!(
        check(&states, &text(400_000)),
        Err(SchemaError::TooExpensive)
    );
    assert_eq!(
        refused(&pattern("((a{100}){100}){100}")),
        Some(SchemaError::TooLarge)
    );
    // Letters of all scripts are hundreds of ranges.
    assert_eq!(refused(&pattern("\\\\p{L}{20}")), None);
    assert_eq!(
        refused(&pattern("\\\\p{L}{60}")),
        Some(SchemaError::TooLarge)
    );
    let names = r#"{"patternProperties":{"[ab]*a[ab]{800}c":{}}}"#;
    let value = format!(r#"{{{}:1}}"#, text(400_000));
    assert_eq!(check(names, &value), Err(SchemaError::TooExpensive));
}

#[test]
fn patterns_cost_what_is_read_until_they_are_translated() {
    let pattern = |pattern: &str| format!(r#"{{"pattern":"{pattern}"}}"#);
    for escape in ["\\\\s", "\\\\S", "\\\\w", "\\\\W", "\\\\d", "\\\\D"] {
        assert_eq!(refused(&pattern(&escape.repeat(20))), None, "{escape}");
        let many = pattern(&escape.repeat(500));
        assert_eq!(refused(&many), Some(SchemaError::TooLarge), "{escape}");
    }
    let few_in_a_long_one = pattern(&format!("{}{}", "\\\\w".repeat(80), "a".repeat(20_000)));
    assert_eq!(refused(&few_in_a_long_one), Some(SchemaError::TooLarge));
    assert_eq!(refused(&pattern(&"\\\\cA\\\\w".repeat(100))), None);
    let controls = pattern(&"\\\\cA\\\\w".repeat(280));
    assert_eq!(refused(&controls), Some(SchemaError::TooLarge));
    let times: Vec<String> = (0..200)
        .map(|n| format!(r#""at{n}":{{"pattern":"^\\d{{4}}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?Z$"}}"#))
        .collect();
    let times = format!(r#"{{"properties":{{{}}}}}"#, times.join(","));
    assert_eq!(refused(&times), None);
    assert_eq!(check(&times, r#"{"at7":"2026-11-25T12:00:00Z"}"#), Ok(0));
}

#[test]
fn a_text_that_is_read_as_a_pattern_costs_more_than_its_length() {
    let named = |count: usize| -> String { (0..count).map(|n| format!("(?<a{n}>x)")).collect() };
    let schema = r#"{"items":{"format":"regex"}}"#;
    let check = |count: usize| check(schema, &format!("[\"{}\"]", named(count)));
    assert_eq!(check(1_000), Ok(0));
    assert_eq!(check(30_000), Err(SchemaError::TooExpensive));
    let alone = format!("\"{}\"", named(9_000));
    let judged = self::check(r#"{"format":"regex"}"#, &alone);
    assert_eq!(judged, Err(SchemaError::TooExpensive));
}

#[test]
fn a_value_too_deep_for_the_validator_is_not_judged() {
    let value = nested(200, "1", |inside| format!("[{inside}]"));
    let limits = ubos_common::json::Limits::default().with_max_depth(250);
    let profile = ubos_common::violation::Profile::Strict;
    let (value, _) =
        ubos_common::json::decode::<RawBuf>(value.as_bytes(), &limits, profile).unwrap();
    let found = Schema::compile("{}").unwrap().findings(value.as_raw());
    assert_eq!(found, Err(SchemaError::TooExpensive));
}

#[test]
fn one_finding_is_made_for_a_long_value() {
    let wrong = |count: usize| format!("[{}0]", "\"\",".repeat(count));
    let schema = r#"{"items":{"type":"integer"}}"#;
    assert_eq!(check(schema, &wrong(20)), Ok(MAX_FINDINGS));
    assert_eq!(check(schema, &wrong(30_000)), Ok(1));
    // Long are more than 64 KiB.
    for (bytes, findings) in [(65_536, MAX_FINDINGS), (65_537, 1)] {
        let space = bytes - wrong(20).len();
        let padded = wrong(20).replace(']', &(" ".repeat(space) + "]"));
        assert_eq!(check(schema, &padded), Ok(findings), "{bytes} bytes");
    }
}

#[test]
fn findings_are_bounded_and_name_place_and_keyword() {
    let schema = Schema::compile(r#"{"items":{"type":"integer"},"maxItems":99}"#).unwrap();
    let of = |text: &str| schema.findings(RawBuf::parse(text).unwrap().as_raw());
    assert_eq!(of("[1,2]").unwrap(), []);
    assert_eq!(of("[1,\"x\"]").unwrap()[0].pointer, "/1");
    assert_eq!(
        of(&format!("[{}0.5]", "0.5,".repeat(50))).unwrap().len(),
        MAX_FINDINGS
    );
    assert_eq!(of("[1e400]"), Err(SchemaError::Number));
    // One place that breaks a keyword twice is named once.
    assert_eq!(check(r#"{"required":["a","b"]}"#, "{}"), Ok(1));
}

#[test]
fn ordinary_schemas_are_held_against_ordinary_values() {
    let any_json = r##"{"$ref":"#/$defs/J","$defs":{"J":{"anyOf":[{"type":"null"},{"type":"boolean"},
        {"type":"number"},{"type":"string"},{"type":"array","items":{"$ref":"#/$defs/J"}},
        {"type":"object","additionalProperties":{"$ref":"#/$defs/J"}}]}}}"##;
    let deep = nested(9, "1", |inside| format!("[{inside}]"));
    assert_eq!(check(any_json, &deep), Ok(0));
    let many = format!("[{}1]", "1.25,".repeat(1_000));
    assert_eq!(
        check(r#"{"items":{"multipleOf":0.01}}"#, &many).map(|_| ()),
        Ok(())
    );
    let whole = format!("[{}1]", "12,".repeat(20_000));
    assert_eq!(check(r#"{"items":{"multipleOf":1}}"#, &whole), Ok(0));
    let points = format!(
        "[{}{{\"x\":1,\"y\":2}}]",
        r#"{"x":1,"y":2},"#.repeat(10_000)
    );
    let of_points = r##"{"items":{"$ref":"#/$defs/P"},"$defs":{"P":{"type":"object","required":["x","y"],
        "properties":{"x":{"type":"number","format":"double"},"y":{"type":"number","format":"double"}}}}}"##;
    assert_eq!(check(of_points, &points), Ok(0));
    let example = format!(
        r#"{{"items":{{"type":"string","example":{:?},"x-note":[1,2,3]}}}}"#,
        "x".repeat(1_600)
    );
    let texts = format!("[{}\"\"]", "\"short\",".repeat(10_000));
    assert_eq!(check(&example, &texts), Ok(0));
}

#[test]
fn a_chain_of_references_is_bounded() {
    let chain = |links: usize| {
        let all: Vec<String> = (0..links)
            .map(|n| format!(r##""d{n}":{{"$ref":"#/$defs/d{}"}}"##, n + 1))
            .collect();
        format!(
            r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d{links}":{{}}}}}}"##,
            all.join(",")
        )
    };
    assert_eq!(refused(&chain(100)), None);
    assert_eq!(refused(&chain(1_500)), Some(SchemaError::TooLarge));
}

#[test]
fn schemas_beside_one_another_are_not_inside_one_another() {
    let beside: Vec<String> = (0..300).map(|n| format!(r#""m{n}":{{}}"#)).collect();
    let beside = format!(r#"{{"properties":{{{}}}}}"#, beside.join(","));
    // At any depth, for the bound is met from a depth that is even or odd.
    for levels in 0..2 {
        let schema = nested(levels, &beside, |inside| format!(r#"{{"items":{inside}}}"#));
        assert_eq!(refused(&schema), None);
    }
}

#[test]
fn places_that_a_reference_may_mean_are_bounded() {
    let decoys = vec![r#"{"$id":0}"#; 3_000].join(",");
    let references = vec![r##"{"$ref":"#"}"##; 1_000].join(",");
    let schema = format!(r#"{{"default":[{decoys}],"items":{{"anyOf":[{references}]}}}}"#);
    assert_eq!(refused(&schema), Some(SchemaError::TooLarge));
    // Comparing them costs the square of their number, though the reference means one of them alone.
    for (places, answer) in [(900, None), (1_000, Some(SchemaError::TooLarge))] {
        let decoys = vec![r#"{"$id":0}"#; places].join(",");
        let schema =
            format!(r##"{{"$ref":"#/$defs/a","$defs":{{"a":{{}}}},"default":[{decoys}]}}"##);
        assert_eq!(refused(&schema), answer, "{places}");
    }
}

#[test]
fn lengths_of_texts_cost_their_bytes() {
    let lengths = vec![r#"{"maxLength":1}"#; 3_000].join(",");
    let schema = format!(r#"{{"anyOf":[{lengths}]}}"#);
    let text = format!("\"{}\"", "a".repeat(1 << 20));
    assert_eq!(check(&schema, &text), Err(SchemaError::TooExpensive));
    // A long name costs less than its length.
    let names = r##"{"propertyNames":{"maxLength":200000},"additionalProperties":{"$ref":"#"}}"##;
    let value = format!(r#"{{"{}":1}}"#, "a".repeat(100_000));
    assert_eq!(check(names, &value), Ok(0));
}

#[test]
fn a_schema_is_read_by_the_draft_that_it_names() {
    let breaks = |draft: &str, rest: &str, value: &str| {
        let schema = format!(r#"{{"$schema":"{draft}",{rest}}}"#);
        let schema = Schema::compile(&schema).unwrap_or_else(|error| panic!("{draft}: {error}"));
        let value = RawBuf::parse(value).unwrap();
        !schema.findings(value.as_raw()).unwrap().is_empty()
    };
    let seven = "http://json-schema.org/draft-07/schema#";
    let dependencies = r#""dependencies":{"a":["b"]}"#;
    assert!(breaks(seven, dependencies, r#"{"a":1}"#));
    assert!(breaks(seven, r#""items":[{"type":"string"}]"#, "[1]"));
    let definitions =
        r##""definitions":{"t":{"type":"string"}},"items":{"$ref":"#/definitions/t"}"##;
    assert!(breaks(seven, definitions, "[1]"));
    let four = "http://json-schema.org/draft-04/schema#";
    assert!(breaks(four, r#""minimum":1,"exclusiveMinimum":true"#, "1"));
    let newest = "https://json-schema.org/draft/2020-12/schema";
    assert!(breaks(
        newest,
        r#""prefixItems":[{"type":"string"}]"#,
        "[1]"
    ));
    // A language that nobody knows is not guessed at.
    let unknown = r#"{"$schema":"https://example.com/meta","type":"string"}"#;
    assert_eq!(refused(unknown), Some(SchemaError::NoSchema));
}

/// `serde_json` reads an object with such a first member as what is in its text.
#[test]
fn a_name_that_serde_json_keeps_for_itself_is_refused() {
    let schema = Schema::compile(r#"{"required":["a"]}"#).unwrap();
    let inner = r#"{"a":1}"#;
    for name in [
        "$serde_json::private::RawValue",
        r"\u0024serde_json::private::R\u0061wValue",
    ] {
        let object = format!("{{\"{name}\":{inner:?}}}");
        let spaced = format!("[{{\"{name}\" \n: {inner:?}}}]");
        for text in [object.clone(), format!("[{object}]"), spaced] {
            let value = RawBuf::parse(&text).unwrap();
            let refused = schema.findings(value.as_raw());
            assert_eq!(refused, Err(SchemaError::ReservedName), "{text}");
            value.deserialize::<serde_json::Value>().unwrap_err();
        }
        let refused = Schema::compile(&object).unwrap_err();
        assert_eq!(refused, SchemaError::ReservedName);
    }
    // Quotes and backslashes in the texts before hide no name, and make none.
    for before in [r#"\""#, r"\\", r#"\\\""#, r#"\":"#] {
        let name = "$serde_json::private::RawValue";
        let object = format!(r#"{{"{name}":{inner:?}}}"#);
        for text in [
            format!(r#"{{"b":"{before}","c":{object}}}"#),
            format!(r#"{{"{before}":"{before}","c":{object}}}"#),
        ] {
            let value = RawBuf::parse(&text).unwrap();
            let refused = schema.findings(value.as_raw());
            assert_eq!(refused, Err(SchemaError::ReservedName), "{text}");
        }
        let text = format!(r#"{{"a":"{before}{name}{before}"}}"#);
        let value = RawBuf::parse(&text).unwrap();
        assert_eq!(schema.findings(value.as_raw()), Ok(vec![]), "{text}");
    }
    // As a text it is like any other.
    let value = RawBuf::parse(r#"{"a":"$serde_json::private::RawValue"}"#).unwrap();
    assert_eq!(schema.findings(value.as_raw()), Ok(vec![]));
}

#[test]
fn what_a_schema_takes_is_told_by_its_text_its_schemas_and_its_patterns() {
    let size = |schema: &str| Schema::compile(schema).unwrap().size_bytes();
    let plain = size(r#"{"type":"string"}"#);
    assert!(plain < 4_096, "{plain}");
    let states = r#"{"pattern":"a{1000}"}"#;
    assert!(size(states) > plain + 100_000);
    for keyword in ["dependentSchemas", "dependencies", "properties", "$defs"] {
        let inside = format!(r##"{{"{keyword}":{{"a":{states}}},"$ref":"#/{keyword}/a"}}"##);
        assert!(size(&inside) > plain + 100_000, "{keyword}");
    }
    for keyword in ["dependentSchemas", "dependencies", "properties"] {
        let inside = format!(r#"{{"{keyword}":{{"a":{states}}}}}"#);
        assert!(size(&inside) > plain + 100_000, "{keyword}");
    }
    for keyword in ["unevaluatedItems", "unevaluatedProperties", "contains"] {
        let inside = format!(r#"{{"{keyword}":{states}}}"#);
        assert!(size(&inside) > plain + 100_000, "{keyword}");
    }
}

/// Steps that are enough to hold a value against a schema.
fn least(schema: &str, value: &str) -> u64 {
    let (schema, value) = (
        Schema::compile(schema).unwrap(),
        RawBuf::parse(value).unwrap(),
    );
    let is_enough = |steps: &u64| schema.findings_within(value.as_raw(), *steps).is_ok();
    (0..).find(is_enough).unwrap()
}

#[test]
fn a_list_without_doubles_costs_what_is_compared() {
    let value = format!("[{}]", vec!["1"; 100].join(","));
    let free = least(r#"{"uniqueItems":false}"#, &value);
    assert!(least(r#"{"uniqueItems":true}"#, &value) > free + 400);
}

#[test]
fn a_schema_inside_another_costs_what_it_looks_at() {
    for (keyword, value) in [
        (r#""additionalProperties":S"#, r#"{"a":1}"#),
        (r#""patternProperties":{"a":S}"#, r#"{"a":1}"#),
        (r#""propertyNames":S"#, r#"{"a":1}"#),
        (r#""prefixItems":[S]"#, "[1]"),
    ] {
        let with = |schema| least(&format!("{{{}}}", keyword.replace('S', schema)), value);
        let (free, costly) = (with("{}"), with(r#"{"multipleOf":0.5}"#));
        assert!(costly > free + 100, "{keyword}: {costly} and {free}");
    }
}

#[test]
fn a_fit_of_plain_members_takes_no_steps() {
    for (keyword, values) in [
        (r#""properties":{"a":{"type":"boolean"}}"#, ["true", "1"]),
        (r#""properties":{"a":{"type":"integer"}}"#, ["1", "true"]),
        (
            r#""properties":{"a":{"type":"string","enum":["b"]}}"#,
            ["\"b\"", "\"c\""],
        ),
        (
            r#""properties":{"a":{"type":"boolean"}},"required":["a"]"#,
            ["true", "1"],
        ),
        (
            r#""properties":{"a":{"type":"boolean"}},"additionalProperties":false"#,
            ["true", "1"],
        ),
    ] {
        let schema = Schema::compile(&format!(r#"{{"type":"object",{keyword}}}"#)).unwrap();
        let values = values.map(|value| RawBuf::parse(&format!(r#"{{"a":{value}}}"#)).unwrap());
        let found = values.map(|value| schema.findings_within(value.as_raw(), 0));
        assert_eq!(
            found,
            [Ok(vec![]), Err(SchemaError::TooExpensive)],
            "{keyword}"
        );
    }
    // Up to 64 of them.
    for (members, is_free) in [(64, true), (65, false)] {
        let all: Vec<String> = (0..members)
            .map(|n| format!(r#""m{n}":{{"type":"boolean"}}"#))
            .collect();
        let schema = format!(r#"{{"type":"object","properties":{{{}}}}}"#, all.join(","));
        assert_eq!(least(&schema, r#"{"m63":true}"#) == 0, is_free, "{members}");
    }
}

#[test]
fn a_text_costs_for_each_chunk_that_is_begun() {
    let least = |length: usize| {
        let text = format!("\"{}b\"", "a".repeat(length - 1));
        least(r#"{"pattern":"^[a-z]*b$"}"#, &text)
    };
    assert!(least(1) > 0 && least(1) == least(13));
    assert!(least(17) > least(13));
    assert_eq!(least(33) - least(17), least(17) - least(13));
}
