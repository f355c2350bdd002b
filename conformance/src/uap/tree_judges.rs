//! What thread trees show.

use crate::{Judge, Verdict};

use super::event_judges::one_line;
use super::fault::FirstFault;
use super::recording::RecordedLine;
use uap_agent::ThreadTree;

/// Every tree can be read.
#[derive(Default)]
pub(super) struct Valid(FirstFault);

impl Judge<RecordedLine> for Valid {
    fn see(&mut self, line: &RecordedLine) {
        self.0.next();
        if let RecordedLine::Tree(seen) = line {
            self.0.look();
            if let Err(why) = &seen.read {
                self.0.refuse(one_line(why));
            }
        }
    }

    fn verdict(&mut self) -> Verdict {
        self.0.verdict("no thread tree")
    }
}

/// Nodes stay, each below its parent. Another root is another tree.
#[derive(Default)]
pub(super) struct Stays(FirstFault, Option<ThreadTree>);

impl Judge<RecordedLine> for Stays {
    fn see(&mut self, line: &RecordedLine) {
        self.0.next();
        let RecordedLine::Tree(seen) = line else {
            return;
        };
        let Ok(tree) = &seen.read else { return };
        let last = self.1.replace(tree.clone());
        let Some(last) = last.filter(|last| last.root().id == tree.root().id) else {
            return;
        };
        self.0.look();
        let stays = last.nodes().iter().all(|node| {
            let now = tree.node(node.id);
            now.is_some_and(|now| now.parent_id == node.parent_id)
        });
        self.0
            .refuse_if(!stays, "a node is gone, or has another parent");
    }

    fn verdict(&mut self) -> Verdict {
        self.0.verdict("no two states of one thread tree")
    }
}
