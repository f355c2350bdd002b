//! Which agent the jobs of one affinity key go to.

use std::{collections::BTreeMap, sync::Arc};

use crate::id::ClientId;

/// Keys that are remembered; beyond it the one that was used least recently is forgotten.
const MAX_HOMES: usize = 4096;
/// Bytes of a key; a longer one is not remembered.
const MAX_KEY_BYTES: usize = 1024;

/// The agent that last accepted a job of each key.
#[derive(Debug, Default)]
pub(super) struct Homes {
    by_key: BTreeMap<Arc<str>, Home>,
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
}

#[derive(Debug)]
struct Home {
    agent: ClientId,
    used: u64,
}

impl Homes {
    pub(super) fn get(&self, key: &str) -> Option<&ClientId> {
        self.by_key.get(key).map(|home| &home.agent)
    }

    pub(super) fn set(&mut self, key: &str, agent: &ClientId) {
        if key.len() > MAX_KEY_BYTES {
            return;
        }
        self.uses += 1;
        let home = Home {
            agent: agent.clone(),
            used: self.uses,
        };
        let key: Arc<str> = key.into();
        if let Some(before) = self.by_key.insert(key.clone(), home) {
            self.by_use.remove(&before.used);
        }
        self.by_use.insert(self.uses, key);
        while self.by_use.len() > MAX_HOMES {
            if let Some((_, oldest)) = self.by_use.pop_first() {
                self.by_key.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn keys_are_bounded_and_the_oldest_goes() {
        let mut homes = Homes::default();
        homes.set("kept", &"a".into());
        for n in 0..MAX_HOMES {
            homes.set(&n.to_string(), &"b".into());
            homes.set("kept", &"c".into());
        }
        assert_eq!(homes.by_key.len(), MAX_HOMES);
        assert_eq!(homes.by_use.len(), MAX_HOMES);
        assert_eq!(homes.get("kept"), Some(&"c".into()));
        assert_eq!(homes.get("0"), None);
        assert_eq!(homes.get("1"), Some(&"b".into()));
        let long = "k".repeat(MAX_KEY_BYTES + 1);
        homes.set(&long, &"a".into());
        homes.set(&long[1..], &"a".into());
        assert_eq!((homes.get(&long), homes.get("1")), (None, None));
        assert!(homes.get(&long[1..]).is_some());
    }
}
