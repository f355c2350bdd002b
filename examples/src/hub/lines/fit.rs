//! Values that are shortened until they fit: what peers choose is as long as they like.

use std::io::{self, Write};

use serde_json::{Map, Value};

/// Bytes below which nothing is shortened: numbers and words of the program fit.
const LEAST: usize = 64;

/// Shortens strings, lists and objects until a value takes at most so many bytes as JSON, or little more. Of an object short
/// members stay whole. Returns how many bytes of JSON were left out.
pub(super) fn shorten(value: &mut Value, most_bytes: usize) -> usize {
    let whole = size(value);
    if whole <= most_bytes {
        return 0;
    }
    match value {
        Value::String(text) => cut(text, most_bytes),
        Value::Array(items) => fill(items, most_bytes),
        Value::Object(members) => share(members, most_bytes),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    whole.saturating_sub(size(value))
}

/// Bytes of a value as JSON.
pub(super) fn size(value: &impl serde::Serialize) -> usize {
    let mut counted = Counted(0);
    // Counting does not fail, and the keys of these objects are strings.
    let _ = serde_json::to_writer(&mut counted, value);
    counted.0
}

struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of a character in a JSON string.
const fn width(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        c => c.len_utf8(),
    }
}

fn cut(text: &mut String, most: usize) {
    let mut left = most.saturating_sub(2);
    let end = text.char_indices().find(|(_, c)| {
        let is_over = width(*c) > left;
        left = left.saturating_sub(width(*c));
        is_over
    });
    if let Some((end, _)) = end {
        text.truncate(end);
    }
}

/// Keeps the first items of a list; the last of them may be shortened.
fn fill(items: &mut Vec<Value>, most: usize) {
    let mut left = most.saturating_sub(2);
    let mut kept = 0;
    for item in items.iter_mut() {
        let needed = size(item) + 1;
        if needed > left && left < LEAST {
            break;
        }
        kept += 1;
        if needed > left {
            shorten(item, left - 1);
            break;
        }
        left -= needed;
    }
    items.truncate(kept);
}

/// Gives the members of an object equal shares; what short ones do not need is for the longer ones.
fn share(members: &mut Map<String, Value>, most: usize) {
    let needs = |(name, value): (&String, &Value)| (size(name) + size(value) + 2, name.clone());
    let mut needed: Vec<_> = members.iter().map(needs).collect();
    needed.sort_unstable();
    let mut left = most.saturating_sub(2);
    for (n, (needed, name)) in (1..=needed.len()).rev().zip(needed) {
        let share = left / n;
        if needed <= share {
            left -= needed;
            continue;
        }
        let beside = size(&name) + 2;
        match members.get_mut(&name) {
            Some(value) if beside + LEAST <= share => {
                shorten(value, share - beside);
                left = left.saturating_sub(beside + size(value));
            }
            _ => drop(members.remove(&name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_fits_is_not_touched() {
        let mut value = json!({"a": [1, "x"], "b": {"c": null}});
        let whole = value.clone();
        assert_eq!(shorten(&mut value, size(&whole)), 0);
        assert_eq!(value, whole);
    }

    #[test]
    fn long_parts_are_shortened_and_short_ones_stay() {
        let mut value = json!({"agent": "one", "name": "n".repeat(10_000), "skills": vec!["s".repeat(50); 1_000], "n": 7});
        let whole = size(&value);
        let left_out = shorten(&mut value, 1_000);
        assert_eq!(left_out, whole - size(&value));
        assert!((900..=1_000).contains(&size(&value)), "{}", size(&value));
        assert_eq!((&value["agent"], &value["n"]), (&json!("one"), &json!(7)));
        assert!(value["name"].as_str().unwrap().len() > 300);
        assert!(value["skills"].as_array().unwrap().len() > 5);
    }

    #[test]
    fn a_text_is_cut_between_characters_and_by_what_they_take_as_json() {
        for c in ['a', '"', '\u{1}', '\n', '\u{e9}', '\u{1f600}', '\u{7f}'] {
            let mut value = Value::String(String::from(c).repeat(1_000));
            shorten(&mut value, 100);
            let size = size(&value);
            assert!((93..=100).contains(&size), "{c:?}: {size}");
        }
    }

    #[test]
    fn names_of_members_and_nested_lists_are_bounded_too() {
        let names: Map<String, Value> = (0..1_000)
            .map(|n| (format!("{n}{}", "k".repeat(200)), n.into()))
            .collect();
        let mut nested = json!("x".repeat(5_000));
        for _ in 0..50 {
            nested = json!([nested]);
        }
        for mut value in [Value::Object(names), nested] {
            assert!(shorten(&mut value, 2_000) > 0);
            assert!(size(&value) <= 2_000, "{}", size(&value));
        }
    }
}
