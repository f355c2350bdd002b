//! The steps of 1.0 as a graph: the order of what a step waits for, and how a cycle is told.

use sacp::Graph;
use sacp::v1::Message;
use serde_json::{Value, json};
use ubos_common::json::DecodeError;

use crate::check::{new, step};

fn decode(steps: &[Value]) -> Result<Message, DecodeError> {
    Message::decode(new(steps).to_string().as_bytes())
}

// spec: SACP1-6-2
#[test]
fn a_step_waits_for_others_in_the_order_of_the_plan() {
    let free = |id| step(id, &[], json!({}));
    let last = step("d", &["c", "a", "b"], json!({}));
    let message = decode(&[free("a"), free("b"), free("c"), last]).unwrap();
    assert_eq!(Graph::from(&message).step(4).unwrap().after[..], [1, 2, 3]);
}

// spec: SACP1-6-2
#[test]
fn a_cycle_is_told_with_at_most_sixteen_names() {
    for (length, last) in [(16, "s0"), (17, "...")] {
        let name = |n: usize| format!("s{}", n % length);
        let steps: Vec<Value> = (0..length)
            .map(|n| step(&name(n), &[name(n + 1).as_str()], json!({})))
            .collect();
        let Err(DecodeError::Invalid(report)) = decode(&steps) else {
            panic!("taken")
        };
        let mut names: Vec<String> = (0..16).map(name).collect();
        names.push(last.to_owned());
        let wanted = format!("a cycle: {}", names.join(" waits for "));
        assert_eq!(report.iter().next().unwrap().message, wanted);
    }
}
