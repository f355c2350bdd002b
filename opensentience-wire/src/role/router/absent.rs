//! The tools of agents that are gone and come back: who calls one may try again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ledger::{Charge, Ledger, Share};

/// Which tools are expected back.
#[derive(Debug, Default)]
pub(super) struct Absent {
    tools: BTreeSet<Arc<str>>,
    /// By agent, with what they hold.
    of_agents: BTreeMap<Arc<str>, (Vec<Arc<str>>, Charge)>,
}

impl Absent {
    pub(super) fn contains(&self, tool: &str) -> bool {
        self.tools.contains(tool)
    }

    /// Expects the tools of an agent back, as far as its ledger has room for their names.
    pub(super) fn expect(
        &mut self,
        agent: &Arc<str>,
        ledger: &Ledger,
        tools: impl IntoIterator<Item = Box<str>>,
    ) {
        self.forget(agent);
        let mut charge = Charge::on(ledger, Share::Tools);
        let mut names = Vec::new();
        for tool in tools {
            if !self.contains(&tool) && charge.grow(TOOL_BYTES + tool.len()) {
                let name = Arc::<str>::from(tool);
                self.tools.insert(Arc::clone(&name));
                names.push(name);
            }
        }
        self.of_agents.insert(Arc::clone(agent), (names, charge));
    }

    /// Expects no tools of an agent back: it has come, or does not any more.
    pub(super) fn forget(&mut self, agent: &str) {
        let gone = self.of_agents.remove(agent);
        for tool in gone.into_iter().flat_map(|(tools, _)| tools) {
            self.tools.remove(&tool);
        }
    }
}

/// Bytes that a name takes beside its text.
const TOOL_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_tools_that_were_expected_twice() {
        let (mut absent, ledger) = (Absent::default(), Ledger::new(80 << 20));
        let agent = Arc::from("a");
        for tools in [["a/t", "a/u"], ["a/t", "a/v"]] {
            absent.expect(&agent, &ledger, tools.map(Box::from));
            assert_eq!(ledger.held_bytes(), 2 * (TOOL_BYTES + 3));
        }
        assert!(absent.contains("a/t") && absent.contains("a/v") && !absent.contains("a/u"));
        absent.forget("a");
        assert!(absent.tools.is_empty());
        assert_eq!(ledger.held_bytes(), 0);
    }
}
