//! Conversations that branch.

mod json;

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::id::IdSource;

use crate::state::AgentState;

ubos_common::id_type! {
    /// Names one node of a [`ThreadTree`].
    pub struct NodeId;
}

/// Why a tree does not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BranchError {
    /// The tree has no such node.
    #[error("Node not found: {0}")]
    NotFound(NodeId),
    /// The tree has as many nodes as it takes.
    #[error("{limit} nodes are the most this tree takes")]
    Full {
        /// Nodes that it takes.
        limit: usize,
    },
}

/// A node: a state, and where it stands.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThreadNode {
    /// UUIDv4.
    pub id: NodeId,
    /// None for the root alone.
    pub parent_id: Option<NodeId>,
    /// The whole conversation from the root to here: a branch begins with its parent's.
    pub state: AgentState,
    /// What the branch is called.
    pub name: Option<Arc<str>>,
    /// In the order in which they were made.
    pub children: Vec<NodeId>,
    pub(self) extra: ubos_common::json::Members<'static>,
}

/// A conversation that branches: each node has the state at its end, and one node is current.
///
/// Branching copies nothing: states share what they have in common.
///
/// ```
/// use uap_agent::{AgentState, ThreadTree};
/// use ubos_common::{id::IdSource, time::Timestamp};
/// use upp::{Message, Stamp};
///
/// let mut ids = IdSource::seeded(1);
/// let asked = AgentState::initial(&mut ids);
/// let mut tree = ThreadTree::new(&mut ids, asked);
/// let root = tree.root().id;
/// let other = tree.branch(&mut ids, root, Some("another way"))?;
/// tree.checkout(other)?;
/// let hello = Message::user(Stamp::new(&mut ids, Timestamp::EPOCH), "hello");
/// let state = tree.history().with_message(&mut ids, hello);
/// tree.set_state(state);
/// assert_eq!((tree.root().state.messages().len(), tree.history().messages().len()), (0, 1));
/// # Ok::<(), uap_agent::BranchError>(())
/// ```
///
/// Spec: UAP-1.1 7
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadTree {
    /// In the order in which they were made, the root first; never empty.
    nodes: Vec<ThreadNode>,
    places: BTreeMap<NodeId, usize>,
    current: usize,
    limit: usize,
    extra: ubos_common::json::Members<'static>,
}

impl ThreadTree {
    /// Nodes of one tree, unless another number is set.
    const DEFAULT_LIMIT: usize = 100_000;

    /// A tree of one node named `root`, which is current.
    #[must_use]
    pub fn new(ids: &mut IdSource, state: AgentState) -> Self {
        let root = ThreadNode {
            id: ids.next_id(),
            parent_id: None,
            state,
            name: Some("root".into()),
            children: Vec::new(),
            extra: ubos_common::json::Members::new(),
        };
        Self {
            places: BTreeMap::from([(root.id, 0)]),
            nodes: vec![root],
            current: 0,
            limit: Self::DEFAULT_LIMIT,
            extra: ubos_common::json::Members::new(),
        }
    }

    /// Sets how many nodes it takes, at least those that are there; a branch beyond it is refused.
    #[must_use]
    pub const fn with_limit(mut self, nodes: usize) -> Self {
        self.limit = nodes;
        self
    }

    /// The node that all others come from.
    #[must_use]
    pub fn root(&self) -> &ThreadNode {
        self.at(0)
    }

    /// The node that is current.
    #[must_use]
    pub fn current(&self) -> &ThreadNode {
        self.at(self.current)
    }

    /// A node, if it is there.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&ThreadNode> {
        self.nodes.get(*self.places.get(&id)?)
    }

    /// All nodes in the order in which they were made, the root first.
    #[must_use]
    pub fn nodes(&self) -> &[ThreadNode] {
        &self.nodes
    }

    /// The nodes without children.
    pub fn leaves(&self) -> impl Iterator<Item = &ThreadNode> {
        self.nodes.iter().filter(|node| node.children.is_empty())
    }

    /// The nodes with names.
    pub fn branches(&self) -> impl Iterator<Item = (NodeId, Arc<str>)> {
        let named = |node: &'_ ThreadNode| Some((node.id, node.name.clone()?));
        self.nodes.iter().filter_map(named)
    }

    /// Makes a child of a node, with the state that the node has now. The current node stays current.
    ///
    /// # Errors
    ///
    /// There is no such node, or no room for one more.
    ///
    /// Spec: UAP-1.1 7.1
    // impl: UAP-7-1
    pub fn branch(
        &mut self,
        ids: &mut IdSource,
        from: NodeId,
        name: Option<&str>,
    ) -> Result<NodeId, BranchError> {
        let limit = self.limit;
        let place = self.place(from)?;
        if self.nodes.len() >= limit {
            return Err(BranchError::Full { limit });
        }
        let node = ThreadNode {
            id: ids.next_id(),
            parent_id: Some(from),
            state: self.at(place).state.clone(),
            name: name.map(Into::into),
            children: Vec::new(),
            extra: ubos_common::json::Members::new(),
        };
        let id = node.id;
        self.places.insert(id, self.nodes.len());
        self.nodes.push(node);
        if let Some(parent) = self.nodes.get_mut(place) {
            parent.children.push(id);
        }
        Ok(id)
    }

    /// Makes a node current.
    ///
    /// # Errors
    ///
    /// There is no such node.
    ///
    /// Spec: UAP-1.1 7.1
    pub fn checkout(&mut self, id: NodeId) -> Result<(), BranchError> {
        self.current = self.place(id)?;
        Ok(())
    }

    /// Replaces the current node's state: what a run gave. No other node's changes.
    pub fn set_state(&mut self, state: AgentState) {
        if let Some(node) = self.nodes.get_mut(self.current) {
            node.state = state;
        }
    }

    /// The current node's state, which has all that was said from the root on.
    ///
    /// Spec: UAP-1.1 7.1
    #[must_use]
    pub fn history(&self) -> &AgentState {
        &self.current().state
    }

    fn place(&self, id: NodeId) -> Result<usize, BranchError> {
        let place = self.places.get(&id).copied();
        place.ok_or(BranchError::NotFound(id))
    }

    #[expect(
        clippy::expect_used,
        reason = "places are those of nodes, and the root is always there"
    )]
    fn at(&self, place: usize) -> &ThreadNode {
        self.nodes.get(place).expect("a place of this tree")
    }
}
