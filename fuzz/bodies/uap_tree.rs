//! Thread trees: whatever is read holds together, and goes on holding together while it grows.

use arbitrary::{Arbitrary as _, Unstructured};
use uap_agent::ThreadTree;
use ubos_common::id::IdSource;
use ubos_common::json::Limits;

/// The first byte chooses what the rest is: a tree, or what trees are drawn from.
pub fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let tree = match choice % 2 {
        0 => ThreadTree::from_json(rest, &Limits::default()).ok(),
        _ => ThreadTree::arbitrary(&mut Unstructured::new(rest)).ok(),
    };
    if let Some(mut tree) = tree {
        same_again(&tree);
        holds(&tree);
        grow(&mut tree, *choice);
        holds(&tree);
        same_again(&tree);
    }
}

fn same_again(tree: &ThreadTree) {
    let written = tree.to_json();
    let again = ThreadTree::from_json(written.as_bytes(), &Limits::default());
    let again = again.expect("what is written is read");
    assert_eq!(&again, tree);
    assert_eq!(again.to_json(), written);
}

/// Every node is reached from the root once, and children and parents agree.
fn holds(tree: &ThreadTree) {
    let (mut open, mut reached) = (vec![tree.root()], 0);
    while let Some(node) = open.pop() {
        reached += 1;
        assert!(reached <= tree.nodes().len());
        for child in &node.children {
            let child = tree.node(*child).expect("a child is there");
            assert_eq!(child.parent_id, Some(node.id));
            open.push(child);
        }
    }
    assert_eq!(reached, tree.nodes().len());
    assert!(tree.root().parent_id.is_none());
    assert!(tree.node(tree.current().id).is_some());
}

fn grow(tree: &mut ThreadTree, choice: u8) {
    let mut ids = IdSource::seeded(u64::MAX - u64::from(choice));
    let nodes = tree.nodes().len();
    let from = tree.nodes()[usize::from(choice) % nodes].id;
    let made = tree
        .branch(&mut ids, from, Some("made"))
        .expect("there is room");
    tree.checkout(made).expect("it is there");
    assert_eq!(
        tree.history().messages().len(),
        tree.node(from).expect("it is there").state.messages().len()
    );
    assert_eq!(tree.nodes().len(), nodes + 1);
    assert!(tree.checkout(ids.next_id()).is_err());
}
