//! The JSON of thread trees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ubos_common::json::{self, DecodeError, Limits, MemberWriter, Raw, RawBuf, Write, decode};
use ubos_common::violation::{Level, Profile, Report, Violation};

use super::{NodeId, ThreadNode, ThreadTree};
use crate::state::{AgentState, StateError};

ubos_common::wire! {
    /// The JSON of a tree.
    struct TreeJson {
        /// The first of the nodes.
        required root_id: NodeId = "rootId", "UAP-7-2";
        /// One of the nodes.
        required current_id: NodeId = "currentId", "UAP-7-2";
        /// In the order in which they were made.
        required nodes: Vec<NodeJson> = "nodes", "UAP-7-2";
    }
}

ubos_common::wire! {
    /// The JSON of a node.
    struct NodeJson {
        /// UUIDv4.
        required id: NodeId = "id", "UAP-7-2";
        /// Null for the root.
        nullable parent_id: NodeId = "parentId", "UAP-7-2";
        /// Read in a second step.
        required state: RawBuf = "state", "UAP-7-2";
        /// What the branch is called.
        nullable name: Arc<str> = "name", "UAP-7-2";
        /// In the order in which they were made.
        required children: Vec<NodeId> = "children", "UAP-7-2";
    }
}

impl ThreadTree {
    /// The tree as JSON, its states of version 1.1.0.
    ///
    /// Spec: UAP-1.1 7.1
    #[must_use]
    pub fn to_json(&self) -> String {
        json::to_string(self)
    }

    /// Reads the JSON of a tree with states of version 1.1 or 1.0.
    ///
    /// # Errors
    ///
    /// The text is not valid JSON, or has findings, each with its pointer: a missing member or one of the wrong type, an
    /// invalid state, an id that is used twice or names no node, more than one root, a child and a parent that disagree, a
    /// cycle.
    // impl: UAP-7-2
    pub fn from_json(bytes: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let (tree, mut report) = decode::<TreeJson>(bytes, limits, Profile::Strict)?;
        let places = check(&mut report, &tree);
        let mut nodes = Vec::with_capacity(tree.nodes.len());
        for (n, node) in tree.nodes.into_iter().enumerate() {
            let text = node.state.as_str().as_bytes();
            match AgentState::from_json(text, limits) {
                Ok(state) => nodes.push(ThreadNode {
                    id: node.id,
                    parent_id: node.parent_id,
                    state,
                    name: node.name,
                    children: node.children,
                    extra: node.extra,
                }),
                Err(error) => report.extend_under(&format!("/nodes/{n}/state"), findings(error)?),
            }
        }
        if !report.is_valid() {
            return Err(DecodeError::Invalid(report));
        }
        // The root leads, whatever the order was.
        if let Some(root) = places.get(&tree.root_id) {
            nodes.get_mut(..=*root).unwrap_or_default().rotate_right(1);
        }
        let places: BTreeMap<_, _> = nodes
            .iter()
            .enumerate()
            .map(|(n, node)| (node.id, n))
            .collect();
        let current = places.get(&tree.current_id).copied();
        Ok(Self {
            current: current.unwrap_or_default(),
            limit: Self::DEFAULT_LIMIT.max(nodes.len()),
            places,
            nodes,
            extra: tree.extra,
        })
    }
}

impl ThreadNode {
    /// The node as JSON, as it stands in its tree.
    ///
    /// Spec: UAP-1.1 7.1
    #[must_use]
    pub fn to_json(&self) -> String {
        json::to_string(self)
    }

    /// Reads the JSON of one node. Whether parent and children exist only its tree can tell.
    ///
    /// # Errors
    ///
    /// The text is not valid JSON, or has findings, each with its pointer.
    pub fn from_json(bytes: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let (node, mut report) = decode::<NodeJson>(bytes, limits, Profile::Strict)?;
        match AgentState::from_json(node.state.as_str().as_bytes(), limits) {
            Ok(state) if report.is_valid() => Ok(Self {
                id: node.id,
                parent_id: node.parent_id,
                state,
                name: node.name,
                children: node.children,
                extra: node.extra,
            }),
            Ok(_) => Err(DecodeError::Invalid(report)),
            Err(error) => {
                report.extend_under("/state", findings(error)?);
                Err(DecodeError::Invalid(report))
            }
        }
    }
}

/// The findings of a state.
fn findings(error: StateError) -> Result<Report, DecodeError> {
    match error {
        StateError::Invalid(DecodeError::Invalid(report)) => Ok(report),
        StateError::Invalid(error) => Err(error),
        error @ StateError::Version { .. } => {
            let mut report = Report::default();
            let why = error.to_string();
            let finding = Violation::new("/version", "version", "UAP-12-6", Level::Must, why);
            report.push(finding);
            Ok(report)
        }
    }
}

/// Checks what the types cannot express. Returns the places of the nodes.
fn check(report: &mut Report, tree: &TreeJson) -> BTreeMap<NodeId, usize> {
    let mut refuse = |pointer: String, code: &'static str, why: &'static str| {
        report.push(Violation::new(pointer, code, "UAP-7-2", Level::Must, why));
    };
    let mut places = BTreeMap::new();
    for (n, node) in tree.nodes.iter().enumerate() {
        if places.insert(node.id, n).is_some() {
            let pointer = format!("/nodes/{n}/id");
            refuse(pointer, "duplicate_id", "the id of an earlier node");
        }
    }
    for (pointer, id) in [("/rootId", tree.root_id), ("/currentId", tree.current_id)] {
        if !places.contains_key(&id) {
            refuse(pointer.into(), "unknown_node", "no node has this id");
        }
    }
    check_parents(tree, &places, &mut refuse);
    check_children(tree, &places, &mut refuse);
    for n in adrift(tree, &places) {
        let pointer = format!("/nodes/{n}/parentId");
        refuse(pointer, "cycle", "the parents of the node form a cycle");
    }
    places
}

/// Checks that every node but the root names a parent that exists.
fn check_parents(
    tree: &TreeJson,
    places: &BTreeMap<NodeId, usize>,
    refuse: &mut impl FnMut(String, &'static str, &'static str),
) {
    for (n, node) in tree.nodes.iter().enumerate() {
        let is_root = node.id == tree.root_id;
        let (code, why) = match node.parent_id {
            None if is_root => continue,
            None => (
                "second_root",
                "a node without a parent that is not the root",
            ),
            Some(_) if is_root => ("root_parent", "the root has a parent"),
            Some(parent) if parent == node.id => ("self_parent", "a node is its own parent"),
            Some(parent) if !places.contains_key(&parent) => {
                ("unknown_node", "no node has this id")
            }
            Some(_) => continue,
        };
        refuse(format!("/nodes/{n}/parentId"), code, why);
    }
}

/// Checks that parents and children name each other.
fn check_children(
    tree: &TreeJson,
    places: &BTreeMap<NodeId, usize>,
    refuse: &mut impl FnMut(String, &'static str, &'static str),
) {
    let node_of = |id: &NodeId| tree.nodes.get(*places.get(id)?);
    let mut listed = BTreeSet::new();
    for (n, node) in tree.nodes.iter().enumerate() {
        for (k, child) in node.children.iter().enumerate() {
            let pointer = format!("/nodes/{n}/children/{k}");
            if !listed.insert(*child) {
                refuse(pointer, "duplicate_id", "a child that is listed before");
                continue;
            }
            match node_of(child) {
                None => refuse(pointer, "unknown_node", "no node has this id"),
                Some(child) if child.parent_id != Some(node.id) => {
                    refuse(pointer, "other_parent", "the child names another parent");
                }
                Some(_) => {}
            }
        }
    }
    for (n, node) in tree.nodes.iter().enumerate() {
        let is_known = |parent| places.contains_key(&parent);
        if node.parent_id.is_some_and(is_known) && !listed.contains(&node.id) {
            let pointer = format!("/nodes/{n}/parentId");
            refuse(pointer, "unlisted", "its parent does not list it");
        }
    }
}

/// The nodes on cycles.
fn adrift(tree: &TreeJson, places: &BTreeMap<NodeId, usize>) -> Vec<usize> {
    // The walk that has visited each node, so that each node is visited once.
    let mut seen = vec![usize::MAX; tree.nodes.len()];
    let mut found = Vec::new();
    for start in 0..tree.nodes.len() {
        let mut at = Some(start);
        while let Some(place) = at {
            let Some(mark) = seen.get_mut(place) else {
                break;
            };
            let before = core::mem::replace(mark, start);
            if before == start {
                found.push(place);
            }
            if before != usize::MAX {
                break;
            }
            let parent = tree.nodes.get(place).and_then(|node| node.parent_id);
            at = parent.and_then(|parent| places.get(&parent).copied());
            // A node that is its own parent has its own finding.
            if at == Some(place) {
                break;
            }
        }
    }
    found
}

impl Write for ThreadTree {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("rootId", &self.root().id);
        object.member("currentId", &self.current().id);
        object.member("nodes", &self.nodes);
        self.extra.write_into(&mut object);
        object.end();
    }
}

impl Write for ThreadNode {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("id", &self.id);
        match &self.parent_id {
            Some(parent) => object.member("parentId", parent),
            None => object.member("parentId", &Raw::NULL),
        };
        object.member("state", &self.state);
        object.optional("name", self.name.as_ref());
        object.member("children", &self.children);
        self.extra.write_into(&mut object);
        object.end();
    }
}
