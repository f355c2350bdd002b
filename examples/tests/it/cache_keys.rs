//! The published cache keys of `sap`, computed once more from other people's crates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

fn digest(value: &Value) -> String {
    let canonical = serde_json_canonicalizer::to_vec(value).unwrap();
    blake3::hash(&canonical).to_hex().to_string()
}

#[test]
fn keys_are_what_their_definition_says() {
    let file = include_str!("../../../sap/vectors/cache-keys.jsonl");
    for line in file.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let task: Value = serde_json::from_str(line["task"].as_str().unwrap()).unwrap();
        let context = &task["constitutionalContext"];
        let principles = context["principles"].as_array().map(|list| {
            let set: BTreeSet<&str> = list.iter().filter_map(Value::as_str).collect();
            json!(set)
        });
        let parts = json!({
            "capability": task["target"]["capability"],
            "essence": task["payload"],
            "territory": context["territory"],
            "principles": principles,
            "outputContract": task["outputContract"],
            "sapVersion": "2.0",
        });
        assert_eq!(line["cacheKey"], digest(&parts), "{}", line["name"]);
        let essence = json!({"essence": task["payload"], "extractor": line["extractor"]});
        assert_eq!(line["fingerprint"], digest(&essence), "{}", line["name"]);
    }
}
