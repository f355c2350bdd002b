//! Conversations with branches.

mod json;

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::ConfigError;
use ubos_common::id::IdSource;

use crate::state::AgentState;

ubos_common::id_type! {
    /// Names one node of a [`ThreadTree`].
    pub struct NodeId;
}

/// Why an operation on a tree is refused. The tree is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BranchError {
    /// The tree has no such node.
    #[error("Node not found: {0}")]
    NotFound(NodeId),
    /// The tree has the maximum number of nodes.
    #[error("the tree has {limit} nodes and takes no more: raise its limit")]
    Full {
        /// The maximum.
        limit: usize,
    },
}

/// A node of a tree: a state, its parent and its children.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThreadNode {
    /// UUIDv4.
    pub id: NodeId,
    /// The parent; `None` for the root.
    pub parent_id: Option<NodeId>,
    /// The state, with the whole conversation from the root. A branch starts with the state of its parent.
    pub state: AgentState,
    /// The name of the branch.
    pub name: Option<Arc<str>>,
    /// The children, oldest first.
    pub children: Vec<NodeId>,
    pub(self) extra: ubos_common::json::Members<'static>,
}

impl ThreadNode {
    /// A node without parent, name and children.
    #[must_use]
    pub const fn new(id: NodeId, state: AgentState) -> Self {
        Self {
            id,
            parent_id: None,
            state,
            name: None,
            children: Vec::new(),
            extra: ubos_common::json::Members::new(),
        }
    }
}

/// A conversation with branches: each node has the state at its end, and one node is current.
///
/// A branch copies nothing: states share their common parts.
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
    /// Oldest first, so that the root is the first; never empty.
    nodes: Vec<ThreadNode>,
    places: BTreeMap<NodeId, usize>,
    current: usize,
    limit: usize,
    extra: ubos_common::json::Members<'static>,
}

impl ThreadTree {
    /// The default for the maximum number of nodes.
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

    /// Sets the maximum number of nodes: 100,000 by default. A branch beyond it is refused; existing nodes stay.
    ///
    /// # Errors
    ///
    /// The limit is 0: a tree has a root.
    pub fn with_limit(mut self, nodes: usize) -> Result<Self, ConfigError> {
        ConfigError::at_least("limit", nodes, 1)?;
        self.limit = nodes;
        Ok(self)
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &ThreadNode {
        self.at(0)
    }

    /// The current node.
    #[must_use]
    pub fn current(&self) -> &ThreadNode {
        self.at(self.current)
    }

    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&ThreadNode> {
        self.nodes.get(*self.places.get(&id)?)
    }

    /// All nodes, oldest first.
    #[must_use]
    pub fn nodes(&self) -> &[ThreadNode] {
        &self.nodes
    }

    /// The nodes without children.
    pub fn leaves(&self) -> impl Iterator<Item = &ThreadNode> {
        self.nodes.iter().filter(|node| node.children.is_empty())
    }

    /// The id and the name of each named node.
    pub fn branches(&self) -> impl Iterator<Item = (NodeId, Arc<str>)> {
        let named = |node: &'_ ThreadNode| Some((node.id, node.name.clone()?));
        self.nodes.iter().filter_map(named)
    }

    /// Adds a child to a node, with the current state of that node. The current node stays current.
    ///
    /// # Errors
    ///
    /// The tree has no such node, or the maximum number of nodes.
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

    /// Replaces the state of the current node, such as by the result of a run.
    pub fn set_state(&mut self, state: AgentState) {
        if let Some(node) = self.nodes.get_mut(self.current) {
            node.state = state;
        }
    }

    /// The state of the current node, with the whole conversation from the root.
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
