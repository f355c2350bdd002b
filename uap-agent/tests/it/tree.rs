//! Thread trees: branches, and what is on paper.

use proptest::prelude::*;
use serde_json::{Value, json};
use uap_agent::AgentState;
use uap_agent::{BranchError, NodeId, ThreadTree};
use ubos_common::id::IdSource;
use ubos_common::json::DecodeError;
use ubos_common::json::Limits;
use ubos_common::time::Timestamp;
use upp::{Message, Stamp};

fn message(ids: &mut IdSource, text: &str) -> Message {
    Message::user(Stamp::new(ids, Timestamp::EPOCH), text)
}

fn tree(ids: &mut IdSource) -> ThreadTree {
    let state = AgentState::initial(ids);
    ThreadTree::new(ids, state)
}

fn texts(tree: &ThreadTree) -> Vec<String> {
    tree.history().messages().iter().map(|m| m.text()).collect()
}

/// Where a fuzzer takes its shapes from.
#[cfg(feature = "arbitrary")]
#[test]
fn most_arbitrary_trees_have_messages_and_some_have_plans_and_states_of_their_own() {
    use arbitrary::{Arbitrary as _, Unstructured};
    let ids = &mut IdSource::seeded(2);
    let (mut spoken, mut planned, mut grown, mut moved) = (0, 0, 0, 0);
    for _ in 0..64 {
        let bytes: Vec<u8> = (0..512).flat_map(|_| ids.bits().to_le_bytes()).collect();
        let tree = ThreadTree::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
        let root = &tree.root().state;
        spoken += u32::from(!root.messages().is_empty());
        planned += u32::from(root.plan().is_some_and(|plan| !plan.is_empty()));
        grown += u32::from(tree.nodes().iter().any(|node| node.state.id() != root.id()));
        moved += u32::from(tree.current().id != tree.root().id);
        let read = ThreadTree::from_json(tree.to_json().as_bytes(), &Limits::default());
        assert_eq!(read, Ok(tree));
    }
    assert!(spoken > 32, "{spoken}");
    assert!(planned > 0 && grown > 0 && moved > 0);
}

/// The place of every finding.
fn found(tree: &Value) -> Vec<(String, String)> {
    match ThreadTree::from_json(tree.to_string().as_bytes(), &Limits::default()) {
        Ok(_) => Vec::new(),
        Err(DecodeError::Invalid(report)) => {
            let found = report
                .iter()
                .map(|f| (f.pointer.to_string(), f.code.to_string()));
            found.collect()
        }
        Err(error) => panic!("{error}"),
    }
}

// spec: UAP-7-1
#[test]
fn a_branch_begins_with_its_parent_and_goes_its_own_way() {
    let ids = &mut IdSource::seeded(1);
    let mut tree = tree(ids);
    let root = tree.root().clone();
    assert_eq!(
        (tree.current().id, root.parent_id, root.name.as_deref()),
        (root.id, None, Some("root"))
    );
    assert_eq!(root.id.as_uuid().get_version_num(), 4);
    let say = |ids: &mut IdSource, tree: &mut ThreadTree, text| {
        let hello = message(ids, text);
        let state = tree.history().with_message(ids, hello);
        tree.set_state(state);
    };
    say(ids, &mut tree, "asked");
    let left = tree.branch(ids, root.id, None).unwrap();
    let right = tree.branch(ids, root.id, Some("right")).unwrap();
    assert_eq!(tree.current().id, root.id, "branching does not move");
    assert_eq!(tree.root().children, [left, right]);
    say(ids, &mut tree, "later");
    tree.checkout(left).unwrap();
    assert_eq!(texts(&tree), ["asked"], "what came later does not reach it");
    let kept = tree.history().clone();
    say(ids, &mut tree, "left");
    tree.checkout(right).unwrap();
    assert_eq!(texts(&tree), ["asked"]);
    assert_eq!(tree.history(), &kept, "history is the state, unchanged");
    tree.checkout(root.id).unwrap();
    assert_eq!(texts(&tree), ["asked", "later"]);
    let named: Vec<_> = tree.branches().map(|(_, name)| name.to_string()).collect();
    assert_eq!(named, ["root", "right"]);
    assert_eq!(
        tree.leaves().map(|node| node.id).collect::<Vec<_>>(),
        [left, right]
    );
    let stranger: NodeId = ids.next_id();
    let missing = BranchError::NotFound(stranger);
    assert_eq!(tree.checkout(stranger), Err(missing));
    assert_eq!(tree.branch(ids, stranger, None), Err(missing));
    assert!(missing.to_string().starts_with("Node not found"));
    assert_eq!(tree.current().id, root.id);
    let mut full = tree.clone().with_limit(3).unwrap();
    assert_eq!(
        full.branch(ids, root.id, None),
        Err(BranchError::Full { limit: 3 })
    );
}

// spec: UAP-7-2
#[test]
fn a_tree_is_written_as_the_specification_has_it() {
    let ids = &mut IdSource::seeded(2);
    let mut tree = tree(ids);
    let root = tree.root().id;
    let child = tree.branch(ids, root, None).unwrap();
    tree.checkout(child).unwrap();
    let written: Value = serde_json::from_str(&tree.to_json()).unwrap();
    let state: Value = serde_json::from_str(&tree.root().state.to_json()).unwrap();
    assert_eq!(
        written,
        json!({
            "rootId": root.to_string(),
            "currentId": child.to_string(),
            "nodes": [
                {"id": root.to_string(), "parentId": null, "state": state, "name": "root", "children": [child.to_string()]},
                {"id": child.to_string(), "parentId": root.to_string(), "state": state, "children": []},
            ],
        })
    );
}

/// A tree of a root with two children, the second of which has one.
fn sample() -> Value {
    let ids = &mut IdSource::seeded(3);
    let mut tree = tree(ids);
    let root = tree.root().id;
    tree.branch(ids, root, None).unwrap();
    let second = tree.branch(ids, root, Some("second")).unwrap();
    tree.branch(ids, second, None).unwrap();
    serde_json::from_str(&tree.to_json()).unwrap()
}

// spec: UAP-7-2
#[test]
fn what_is_no_tree_is_refused_at_its_place() {
    assert_eq!(found(&sample()), []);
    let stranger = "00000000-0000-4000-8000-000000000000";
    let id = |tree: &Value, n: usize| tree["nodes"][n]["id"].clone();
    type Change = fn(&mut Value, &dyn Fn(&Value, usize) -> Value, &str);
    let cases: [(Change, &[(&str, &str)]); 9] = [
        (
            |t, _, s| t["rootId"] = s.into(),
            &[
                ("/rootId", "unknown_node"),
                ("/nodes/0/parentId", "second_root"),
            ],
        ),
        (
            |t, _, s| t["currentId"] = s.into(),
            &[("/currentId", "unknown_node")],
        ),
        (
            |t, id, _| t["nodes"][1]["id"] = id(t, 3),
            &[
                ("/nodes/3/id", "duplicate_id"),
                ("/nodes/0/children/0", "unknown_node"),
            ],
        ),
        (
            |t, _, _| t["nodes"][1]["parentId"] = Value::Null,
            &[
                ("/nodes/1/parentId", "second_root"),
                ("/nodes/0/children/0", "other_parent"),
            ],
        ),
        (
            |t, id, _| t["nodes"][1]["parentId"] = id(t, 1),
            &[
                ("/nodes/1/parentId", "self_parent"),
                ("/nodes/0/children/0", "other_parent"),
            ],
        ),
        (
            |t, _, s| t["nodes"][1]["parentId"] = s.into(),
            &[
                ("/nodes/1/parentId", "unknown_node"),
                ("/nodes/0/children/0", "other_parent"),
            ],
        ),
        (
            |t, _, _| {
                t["nodes"][0]["children"]
                    .as_array_mut()
                    .unwrap()
                    .truncate(1)
            },
            &[("/nodes/2/parentId", "unlisted")],
        ),
        (
            |t, id, _| {
                t["nodes"][2]["parentId"] = id(t, 3);
                t["nodes"][3]["children"] = json!([id(t, 2)]);
                t["nodes"][0]["children"]
                    .as_array_mut()
                    .unwrap()
                    .truncate(1);
            },
            &[("/nodes/2/parentId", "cycle")],
        ),
        (
            |t, id, _| t["nodes"][0]["parentId"] = id(t, 3),
            &[
                ("/nodes/0/parentId", "root_parent"),
                ("/nodes/0/parentId", "unlisted"),
                ("/nodes/0/parentId", "cycle"),
            ],
        ),
    ];
    for (n, (change, wanted)) in cases.into_iter().enumerate() {
        let mut tree = sample();
        change(&mut tree, &id, stranger);
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(p, c)| ((*p).to_owned(), (*c).to_owned()))
            .collect();
        assert_eq!(found(&tree), wanted, "case {n}");
    }
    let mut tree = sample();
    tree["nodes"][1]["state"]["version"] = "2.0.0".into();
    tree["nodes"][2]["state"]["step"] = (-1).into();
    let places: Vec<_> = found(&tree)
        .into_iter()
        .map(|(pointer, _)| pointer)
        .collect();
    assert_eq!(places, ["/nodes/1/state/version", "/nodes/2/state/step"]);
    tree.as_object_mut().unwrap().remove("currentId");
    assert_eq!(found(&tree)[0].0, "/currentId");
}

#[test]
fn a_root_that_does_not_lead_and_what_is_not_known_are_kept() {
    let mut tree = sample();
    tree["nodes"].as_array_mut().unwrap().rotate_left(1);
    tree["more"] = json!([1, 2]);
    tree["nodes"][0]["color"] = "blue".into();
    let read = ThreadTree::from_json(tree.to_string().as_bytes(), &Limits::default()).unwrap();
    assert_eq!(read.root().name.as_deref(), Some("root"));
    let written: Value = serde_json::from_str(&read.to_json()).unwrap();
    assert_eq!(
        (&written["more"], &written["nodes"][1]["color"]),
        (&json!([1, 2]), &json!("blue"))
    );
}

proptest! {
    // spec: UAP-7-2
    #[test]
    fn what_is_written_reads_back(seed: u64, moves in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 0..40)) {
        let ids = &mut IdSource::seeded(seed);
        let mut tree = tree(ids);
        for (kind, at) in moves {
            let id = at.get(tree.nodes()).id;
            match kind {
                0 => drop(tree.branch(ids, id, None).unwrap()),
                1 => drop(tree.branch(ids, id, Some("named")).unwrap()),
                2 => tree.checkout(id).unwrap(),
                _ => {
                    let hello = message(ids, "hello");
                    let state = tree.history().with_message(ids, hello);
                    tree.set_state(state);
                }
            }
        }
        let again = ThreadTree::from_json(tree.to_json().as_bytes(), &Limits::default());
        prop_assert_eq!(again, Ok(tree));
    }
}
