//! One conversation with its branches, and where it is kept.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use uap_agent::AgentState;
use uap_agent::{NodeId, ThreadNode, ThreadTree};
use ubos_common::id::IdSource;
use ubos_common::json::{Limits, to_vec};

/// The file of the tree, beside the checkpoint.
const TREE: &str = "thread-tree.json";

/// Held while the conversation is open.
const LOCK: &str = "thread-tree.lock";

/// Bytes of a tree that is read.
const LONGEST: usize = 256 << 20;

/// A conversation: a tree of branches, each with the state at its end.
#[derive(Debug)]
pub(super) struct Session {
    tree: ThreadTree,
    ids: IdSource,
    file: Option<PathBuf>,
    #[expect(clippy::disallowed_types, reason = "the tree is kept in a file")]
    #[expect(dead_code, reason = "only its drop matters")]
    lock: Option<std::fs::File>,
}

/// How a conversation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// It is new.
    New,
    /// It was there.
    Resumed,
    /// It was there, and its last answer had been cut off: what it had come to is kept.
    Rescued,
}

impl Session {
    /// A conversation below a folder, or a new one. `checkpoint` is the last state that an agent has saved.
    ///
    /// # Errors
    ///
    /// Another program has it open, or the tree cannot be read. It stays as it is.
    pub(super) fn open(
        folder: Option<&Path>,
        mut ids: IdSource,
        checkpoint: Option<AgentState>,
    ) -> Result<(Self, Begun), String> {
        let lock = folder.map(lock).transpose()?;
        let file = folder.map(|folder| folder.join(TREE));
        let tree = file.as_deref().map(read).transpose()?.flatten();
        let (tree, mut begun) = match tree {
            Some(tree) => (tree, Begun::Resumed),
            None => {
                let state = AgentState::initial(&mut ids);
                (ThreadTree::new(&mut ids, state), Begun::New)
            }
        };
        let mut session = Self {
            tree,
            ids,
            file,
            lock,
        };
        if let Some(state) = checkpoint.filter(|state| session.is_news(state)) {
            session.tree.set_state(state);
            begun = Begun::Rescued;
            session.keep().map_err(|err| err.to_string())?;
        }
        Ok((session, begun))
    }

    /// Whether a state is one that the tree does not have, and that goes on from its current node.
    fn is_news(&self, state: &AgentState) -> bool {
        let known = self
            .tree
            .nodes()
            .iter()
            .any(|node| node.state.id() == state.id());
        let (here, there) = (self.tree.history().messages(), state.messages());
        let goes_on = here.iter().zip(there.iter()).all(|(a, b)| a.id() == b.id());
        !known && goes_on && here.len() < there.len()
    }

    /// The state at the end of the current branch.
    pub(super) fn state(&self) -> &AgentState {
        self.tree.history()
    }

    /// The node that is current.
    pub(super) fn current(&self) -> &ThreadNode {
        self.tree.current()
    }

    /// The tree.
    pub(super) const fn tree(&self) -> &ThreadTree {
        &self.tree
    }

    pub(super) const fn ids(&mut self) -> &mut IdSource {
        &mut self.ids
    }

    /// Puts an answer at the end of the current branch.
    pub(super) fn answered(&mut self, state: AgentState) -> io::Result<()> {
        self.tree.set_state(state);
        self.keep()
    }

    /// Makes a branch that begins here.
    pub(super) fn branch(&mut self, name: Option<&str>) -> Result<NodeId, String> {
        if let Some(name) = name
            && self.tree.branches().any(|(_, taken)| &*taken == name)
        {
            return Err(format!("there is a branch {name}"));
        }
        let from = self.tree.current().id;
        let made = self.tree.branch(&mut self.ids, from, name);
        let made = made.map_err(|err| err.to_string())?;
        self.keep().map_err(|err| err.to_string())?;
        Ok(made)
    }

    /// Goes to a branch by its name, or by its id or the beginning of it.
    pub(super) fn checkout(&mut self, word: &str) -> Result<(), String> {
        let found = self.find(word)?;
        self.tree.checkout(found).map_err(|err| err.to_string())?;
        self.keep().map_err(|err| err.to_string())
    }

    fn find(&self, word: &str) -> Result<NodeId, String> {
        if let Some((id, _)) = self.tree.branches().find(|(_, name)| &**name == word) {
            return Ok(id);
        }
        let begins = |node: &&ThreadNode| node.id.to_string().starts_with(word);
        let mut found = self.tree.nodes().iter().filter(begins);
        match (found.next(), found.next()) {
            (Some(node), None) if word.len() >= 4 => Ok(node.id),
            (Some(_), Some(_)) if word.len() >= 4 => {
                Err(format!("more than one id begins with {word}"))
            }
            _ => Err(format!("no branch {word}; /tree shows them")),
        }
    }

    /// Puts the tree on the disk, whole or not at all.
    fn keep(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let next = file.with_extension("next");
        #[expect(clippy::disallowed_types, reason = "the tree is kept in a file")]
        let mut written = std::fs::File::create(&next)?;
        written.write_all(&to_vec(&self.tree))?;
        written.sync_all()?;
        std::fs::rename(next, file)
    }
}

/// Holds the conversation, so that no two programs write its tree.
#[expect(clippy::disallowed_types, reason = "the tree is kept in a file")]
fn lock(folder: &Path) -> Result<std::fs::File, String> {
    let place = folder.join(LOCK);
    let opened = std::fs::create_dir_all(folder).and_then(|()| std::fs::File::create(&place));
    let file = opened.map_err(|err| format!("{}: {err}", place.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err("the session is open in another agent-chat".to_owned())
        }
        Err(std::fs::TryLockError::Error(err)) => Err(format!("{}: {err}", place.display())),
    }
}

/// The tree of a file; none where there is no file.
fn read(file: &Path) -> Result<Option<ThreadTree>, String> {
    let place = file.display();
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(format!("{place}: {err}")),
    };
    // What was written must be read back.
    let limits = Limits::default()
        .with_max_bytes(LONGEST)
        .with_max_string_bytes(LONGEST)
        .with_max_array_len(LONGEST)
        .with_max_members(LONGEST)
        .with_max_depth(Limits::DEEPEST);
    let read = ThreadTree::from_json(&bytes, &limits);
    read.map(Some)
        .map_err(|err| format!("{place}: {}", first_line(&err.to_string())))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ubos_common::time::Timestamp;
    use upp::{Message, Stamp};

    use super::*;

    fn open(folder: &Path, seed: u64, checkpoint: Option<AgentState>) -> (Session, Begun) {
        Session::open(Some(folder), IdSource::seeded(seed), checkpoint).unwrap()
    }

    fn with_message(session: &mut Session, text: &str) -> AgentState {
        let state = session.state().clone();
        let stamp = Stamp::new(session.ids(), Timestamp::EPOCH);
        state.with_message(session.ids(), Message::user(stamp, text))
    }

    #[test]
    fn a_conversation_is_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (mut session, begun) = open(dir.path(), 1, None);
        assert_eq!(begun, Begun::New);
        let state = with_message(&mut session, "one");
        session.answered(state).unwrap();
        let second = Session::open(Some(dir.path()), IdSource::seeded(9), None);
        assert!(second.unwrap_err().contains("another agent-chat"));
        let made = session.branch(Some("other")).unwrap();
        assert_eq!(
            session.branch(Some("other")).unwrap_err(),
            "there is a branch other"
        );
        let state = with_message(&mut session, "two");
        session.answered(state.clone()).unwrap();
        session.checkout("other").unwrap();
        assert_eq!(session.state().messages().len(), 1);
        assert!(session.checkout("another").unwrap_err().contains("/tree"));
        drop(session);
        // The state of another branch is no news, and one that goes on from here is.
        let (session, begun) = open(dir.path(), 2, Some(state.clone()));
        assert_eq!((begun, session.current().id), (Begun::Resumed, made));
        let mut elsewhere = session;
        let cut = with_message(&mut elsewhere, "three");
        drop(elsewhere);
        let (session, begun) = open(dir.path(), 3, Some(cut.clone()));
        assert_eq!((begun, session.state()), (Begun::Rescued, &cut));
        drop(session);
        let (mut session, begun) = open(dir.path(), 4, Some(cut));
        assert_eq!(begun, Begun::Resumed);
        let root = session.tree().root().id.to_string();
        session.checkout(&root[..8]).unwrap();
        assert_eq!(session.state(), &state);
        assert!(session.checkout("").is_err());
    }

    #[test]
    fn a_tree_that_is_none_is_refused_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(TREE), "{}").unwrap();
        let refused = Session::open(Some(dir.path()), IdSource::seeded(1), None);
        assert!(refused.unwrap_err().contains(TREE));
        assert_eq!(std::fs::read(dir.path().join(TREE)).unwrap(), b"{}");
    }
}
