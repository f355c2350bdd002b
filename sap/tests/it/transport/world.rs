//! An agent with a capability for each way in which a task can end, and who watches it.

use futures::executor::block_on;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use sap::alignment::Rules;
use sap::processor::{
    Config, Context, HandlerError, Outcome, Processor, Progress, Table, Unreachable,
};
use sap::store::MemoryTranscript;
use sap::transcript::{EntryKind, Transcript as _};
use sap::transport::{Replies, Service, ToEndpoint};
use sap::validate::{Options, decode_task};
use sap::{Producer, ProducerKind, Task, TaskResult};
use serde_json::{Value, json};
use ubos_common::driver::Sleep;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::os::Clock;
use ubos_common::time::{Mono, Now};
use ubos_common::trace_context::TraceContext;

use crate::samples::{task, with};

/// The system's time on tokio.
#[derive(Default)]
pub(crate) struct Real(Clock);

impl Sleep for Real {
    fn now(&self) -> Now {
        self.0.now()
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        let span = deadline.saturating_since(self.0.now().mono);
        Box::pin(tokio::time::sleep(span))
    }
}

/// A clock that stands still until a test has it go on. It begins when the tasks of the samples were issued.
#[derive(Clone, Debug)]
pub(crate) struct ByHand {
    begin: Now,
    gone: tokio::sync::watch::Sender<Duration>,
}

impl ByHand {
    pub(crate) fn new() -> Self {
        let issued = "2025-09-28T10:15:23Z".parse().unwrap();
        Self {
            begin: Now::new(Mono::ZERO, issued),
            gone: tokio::sync::watch::Sender::new(Duration::ZERO),
        }
    }

    pub(crate) fn go_on(&self, span: Duration) {
        self.gone.send_modify(|gone| *gone += span);
    }

    /// How far it has gone.
    pub(crate) fn gone(&self) -> Duration {
        *self.gone.borrow()
    }

    /// Goes on a second at a time, for as long as it is awaited. Others have their turn after each.
    pub(crate) async fn run(&self) -> ! {
        loop {
            tokio::task::yield_now().await;
            self.go_on(Duration::from_secs(1));
            let month = Duration::from_secs(30 * 24 * 3_600);
            assert!(self.gone() < month, "somebody waits without end");
        }
    }
}

impl Sleep for ByHand {
    fn now(&self) -> Now {
        self.begin.plus(self.gone())
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        let mut gone = self.gone.subscribe();
        Box::pin(async move {
            let due = |gone: &Duration| Mono::ZERO.saturating_add(*gone) >= deadline;
            let _ = gone.wait_for(due).await;
        })
    }
}

/// The system's time, but out of order for as long as it is told so.
#[derive(Default)]
pub(crate) struct Faulty {
    real: Real,
    pub(crate) is_broken: AtomicBool,
}

impl Sleep for Faulty {
    fn now(&self) -> Now {
        let is_broken = self.is_broken.load(Ordering::SeqCst);
        assert!(!is_broken, "a clock's own fault");
        self.real.now()
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        self.real.sleep_until(deadline)
    }
}

/// What can be seen from outside of the agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) log: Arc<MemoryTranscript>,
    pub(crate) calls: Arc<AtomicUsize>,
    pub(crate) warnings: Arc<Mutex<Vec<String>>>,
    pub(crate) inbox: Arc<Mutex<Vec<TaskResult>>>,
    /// The places in traces that came with tasks of `test.echo`, and went with results to the endpoint.
    pub(crate) traces: Arc<Mutex<Vec<Option<TraceContext>>>>,
    /// Lets `test.gate` go on.
    pub(crate) gate: Arc<AtomicBool>,
}

/// The one endpoint that is there.
pub(crate) const INBOX: &str = "test:inbox";

impl Replies for Seen {
    fn send<'a>(&'a self, sent: ToEndpoint<'a>) -> BoxFuture<'a, Result<(), Unreachable>> {
        Box::pin(async move {
            if sent.endpoint != INBOX {
                return Err(Unreachable::NoWay);
            }
            self.inbox.lock().unwrap().push(sent.result.clone());
            self.traces.lock().unwrap().push(sent.trace.cloned());
            Ok(())
        })
    }
}

impl Seen {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Kinds of the entries of the transcript from a number on; results by their status.
    pub(crate) fn written(&self, from: u64) -> Vec<String> {
        let entries = block_on(self.log.read(from, 10_000)).unwrap();
        let kind = |entry: &sap::transcript::Entry| match entry.kind {
            EntryKind::Result => {
                let body: Value = entry.body.deserialize().unwrap();
                body["status"].as_str().unwrap().to_owned()
            }
            _ => entry.kind.to_string(),
        };
        entries.iter().map(kind).collect()
    }

    pub(crate) fn entries(&self) -> u64 {
        self.log.verify(None).unwrap().records
    }

    pub(crate) fn processor(&self, config: Config) -> Processor {
        let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
        let (calls, gate) = (Arc::clone(&self.calls), Arc::clone(&self.gate));
        let traces = Arc::clone(&self.traces);
        let mut table = Table::default();
        for what in CAPABILITIES {
            table = table.allow("A-prime".parse().unwrap(), what.parse().unwrap());
        }
        Processor::new(producer, Arc::new(table), self.log.clone(), config)
            .unwrap()
            .refusals(self.log.clone())
            .policy(Arc::new(Rules::default().forbid("strategic_pause", "burn")))
            .handle("test.echo".parse().unwrap(), move |cx: Context| {
                calls.fetch_add(1, Ordering::SeqCst);
                traces.lock().unwrap().push(cx.trace.clone());
                async move { Ok(Outcome::new(whole(&cx.task)).citing(vec!["ubos://a".into()])) }
            })
            .handle("test.steps".parse().unwrap(), steps)
            .handle("test.many".parse().unwrap(), |mut cx: Context| async move {
                for n in 0..100 {
                    cx.report(Progress::running(Some(text(&n.to_string()))))
                        .await;
                }
                Ok(Outcome::new(text("3")))
            })
            .handle("test.gate".parse().unwrap(), move |mut cx: Context| {
                let gate = Arc::clone(&gate);
                async move {
                    cx.report(Progress::running(Some(text("1")))).await;
                    while !gate.load(Ordering::SeqCst) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Ok(Outcome::new(text("3")))
                }
            })
            .handle("test.part".parse().unwrap(), |mut cx: Context| async move {
                cx.report(Progress::partial(whole(&cx.task), vec![RawObject::empty()]))
                    .await;
                Ok(Outcome::new(text("3")))
            })
            .handle("test.fail".parse().unwrap(), |_: Context| async {
                Err(HandlerError::unprocessable("no such topic"))
            })
            .handle("test.panic".parse().unwrap(), |_: Context| async {
                panic!("a handler's own fault")
            })
            .handle("test.burn".parse().unwrap(), |_: Context| async {
                Ok(Outcome::new(text("\"burn it\"")))
            })
            .handle("test.hang".parse().unwrap(), |_: Context| {
                std::future::pending()
            })
            .handle("test.denied".parse().unwrap(), |_: Context| {
                std::future::pending()
            })
    }

    pub(crate) fn service_of(&self, config: Config) -> Service {
        let warnings = Arc::clone(&self.warnings);
        Service::new(Arc::new(self.processor(config)), Arc::new(Real::default()))
            .replies(Arc::new(self.clone()))
            .on_warning(move |warning| warnings.lock().unwrap().push(warning.to_string()))
    }
}

const CAPABILITIES: [&str; 9] = [
    "test.many",
    "test.part",
    "test.echo",
    "test.gate",
    "test.steps",
    "test.fail",
    "test.panic",
    "test.burn",
    "test.hang",
];

/// The task as its own output, so that a test sees what arrived.
fn whole(task: &Task) -> RawBuf {
    RawBuf::parse(std::str::from_utf8(&task.encode()).unwrap()).unwrap()
}

async fn steps(mut cx: Context) -> Result<Outcome, HandlerError> {
    cx.report(Progress::running(Some(text("1")))).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    cx.report(Progress::partial(text("2"), vec![RawObject::empty()]))
        .await;
    Ok(Outcome::new(text("3")))
}

pub(crate) fn text(text: &str) -> RawBuf {
    RawBuf::parse(text).unwrap()
}

/// A task for a capability, numbered, without deadline, cache and endpoint.
pub(crate) fn ask(number: u16, capability: &str) -> Value {
    let id = format!("00000000-0000-0000-0000-00000000{number:04}");
    let mut task = with(task(), "/taskId", Some(json!(id)));
    for absent in [
        "/parentTaskId",
        "/telemetry",
        "/replyTo",
        "/outputContract",
        "/constitutionalContext/cachePolicy",
    ] {
        task = with(task, absent, None);
    }
    with(task, "/target/capability", Some(json!(capability)))
}

/// The typed task, read from exactly this text.
pub(crate) fn typed(text: &str) -> Task {
    decode_task(text.as_bytes(), &Options::default()).unwrap().0
}

/// Keys of the issuer and of the agent, and another key of the agent's name.
#[cfg(all(feature = "sign", any(feature = "mcp", feature = "external-tests")))]
pub(crate) struct Signatures {
    pub(crate) desk: Arc<sap::sign::SigningKey>,
    /// Those of the agent.
    pub(crate) keys: Arc<sap::sign::Keys>,
    pub(crate) other_keys: Arc<sap::sign::Keys>,
}

#[cfg(all(feature = "sign", any(feature = "mcp", feature = "external-tests")))]
impl Signatures {
    pub(crate) fn new() -> Self {
        let keys = |seed| {
            let public = signing_key("agent", seed).public_key();
            let keys = sap::sign::Keys::default();
            Arc::new(keys.trust("agent", public, "A-ml-001".parse().unwrap()))
        };
        Self {
            desk: signing_key("desk", 1),
            keys: keys(2),
            other_keys: keys(3),
        }
    }
}

#[cfg(all(feature = "sign", any(feature = "mcp", feature = "external-tests")))]
fn signing_key(id: &str, seed: u8) -> Arc<sap::sign::SigningKey> {
    let seed = ubos_common::secret::Secret::new([seed; 32]);
    Arc::new(sap::sign::SigningKey::from_seed(id, &seed).unwrap())
}

/// Takes tasks that `desk` has signed for `A-prime`, and signs results as `agent`.
#[cfg(all(feature = "sign", any(feature = "mcp", feature = "external-tests")))]
pub(crate) fn signed_service(seen: &Seen) -> Service {
    use sap::processor::{AllowAll, Signed};
    let public = signing_key("desk", 1).public_key();
    let keys = sap::sign::Keys::default().trust("desk", public, "A-prime".parse().unwrap());
    let agent = "A-ml-001".parse().unwrap();
    let clock = Arc::new(Real::default());
    // The tasks of the suite are old, and name no agent.
    let signed = Signed::new(Arc::new(keys), agent, clock, Arc::new(AllowAll));
    let signed = signed.without_target().without_max_age();
    let processor = seen
        .processor(Config::default())
        .authorize(Arc::new(signed));
    let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
    service.sign(signing_key("agent", 2))
}
