//! Schemas are compiled on threads that may block: one at a time in a process, so that many strangers take no more than one
//! processor, and once for each text, however often an agent comes back with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use ubos_common::canon::Digest;

use crate::message::ToolSpec;
use crate::role::core::{Budget, SchemaCheck, SchemaVerdicts, Verdict, verdict};

/// Verdicts that are kept at most: half of them are the latest that were asked for, and none of those is forgotten.
const KNOWN: usize = 4_096;

/// Whether a thread compiles. The turn is taken there: given to a task, it would stay there while nobody drives its runtime.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// A turn is over: all that wait for one try.
static TURN_OVER: Notify = Notify::const_new();

static VERDICTS: LazyLock<Mutex<Verdicts>> = LazyLock::new(Mutex::default);

/// Verdicts by the digests of their schemas. The older half goes at once, so that strangers push out what nobody comes back with.
#[derive(Default)]
struct Verdicts {
    latest: HashMap<Digest, Verdict>,
    older: HashMap<Digest, Verdict>,
}

impl Verdicts {
    fn get(&mut self, digest: &Digest) -> Option<Verdict> {
        if let Some(verdict) = self.latest.get(digest) {
            return Some(verdict.clone());
        }
        let verdict = self.older.remove(digest)?;
        self.insert(*digest, verdict.clone());
        Some(verdict)
    }

    fn insert(&mut self, digest: Digest, verdict: Verdict) {
        if self.latest.len() >= KNOWN / 2 {
            self.older = core::mem::take(&mut self.latest);
        }
        self.latest.insert(digest, verdict);
    }
}

/// Gives one verdict for each tool.
pub(super) async fn check(check: SchemaCheck) -> SchemaVerdicts {
    let mut verdicts = Vec::with_capacity(check.tools().len());
    let mut budget = Budget::default();
    for tool in check.tools() {
        verdicts.push(verdict_of(tool, &mut budget).await);
    }
    SchemaVerdicts(verdicts)
}

/// What is known costs nothing again; what is not is compiled while there is anything left to spend.
async fn verdict_of(tool: &Arc<ToolSpec>, budget: &mut Budget) -> Verdict {
    let digest = digest_of(tool);
    loop {
        // Made before the look, so that no end that comes in between is missed.
        let over = TURN_OVER.notified();
        if let Some(verdict) = known(|verdicts| verdicts.get(&digest)) {
            return verdict;
        }
        if budget.is_spent() {
            return Verdict::too_dear();
        }
        if IS_TAKEN.load(Ordering::SeqCst) {
            over.await;
            continue;
        }
        let tool = Arc::clone(tool);
        // Whoever waits may go away: the turn ends when the work does.
        let compiled = spawn_blocking(move || Some(compile(&CompileTurn::take()?, digest, &tool)));
        match compiled.await {
            Ok(Some(verdict)) => return budget.spend(|| verdict),
            // Another thread was faster.
            Ok(None) => over.await,
            Err(_) => return Verdict::unchecked("the schemas could not be checked"),
        }
    }
}

/// Gives the verdict of a tool, and keeps it for whoever asks next.
fn compile(_: &CompileTurn, digest: Digest, tool: &ToolSpec) -> Verdict {
    // Somebody else may have had the same.
    if let Some(verdict) = known(|verdicts| verdicts.get(&digest)) {
        return verdict;
    }
    let verdict = verdict(tool);
    let kept = Verdict {
        cost: 0,
        ..verdict.clone()
    };
    known(|verdicts| verdicts.insert(digest, kept));
    verdict
}

/// The turn of a thread, with one tool: a long registration holds up no other. Threads do not wait for it, because an application
/// may need them.
struct CompileTurn;

impl CompileTurn {
    fn take() -> Option<Self> {
        (!IS_TAKEN.swap(true, Ordering::SeqCst)).then_some(Self)
    }
}

impl Drop for CompileTurn {
    fn drop(&mut self) {
        IS_TAKEN.store(false, Ordering::SeqCst);
        TURN_OVER.notify_waiters();
    }
}

fn known<T>(look: impl FnOnce(&mut Verdicts) -> T) -> T {
    look(&mut VERDICTS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Of both schemas: of their digests, so that no text of one can look like the other's.
fn digest_of(tool: &ToolSpec) -> Digest {
    let schemas = [Some(&tool.input_schema), tool.output_schema.as_ref()];
    let digests = schemas.map(|schema| {
        schema.map_or([0; 32], |schema| {
            *Digest::of_bytes(schema.as_str().as_bytes()).as_bytes()
        })
    });
    Digest::of_bytes(digests.as_flattened())
}

#[cfg(test)]
mod tests {
    use core::task::{Context, Waker};
    use std::pin::pin;

    use ubos_common::json::{RawBuf, RawObject};

    use super::*;

    fn tool(input: &str, output: Option<&str>) -> Arc<ToolSpec> {
        let object = |text: &str| RawObject::new(RawBuf::parse(text).unwrap()).unwrap();
        let mut tool = ToolSpec::local("t", "d", object(input));
        tool.output_schema = output.map(object);
        tool.into()
    }

    #[test]
    fn schemas_are_told_apart_by_both() {
        let (a, b) = (r#"{"title":"a"}"#, r#"{"title":"b"}"#);
        let tools = [
            tool(a, None),
            tool(b, None),
            tool(a, Some(b)),
            tool(b, Some(a)),
        ];
        let digests = tools.map(|tool| digest_of(&tool));
        let different: std::collections::HashSet<_> = digests.iter().collect();
        assert_eq!(different.len(), digests.len());
        assert_eq!(digest_of(&tool(a, Some(b))), digests[2]);
    }

    #[test]
    fn what_is_asked_for_again_is_not_pushed_out_by_strangers() {
        let mut verdicts = Verdicts::default();
        let digest = |n: usize| Digest::of_bytes(&n.to_le_bytes());
        let verdict = |n: usize| Verdict::unchecked(&n.to_string());
        for n in 0..5 * KNOWN {
            verdicts.insert(digest(n), verdict(n));
            assert_eq!(verdicts.get(&digest(0)), Some(verdict(0)));
            assert!(verdicts.latest.len() + verdicts.older.len() <= KNOWN);
        }
        assert_eq!(verdicts.get(&digest(1)), None);
        let mut latest = 5 * KNOWN - 1_000..5 * KNOWN;
        assert!(latest.all(|n| verdicts.get(&digest(n)) == Some(verdict(n))));
    }

    #[tokio::test]
    async fn a_new_schema_is_compiled_elsewhere_and_a_known_one_not_again() {
        let tool = tool(r#"{"title":"compiled elsewhere","type":7}"#, None);
        let asked = SchemaCheck::of(vec![Arc::clone(&tool)]);
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(check(asked.clone()));
        assert!(first.as_mut().poll(&mut context).is_pending());
        let mut verdicts = first.await;
        assert_eq!(verdicts, asked.run());
        let verdict = &mut verdicts.0[0];
        assert_eq!(verdict.unusable.is_some(), cfg!(feature = "schema"));
        assert!(verdict.cost > 0);
        verdict.cost = 0;
        let again = pin!(check(asked)).poll(&mut context);
        assert_eq!(again, core::task::Poll::Ready(verdicts));
    }
}
