//! The keys of tool calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ubos_common::canon::Digest;
use ubos_common::id::IdSource;
use ubos_common::json::MemberWriter;
use upp::ToolCall;

use crate::engine::CallScope;
use crate::state::StateId;

/// What a key is made of.
#[derive(Clone)]
pub(super) struct CallKey {
    call: ToolCall,
    place: KeyPlace,
    inside: Arc<Mutex<Inside>>,
}

/// What tells calls with the same tool and arguments apart.
#[derive(Clone)]
enum KeyPlace {
    /// The call's state, and its number among the calls of a response that have its id.
    State(StateId, u64),
    /// The call within which it is made, and its number among the same calls there. Ids differ where a run is repeated: those of
    /// calls are the model's, and those of states depend on how often it had to be asked.
    Within(Digest, u64),
}

/// What was counted inside of a call.
#[derive(Default)]
struct Inside {
    /// Calls, by the keys of the first with their tool and arguments.
    calls: BTreeMap<Digest, u64>,
    runs: u64,
}

impl CallKey {
    pub(super) fn new(call: &ToolCall, scope: &CallScope, outer: Option<&Self>) -> Self {
        let at = |place| Self {
            call: call.clone(),
            place,
            inside: Arc::default(),
        };
        let Some(outer) = outer else {
            return at(KeyPlace::State(scope.state_id, scope.nth));
        };
        let within = outer.digest();
        let nth = outer.count(at(KeyPlace::Within(within, 0)).digest());
        at(KeyPlace::Within(within, nth))
    }

    pub(super) fn digest(&self) -> Digest {
        let mut bytes = Vec::new();
        let mut object = MemberWriter::begin(&mut bytes);
        object.member("tool", &*self.call.tool_name);
        let nth = match &self.place {
            KeyPlace::State(id, nth) => {
                object.member("callId", &*self.call.tool_call_id);
                object.member("arguments", &self.call.arguments);
                object.member("state", id);
                *nth
            }
            KeyPlace::Within(key, nth) => {
                object.member("arguments", &self.call.arguments);
                object.member("within", &*key.to_string());
                *nth
            }
        };
        if nth > 0 {
            object.member("nth", &nth);
        }
        object.end();
        Digest::of_bytes(&bytes)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call inside of this one, by the key of the first such; returns how many there were before.
    fn count(&self, first: Digest) -> u64 {
        let mut inside = self.inside();
        let count = inside.calls.entry(first).or_default();
        let before = *count;
        *count += 1;
        before
    }

    /// The source of ids for the next run inside of the call.
    pub(super) fn fork_ids(&self) -> IdSource {
        let mut inside = self.inside();
        let run = inside.runs;
        inside.runs += 1;
        let [a, b, c, d, e, f, g, h, ..] = *self.digest().as_bytes();
        IdSource::seeded(u64::from_le_bytes([a, b, c, d, e, f, g, h]).wrapping_add(run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: UAP-12-5
    #[test]
    fn keys_are_those_of_earlier_versions() {
        let call = |id: &str, tool: &str| {
            ToolCall::new(id.into(), tool.into(), upp::object(r#"{"sum":5}"#).unwrap())
        };
        let scope = CallScope {
            step: 1,
            state_id: "00000000-0000-4000-8000-000000000001".parse().unwrap(),
            nth: 0,
            trace: None,
            is_repeated: false,
        };
        let outer = CallKey::new(&call("c1", "pay"), &scope, None);
        let inner = CallKey::new(&call("c2", "look"), &scope, Some(&outer));
        let again = CallKey::new(&call("c3", "look"), &scope, Some(&outer));
        let keys = [outer, inner, again].map(|key| key.digest().to_string());
        let wanted = [
            "da041295087c1c9eabf4800c2907639d42e3aa340e71c19c6a486e720219e031",
            "65dd77fd3e2f6b0eddfa9ae6b7e0cb32e933e443872293f9fefc702e5d78cfa6",
            "d1a3f08d3e5880f6b6d23800811b85ddabf15f433eacce64fa0370fa8acd0fc4",
        ];
        assert_eq!(keys, wanted);
    }
}
